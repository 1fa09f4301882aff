"""GitHub's error answers, as exceptions that the router turns into JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

DOCUMENTATION = "https://docs.github.com/rest"


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
    """404, also for what the viewer may not know of."""
    return HubError(404, "Not Found")


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
