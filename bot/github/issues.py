"""Issues and pull requests: threads, comments, reactions, and reviews that comment.

There is no verb here that merges or closes a pull request, or approves, rejects or dismisses a review, and there shall
be none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

from bot.github import graphql, types
from bot.github.connection import GitHubConnection
from bot.github.rate_limit import Urgency
from bot.github.repos import Repos

Text = Literal["thread", "comment", "review_comment", "review"]
"""The description of a thread, a comment below it or on lines, or the words above a review."""
Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]
_FULL = "application/vnd.github.full+json"

# For the line about what did not fit, and for what redaction makes longer.
_ROOM = 1_000


class _RenderedText(types.Facts):
    body_html: types.Text = ""


@dataclass(frozen=True, slots=True)
class Threads:
    """Issues and pull requests, as they are now."""

    connection: GitHubConnection
    repos: Repos

    async def snapshot(self, repo: str, number: int) -> types.Snapshot:
        """The repository and one of its threads as they are now."""
        owner, _, name = repo.partition("/")
        return await self._snapshot(
            f"read {repo}#{number}", graphql.THREAD, {"owner": owner, "name": name, "number": number}
        )

    async def branch_snapshot(self, repo: str, branch: str) -> types.Snapshot:
        """The repository and one of its branches as they are now."""
        owner, _, name = repo.partition("/")
        variables = {"owner": owner, "name": name, "ref": f"refs/heads/{branch}"}
        return await self._snapshot(f"read branch {branch} of {repo}", graphql.BRANCH, variables)

    async def get(self, repo: str, number: int) -> types.ThreadFacts:
        """An issue or pull request as it is now."""
        path = f"/repos/{repo}/issues/{number}"
        return await self.connection.read(types.ThreadFacts, f"read {repo}#{number}", path)

    async def own_issue(self, repo: str, author: types.BotIdentity, mark: str) -> int | None:
        """The oldest open issue of ours whose description holds a mark; None where there is none."""
        what, path = f"look for our issues in {repo}", f"/repos/{repo}/issues"
        query = {"creator": author.login, "state": "open", "direction": "asc"}
        async for issue in self.connection.entries(types.ThreadFacts, what, path, query):
            if issue.kind == "issue" and issue.author_id == author.id and mark in issue.body:
                return issue.number
        return None

    async def open_issue(self, repo: str, *, title: str, body: str) -> int:
        """Open an issue. Not repeated on a server error: look with `own_issue` first, then call again."""
        what, path, issue = f"open an issue in {repo}", f"/repos/{repo}/issues", {"title": title, "body": body}
        return (await self.connection.json(types.PullLink, what, "POST", path, issue)).number

    async def remove_label(self, repo: str, number: int, name: str) -> None:
        """Take a label off a thread; one that is not on it will do."""
        path = f"/repos/{repo}/issues/{number}/labels/{quote(name, safe='')}"
        try:
            await self.connection.request(f"remove a label from {repo}#{number}", "DELETE", path)
        except types.GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def _snapshot(self, what: str, query: str, variables: Mapping[str, Any]) -> types.Snapshot:
        repo = f"{variables['owner']}/{variables['name']}"
        answer = await self.connection.graphql(what, query, variables, needs="repository", writes=False)
        data = types.parse(dict[str, Any], what, answer["repository"])
        if data.get("defaultBranchRef") is None:  # an empty repository
            data["default_branch"] = (await self.repos.get(repo)).default_branch
        return types.parse(types.Snapshot, what, data | {"repo": data})


@dataclass(frozen=True, slots=True)
class Comments:
    """Comments, and reactions to them."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def react(self, repo: str, spot: types.Spot, comment_id: int, content: Reaction) -> None:
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
        await self.connection.request(what, "POST", path, body, repeat=True, urgency=urgency)

    async def create(self, repo: str, spot: types.Spot, body: str) -> types.CommentFacts:
        """Comment on a thread. Not repeated on a server error: look with `find` first, then call again."""
        thread = f"/repos/{repo}/issues/{spot.number}/comments"
        lines = f"/repos/{repo}/pulls/{spot.number}/comments/{spot.root}/replies"
        path = thread if spot.kind == "thread" else lines
        what = f"comment on {repo}#{spot.number}"
        return await self.connection.json(types.CommentFacts, what, "POST", path, {"body": self.redact(body)})

    async def edit(self, repo: str, spot: types.Spot, comment_id: int, body: str) -> types.CommentFacts:
        """Replace the body of a comment of ours."""
        what, path = f"edit a comment in {repo}", _comment_path(repo, spot, comment_id)
        return await self.connection.json(types.CommentFacts, what, "PATCH", path, {"body": self.redact(body)})

    async def get(self, repo: str, spot: types.Spot, comment_id: int) -> types.CommentFacts | None:
        """A comment as it is now; None when it is gone."""
        what, path = f"read a comment in {repo}", _comment_path(repo, spot, comment_id)
        return await self.connection.find(types.CommentFacts, what, path)

    async def find(self, repo: str, spot: types.Spot, marker: str, author_id: int) -> tuple[types.CommentFacts, ...]:
        """The comments of a thread by this author that hold `marker`, oldest first."""
        what = f"read the comments of {repo}#{spot.number}"
        if spot.kind == "thread":
            comments = await self.of_thread(repo, spot.number)
        else:
            lines = self.connection.entries(types.ReviewCommentFacts, what, _thread_path(repo, spot))
            comments = tuple([each.comment async for each in lines if each.root == spot.root])
        return tuple(each for each in comments if each.author_id == author_id and marker in each.body)

    async def of_thread(self, repo: str, number: int) -> tuple[types.CommentFacts, ...]:
        """The comments below an issue or pull request, oldest first."""
        path = _thread_path(repo, types.Spot(kind="thread", number=number))
        what = f"read the comments of {repo}#{number}"
        return tuple([each async for each in self.connection.entries(types.CommentFacts, what, path)])

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
        what = f"read a text in {repo}#{number}"
        return (await self.connection.json(_RenderedText, what, "GET", path, accept=_FULL)).body_html


def _thread_path(repo: str, spot: types.Spot) -> str:
    return f"/repos/{repo}/{'issues' if spot.kind == 'thread' else 'pulls'}/{spot.number}/comments"


def _comment_path(repo: str, spot: types.Spot, comment_id: int) -> str:
    return f"/repos/{repo}/{'issues' if spot.kind == 'thread' else 'pulls'}/comments/{comment_id}"


@dataclass(frozen=True, slots=True)
class Pulls:
    """Pull requests. There is no verb that merges or closes one, and there shall be none."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def get(self, repo: str, number: int) -> types.PullFacts:
        """A pull request's two ends as they are now."""
        what, path = f"read pull request {repo}#{number}", f"/repos/{repo}/pulls/{number}"
        return await self.connection.read(types.PullFacts, what, path)

    async def open_from(self, repo: str, branch: str, *, base: str = "") -> tuple[types.PullFacts, ...]:
        """The open pull requests from a branch of the repository itself, into `base` where that is given."""
        query = {"head": f"{repo.partition('/')[0]}:{branch}", "state": "open"} | ({"base": base} if base else {})
        what = f"look for pull requests from {branch} in {repo}"
        return await self.connection.read(tuple[types.PullFacts, ...], what, f"/repos/{repo}/pulls", query)

    async def own_into(self, repo: str, base: str, prefix: str, *, author_id: int) -> str:
        """The page of an open pull request of this author from a branch here that begins with `prefix`; or empty."""
        path, query = f"/repos/{repo}/pulls", {"state": "open", "base": base}
        what = f"read the pull requests of {repo}"
        async for pull in self.connection.entries(types.PullFacts, what, path, query):
            if pull.author_id == author_id and not pull.from_fork and pull.head_ref.startswith(prefix):
                return pull.html_url
        return ""

    async def of_fork(self, repo: str, *, fork: str, fork_id: int, branch: str, sha: str) -> int | None:
        """The number of the one open pull request whose head is a fork's commit; None where there is not exactly one.

        GitHub names no pull requests of forks in its events. The branch's name only narrows the search: the fork's
        number and the commit decide.
        """
        query = {"state": "open", "head": f"{fork.partition('/')[0]}:{branch}"}
        what, path = f"look for a pull request of {fork} in {repo}", f"/repos/{repo}/pulls"
        pulls = await self.connection.read(tuple[types.PullFacts, ...], what, path, query)
        numbers = [each.number for each in pulls if (each.head_repo_id, each.head_sha) == (fork_id, sha)]
        return numbers[0] if len(numbers) == 1 else None

    async def create(self, repo: str, pull: types.PullDraft, *, head: str) -> types.PullLink:
        """Open a pull request from a branch of the same repository, or find the one that is open already."""
        data = {"head": head, "base": pull.base, **pull.fields(self.redact)}
        what = f"open a pull request from {head} in {repo}"
        try:
            path = f"/repos/{repo}/pulls"
            return await self.connection.json(types.PullLink, what, "POST", path, data, repeat=True)
        except types.GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            if pull.draft and "draft" in error.said.lower():  # not every plan has drafts
                return await self.create(repo, replace(pull, draft=False), head=head)
            if not (found := await self.open_from(repo, head, base=pull.base)):
                raise
            return types.PullLink(number=found[0].number, html_url=found[0].html_url, draft=found[0].draft)


@dataclass(frozen=True, slots=True)
class Reviews:
    """Reviews of pull requests."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def of_pull(self, repo: str, number: int) -> tuple[types.ReviewFacts, ...]:
        """The reviews of a pull request, oldest first."""
        what, path = f"read the reviews of {repo}#{number}", f"/repos/{repo}/pulls/{number}/reviews"
        return tuple([each async for each in self.connection.entries(types.ReviewFacts, what, path)])

    async def line_comments(self, repo: str, number: int) -> tuple[types.ReviewCommentFacts, ...]:
        """The comments on lines of a pull request, oldest first."""
        what, path = f"read the review comments of {repo}#{number}", f"/repos/{repo}/pulls/{number}/comments"
        return tuple([each async for each in self.connection.entries(types.ReviewCommentFacts, what, path)])

    async def create(self, repo: str, number: int, draft: types.ReviewDraft) -> types.ReviewFacts:
        """Review a pull request. Where GitHub will not take the notes on lines, the body says them.

        Not repeated on a server error: look for it with `of_pull` first, then call again.
        """
        try:
            return await self._send(repo, number, draft)
        except types.GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or not draft.notes:
                raise
        return await self._send(repo, number, types.ReviewDraft(commit_sha=draft.commit_sha, body=_in_one(draft)))

    async def _send(self, repo: str, number: int, draft: types.ReviewDraft) -> types.ReviewFacts:
        body = {
            "commit_id": draft.commit_sha,
            "body": self.redact(draft.body)[: types.BODY_LIMIT],
            "event": "COMMENT",
            "comments": [self._note(each) for each in draft.notes],
        }
        path = f"/repos/{repo}/pulls/{number}/reviews"
        return await self.connection.json(types.ReviewFacts, f"review {repo}#{number}", "POST", path, body)

    def _note(self, note: types.ReviewNote) -> dict[str, object]:
        body = self.redact(note.body)[: types.BODY_LIMIT]
        said = {"path": note.path, "line": note.line, "side": note.side, "body": body}
        if note.start_line is None or note.start_line == note.line:
            return said
        return said | {"start_line": note.start_line, "start_side": note.side}


def _in_one(draft: types.ReviewDraft) -> str:
    """The body with all notes that fit, each below its place."""
    body, room = draft.body, types.BODY_LIMIT - _ROOM
    for done, note in enumerate(draft.notes):
        # A model names the file; a back tick or a line's end in the name must not end the code span.
        place = " ".join(note.place.replace("`", "'").split())
        said = f"\n\n`{place}`\n\n{note.body}"
        if len(body) + len(said) > room:
            return f"{body}\n\n_{len(draft.notes) - done} more comments were omitted._".strip()
        body += said
    return body.strip()
