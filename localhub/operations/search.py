"""Search for issues and pull requests, by those of GitHub's qualifiers that bots use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from localhub.api.auth import Viewer, can_read
from localhub.api.errors import invalid
from localhub.state.model import Issue, Repo
from localhub.state.site import Site

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
        raise invalid("Search", "q", "invalid", f"is:{value} is not supported")
    return facts[value]


def _person(site: Site, number: int, login: str) -> bool:
    return site.store.users[number].login.lower() == login.lower()


_IGNORED = frozenset({"sort", "archived"})
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


_MENTION = re.compile(r"(?<![\w`/])@([A-Za-z0-9](?:[A-Za-z0-9-]{0,38}))")
_TERM = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
"""A word, or what stands between double quotes; an apostrophe is a letter like others."""


def mentioned(site: Site, issue: Issue) -> set[str]:
    """The logins that a thread's words mention, in lower case."""
    said = [issue.body or "", *(comment.body for comment in site.store.comments_of(issue))]
    return {login.lower() for text in said for login in _MENTION.findall(text)}


def search(site: Site, viewer: Viewer, query: str) -> list[Issue]:
    """The issues and pull requests that fit a query and that the viewer may read, newest first.

    A `-` before a qualifier turns it round.

    Raises:
        HubError: 422, the query is empty or has what is not known here.
    """
    if not query.strip():
        raise invalid("Search", "q", "missing")
    terms = [term.replace('"', "") for term in _TERM.findall(query)]
    repos = site.store.repos
    found = [
        issue
        for issue in site.store.issues
        if can_read(site, viewer, repos[issue.repo_id])
        and all(_fits(site, repos[issue.repo_id], issue, term) for term in terms)
    ]
    return sorted(found, key=lambda issue: (issue.created_at, issue.id), reverse=True)


def _fits(site: Site, repo: Repo, issue: Issue, term: str) -> bool:
    name, colon, value = term.removeprefix("-").partition(":")
    if not colon:
        return term.lower() in f"{issue.title}\n{issue.body or ''}".lower()
    if name in _IGNORED:
        return True
    if name not in _QUALIFIERS:
        raise invalid("Search", "q", "invalid", f"{name}: is a qualifier that the local hub does not know")
    return _QUALIFIERS[name](site, repo, issue, value) != term.startswith("-")
