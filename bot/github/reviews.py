"""Reviews that comment. There is no verb here that approves, rejects or dismisses, and there shall be none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from bot.github import parsing
from bot.github.connection import GitHubConnection
from bot.github.drafts import BODY_LIMIT, ReviewDraft, ReviewNote
from bot.github.errors import GitHubError
from bot.github.models import ReviewCommentFacts, ReviewFacts

# For the line about what did not fit, and for what redaction makes longer.
_ROOM = 1_000


@dataclass(frozen=True, slots=True)
class Reviews:
    """Reviews of pull requests."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def of_pull(self, repo: str, number: int) -> tuple[ReviewFacts, ...]:
        """The reviews of a pull request, oldest first."""
        what, path = f"read the reviews of {repo}#{number}", f"/repos/{repo}/pulls/{number}/reviews"
        return tuple([parsing.review(each) async for each in self.connection.entries(what, path)])

    async def line_comments(self, repo: str, number: int) -> tuple[ReviewCommentFacts, ...]:
        """The comments on lines of a pull request, oldest first."""
        what, path = f"read the review comments of {repo}#{number}", f"/repos/{repo}/pulls/{number}/comments"
        return tuple([parsing.review_comment(each) async for each in self.connection.entries(what, path)])

    async def create(self, repo: str, number: int, draft: ReviewDraft) -> ReviewFacts:
        """Review a pull request. Where GitHub will not take the notes on lines, the body says them.

        Not repeated on a server error: look for it with `of_pull` first, then call again.
        """
        try:
            return await self._send(repo, number, draft)
        except GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or not draft.notes:
                raise
        return await self._send(repo, number, ReviewDraft(commit_sha=draft.commit_sha, body=_in_one(draft)))

    async def _send(self, repo: str, number: int, draft: ReviewDraft) -> ReviewFacts:
        body = {
            "commit_id": draft.commit_sha,
            "body": self.redact(draft.body)[:BODY_LIMIT],
            "event": "COMMENT",
            "comments": [self._note(each) for each in draft.notes],
        }
        path = f"/repos/{repo}/pulls/{number}/reviews"
        return parsing.review(await self.connection.json(f"review {repo}#{number}", "POST", path, body))

    def _note(self, note: ReviewNote) -> dict[str, object]:
        body = self.redact(note.body)[:BODY_LIMIT]
        said = {"path": note.path, "line": note.line, "side": note.side, "body": body}
        if note.start_line is None or note.start_line == note.line:
            return said
        return said | {"start_line": note.start_line, "start_side": note.side}


def _in_one(draft: ReviewDraft) -> str:
    """The body with all notes that fit, each below its place."""
    body, room = draft.body, BODY_LIMIT - _ROOM
    for done, note in enumerate(draft.notes):
        # A model names the file; a back tick or a line's end in the name must not end the code span.
        place = " ".join(note.place.replace("`", "'").split())
        said = f"\n\n`{place}`\n\n{note.body}"
        if len(body) + len(said) > room:
            return f"{body}\n\n_{len(draft.notes) - done} more comments were omitted._".strip()
        body += said
    return body.strip()
