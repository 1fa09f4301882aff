"""Issues and pull requests: lists, conversations, changed files; commenting, opening, merging."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

from localhub.api.errors import HubError, not_found
from localhub.api.routing import check_length
from localhub.git import diff as git_diff
from localhub.git.rows import rows
from localhub.operations import branches, threads
from localhub.operations import pulls as pull_requests
from localhub.pages.conversation import LineConversation, conversations, timeline
from localhub.pages.people import actor
from localhub.pages.view import Page, PageVisit, plain, render
from localhub.state.model import Issue, Pull
from localhub.views import threads as threads_views

_LONGEST_LABEL = 50
"""Characters that GitHub lets a label have."""


def issues(visit: PageVisit) -> Page:
    """The issues of a repository."""
    return _list(visit, "issues")


def pulls(visit: PageVisit) -> Page:
    """The pull requests of a repository."""
    return _list(visit, "pulls")


def _list(visit: PageVisit, kind: Literal["issues", "pulls"]) -> Page:
    state = "closed" if visit.query.get("state") == "closed" else "open"
    found = [issue for issue in visit.site.store.issues_of(visit.repo) if (issue.pull is None) == (kind == "issues")]
    return render(
        visit,
        "threads.html",
        {
            "title": "Issues" if kind == "issues" else "Pull requests",
            "repo": visit.repo,
            "kind": kind,
            "state": state,
            "counts": {name: sum(issue.state == name for issue in found) for name in ("open", "closed")},
            "threads": [issue for issue in reversed(found) if issue.state == state],
        },
    )


def new_issue(visit: PageVisit) -> Page:
    """The form for an issue."""
    return render(visit, "new_issue.html", {"title": "New issue", "repo": visit.repo})


def new_pull(visit: PageVisit) -> Page:
    """The form for a pull request from a branch."""
    repo = visit.repo
    values = {"title": "New pull request", "repo": repo, "branches": sorted(branches.heads_of(repo))}
    return render(visit, "new_pull.html", values)


def open_pull(visit: PageVisit) -> Page:
    """Take the form for a pull request."""
    title, body = _text(visit, "title"), visit.form.get("body", "")
    check_length(body, "Page", "body")
    head, base = visit.form.get("head", ""), visit.form.get("base", "") or visit.repo.default_branch
    wanted = pull_requests.NewPull(head=head, base=base, title=title, body=body, draft="draft" in visit.form)
    issue = pull_requests.open_pull(visit.site, visit.repo, actor(visit), wanted)
    return Page(location=threads_views.thread_page(visit.site, visit.repo, issue))


def set_labels(visit: PageVisit) -> Page:
    """Take the labels of a thread: those that are ticked, and a new one."""
    known = [label.name for (repo_id, _), label in visit.site.store.labels.items() if repo_id == visit.repo.id]
    names = [name for name in known if f"label:{name}" in visit.form]
    added = visit.form.get("new", "").strip()
    if added:
        if len(added) > _LONGEST_LABEL or not added.isprintable():
            raise HubError(422, f"A label has at most {_LONGEST_LABEL} characters, on one line.")
        names.append(added)
    issue = threads.set_labels(visit.site, visit.thread, actor(visit, "triage"), names)
    return Page(location=threads_views.thread_page(visit.site, visit.repo, issue))


def _text(visit: PageVisit, name: str) -> str:
    value = visit.form.get(name, "").strip()
    if not value:
        raise HubError(422, f"Please write something: {name} is empty.")
    check_length(value, "Page", name)
    return value


def open_issue(visit: PageVisit) -> Page:
    """Take the form for an issue."""
    title, body = _text(visit, "title"), visit.form.get("body", "")
    check_length(body, "Page", "body")
    issue = threads.open_issue(visit.site, visit.repo, actor(visit), title=title, body=body)
    return Page(location=threads_views.thread_page(visit.site, visit.repo, issue))


def comment(visit: PageVisit) -> Page:
    """Take a comment; `close` and `reopen` change the state besides."""
    issue, user, site = visit.thread, actor(visit), visit.site
    verb = visit.form.get("verb", "comment")
    if verb == "comment" or visit.form.get("body", "").strip():
        threads.comment(site, issue, user, _text(visit, "body"))
    if verb in {"close", "reopen"}:
        state: Literal["open", "closed"] = "closed" if verb == "close" else "open"
        threads.set_state(site, visit.thread, user, state)
    return Page(location=f"{threads_views.thread_page(site, visit.repo, issue)}#comment")


def conversation(visit: PageVisit) -> Page:
    """A thread with its comments."""
    issue, site = visit.thread, visit.site
    wanted = threads_views.thread_page(site, visit.repo, issue).removeprefix(site.url)
    if visit.path != wanted:
        return Page(location=f"{wanted}?{urlencode(visit.query)}" if visit.query else wanted)
    return _thread_page(visit, issue, "conversation.html", entries=timeline(site.store, issue))


def _thread_page(visit: PageVisit, issue: Issue, template: str, **values: object) -> Page:
    pull, repo, store = issue.pull, visit.repo, visit.site.store
    runs = [run for run in store.check_runs if pull is not None and run.head_sha == pull.head_sha]
    return render(
        visit,
        template,
        {
            "title": f"{issue.title} · #{issue.number}",
            "repo": repo,
            "issue": issue,
            "pull": pull,
            "runs": [run for run in runs if run.repo_id == repo.id],
            "labels": [label for (repo_id, _), label in store.labels.items() if repo_id == repo.id],
            **values,
        },
    )


def _pull_of(visit: PageVisit) -> tuple[Issue, Pull]:
    issue = visit.thread
    if issue.pull is None:
        raise not_found()
    return issue, issue.pull


def pull_commits(visit: PageVisit) -> Page:
    """The commits of a pull request."""
    issue, _ = _pull_of(visit)
    commits = threads_views.pull_commits(visit.repo, issue)
    return _thread_page(visit, issue, "pull_commits.html", commits=commits)


def pull_files(visit: PageVisit) -> Page:
    """The changed files of a pull request."""
    issue, pull = _pull_of(visit)
    found = git_diff.of_pull(visit.repo.path, pull)
    said: dict[tuple[str, int], list[LineConversation]] = {}
    for each in conversations(visit.site.store, issue):
        if each.first.commit_sha == pull.head_sha:
            said.setdefault((each.first.path, each.first.position), []).append(each)
    files = [(file, rows(file.patch or "")) for file in found]
    chosen = {name: visit.query.get(name, "") for name in ("path", "line", "side", "body")}
    return _thread_page(visit, issue, "pull_files.html", files=files, said=said, chosen=chosen)


def diff(visit: PageVisit) -> Page:
    """The difference as text."""
    _, pull = _pull_of(visit)
    return plain(git_diff.unified(visit.repo.path, git_diff.parted(visit.repo.path, pull), pull.head_sha))


def patch(visit: PageVisit) -> Page:
    """The commits as text."""
    _, pull = _pull_of(visit)
    return plain(git_diff.mailbox(visit.repo.path, f"{pull.base_sha}..{pull.head_sha}"))


def merge(visit: PageVisit) -> Page:
    """Merge a pull request."""
    issue, _ = _pull_of(visit)
    pull_requests.merge(visit.site, issue, actor(visit, "write"))
    return Page(location=threads_views.thread_page(visit.site, visit.repo, issue))
