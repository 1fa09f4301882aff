"""Repositories: their files, branches, commits and labels."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import quote

from bot.github import graphql, parsing
from bot.github.connection import GitHubConnection
from bot.github.errors import FileTooLargeError, GitHubError
from bot.github.models import CommitFacts, FolderFile, RepoFacts


@dataclass(frozen=True, slots=True)
class Repos:
    """Repositories, as they are now."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def get(self, repo: str) -> RepoFacts:
        """The repository as it is now."""
        return parsing.repo(await self.connection.read(f"read {repo}", f"/repos/{repo}"))

    async def file_at(self, repo: str, path: str, ref: str | None = None) -> bytes | None:
        """A file's bytes, or None when there is no file of that name, or no repository that we may see.

        Args:
            repo: `owner/name`.
            path: relative to the repository's root.
            ref: a branch, tag or commit; None for the default branch.

        Raises:
            FileTooLargeError: it has more than 1 MB.
        """
        what = f"read {path} of {repo}"
        query = {"ref": ref} if ref else None
        answer = await self.connection.find(what, f"/repos/{repo}/contents/{quote(path)}", query)
        if not isinstance(answer, Mapping) or answer.get("type") != "file":  # a folder is a list
            return None
        if answer.get("encoding") != "base64":  # over 1 MB GitHub gives the content to those who ask for the blob alone
            raise FileTooLargeError(repo, path, int(answer["size"]))
        return base64.b64decode(answer["content"])

    async def installed(self) -> tuple[RepoFacts, ...]:
        """The repositories of the App's installation that we act for."""
        what, path = "list the installation's repositories", "/installation/repositories"
        entries = self.connection.entries(what, path, within="repositories")
        return tuple([parsing.repo(each) async for each in entries])

    async def files_in(self, repo: str, path: str) -> dict[str, FolderFile]:
        """The files in a folder of the default branch, by name; empty where there is no such folder."""
        answer = await self.connection.find(f"list {path} of {repo}", f"/repos/{repo}/contents/{quote(path)}")
        entries = answer if isinstance(answer, list) else ()  # a file is a mapping
        return {
            str(each["name"]): FolderFile(sha=str(each["sha"]), size=int(each["size"]))
            for each in entries
            if each["type"] == "file"
        }

    async def contents_of(self, repo: str, blobs: Collection[str]) -> dict[str, bytes]:
        """The contents of small text files by their blobs' ids, all in one request.

        Args:
            repo: `owner/name`.
            blobs: their ids. Those that are gone, or are no UTF-8, are not in the answer.
        """
        if not blobs:
            return {}
        owner, _, name = repo.partition("/")
        ids = {f"a{number}": sha for number, sha in enumerate(dict.fromkeys(blobs))}
        answer = await self.connection.graphql(
            f"read files of {repo}",
            graphql.blobs_query(len(ids)),
            {"owner": owner, "name": name, **ids},
            needs="repository",
            writes=False,
        )
        return graphql.blob_texts(answer["repository"])

    async def branch_head(self, repo: str, branch: str) -> str | None:
        """The commit a branch stands at, or None when there is no such branch, or the repository is empty."""
        what, path = f"read branch {branch} of {repo}", f"/repos/{repo}/git/ref/heads/{quote(branch)}"
        try:
            answer = await self.connection.find(what, path)
        except GitHubError as error:
            # https://docs.github.com/rest/git/refs: 409 where nothing was pushed yet
            if error.status != HTTPStatus.CONFLICT:
                raise
            return None
        return None if answer is None else str(answer["object"]["sha"])

    async def branches_named(self, repo: str, prefix: str) -> tuple[str, ...]:
        """The names of the branches that begin so."""
        what, path = f"look for branches {prefix} of {repo}", f"/repos/{repo}/git/matching-refs/heads/{quote(prefix)}"
        found = await self.connection.find(what, path)
        return tuple(str(each["ref"]).removeprefix("refs/heads/") for each in found or ())

    async def commit(self, repo: str, sha: str) -> CommitFacts:
        """A commit's tree and parents."""
        return parsing.commit(
            await self.connection.read(f"read commit {sha[:10]} of {repo}", f"/repos/{repo}/git/commits/{sha}")
        )

    async def labels(self, repo: str) -> tuple[str, ...]:
        """Names of the labels that a repository has."""
        what, path = f"read the labels of {repo}", f"/repos/{repo}/labels"
        return parsing.label_names([each async for each in self.connection.entries(what, path)])

    async def create_label(self, repo: str, name: str, *, color: str, description: str) -> None:
        """Make a label; one of that name will do as it is.

        Args:
            repo: `owner/name`.
            name: at most 50 characters.
            color: six hexadecimal digits, without `#`.
            description: at most 100 characters.
        """
        body = {"name": name, "color": color, "description": self.redact(description)}
        try:
            await self.connection.json(f"create a label in {repo}", "POST", f"/repos/{repo}/labels", body, repeat=True)
        except GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or "already_exists" not in error.said:
                raise
