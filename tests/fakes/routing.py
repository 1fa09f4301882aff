"""Requests to a GitHub in memory, the App's access, and the table of REST routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from bot.github.types import Answer
from localhub.api.auth import HubError, invalid, not_accessible, not_found, or_404
from localhub.api.routing import check_length
from localhub.pages.markup import markdown
from tests.fakes.site import (
    FakeApp,
    FakePull,
    FakeRepo,
    FakeSite,
    FakeThread,
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a repository, or with `home` of None to the site."""

    site: FakeSite
    app: FakeApp
    is_workflow: bool
    home: FakeRepo | None
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    full: bool = False

    @property
    def repo(self) -> FakeRepo:
        return or_404(self.home)

    def demand(self, repo: FakeRepo, permission: str, level: str) -> None:
        """Check the App's access.

        Raises:
            HubError: 403 or 404.
        """
        if not repo.installed:
            if repo.private:
                raise not_found()
            if level == "write":
                raise not_accessible()
        elif (permission, level) != ("metadata", "read"):
            held = {self.app.permissions.get(name) for name in permission.split("|")}
            if not held & ({"read", "write"} if level == "read" else {"write"}):
                raise not_accessible()

    def thread(self, number: str) -> FakeThread:
        return or_404(self.repo.threads.get(int(number)))

    def pull(self, number: str) -> tuple[FakeThread, FakePull]:
        thread = self.thread(number)
        return thread, or_404(thread.pull)

    def text(self, resource: str, name: str = "body") -> str:
        value = self.body.get(name)
        if value is None:
            raise invalid(resource, name, "missing_field")
        check_length(value, resource, name)
        if not value.strip():
            raise invalid(resource, name, "missing_field")
        return str(value)

    def page(self, entries: Sequence[Any], show: Callable[[Any], Json]) -> list[Json]:
        size, number = int(self.query.get("per_page", 30)), int(self.query.get("page", 1))
        return [show(entry) for entry in entries[(number - 1) * size : number * size]]

    def user(self, account_id: int) -> Json | None:
        account = self.site.users.get(account_id)
        return None if account is None else {"id": account.id, "login": account.login, "type": account.type}

    def html(self, *parts: str | int) -> str:
        return "/".join([self.site.url, self.repo.full_name, *map(str, parts)])

    def texts(self, body: str | None) -> Json:
        """Return a text, with its HTML if the request asks for it."""
        return {"body": body} | ({"body_html": str(markdown(body))} if self.full and body is not None else {})


Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Route:
    name: str
    pattern: re.Pattern[str]
    permission: str
    level: str
    handler: Handler


_ROUTES: dict[tuple[str, str], list[_Route]] = {}


def route(verb: str, template: str, allow: str = "") -> Callable[[Handler], Handler]:
    """Register a handler; `{}` is a part of the path, `{*}` several."""
    first, (permission, _, level) = template.split("/", maxsplit=1)[0], allow.partition(":")
    pattern = re.escape(template).replace(r"\{\*\}", "(.*)").replace(r"\{\}", "([^/]+)")

    def register(handler: Handler) -> Handler:
        _ROUTES.setdefault((verb, first), []).append(
            _Route(f"{verb} {template}", re.compile(pattern), permission, level, handler)
        )
        return handler

    return register


def routes() -> frozenset[str]:
    """Return the names of all routes, as `FakeSite.requests` has them."""
    return frozenset({"POST graphql", *(known.name for listed in _ROUTES.values() for known in listed)})


def answer(request: Request, verb: str, path: str) -> Answer:
    """Perform a REST request.

    Raises:
        HubError: it is refused.
        AssertionError: no route has this path.
    """
    for candidate in _ROUTES.get((verb, path.split("/", maxsplit=1)[0]), ()):
        if match := candidate.pattern.fullmatch(path):
            accepted = "; ".join(f"{name}={candidate.level}" for name in candidate.permission.split("|") if name)
            request.site.requests.append(candidate.name)
            headers = {"x-accepted-github-permissions": accepted}
            try:
                if request.home is not None:
                    request.demand(request.home, candidate.permission, candidate.level)
                    demand_writable(request.home, is_write=verb != "GET")
                data = candidate.handler(request, *map(unquote, match.groups()))
            except HubError as error:
                error.headers = headers | {name.lower(): value for name, value in error.headers.items()}
                raise
            return data if isinstance(data, Answer) else Answer(status=200, headers=headers, data=data)
    raise AssertionError(f"FakeGitHub has no route {verb} {path}")


def demand_writable(repo: FakeRepo, *, is_write: bool) -> None:
    if repo.archived and is_write:
        raise HubError(403, "Repository was archived so is read-only.")
