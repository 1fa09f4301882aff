"""The bot's GitHub App: its permissions and events, `codepilot app create` and `codepilot setup-repo`.

To register the App, a local page sends the browser to GitHub with a manifest; GitHub returns a code for the App's key:
https://docs.github.com/en/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
"""

from __future__ import annotations

import asyncio
import hmac
import html
import json
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Literal, TextIO
from urllib.parse import quote, urlencode, urlsplit

import yaml
from aiohttp import web
from github import Auth, BadAttributeException, Github, GithubException, GithubIntegration
from github.Repository import Repository

from bot.domain.errors import BotError
from bot.git.process import UNKNOWN_AUTHORITY
from bot.github.app import CALLBACK_PATH, RegisteredApp, register_app
from bot.github.types import FileTooLargeError, GitHubError, remedy_for, unreadable_answer
from bot.permissions.repo_config import ORGANISATION_PATH, PATH, RepoConfig, merge_configs, parse_config
from bot.settings.models import Settings, api_of, server_of
from bot.settings.parsing import url

Weight = Literal["needed", "wanted", "optional"]


@dataclass(frozen=True, slots=True)
class AppPermission:
    """A permission of the App.

    Attributes:
        weight: `needed` to work at all, `wanted` for documented features, `optional` for rare ones.
        without: the effect of its absence, as a clause.
    """

    name: str
    level: Literal["read", "write"]
    weight: Weight
    without: str
    title: str = ""

    @property
    def display_name(self) -> str:
        return self.title or _sentence_case(self.name)


@dataclass(frozen=True, slots=True)
class AppEvent:
    name: str
    weight: Weight
    without: str

    @property
    def display_name(self) -> str:
        return _sentence_case(self.name)


def _sentence_case(name: str) -> str:
    return name.replace("_", " ").capitalize()


PERMISSIONS = (
    AppPermission("contents", "write", "needed", "the bot can neither read code nor commit"),
    AppPermission("issues", "write", "needed", "the bot cannot comment"),
    AppPermission("pull_requests", "write", "needed", "the bot cannot open pull requests or create reviews"),
    AppPermission("metadata", "read", "needed", "the bot cannot check who may give commands"),
    AppPermission(
        "checks",
        "write",
        "wanted",
        "jobs have no check run, so no buttons or annotations, and `fix` does not see failed checks",
    ),
    AppPermission(
        "actions",
        "read",
        "wanted",
        "failed workflows start no job, because the bot cannot see whether the base branch fails, too",
    ),
    AppPermission("statuses", "read", "wanted", "`fix` does not see failed statuses", "Commit statuses"),
    AppPermission(
        "workflows",
        "write",
        "optional",
        "changes to `.github/workflows` cannot be published, even if a person approved them",
    ),
)
"""https://docs.github.com/en/rest/authentication/permissions-required-for-github-apps"""

EVENTS = (
    AppEvent(
        "check_run", "wanted", "buttons of check runs have no effect, and a failed check of another App starts no fix"
    ),
    AppEvent(
        "check_suite", "wanted", "failed checks of other Apps start no fix if these Apps report only whole suites"
    ),
    AppEvent("issue_comment", "needed", "commands in comments have no effect"),
    AppEvent("issues", "wanted", "labels and assignments of issues start nothing, and jobs continue in closed issues"),
    AppEvent(
        "pull_request",
        "wanted",
        "labels of pull requests start nothing, a push does not invalidate approvals immediately, and jobs "
        "continue in closed ones",
    ),
    AppEvent("pull_request_review", "wanted", "commands in reviews have no effect"),
    AppEvent("pull_request_review_comment", "wanted", "commands in comments on lines have no effect"),
    AppEvent("repository", "wanted", "jobs of a deleted repository continue until they fail"),
    AppEvent("workflow_run", "wanted", "a failed workflow starts no fix"),
)
"""`installation` and `installation_repositories` are sent to every App unasked:
https://docs.github.com/en/webhooks/webhook-events-and-payloads"""


def find_missing(
    permissions: Mapping[str, str], events: Collection[str] | None
) -> tuple[AppPermission | AppEvent, ...]:
    return (
        *(each for each in PERMISSIONS if permissions.get(each.name) not in {each.level, "write", "admin"}),
        *(each for each in EVENTS if events is not None and each.name not in events),
    )


def describe(grant: AppPermission | AppEvent) -> str:
    """Format a grant as on the App's page, for example `Checks: read and write`."""
    if isinstance(grant, AppEvent):
        return f"event {grant.display_name}"
    return f"{grant.display_name}: {'read and write' if grant.level == 'write' else 'read-only'}"


ON_GITHUB = "https://github.com"
LONGEST_NAME = 34
"""Characters; GitHub takes no longer name for an App."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    name: str
    webhook: str
    organisation: str
    server: str
    workflows: bool
    dashboard: bool
    public: bool
    directory: Path
    port: int
    ca_file: Path | None = None

    @property
    def api_url(self) -> str:
        """The address of the REST API."""
        return api_of(self.server)

    @property
    def key_file(self) -> Path:
        """The file of the App's key."""
        return self.directory / "app.pem"

    @property
    def settings_file(self) -> Path:
        """The settings file."""
        return self.directory / "codepilot.yml"


def check_options(options: AppOptions) -> AppOptions:
    """Return the options with a normalised server address.

    Raises:
        ValueError: GitHub would refuse them.
    """
    if not 0 < len(options.name.strip()) <= LONGEST_NAME:
        raise ValueError(f"--name must have 1 to {LONGEST_NAME} characters.")
    if urlsplit(options.webhook).scheme not in {"http", "https"} or not urlsplit(options.webhook).hostname:
        raise ValueError("--webhook must be an address, e.g. https://codepilot.example.com/webhook.")
    try:
        server = server_of(url(options.server))
    except ValueError as error:
        raise ValueError(f"--server {error}.") from error
    if urlsplit(options.webhook).path.rstrip("/") == "":
        raise ValueError(f"--webhook has no path: `codepilot serve` listens at {options.webhook.rstrip('/')}/webhook.")
    return replace(options, server=server)


def manifest(options: AppOptions, *, redirect_url: str) -> dict[str, Any]:
    permissions = [each for each in PERMISSIONS if each.weight != "optional" or options.workflows]
    home_url = options.webhook.rsplit("/", 1)[0]
    # The dashboard stands at the root of its host, wherever a proxy has the webhook.
    callback = urlsplit(options.webhook)._replace(path=CALLBACK_PATH, query="", fragment="").geturl()
    return {
        "name": options.name,
        "url": home_url,
        "description": "Codepilot: a coding agent that works on this organisation's own server.",
        "hook_attributes": {"url": options.webhook, "active": True},
        "redirect_url": redirect_url,
        **({"callback_urls": [callback]} if options.dashboard else {}),
        "public": options.public,
        "default_permissions": {each.name: each.level for each in permissions},
        "default_events": [each.name for each in EVENTS],
    }


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}
button {{ font: inherit; padding: .5rem 1rem }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
_HEADERS = {
    "Cache-Control": "no-store",
    # The address has a code that no other page may receive.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def create_app(options: AppOptions, say: Callable[[str], None], browse: Callable[[str], object]) -> RegisteredApp:
    """Register the App in the user's browser, write its key and settings, and print the next steps.

    Raises:
        BotError: a file exists or cannot be written, the port is in use, or GitHub gave no key.
    """
    # Made before anything is registered: GitHub tells the key only once.
    with _new_files(options.key_file, options.settings_file) as (key, settings):
        async with _LocalPage(options).open() as page:
            say(f"Open this page in a browser that is signed in to {options.server}, and confirm there:\n")
            say(f"  {page.url}\n")
            say("From another machine, forward the port first: ssh -L PORT:127.0.0.1:PORT HOST. Ctrl+C cancels.")
            await asyncio.to_thread(browse, page.url)
            remedy = f"Delete the App at {options.server}/settings/apps if it is there, and run this again."
            try:
                app = await page.registered
                for file, text in ((key, app.private_key), (settings, settings_text(app, options))):
                    file.write(text)
                    file.flush()
            except GitHubError as error:
                raise BotError(f"The App's key is missing. {error} {remedy}") from error
            except OSError as error:
                raise BotError(f"The App's key cannot be written: {error.strerror}. {remedy}") from error
            finally:
                page.key_stored.set()
            await page.browser_answered.wait()
    say(f"\n{next_steps(app, options)}")
    return app


class _LocalPage:
    """A page for one visit on the loopback; other users of the machine cannot guess its path.

    Attributes:
        key_stored: set after the key was written, or failed to be; the browser waits for it.
        browser_answered: set after the browser's answer was sent.
    """

    def __init__(self, options: AppOptions) -> None:
        self._options = options
        self._path, self._state = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.url = ""
        self.registered: asyncio.Future[RegisteredApp] = asyncio.get_running_loop().create_future()
        self.key_stored, self.browser_answered = asyncio.Event(), asyncio.Event()
        self._code_used = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[_LocalPage]:
        served = web.Application()
        served.router.add_get(f"/{self._path}", self._begin)
        served.router.add_get(f"/{self._path}/done", self._finished)
        runner = web.AppRunner(served, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", self._options.port)
            try:
                await site.start()
            except OSError as error:
                raise BotError(f"Port {self._options.port} cannot be used: {error.strerror}; choose --port.") from error
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}/{self._path}"
            yield self
        finally:
            await runner.cleanup()

    async def _begin(self, _request: web.Request) -> web.Response:
        owner = self._options.organisation
        owner_path = f"/organizations/{quote(owner, safe='')}" if owner else ""
        address = f"{self._options.server}{owner_path}/settings/apps/new?{urlencode({'state': self._state})}"
        value = json.dumps(manifest(self._options, redirect_url=f"{self.url}/done"))
        return _page(
            "Create the GitHub App",
            f"<p>GitHub shows what the App <strong>{html.escape(self._options.name)}</strong> may do, and asks you to "
            f'confirm.</p><form method="post" action="{html.escape(address)}"><input type="hidden" name="manifest" '
            f'value="{html.escape(value)}"><button>Continue to GitHub</button></form>',
            forms=self._options.server,
        )

    async def _finished(self, request: web.Request) -> web.Response:
        code = request.query.get("code", "")
        if not code or not hmac.compare_digest(request.query.get("state", "").encode(), self._state.encode()):
            raise web.HTTPBadRequest(text="This page was not requested from here.\n")
        if not self._code_used:  # a page that is loaded again has the same code, which works once
            self._code_used = True
            try:
                self.registered.set_result(await register_app(code, self._options.api_url, self._options.ca_file))
            except GitHubError as error:
                self.registered.set_exception(error)
        await self.key_stored.wait()
        failed = self.registered.exception()
        if failed is not None:
            page = _page("The App's key is missing", f"<p>{html.escape(str(failed))}</p>")
        else:
            page = _page(f"{self.registered.result().slug} is registered", "<p>Continue in the terminal.</p>")
        try:
            await page.prepare(request)
            await page.write_eof()
        finally:
            self.browser_answered.set()
        return page


def _page(title: str, body: str, *, forms: str = "'none'") -> web.Response:
    policy = f"default-src 'none'; style-src 'unsafe-inline'; form-action {forms}; base-uri 'none'"
    text = _PAGE.format(title=html.escape(title), body=body)
    headers = {**_HEADERS, "Content-Security-Policy": f"{policy}; frame-ancestors 'none'"}
    return web.Response(text=text, content_type="text/html", headers=headers)


@contextmanager
def _new_files(*paths: Path) -> Iterator[Sequence[TextIO]]:
    with ExitStack() as stack:
        files = []
        for path in paths:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError as error:
                raise BotError(f"{path} already exists; choose another --directory.") from error
            except OSError as error:
                raise BotError(f"{path} cannot be written: {error.strerror}; choose another --directory.") from error
            stack.callback(path.unlink, missing_ok=True)
            files.append(os.fdopen(descriptor, "w", encoding="utf-8"))
            stack.push(files[-1])
        yield files
        for each in files:
            each.close()
        stack.pop_all()


def settings_text(app: RegisteredApp, options: AppOptions) -> str:
    keys: dict[str, Any] = {
        "app_id": app.id,
        "private_key_file": str(options.key_file.resolve()),
        "webhook_secret": app.webhook_secret,
    }
    if options.server != ON_GITHUB:
        keys |= {"server_url": options.server, "api_url": options.api_url}
    if options.dashboard:
        keys |= {"client_id": app.client_id, "client_secret": app.client_secret}
    if options.ca_file is not None:
        keys["ca_file"] = str(options.ca_file)
    return f"# The GitHub App {app.slug} of {app.owner}: {app.html_url}\n{yaml.safe_dump(keys, sort_keys=False)}"


def next_steps(app: RegisteredApp, options: AppOptions) -> str:
    return f"""\
Created the GitHub App {app.slug} ({app.owner}, id {app.id}): {app.html_url}
Wrote {options.key_file} and {options.settings_file}, readable only by you.

1. Install it in your repositories:  {app.html_url}/installations/new
2. Start the bot:                    export CODEPILOT_CONFIG={options.settings_file.resolve()}
                                     export ANTHROPIC_API_KEY=…
                                     codepilot serve
3. Check it:                         codepilot app check"""


class NotInstalledError(BotError):
    """The App is not installed on the repository, or it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSpec:
    name: str
    color: str
    description: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUpResult:
    labels: tuple[LabelSpec, ...]
    missing: tuple[AppPermission | AppEvent, ...]


def set_up_repository(settings: Settings, name: str) -> SetUpResult:
    """Create the bot's labels in a repository, as the App of the settings.

    Raises:
        NotInstalledError: the App cannot act there.
        RepoConfigError: the repository's or its organisation's file is not valid.
        GitHubError: GitHub refused, or did not answer.
    """
    # At DEBUG, PyGithub logs answers, tokens among them.
    logging.getLogger("github.Requester").setLevel(logging.INFO)
    ca_file = settings.agent.ca_file
    integration = GithubIntegration(
        auth=Auth.AppAuth(settings.app_id, settings.private_key.get_secret_value()),
        base_url=settings.api_url,
        timeout=30,
        user_agent="codepilot-bot",
        per_page=100,
        verify=True if ca_file is None else str(ca_file),
        seconds_between_requests=0,
    )
    with raise_github_errors(f"set up {name}"), integration:
        try:
            installation = integration.get_repo_installation(*name.split("/"))
        except GithubException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            raise NotInstalledError(
                f"{name}: the App {settings.app_id} is not installed there, or the repository does not exist. Install "
                "it from the App's page on GitHub, then run this again."
            ) from error
        with installation.get_github_for_installation() as github:
            labels = _create_labels(github, github.get_repo(name), start_label=settings.agent.start_label)
        return SetUpResult(labels=labels, missing=find_missing(installation.permissions, installation.events))


# PyGithub does not check that an answer is JSON and complete; RuntimeError means a redirect to another host.
_ODD_ANSWER = (
    AttributeError,
    AssertionError,
    BadAttributeException,
    JSONDecodeError,
    KeyError,
    RuntimeError,
    TypeError,
)


@contextmanager
def raise_github_errors(task: str) -> Iterator[None]:
    try:
        yield
    except GithubException as error:
        message = error.data.get("message") if isinstance(error.data, dict) else None
        text = str(message or "no reason given")
        raise GitHubError(task, error.status, text, remedy_for(error.status, text)) from error
    except _ODD_ANSWER as error:
        raise unreadable_answer(task, HTTPStatus.OK, f"an answer that PyGithub cannot read: {error!r}") from error
    except OSError as error:
        cause = getattr(error.args[0], "reason", error) if error.args else error  # without the names of the pool
        remedy = UNKNOWN_AUTHORITY if "CERTIFICATE_VERIFY_FAILED" in str(error) else remedy_for(0, "")
        raise GitHubError(task, 0, f"{type(cause).__name__}: {cause}", remedy) from error


def _create_labels(github: Github, repo: Repository, *, start_label: str) -> tuple[LabelSpec, ...]:
    organisation = f"{repo.full_name.partition('/')[0]}/.github"
    above = _file_content(github.withLazy(lazy=True).get_repo(organisation), organisation, ORGANISATION_PATH)
    own = _file_content(repo, repo.full_name, PATH)
    names = merge_configs(
        RepoConfig() if above is None else parse_config(above, source=f"{organisation}: {ORGANISATION_PATH}"),
        RepoConfig() if own is None else parse_config(own),
    ).labels
    existing = {label.name.casefold() for label in repo.get_labels()}
    labels = tuple(
        LabelSpec(name=name, color=color, description=description, is_new=name.casefold() not in existing)
        for name, color, description in (
            (names.start or start_label, "1d76db", "Codepilot: start a run"),
            (names.read_only, "c5def5", "Codepilot may only read"),
            (names.ask, "fbca04", "Codepilot asks before running commands that can reach more than the workspace"),
            (names.auto, "d93f0b", "Codepilot may run any command in its sandbox, for this commit"),
            (names.fix_ci, "0e8a16", "Codepilot fixes the failing checks of this pull request"),
        )
    )
    for label in labels:
        if label.is_new:
            repo.create_label(label.name, label.color, label.description)
    return labels


def _file_content(repo: Repository, name: str, path: str) -> bytes | None:
    """Return a file of the default branch; None if file or repository do not exist."""
    try:
        content = repo.get_contents(path)
    except GithubException as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    if isinstance(content, list) or content.type != "file":
        return None
    if content.encoding != "base64":  # over 1 MB
        raise FileTooLargeError(name, path, content.size)
    return content.decoded_content
