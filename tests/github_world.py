"""A hub with a repository, an issue and a pull request, and the bot's own client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.github.client import GitHub
from bot.github.types import CommentTarget
from bot.publishing.redact import Redactor
from localhub import App, Issue, LocalHub, Repo

SECRET = "a-secret-of-the-bots-own"
LINES = "".join(f"line {n}\n" for n in range(1, 41))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    hub: LocalHub
    repo: Repo
    issue: Issue
    github: GitHub
    app: App
    token: str
    sha: str

    @property
    def name(self) -> str:
        return self.repo.full_name

    @property
    def thread(self) -> CommentTarget:
        return CommentTarget(kind="thread", number=self.issue.number)

    def pull(self) -> Issue:
        """A pull request that changes line 20 of `long.txt`, in the middle of a file that is there."""
        changed = LINES.replace("line 20\n", "line twenty\n")
        self.hub.commit(self.repo, {"long.txt": changed}, message="Twenty", author="mona", branch="topic")
        return self.hub.open_pull(self.repo, author="mona", head="topic", title="Twenty")


@asynccontextmanager
async def opened_world(hub: LocalHub) -> AsyncIterator[World]:
    """Make it, and close the client at the end."""
    token = hub.add_user("mona").token
    files = {"a.txt": "1\n", "b.txt": "1\n", "long.txt": LINES}
    repo = hub.add_repo("mona/calc", owner="mona", files=files)
    issue = hub.open_issue(repo, author="mona", title="It breaks", body="Badly.", labels=["bug"])
    app = hub.add_app("codepilot")
    github = GitHub.for_installation(
        app.id,
        app.private_key_pem,
        hub.install(app, repo),
        hub.api_url,
        redact=Redactor([SECRET]).redact,
        seconds_between_writes=0,
    )
    async with github:
        sha = hub.branches(repo)["main"]
        yield World(hub=hub, repo=repo, issue=issue, github=github, app=app, token=token, sha=sha)
