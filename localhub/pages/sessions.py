"""Sign-in: a signed cookie says who a browser acts as, a token in each form that the hub's own page sent it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from localhub.state.model import User
from localhub.state.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSession:
    """One browser.

    Attributes:
        cookie: its cookie, signed.
        user: who it acts as; None before somebody signs in.
        token: what every form has to send along.
    """

    cookie: str
    user: User | None
    token: str


def session_of(site: Site, cookie: str) -> PageSession:
    """The session that a cookie names; without a valid one, a new session of the hub's only person, or of nobody."""
    signed, _, mac = cookie.rpartition(".")
    number = signed.partition(".")[0]
    if signed and number.isdecimal() and hmac.compare_digest(_mac(site, "cookie", signed).encode(), mac.encode()):
        user = site.store.users.get(int(number))
        return PageSession(cookie=cookie, user=user, token=_mac(site, "form", cookie))
    people = [user for user in site.store.users if user.type == "User"]
    return new_session(site, people[0] if len(people) == 1 else None)


def new_session(site: Site, user: User | None) -> PageSession:
    """A session of somebody who signs in, or of nobody."""
    signed = f"{user.id if user else 0}.{secrets.token_hex(16)}"
    cookie = f"{signed}.{_mac(site, 'cookie', signed)}"
    return PageSession(cookie=cookie, user=user, token=_mac(site, "form", cookie))


def _mac(site: Site, purpose: str, text: str) -> str:
    return hmac.new(site.store.signing_key.encode(), f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()
