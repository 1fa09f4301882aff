"""The manifest of the bot's GitHub App, and what is made of the App that GitHub registers for it. Pure.

https://docs.github.com/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

from bot.apps.app_permissions import EVENTS, PERMISSIONS
from bot.github import CALLBACK_PATH, RegisteredApp
from bot.settings.model import api_of, server_of
from bot.settings.parsing import url

ON_GITHUB = "https://github.com"
LONGEST_NAME = 34
"""Characters; GitHub takes no longer name for an App."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """The options of `codepilot app create`; see its help.

    Attributes:
        name: the App's; no other App on the server may have it.
        webhook: the address that GitHub delivers to.
        organisation: the owner; empty for the person's own account.
        server: GitHub's address for browsers.
        workflows: whether the App may change workflow files.
        dashboard: whether people sign in to the dashboard with GitHub.
        public: whether other accounts may install it.
        directory: where key and settings are written.
        ca_file: the authorities that signed the server's certificate; None for the usual ones.
        port: of the local page; 0 for a free one.
    """

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
        """The address of the server's REST API."""
        return api_of(self.server)

    @property
    def key_file(self) -> Path:
        """Where the App's key is written."""
        return self.directory / "app.pem"

    @property
    def settings_file(self) -> Path:
        """Where the settings are written."""
        return self.directory / "codepilot.yml"


def checked(options: AppOptions) -> AppOptions:
    """The same options, with the server's address as the settings have it.

    Raises:
        ValueError: GitHub would not take them.
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
    """What GitHub is asked to register.

    Args:
        options: what the operator wants.
        redirect_url: where GitHub sends the browser with the code.
    """
    wanted = [each for each in PERMISSIONS if each.weight != "optional" or options.workflows]
    own = options.webhook.rsplit("/", 1)[0]
    # The dashboard stands at the root of its host, wherever a proxy has the webhook.
    callback = urlsplit(options.webhook)._replace(path=CALLBACK_PATH, query="", fragment="").geturl()
    return {
        "name": options.name,
        "url": own,
        "description": "Codepilot: a coding agent that works on this organisation's own server.",
        "hook_attributes": {"url": options.webhook, "active": True},
        "redirect_url": redirect_url,
        **({"callback_urls": [callback]} if options.dashboard else {}),
        "public": options.public,
        "default_permissions": {each.name: each.level for each in wanted},
        "default_events": [each.name for each in EVENTS],
    }


def form_address(options: AppOptions, *, state: str) -> str:
    """Where the manifest is sent to, by a form in a browser that is signed in."""
    place = f"/organizations/{quote(options.organisation, safe='')}" if options.organisation else ""
    return f"{options.server}{place}/settings/apps/new?{urlencode({'state': state})}"


def form_value(options: AppOptions, *, redirect_url: str) -> str:
    """The manifest as the form's field holds it."""
    return json.dumps(manifest(options, redirect_url=redirect_url))


def settings_text(app: RegisteredApp, options: AppOptions) -> str:
    """The settings file for the App."""
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
    """What is left to do, for the terminal."""
    return f"""\
Created the GitHub App {app.slug} ({app.owner}, id {app.id}): {app.html_url}
Wrote {options.key_file} and {options.settings_file}, readable only by you.

1. Install it in your repositories:  {app.html_url}/installations/new
2. Start the bot:                    export CODEPILOT_CONFIG={options.settings_file.resolve()}
                                     export ANTHROPIC_API_KEY=…
                                     codepilot serve
3. Check it:                         codepilot app check"""
