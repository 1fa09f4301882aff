"""The API's `Call` and `Response`, the table of `Routes`, pages of lists, and the checks of a request's body.

A route demands its permission before its handler runs; `demand_types` refuses a body whose fields have wrong types.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import urlencode

from localhub.api.auth import HubError, Viewer, demand, invalid, not_found, or_404
from localhub.state.model import Issue, Repo, Role, User
from localhub.state.store import HasId, Site, Table

log = logging.getLogger(__name__)
API_VERSIONS = ("2022-11-28",)
RAW, DIFF, PATCH = (f"application/vnd.github.{kind}" for kind in ("raw", "diff", "patch"))

# https://docs.github.com/rest/using-the-rest-api/getting-started-with-the-rest-api#media-types
_MEDIA = re.compile(r"application/vnd\.github(?:\.v3)?\.(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer: JSON, or text of another media type; `body` of None is an empty body."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"

    def content(self) -> bytes:
        """The bytes of the body."""
        if isinstance(self.body, bytes):
            return self.body
        if self.media_type != "application/json":
            return str(self.body).encode()
        return b"" if self.status == 204 else json.dumps(self.body).encode()  # noqa: PLR2004 - No Content


class RowOfRepo(HasId, Protocol):
    """A row that belongs to one repository."""

    @property
    def repo_id(self) -> int:
        """The repository's id."""


R = TypeVar("R", bound=RowOfRepo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to the API.

    Attributes:
        params: the values of the template's placeholders.
        query: the query string's values; of several with one name, the last.
        body: the parsed JSON body; `{}` when there is none.
        accept: the `Accept` header.
    """

    site: Site
    viewer: Viewer
    method: str
    template: str
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    accept: str
    authorization: str = field(default="", repr=False)
    target: Repo | None = None

    @property
    def repo(self) -> Repo:
        """The repository that the path names; access was checked by the route."""
        if self.target is None:
            raise not_found()
        return self.target

    @property
    def user(self) -> User:
        """The account in whose name things are made.

        Raises:
            HubError: 401, nobody is signed in.
        """
        if self.viewer.user is None:
            raise HubError(401, "Requires authentication")
        return self.viewer.user

    @property
    def app_id(self) -> int | None:
        """The App that acts, for `performed_via_github_app`."""
        return self.viewer.app.id if self.viewer.app else None

    def number(self, name: str) -> int:
        """A numeric placeholder.

        Raises:
            HubError: 404, it is not a number.
        """
        value = self.params[name]
        if not value.isdecimal():
            raise not_found()
        return int(value)

    def row(self, table: Table[R], name: str) -> R:
        """The row of one of the repository's tables that a numeric placeholder names.

        Raises:
            HubError: 404, there is none in this repository.
        """
        row = or_404(table.get(self.number(name)))
        if row.repo_id != self.repo.id:
            raise not_found()
        return row

    def issue(self, name: str = "issue_number") -> Issue:
        """The issue or pull request that the path names.

        Raises:
            HubError: 404, there is none; 410, the repository has no issues.
        """
        found = or_404(self.site.store.issue(self.repo, self.number(name)))
        if found.pull is None and not self.repo.has_issues:
            raise HubError(410, "Issues has been disabled in this repository.")
        return found

    def text(self, name: str, resource: str, default: str | None = None) -> str:
        """A text from the body; required unless `default` is given.

        Raises:
            HubError: 422, it is missing, no text, or too long.
        """
        value = self.body.get(name, default)
        if value is None:
            raise invalid(resource, name, "missing_field")
        if not isinstance(value, str):
            raise HubError(422, f"Invalid request.\n\nFor 'properties/{name}', {value!r} is not a string.")
        check_length(value, resource, name)
        return value

    def texts(self, name: str, resource: str) -> list[str]:
        """A list of texts from the body; empty when it is null or absent.

        Raises:
            HubError: 422, it is something else.
        """
        value = self.body.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise invalid(resource, name, "invalid")
        return value

    def wants(self, kind: str) -> bool:
        """Whether the `Accept` header asks for a media type of GitHub's: `raw`, `diff`, `patch`, `sha`."""
        return _MEDIA.findall(self.accept).count(kind) > 0

    def optional_text(self, name: str, resource: str) -> str | None:
        """A text from the body, or None when it is null or absent."""
        return None if self.body.get(name) is None else self.text(name, resource)


Handler: TypeAlias = Callable[[Call], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The handler of a method and path.

    Attributes:
        permission: that it needs; empty if the handler checks.
        takes: the fields of the body, or for GET the parameters of the query, that it reads; empty: any.
    """

    method: str
    template: str
    handler: Handler
    permission: str = ""
    level: str = "read"
    role: Role = "read"
    takes: frozenset[str] = frozenset()

    @property
    def accepted(self) -> str:
        """`X-Accepted-GitHub-Permissions`: the permissions that an App needs, alternatives separated by semicolons."""
        return "; ".join(f"{name}={self.level}" for name in self.permission.split("|") if name)

    def answer(self, call: Call) -> Response:
        """Check access and answer.

        Raises:
            HubError: anything but success.
        """
        if self.permission and call.target is not None:
            demand(call.site, call.viewer, call.target, permission=self.permission, level=self.level, role=self.role)
        unarchives = self.template == "/repos/{owner}/{repo}" and call.body.get("archived") is False
        if call.target is not None and call.target.archived and self.method != "GET" and not unarchives:
            raise HubError(403, "Repository was archived so is read-only.")
        demand_types(call.body)
        self._demand_served(call)
        return self.handler(call)

    def _demand_served(self, call: Call) -> None:
        """Refuse a field or parameter that GitHub may know and the hub does not: ignored, it gives a wrong answer.

        Raises:
            HubError: 422.
        """
        kind, given = ("parameter", call.query) if self.method == "GET" else ("field", call.body)
        unserved = [name for name, value in given.items() if value and name not in (self.takes or given)]
        if unserved:
            names = ", ".join(unserved)
            message = f"The local hub does not serve the {kind} {names} of {self.method} {self.template}."
            log.warning("%s", message)
            raise HubError(422, message)


class Routes:
    """A module's part of the table."""

    def __init__(self) -> None:
        self.all: list[Route] = []

    def on(
        self, method: str, template: str, allow: str = "", role: Role | None = None, *, takes: str = ""
    ) -> Callable[[Handler], Handler]:
        """Register the decorated function for `template`, spelt as in GitHub's API description.

        Args:
            method: the HTTP method.
            template: the path after the API's root.
            allow: `permission:level`; several permissions with `|` when any of them does. Empty: the handler checks.
            role: the weakest role of a user that may; by default `read` to read and `write` to write.
            takes: the fields of the body, or for GET the parameters of the query, that the handler reads.
        """
        permission, _, level = allow.partition(":")

        def register(handler: Handler) -> Handler:
            self.all.append(
                Route(
                    method=method,
                    template=template,
                    handler=handler,
                    permission=permission,
                    level=level or "read",
                    role=role or ("write" if level == "write" else "read"),
                    takes=frozenset({*takes.split(), *(("page", "per_page") if method == "GET" else ("",))}),
                )
            )
            return handler

        return register


def page_of(call: Call, items: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """One page of a list, and the `Link` header for the others."""
    size = page_size(call)
    page = max(_whole(call.query.get("page"), 1), 1)
    last = max((len(items) + size - 1) // size, 1)
    links: dict[str, int] = {}
    if page > 1:
        links |= {"prev": min(page - 1, last), "first": 1}
    if page < last:
        links |= {"next": page + 1, "last": last}
    root = f"{call.site.api_url}{call.path}"
    spelt = [
        f'<{root}?{urlencode({**call.query, "per_page": size, "page": number})}>; rel="{rel}"'
        for rel, number in links.items()
    ]
    return items[(page - 1) * size : page * size], {"Link": ", ".join(spelt)} if spelt else {}


def listed(call: Call, items: list[Any], show: Callable[[Any], Any]) -> Response:
    """Answer one page of a list; render only its entries."""
    some, headers = page_of(call, items)
    return Response(body=[show(item) for item in some], headers=headers)


def wrapped(call: Call, name: str, items: list[Any], show: Callable[[Any], Any]) -> Response:
    """Answer one page of a list that GitHub wraps with a `total_count`."""
    some, headers = page_of(call, items)
    return Response(body={"total_count": len(items), name: [show(item) for item in some]}, headers=headers)


def page_size(call: Call) -> int:
    """The number of entries on a page that the request asks for."""
    return min(max(_whole(call.query.get("per_page"), 30), 1), 100)


def _whole(value: str | None, default: int) -> int:
    return int(value) if value is not None and value.isdecimal() else default


MAX_BODY = 65_536
"""GitHub's limit for the text of an issue, a pull request or a comment, in characters."""
MAX_TITLE = 256


def check_length(value: str, resource: str, name: str) -> None:
    """Refuse a body over GitHub's limit.

    Raises:
        HubError: 422.
    """
    most = {"body": MAX_BODY, "title": MAX_TITLE}.get(name)
    if most is not None and len(value) > most:
        raise invalid(resource, name, "custom", f"{name} is too long (maximum is {most} characters)")


def moment_of(value: str, name: str) -> datetime:
    """A time from the query; without a zone it is UTC.

    Raises:
        HubError: 422, it is no time in ISO 8601.
    """
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise HubError(422, f"Invalid {name}: must be in ISO 8601, as in 2026-11-21T12:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def demand_types(body: Mapping[str, object]) -> None:
    """Refuse a body with a field of a wrong type; null counts as left out.

    Raises:
        HubError: 422.
    """
    for name, value in body.items():
        _demand(name, value)


def _demand(name: str, value: object) -> None:
    allowed = TYPES.get(name)
    if value is None or allowed is None:
        return
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        wanted = " or ".join(_NAMES[each] for each in allowed)
        raise HubError(422, f"Invalid request.\n\nFor 'properties/{name}', {value!r} is not of type {wanted}.")
    if isinstance(value, list):
        for each in value:
            _demand(f"{name}[]", each)
    if isinstance(value, dict):
        for inner, each in value.items():
            _demand(f"{name}.{inner}", each)


_OBJECTS = (
    "actions[] author comments[] committer inputs issue_field_values[] output output.annotations[] output.images[] "
    "permissions tree[]"
)
_LISTS = (
    "actions assignees comments issue_field_values labels output.annotations output.images parents repositories "
    "repository_ids reviewers team_reviewers"
)
_TEXTS = (
    "actions[].description actions[].identifier actions[].label assignee assignees[] author.date author.email "
    "author.name base base_tree body color comments[].body comments[].path comments[].side comments[].start_side "
    "commit_id commit_message commit_title committer.date committer.email committer.name completed_at conclusion "
    "content context description details_url encoding event external_id head head_repo head_sha lock_reason "
    "merge_method message name new_name output.annotations[].annotation_level output.annotations[].message "
    "output.annotations[].path output.annotations[].raw_details output.annotations[].title output.summary "
    "output.text output.title parents[] path ref repositories[] reviewers[] sha side signature start_side "
    "started_at state state_reason status subject_type target_url tree[].content tree[].mode tree[].path tree[].sha "
    "tree[].type"
)
_FLAGS = "draft force maintainer_can_modify prerelease replace_parent return_run_details"
_NUMBERS = (
    "duplicate_issue_id in_reply_to issue line position start_line sub_issue_id repository_ids[] comments[].line "
    "comments[].position comments[].start_line output.annotations[].start_line output.annotations[].end_line "
    "output.annotations[].start_column output.annotations[].end_column"
)

TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(_OBJECTS.split(), (dict,)),
    **dict.fromkeys(_LISTS.split(), (list,)),
    **dict.fromkeys(_TEXTS.split(), (str,)),
    **dict.fromkeys(_FLAGS.split(), (bool,)),
    **dict.fromkeys(_NUMBERS.split(), (int,)),
    "labels[]": (str, dict),
    "milestone": (str, int),
    "title": (str, int),
    "type": (str, dict),
    "tree": (list, str),  # of a commit it is an id, of a tree its entries
}
"""Types of fields by name, at every address; `name[]` is an entry of a list, `name.inner` a field of an object."""
_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
