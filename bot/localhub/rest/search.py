"""Search for issues and pull requests, by GitHub's qualifiers that bots use."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from bot.localhub import views_threads
from bot.localhub.auth import can_read
from bot.localhub.errors import HubError, invalid
from bot.localhub.model import Issue, Repo
from bot.localhub.routing import Answer, Call, Routes, page_of
from bot.localhub.site import Site

routes = Routes()
Test = Callable[[Site, Repo, Issue, str], bool]


def _is(_site: Site, _repo: Repo, issue: Issue, value: str) -> bool:
    merged = issue.pull is not None and issue.pull.merged_at is not None
    facts = {
        "issue": issue.pull is None,
        "pr": issue.pull is not None,
        "pull-request": issue.pull is not None,
        "open": issue.state == "open",
        "closed": issue.state == "closed",
        "merged": merged,
        "unmerged": issue.pull is not None and not merged,
        "draft": issue.pull is not None and issue.pull.draft,
        "locked": issue.locked,
        "unlocked": not issue.locked,
    }
    if value not in facts:
        raise invalid("Search", "q", "invalid", f"is:{value} is not known here")
    return facts[value]


def _person(site: Site, number: int, login: str) -> bool:
    return site.store.users[number].login.lower() == login.lower()


_QUALIFIERS: Mapping[str, Test] = {
    "is": _is,
    "type": _is,
    "state": _is,
    "repo": lambda _site, repo, _issue, value: repo.full_name.lower() == value.lower(),
    "user": lambda _site, repo, _issue, value: repo.owner.lower() == value.lower(),
    "org": lambda _site, repo, _issue, value: repo.owner.lower() == value.lower(),
    "author": lambda site, _repo, issue, value: _person(site, issue.author_id, value),
    "assignee": lambda site, _repo, issue, value: any(_person(site, each, value) for each in issue.assignees),
    "label": lambda _site, _repo, issue, value: value.lower() in {name.lower() for name in issue.labels},
    "head": lambda _site, _repo, issue, value: issue.pull is not None and issue.pull.head_ref == value,
    "base": lambda _site, _repo, issue, value: issue.pull is not None and issue.pull.base_ref == value,
    "no": lambda _site, _repo, issue, value: not {"label": issue.labels, "assignee": issue.assignees}.get(value, ()),
}


@routes.on("GET", "/search/issues")
def issues(call: Call) -> Answer:
    """Issues and pull requests that fit `q`, newest first; a `-` before a qualifier turns it round."""
    query = call.query.get("q", "")
    if not query.strip():
        raise invalid("Search", "q", "missing")
    try:
        terms = shlex.split(query)
    except ValueError as error:
        raise HubError(422, f"Validation Failed: q has {error}") from error
    store = call.site.store
    found = [
        issue
        for issue in store.issues
        if can_read(call.site, call.viewer, store.repos[issue.repo_id])
        and all(_fits(call.site, store.repos[issue.repo_id], issue, term) for term in terms)
    ]
    found.sort(key=lambda issue: (issue.created_at, issue.id), reverse=call.query.get("order", "desc") == "desc")
    some, headers = page_of(call, found)
    shown = [views_threads.found_issue(call.site, store.repos[issue.repo_id], issue) for issue in some]
    body = {"total_count": len(found), "incomplete_results": False, "items": shown, "search_type": "lexical"}
    return Answer(body=body, headers=headers)


def _fits(site: Site, repo: Repo, issue: Issue, term: str) -> bool:
    name, colon, value = term.removeprefix("-").partition(":")
    if not colon:
        return term.lower() in f"{issue.title}\n{issue.body or ''}".lower()
    if name not in _QUALIFIERS:
        raise invalid("Search", "q", "invalid", f"{name}: is a qualifier that the local hub does not know")
    return _QUALIFIERS[name](site, repo, issue, value) != term.startswith("-")
