"""Comments and reactions: below an issue or pull request, and in a thread about lines of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bot.github import parsing
from bot.github.connection import GitHubConnection
from bot.github.models import CommentFacts, Spot
from bot.github.pace import Urgency

Text = Literal["thread", "comment", "review_comment", "review"]
"""The description of a thread, a comment below it or on lines, or the words above a review."""

_FULL = "application/vnd.github.full+json"

Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]


@dataclass(frozen=True, slots=True)
class Comments:
    """Comments, and reactions to them."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def react(self, repo: str, spot: Spot, comment_id: int, content: Reaction) -> None:
        """React to a comment; a second time changes nothing. The words of a review take no reaction.

        Args:
            repo: `owner/name`.
            spot: where the comment is.
            comment_id: which; 0 for the thread itself, its description.
            content: how.
        """
        subject = _comment_path(repo, spot, comment_id) if comment_id else f"/repos/{repo}/issues/{spot.number}"
        path, body = f"{subject}/reactions", {"content": content}
        # Strangers get another one, and must not use up what keeps the line short for people with write access.
        urgency = Urgency.SIGN if content == "eyes" else None
        what = f"react in {repo}#{spot.number}"
        await self.connection.json(what, "POST", path, body, repeat=True, urgency=urgency)

    async def create(self, repo: str, spot: Spot, body: str) -> CommentFacts:
        """Comment on a thread. Not repeated on a server error: look with `find` first, then call again."""
        thread = f"/repos/{repo}/issues/{spot.number}/comments"
        lines = f"/repos/{repo}/pulls/{spot.number}/comments/{spot.root}/replies"
        path = thread if spot.kind == "thread" else lines
        what = f"comment on {repo}#{spot.number}"
        return parsing.comment(await self.connection.json(what, "POST", path, {"body": self.redact(body)}))

    async def edit(self, repo: str, spot: Spot, comment_id: int, body: str) -> CommentFacts:
        """Replace the body of a comment of ours."""
        what, path = f"edit a comment in {repo}", _comment_path(repo, spot, comment_id)
        return parsing.comment(await self.connection.json(what, "PATCH", path, {"body": self.redact(body)}))

    async def get(self, repo: str, spot: Spot, comment_id: int) -> CommentFacts | None:
        """A comment as it is now; None when it is gone."""
        answer = await self.connection.find(f"read a comment in {repo}", _comment_path(repo, spot, comment_id))
        return None if answer is None else parsing.comment(answer)

    async def find(self, repo: str, spot: Spot, marker: str, author_id: int) -> tuple[CommentFacts, ...]:
        """The comments of a thread by this author that hold `marker`, oldest first."""
        what = f"read the comments of {repo}#{spot.number}"
        found: list[CommentFacts] = []
        async for each in self.connection.entries(what, _thread_path(repo, spot)):
            comment = parsing.comment(each)
            here = spot.kind == "thread" or parsing.review_comment(each).root == spot.root
            if here and comment.author_id == author_id and marker in comment.body:
                found.append(comment)
        return tuple(found)

    async def of_thread(self, repo: str, number: int) -> tuple[CommentFacts, ...]:
        """The comments below an issue or pull request, oldest first."""
        path = _thread_path(repo, Spot(kind="thread", number=number))
        what = f"read the comments of {repo}#{number}"
        return tuple([parsing.comment(each) async for each in self.connection.entries(what, path)])

    async def rendered(self, repo: str, number: int, kind: Text, text_id: int = 0) -> str:
        """A text as GitHub shows it, in HTML, where attachments have addresses that serve for the next minutes.

        https://docs.github.com/rest/using-the-rest-api/getting-started-with-the-rest-api#media-types
        """
        path = {
            "thread": f"/repos/{repo}/issues/{number}",
            "comment": f"/repos/{repo}/issues/comments/{text_id}",
            "review_comment": f"/repos/{repo}/pulls/comments/{text_id}",
            "review": f"/repos/{repo}/pulls/{number}/reviews/{text_id}",
        }[kind]
        answer = await self.connection.json(f"read a text in {repo}#{number}", "GET", path, accept=_FULL)
        return str(answer.get("body_html") or "")


def _thread_path(repo: str, spot: Spot) -> str:
    return f"/repos/{repo}/{'issues' if spot.kind == 'thread' else 'pulls'}/{spot.number}/comments"


def _comment_path(repo: str, spot: Spot, comment_id: int) -> str:
    return f"/repos/{repo}/{'issues' if spot.kind == 'thread' else 'pulls'}/comments/{comment_id}"
