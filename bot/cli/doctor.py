"""`codepilot doctor`: checks of the settings, this machine, GitHub and the model, with remedies.

`examine` runs the checks in the order of an operator's work. A check changes nothing and returns a `Finding`; pure
functions judge the measured values.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import secrets
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_runtime import AgentError, ModelOptions, Request, pick_sandbox, provider_for
from agent_runtime import Message as ModelMessage
from bot.cli.app import describe, find_missing
from bot.domain.errors import ConfigError, QueueError, StorageError
from bot.github.app import Attempt, describe_app, read_app_usage
from bot.github.types import GitHubError
from bot.permissions.levels import describe_network, describe_reach, network_problem
from bot.server.build import networks, open_blob_store, read_app_access, redactor_for, sandbox_settings
from bot.server.process import ROOT_REFUSAL
from bot.settings.models import PROVIDER_KEYS, AgentSettings, Settings, Survey

Verdict = Literal["good", "warning", "bad", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of a check.

    Attributes:
        verdict: `bad` keeps the bot from working, a `warning` does not; `summary` has the reason for `skipped`.
    """

    name: str
    verdict: Verdict
    summary: str
    fix: str = ""


def good(name: str, summary: str) -> Finding:
    return Finding(name=name, verdict="good", summary=summary)


def bad(name: str, summary: str, fix: str) -> Finding:
    return Finding(name=name, verdict="bad", summary=summary, fix=fix)


def warning(name: str, summary: str, fix: str) -> Finding:
    return Finding(name=name, verdict="warning", summary=summary, fix=fix)


def skip(name: str, why: str) -> Finding:
    return Finding(name=name, verdict="skipped", summary=why)


_UNKNOWN = "not set, or invalid"


async def examine(survey: Survey, *, online: bool) -> list[Finding]:
    """Run all checks; `online` also asks the model, at a small cost."""
    settings, agent, wrong = survey.settings, survey.settings.agent, survey.invalid_fields
    unknown = bool(wrong & {"app_id", "private_key", "api_url"})
    no_storage = any(each.startswith(("storage_", "aws_")) for each in wrong)
    findings = [
        *(_setting_problems(survey) or [good("settings", "complete")]),
        check_user(allow_root=agent.allow_root),
        *check_sandbox(agent),  # bubblewrap is started from the main thread, which waits for it here
        check_programs(),
        *check_data_directory(agent.data_dir),
        check_temporary_files(),
        check_terminals(),
        skip("database", _UNKNOWN) if "database_url" in wrong else check_database(settings),
        skip("blob store", _UNKNOWN) if no_storage else check_blob_store(settings),
        skip("webhook secret", _UNKNOWN)
        if "webhook_secret" in wrong
        else judge_webhook_secret(settings.webhook_secret.get_secret_value()),
    ]
    app, model = await asyncio.gather(check_github(None if unknown else settings), check_model(agent, online=online))
    return _redact([*findings, *app, model], survey)


async def examine_app(survey: Survey) -> list[Finding]:
    if survey.invalid_fields & {"app_id", "private_key", "api_url"}:
        return _redact(_setting_problems(survey), survey)
    return _redact(await check_github(survey.settings), survey)


def _setting_problems(survey: Survey) -> list[Finding]:
    return [
        bad("settings", what, fix or what)
        # Two sentences, or two halves of one: what is wrong, and what it should be.
        for what, _, fix in (each.partition(". " if ". " in each else "; ") for each in survey.problems)
    ]


def _redact(findings: list[Finding], survey: Survey) -> list[Finding]:
    redactor = redactor_for(survey.settings)
    return [replace(each, summary=redactor.redact(each.summary), fix=redactor.redact(each.fix)) for each in findings]


_SECONDS = 20


def check_user(*, allow_root: bool) -> Finding:
    number = os.geteuid()
    if number != 0:
        return good("user", f"user {number}")
    return good("user", "root, as allowed") if allow_root else bad("user", "root", ROOT_REFUSAL)


def check_sandbox(agent: AgentSettings) -> list[Finding]:
    """Start a program in the sandbox of jobs, and check its network setting."""
    try:
        level = pick_sandbox(agent.sandbox, sandbox_settings(agent)).level
    except (AgentError, ConfigError) as error:
        return [bad("sandbox", "none that works", str(error))]
    works = good("sandbox", f"{level} works")
    if problem := network_problem(level, networks(agent)):
        return [works, bad("network", f"not enforced by {level}", problem)]
    which = "commands that are not on the list require" if describe_reach(level, agent.network) else "no command needs"
    return [works, good("network", f"{describe_network(agent.network)}; at the level `ask`, {which} an approval")]


def check_programs() -> Finding:
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return judge_git("")
    return judge_git(done.stdout.strip())


_LEAST_GIT = (2, 38)  # the first to have `merge-tree --write-tree`, by which changes are replayed


def judge_git(version: str) -> Finding:
    numbers = re.search(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return bad("git", "not found", "Install git: sudo apt-get install git")
    if (int(numbers[1]), int(numbers[2])) < _LEAST_GIT:
        least = ".".join(map(str, _LEAST_GIT))
        return bad("git", version, f"Version {least} or newer is required; install a newer git.")
    return good("git", version.removeprefix("git version "))


def check_data_directory(path: Path) -> list[Finding]:
    # A `Path` raises for what this user may not look at.
    if not os.access(path, os.F_OK):
        above = next(each for each in path.absolute().parents if os.access(each, os.F_OK))
        if not os.access(above, os.W_OK | os.X_OK):
            return [bad("data directory", f"{path} is missing", _creation_command(path))]
        return [good("data directory", f"{path}, will be created"), _check_disk("disk", above)]
    if not path.is_dir() or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return [bad("data directory", f"{path} is not a writable directory", _creation_command(path))]
    status = path.stat()
    permissions = judge_directory(str(path), status.st_mode, status.st_uid, os.geteuid())
    return [permissions, _check_disk("disk", path)]


def _creation_command(path: Path) -> str:
    return f"sudo install --directory --mode=700 --owner={os.geteuid()} {path}   (or set CODEPILOT_DATA_DIR)"


def judge_directory(path: str, mode: int, owner: int, user: int) -> Finding:
    if owner != user:
        return bad(
            "data directory", f"{path} belongs to user {owner}", f"Change its owner: sudo chown -R {user} {path}"
        )
    if mode & 0o077:
        return warning("data directory", f"{path} is open to other users", f"chmod 700 {path}")
    return good("data directory", path)


_GIB = 1024**3
_LEAST_BYTES = _GIB
_FEW_BYTES = 5 * _GIB
_LEAST_INODES = 20_000
_FEW_INODES = 200_000


def _check_disk(name: str, path: Path) -> Finding:
    free = os.statvfs(path)
    return judge_disk(name, str(path), free.f_bavail * free.f_frsize, free.f_favail if free.f_files else None)


def judge_disk(name: str, path: str, free_bytes: int, free_inodes: int | None) -> Finding:
    files = "" if free_inodes is None else f", {free_inodes:,} files"
    summary = f"{free_bytes / _GIB:,.1f} GiB{files} free at {path}"
    fix = f"Free space on the file system of {path}, or move it to another one."
    enough_inodes = free_inodes is None or free_inodes >= _FEW_INODES
    if free_bytes < _LEAST_BYTES or (free_inodes is not None and free_inodes < _LEAST_INODES):
        return bad(name, summary, fix)
    return good(name, summary) if free_bytes >= _FEW_BYTES and enough_inodes else warning(name, summary, fix)


def check_temporary_files() -> Finding:
    """Check the directory for temporary files, which must be executable for the interpreter's sandbox."""
    path = Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="codepilot-doctor-") as directory:
        script = Path(directory, "try")
        script.write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
        script.chmod(0o700)
        try:
            code = subprocess.run([script], timeout=_SECONDS, check=False).returncode
        except OSError:
            code = 126
    if code != 0:
        fix = f"Set TMPDIR to a directory from which programs can be started; {path} is mounted noexec."
        return bad("temporary files", f"programs cannot be started in {path}", fix)
    return _check_disk("temporary files", path)


_LEAST_TERMINALS = 64


def check_terminals() -> Finding:
    return judge_terminals(*(_number(Path("/proc/sys/kernel/pty", name)) for name in ("max", "nr")))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not Linux
        return None


def judge_terminals(limit: int | None, used: int | None) -> Finding:
    if limit is None or used is None:
        return skip("terminals", "this system does not report the maximum")
    if limit - used < _LEAST_TERMINALS:
        return bad("terminals", f"{used} of {limit} taken", "Raise the limit: sudo sysctl --write kernel.pty.max=4096")
    return good("terminals", f"{used} of {limit} taken")


def check_database(settings: Settings) -> Finding:
    """Check the jobs' database; a missing SQLite file is created under a trial name."""
    shared_url, url, trial = settings.shared_database, settings.jobs_url, None
    if shared_url is not None:
        name = f"PostgreSQL at {urlsplit(shared_url).hostname or 'a local socket'}"
        fix = "Check CODEPILOT_DATABASE_URL."
    else:
        path = Path(url.removeprefix("sqlite:///"))
        name = str(path)
        fix = f"Keep {path.parent} on a local disk; a damaged database can be moved away, but its jobs are lost."
        if settings.database_url is None and not os.access(path.parent, os.F_OK):
            return skip("database", f"{path.parent} is not there yet")
        if not os.access(path, os.F_OK):
            trial = path.with_name(f"doctor-{secrets.token_hex(4)}.sqlite")
            url = f"sqlite:///{trial}"
    try:
        from bot.queue.store import JobStore, check_database  # noqa: PLC0415 - the extra `service` may be missing

        if trial is not None:
            JobStore(url).close_sync()
        check_database(url)
    except ImportError as error:
        return bad("database", str(error), "install codepilot-bot[service]")
    except QueueError as error:
        return bad("database", f"{name} cannot be used", f"{error}. {fix}")
    finally:
        for file in trial.parent.glob(f"{trial.name}*") if trial is not None else ():
            file.unlink()
    return good("database", name if trial is None else f"{name}, can be made")


_TRIALS = "doctor"
"""The names of the objects that are stored on trial begin with it; no other part of the bot uses it."""


def check_blob_store(settings: Settings) -> Finding:
    """Write, read, list and delete a small object."""
    if settings.storage_url is None:
        if settings.shared_database is None:
            return good("blob store", "none, which is enough for one machine")
        fix = "Set CODEPILOT_STORAGE_URL, or workers on other machines cannot continue the jobs that wait on this one."
        return warning("blob store", "none, while machines may share the database", fix)
    name, content = f"{_TRIALS}/{secrets.token_hex(8)}", secrets.token_bytes(16)
    try:
        blobs = open_blob_store(settings, settings.storage_url)
        blobs.put(name, content)
        is_stored = blobs.get(name, limit=len(content)) == content and name in {
            blob.name for blob in blobs.list(_TRIALS)
        }
        blobs.delete(name)
    except (ConfigError, StorageError) as error:
        return bad("blob store", f"{settings.storage_url} cannot be used", str(error))
    if not is_stored:
        fix = "The service must return and list each object immediately after it was stored; use one that does."
        return bad("blob store", f"{settings.storage_url} does not have what was just stored", fix)
    return good("blob store", settings.storage_url)


_WEAK_SECRET = 16
_STRONG_SECRET = 32
_FEW_DIFFERENT = 8


def judge_webhook_secret(secret: str) -> Finding:
    fix = "Create a new one, here and in the GitHub App's settings: openssl rand -hex 32"
    if len(secret) < _WEAK_SECRET or len(set(secret)) < _FEW_DIFFERENT:
        return bad("webhook secret", "can be guessed", fix)
    if len(secret) < _STRONG_SECRET:
        return warning("webhook secret", f"{len(secret)} characters", fix)
    return good("webhook secret", f"{len(secret)} characters")


async def check_github(settings: Settings | None) -> list[Finding]:
    """Sign in as the App, and compare the clocks."""
    if settings is None:
        why = "the App's id or key, or GitHub's address, is not set or invalid"
        return [skip("GitHub App", why), judge_clock(datetime.now(UTC), None)]
    answer = await describe_app(read_app_access(settings))
    clock = judge_clock(datetime.now(UTC), answer.clock)
    if answer.refused:
        fix = (
            "Check CODEPILOT_API_URL, and that this machine can reach it (DNS, firewall, proxy)."
            if answer.clock is None
            else "Compare CODEPILOT_APP_ID and CODEPILOT_PRIVATE_KEY_FILE with the App's settings page; check the "
            "clock, too."
        )
        return [bad("GitHub App", answer.refused, fix), clock]
    findings = [judge_app(answer.slug, answer.permissions, answer.events), clock]
    try:
        use = await read_app_usage(read_app_access(settings))
    except GitHubError as error:
        return [*findings, skip("webhook", str(error))]
    return [
        *findings,
        judge_webhook(use.webhook, checks_certificate=use.checks_certificate),
        judge_deliveries(use.attempts, time.time()),
        judge_installations(use.installations, answer.slug, suspended=use.suspended),
    ]


_WRONG_SECONDS = 30.0  # GitHub takes no JWT that was made in its future
_ODD_SECONDS = 5.0


def judge_clock(ours: datetime, theirs: datetime | None) -> Finding:
    if theirs is None:
        return skip("clock", "GitHub was not asked, or did not answer")
    seconds = (ours - theirs).total_seconds()
    # The header has whole seconds, and the answer took a moment.
    summary = f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} GitHub's"
    fix = "Set the clock by the network: sudo timedatectl set-ntp true"
    if abs(seconds) > _WRONG_SECONDS:
        return bad("clock", summary, fix)
    return warning("clock", summary, fix) if abs(seconds) > _ODD_SECONDS else good("clock", "agrees with GitHub's")


_GIVE = "Grant these in the App's settings, under Permissions & events; then accept them in each installation."


def judge_app(slug: str, permissions: Mapping[str, str], events: Collection[str]) -> Finding:
    missing = find_missing(permissions, events)
    weights = {each.weight for each in missing}
    details = "; ".join(f"{describe(each)} ({each.without})" for each in missing)
    summary = f"signed in as {slug}" + (f", missing {details}" if details else "")
    if "needed" in weights:
        return bad("GitHub App", summary, _GIVE)
    return warning("GitHub App", summary, _GIVE) if "wanted" in weights else good("GitHub App", summary)


def judge_webhook(url: str, *, checks_certificate: bool) -> Finding:
    name, fix = "webhook", "Set the address in the App's settings: https://HOST/webhook, with `Active` checked."
    if not url:
        return bad(name, "off, so no command reaches the bot", fix)
    if urlsplit(url).path.rstrip("/") != "/webhook":
        return warning(name, f"{url}; `codepilot serve` listens at the path /webhook", fix)
    if not checks_certificate:
        return warning(name, f"{url}, whose certificate GitHub does not verify", "Enable SSL verification there.")
    return good(name, url)


_RECENT_SECONDS = 24 * 3600
_INSTALLATION = frozenset({"installation", "installation_repositories"})
_WRONG_SECRET = 401
_UNANSWERED = "Check that GitHub reaches the address (DNS, firewall, proxy, certificate), and the bot's log."
_DELIVERY_FIXES = {
    _WRONG_SECRET: "CODEPILOT_WEBHOOK_SECRET differs from the secret in the App's settings: make them the same.",
    404: "The address leads elsewhere: it must be the one of `codepilot serve`, with the path /webhook.",
}


def judge_deliveries(attempts: Sequence[Attempt], now: float) -> Finding:
    """Judge the newest delivery attempts; a later success of the same delivery counts."""
    name = "deliveries"
    first = min((each.at for each in attempts if each.status in range(200, 300)), default=math.inf)
    tries = Counter(each.guid for each in attempts)
    # An App is registered and installed before its bot is started, which then requests what failed once more.
    set_up = [
        each
        for each in attempts
        if each.event == "ping"
        or (each.event in _INSTALLATION and each.at < first and tries[each.guid] == 1 and each.status != _WRONG_SECRET)
    ]
    recent = [each for each in attempts if now - each.at < _RECENT_SECONDS and each not in set_up]
    if not recent:
        return skip(
            name, f"GitHub has sent none in the last 24 hours{', except when the App was set up' if set_up else ''}"
        )
    arrived = {each.guid for each in recent if each.status in range(200, 300)}
    lost = [each for each in recent if each.guid not in arrived]
    if not lost:
        return good(name, f"{len(arrived)} in the last 24 hours, all accepted")
    newest = lost[0]
    when = datetime.fromtimestamp(newest.at, UTC)
    answer = f"answered {newest.status}" if newest.status else "no answer"
    count = len({attempt.guid for attempt in lost})
    summary = f"{count} not accepted in the last 24 hours; the last: {newest.event}, {answer}"
    # When the newest one arrived, the fault is over; the bot has lost deliveries sent again.
    verdict = warning if recent[0].guid in arrived else bad
    return verdict(name, f"{summary}, {when:%d %B %H:%M} UTC", _DELIVERY_FIXES.get(newest.status, _UNANSWERED))


def judge_installations(count: int, slug: str, *, suspended: int = 0) -> Finding:
    name = "installations"
    if not count:
        return warning(name, "none", f"Install {slug} from its page on GitHub, in your repositories.")
    summary = f"{count} account{'' if count == 1 else 's'}"
    if suspended:
        fix = (
            "The account's owner unsuspends the App under Settings, GitHub Apps; until then, the bot cannot work there."
        )
        return warning(name, f"{summary}, {suspended} of them suspended", fix)
    return good(name, summary)


_ONLINE_TOKENS = 16  # the least that every service takes


async def check_model(agent: AgentSettings, *, online: bool) -> Finding:
    name = f"{agent.provider} {agent.model}".strip()
    if agent.provider == "scripted":
        return _check_script(agent.model)
    if agent.api_key is None and agent.provider in PROVIDER_KEYS and agent.endpoint.needs_key:
        return skip("model", f"the key for {agent.provider} is not set")
    if not online:
        return good("model", f"{name}; not tested (use --online)")
    provider = provider_for(
        agent.provider,
        model=agent.model or None,
        api_key=agent.api_key.get_secret_value() if agent.api_key else None,
        base_url=agent.endpoint.base_url,
        options=ModelOptions(max_tokens=_ONLINE_TOKENS, key_variable=agent.endpoint.key_variable, cloud=agent.cloud),
    )
    try:
        question = Request(system="Answer in one word.", messages=(ModelMessage(role="user", text="Are you there?"),))
        async for _chunk in provider.reply(question):
            pass
    except AgentError as error:
        return bad("model", f"{name} did not answer", str(error))
    finally:
        await provider.close()
    return good("model", f"{name} answers")


def _check_script(path: str) -> Finding:
    if not path:
        return skip("model", "the script is not set")
    if not Path(path).is_file():
        return bad("model", f"the script {path} is missing", "Name another: CODEPILOT_MODEL")
    return good("model", f"scripted {path}")


_SIGNS: dict[Verdict, tuple[str, str]] = {
    "good": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "bad": ("failed", "bold red"),
    "skipped": ("skipped", "dim"),
}


def can_work(findings: Sequence[Finding]) -> bool:
    return all(finding.verdict != "bad" for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    rows = [
        {"name": finding.name, "verdict": finding.verdict, "found": finding.summary, "fix": finding.fix}
        for finding in findings
    ]
    return json.dumps({"could_work": can_work(findings), "findings": rows}, indent=2)


def as_lines(findings: Sequence[Finding]) -> str:
    width = max((len(each.name) for each in findings), default=0)
    lines = [f"{_SIGNS[each.verdict][0]:<8} {each.name:<{width}}  {_one_line(each.summary)}" for each in findings]
    for each in findings:
        if each.fix:
            lines += ["", _heading(each), *(f"  {line}".rstrip() for line in each.fix.splitlines())]
    return "\n".join([*lines, "", _count_verdicts(findings)])


def show(findings: Sequence[Finding], console: Console) -> None:
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="dim")
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for each in findings:
        sign, style = _SIGNS[each.verdict]
        dim = "dim" if each.verdict == "skipped" else ""
        table.add_row(Text(each.name, style=dim), Text(sign, style=style), Text(_one_line(each.summary), style=dim))
    console.print(table)
    for each in findings:
        if each.fix:
            console.print()
            console.print(Text(_heading(each), style=_SIGNS[each.verdict][1]))
            # Commands must be whole when they are copied.
            console.print(Text(each.fix), soft_wrap=True)
    console.print()
    console.print(Text(_count_verdicts(findings), style="green" if can_work(findings) else "bold red"))


def _heading(finding: Finding) -> str:
    return f"{finding.name}: {_one_line(finding.summary)}"


def _count_verdicts(findings: Sequence[Finding]) -> str:
    counts = {verdict: sum(each.verdict == verdict for each in findings) for verdict in _SIGNS}
    warnings = f", {counts['warning']} with a warning" if counts["warning"] else ""
    if counts["bad"]:
        return f"The bot would not work here: {counts['bad']} of {len(findings)} checks failed{warnings}."
    return f"The bot would work here: {counts['good']} of {len(findings)} checks passed{warnings}."


def _one_line(text: str) -> str:
    return " ".join(text.split())
