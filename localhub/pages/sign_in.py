"""Signing a person in to an App's site.

https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-user-access-token-for-a-github-app
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import urlencode, urlsplit

from localhub.api.auth import client_id
from localhub.api.errors import HubError, not_found
from localhub.pages.view import Page, PageVisit, render
from localhub.state.model import App, SignInCode, UserToken

_CODE_LIFE = timedelta(minutes=10)
_TOKEN_LIFE = timedelta(hours=8)


def ask(visit: PageVisit) -> Page:
    """Ask whether the App's site may know who is signed in."""
    app = _app(visit, visit.query)
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


def agree(visit: PageVisit) -> Page:
    """Send a person back to the App's site with a code."""
    app, store = _app(visit, visit.form), visit.site.store
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


def exchange(visit: PageVisit) -> Page:
    """Give a token for a code, to who knows the App's secret and what the code was asked for with."""
    asked, store = visit.form, visit.site.store
    code = store.sign_in_codes.pop(asked.get("code", ""), None)
    app = None if code is None else store.apps.get(code.app_id)
    if code is None or app is None or code.expires_at <= visit.site.now():
        return _json({"error": "bad_verification_code", "error_description": "The code is incorrect or expired."})
    known = (asked.get("client_id", ""), asked.get("client_secret", "")) == (client_id(app), store.client_secret(app))
    if not known:
        return _json({"error": "incorrect_client_credentials", "error_description": "The client is not known."})
    digest = base64.urlsafe_b64encode(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
    if code.challenge and not hmac.compare_digest(digest.rstrip(b"="), code.challenge.encode()):
        return _json({"error": "bad_verification_code", "error_description": "The code verifier is wrong."})
    token = f"ghu_{secrets.token_hex(18)}"
    store.user_tokens[token] = UserToken(app_id=app.id, user_id=code.user_id, expires_at=visit.site.now() + _TOKEN_LIFE)
    return _json({"access_token": token, "token_type": "bearer", "scope": "", "expires_in": 28_800})


def _app(visit: PageVisit, asked: Mapping[str, str]) -> App:
    """The App with the client id that is asked for, if it has a page to go back to."""
    store = visit.site.store
    found = next((app for app in store.apps if client_id(app) == asked.get("client_id", "")), None)
    if found is None or found.id not in store.callbacks:
        raise not_found()
    return found


def _json(answer: Mapping[str, str | int]) -> Page:
    return Page(body=json.dumps(answer).encode(), media_type="application/json; charset=utf-8")
