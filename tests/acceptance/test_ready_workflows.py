"""The workflows to copy: each runs under `act`, as it stands but for the line `uses:`, against a hub.

`test_walks.py` runs the one for comments, too.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localhub import Issue, LocalHub, Repo, User
from tests.act import ActRun, filled_in, run_workflow, with_packages_of_tests
from tests.origin import commit_of, git
from tests.source_files import ROOT
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, SEE_IT_FAIL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_REVIEW = "````completion\nIt adds a topic.\n\n```json\n[]\n```\n````\n"
_WORKFLOWS = ROOT / "docs" / "workflows"


@pytest.fixture(scope="session")
def action(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The action as a runner downloads it, with the packages of this environment: installing has tests of its own."""
    directory = tmp_path_factory.mktemp("action") / "codepilot"
    with_packages_of_tests(directory)
    return directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A repository on the hub, and what runs its workflows."""

    hub: LocalHub
    repo: Repo
    bot: User
    directory: Path
    action: Path
    inputs: dict[str, str] = field(default_factory=dict)
    sent: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    runs: list[ActRun] = field(default_factory=list)

    async def run(self, name: str, event: str, *replies: str, **payload: Any) -> ActRun:  # noqa: ANN401 - an event's payload is any JSON
        """Run a workflow for the last event of that name, with a model that gives these replies."""
        directory = self.directory / f"{name}-{len(self.runs)}"
        script = directory.with_suffix(".yaml")
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(json.dumps([{"reply": reply} for reply in replies]), encoding="utf-8")
        # The hub sends what an App is sent, which names its installation; a workflow's event does not.
        inputs = {"provider": "scripted", "model": str(script), "allow-root": "yes", **self.inputs}
        file = _WORKFLOWS / f"{name}.yml"
        text = filled_in(file.read_text(encoding="utf-8"), inputs)
        commit = commit_of(self.repo.path, f".github/workflows/{file.name}", text)
        sent = {key: value for key, value in self.sent.get(event, {}).items() if key != "installation"}
        run = await asyncio.to_thread(
            run_workflow,
            directory,
            file,
            action=self.action,
            event=event,
            payload={**sent, **payload},
            inputs=inputs,
            token=self.bot.token,
            repository=self.repo.full_name,
            api_url=self.hub.api_url,
            server_url=self.hub.url,
            variables={
                "GITHUB_RUN_ID": str(7 + len(self.runs)),
                "GITHUB_REPOSITORY_ID": str(self.repo.id),
                "GITHUB_ACTOR_ID": str(self.bot.id),
                "GITHUB_WORKFLOW_SHA": commit,
            },
        )
        assert self.bot.token not in run.log
        self.runs.append(run)
        return run


@pytest.fixture
async def runner(tmp_path: Path, action: Path) -> AsyncIterator[Runner]:
    async with LocalHub(tmp_path / "hub") as hub:
        hub.add_user("mona")
        bot = hub.add_user("github-actions[bot]", kind="Bot")
        repo = hub.add_repo("octo/calc", owner="mona", files=FILES)
        hub.add_collaborator(repo, bot.login, "write")
        hub.install(hub.add_app("any"), repo, by="mona")
        made = Runner(hub=hub, repo=repo, bot=bot, directory=tmp_path / "runner", action=action)
        hub.observe(on_delivery=made.sent.__setitem__)
        yield made


def _pull(runner: Runner) -> Issue:
    """The one pull request."""
    [pull] = [each for each in runner.hub.issues(runner.repo) if each.pull is not None]
    return pull


def _opened(runner: Runner) -> Issue:
    """A pull request of a person."""
    runner.hub.commit(runner.repo, {"topic.txt": "A topic.\n"}, message="Add", author="mona", branch="topic")
    return runner.hub.open_pull(runner.repo, author="mona", head="topic", title="Add a topic")


def _fixed(runner: Runner, prefix: str = "codepilot/") -> bool:
    """Whether the one branch of the bot has the right file."""
    [branch] = [name for name in runner.hub.branches(runner.repo) if name.startswith(prefix)]
    return git(runner.repo.path, "show", f"{branch}:calc.py") == FIXED_CALC.strip()


@pytest.mark.long
async def test_the_comment_bot_goes_on_with_the_work_of_earlier_runs(runner: Runner) -> None:
    issue = runner.hub.open_issue(runner.repo, author="mona", title="Adding is off by one")
    runner.inputs["session-key"] = "a-key-of-more-than-thirty-two-characters"

    async def say(words: str, *replies: str) -> str:
        runner.hub.comment(runner.repo, issue.number, author="mona", body=words)
        run = await runner.run("comments", "issue_comment", *replies)
        assert run.succeeded, run.log[-6000:]
        return runner.hub.comments(runner.repo, issue.number)[-1].body

    plan = await say("/codepilot plan", "````completion\n1. Take the one out.\n````\n")
    assert "`/codepilot continue` starts the work on this plan." in plan
    assert COMPLETION in await say("/codepilot continue", FIX)
    assert _fixed(runner)
    first = _pull(runner)
    assert "Nothing of the change is left, so I closed its pull request." in await say("/codepilot undo")
    assert runner.hub.issue(runner.repo, first.number).state == "closed"
    assert COMPLETION in await say("/codepilot retry", FIX)
    pulls = [each for each in runner.hub.issues(runner.repo) if each.pull is not None]
    assert sorted(pull.state for pull in pulls) == ["closed", "open"]


async def test_the_label_bot_does_what_a_label_asks(runner: Runner) -> None:
    issue = runner.hub.open_issue(runner.repo, author="mona", title="Adding is off by one")
    runner.hub.add_label(runner.repo, issue.number, "codepilot", by="mona")
    run = await runner.run("labels", "issues", FIX)
    assert run.succeeded, run.log[-6000:]
    assert COMPLETION in runner.hub.comments(runner.repo, issue.number)[-1].body
    assert _fixed(runner)


async def test_the_review_on_open_reviews_a_pull_request(runner: Runner) -> None:
    pull = _opened(runner)
    run = await runner.run("review", "pull_request", _REVIEW)
    assert run.succeeded, run.log[-6000:]
    [review] = runner.hub.reviews(runner.repo, pull.number)
    assert "It adds a topic." in review.body


async def test_the_review_on_open_starts_nothing_for_a_draft(runner: Runner) -> None:
    pull = _opened(runner)
    payload = dict(runner.sent["pull_request"])
    run = await runner.run("review", "pull_request", pull_request={**payload["pull_request"], "draft": True})
    assert run.succeeded, run.log[-6000:]
    assert "Install Codepilot" not in run.log
    assert runner.hub.comments(runner.repo, pull.number) == []


async def test_the_ci_fixer_opens_a_pull_request_for_a_red_default_branch(runner: Runner) -> None:
    head = runner.hub.branches(runner.repo)["main"]
    runner.hub.workflow_run(runner.repo, head_sha=head, head_branch="main", conclusion="failure", actor="mona")
    run = await runner.run("fix-ci", "workflow_run", SEE_IT_FAIL, FIX)
    assert run.succeeded, run.log[-6000:]
    assert _fixed(runner, "codepilot/fix-ci-"), run.log[-9000:]
    assert COMPLETION in (_pull(runner).body or "")


async def test_the_ci_fixer_commits_to_a_red_pull_request(runner: Runner) -> None:
    pull = _opened(runner)
    ran = functools.partial(runner.hub.workflow_run, runner.repo, actor="mona")
    branches = runner.hub.branches(runner.repo)
    ran(head_sha=branches["main"], head_branch="main", conclusion="success")
    ran(head_sha=branches["topic"], head_branch="topic", conclusion="failure", event="pull_request")
    run = await runner.run("fix-ci", "workflow_run", SEE_IT_FAIL, FIX)
    assert run.succeeded, run.log[-6000:]
    assert _fixed(runner, "topic"), run.log[-9000:]
    [status] = runner.hub.comments(runner.repo, pull.number)
    assert COMPLETION in status.body


async def test_the_maintenance_opens_a_pull_request(runner: Runner) -> None:
    runner.hub.commit(runner.repo, {"more.txt": "More.\n"}, message="Add", author="mona", branch="main")
    where = {key: runner.sent["push"][key] for key in ("repository", "sender")}
    run = await runner.run("maintenance", "workflow_dispatch", FIX, ref="refs/heads/main", inputs={}, **where)
    assert run.succeeded, run.log[-6000:]
    assert _fixed(runner)
    assert COMPLETION in (_pull(runner).body or "")


@pytest.mark.parametrize("label", ["bug", "wontfix"])
async def test_the_triage_sets_the_declared_labels_on_an_issue_of_a_stranger(runner: Runner, label: str) -> None:
    declared = "actions:\n  add-labels: {labels: [bug, question], from: anyone}\n"
    runner.hub.commit(runner.repo, {".github/codepilot.yml": declared}, message="Declare", author="mona")
    for name in ("bug", "wontfix"):
        runner.hub.create_label(runner.repo, name)
    runner.hub.add_user("stranger")
    issue = runner.hub.open_issue(runner.repo, author="stranger", title="Adding is off by one")
    proposal = f"```codepilot\npropose('add-labels', labels=['{label}'])\n```\n"
    run = await runner.run("triage", "issues", proposal, "````completion\nIt counts one too many.\n````\n")
    assert run.succeeded, run.log[-6000:]
    assert runner.hub.issue(runner.repo, issue.number).labels == (("bug",) if label == "bug" else ())
    assert runner.hub.comments(runner.repo, issue.number) == []
