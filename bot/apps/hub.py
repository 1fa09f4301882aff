"""Run the local hub with one repository until it is stopped: `codepilot hub`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.domain.errors import BotError
from localhub import LocalHub

_PERSON = "mona"
_APP = "codepilot"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """The options of `codepilot hub`; see its help."""

    repo: Path | None
    name: str | None
    port: int
    webhook: str
    secret: str


async def serve_hub(options: HubOptions, say: Callable[[str], None]) -> None:
    """Start the hub, say where everything is, and run until cancelled.

    Raises:
        BotError: the repository cannot be read, or the port is taken.
    """
    source = options.repo
    name = options.name or f"{_PERSON}/{source.stem if source else 'widgets'}"
    files = None if source else {"README.md": f"# {name}\n"}
    secret = options.secret or (secrets.token_hex(20) if options.webhook else "")
    with TemporaryDirectory(prefix="codepilot-hub-") as directory:
        key = Path(directory) / "app.pem"
        try:
            async with LocalHub(Path(directory) / "hub", port=options.port) as hub:
                person = hub.add_user(_PERSON)
                repo = hub.add_repo(name, owner=_PERSON, source=source, files=files)
                app = hub.add_app(_APP, webhook_url=options.webhook, webhook_secret=secret)
                installation = hub.install(app, repo)
                key.touch(mode=0o600)
                key.write_text(app.private_key_pem, encoding="utf-8")
                scheme, _, host = hub.url.partition("://")
                say(f"pages     {hub.url}/{repo.full_name}")
                say(f"REST      {hub.api_url}")
                say(f"GraphQL   {hub.graphql_url}")
                say(f"git       {scheme}://{_PERSON}:{person.token}@{host}/{repo.full_name}.git")
                say(f"token     {person.token} (@{_PERSON}, admin of {repo.full_name})")
                say(f"App       id {app.id}, installation {installation}, private key {key}")
                say(
                    f"webhook   {options.webhook}, secret {secret}" if options.webhook else "webhook   none (--webhook)"
                )
                say("Everything is lost when the hub stops. Press Ctrl+C to stop it.")
                await asyncio.Event().wait()
        except OSError as error:
            raise BotError(
                f"The hub cannot listen on port {options.port}: {error.strerror}. Try another --port."
            ) from error
        except ValueError as error:
            raise BotError(f"The hub cannot serve this repository: {error}") from error
