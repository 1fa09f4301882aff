"""`gh`, GitHub's own command line, works with the hub over TLS."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from localhub import EndedJob, LocalHub, Repo
from tests.tls_hosts import authority


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A hub over TLS, and what `gh` needs to use it."""

    hub: LocalHub
    repo: Repo
    directory: Path
    variables: Mapping[str, str]
    run_id: int

    async def gh(self, *arguments: str, inside: str = "", fails: bool = False) -> str:
        """Run `gh` in a directory of the place, assert that it succeeds, unless it `fails`, and return its output."""
        process = await asyncio.create_subprocess_exec(
            "gh",
            *arguments,
            cwd=self.directory / inside,
            env=self.variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, said = await process.communicate()
        assert (process.returncode != 0) is fails, (arguments, out.decode(), said.decode())
        return out.decode() + said.decode()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    if shutil.which("gh") is None:
        pytest.skip("gh is not installed; on Debian and Ubuntu: apt-get install gh")
    trusted = authority(tmp_path, "localhost")
    async with LocalHub(tmp_path / "hub", host="localhost", tls=trusted.server) as hub:
        mona = hub.add_user("mona")
        hub.add_user("eve")
        repo = hub.add_repo("acme/widgets", owner="mona", files={"README.md": "# Widgets\n", "a.py": "x = 1\n"})
        hub.open_issue(repo, author="eve", title="It breaks", body="Really, @mona", labels=["bug"])
        sha = hub.commit(repo, {"a.py": "x = 2\n"}, message="Two", author="eve", branch="topic")
        hub.open_pull(repo, author="eve", head="topic", title="Two", body="As said")
        job = EndedJob(name="test", conclusion="failure", steps=[("Run tests", "failure")], log="1 failed\n")
        run = hub.workflow_run(repo, head_sha=sha, head_branch="topic", conclusion="failure", actor="eve", jobs=[job])
        host = hub.url.removeprefix("https://")
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "GH_HOST": host,
            "GH_ENTERPRISE_TOKEN": mona.token,
            "GH_REPO": f"{host}/acme/widgets",
            "GH_PROMPT_DISABLED": "1",
            "NO_COLOR": "1",
            "SSL_CERT_FILE": str(trusted.pem),
            "GIT_SSL_CAINFO": str(trusted.pem),
        }
        yield Place(hub=hub, repo=repo, directory=tmp_path, variables=variables, run_id=run.id)


@pytest.mark.slow
async def test_gh_reads_and_writes_threads(place: Place) -> None:
    assert "Logged in" in await place.gh("auth", "status")
    assert "It breaks" in await place.gh("issue", "list", "--label", "bug", "--author", "eve")
    assert "It breaks" in await place.gh("issue", "list", "--mention", "mona")
    assert "It breaks" not in await place.gh("issue", "list", "--mention", "eve")
    await place.gh("issue", "comment", "1", "--body", "Me too")
    shown = await place.gh("issue", "view", "1", "--comments")
    assert "author:\tmona" in shown
    assert "Me too" in shown
    assert "/issues/3" in await place.gh("issue", "create", "--title", "Another", "--body", "Of mine")
    await place.gh("issue", "close", "3")
    assert place.hub.issue(place.repo, 3).state == "closed"
    assert "bug" in await place.gh("label", "list")


@pytest.mark.slow
async def test_gh_reviews_and_merges_a_pull_request(place: Place) -> None:
    assert "topic" in await place.gh("pr", "list")
    await place.gh("pr", "comment", "2", "--body", "Nice")
    await place.gh("pr", "review", "2", "--approve", "--body", "Good")
    assert '"mergeable":"UNKNOWN"' in await place.gh(
        "pr", "view", "2", "--json", "mergeable"
    )  # GitHub begins to compute
    shown = await place.gh("pr", "view", "2", "--json", "title,mergeable,reviewDecision,additions,headRefName,commits")
    for fact in ('"mergeable":"MERGEABLE"', '"reviewDecision":"APPROVED"', '"additions":1', '"headRefName":"topic"'):
        assert fact in shown
    await place.gh("pr", "merge", "2", "--squash")
    pull = place.hub.issue(place.repo, 2).pull
    assert pull is not None
    assert pull.merged_at is not None


EDITS = (
    ("repo edit acme/widgets --description Widgets --add-topic tools --homepage http://127.0.0.1/", ""),
    ("repo list acme", "Widgets"),
    ("repo view acme/widgets --json languages,repositoryTopics,primaryLanguage,stargazerCount", '"tools"'),
    ("repo fork acme/widgets --clone=false", ""),
    ("repo list --fork", "mona/widgets"),
    ("issue create --title Another --body B --label bug --assignee mona --milestone First", "/issues/3"),
    ("issue edit 3 --title Renamed --body C --add-label help --remove-label bug --remove-assignee mona", "/issues/3"),
    ("issue edit 3 --add-assignee mona", "/issues/3"),
    ("issue view 3 --json title,body,labels,assignees,milestone", '"title":"Renamed"'),
    ("issue comment 3 --body first", "issuecomment"),
    ("issue comment 3 --body second --edit-last", "issuecomment"),
    ("issue view 3 --comments", "second"),
    ("issue lock 3 --reason spam", ""),
    ("issue unlock 3", ""),
    ("issue close 3 --reason 'not planned'", "Closed"),
    ("issue reopen 3", "Reopened"),
    ("issue status", "Renamed"),
    ("pr edit 2 --title Better --add-label bug --add-reviewer mona --add-assignee mona --milestone First", "/pull/2"),
    ("pr edit 2 --base main --body Text --remove-label bug", "/pull/2"),
    ("pr view 2 --json title,files,latestReviews,reviewRequests,potentialMergeCommit", '"path":"a.py"'),
    ("pr diff 2 --name-only", "a.py"),
    ("pr ready 2 --undo", "draft"),
    ("pr ready 2", "ready for review"),
    ("pr lock 2", ""),
    ("pr unlock 2", ""),
    ("pr close 2", "Closed"),
    ("pr reopen 2", "Reopened"),
    ("label edit bug --name fault --color 00ff00", ""),
    ("label delete help --confirm", ""),
    ("search prs Better --author eve", "Better"),
    ("search issues --assignee @me", "Renamed"),
    ("secret list", ""),
    ("status", "acme/widgets#3"),
    ("api repos/acme/widgets/milestones", '"open_issues": 2'),
)


@pytest.mark.slow
async def test_gh_edits_what_it_shows(place: Place) -> None:
    place.hub.add_milestone(place.repo, "First", author="mona")
    checks = await place.gh("pr", "checks", "2", fails=True)
    assert "test\tfail" in checks
    shown = await place.gh("pr", "view", "2", "--json", "statusCheckRollup")
    assert '"workflowName":"CI"' in shown
    for command, expected in (("label create help", ""), *EDITS):
        shown = await place.gh(*shlex.split(command))
        assert expected in shown, (command, shown)
    issue = place.hub.issue(place.repo, 3)
    assert (issue.body, issue.state, issue.state_reason) == ("C", "open", "reopened")
    pull = place.hub.issue(place.repo, 2)
    assert (pull.title, pull.body, pull.labels) == ("Better", "Text", ())


@pytest.mark.slow
async def test_gh_makes_and_shows_releases(place: Place) -> None:
    assert "/releases/tag/v1" in await place.gh("release", "create", "v1", "--title", "One", "--notes", "First")
    assert "One" in await place.gh("release", "list")
    assert "First" in await place.gh("release", "view", "v1")


@pytest.mark.slow
async def test_gh_shows_a_repository_its_runs_and_their_logs(place: Place) -> None:
    assert "# Widgets" in await place.gh("repo", "view", "acme/widgets")
    await place.gh("repo", "clone", "acme/widgets", "clone")
    assert (place.directory / "clone" / "a.py").read_text() == "x = 1\n"
    # `gh` compares the hosts of remotes without their ports.
    known = place.directory / "known"
    known.mkdir()
    (known / "hosts.yml").write_text(
        f"localhost:\n    user: mona\n    oauth_token: {place.variables['GH_ENTERPRISE_TOKEN']}\n"
    )
    without = {name: value for name, value in place.variables.items() if name != "GH_HOST"}
    elsewhere = replace(place, variables=without | {"GH_CONFIG_DIR": str(known)})
    await elsewhere.gh("pr", "checkout", "2", inside="clone")
    assert (place.directory / "clone" / "a.py").read_text() == "x = 2\n"
    assert "failure" in await place.gh("run", "list")
    assert "Run tests" in await place.gh("run", "view", str(place.run_id))
    assert "1 failed" in await place.gh("run", "view", str(place.run_id), "--log")
