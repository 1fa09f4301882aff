"""GitHub's error answers, the authentication of a request, and the permissions of its viewer in a repository.

`viewer_of` reads a user's token, an App's JWT or an installation's token; `demand` lets the viewer do something or
raises the error with which GitHub refuses it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import jwt
from typing_extensions import override

from localhub.state.model import ROLES, App, Installation, Issue, Permissions, Repo, Role, User
from localhub.state.store import Site

T = TypeVar("T")

DOCUMENTATION = "https://docs.github.com/rest"
SCOPES = "gist, read:org, repo, workflow"
"""Of each person's token."""


class HubError(Exception):
    """An answer other than success.

    Attributes:
        status: the HTTP status.
        message: GitHub's wording.
        errors: the entries of a 422's `errors`; a few endpoints have plain sentences there.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        errors: tuple[Mapping[str, str] | str, ...] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message
        self.errors = errors
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON that GitHub would send."""
        body: dict[str, Any] = {"message": self.message}
        if self.errors:
            body["errors"] = [error if isinstance(error, str) else dict(error) for error in self.errors]
        return body | {"documentation_url": DOCUMENTATION, "status": str(self.status)}


class MovedError(HubError):
    """A redirection to where a renamed repository is now: 301 to read, 307 to send the same again."""

    def __init__(self, method: str, url: str) -> None:
        reading = method in {"GET", "HEAD"}
        message = "Moved Permanently" if reading else "Temporary Redirect"
        super().__init__(301 if reading else 307, message, headers={"Location": url})
        self._url = url

    @override
    def body(self) -> dict[str, Any]:
        return {"message": self.message, "url": self._url, "documentation_url": DOCUMENTATION}


def not_found() -> HubError:
    """Return 404, also for resources that are hidden from the viewer."""
    return HubError(404, "Not Found")


def or_404(value: T | None) -> T:
    """Return a value that was looked up, or refuse the request if there is none.

    Raises:
        HubError: 404.
    """
    if value is None:
        raise not_found()
    return value


def bad_credentials() -> HubError:
    """401 for a token or JWT that means nothing."""
    return HubError(401, "Bad credentials")


def not_accessible() -> HubError:
    """403 for an App that lacks the permission or the repository."""
    return HubError(403, "Resource not accessible by integration")


def invalid(resource: str, field: str, code: str, message: str = "") -> HubError:
    """422 about one field of the request; `code` is GitHub's, e.g. `missing_field`, `invalid`, `custom`."""
    error = {"resource": resource, "field": field, "code": code}
    if message:
        error["message"] = message
    return HubError(422, "Validation Failed", errors=(error,))


def unprocessable(message: str) -> HubError:
    """422 with nothing but a message, as the git endpoints answer."""
    return HubError(422, message)


JWT_LIFE = timedelta(minutes=10)
CLOCK_DRIFT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The caller of a request: a user, an App (by JWT), an installation, or an anonymous one.

    Attributes:
        user: the account that comments and commits will carry; None for nobody.
        app: the App, for a JWT and for an installation.
        installation: set for an installation's token only, with what that token was narrowed to.
        through: the App that a person has signed in to, for the token that it got.
        key: tells rate limits apart.
    """

    key: str
    user: User | None = None
    app: App | None = None
    installation: Installation | None = None
    through: App | None = None
    repo_ids: tuple[int, ...] = ()
    permissions: Permissions = field(default_factory=dict)


ANONYMOUS = Viewer(key="")


def viewer_of(site: Site, headers: Mapping[str, str]) -> Viewer:
    """Read the `Authorization` header: `Bearer` or `token`, or Basic with the token as password (as git sends it).

    Raises:
        HubError: 401, the credentials mean nothing, are expired or malformed.
    """
    header = headers.get("Authorization", "")
    if not header:
        return ANONYMOUS
    scheme, _, credentials = header.partition(" ")
    match scheme.lower():
        case "bearer" | "token":
            return _viewer_of_token(site, credentials.strip())
        case "basic":
            return _viewer_of_token(site, _password(credentials))
        case _:
            raise bad_credentials()


def _password(credentials: str) -> str:
    """The token, which may also stand as the user: with an empty password, or `x-oauth-basic`."""
    try:
        user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise bad_credentials() from error
    return user if password in {"", "x-oauth-basic"} else password


def scopes_of(viewer: Viewer) -> Mapping[str, str]:
    """The headers about the scopes of a token, which those of Apps do not have."""
    return {"X-OAuth-Scopes": SCOPES, "X-Accepted-OAuth-Scopes": ""} if viewer.user and not viewer.app else {}


def _viewer_of_token(site: Site, token: str) -> Viewer:
    for user in site.store.users:
        if user.token and user.token == token:
            return Viewer(key=f"user {user.id}", user=user)
    given = site.store.user_tokens.get(token)
    if given is not None:
        if given.expires_at <= site.now():
            raise bad_credentials()
        user, app = site.store.users[given.user_id], site.store.apps[given.app_id]
        return Viewer(key=f"user {user.id}", user=user, through=app)
    granted = site.store.tokens.get(token)
    if granted is not None:
        installation = site.store.installations.get(granted.installation_id)
        if installation is None or granted.expires_at <= site.now():
            raise bad_credentials()
        if installation.suspended_at is not None:
            raise HubError(403, "This installation has been suspended")
        app = site.store.apps[installation.app_id]
        return Viewer(
            key=f"installation {installation.id}",
            user=app.bot,
            app=app,
            installation=installation,
            repo_ids=granted.repo_ids,
            permissions=granted.permissions,
        )
    if token.count(".") == 2:  # noqa: PLR2004 - a JWT has three parts
        return _viewer_of_jwt(site, token)
    raise bad_credentials()


def _viewer_of_jwt(site: Site, token: str) -> Viewer:
    """An App's own JWT: RS256, `exp` at most ten minutes ahead, `iat` not in the future (docs: "Generating a JWT")."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        issuer = str(claims.get("iss", ""))
        app = next((app for app in site.store.apps if issuer in {str(app.id), client_id(app)}), None)
        if app is None:
            raise HubError(404, "Integration not found")
        jwt.decode(
            token,
            app.public_key_pem,
            algorithms=["RS256"],
            options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
        )
        issued, expires = int(claims["iat"]), int(claims["exp"])
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError) as error:
        raise HubError(401, "A JSON web token could not be decoded") from error
    now = site.now()
    if expires <= now.timestamp():
        raise HubError(401, "'Expiration time' claim ('exp') must be a numeric value in the future")
    if expires > (now + JWT_LIFE + CLOCK_DRIFT).timestamp():
        raise HubError(401, "'Expiration time' claim ('exp') is too far in the future")
    if issued > (now + CLOCK_DRIFT).timestamp():
        raise HubError(401, "'Issued at' claim ('iat') must not be in the future")
    return Viewer(key=f"app {app.id}", app=app)


def client_id(app: App) -> str:
    """The App's client id, which may stand for its number in a JWT."""
    return f"Iv1.{app.id:016x}"


def role_of(site: Site, repo: Repo, user: User | None) -> Role:
    """The role of a user: the owner's, a collaborator's, or `read` in a public repository."""
    if user is not None:
        if user.login.lower() == repo.owner.lower():
            return "admin"
        given = site.store.roles.get((repo.id, user.id))
        if given is not None:
            return given
    return "none" if repo.private else "read"


def may(viewer_role: Role, needed_role: Role) -> bool:
    """Whether a role includes another."""
    return ROLES.index(viewer_role) >= ROLES.index(needed_role)


def demand(site: Site, viewer: Viewer, repo: Repo, *, permission: str, level: str, role: Role) -> None:
    """Let the viewer do something with a repository, or say no as GitHub does.

    Args:
        site: the hub.
        viewer: who asks.
        repo: the repository.
        permission: for an installation, the name of the permission; several with `|` when any of them does.
        level: `read` or `write`.
        role: for a user, the weakest role that may.

    Raises:
        HubError: 401, 403 or 404.
    """
    if viewer.installation is not None:
        _demand_installation(viewer, repo, permission, level)
        return
    if viewer.app is not None:
        raise HubError(401, "A JSON web token cannot be used for this; ask for an installation's token")
    held = role_of(site, repo, viewer.user)
    if held == "none":
        raise not_found()
    if viewer.user is None and level == "write":
        raise HubError(401, "Requires authentication")
    if not may(held, role):
        raise HubError(403, f"Must have {role} access to {repo.full_name}.")


def _demand_installation(viewer: Viewer, repo: Repo, permission: str, level: str) -> None:
    if repo.id not in viewer.repo_ids:
        if repo.private:
            raise not_found()
        if level == "write":
            raise not_accessible()
        return
    held = {viewer.permissions.get(name) for name in permission.split("|")}
    readable = {"read", "write"} if level == "read" else {"write"}
    if permission == "metadata" and level == "read":
        return
    if not held & readable:
        raise not_accessible()


def demand_unlocked(site: Site, viewer: Viewer, repo: Repo, issue: Issue, action: str) -> None:
    """Require write access to talk in a locked thread; an App has none.

    Raises:
        HubError: 403; `action`, e.g. `comment`, is refused.
    """
    if issue.locked and (viewer.installation is not None or not may(role_of(site, repo, viewer.user), "write")):
        raise HubError(403, f"Unable to create {action} because issue is locked.")


def demand_author_or_writer(site: Site, viewer: Viewer, repo: Repo, author_id: int) -> None:
    """Let an author change their own words, and anyone who may write to the repository everybody's.

    Raises:
        HubError: 403.
    """
    if viewer.installation is not None or (viewer.user is not None and viewer.user.id == author_id):
        return
    if not may(role_of(site, repo, viewer.user), "write"):
        raise HubError(403, "Must have admin rights to Repository.")


def can_write(site: Site, viewer: Viewer, repo: Repo) -> bool:
    """Whether the viewer may change a repository's contents."""
    try:
        demand(site, viewer, repo, permission="contents", level="write", role="write")
    except HubError:
        return False
    return True


def can_read(site: Site, viewer: Viewer, repo: Repo) -> bool:
    """Whether the viewer may know of the repository."""
    try:
        demand(site, viewer, repo, permission="metadata", level="read", role="read")
    except HubError:
        return False
    return True
