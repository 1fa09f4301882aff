"""Registering an App by its manifest, and installing it.

https://docs.github.com/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any
from urllib.parse import urlencode, urlsplit

from localhub.api.errors import HubError, not_found
from localhub.operations import creation, installations
from localhub.pages.view import Page, PageVisit, render
from localhub.state.model import App

_LONGEST_NAME = 34
"""Characters that GitHub lets an App's name have."""
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")
_LEVELS = frozenset({"read", "write", "admin"})


def ask(visit: PageVisit) -> Page:
    """Show what an App would be, and ask a person whether to make it."""
    manifest = _manifest(visit)
    target = urlsplit(manifest["redirect_url"])
    values = {
        "title": "Create GitHub App",
        "manifest": manifest,
        "written": visit.form["manifest"],
        "state": visit.query.get("state", ""),
        "owner": visit.params.get("org", ""),
    }
    page = render(visit, "new_app.html", values)
    return Page(body=page.body, form_target=f"{target.scheme}://{target.netloc}")


def register(visit: PageVisit) -> Page:
    """Make the App, and send its maker back with a code for its secrets."""
    manifest, store = _manifest(visit), visit.site.store
    hook = manifest["hook_attributes"]
    name = visit.form.get("name", "").strip() or manifest["name"]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not slug or any(app.slug == slug for app in store.apps):
        raise HubError(422, f"The name {name!r} is already taken.")
    wanted = creation.NewApp(
        slug=slug,
        owner=visit.form.get("owner", "") or _maker(visit),
        webhook_url=hook.get("url", "") if hook.get("active", True) else "",
        webhook_secret=secrets.token_hex(20),
        permissions=manifest["default_permissions"],
        events=tuple(manifest["default_events"]),
    )
    made = creation.app(visit.site, wanted)
    code = secrets.token_hex(20)
    store.conversions[code] = made.id
    if callbacks := manifest["callback_urls"]:
        store.callbacks[made.id] = callbacks[0]
    answer = {"code": code, **({"state": visit.form["state"]} if visit.form.get("state") else {})}
    return Page(location=f"{manifest['redirect_url']}?{urlencode(answer)}")


def choose_repositories(visit: PageVisit) -> Page:
    """Ask which repository to install an App in."""
    app = _app(visit)
    repos = sorted(visit.site.store.repos, key=lambda repo: repo.full_name)
    return render(visit, "install_app.html", {"title": f"Install {app.slug}", "app": app, "repos": repos})


def install(visit: PageVisit) -> Page:
    """Install an App in a repository."""
    repo, person = visit.site.store.repo(visit.form.get("repo", "")), visit.site.store.user(_maker(visit))
    if repo is None or person is None:
        raise not_found()
    installations.install(visit.site, _app(visit), repo, person)
    return Page(location=visit.site.html(*repo.full_name.split("/")))


def _app(visit: PageVisit) -> App:
    found = next((app for app in visit.site.store.apps if app.slug == visit.params["slug"]), None)
    if found is None:
        raise not_found()
    return found


def _maker(visit: PageVisit) -> str:
    """Who makes or installs an App: who is signed in, otherwise the hub's first person."""
    if visit.session.user is not None:
        return visit.session.user.login
    return next((user.login for user in visit.site.store.users if user.type == "User"), "local")


def _manifest(visit: PageVisit) -> dict[str, Any]:
    """The manifest in the form, if it is one.

    Raises:
        HubError: 422, with what is wrong.
    """
    try:
        manifest: Any = json.loads(visit.form.get("manifest", ""))
    except (ValueError, RecursionError) as error:
        raise HubError(422, f"The manifest is no JSON: {error}") from error
    if isinstance(manifest, dict):
        given = {name: value for name, value in manifest.items() if value is not None}
        usual: dict[str, Any] = {
            "hook_attributes": {},
            "callback_urls": [],
            "default_permissions": {},
            "default_events": [],
        }
        manifest = {**usual, **given}
    wrong = _problem(manifest)
    if wrong:
        raise HubError(422, f"The manifest cannot be used: {wrong}.")
    return dict(manifest)


def _problem(manifest: Any) -> str:  # noqa: ANN401 - parsed JSON
    """What is wrong with a manifest; empty for nothing."""
    if not isinstance(manifest, dict):
        return "it is no object"
    hook, permissions, events = (
        manifest[name] for name in ("hook_attributes", "default_permissions", "default_events")
    )
    if not isinstance(hook, dict) or not isinstance(permissions, dict) or not isinstance(events, list):
        return "`hook_attributes` and `default_permissions` must be objects, and `default_events` a list"
    name, addresses = manifest.get("name"), [manifest.get("url"), manifest.get("redirect_url")]
    callbacks = manifest["callback_urls"]
    tests = {
        "`callback_urls` must be a list of addresses": isinstance(callbacks, list) and all(map(_is_address, callbacks)),
        "`url`, `redirect_url` and `hook_attributes.url` must be addresses": all(
            map(_is_address, [*addresses, *([hook.get("url")] if hook else [])])
        ),
        f"`name` must have 1 to {_LONGEST_NAME} characters": isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME,
        "`default_permissions` must give levels": all(
            isinstance(level, str) and level in _LEVELS for level in permissions.values()
        ),
        "`default_events` must be a list of names": all(isinstance(event, str) for event in events),
    }
    return next((problem for problem, fits in tests.items() if not fits), "")


def _is_address(value: object) -> bool:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        # The host stands in a page's policy, which anything else could change.
        return parts is not None and parts.scheme in {"http", "https"} and bool(_HOST.fullmatch(parts.netloc))
    except ValueError:  # e.g. a bracket that is not closed
        return False
