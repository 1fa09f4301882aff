"""`codepilot hub`: the local hub with copies of repositories.

With `--settings` it writes the settings and the App's key for `codepilot serve`; a later hub reuses them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import yaml

from bot.cli.app import EVENTS, PERMISSIONS
from bot.demo.project import copy_repository, repo_name
from bot.domain.errors import BotError
from localhub import App, LocalHub, Repo, Role

_PERSON = "mona"
_APP = "codepilot"
_APP_ID = 1
"""The same in every hub with a settings file, so that the file stays right."""
ROLES: tuple[Role, ...] = ("read", "triage", "write", "maintain", "admin")
_OWN_KEYS = frozenset(
    {"app_id", "private_key_file", "webhook_secret", "server_url", "api_url", "data_dir", "host", "port"}
)
_OF_PORTS = {errno.EACCES, errno.EADDRINUSE, errno.EADDRNOTAVAIL}
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """The options of `codepilot hub`.

    Attributes:
        source: a repository, bundle, or directory of repositories; None for a new repository.
        settings: the directory for settings and key; None prints them only.
    """

    source: Path | None
    name: str | None
    port: int
    webhook: str
    secret: str
    settings: Path | None = None
    people: Mapping[str, Role] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _EarlierHub:
    """The values of an earlier hub's settings file; `variables` are a person's additions."""

    secret: str = ""
    key: str = ""
    port: int = 0
    variables: Mapping[str, object] = field(default_factory=dict)


async def serve_hub(options: HubOptions, say: Callable[[str], None]) -> None:
    """Start the hub, print its addresses, and run until cancelled.

    Raises:
        BotError: a repository or settings file cannot be used, or the port is in use.
    """
    earlier = _read(options.settings) if options.settings else _EarlierHub()
    secret = options.secret or earlier.secret or (secrets.token_hex(20) if options.webhook else "")
    with TemporaryDirectory(prefix="codepilot-hub-") as directory:
        # Numbers that no earlier hub gave: the bot remembers repositories and threads by them.
        first = int(time.time()) % 10_000_000 * 100 + 1001 if options.settings else 1001
        port = options.port or earlier.port
        try:
            async with LocalHub(Path(directory) / "hub", port=port, first_id=first) as hub:
                hub.add_user(_PERSON)
                repos = await _repositories(hub, options, Path(directory), say)
                app = hub.add_app(
                    _APP,
                    webhook_url=options.webhook,
                    webhook_secret=secret,
                    permissions={each.name: each.level for each in PERMISSIONS},
                    events=[each.name for each in EVENTS],
                    app_id=_APP_ID if options.settings else 0,
                    private_key_pem=earlier.key,
                )
                [installation] = {hub.install(app, repo) for repo in repos}  # all have one owner
                for repo, (login, role) in product(repos, options.people.items()):
                    hub.add_collaborator(repo, login, role)
                key = (options.settings or Path(directory)) / "app.pem"
                if options.settings:
                    _write(options.settings, hub, app, earlier.variables)
                else:
                    _write_private(key, app.private_key_pem)
                for line in _guide(options, hub, app, repos, installation=installation, key=key):
                    say(line)
                await asyncio.Event().wait()
        except OSError as error:
            if error.errno in _OF_PORTS and error.filename is None:
                raise BotError(
                    f"The hub cannot listen on port {port}: {error.strerror}. Try another --port."
                ) from error
            file = "" if error.filename is None else f"{error.filename}: "
            raise BotError(f"The hub cannot run: {file}{error.strerror or error}.") from error
        except ValueError as error:
            raise BotError(f"The hub cannot serve this: {error}") from error


async def _repositories(hub: LocalHub, options: HubOptions, directory: Path, say: Callable[[str], None]) -> list[Repo]:
    source = options.source
    if source is None:
        name = options.name or f"{_PERSON}/widgets"
        return [hub.add_repo(name, owner=_PERSON, files={"README.md": f"# {name}\n"})]
    if source.is_file() or _is_repository(source):
        name = options.name or f"{_PERSON}/{repo_name(source.with_suffix(''))}"
        return [hub.add_repo(name, owner=_PERSON, source=await _complete(source, directory))]
    repos, candidates = [], [each for each in sorted(source.iterdir()) if each.is_dir() and _is_repository(each)]
    for path in candidates:
        try:
            repos.append(
                hub.add_repo(f"{_PERSON}/{repo_name(path)}", owner=_PERSON, source=await _complete(path, directory))
            )
        except (ValueError, BotError) as error:
            say(f"skipped   {path}: {error}")
    if not repos:
        raise BotError(f"{source} is not a git repository, and contains none that can be copied; name another SOURCE.")
    return repos


def _is_repository(path: Path) -> bool:
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    return bare or (path / ".git").exists()


async def _complete(source: Path, directory: Path) -> Path:
    """Return the repository, or for a shallow clone a copy of its last commit."""
    if not any((source / where).exists() for where in ("shallow", ".git/shallow")):
        return source
    return (await copy_repository(source, directory / f"shallow-{secrets.token_hex(4)}.git")).path


def _guide(
    options: HubOptions, hub: LocalHub, app: App, repos: list[Repo], *, installation: int, key: Path
) -> Iterator[str]:
    person, [first, *_] = hub.add_user(_PERSON), repos
    scheme, _, host = hub.url.partition("://")
    for repo in repos:
        yield f"pages     {hub.url}/{repo.full_name}"
    yield f"REST      {hub.api_url}"
    yield f"GraphQL   {hub.graphql_url}"
    yield f"git       {scheme}://{_PERSON}:{person.token}@{host}/{first.full_name}.git"
    yield f"token     {person.token} (@{_PERSON}, admin of {'all of them' if repos[1:] else first.full_name})"
    yield f"App       id {app.id}, installation {installation}, private key {key}"
    secret = "in the settings" if options.settings else app.webhook_secret
    yield f"webhook   {options.webhook}, secret {secret}" if options.webhook else "webhook   none (--webhook)"
    if options.settings:
        file = _settings_file(options.settings)
        yield f"settings  {file}, readable only by you. Start the bot in another terminal:\n"
        yield f"  export CODEPILOT_CONFIG={file.resolve()}"
        yield "  export ANTHROPIC_API_KEY=…"
        yield "  codepilot serve\n"
    yield "Everything is lost when the hub stops. Press Ctrl+C to stop it."


def _settings_file(folder: Path) -> Path:
    return folder / "codepilot.yml"


def _read(folder: Path) -> _EarlierHub:
    file, key = _settings_file(folder), folder / "app.pem"
    try:
        keys = yaml.safe_load(file.read_text(encoding="utf-8"))
        # Another App's settings have another number.
        secret, port = {_APP_ID: keys["webhook_secret"]}[keys["app_id"]], urlsplit(keys["server_url"]).port
        variables = {name: value for name, value in keys.items() if name not in _OWN_KEYS}
        return _EarlierHub(secret=str(secret), key=key.read_text(encoding="ascii"), port=port or 0, variables=variables)
    except FileNotFoundError as error:
        if file.exists() or key.exists():
            raise BotError(f"{error.filename} is missing. Remove {folder}, or choose another --settings.") from error
        return _EarlierHub()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise BotError(f"{file} is not from `codepilot hub`. Remove {folder}, or choose another --settings.") from error


def _write(folder: Path, hub: LocalHub, app: App, variables: Mapping[str, object]) -> None:
    address = urlsplit(app.webhook_url)
    keys = {
        "app_id": app.id,
        "private_key_file": str((folder / "app.pem").resolve()),
        "webhook_secret": app.webhook_secret,
        "server_url": hub.url,
        "api_url": hub.api_url,
        "data_dir": str((folder / "data").resolve()),
        **({"host": "127.0.0.1", "port": address.port or 80} if address.hostname in _LOOPBACK else {}),
        **variables,
    }
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(folder / "app.pem", app.private_key_pem)
        _write_private(
            _settings_file(folder),
            f"# The local hub, written by `codepilot hub`\n{yaml.safe_dump(keys, sort_keys=False)}",
        )
    except OSError as error:
        raise BotError(f"{folder} cannot be written: {error.strerror}; choose another --settings.") from error


def _write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner may read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
