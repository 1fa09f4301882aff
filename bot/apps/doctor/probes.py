"""Measurements of the doctor: each function looks at one thing, changes nothing, and returns its finding."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from agent_runtime import CATALOG, AgentError, ModelOptions, Request, pick_sandbox, provider_for
from agent_runtime import Message as ModelMessage
from bot.apps.app_access import app_access
from bot.apps.doctor import findings
from bot.apps.doctor.findings import DeliveryAttempt, Finding
from bot.apps.process import ROOT
from bot.apps.services import networks, sandbox_settings
from bot.apps.storage import blobs_of
from bot.domain.errors import ConfigError, QueueError, StorageError
from bot.gate.network import reach, reachable, unkept
from bot.github import GitHubError, app_use, describe_app
from bot.settings.agent import AgentSettings
from bot.settings.model import Settings
from bot.settings.table import PROVIDER_KEYS

_SECONDS = 20
_ONLINE_TOKENS = 16  # the least that every service takes
_TRIALS = "doctor"
"""The names of the objects that are stored on trial begin with it; no other part of the bot uses it."""


def user(*, allow_root: bool) -> Finding:
    """Whom we run as."""
    number = os.geteuid()
    if number != 0:
        return findings.good("user", f"user {number}")
    return findings.good("user", "root, as allowed") if allow_root else findings.bad("user", "root", ROOT)


def sandbox(agent: AgentSettings) -> list[Finding]:
    """Start a program in the sandbox that jobs would run in; and whether that can keep to the network."""
    try:
        level = pick_sandbox(agent.sandbox, sandbox_settings(agent)).level
    except (AgentError, ConfigError) as error:
        return [findings.bad("sandbox", "none that works", str(error))]
    works = findings.good("sandbox", f"{level} works")
    if problem := unkept(level, networks(agent)):
        return [works, findings.bad("network", f"not enforced by {level}", problem)]
    which = "commands that are not on the list require" if reachable(level, agent.network) else "no command needs"
    return [works, findings.good("network", f"{reach(agent.network)}; at the level `ask`, {which} an approval")]


def programs() -> list[Finding]:
    """The programs that the bot starts itself."""
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return [findings.git("")]
    return [findings.git(done.stdout.strip())]


def data_directory(place: Path) -> list[Finding]:
    """The directory of the mirrors, the workspaces and, by default, the database."""
    # A `Path` raises for what this user may not look at.
    if not os.access(place, os.F_OK):
        above = next(each for each in place.absolute().parents if os.access(each, os.F_OK))
        if not os.access(above, os.W_OK | os.X_OK):
            return [findings.bad("data directory", f"{place} is missing", _make(place))]
        return [findings.good("data directory", f"{place}, will be created"), _disk("disk", above)]
    if not place.is_dir() or not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return [findings.bad("data directory", f"{place} is not a writable directory", _make(place))]
    status = place.stat()
    whose = findings.directory(str(place), status.st_mode, status.st_uid, os.geteuid())
    return [whose, _disk("disk", place)]


def _make(place: Path) -> str:
    return f"sudo install --directory --mode=700 --owner={os.geteuid()} {place}   (or set CODEPILOT_DATA_DIR)"


def _disk(name: str, place: Path) -> Finding:
    free = os.statvfs(place)
    return findings.disk(name, str(place), free.f_bavail * free.f_frsize, free.f_favail if free.f_files else None)


def database(settings: Settings) -> Finding:
    """The database of the jobs; an SQLite file that is not there yet is made under another name, and goes again."""
    shared, url, trial = settings.shared_database, settings.jobs_url, None
    if shared is not None:
        name = f"PostgreSQL at {urlsplit(shared).hostname or 'a local socket'}"
        fix = "Check CODEPILOT_DATABASE_URL."
    else:
        path = Path(url.removeprefix("sqlite:///"))
        name = str(path)
        fix = f"Keep {path.parent} on a local disk; a damaged database can be moved away, but its jobs are lost."
        if settings.database_url is None and not os.access(path.parent, os.F_OK):
            return findings.skipped("database", f"{path.parent} is not there yet")
        if not os.access(path, os.F_OK):
            trial = path.with_name(f"doctor-{secrets.token_hex(4)}.sqlite")
            url = f"sqlite:///{trial}"
    try:
        from bot.engine.durable.store import JobStore, examine  # noqa: PLC0415 - the extra `service` may be missing

        if trial is not None:
            JobStore(url).close_here()
        examine(url)
    except ImportError as error:
        return findings.bad("database", str(error), "pip install 'codepilot-bot[service]'")
    except QueueError as error:
        return findings.bad("database", f"{name} cannot be used", f"{error}. {fix}")
    finally:
        for left in trial.parent.glob(f"{trial.name}*") if trial is not None else ():
            left.unlink()
    return findings.good("database", name if trial is None else f"{name}, can be made")


def blob_store(settings: Settings) -> Finding:
    """The blob store: whether a small object can be written, read, listed and deleted there."""
    if settings.storage_url is None:
        if settings.shared_database is None:
            return findings.good("blob store", "none, which is enough for one machine")
        fix = "Set CODEPILOT_STORAGE_URL, or workers on other machines cannot continue the jobs that wait on this one."
        return findings.warning("blob store", "none, while machines may share the database", fix)
    name, content = f"{_TRIALS}/{secrets.token_hex(8)}", secrets.token_bytes(16)
    try:
        blobs = blobs_of(settings, settings.storage_url)
        blobs.put(name, content)
        whole = blobs.get(name, limit=len(content)) == content and name in {each.name for each in blobs.list(_TRIALS)}
        blobs.delete(name)
    except (ConfigError, StorageError) as error:
        return findings.bad("blob store", f"{settings.storage_url} cannot be used", str(error))
    if not whole:
        fix = "The service must return and list each object immediately after it was stored; use one that does."
        return findings.bad("blob store", f"{settings.storage_url} does not have what was just stored", fix)
    return findings.good("blob store", settings.storage_url)


def temporary_files() -> list[Finding]:
    """The directory for temporary files, from which the control interpreter's sandbox is started."""
    place = Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="codepilot-doctor-") as directory:
        script = Path(directory, "try")
        script.write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
        script.chmod(0o700)
        try:
            code = subprocess.run([script], timeout=_SECONDS, check=False).returncode
        except OSError:
            code = 126
    if code != 0:
        fix = f"Set TMPDIR to a directory from which programs can be started; {place} is mounted noexec."
        return [findings.bad("temporary files", f"programs cannot be started in {place}", fix)]
    return [_disk("temporary files", place)]


def terminals() -> Finding:
    """The kernel's bounds on terminals."""
    return findings.terminals(*(_number(Path("/proc/sys/kernel/pty", name)) for name in ("max", "nr")))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not Linux
        return None


async def github(settings: Settings | None) -> list[Finding]:
    """Sign in as the App, and compare the clocks; None when it is not known how."""
    if settings is None:
        why = "the App's id or key, or GitHub's address, is not set or invalid"
        return [findings.skipped("GitHub App", why), findings.clock(datetime.now(UTC), None)]
    answer = await describe_app(app_access(settings))
    clock = findings.clock(datetime.now(UTC), answer.clock)
    if answer.refused:
        fix = (
            "Check CODEPILOT_API_URL, and that this machine can reach it (DNS, firewall, proxy)."
            if answer.clock is None
            else "Compare CODEPILOT_APP_ID and CODEPILOT_PRIVATE_KEY_FILE with the App's settings page; check the "
            "clock, too."
        )
        return [findings.bad("GitHub App", answer.refused, fix), clock]
    found = [findings.app(answer.slug, answer.permissions, answer.events), clock]
    try:
        use = await app_use(app_access(settings))
    except GitHubError as error:
        return [*found, findings.skipped("webhook", str(error))]
    attempts = [
        DeliveryAttempt(guid=each.guid, event=each.event, at=each.at, status=each.status) for each in use.attempts
    ]
    return [
        *found,
        findings.webhook(use.webhook, checks_certificate=use.checks_certificate),
        findings.deliveries(attempts, time.time()),
        findings.installations(use.installations, answer.slug),
    ]


async def model(agent: AgentSettings, *, online: bool) -> Finding:
    """Whether the model can be asked, and if wanted, ask it."""
    name = f"{agent.provider} {agent.model}".strip()
    if agent.provider == "scripted":
        return _script(agent.model)
    if agent.api_key is None and agent.provider in PROVIDER_KEYS and CATALOG[agent.provider].is_own(agent.base_url):
        return findings.skipped("model", f"the key for {agent.provider} is not set")
    if not online:
        return findings.good("model", f"{name}; not tested (use --online)")
    provider = provider_for(
        agent.provider,
        model=agent.model or None,
        api_key=agent.api_key.get_secret_value() if agent.api_key else None,
        base_url=agent.base_url,
        options=ModelOptions(max_tokens=_ONLINE_TOKENS, key_variable=agent.key_variable, cloud=agent.cloud),
    )
    try:
        question = Request(system="Answer in one word.", messages=(ModelMessage(role="user", text="Are you there?"),))
        async for _chunk in provider.reply(question):
            pass
    except AgentError as error:
        return findings.bad("model", f"{name} did not answer", str(error))
    finally:
        await provider.close()
    return findings.good("model", f"{name} answers")


def _script(place: str) -> Finding:
    if not place:
        return findings.skipped("model", "the script is not set")
    if not Path(place).is_file():
        return findings.bad("model", f"the script {place} is missing", "Name another: CODEPILOT_MODEL")
    return findings.good("model", f"scripted {place}")
