"""A publication's way out: a real hub, the real client, real git, and a memory without a database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bot.domain.job import Job
from bot.git.change import Change
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from bot.github.client import GitHub
from bot.github.types import PullDraft
from bot.publishing.outcome import Published
from bot.publishing.plan import CommitPlan, Publication, branch_name, commit_body, pull_body
from bot.publishing.publish import Target, publish
from bot.publishing.redact import Redactor
from localhub import Issue, LocalHub, Repo
from tests.builders import a_job
from tests.origin import git

T = TypeVar("T")

SECRET = "a-secret-of-the-bots-own"
REDACTOR = Redactor([SECRET])


@dataclass(slots=True)
class Remembered(Generic[T]):
    """A part of a job's record without a database; `deaf` stands for a worker killed before it could write."""

    value: T
    deaf: bool = False

    async def read(self) -> T:
        return self.value

    async def update(self, change: Callable[[T], T]) -> T:
        if not self.deaf:
            self.value = change(self.value)
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """Everything between a change and GitHub."""

    hub: LocalHub
    repo: Repo
    github: GitHub
    tree: Tree
    target: Target
    record: Remembered[Published]
    installation: int

    @property
    def base(self) -> str:
        return self.tree.base_sha

    def job(self, kind: str = "issue") -> Job:
        return a_job(number=1, kind=kind)

    async def publication(self, *, branch: str | None = None, change: Change | None = None) -> Publication:
        """Plan the publication of the workspace: to an existing branch, or to one of ours with a pull request."""
        change = change or await self.tree.change()
        job = self.job("pull" if branch else "issue")
        commit = CommitPlan(
            branch=branch or branch_name(job),
            expected_head=change.base_sha,
            create_branch=branch is None,
            title=f"Fix it {SECRET}",
            body=commit_body(job),
            change=change,
        )
        body = pull_body(job, f"Fixed it. {SECRET}", server=self.hub.url)
        request = PullDraft(base="main", title=commit.title, body=body, draft=False)
        return Publication(commit=commit, pull_request=None if branch else request)

    async def send(
        self, publication: Publication, *, replay: bool = False, dry_run: bool = False, redactor: Redactor = REDACTOR
    ) -> Published:
        return await publish(
            self.github,
            self.record,
            publication,
            job=self.job("issue" if publication.pull_request else "pull"),
            target=self.target,
            pusher=self.tree,
            redactor=redactor,
            replay=replay,
            dry_run=dry_run,
        )

    def pulls(self) -> list[Issue]:
        """Pull requests that the bot opened."""
        return [issue for issue in self.hub.issues(self.repo) if issue.number != 1]


def sha_of(published: Published) -> str:
    """The commit that was published; empty without one."""
    return published.commit.sha if published.commit else ""


def branch_of(published: Published) -> str:
    """The branch of the commit that was published; empty without one."""
    return published.commit.branch if published.commit else ""


def pull_of(published: Published) -> int:
    """The number of the pull request that has the commit; 0 without one."""
    return published.pull.number if published.pull else 0


def cause_of(sent: Publication | Published) -> str | None:
    """Return the cause of an incomplete publication, or None."""
    return sent.withheld.cause if sent.withheld else None


def reason_of(sent: Publication | Published) -> str:
    """The same, as people read it."""
    return sent.withheld.reason if sent.withheld else ""


@asynccontextmanager
async def an_outlet(hub: LocalHub, state: Path, *, files: Mapping[str, str] | None = None) -> AsyncIterator[Outlet]:
    """A repository with issue 1, and a checkout of the commit that `main` and `topic` stand at."""
    hub.add_user("mona")
    files = {**(files or {}), "a.txt": "1\n", "b.txt": "1\n", "long.txt": "".join(f"line {n}\n" for n in range(1, 41))}
    repo = hub.add_repo("mona/calc", owner="mona", private=True, files=files)
    hub.open_issue(repo, author="mona", title="It breaks")
    base = hub.branches(repo)["main"]
    git(repo.path, "branch", "topic", base)
    hub.sync(repo, author="mona")
    app = hub.add_app("codepilot")
    installation = hub.install(app, repo)
    github = GitHub.for_installation(
        app.id,
        app.private_key_pem,
        installation,
        hub.api_url,
        redact=REDACTOR.redact,
        seconds_between_writes=0,
    )
    async with github:
        facts = await github.repos.get("mona/calc")
        token = await github.tokens.for_clone("mona/calc")
        source = Source(url=facts.clone_url, token=token, ref="refs/heads/main", sha=base)
        async with Workspaces(state).open("j1", facts.id, source) as tree:
            yield Outlet(
                hub=hub,
                repo=repo,
                github=github,
                tree=tree,
                target=Target(repo=facts),
                record=Remembered(Published()),
                installation=installation,
            )
