"""Threads, comments, reactions and reviews.

There is deliberately no method to merge, approve, reject or dismiss; `Pulls.describe` can close a pull request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

from bot.domain.difference import DiffLines, parse_patch
from bot.github import graphql, types
from bot.github.connection import GitHubConnection
from bot.github.rate_limit import Urgency
from bot.github.repos import Repos

Text = Literal["thread", "comment", "review_comment", "review"]
"""A thread's description, a comment, a comment on lines, or a review's body."""
Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]
_FULL = "application/vnd.github.full+json"

# For the line about what did not fit, and for what redaction makes longer.
_ROOM = 1_000

_MAX_FILES = 1_000
"""Of a pull request that are looked at for refused comments: ten requests."""
_SUGGESTION = re.compile(r"^(`{3,})suggestion$", re.MULTILINE)


class _RenderedText(types.Facts):
    body_html: types.Text = ""


@dataclass(frozen=True, slots=True)
class Threads:
    connection: GitHubConnection
    repos: Repos

    async def snapshot(self, repo: str, number: int) -> types.Snapshot:
        owner, _, name = repo.partition("/")
        return await self._snapshot(
            f"read {repo}#{number}", graphql.THREAD, {"owner": owner, "name": name, "number": number}
        )

    async def branch_snapshot(self, repo: str, branch: str) -> types.Snapshot:
        owner, _, name = repo.partition("/")
        variables = {"owner": owner, "name": name, "ref": f"refs/heads/{branch}"}
        return await self._snapshot(f"read branch {branch} of {repo}", graphql.BRANCH, variables)

    async def label_history(self, repo: str, number: int) -> types.LabelHistory:
        (owner, _, name), action = repo.partition("/"), f"read the labels of {repo}#{number}"
        variables = {"owner": owner, "name": name, "number": number}
        answer = await self.connection.graphql(action, graphql.LABELS, variables, needs="repository", writes=False)
        data = types.parse(dict[str, Any], action, answer["repository"])
        return types.parse(types.LabelHistory, action, data.get("issueOrPullRequest"))

    async def get(self, repo: str, number: int) -> types.ThreadFacts:
        path = f"/repos/{repo}/issues/{number}"
        return await self.connection.read(types.ThreadFacts, f"read {repo}#{number}", path)

    async def find_own_issue(self, repo: str, author: types.BotIdentity, mark: str) -> int | None:
        """Return the number of the bot's oldest open issue whose body contains `mark`."""
        action, path = f"look for our issues in {repo}", f"/repos/{repo}/issues"
        query = {"creator": author.login, "state": "open", "direction": "asc"}
        async for issue in self.connection.entries(types.ThreadFacts, action, path, query):
            if issue.kind == "issue" and issue.author.id == author.id and mark in issue.body:
                return issue.number
        return None

    async def open_issue(self, repo: str, *, title: str, body: str) -> int:
        """Open an issue. Not retried: call `find_own_issue` first."""
        action, path, issue = f"open an issue in {repo}", f"/repos/{repo}/issues", {"title": title, "body": body}
        return (await self.connection.json(types.PullLink, action, "POST", path, issue)).number

    async def remove_label(self, repo: str, number: int, name: str) -> None:
        """Remove a label, if present."""
        path = f"/repos/{repo}/issues/{number}/labels/{quote(name, safe='')}"
        try:
            await self.connection.request(f"remove a label from {repo}#{number}", "DELETE", path)
        except types.GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def _snapshot(self, action: str, query: str, variables: Mapping[str, Any]) -> types.Snapshot:
        repo = f"{variables['owner']}/{variables['name']}"
        answer = await self.connection.graphql(action, query, variables, needs="repository", writes=False)
        data = types.parse(dict[str, Any], action, answer["repository"])
        if data.get("defaultBranchRef") is None:  # an empty repository
            data["default_branch"] = (await self.repos.get(repo)).default_branch
        return types.parse(types.Snapshot, action, data | {"repo": data})


@dataclass(frozen=True, slots=True)
class Comments:
    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def react(self, repo: str, target: types.CommentTarget, comment_id: int, content: Reaction) -> None:
        """React to a comment, or to the description if `comment_id` is 0."""
        subject = _comment_path(repo, target, comment_id) if comment_id else f"/repos/{repo}/issues/{target.number}"
        path, body = f"{subject}/reactions", {"content": content}
        # Strangers get another one, and must not use up what keeps the line short for people with write access.
        urgency = Urgency.ACKNOWLEDGEMENT if content == "eyes" else None
        action = f"react in {repo}#{target.number}"
        await self.connection.request(action, "POST", path, body, repeat=True, urgency=urgency)

    async def create(self, repo: str, target: types.CommentTarget, body: str) -> types.CommentFacts:
        """Post a comment. Not retried: call `find` first."""
        thread = f"/repos/{repo}/issues/{target.number}/comments"
        lines = f"/repos/{repo}/pulls/{target.number}/comments/{target.root}/replies"
        path = thread if target.kind == "thread" else lines
        action = f"comment on {repo}#{target.number}"
        return await self.connection.json(types.CommentFacts, action, "POST", path, {"body": self.redact(body)})

    async def edit(self, repo: str, target: types.CommentTarget, comment_id: int, body: str) -> types.CommentFacts:
        action, path = f"edit a comment in {repo}", _comment_path(repo, target, comment_id)
        return await self.connection.json(types.CommentFacts, action, "PATCH", path, {"body": self.redact(body)})

    async def get(self, repo: str, target: types.CommentTarget, comment_id: int) -> types.CommentFacts | None:
        action, path = f"read a comment in {repo}", _comment_path(repo, target, comment_id)
        return await self.connection.find(types.CommentFacts, action, path)

    async def read_edit(self, repo: str, node_id: str) -> types.CommentEdit:
        action = f"read an edited comment in {repo}"
        answer = await self.connection.graphql(action, graphql.COMMENT, {"id": node_id}, needs="node", writes=False)
        return types.parse(types.CommentEdit, action, answer["node"])

    async def find(
        self, repo: str, target: types.CommentTarget, marker: str, author_id: int
    ) -> tuple[types.CommentFacts, ...]:
        """Return an author's comments that contain `marker`, oldest first."""
        action = f"read the comments of {repo}#{target.number}"
        if target.kind == "thread":
            comments: tuple[types.CommentFacts, ...] = await self.list_for_thread(repo, target.number)
        else:
            lines = self.connection.entries(types.ReviewCommentFacts, action, _thread_path(repo, target))
            comments = tuple([comment async for comment in lines if comment.root == target.root])
        return tuple(comment for comment in comments if comment.author.id == author_id and marker in comment.body)

    async def list_for_thread(self, repo: str, number: int) -> tuple[types.CommentFacts, ...]:
        """Return a thread's comments, oldest first."""
        path = _thread_path(repo, types.CommentTarget(kind="thread", number=number))
        action = f"read the comments of {repo}#{number}"
        return tuple([comment async for comment in self.connection.entries(types.CommentFacts, action, path)])

    async def render(self, repo: str, number: int, kind: Text, text_id: int = 0) -> str:
        """Return a text as HTML, with attachment addresses valid for some minutes.

        https://docs.github.com/rest/using-the-rest-api/getting-started-with-the-rest-api#media-types
        """
        path = {
            "thread": f"/repos/{repo}/issues/{number}",
            "comment": f"/repos/{repo}/issues/comments/{text_id}",
            "review_comment": f"/repos/{repo}/pulls/comments/{text_id}",
            "review": f"/repos/{repo}/pulls/{number}/reviews/{text_id}",
        }[kind]
        action = f"read a text in {repo}#{number}"
        return (await self.connection.json(_RenderedText, action, "GET", path, accept=_FULL)).body_html


def _thread_path(repo: str, target: types.CommentTarget) -> str:
    return f"/repos/{repo}/{'issues' if target.kind == 'thread' else 'pulls'}/{target.number}/comments"


def _comment_path(repo: str, target: types.CommentTarget, comment_id: int) -> str:
    return f"/repos/{repo}/{'issues' if target.kind == 'thread' else 'pulls'}/comments/{comment_id}"


@dataclass(frozen=True, slots=True)
class Pulls:
    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def get(self, repo: str, number: int) -> types.PullFacts:
        action, path = f"read pull request {repo}#{number}", f"/repos/{repo}/pulls/{number}"
        return await self.connection.read(types.PullFacts, action, path)

    async def list_from(
        self, repo: str, branch: str, *, base: str = "", state: Literal["open", "all"] = "open"
    ) -> tuple[types.PullFacts, ...]:
        query = {"head": f"{repo.partition('/')[0]}:{branch}", "state": state} | ({"base": base} if base else {})
        action = f"look for pull requests from {branch} in {repo}"
        return await self.connection.read(tuple[types.PullFacts, ...], action, f"/repos/{repo}/pulls", query)

    async def list_own_into(
        self, repo: str, base: str, prefixes: tuple[str, ...], *, author_id: int
    ) -> tuple[types.PullFacts, ...]:
        """Return the open pull requests by this author from such branches."""
        path, query = f"/repos/{repo}/pulls", {"state": "open", "base": base}
        pulls = self.connection.entries(types.PullFacts, f"read the pull requests of {repo}", path, query)
        own = [pull async for pull in pulls if pull.author.id == author_id and not pull.from_fork]
        return tuple(pull for pull in own if pull.head_ref.startswith(prefixes))

    async def find_for_fork(self, repo: str, *, fork: str, fork_id: int, branch: str, sha: str) -> int | None:
        """Return the single open pull request with a fork's commit as head.

        GitHub's events do not list it. Id and commit identify it; the branch only narrows the search.
        """
        query = {"state": "open", "head": f"{fork.partition('/')[0]}:{branch}"}
        action, path = f"look for a pull request of {fork} in {repo}", f"/repos/{repo}/pulls"
        pulls = await self.connection.read(tuple[types.PullFacts, ...], action, path, query)
        numbers = [pull.number for pull in pulls if (pull.head_repo_id, pull.head_sha) == (fork_id, sha)]
        return numbers[0] if len(numbers) == 1 else None

    async def describe(
        self, repo: str, number: int, *, title: str | None, body: str | None, closes: bool = False
    ) -> None:
        """Replace the title and the description, unless they are None, and close a pull request without a change."""
        texts = {"title": title, "body": body}
        fields = {name: self.redact(text) for name, text in texts.items() if text is not None}
        fields |= {"state": "closed"} if closes else {}
        await self.connection.request(f"describe {repo}#{number}", "PATCH", f"/repos/{repo}/pulls/{number}", fields)

    async def create(self, repo: str, pull: types.PullDraft, *, head: str) -> types.PullLink:
        """Open a pull request, or return the existing one."""
        data = {"head": head, "base": pull.base, **pull.fields(self.redact)}
        action = f"open a pull request from {head} in {repo}"
        try:
            path = f"/repos/{repo}/pulls"
            return await self.connection.json(types.PullLink, action, "POST", path, data, repeat=True)
        except types.GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            if pull.draft and "draft" in error.message.lower():  # not every plan has drafts
                return await self.create(repo, replace(pull, draft=False), head=head)
            if not (existing := await self.list_from(repo, head, base=pull.base)):
                raise
            return types.PullLink(number=existing[0].number, html_url=existing[0].html_url, draft=existing[0].draft)


@dataclass(frozen=True, slots=True)
class Reviews:
    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def list_for_pull(self, repo: str, number: int) -> tuple[types.ReviewFacts, ...]:
        action, path = f"read the reviews of {repo}#{number}", f"/repos/{repo}/pulls/{number}/reviews"
        return tuple([review async for review in self.connection.entries(types.ReviewFacts, action, path)])

    async def list_line_comments(self, repo: str, number: int) -> tuple[types.ReviewCommentFacts, ...]:
        action, path = f"read the review comments of {repo}#{number}", f"/repos/{repo}/pulls/{number}/comments"
        return tuple([comment async for comment in self.connection.entries(types.ReviewCommentFacts, action, path)])

    async def create(self, repo: str, number: int, draft: types.ReviewDraft) -> types.ReviewFacts:
        """Review a pull request; refused line comments go into the body. Not retried: call `list_for_pull` first.

        GitHub refuses all comments because of one, and does not say which. So the next attempt leaves out those on
        lines that its own patches do not have, then also those on files without a patch, then all.
        """
        try:
            return await self._send(repo, number, draft)
        except types.GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or not draft.notes:
                raise
        patches = await self._read_patches(repo, number, {note.path for note in draft.notes})
        lines = await asyncio.to_thread(_lines_of, patches)
        unplaced = tuple(note for note in draft.notes if not lines.contain(*note.span))
        outside = tuple(note for note in unplaced if patches.get(note.path))
        for refused in dict.fromkeys(filter(None, (outside, unplaced))):
            if refused != draft.notes:
                try:
                    return await self._send(repo, number, _move_notes(draft, refused))
                except types.GitHubError as error:
                    if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                        raise
        return await self._send(repo, number, _move_notes(draft, draft.notes))

    async def _read_patches(self, repo: str, number: int, paths: Collection[str]) -> dict[str, str]:
        """Return the patches of some files, empty for a file without one, as far as the first files have them."""
        patches, count = dict[str, str](), 0
        action, path = f"read the files of {repo}#{number}", f"/repos/{repo}/pulls/{number}/files"
        async for file in self.connection.entries(types.PullFile, action, path):
            if file.path in paths:
                patches[file.path] = file.patch
            count += 1
            if len(patches) == len(paths) or count == _MAX_FILES:
                break
        return patches

    async def _send(self, repo: str, number: int, draft: types.ReviewDraft) -> types.ReviewFacts:
        body = {
            "commit_id": draft.commit_sha,
            "body": self.redact(draft.body)[: types.BODY_LIMIT],
            "event": "COMMENT",
            "comments": [self._note(note) for note in draft.notes],
        }
        path = f"/repos/{repo}/pulls/{number}/reviews"
        return await self.connection.json(types.ReviewFacts, f"review {repo}#{number}", "POST", path, body)

    def _note(self, note: types.ReviewNote) -> dict[str, object]:
        body = self.redact(note.body)[: types.BODY_LIMIT]
        comment = {"path": note.path, "line": note.line, "side": note.side, "body": body}
        if note.start_line is None or note.start_line == note.line:
            return comment
        return comment | {"start_line": note.start_line, "start_side": note.side}


def _lines_of(patches: Mapping[str, str]) -> DiffLines:
    sections = ((path, section) for path, patch in patches.items() for section in parse_patch(patch))
    return DiffLines.of(replace(section, path=path) for path, section in sections)


def _move_notes(draft: types.ReviewDraft, refused: tuple[types.ReviewNote, ...]) -> types.ReviewDraft:
    """Move comments into the body."""
    kept = tuple(note for note in draft.notes if note not in refused)
    return replace(draft, body=_append_notes(draft.body, refused), notes=kept)


def _append_notes(body: str, notes: tuple[types.ReviewNote, ...]) -> str:
    room = types.BODY_LIMIT - _ROOM
    for index, note in enumerate(notes):
        # A model names the file; a back tick or a line's end in the name must not end the code span.
        place = " ".join(note.place.replace("`", "'").split())
        # A suggestion cannot be committed from the body.
        text = _SUGGESTION.sub(r"\1", note.body)
        section = f"\n\n`{place}`\n\n{text}"
        if len(body) + len(section) > room:
            return f"{body}\n\n_{len(notes) - index} more comments were omitted._".strip()
        body += section
    return body.strip()
