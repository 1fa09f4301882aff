"""Comments and reactions: below an issue or pull request, and in a thread about lines of one."""

from __future__ import annotations

from typing import Literal

from bot.github import parsing_talk as parsing
from bot.github.pace import Urgency
from bot.github.part import ClientPart
from bot.github.talk import CommentFacts, ReviewCommentFacts, ReviewFacts, Spot

Text = Literal["thread", "comment", "review_comment", "review"]
"""The description of a thread, a comment below it or on lines, or the words above a review."""

_FULL = "application/vnd.github.full+json"

Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]


class Comments(ClientPart):
    """What was said, and saying something."""

    async def react(self, repo: str, spot: Spot, comment_id: int, content: Reaction) -> None:
        """React to a comment; a second time changes nothing. The words of a review take no reaction.

        Args:
            repo: `owner/name`.
            spot: where the comment is.
            comment_id: which; 0 for the thread itself, its description.
            content: how.
        """
        subject = _comment(repo, spot, comment_id) if comment_id else f"/repos/{repo}/issues/{spot.number}"
        path, body = f"{subject}/reactions", {"content": content}
        # Strangers get another one, and must not use up what keeps the line short for people with write access.
        urgency = Urgency.SIGN if content == "eyes" else None
        what = f"react in {repo}#{spot.number}"
        await self._connection.json(what, "POST", path, body, repeat=True, urgency=urgency)

    async def create_comment(self, repo: str, spot: Spot, body: str) -> CommentFacts:
        """Comment on a thread. Not repeated on a server error: look with `find_comment` first, then call again."""
        thread = f"/repos/{repo}/issues/{spot.number}/comments"
        lines = f"/repos/{repo}/pulls/{spot.number}/comments/{spot.root}/replies"
        path = thread if spot.kind == "thread" else lines
        what = f"comment on {repo}#{spot.number}"
        return parsing.comment(await self._connection.json(what, "POST", path, {"body": self._redact(body)}))

    async def edit_comment(self, repo: str, spot: Spot, comment_id: int, body: str) -> CommentFacts:
        """Replace the body of a comment of ours."""
        what, path = f"edit a comment in {repo}", _comment(repo, spot, comment_id)
        return parsing.comment(await self._connection.json(what, "PATCH", path, {"body": self._redact(body)}))

    async def comment(self, repo: str, spot: Spot, comment_id: int) -> CommentFacts | None:
        """A comment as it is now; None when it is gone."""
        answer = await self._found(f"read a comment in {repo}", _comment(repo, spot, comment_id))
        return None if answer is None else parsing.comment(answer)

    async def find_comments(self, repo: str, spot: Spot, marker: str, author_id: int) -> tuple[CommentFacts, ...]:
        """The comments of a thread by this author that hold `marker`, oldest first."""
        what = f"read the comments of {repo}#{spot.number}"
        found: list[CommentFacts] = []
        async for each in self._entries(what, _comments(repo, spot)):
            comment = parsing.comment(each)
            here = spot.kind == "thread" or parsing.review_comment(each).root == spot.root
            if here and comment.author_id == author_id and marker in comment.body:
                found.append(comment)
        return tuple(found)

    async def find_comment(self, repo: str, spot: Spot, marker: str, author_id: int) -> CommentFacts | None:
        """The first of them."""
        found = await self.find_comments(repo, spot, marker, author_id)
        return found[0] if found else None

    async def comments(self, repo: str, number: int) -> tuple[CommentFacts, ...]:
        """The comments below an issue or pull request, oldest first."""
        path = _comments(repo, Spot(kind="thread", number=number))
        what = f"read the comments of {repo}#{number}"
        return tuple([parsing.comment(each) async for each in self._entries(what, path)])

    async def review_comments(self, repo: str, number: int) -> tuple[ReviewCommentFacts, ...]:
        """The comments on lines of a pull request, oldest first."""
        what, path = f"read the review comments of {repo}#{number}", f"/repos/{repo}/pulls/{number}/comments"
        return tuple([parsing.review_comment(each) async for each in self._entries(what, path)])

    async def reviews(self, repo: str, number: int) -> tuple[ReviewFacts, ...]:
        """The reviews of a pull request, oldest first."""
        what, path = f"read the reviews of {repo}#{number}", f"/repos/{repo}/pulls/{number}/reviews"
        return tuple([parsing.review(each) async for each in self._entries(what, path)])

    async def page_of(self, repo: str, number: int, kind: Text, text_id: int = 0) -> str:
        """A text as GitHub shows it, in HTML, where attachments have addresses that serve for the next minutes.

        https://docs.github.com/rest/using-the-rest-api/getting-started-with-the-rest-api#media-types
        """
        path = {
            "thread": f"/repos/{repo}/issues/{number}",
            "comment": f"/repos/{repo}/issues/comments/{text_id}",
            "review_comment": f"/repos/{repo}/pulls/comments/{text_id}",
            "review": f"/repos/{repo}/pulls/{number}/reviews/{text_id}",
        }[kind]
        answer = await self._connection.json(f"read a text in {repo}#{number}", "GET", path, accept=_FULL)
        return str(answer.get("body_html") or "")


def _comments(repo: str, spot: Spot) -> str:
    return f"/repos/{repo}/{'issues' if spot.kind == 'thread' else 'pulls'}/{spot.number}/comments"


def _comment(repo: str, spot: Spot, comment_id: int) -> str:
    return f"/repos/{repo}/{'issues' if spot.kind == 'thread' else 'pulls'}/comments/{comment_id}"
