"""A GitHub in memory that sends the App its webhook's events: what people and the bot do becomes a payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

from localhub import EndedJob
from localhub.operations.pulls import NewComment
from tests.fakes.site import (
    FakeApp,
    FakeCheck,
    FakeComment,
    FakeLineComment,
    FakeRepo,
    FakeReview,
    FakeRun,
    FakeSite,
    FakeThread,
    FakeUser,
)

Payload = dict[str, Any]
INSTALLATION = 30


@dataclass(slots=True, kw_only=True)
class FakeDelivery:
    """An event that the App is sent.

    Attributes:
        answer: of the bot; empty until it is delivered.
        subject: id of the comment or check run.
    """

    guid: str
    event: str
    action: str
    payload: Payload
    subject: int = 0
    answer: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FakeHub(FakeSite):
    """A site with deliveries.

    Attributes:
        deliveries: all of them, oldest first.
        is_connected: whether events reach the App; otherwise they are lost.
    """

    deliveries: list[FakeDelivery] = field(default_factory=list)
    is_connected: bool = True
    _actors: dict[int, FakeUser] = field(default_factory=dict, repr=False)
    _triggers: dict[int, FakeUser] = field(default_factory=dict, repr=False)

    def send(self, event: str, action: str, repo: FakeRepo | None, sender: FakeUser, **parts: Any) -> None:  # noqa: ANN401
        """Send an event of a repository, or with None of the installation."""
        payload: Payload = {"action": action, "sender": _account(sender), "installation": {"id": INSTALLATION}, **parts}
        if repo is not None:
            payload["repository"] = _repository(repo)
        subject = parts.get("comment") or parts.get("check_run") or {}
        guid = f"00000000-0000-0000-0000-{len(self.deliveries) + 1:012d}"
        if self.is_connected and (repo is None or repo.installed):
            delivery = FakeDelivery(
                guid=guid, event=event, action=action, payload=payload, subject=subject.get("id", 0)
            )
            self.deliveries.append(delivery)

    def _send_thread(
        self,
        action: str,
        repo: FakeRepo,
        thread: FakeThread,
        by: FakeUser,
        **parts: Any,  # noqa: ANN401
    ) -> None:
        name = "issues" if thread.pull is None else "pull_request"
        key = "issue" if thread.pull is None else "pull_request"
        self.send(name, action, repo, by, **{key: self._thread(thread)}, **parts)

    def _thread(self, thread: FakeThread, *, as_issue: bool = False) -> Payload:
        now = _iso(self.now())
        facts: Payload = {
            "number": thread.number,
            "title": thread.title,
            "body": thread.body,
            "user": _account(self.users[thread.author_id]),
            "created_at": now,
            "updated_at": now,
        }
        if thread.pull is not None:
            pull, home = thread.pull, thread.pull.head_repo
            head = {"sha": pull.head_sha, "ref": pull.head_ref, "repo": None if home is None else {"id": home.id}}
            sides: Payload = {"head": head, "base": {"ref": pull.base_ref}}
            more: Payload = {"draft": pull.draft, "merged": pull.merged, **sides}
            facts |= {"pull_request": {}} if as_issue else more
        return facts

    @override
    def open_issue(
        self,
        repo: FakeRepo,
        *,
        author: str,
        title: str,
        body: str | None = None,
        labels: Any = (),
    ) -> FakeThread:
        thread = FakeSite.open_issue(self, repo, author=author, title=title, body=body, labels=labels)
        self._send_thread("opened", repo, thread, self.user(author))
        return thread

    @override
    def open_pull(self, repo: FakeRepo, *, author: str, **facts: Any) -> FakeThread:
        count = len(self.deliveries)
        thread = FakeSite.open_pull(self, repo, author=author, **facts)
        # A pull request begins as an issue here, of which GitHub tells nothing.
        del self.deliveries[count:]
        self._send_thread("opened", repo, thread, self.user(author))
        return thread

    @override
    def comment(self, repo: FakeRepo, number: int, *, author: str, body: str) -> FakeComment:
        comment = FakeSite.comment(self, repo, number, author=author, body=body)
        user = self.user(author)
        issue = self._thread(repo.threads[number], as_issue=True)
        self.send("issue_comment", "created", repo, user, issue=issue, comment=_comment(comment, user))
        return comment

    @override
    def review_comment(self, repo: FakeRepo, number: int, *, author: str, body: str, **place: Any) -> FakeLineComment:
        count = len(self.deliveries)
        comment = FakeSite.review_comment(self, repo, number, author=author, body=body, **place)
        del self.deliveries[count:]
        self._send_line_comment(repo, repo.threads[number], comment)
        return comment

    @override
    def review(
        self,
        repo: FakeRepo,
        number: int,
        *,
        author: str,
        body: str = "",
        state: str = "COMMENTED",
        comments: Sequence[NewComment] = (),
    ) -> FakeReview:
        review = FakeSite.review(self, repo, number, author=author, body=body, state=state, comments=comments)
        user, thread = self.user(author), repo.threads[number]
        facts = {"id": review.id, "submitted_at": _iso(review.submitted_at), "body": body, "user": _account(user)}
        self._send_thread_event("pull_request_review", "submitted", repo, thread, user, review=facts)
        if thread.pull is not None:
            for comment in thread.pull.line_comments[len(thread.pull.line_comments) - len(comments) :]:
                self._send_line_comment(repo, thread, comment)
        return review

    def _send_thread_event(
        self,
        event: str,
        action: str,
        repo: FakeRepo,
        thread: FakeThread,
        by: FakeUser,
        **parts: Any,  # noqa: ANN401
    ) -> None:
        self.send(event, action, repo, by, pull_request=self._thread(thread), **parts)

    def _send_line_comment(self, repo: FakeRepo, thread: FakeThread, comment: FakeLineComment) -> None:
        user = self.users[comment.author_id]
        facts = _comment(comment, user) | {
            "in_reply_to_id": None if comment.root == comment.id else comment.root,
            "path": comment.path,
            "line": comment.line,
            "start_line": comment.start_line,
            "side": comment.side,
            "diff_hunk": comment.hunk,
            "commit_id": comment.commit_sha,
            "original_commit_id": comment.commit_sha,
        }
        self._send_thread_event("pull_request_review_comment", "created", repo, thread, user, comment=facts)

    @override
    def label(self, repo: FakeRepo, number: int, *labels: str, by: str) -> None:
        thread = repo.threads[number]
        added = [label for label in labels if label not in thread.labels]
        FakeSite.label(self, repo, number, *labels, by=by)
        for label in added:
            self._send_thread("labeled", repo, thread, self.user(by), label={"name": label})

    def add_label(self, repo: FakeRepo, number: int, label: str, *, by: str) -> None:
        self.label(repo, number, *repo.threads[number].labels, label, by=by)

    def remove_label(self, repo: FakeRepo, number: int, label: str, *, by: str) -> None:
        self.label(repo, number, *(name for name in repo.threads[number].labels if name != label), by=by)

    def assign(self, repo: FakeRepo, number: int, *logins: str, by: str) -> None:
        for login in logins:
            thread = repo.threads[number]
            self._send_thread("assigned", repo, thread, self.user(by), assignee=_account(self.user(login)))

    @override
    def close(self, repo: FakeRepo, number: int, *, by: str) -> None:
        FakeSite.close(self, repo, number, by=by)
        self._send_thread("closed", repo, repo.threads[number], self.user(by))

    def reopen(self, repo: FakeRepo, number: int, *, by: str) -> None:
        repo.threads[number].state = "open"
        self._send_thread("reopened", repo, repo.threads[number], self.user(by))

    @override
    def lock(self, repo: FakeRepo, number: int) -> None:
        FakeSite.lock(self, repo, number)
        self._send_thread("locked", repo, repo.threads[number], self.user(repo.owner))

    def set_draft(self, repo: FakeRepo, number: int, *, draft: bool, by: str) -> None:
        thread = repo.threads[number]
        assert thread.pull is not None
        thread.pull.draft = draft
        self._send_thread("converted_to_draft" if draft else "ready_for_review", repo, thread, self.user(by))

    @override
    def edit_thread(
        self, repo: FakeRepo, number: int, *, by: str, title: str | None = None, body: str | None = None
    ) -> None:
        FakeSite.edit_thread(self, repo, number, by=by, title=title, body=body)
        self._send_thread("edited", repo, repo.threads[number], self.user(by))

    @override
    def move_branch(self, repo: FakeRepo, branch: str, sha: str | None) -> None:
        threads = [
            (home, thread, thread.pull.head_sha, thread.state)
            for home in self.repos.values()
            for thread in home.threads.values()
            if thread.pull is not None
        ]
        FakeSite.move_branch(self, repo, branch, sha)
        person = self.find_user(repo.commits[sha].author) if sha is not None else None
        by = person or self.add_user(repo.owner)
        for home, thread, head, state in threads:
            if thread.pull is not None and thread.pull.head_sha != head:
                self._send_thread("synchronize", home, thread, by, before=head, after=thread.pull.head_sha)
            if thread.state != state:
                self._send_thread("closed", home, thread, by)

    @override
    def merge(self, repo: FakeRepo, number: int, *, by: str) -> str:
        sha = FakeSite.merge(self, repo, number, by=by)
        self._send_thread("closed", repo, repo.threads[number], self.user(by))
        return sha

    def delete_branch(self, repo: FakeRepo, branch: str) -> None:
        self.move_branch(repo, branch, None)

    def press(self, check: FakeCheck, identifier: str, *, by: str) -> None:
        """Press a button of a check run of the App."""
        self._send_check("requested_action", check, by, requested_action={"identifier": identifier})

    def rerun(self, check: FakeCheck, *, by: str) -> None:
        self._send_check("rerequested", check, by)

    def _send_check(self, action: str, check: FakeCheck, by: str, **parts: Any) -> None:  # noqa: ANN401
        [repo] = [repo for repo in self.repos.values() if check.head_sha in repo.commits][:1]
        facts = {
            "id": check.id,
            "head_sha": check.head_sha,
            "external_id": check.external_id,
            "app": {"id": check.app_id},
        }
        self.send("check_run", action, repo, self.user(by), check_run=facts, **parts)

    @override
    def check(
        self,
        repo: FakeRepo,
        app: FakeApp,
        *,
        head_sha: str,
        name: str,
        conclusion: str,
        summary: str = "",
        annotations: Any = (),
    ) -> FakeCheck:
        check = FakeSite.check(
            self,
            repo,
            app,
            head_sha=head_sha,
            name=name,
            conclusion=conclusion,
            summary=summary,
            annotations=annotations,
        )
        facts = {
            "id": check.id,
            "name": name,
            "head_sha": head_sha,
            "conclusion": conclusion,
            "started_at": _iso(self.now()),
            "html_url": f"{self.url}/{repo.full_name}/runs/{check.id}",
            "app": {"id": app.id, "slug": app.slug},
            "check_suite": {"head_branch": _branch_at(repo, head_sha)},
            "pull_requests": _pulls_at(repo, head_sha),
        }
        self.send("check_run", "completed", repo, app.bot, check_run=facts)
        self._send_suite(repo, app, head_sha)
        return check

    def _send_suite(self, repo: FakeRepo, app: FakeApp, sha: str) -> None:
        """Send the event of an App's checks of a commit, all of which have ended."""
        conclusions = [check.conclusion for check in repo.checks if (check.app_id, check.head_sha) == (app.id, sha)]
        facts = {
            "id": app.id,
            "head_sha": sha,
            "head_branch": _branch_at(repo, sha),
            "conclusion": "failure" if "failure" in conclusions else conclusions[-1],
            "created_at": _iso(self.now()),
            "app": {"id": app.id, "slug": app.slug},
            "pull_requests": _pulls_at(repo, sha),
        }
        self.send("check_suite", "completed", repo, app.bot, check_suite=facts)

    @override
    def workflow_run(
        self,
        repo: FakeRepo,
        *,
        head_sha: str,
        head_branch: str,
        conclusion: str,
        actor: str = "",
        triggering_actor: str = "",
        head_repository: FakeRepo | None = None,
        workflow: str = "CI",
        path: str = ".github/workflows/ci.yml",
        event: str = "push",
        jobs: Sequence[EndedJob] = (),
    ) -> FakeRun:
        run = FakeSite.workflow_run(
            self,
            repo,
            head_sha=head_sha,
            head_branch=head_branch,
            conclusion=conclusion,
            actor=actor,
            head_repository=head_repository,
            workflow=workflow,
            path=path,
            event=event,
            jobs=jobs,
        )
        home = head_repository or repo
        person = self.user(actor) if actor else self.user(home.commits[head_sha].author)
        self._actors[run.id] = person
        self._send_run(repo, run, home, person, self.user(triggering_actor) if triggering_actor else person)
        return run

    @override
    def run_again(self, run: FakeRun, *, by: str) -> FakeRun:
        self._triggers[run.id] = self.user(by)
        return FakeSite.run_again(self, run, by=by)

    @override
    def end_attempt(self, run: FakeRun, *, conclusion: str, jobs: Sequence[EndedJob] = ()) -> FakeRun:
        FakeSite.end_attempt(self, run, conclusion=conclusion, jobs=jobs)
        [repo] = [repo for repo in self.repos.values() if run in repo.runs]
        home = self.repos[run.head_repo_id]
        actor = self._actors[run.id]
        self._send_run(repo, run, home, actor, self._triggers.get(run.id, actor))
        return run

    def _send_run(self, repo: FakeRepo, run: FakeRun, home: FakeRepo, actor: FakeUser, trigger: FakeUser) -> None:
        facts = {
            "id": run.id,
            "name": run.name,
            "html_url": f"{self.url}/{repo.full_name}/actions/runs/{run.id}",
            "run_attempt": run.attempt,
            "conclusion": run.conclusion,
            "created_at": _iso(run.created_at),
            "head_branch": run.head_branch,
            "head_sha": run.head_sha,
            "head_repository": {"id": home.id, "full_name": home.full_name},
            "actor": _account(actor),
            "triggering_actor": _account(trigger),
            "pull_requests": _pulls_at(repo, run.head_sha) if home is repo else [],
        }
        self.send("workflow_run", "completed", repo, trigger, workflow_run=facts)

    def install(self, _app: FakeApp, repo: FakeRepo) -> int:
        """Install the App on a repository; return the installation's id."""
        repo.installed = True
        return INSTALLATION

    def uninstall(self, _installation: int, *, by: str | None = None) -> None:
        self._remove("deleted", by)

    def suspend(self, _installation: int, *, by: str | None = None) -> None:
        self._remove("suspend", by)

    def _remove(self, action: str, by: str | None) -> None:
        self.send("installation", action, None, self._keeper(by))
        for repo in self.repos.values():
            repo.installed = False

    def take_out(self, _installation: int, repo: FakeRepo, *, by: str | None = None) -> None:
        """Remove a repository from the installation."""
        removed = [{"id": repo.id, "full_name": repo.full_name}]
        self.send("installation_repositories", "removed", None, self._keeper(by), repositories_removed=removed)
        repo.installed = False

    def _keeper(self, by: str | None) -> FakeUser:
        return self.user(by or next(iter(self.repos.values())).owner)


def _repository(repo: FakeRepo) -> Payload:
    return {
        "id": repo.id,
        "full_name": repo.full_name,
        "private": repo.private,
        "default_branch": repo.default_branch,
    }


def _account(user: FakeUser) -> Payload:
    return {"id": user.id, "login": user.login, "type": user.type}


def _comment(comment: FakeComment, user: FakeUser) -> Payload:
    return {"id": comment.id, "body": comment.body, "created_at": _iso(comment.created_at), "user": _account(user)}


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _branch_at(repo: FakeRepo, sha: str) -> str | None:
    return next((name for name, head in repo.branches.items() if head == sha), None)


def _pulls_at(repo: FakeRepo, sha: str) -> list[Payload]:
    return [
        {
            "number": thread.number,
            "head": {"ref": thread.pull.head_ref, "sha": sha, "repo": {"id": repo.id}},
            "base": {"ref": thread.pull.base_ref, "sha": thread.pull.base_sha, "repo": {"id": repo.id}},
        }
        for thread in repo.threads.values()
        if thread.pull is not None and thread.pull.head_sha == sha and thread.pull.head_repo is repo
    ]
