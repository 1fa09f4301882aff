"""Accounts: sign in, authorize an App's site, list repositories, register an App by its manifest and install it.

Anyone may sign in as any of the hub's people; there are no passwords. An App's site signs a person in as on GitHub:
https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-user-access-token-for-a-github-app
Registering by a manifest: https://docs.github.com/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
"""

from __future__ import annotations

import base64
import colorsys
import hashlib
import hmac
import html
import json
import re
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from localhub.api.auth import HubError, client_id, not_found, or_404
from localhub.operations import accounts
from localhub.pages.view import Page, PageVisit, new_session, render
from localhub.state.model import App, SignInCode, UserToken


def choose_person(visit: PageVisit) -> Page:
    """Show the people one can sign in as."""
    people = [user for user in visit.site.store.users if user.type == "User"]
    return render(
        visit, "login.html", {"title": "Sign in", "people": people, "back": _local_path(visit.query.get("to", ""))}
    )


def sign_in(visit: PageVisit) -> Page:
    """Take the choice."""
    user = visit.site.store.user(visit.form.get("login", ""))
    if user is None or user.type != "User":
        raise HubError(422, "There is nobody of this name. Choose one of the people.")
    return Page(location=_local_path(visit.form.get("to", "")), session=new_session(visit.site, user))


def sign_out(visit: PageVisit) -> Page:
    """Be nobody again."""
    return Page(location="/login", session=new_session(visit.site, None))


def _local_path(path: str) -> str:
    """The path if it is a page of the hub, else the front page."""
    local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if local else "/"


def repositories(visit: PageVisit) -> Page:
    """The front page."""
    repos = sorted(visit.site.store.repos, key=lambda repo: repo.pushed_at, reverse=True)
    return render(visit, "repositories.html", {"title": "Repositories", "repos": repos, "user": None})


def account(visit: PageVisit) -> Page:
    """One account and its repositories."""
    return _account(visit, visit.params["owner"])


def app(visit: PageVisit) -> Page:
    """An App's account."""
    return _account(visit, f"{visit.params['slug']}[bot]")


def _account(visit: PageVisit, login: str) -> Page:
    user = or_404(visit.site.store.user(login))
    repos = [repo for repo in visit.site.store.repos if repo.owner == user.login]
    return render(visit, "repositories.html", {"title": user.login, "repos": repos, "user": user})


def avatar(visit: PageVisit) -> Page:
    """A letter on the account's own colour."""
    user = or_404(visit.site.store.users.get(visit.number))
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(user.id * 0.381966 % 1, 0.45, 0.45))
    radius = 12 if user.type == "Bot" else 20
    letter = html.escape(user.login[:1].upper())
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40" width="40" height="40">'
        f'<rect width="40" height="40" rx="{radius}" fill="rgb({red},{green},{blue})"/>'
        '<text x="20" y="27" text-anchor="middle" font-family="sans-serif" font-size="20" fill="#fff">'
        f"{letter}</text></svg>"
    )
    return Page(body=svg.encode(), media_type="image/svg+xml")


_CODE_LIFE = timedelta(minutes=10)
_TOKEN_LIFE = timedelta(hours=8)


def authorize(visit: PageVisit) -> Page:
    """Ask whether the App's site may know who is signed in."""
    app = _app_with_callback(visit, visit.query)
    if visit.session.user is None:
        return Page(location=f"/login?{urlencode({'to': f'{visit.path}?{urlencode(visit.query)}'})}")
    values = {
        "title": f"Authorize {app.slug}",
        "app": app,
        "asked": {name: visit.query.get(name, "") for name in ("client_id", "state", "code_challenge")},
    }
    target = urlsplit(visit.site.store.callbacks[app.id])
    page = render(visit, "authorize.html", values)
    return Page(body=page.body, form_target=f"{target.scheme}://{target.netloc}")


def grant_code(visit: PageVisit) -> Page:
    """Send a person back to the App's site with a code."""
    app, store = _app_with_callback(visit, visit.form), visit.site.store
    person = visit.session.user
    if person is None:
        raise HubError(403, "Sign in first.")
    code = secrets.token_hex(10)
    store.sign_in_codes[code] = SignInCode(
        app_id=app.id,
        user_id=person.id,
        challenge=visit.form.get("code_challenge", ""),
        expires_at=visit.site.now() + _CODE_LIFE,
    )
    return Page(location=f"{store.callbacks[app.id]}?{urlencode({'code': code, 'state': visit.form.get('state', '')})}")


def exchange_code(visit: PageVisit) -> Page:
    """Exchange a code for a token; requires the App's secret and the parameters of the sign-in."""
    asked, store = visit.form, visit.site.store
    code = store.sign_in_codes.pop(asked.get("code", ""), None)
    app = None if code is None else store.apps.get(code.app_id)
    if code is None or app is None or code.expires_at <= visit.site.now():
        return _json_page({"error": "bad_verification_code", "error_description": "The code is incorrect or expired."})
    known = (asked.get("client_id", ""), asked.get("client_secret", "")) == (client_id(app), store.client_secret(app))
    if not known:
        return _json_page({"error": "incorrect_client_credentials", "error_description": "The client is not known."})
    digest = base64.urlsafe_b64encode(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
    if code.challenge and not hmac.compare_digest(digest.rstrip(b"="), code.challenge.encode()):
        return _json_page({"error": "bad_verification_code", "error_description": "The code verifier is wrong."})
    token = f"ghu_{secrets.token_hex(18)}"
    store.user_tokens[token] = UserToken(app_id=app.id, user_id=code.user_id, expires_at=visit.site.now() + _TOKEN_LIFE)
    return _json_page({"access_token": token, "token_type": "bearer", "scope": "", "expires_in": 28_800})


def _app_with_callback(visit: PageVisit, query: Mapping[str, str]) -> App:
    """The App with the client id that is asked for, if it has a page to go back to."""
    store = visit.site.store
    found = next((app for app in store.apps if client_id(app) == query.get("client_id", "")), None)
    if found is None or found.id not in store.callbacks:
        raise not_found()
    return found


def _json_page(answer: Mapping[str, str | int]) -> Page:
    return Page(body=json.dumps(answer).encode(), media_type="application/json; charset=utf-8")


def confirm_new_app(visit: PageVisit) -> Page:
    """Show the new App and ask for confirmation."""
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


def register_app(visit: PageVisit) -> Page:
    """Make the App, and send its maker back with a code for its secrets."""
    manifest, store = _manifest(visit), visit.site.store
    hook = manifest["hook_attributes"]
    name = visit.form.get("name", "").strip() or manifest["name"]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not slug or any(app.slug == slug for app in store.apps):
        raise HubError(422, f"The name {name!r} is already taken.")
    wanted = accounts.NewApp(
        slug=slug,
        owner=visit.form.get("owner", "") or _person_login(visit),
        webhook_url=hook.get("url", "") if hook.get("active", True) else "",
        webhook_secret=secrets.token_hex(20),
        permissions=manifest["default_permissions"],
        events=tuple(manifest["default_events"]),
    )
    made = accounts.create_app(visit.site, wanted)
    code = secrets.token_hex(20)
    store.conversions[code] = made.id
    if callbacks := manifest["callback_urls"]:
        store.callbacks[made.id] = callbacks[0]
    answer = {"code": code, **({"state": visit.form["state"]} if visit.form.get("state") else {})}
    return Page(location=f"{manifest['redirect_url']}?{urlencode(answer)}")


def choose_repositories(visit: PageVisit) -> Page:
    """Ask which repository to install an App in."""
    app = _app_of_slug(visit)
    repos = sorted(visit.site.store.repos, key=lambda repo: repo.full_name)
    return render(visit, "install_app.html", {"title": f"Install {app.slug}", "app": app, "repos": repos})


def install_app(visit: PageVisit) -> Page:
    """Install an App in a repository."""
    repo, person = visit.site.store.repo(visit.form.get("repo", "")), visit.site.store.user(_person_login(visit))
    if repo is None or person is None:
        raise not_found()
    accounts.install_app(visit.site, _app_of_slug(visit), repo, person)
    return Page(location=visit.site.html(*repo.full_name.split("/")))


def _app_of_slug(visit: PageVisit) -> App:
    return or_404(next((app for app in visit.site.store.apps if app.slug == visit.params["slug"]), None))


def _person_login(visit: PageVisit) -> str:
    """The login of the person who is signed in, or of the hub's first person."""
    if visit.session.user is not None:
        return visit.session.user.login
    return next((user.login for user in visit.site.store.users if user.type == "User"), "local")


_LONGEST_NAME = 34
"""Characters that GitHub lets an App's name have."""
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")
_LEVELS = frozenset({"read", "write", "admin"})


def _manifest(visit: PageVisit) -> dict[str, Any]:
    """Parse the manifest in the form.

    Raises:
        HubError: 422, with the reason.
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
    wrong = _manifest_problem(manifest)
    if wrong:
        raise HubError(422, f"The manifest cannot be used: {wrong}.")
    return dict(manifest)


def _manifest_problem(manifest: Any) -> str:  # noqa: ANN401 - parsed JSON
    """The first problem of a manifest; empty when it has none."""
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
