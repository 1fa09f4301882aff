"""The worlds of `test_fake_github`: a `FakeSite` with its client, and a `LocalHub` with the real client."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel
from typing_extensions import override

from bot.domain.errors import BotError
from bot.github.client import GitHub
from bot.github.types import CommentTarget, GitHubError
from localhub import APP_PERMISSIONS, App, LocalHub, Trouble
from localhub.git import plumbing as git
from localhub.operations import threads
from localhub.state.model import CommitStatus
from tests.fakes.github import FakeFile, FakeGitHub, FakeSite, forbidden, no_answer, not_found, outage, rate_limited
from tests.github_world import LINES, SECRET
from tests.hub_client import client, installation_token

T = TypeVar("T")
FILES: Mapping[str, str | bytes] = {
    "a.txt": "1\n",
    "folder/b.txt": "two\n",
    "folder/inner/c.txt": "3",
    "long.txt": LINES,
}
_FIRST_ID = 1001
_VARYING = re.compile(r"https?://[^/\s]+|\?jwt=\S+|[0-9a-f]{40}|\b[0-9a-f]{10}\b|(?<![.,\d])[1-9]\d{3,}(?![,\d])")


_ERRORS: Mapping[str, GitHubError] = {
    "502": outage(),
    "404": not_found(),
    "403": forbidden("Forbidden"),
    "secondary_rate_limited": rate_limited(3600),
    "drop_answer": no_answer(),
}


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


class World:
    """One side of a scenario, and its answers with ids, times and hosts replaced by ordinals and words.

    Attributes:
        people: a `LocalHub` or a `FakeSite`, which have the same methods for the actions of people.
        owner: the account of the scenario's repositories, with an installation of its own.
    """

    people: Any
    github: GitHub

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.answers: list[object] = []
        self._ordinals: dict[str, str] = {}

    @property
    def name(self) -> str:
        return f"{self.owner}/calc"

    def add_repo(self, name: str = "calc", *, installed: bool = True, **options: Any) -> Any:  # noqa: ANN401 - of either side
        raise NotImplementedError

    def permit(self, **permissions: str) -> None:
        """Change permissions of the installation; an empty level takes one away."""
        raise NotImplementedError

    def set_branch(self, repo: Any, branch: str, sha: str | None) -> None:  # noqa: ANN401 - of either side
        raise NotImplementedError

    def commit_files(self, repo: Any, files: Mapping[str, FakeFile]) -> str:  # noqa: ANN401 - of either side
        """Commit files of any mode to the default branch."""
        raise NotImplementedError

    def add_status(self, repo: Any, sha: str, state: str, context: str, description: str | None = None) -> None:  # noqa: ANN401 - of either side
        raise NotImplementedError

    def fail(self, call: str, route: str, trouble: Trouble) -> None:
        """Let the next request of a call fail, which has this method and path."""
        raise NotImplementedError

    def reactions(self, subject: Any) -> list[str]:  # noqa: ANN401 - of either side
        raise NotImplementedError

    def workflow_client(self) -> AbstractAsyncContextManager[GitHub]:
        """Open a client with the token of a workflow."""
        raise NotImplementedError

    def filled_repo(self, name: str = "calc", **options: Any) -> Any:  # noqa: ANN401 - of either side
        """Create a repository with `FILES`, and the account `mona` with write access."""
        repo = self.add_repo(name, files=FILES, **options)
        self.people.add_collaborator(repo, "mona", "write")
        return repo

    def pull(self, repo: Any, *, branch: str = "topic", line: str = "line twenty\n", **options: Any) -> Any:  # noqa: ANN401 - of either side
        """Open a pull request that changes line 20 of `long.txt`."""
        files = {"long.txt": LINES.replace("line 20\n", line)}
        self.people.commit(repo, files, message="Twenty", author="mona", branch=branch)
        return self.people.open_pull(repo, author="mona", head=branch, title="Twenty", **options)

    async def ask(self, call: Awaitable[T]) -> T | None:
        """Record the answer of a call, or its error."""
        try:
            value = await call
        except GitHubError as error:
            self.note((type(error).__name__, int(error.status), error.limited, error.retry_after, str(error)))
        except (BotError, ValueError) as error:
            self.note((type(error).__name__, str(error)))
        else:
            self.note(value)
            return value
        return None

    async def must(self, call: Awaitable[T | None]) -> T:
        """Record the answer of a call that has one."""
        value = await self.ask(call)
        assert value is not None, self.answers[-1]
        return value

    def note(self, value: object) -> None:
        self.answers.append(self._plain(value))

    def _plain(self, value: object, name: str = "") -> object:
        if isinstance(value, BaseModel):
            return type(value).__name__, self._plain(dict(value))
        if is_dataclass(value):
            return type(value).__name__, self._plain({each.name: getattr(value, each.name) for each in fields(value)})
        if isinstance(value, Mapping):
            return {str(key): self._plain(each, str(key)) for key, each in value.items()}
        if isinstance(value, str | datetime):
            varies = name.endswith("_at") or name == "node_id" or isinstance(value, datetime)
            return bool(value) if varies else _VARYING.sub(self._ordinal, str(value))
        if isinstance(value, int) and value >= _FIRST_ID:
            return self._ordinal_of(str(value))
        return [self._plain(each) for each in value] if isinstance(value, list | tuple | frozenset) else value

    def _ordinal(self, match: re.Match[str]) -> str:
        text = match[0]
        if text.startswith("http"):
            return "https://host"
        return "" if text.startswith("?jwt") else self._ordinal_of(text[:10])

    def _ordinal_of(self, text: str) -> str:
        return self._ordinals.setdefault(text, f"({len(self._ordinals) + 1})")


class FakeWorld(World):
    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.site = self.people = FakeSite()
        self.github = FakeGitHub(self.site, redact=redact)
        self.site.add_user(owner, kind="Organization")
        for login in ("mona", "hubot"):
            self.site.add_user(login)

    @override
    def add_repo(self, name: str = "calc", *, installed: bool = True, **options: Any) -> Any:
        return self.site.add_repo(f"{self.owner}/{name}", installed=installed, **options)

    @override
    def permit(self, **permissions: str) -> None:
        held = {**APP_PERMISSIONS, **permissions}
        self.site.app.permissions = {name: level for name, level in held.items() if level}

    @override
    def set_branch(self, repo: Any, branch: str, sha: str | None) -> None:
        self.site.move_branch(repo, branch, sha)

    @override
    def commit_files(self, repo: Any, files: Mapping[str, FakeFile]) -> str:
        return self.site.commit(repo, files, message="Files", author="mona")

    @override
    def add_status(self, repo: Any, sha: str, state: str, context: str, description: str | None = None) -> None:
        self.site.add_status(repo, sha, state, context, description)

    @override
    def fail(self, call: str, route: str, trouble: Trouble) -> None:
        self.site.fail(call, _ERRORS[trouble], after=trouble == "drop_answer")

    @override
    def reactions(self, subject: Any) -> list[str]:
        return [content for _, content in subject.reactions]

    @asynccontextmanager
    @override
    async def workflow_client(self) -> AsyncIterator[GitHub]:
        yield FakeGitHub(self.site, redact=redact, workflow=True)


class HubWorld(World):
    def __init__(self, owner: str, hub: LocalHub, app: App) -> None:
        super().__init__(owner)
        self.hub = self.people = hub
        self._app = app
        hub.add_user(owner, kind="Organization")
        for login in ("mona", "hubot"):
            hub.add_user(login)
        first = hub.add_repo(f"{owner}/first")
        self._installation = hub.install(app, first)
        hub.take_out(self._installation, first)
        self.github = GitHub.for_installation(
            app.id,
            app.private_key_pem,
            self._installation,
            hub.api_url,
            redact=redact,
            seconds_between_writes=0,
        )

    @override
    def add_repo(self, name: str = "calc", *, installed: bool = True, **options: Any) -> Any:
        repo = self.hub.add_repo(f"{self.owner}/{name}", **options)
        if installed:
            self.hub.install(self._app, repo)
        return repo

    @override
    def permit(self, **permissions: str) -> None:
        held = {**APP_PERMISSIONS, **permissions}
        self.hub.permit(self._installation, {name: level for name, level in held.items() if level})

    @override
    def set_branch(self, repo: Any, branch: str, sha: str | None) -> None:
        if sha is None:
            git.delete_ref(repo.path, f"refs/heads/{branch}")
        else:
            git.update_ref(repo.path, f"refs/heads/{branch}", sha)
        self.hub.sync(repo, author="mona")

    @override
    def commit_files(self, repo: Any, files: Mapping[str, FakeFile]) -> str:
        head = self.hub.branches(repo)["main"]
        changes = [
            (file.mode, file.sha if file.mode == "160000" else git.write_blob(repo.path, file.content), path)
            for path, file in files.items()
        ]
        tree, author = git.write_tree(repo.path, head, changes), self.hub.add_user("mona")
        sha = threads.write_commit(self.hub._site, repo, tree=tree, parents=[head], message="Files", author=author)
        self.set_branch(repo, "main", sha)
        return sha

    @override
    def add_status(self, repo: Any, sha: str, state: str, context: str, description: str | None = None) -> None:
        site = self.hub._site
        status = CommitStatus(
            id=site.store.new_id(),
            repo_id=repo.id,
            sha=sha,
            state=state,
            context=context,
            description=description,
            target_url=None,
            creator_id=self.hub.add_user("mona").id,
            created_at=site.now(),
        )
        site.store.statuses.put(status)

    @override
    def fail(self, call: str, route: str, trouble: Trouble) -> None:
        method, _, pattern = route.partition(" ")
        self.hub.faults.add(method, pattern, trouble, retry_after=3600)

    @override
    def reactions(self, subject: Any) -> list[str]:
        return [reaction.content for reaction in self.hub.reactions(subject)]

    @asynccontextmanager
    @override
    async def workflow_client(self) -> AsyncIterator[GitHub]:
        actions = self.hub.add_app("github-actions") if (found := self._actions()) is None else found
        installation = self.hub.install(actions, self.hub.repo(self.name))
        async with client(self.hub) as plain:
            token = await installation_token(plain, actions, installation)
        async with GitHub.for_token(token, self.hub.api_url, redact=redact, seconds_between_writes=0) as github:
            yield github

    def _actions(self) -> App | None:
        return next((app for app in self.hub._site.store.apps if app.slug == "github-actions"), None)


def on_thread(number: int) -> CommentTarget:
    return CommentTarget(kind="thread", number=number)
