"""Issues, pull requests, discussions and check runs: their pages, and the forms that change them.

The last part of the module makes the entries of a thread's page (`timeline`) and the conversations on lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlencode

from localhub.api.auth import HubError, may, not_found, or_404, role_of
from localhub.api.routing import check_length
from localhub.git import diff as git_diff
from localhub.git.diff import Row, rows
from localhub.operations import branches, checks, threads
from localhub.operations import pulls as pull_requests
from localhub.operations.pulls import NewComment, UnplacedError
from localhub.pages.view import Page, PageVisit, actor, digits, plain, render
from localhub.state.model import (
    CheckRun,
    Comment,
    Issue,
    IssueEvent,
    Pull,
    PullRequestReview,
    ReviewComment,
    ReviewState,
    Side,
)
from localhub.state.store import Store
from localhub.views import threads as threads_views

SHOWN_ROWS = 6
"""Lines of the difference above a comment."""

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


def discussions(visit: PageVisit) -> Page:
    """The discussions of a repository."""
    found = visit.site.store.discussions_of(visit.repo)[::-1]
    return render(visit, "discussions.html", {"title": "Discussions", "repo": visit.repo, "discussions": found})


def discussion(visit: PageVisit) -> Page:
    """A discussion with its comments."""
    rows = visit.site.store.discussions_of(visit.repo)
    found = or_404(next((each for each in rows if each.number == visit.number), None))
    values = {"title": f"{found.title} · #{found.number}", "repo": visit.repo, "discussion": found}
    return render(visit, "discussion.html", values)


def conversation(visit: PageVisit) -> Page:
    """A thread with its comments."""
    issue, site = visit.thread, visit.site
    wanted = threads_views.thread_page(site, visit.repo, issue).removeprefix(site.url)
    if visit.path != wanted:
        return Page(location=f"{wanted}?{urlencode(visit.query)}" if visit.query else wanted)
    return _thread_page(visit, issue, "conversation.html", entries=timeline(site.store, issue))


def _thread_page(visit: PageVisit, issue: Issue, template: str, **values: object) -> Page:
    pull, repo, store, person = issue.pull, visit.repo, visit.site.store, visit.session.user
    runs = [run for run in store.check_runs if pull is not None and run.head_sha == pull.head_sha]
    return render(
        visit,
        template,
        {
            "title": f"{issue.title} · #{issue.number}",
            "repo": repo,
            "issue": issue,
            "writes": person is not None and may(role_of(visit.site, repo, person), "write"),
            "pull": pull,
            "runs": [run for run in runs if run.repo_id == repo.id],
            "labels": [label for (repo_id, _), label in store.labels.items() if repo_id == repo.id],
            **values,
        },
    )


def pull_commits(visit: PageVisit) -> Page:
    """The commits of a pull request."""
    issue, _ = _pull_of(visit)
    commits = threads_views.pull_commits(visit.repo, issue)
    return _thread_page(visit, issue, "pull_commits.html", commits=commits)


def pull_files(visit: PageVisit) -> Page:
    """The changed files of a pull request."""
    issue, pull = _pull_of(visit)
    found = git_diff.pull_files(visit.repo.path, pull)
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
    return plain(git_diff.unified(visit.repo.path, git_diff.pull_base(visit.repo.path, pull), pull.head_sha))


def patch(visit: PageVisit) -> Page:
    """The commits as text."""
    _, pull = _pull_of(visit)
    return plain(git_diff.mailbox(visit.repo.path, f"{pull.base_sha}..{pull.head_sha}"))


def _pull_of(visit: PageVisit) -> tuple[Issue, Pull]:
    issue = visit.thread
    return issue, or_404(issue.pull)


def new_issue(visit: PageVisit) -> Page:
    """The form for an issue."""
    return render(visit, "new_issue.html", {"title": "New issue", "repo": visit.repo})


def open_issue(visit: PageVisit) -> Page:
    """Take the form for an issue."""
    title, body = _required_text(visit, "title"), visit.form.get("body", "")
    check_length(body, "Page", "body")
    issue = threads.open_issue(visit.site, visit.repo, actor(visit), title=title, body=body)
    return Page(location=threads_views.thread_page(visit.site, visit.repo, issue))


def new_pull(visit: PageVisit) -> Page:
    """The form for a pull request from a branch."""
    repo = visit.repo
    values = {"title": "New pull request", "repo": repo, "branches": sorted(branches.heads_of(repo))}
    return render(visit, "new_pull.html", values)


def open_pull(visit: PageVisit) -> Page:
    """Take the form for a pull request."""
    title, body = _required_text(visit, "title"), visit.form.get("body", "")
    check_length(body, "Page", "body")
    head, base = visit.form.get("head", ""), visit.form.get("base", "") or visit.repo.default_branch
    wanted = pull_requests.NewPull(head=head, base=base, title=title, body=body, draft="draft" in visit.form)
    issue = pull_requests.open_pull(visit.site, visit.repo, actor(visit), wanted)
    return Page(location=threads_views.thread_page(visit.site, visit.repo, issue))


def comment(visit: PageVisit) -> Page:
    """Take a comment; `close` and `reopen` change the state besides."""
    issue, user, site = visit.thread, actor(visit), visit.site
    verb = visit.form.get("verb", "comment")
    if verb == "comment" or visit.form.get("body", "").strip():
        threads.comment(site, issue, user, _required_text(visit, "body"))
    if verb in {"close", "reopen"}:
        state: Literal["open", "closed"] = "closed" if verb == "close" else "open"
        threads.set_state(site, visit.thread, user, state)
    return Page(location=f"{threads_views.thread_page(site, visit.repo, issue)}#comment")


def edit(visit: PageVisit) -> Page:
    """Take the new text of a comment, of a comment on a line, or of the description."""
    site, issue, body = visit.site, visit.thread, visit.form.get("body", "").strip()
    check_length(body, "Page", "body")
    kind, _, given = visit.form.get("subject", "").rpartition("-")
    number, store = digits(given) or 0, site.store
    found: Issue | Comment | ReviewComment | None = store.issues.get(number) if kind == "issue" else None
    found = store.comments.get(number) if kind == "issuecomment" else found
    found = store.review_comments.get(number) if kind == "discussion" else found
    if found is None or (found.repo_id, found.number) != (visit.repo.id, issue.number):
        raise not_found()
    user = actor(visit, "read" if visit.session.user and visit.session.user.id == found.author_id else "write")
    if not body and not isinstance(found, Issue):
        raise HubError(422, "Please write something.")
    if isinstance(found, Issue):
        threads.retitle(site, found, user, found.title, body)
    elif isinstance(found, ReviewComment) and body != found.body:
        pull_requests.edit_review_comment(site, found, user, body)
    elif isinstance(found, Comment) and body != found.body:
        threads.edit_comment(site, found, user, body)
    return Page(location=threads_views.thread_page(site, visit.repo, issue))


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


def merge(visit: PageVisit) -> Page:
    """Merge a pull request."""
    issue, _ = _pull_of(visit)
    pull_requests.merge(visit.site, issue, actor(visit, "write"))
    return Page(location=threads_views.thread_page(visit.site, visit.repo, issue))


def submit_review(visit: PageVisit) -> Page:
    """Take a review: a comment, an approval, or a request for changes."""
    states: dict[str, ReviewState] = {
        "comment": "COMMENTED",
        "approve": "APPROVED",
        "request_changes": "CHANGES_REQUESTED",
    }
    state, body = states.get(visit.form.get("verdict", "")), _text(visit)
    if state is None:
        raise HubError(422, "Choose what the review says: comment, approve, or request changes.")
    if not body and state != "APPROVED":
        raise HubError(422, "Please write something: only an approval needs no words.")
    pull_requests.submit_review(visit.site, visit.thread, actor(visit), state=state, body=body)
    return Page(location=visit.path.removesuffix("/reviews"))


def comment_on_line(visit: PageVisit) -> Page:
    """Take a comment on a line, or on several."""
    given, side = visit.form.get("start_line", ""), visit.form.get("side", "RIGHT")
    line, first = digits(visit.form.get("line", "")), digits(given)
    body = _text(visit)
    if not body:
        raise HubError(422, "Please write something.")
    if line is None or (given and first is None) or side not in get_args(Side):
        raise HubError(422, "A comment needs the number of a line.")
    wanted = NewComment(
        path=visit.form.get("path", ""),
        body=body,
        line=line,
        side="LEFT" if side == "LEFT" else "RIGHT",
        start_line=first if first is not None and first < line else None,
    )
    try:
        pull_requests.submit_review(
            visit.site, visit.thread, actor(visit), state="COMMENTED", body="", comments=[wanted]
        )
    except UnplacedError as error:
        raise HubError(422, f"The difference does not show this {error.field.replace('_', ' ')}.") from error
    return Page(location=visit.path)


def reply(visit: PageVisit) -> Page:
    """Take an answer to a comment on a line."""
    number, body, issue = digits(visit.form.get("to", "")), _text(visit), visit.thread
    parent = None if number is None else visit.site.store.review_comments.get(number)
    if parent is None or (parent.repo_id, parent.number) != (visit.repo.id, issue.number):
        raise not_found()
    if not body:
        raise HubError(422, "Please write something.")
    made = pull_requests.reply(visit.site, issue, actor(visit), parent, body)
    return Page(location=f"{visit.path.removesuffix('/replies')}#discussion_r{made.id}")


def _required_text(visit: PageVisit, name: str) -> str:
    value = _text(visit, name)
    if not value:
        raise HubError(422, f"Please write something: {name} is empty.")
    return value


def _text(visit: PageVisit, name: str = "body") -> str:
    value = visit.form.get(name, "").strip()
    check_length(value, "Page", name)
    return value


def check_run(visit: PageVisit) -> Page:
    """One check run."""
    run, repo = _run_of(visit), visit.repo
    return render(visit, "run.html", {"title": run.name, "repo": repo, "run": run})


def press(visit: PageVisit) -> Page:
    """Take the press of a button: one of the App's own, or the one that runs the check again."""
    run, user = _run_of(visit), actor(visit, "write")
    if "rerun" in visit.form:
        checks.rerun_check_run(visit.site, run, user)
    else:
        checks.press_button(visit.site, run, user, visit.form.get("identifier", ""))
    return Page(location=visit.path.removesuffix("/actions"))


def _run_of(visit: PageVisit) -> CheckRun:
    run = visit.site.store.check_runs.get(visit.number)
    if run is None or run.repo_id != visit.repo.id:
        raise not_found()
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class LineConversation:
    """A comment on a line and the answers to it.

    Attributes:
        rows: the end of the difference that the comment is about.
        replaced: the lines that a suggestion would take away.
    """

    first: ReviewComment
    replies: tuple[ReviewComment, ...]
    rows: tuple[Row, ...]
    replaced: tuple[str, ...]

    @property
    def comments(self) -> tuple[ReviewComment, ...]:
        """All of them, oldest first."""
        return (self.first, *self.replies)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEntry:
    """A review with the conversations that it began."""

    review: PullRequestReview
    conversations: tuple[LineConversation, ...]


Entry: TypeAlias = Comment | ReviewEntry | IssueEvent


def timeline(store: Store, issue: Issue) -> list[Entry]:
    """Comments, reviews and events; a review that only answers elsewhere is left out."""
    began: dict[int, list[LineConversation]] = {}
    for each in conversations(store, issue):
        began.setdefault(each.first.review_id, []).append(each)
    reviewed = [ReviewEntry(review=r, conversations=tuple(began.get(r.id, ()))) for r in store.reviews_of(issue)]
    shown = [r for r in reviewed if r.review.body or r.conversations or r.review.state != "COMMENTED"]
    entries: list[Entry] = [*store.comments_of(issue), *shown, *store.history_of(issue)]
    return sorted(entries, key=_moment)


def conversations(store: Store, issue: Issue) -> list[LineConversation]:
    """The conversations on a pull request's lines, in the order in which they began."""
    said = store.review_comments_of(issue)
    return [_conversation(first, said) for first in said if first.in_reply_to is None]


def _conversation(first: ReviewComment, comments: Sequence[ReviewComment]) -> LineConversation:
    found = rows(first.diff_hunk)
    wanted = () if first.line is None else range(first.start_line or first.line, first.line + 1)
    return LineConversation(
        first=first,
        replies=tuple(comment for comment in comments if comment.in_reply_to == first.id),
        rows=tuple(found[-SHOWN_ROWS:]),
        replaced=tuple(row.text for row in found if row.new in wanted),
    )


def _moment(entry: Entry) -> tuple[datetime, int]:
    if isinstance(entry, ReviewEntry):
        return entry.review.submitted_at, entry.review.id
    return entry.created_at, entry.id
