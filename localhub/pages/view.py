"""A page's request and answer, the browser's session, and the templates.

A signed cookie names the person whom a browser acts as; a token in each form proves that the hub's own page sent it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TypeAlias
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from localhub.api.auth import HubError, may, or_404, role_of
from localhub.pages.markup import highlight, markdown
from localhub.state.model import Issue, Repo, Role, User
from localhub.state.store import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSession:
    """A browser's session.

    Attributes:
        cookie: signed.
        user: None before the sign-in.
        token: required in every form.
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
    """Start a session, signed in or anonymous."""
    signed = f"{user.id if user else 0}.{secrets.token_hex(16)}"
    cookie = f"{signed}.{_mac(site, 'cookie', signed)}"
    return PageSession(cookie=cookie, user=user, token=_mac(site, "form", cookie))


def _mac(site: Site, purpose: str, text: str) -> str:
    return hmac.new(site.store.signing_key.encode(), f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageVisit:
    """One request for a page."""

    site: Site
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    session: PageSession

    def demand_token(self) -> None:
        """Refuse a form that does not come from a page of this session.

        Raises:
            HubError: 403.
        """
        if not hmac.compare_digest(self.form.get("token", "").encode(), self.session.token.encode()):
            raise HubError(403, "This form belongs to another session. Reload its page and send it again.")

    @property
    def repo(self) -> Repo:
        """The repository that the path names.

        Raises:
            HubError: 404.
        """
        name = f"{self.params['owner']}/{self.params['repo']}"
        return or_404(self.site.store.repo(name) or self.site.store.moved_repo(name))

    @property
    def thread(self) -> Issue:
        """The issue or pull request that the path names.

        Raises:
            HubError: 404.
        """
        return or_404(self.site.store.issue(self.repo, self.number))

    @property
    def number(self) -> int:
        """The number in the path.

        Raises:
            HubError: 404, it is none.
        """
        return or_404(digits(self.params["number"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page; with `location`, a redirection instead.

    Attributes:
        form_target: an origin that its forms may lead to besides the hub.
        session: the browser's session from here on, where it changes.
    """

    body: bytes = b""
    status: int = 200
    media_type: str = "text/html; charset=utf-8"
    location: str = ""
    form_target: str = ""
    session: PageSession | None = None


View: TypeAlias = Callable[[PageVisit], Page]


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("localhub.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ago=_ago, markdown=markdown, highlight=highlight)
    return environment


def render(visit: PageVisit, template: str, values: Mapping[str, object], *, status: int = 200) -> Page:
    """Fill a template."""
    shown = {
        "site": visit.site,
        "store": visit.site.store,
        "path": visit.path,
        "query": visit.query,
        "here": f"{visit.path}?{urlencode(visit.query)}" if visit.query else visit.path,
        "person": visit.session.user,
        "guard": Markup('<input type="hidden" name="token" value="{}">').format(visit.session.token),
        "now": visit.site.now(),
    }
    text = _templates().get_template(template).render(**shown, **values)
    return Page(body=text.encode(), status=status)


def error_page(visit: PageVisit, error: HubError) -> Page:
    """An error for people."""
    return render(visit, "error.html", {"error": error}, status=error.status)


def plain(text: str | bytes) -> Page:
    """A page of text as it is."""
    body = text if isinstance(text, bytes) else text.encode()
    return Page(body=body, media_type="text/plain; charset=utf-8")


def actor(visit: PageVisit, role: Role = "read") -> User:
    """The signed-in person who sends a form about a repository.

    Raises:
        HubError: 403, nobody is signed in, or their role in the repository is weaker than `role`.
    """
    user = visit.session.user
    if user is None:
        raise HubError(403, "Sign in first.")
    if not may(role_of(visit.site, visit.repo, user), role):
        raise HubError(403, f"{user.login} may not do this: it needs the role `{role}` in {visit.repo.full_name}.")
    return user


_MOST_DIGITS = 18


def digits(text: str) -> int | None:
    """The number that a text is; None for another text, or one that is too long for any number of the hub's."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


_STEPS = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))


def _ago(then: datetime, now: datetime) -> str:
    """`3 minutes ago`."""
    passed = now - then
    for length, name in _STEPS:
        count = passed // length
        if count:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
