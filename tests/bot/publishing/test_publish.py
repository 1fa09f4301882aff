"""A publication through the real client, a real hub and real git, however often it is started again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from agent_runtime import Outcome, Policy, Status
from bot.gate.permissions import Grant
from bot.github import GitHub, GitHubError
from bot.localhub import LocalHub
from bot.localhub.model import Repo
from bot.publishing.plan import Commit, Publication, plan
from bot.publishing.publish import Delivered, ForbiddenTargetError, Target, publish
from bot.publishing.redact import Redactor
from bot.workspace import Source, Tree, Workspaces
from tests.builders import a_job
from tests.changes import a_change, a_file
from tests.origin import git

SECRET = "a-secret-of-the-bots-own"
REDACTOR = Redactor([SECRET])


@dataclass(slots=True)
class Remembered:
    """A job's memory without a database; `deaf` stands for a worker killed before it could write."""

    values: dict[str, str] = field(default_factory=dict)
    deaf: bool = False

    async def recall(self, key: str) -> str | None:
        return self.values.get(key)

    async def remember(self, key: str, value: str) -> None:
        if not self.deaf:
            self.values[key] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    hub: LocalHub
    repo: Repo
    github: GitHub
    tree: Tree
    target: Target
    memory: Remembered

    async def publication(self, *, branch: str | None = None) -> Publication:
        grant = Grant(
            policy=Policy(), publish="pull_branch" if branch else "new_branch", bound_to_sha=self.tree.base_sha
        )
        outcome = Outcome(status=Status.FINISHED, summary=f"Fixed it. {SECRET}")
        job = a_job(number=1, kind="pull" if branch else "issue")
        change = await self.tree.change()
        return plan(job, grant, outcome, change, base_branch="main", head_branch=branch, server=self.hub.url)

    async def send(self, publication: Publication) -> Delivered:
        return await publish(
            self.github, self.memory, publication, target=self.target, pusher=self.tree, redactor=REDACTOR
        )


@pytest.fixture
async def world(hub: LocalHub, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", private=True, files={"a.txt": "1\n", "b.txt": "1\n"})
    hub.open_issue(repo, author="mona", title="It breaks")
    app = hub.add_app("codepilot")
    github = GitHub.for_installation(
        app.id,
        app.private_key_pem,
        hub.install(app, repo),
        hub.api_url,
        redact=REDACTOR.redact,
        seconds_between_writes=0,
    )
    async with github:
        facts = await github.repo_facts("mona/calc")
        source = Source(
            url=facts.clone_url,
            token=await github.clone_token("mona/calc"),
            ref="refs/heads/main",
            sha=hub.branches(repo)["main"],
        )
        async with Workspaces(tmp_path_factory.mktemp("state")).open("j1", facts.id, source) as tree:
            target = Target(repo="mona/calc", default_branch="main", clone_url=facts.clone_url)
            yield World(hub=hub, repo=repo, github=github, tree=tree, target=target, memory=Remembered())


def pulls(world: World) -> list[int]:
    return [issue.number for issue in world.hub.issues(world.repo) if issue.number != 1]


async def test_a_change_becomes_a_branch_a_commit_and_a_pull_request(world: World) -> None:
    (world.tree.path / "a.txt").write_text("2\n")
    (world.tree.path / "b.txt").unlink()
    delivered = await world.send(await world.publication())
    assert delivered.branch == "codepilot/issue-1-j1"
    assert delivered.commit_sha == world.hub.branches(world.repo)["codepilot/issue-1-j1"]
    assert git(world.repo.path, "ls-tree", "--name-only", delivered.commit_sha) == "a.txt"
    assert git(world.repo.path, "show", f"{delivered.commit_sha}:a.txt") == "2"
    assert delivered.pull_number == 2
    assert delivered.pull_url == f"{world.hub.url}/mona/calc/pull/2"
    body = world.hub.issue(world.repo, 2).body or ""
    assert "Fixes #1" in body
    assert SECRET not in body
    assert world.hub.branches(world.repo)["main"] == world.tree.base_sha


async def test_what_the_commit_api_cannot_say_is_pushed(world: World) -> None:
    (world.tree.path / "a.txt").chmod(0o755)
    (world.tree.path / "link").symlink_to("a.txt")
    delivered = await world.send(await world.publication())
    assert delivered.commit_sha is not None
    listing = git(world.repo.path, "ls-tree", delivered.commit_sha)
    assert [line.split()[0] for line in listing.splitlines()] == ["100755", "100644", "120000"]
    assert "Co-authored-by: hubot-owner" in git(world.repo.path, "log", "-1", "--format=%b", delivered.commit_sha)
    assert delivered.pull_number == 2


@pytest.mark.parametrize("mode", [0o644, 0o755])
async def test_started_again_after_a_kill_nothing_is_sent_twice(world: World, mode: int) -> None:
    (world.tree.path / "a.txt").write_text("2\n")
    (world.tree.path / "a.txt").chmod(mode)
    publication = await world.publication()
    world.memory.deaf = True
    first = await world.send(publication)
    assert await world.send(publication) == first
    world.memory.deaf = False
    assert await world.send(publication) == first
    assert await world.send(publication) == first
    assert pulls(world) == [2]
    assert git(world.repo.path, "rev-list", "--count", f"main..{first.commit_sha}") == "1"


@pytest.mark.parametrize("path", ["*/graphql", "*/git/refs", "*/pulls"])
async def test_a_lost_answer_changes_nothing(world: World, path: str) -> None:
    (world.tree.path / "a.txt").write_text("2\n")
    world.hub.faults.add("POST", path, "drop_answer")
    delivered = await world.send(await world.publication())
    assert delivered.pull_number == 2
    assert pulls(world) == [2]
    assert git(world.repo.path, "rev-list", "--count", f"main..{delivered.commit_sha}") == "1"


@pytest.mark.parametrize("mode", [0o644, 0o755])
async def test_a_person_who_pushed_meanwhile_is_never_overwritten(world: World, mode: int) -> None:
    (world.tree.path / "a.txt").write_text("2\n")
    (world.tree.path / "a.txt").chmod(mode)
    theirs = world.hub.commit(world.repo, {"a.txt": "theirs\n"}, message="Mine", author="mona", branch="topic")
    delivered = await world.send(await world.publication(branch="topic"))
    assert delivered.commit_sha is None
    assert "moved while the bot was working" in delivered.withheld
    assert world.hub.branches(world.repo)["topic"] == theirs


async def test_a_pull_requests_own_branch_gets_the_commit(world: World) -> None:
    git(world.repo.path, "branch", "topic", world.tree.base_sha)
    (world.tree.path / "a.txt").write_text("2\n")
    delivered = await world.send(await world.publication(branch="topic"))
    assert world.hub.branches(world.repo)["topic"] == delivered.commit_sha
    assert delivered.pull_number is None


async def test_nothing_planned_nothing_sent(world: World) -> None:
    empty = Publication(commit=None, pull_request=None, withheld="because")
    assert await world.send(empty) == Delivered(withheld="because")
    assert list(world.hub.branches(world.repo)) == ["main"]


async def test_a_refused_pull_request_leaves_the_commit_and_says_why(world: World) -> None:
    (world.tree.path / "a.txt").write_text("2\n")
    publication = await world.publication()
    assert publication.pull_request is not None
    astray = Publication(
        commit=publication.commit,
        pull_request=type(publication.pull_request)(base="absent", title="T", body="B", draft=False),
    )
    delivered = await world.send(astray)
    assert delivered.commit_sha is not None
    assert "the pull request is not" in delivered.withheld


async def test_an_outage_is_an_error_and_the_next_try_completes_it(world: World) -> None:
    (world.tree.path / "a.txt").write_text("2\n")
    publication = await world.publication()
    world.hub.faults.add("POST", "*/pulls", "secondary_rate_limited", retry_after=3600)
    with pytest.raises(GitHubError):
        await world.send(publication)
    assert (await world.send(publication)).pull_number == 2


async def test_a_secret_in_a_file_is_not_published(world: World) -> None:
    (world.tree.path / "a.txt").write_text(f"token = {SECRET}\n")
    delivered = await world.send(await world.publication())
    assert delivered.withheld.startswith("A secret of the bot's stands in `a.txt`.")
    assert list(world.hub.branches(world.repo)) == ["main"]


@pytest.mark.parametrize("branch", ["main", "MAIN", "refs/heads/main", "refs/tags/v1", "-x", "release"])
async def test_a_branch_that_is_not_ours_to_make_is_refused(world: World, branch: str) -> None:
    commit = Commit(
        branch=branch,
        expected_head=world.tree.base_sha,
        create_branch=True,
        title="T",
        body="",
        change=a_change(a_file()),
    )
    with pytest.raises(ForbiddenTargetError):
        await world.send(Publication(commit=commit, pull_request=None))


async def test_a_pull_request_from_the_default_branch_is_withheld(world: World) -> None:
    (world.tree.path / "a.txt").write_text("2\n")
    delivered = await world.send(await world.publication(branch="main"))
    assert "default branch" in delivered.withheld
    assert world.hub.branches(world.repo)["main"] == world.tree.base_sha
