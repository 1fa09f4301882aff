"""Threads: open, comment, label, assign, close and search issues and pull requests, with the webhooks of each change.

REST, GraphQL, the pages and `LocalHub` all change threads by these functions. `search` knows those of GitHub's
qualifiers that bots use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from localhub.api.auth import HubError, Viewer, can_read, invalid
from localhub.git import plumbing as git
from localhub.operations import webhooks
from localhub.state.model import (
    Comment,
    Issue,
    IssueEvent,
    Label,
    Milestone,
    Reaction,
    Repo,
    ReviewComment,
    User,
    reaction_kind,
)
from localhub.state.store import Json, Site
from localhub.views import accounts as account_views
from localhub.views import threads as threads_views

DEFAULT_COLOR = "ededed"

_MENTION = re.compile(r"(?<![\w`/])@([A-Za-z0-9](?:[A-Za-z0-9-]{0,38}))")
_TERM = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
"""A word, or what stands between double quotes; an apostrophe is a letter like others."""

_IGNORED = frozenset({"sort", "archived"})


def open_issue(
    site: Site,
    repo: Repo,
    author: User,
    *,
    title: str,
    body: str | None,
    labels: Iterable[str] = (),
    app_id: int | None = None,
) -> Issue:
    """Open an issue under the next free number."""
    now = site.now()
    issue = site.store.issues.put(
        Issue(
            id=site.store.new_id(),
            repo_id=repo.id,
            number=next_number(site, repo),
            author_id=author.id,
            title=title,
            body=body,
            created_at=now,
            updated_at=now,
            labels=tuple(ensure_label(site, repo, name).name for name in labels),
            app_id=app_id,
        )
    )
    announce(site, issue, author, "opened")
    for name in issue.labels:
        _announce_label(site, issue, author, "labeled", name)
    return issue


def next_number(site: Site, repo: Repo) -> int:
    """The next number of an issue, pull request or discussion."""
    numbers = [issue.number for issue in site.store.issues_of(repo)]
    return max((*numbers, *(discussion.number for discussion in site.store.discussions_of(repo))), default=0) + 1


def comment(site: Site, issue: Issue, author: User, body: str, *, app_id: int | None = None) -> Comment:
    """Add a comment to a thread."""
    now = site.now()
    added = site.store.comments.put(
        Comment(
            id=site.store.new_id(),
            repo_id=issue.repo_id,
            number=issue.number,
            author_id=author.id,
            body=body,
            created_at=now,
            updated_at=now,
            app_id=app_id,
        )
    )
    touched = site.store.issues.put(replace(issue, updated_at=now))
    _announce_comment(site, touched, added, author, action="created")
    return added


def edit_comment(site: Site, old: Comment, editor: User, body: str) -> Comment:
    """Change a comment's text."""
    new = site.store.comments.put(replace(old, body=body, updated_at=site.now(), editor_id=editor.id))
    changes: Json = {"changes": {"body": {"from": old.body}}}
    _announce_comment(site, site.store.thread_of(old), new, editor, action="edited", more=changes)
    return new


def delete_comment(site: Site, old: Comment, sender: User) -> None:
    """Remove a comment."""
    thread = site.store.thread_of(old)
    site.store.comments.remove(old.id)
    _announce_comment(site, thread, old, sender, action="deleted")


def ensure_label(site: Site, repo: Repo, name: str, color: str = DEFAULT_COLOR, description: str = "") -> Label:
    """The repository's label of this name, made if need be."""
    key = (repo.id, name.lower())
    if key not in site.store.labels:
        site.store.labels[key] = Label(id=site.store.new_id(), name=name, color=color, description=description)
    return site.store.labels[key]


def change_label(site: Site, repo: Repo, old: Label, new: Label | None) -> None:
    """Give a label another name, colour or description, or remove it: also on the threads that have it."""
    del site.store.labels[repo.id, old.name.lower()]
    if new is not None:
        site.store.labels[repo.id, new.name.lower()] = new
    for issue in site.store.issues_of(repo):
        if old.name in issue.labels:
            names = (new.name if new and name == old.name else name for name in issue.labels)
            kept = tuple(name for name in names if new or name != old.name)
            site.store.issues.put(replace(issue, labels=kept))


def set_labels(site: Site, issue: Issue, sender: User, names: Iterable[str]) -> Issue:
    """Give a thread exactly these labels; one event for each that came or went."""
    repo = site.store.repos[issue.repo_id]
    wanted = tuple(dict.fromkeys(ensure_label(site, repo, name).name for name in names))
    came = [name for name in wanted if name not in issue.labels]
    went = [name for name in issue.labels if name not in wanted]
    issue = site.store.issues.put(replace(issue, labels=wanted, updated_at=site.now()))
    for action, changed in (("unlabeled", went), ("labeled", came)):
        for name in changed:
            _announce_label(site, issue, sender, action, name)
    return issue


def set_assignees(site: Site, issue: Issue, sender: User, users: Iterable[User]) -> Issue:
    """Assign a thread to exactly these people; one event for each that came or went."""
    wanted = tuple(dict.fromkeys(user.id for user in users))
    came = [number for number in wanted if number not in issue.assignees]
    went = [number for number in issue.assignees if number not in wanted]
    issue = site.store.issues.put(replace(issue, assignees=wanted, updated_at=site.now()))
    for action, changed in (("unassigned", went), ("assigned", came)):
        for number in changed:
            record_event(site, issue, sender, action, assignee_id=number)
            announce(site, issue, sender, action, {"assignee": account_views.user_by_id(site, number)})
    return issue


def add_milestone(site: Site, repo: Repo, creator: User, title: str) -> Milestone:
    """Keep a new milestone; nothing is announced yet."""
    now = site.now()
    return site.store.milestones.put(
        Milestone(
            id=site.store.new_id(),
            repo_id=repo.id,
            number=max((each.number for each in site.store.milestones_of(repo)), default=0) + 1,
            title=title,
            description=None,
            creator_id=creator.id,
            created_at=now,
            updated_at=now,
        )
    )


def set_milestone(site: Site, issue: Issue, sender: User, milestone: Milestone | None) -> Issue:
    """Put a thread under a milestone, or under none; one event for each that came or went."""
    old = None if issue.milestone_id is None else site.store.milestones[issue.milestone_id]
    if old == milestone:
        return issue
    number = None if milestone is None else milestone.id
    issue = site.store.issues.put(replace(issue, milestone_id=number, updated_at=site.now()))
    for action, changed in (("demilestoned", old), ("milestoned", milestone)):
        if changed is not None:
            record_event(site, issue, sender, action, milestone=changed.title)
            shown = account_views.milestone(site, site.store.repos[issue.repo_id], changed)
            announce(site, issue, sender, action, {"milestone": shown})
    return issue


def set_state(
    site: Site,
    issue: Issue,
    sender: User,
    state: Literal["open", "closed"],
    reason: str | None = None,
    *,
    duplicate_of: int | None = None,
) -> Issue:
    """Close or reopen a thread; nothing happens when it already is."""
    if issue.state == state:
        return issue
    now = site.now()
    closed = state == "closed"
    issue = site.store.issues.put(
        replace(
            issue,
            state=state,
            state_reason=None if issue.pull else ((reason or "completed") if closed else "reopened"),
            closed_at=now if closed else None,
            closed_by=sender.id if closed else None,
            duplicate_of=duplicate_of if closed else None,
            updated_at=now,
        )
    )
    action = "closed" if closed else "reopened"
    record_event(site, issue, sender, action)
    announce(site, issue, sender, action)
    return issue


def set_locked(site: Site, issue: Issue, sender: User, *, locked: bool, reason: str | None = None) -> Issue:
    """Lock or unlock a thread's conversation; nothing happens when it already is."""
    if issue.locked == locked:
        return issue
    action = "locked" if locked else "unlocked"
    issue = site.store.issues.put(replace(issue, locked=locked, lock_reason=reason, updated_at=site.now()))
    record_event(site, issue, sender, action)
    announce(site, issue, sender, action)
    return issue


def retitle(site: Site, old: Issue, sender: User, title: str, body: str | None) -> Issue:
    """Change a thread's title and text; nothing happens when they are the same."""
    changes: Json = {}
    if title != old.title:
        changes["title"] = {"from": old.title}
    if body != old.body:
        changes["body"] = {"from": old.body or ""}
    if not changes:
        return old
    now = site.now()
    edited_at = now if "body" in changes else old.body_edited_at
    new = site.store.issues.put(replace(old, title=title, body=body, updated_at=now, body_edited_at=edited_at))
    if "title" in changes:
        record_event(site, new, sender, "renamed", renamed=(old.title, title))
    announce(site, new, sender, "edited", {"changes": changes})
    return new


def react(site: Site, subject: Issue | Comment | ReviewComment, user: User, content: str) -> tuple[Reaction, bool]:
    """React once; the second value says whether the reaction is new."""
    for given in site.store.reactions_to(subject):
        if (given.user_id, given.content) == (user.id, content):
            return given, False
    new = Reaction(
        id=site.store.new_id(),
        kind=reaction_kind(subject),
        subject_id=subject.id,
        user_id=user.id,
        content=content,
        created_at=site.now(),
    )
    return site.store.reactions.put(new), True


def write_commit(site: Site, repo: Repo, *, tree: str, parents: Iterable[str], message: str, author: User) -> str:
    """Make a commit in an account's name; GitHub is the committer, and signs for Apps."""
    now = site.now()
    name = author.login if author.type == "Bot" else (author.name or author.login)
    sha = git.write_commit(
        repo.path,
        tree=tree,
        parents=parents,
        message=message,
        author=git.Person(name=name, email=author.email, date=now),
        committer=git.Person(name="GitHub", email="noreply@github.com", date=now),
    )
    site.store.signed.add(sha)
    return sha


def require_user(site: Site, login: str) -> User:
    """The account with this login.

    Raises:
        HubError: 422, there is none.
    """
    found = site.store.user(login)
    if found is None:
        raise HubError(422, f"There is no user {login} here.")
    return found


def announce(site: Site, issue: Issue, sender: User, action: str, more: Json | None = None) -> None:
    """Send an `issues` or a `pull_request` event."""
    repo = site.store.repos[issue.repo_id]
    if issue.pull is None:
        about_issue: Json = {"action": action, "issue": threads_views.issue(site, repo, issue)}
        webhooks.emit(site, "issues", repo, sender, about_issue | (more or {}))
        return
    payload: Json = {
        "action": action,
        "number": issue.number,
        "pull_request": threads_views.pull(site, repo, issue),
    }
    webhooks.emit(site, "pull_request", repo, sender, payload | (more or {}))


def record_event(
    site: Site,
    issue: Issue,
    actor: User,
    event: str,
    *,
    label: Label | None = None,
    assignee_id: int | None = None,
    renamed: tuple[str, str] | None = None,
    milestone: str | None = None,
) -> None:
    """Add to a thread's history."""
    site.store.history.put(
        IssueEvent(
            id=site.store.new_id(),
            repo_id=issue.repo_id,
            number=issue.number,
            event=event,
            actor_id=actor.id,
            created_at=site.now(),
            label=label,
            assignee_id=assignee_id,
            renamed=renamed,
            milestone=milestone,
        )
    )


def _announce_label(site: Site, issue: Issue, sender: User, action: str, name: str) -> None:
    label = site.store.labels[issue.repo_id, name.lower()]
    record_event(site, issue, sender, action, label=label)
    announce(site, issue, sender, action, {"label": account_views.label(site, site.store.repos[issue.repo_id], label)})


def _announce_comment(
    site: Site, issue: Issue, value: Comment, sender: User, *, action: str, more: Json | None = None
) -> None:
    repo = site.store.repos[value.repo_id]
    payload = {
        "action": action,
        "issue": threads_views.issue(site, repo, issue),
        "comment": threads_views.comment(site, repo, value),
    }
    webhooks.emit(site, "issue_comment", repo, sender, payload | (more or {}))


def mentioned(site: Site, issue: Issue) -> set[str]:
    """The logins that a thread's words mention, in lower case."""
    said = [issue.body or "", *(comment.body for comment in site.store.comments_of(issue))]
    return {login.lower() for text in said for login in _MENTION.findall(text)}


def search(site: Site, viewer: Viewer, query: str) -> list[Issue]:
    """The readable issues and pull requests that match a query, newest first.

    A `-` negates a qualifier.

    Raises:
        HubError: 422, the query is empty or has an unknown qualifier.
    """
    if not query.strip():
        raise invalid("Search", "q", "missing")
    me = viewer.user.login if viewer.user else "@me"
    terms = [term.replace('"', "").replace(":@me", f":{me}") for term in _TERM.findall(query)]
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


Qualifier: TypeAlias = Callable[[Site, Repo, Issue, str], bool]


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


def _is_login(site: Site, number: int, login: str) -> bool:
    return site.store.users[number].login.lower() == login.lower()


_QUALIFIERS: Mapping[str, Qualifier] = {
    "is": _is,
    "type": _is,
    "state": _is,
    "repo": lambda _site, repo, _issue, value: repo.full_name.lower() == value.lower(),
    "user": lambda _site, repo, _issue, value: repo.owner.lower() == value.lower(),
    "org": lambda _site, repo, _issue, value: repo.owner.lower() == value.lower(),
    "author": lambda site, _repo, issue, value: _is_login(site, issue.author_id, value),
    "assignee": lambda site, _repo, issue, value: any(_is_login(site, each, value) for each in issue.assignees),
    "label": lambda _site, _repo, issue, value: value.lower() in {name.lower() for name in issue.labels},
    "head": lambda _site, _repo, issue, value: issue.pull is not None and issue.pull.head_ref == value,
    "base": lambda _site, _repo, issue, value: issue.pull is not None and issue.pull.base_ref == value,
    "milestone": lambda site, _repo, issue, value: (
        issue.milestone_id is not None and site.store.milestones[issue.milestone_id].title.lower() == value.lower()
    ),
    "mentions": lambda site, _repo, issue, value: value.lower() in mentioned(site, issue),
    "review-requested": lambda site, _repo, issue, value: (
        issue.pull is not None and any(_is_login(site, each, value) for each in issue.pull.reviewers)
    ),
    "no": lambda _site, _repo, issue, value: not {"label": issue.labels, "assignee": issue.assignees}.get(value, ()),
}
