"""Actions in threads, each by a login: open, comment, label, review, react; and the threads as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from localhub.git import plumbing as git
from localhub.hub.accounts import AccountActions
from localhub.operations import checks, discussions, pulls, threads
from localhub.operations.pulls import NewComment
from localhub.server import downloads
from localhub.state.model import (
    ACTIONS_ID,
    CheckRun,
    Comment,
    Discussion,
    DiscussionCategory,
    DiscussionComment,
    Issue,
    IssueEvent,
    IssueField,
    IssueType,
    Milestone,
    PullRequestReview,
    Reaction,
    Repo,
    ReviewComment,
    ReviewState,
    Side,
)


class ThreadActions(AccountActions):
    """Issues, pull requests and their comments."""

    def open_issue(
        self, repo: Repo, *, author: str, title: str, body: str | None = None, labels: Iterable[str] = ()
    ) -> Issue:
        """Open an issue."""
        with self._site.lock:
            user = self._user(author)
            return threads.open_issue(self._site, self._now(repo), user, title=title, body=body, labels=labels)

    def open_pull(
        self,
        repo: Repo,
        *,
        author: str,
        head: str,
        title: str,
        base: str | None = None,
        body: str | None = None,
        draft: bool = False,
    ) -> Issue:
        """Open a pull request; `head` is a branch, or `owner:branch` in a fork."""
        with self._site.lock:
            now = self._now(repo)
            wanted = pulls.NewPull(head=head, base=base or now.default_branch, title=title, body=body, draft=draft)
            return pulls.open_pull(self._site, now, self._user(author), wanted)

    def set_draft(self, repo: Repo, number: int, *, draft: bool, by: str) -> Issue:
        """Say that a pull request is ready for review, or a draft again."""
        with self._site.lock:
            return pulls.set_draft(self._site, self.issue(repo, number), self._user(by), draft=draft)

    def merge(self, repo: Repo, number: int, *, by: str) -> str:
        """Merge a pull request; returns the new commit's SHA."""
        with self._site.lock:
            return pulls.merge(self._site, self.issue(repo, number), self._user(by))

    def comment(self, repo: Repo, number: int, *, author: str, body: str) -> Comment:
        """Comment in a thread, as the account with this login."""
        with self._site.lock:
            return threads.comment(self._site, self.issue(repo, number), self._user(author), body)

    def edit_comment(self, comment: Comment, *, by: str, body: str) -> Comment:
        """Change a comment."""
        with self._site.lock:
            return threads.edit_comment(self._site, comment, self._user(by), body)

    def delete_comment(self, comment: Comment, *, by: str) -> None:
        """Remove a comment."""
        with self._site.lock:
            threads.delete_comment(self._site, comment, self._user(by))

    def edit_thread(
        self, repo: Repo, number: int, *, by: str, title: str | None = None, body: str | None = None
    ) -> Issue:
        """Change a thread's title or text; None leaves it."""
        with self._site.lock:
            old = self.issue(repo, number)
            changed = (old.title if title is None else title, old.body if body is None else body)
            return threads.retitle(self._site, old, self._user(by), *changed)

    def label(self, repo: Repo, number: int, *labels: str, by: str) -> Issue:
        """Give a thread exactly these labels."""
        with self._site.lock:
            return threads.set_labels(self._site, self.issue(repo, number), self._user(by), labels)

    def add_label(self, repo: Repo, number: int, label: str, *, by: str) -> Issue:
        """Add a label to those that a thread has."""
        with self._site.lock:
            return self.label(repo, number, *self.issue(repo, number).labels, label, by=by)

    def remove_label(self, repo: Repo, number: int, label: str, *, by: str) -> Issue:
        """Take a label off a thread."""
        with self._site.lock:
            kept = [name for name in self.issue(repo, number).labels if name.lower() != label.lower()]
            return self.label(repo, number, *kept, by=by)

    def assign(self, repo: Repo, number: int, *logins: str, by: str) -> Issue:
        """Assign a thread to exactly these people; an App's bot account may be among them."""
        with self._site.lock:
            people = [self._user(login) for login in logins]
            return threads.set_assignees(self._site, self.issue(repo, number), self._user(by), people)

    def add_issue_type(self, owner: str, name: str) -> IssueType:
        """Add a type for the issues of an organisation."""
        with self._site.lock:
            store, now = self._site.store, self._site.now()
            return store.issue_types.put(IssueType(id=store.new_id(), owner=owner, name=name, created_at=now))

    def add_issue_field(
        self,
        owner: str,
        name: str,
        data_type: Literal["text", "date", "single_select", "multi_select", "number"] = "text",
        *,
        options: Sequence[str] = (),
    ) -> IssueField:
        """Add a field for the issues of an organisation; `options` are the values of a selection."""
        with self._site.lock:
            store, now = self._site.store, self._site.now()
            values = tuple((store.new_id(), option) for option in options)
            field = IssueField(
                id=store.new_id(), owner=owner, name=name, data_type=data_type, options=values, created_at=now
            )
            return store.issue_fields.put(field)

    def create_label(self, repo: Repo, name: str) -> None:
        """Add a label to those of a repository."""
        with self._site.lock:
            threads.ensure_label(self._site, repo, name)

    def set_issues(self, repo: Repo, *, enabled: bool) -> Repo:
        """Turn a repository's issues on or off."""
        with self._site.lock:
            return self._site.store.repos.put(replace(self._now(repo), has_issues=enabled))

    def sub_issues(self, repo: Repo, number: int) -> list[Issue]:
        """The sub-issues of an issue, oldest first."""
        with self._site.lock:
            return self._site.store.sub_issues_of(self.issue(repo, number))

    def add_category(self, repo: Repo, name: str) -> DiscussionCategory:
        """Add a category for discussions; the first one turns them on."""
        with self._site.lock:
            return discussions.add_category(self._site, repo, name)

    def open_discussion(self, repo: Repo, category: str, *, author: str, title: str, body: str = "Hello") -> Discussion:
        """Open a discussion."""
        with self._site.lock:
            found, user = discussions.add_category(self._site, repo, category), self._user(author)
            return discussions.open_discussion(self._site, self._now(repo), found, user, title=title, body=body)

    def comment_discussion(self, repo: Repo, number: int, *, author: str, body: str) -> DiscussionComment:
        """Comment on a discussion."""
        with self._site.lock:
            return discussions.comment(self._site, self._discussion(repo, number), self._user(author), body)

    def lock_discussion(self, repo: Repo, number: int, *, by: str) -> Discussion:
        """Lock a discussion: no comment is added any more."""
        with self._site.lock:
            return discussions.set_locked(self._site, self._discussion(repo, number), self._user(by), locked=True)

    def _discussion(self, repo: Repo, number: int) -> Discussion:
        return next(each for each in self._site.store.discussions_of(repo) if each.number == number)

    def discussions(self, repo: Repo) -> list[Discussion]:
        """A repository's discussions, oldest first."""
        with self._site.lock:
            return self._site.store.discussions_of(repo)

    def discussion_comments(self, repo: Repo, number: int) -> list[DiscussionComment]:
        """The comments on a discussion, oldest first."""
        with self._site.lock:
            return self._site.store.discussion_comments_of(self._discussion(repo, number))

    def close(self, repo: Repo, number: int, *, by: str) -> Issue:
        """Close a thread."""
        with self._site.lock:
            return threads.set_state(self._site, self.issue(repo, number), self._user(by), "closed")

    def reopen(self, repo: Repo, number: int, *, by: str) -> Issue:
        """Open a closed thread again."""
        with self._site.lock:
            return threads.set_state(self._site, self.issue(repo, number), self._user(by), "open")

    def lock(self, repo: Repo, number: int, *, by: str | None = None) -> Issue:
        """Lock a thread's conversation: only who may write goes on commenting."""
        with self._site.lock:
            user = self._user(by or self._now(repo).owner)
            return threads.set_locked(self._site, self.issue(repo, number), user, locked=True)

    def unlock(self, repo: Repo, number: int, *, by: str | None = None) -> Issue:
        """Unlock a thread's conversation."""
        with self._site.lock:
            user = self._user(by or self._now(repo).owner)
            return threads.set_locked(self._site, self.issue(repo, number), user, locked=False)

    def add_milestone(self, repo: Repo, title: str, *, author: str) -> Milestone:
        """Add a milestone; threads are put under it by the API."""
        with self._site.lock:
            return threads.add_milestone(self._site, self._now(repo), self._user(author), title)

    def attach(self, repo: Repo, content: bytes, *, author: str, media_type: str = "image/png") -> str:
        """Upload a picture as the page's text box does; its address, to be written into a text."""
        with self._site.lock:
            return downloads.attach(self._site, self._now(repo), self._user(author), content, media_type)

    def large_files(self, repo: Repo) -> dict[str, bytes]:
        """The objects that Git LFS keeps for a repository, by their ids."""
        files = git.large_objects(repo.path).rglob("*")
        return {file.name: file.read_bytes() for file in files if file.is_file()}

    def issue(self, repo: Repo, number: int) -> Issue:
        """An issue or pull request as it is now.

        Raises:
            LookupError: there is none.
        """
        with self._site.lock:
            found = self._site.store.issue(repo, number)
        if found is None:
            raise LookupError(f"{repo.full_name} has no issue or pull request #{number}")
        return found

    def issues(self, repo: Repo) -> list[Issue]:
        """All issues and pull requests, oldest first."""
        with self._site.lock:
            return self._site.store.issues_of(repo)

    def history(self, repo: Repo, number: int) -> list[IssueEvent]:
        """The events of a thread, without comments and reviews, oldest first."""
        with self._site.lock:
            return self._site.store.history_of(self.issue(repo, number))

    def comments(self, repo: Repo, number: int) -> list[Comment]:
        """A thread's comments, oldest first."""
        with self._site.lock:
            return self._site.store.comments_of(self.issue(repo, number))

    def review(
        self,
        repo: Repo,
        number: int,
        *,
        author: str,
        body: str = "",
        state: ReviewState = "COMMENTED",
        comments: Sequence[NewComment] = (),
    ) -> PullRequestReview:
        """Review a pull request.

        Raises:
            HubError: somebody approves their own work, or asks for changes to it.
            UnplacedError: a comment is about a line that the difference does not show.
        """
        with self._site.lock:
            issue, user = self.issue(repo, number), self._user(author)
            made, _ = pulls.submit_review(self._site, issue, user, state=state, body=body, comments=comments)
            return made

    def review_comment(
        self,
        repo: Repo,
        number: int,
        *,
        author: str,
        body: str,
        path: str = "",
        line: int = 0,
        side: Side = "RIGHT",
        start_line: int | None = None,
        in_reply_to: int | None = None,
    ) -> ReviewComment:
        """Comment on a line of a pull request's difference, or with `in_reply_to` answer such a comment by its id.

        Raises:
            UnplacedError: the difference does not show the line.
        """
        with self._site.lock:
            issue, user = self.issue(repo, number), self._user(author)
            if in_reply_to is not None:
                parent = self._site.store.review_comments[in_reply_to]
                return pulls.reply(self._site, issue, user, parent, body)
            wanted = NewComment(path=path, body=body, line=line, side=side, start_line=start_line)
            _, [made] = pulls.submit_review(self._site, issue, user, state="COMMENTED", body="", comments=[wanted])
            return made

    def edit_review_comment(self, comment: ReviewComment, *, by: str, body: str) -> ReviewComment:
        """Change a comment on a line."""
        with self._site.lock:
            return pulls.edit_review_comment(self._site, comment, self._user(by), body)

    def delete_review_comment(self, comment: ReviewComment, *, by: str) -> None:
        """Remove a comment on a line."""
        with self._site.lock:
            pulls.delete_review_comment(self._site, comment, self._user(by))

    def reviews(self, repo: Repo, number: int) -> list[PullRequestReview]:
        """A pull request's reviews, oldest first."""
        with self._site.lock:
            return self._site.store.reviews_of(self.issue(repo, number))

    def review_comments(self, repo: Repo, number: int) -> list[ReviewComment]:
        """A pull request's comments on lines, oldest first."""
        with self._site.lock:
            return self._site.store.review_comments_of(self.issue(repo, number))

    def reactions(self, subject: Issue | Comment | ReviewComment) -> list[Reaction]:
        """Reactions to an issue or comment, oldest first."""
        with self._site.lock:
            return self._site.store.reactions_to(subject)

    def check_runs(self, repo: Repo) -> list[CheckRun]:
        """All check runs, oldest first."""
        with self._site.lock:
            runs = [run for run in self._site.store.check_runs if run.repo_id == repo.id]
            return [run for run in runs if run.app_id != ACTIONS_ID]

    def press(self, run: CheckRun, identifier: str, *, by: str) -> None:
        """Press a button of a completed check run; its App is sent `requested_action`, no matter who presses.

        Raises:
            HubError: the run has no such button, or is not completed.
        """
        with self._site.lock:
            checks.press_button(self._site, self._site.store.check_runs[run.id], self._user(by), identifier)

    def rerun(self, run: CheckRun, *, by: str) -> None:
        """Ask for a completed check run to be run again; its App is sent `rerequested`.

        Raises:
            HubError: the run is not completed.
        """
        with self._site.lock:
            checks.rerun_check_run(self._site, self._site.store.check_runs[run.id], self._user(by))
