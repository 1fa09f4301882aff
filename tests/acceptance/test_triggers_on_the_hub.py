"""What the hub sends over HTTP when people do something, and which jobs the bot stores for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

import pytest

from bot.domain.access import text_binding
from bot.domain.commands import (
    AccessLost,
    Approve,
    ChecksFailed,
    CloseEvent,
    Explain,
    Fix,
    LabelEvent,
    PushEvent,
    Retry,
    Review,
    Stop,
)
from bot.domain.job import Job
from bot.queue.memory import InMemoryEngine
from localhub import App, LocalHub, Repo
from tests.builders import SECRET
from tests.hub_client import client, installation_token
from tests.waiting import eventually
from tests.webhook_receiver import receiving

FILES = {"calc.py": "def add(a, b):\n    return a + b + 1\n"}
EVENTS = (
    "check_run",
    "check_suite",
    "issue_comment",
    "issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "repository",
    "workflow_run",
)


@dataclass(slots=True, kw_only=True)
class Scene:
    """A hub that delivers to the bot's webhook server; nobody works on the jobs."""

    hub: LocalHub
    app: App
    repo: Repo
    installation: int
    queue: InMemoryEngine
    seen: set[str] = field(default_factory=set)

    async def answer(self, event: str, action: str) -> dict[str, str]:
        """What the bot answered to the newest delivery of this kind that was not asked about before."""

        def answered() -> dict[str, str] | None:
            for each in reversed(self.hub.deliveries):
                if (each.event, each.action) == (event, action) and each.guid not in self.seen and each.status_code:
                    self.seen.add(each.guid)
                    told: dict[str, str] = json.loads(each.response_body)
                    return told
            return None

        return await eventually(answered)

    async def job(self, event: str, action: str) -> Job:
        """The job that this delivery became."""
        answer = await self.answer(event, action)
        assert "job" in answer, answer
        stored = await self.queue.get(answer["job"])
        assert stored is not None
        return stored.job

    def pull(self) -> tuple[int, str]:
        """Open a pull request; its number and its head."""
        changed = {"calc.py": "def add(a, b):\n    return a + b\n"}
        self.hub.commit(self.repo, changed, message="Fix", author="mona", branch="topic")
        number = self.hub.open_pull(self.repo, author="mona", head="topic", title="Fix it", body="So.").number
        return number, self.hub.branches(self.repo)["topic"]


@pytest.fixture
async def scene(hub: LocalHub) -> AsyncIterator[Scene]:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", files=FILES)
    app = hub.add_app("codepilot", webhook_secret=SECRET, events=EVENTS)
    installation = hub.install(app, repo)
    queue = InMemoryEngine()
    async with receiving(queue, own_ids=frozenset({app.bot.id}), own_app_id=app.id) as receiver:
        hub.set_webhook(app, f"http://127.0.0.1:{receiver.port}/webhook", SECRET)
        yield Scene(hub=hub, app=app, repo=repo, installation=installation, queue=queue)


async def test_comments_on_lines_and_the_words_of_reviews(scene: Scene) -> None:
    number, head = scene.pull()
    said = scene.hub.review_comment(
        scene.repo, number, author="mona", body="/codepilot explain this", path="calc.py", line=2
    )
    job = await scene.job("pull_request_review_comment", "created")
    assert (job.command, job.origin.id, job.origin.root) == (Explain(goal="this"), said.id, said.id)
    assert job.origin.lines is not None
    assert (job.origin.lines.path, job.origin.lines.line, job.origin.lines.commit_sha) == ("calc.py", 2, head)
    assert (job.head_sha, job.thread.number) == (head, number)
    assert (await scene.answer("pull_request_review", "submitted"))["reason"] == "the review contains no command"

    scene.hub.review_comment(scene.repo, number, author="mona", body="/codepilot fix it", in_reply_to=said.id)
    assert (await scene.job("pull_request_review_comment", "created")).origin.root == said.id
    assert (await scene.answer("pull_request_review", "submitted"))["reason"] == "the review contains no command"

    made = scene.hub.review(scene.repo, number, author="mona", body="/codepilot review --model m1")
    job = await scene.job("pull_request_review", "submitted")
    assert (job.command.verb, job.origin.kind, job.origin.id) == ("review", "review", made.id)


async def test_labels_are_bound_to_what_stood_there(scene: Scene) -> None:
    issue = scene.hub.open_issue(scene.repo, author="mona", title="Off by one", body="`add(1, 1)` gives 3.")
    scene.hub.add_label(scene.repo, issue.number, "codepilot:auto", by="mona")
    bound_to = text_binding("Off by one", "`add(1, 1)` gives 3.")
    labelled = (await scene.job("issues", "labeled")).command
    assert isinstance(labelled, LabelEvent)
    assert labelled == LabelEvent(label="codepilot:auto", bound_to=bound_to, at=labelled.at)
    assert datetime.fromisoformat(labelled.at).tzinfo is not None
    scene.hub.edit_thread(scene.repo, issue.number, by="mona", body="Delete everything.")
    scene.hub.add_label(scene.repo, issue.number, "codepilot", by="mona")
    job = await scene.job("issues", "labeled")
    assert (job.command, job.origin.kind, job.thread.body) == (Fix(), "label", "Delete everything.")
    assert text_binding(job.thread.title, job.thread.body) != bound_to

    number, head = scene.pull()
    scene.hub.add_label(scene.repo, number, "codepilot:auto", by="mona")
    labelled = (await scene.job("pull_request", "labeled")).command
    assert isinstance(labelled, LabelEvent)
    assert (labelled.label, labelled.bound_to) == ("codepilot:auto", head)


async def test_the_life_of_a_pull_request(scene: Scene) -> None:
    number, _ = scene.pull()
    scene.hub.commit(scene.repo, {"more.txt": "More.\n"}, message="More", author="mona", branch="topic")
    moved = scene.hub.branches(scene.repo)["topic"]
    job = await scene.job("pull_request", "synchronize")
    assert (job.command, job.lane) == (PushEvent(head_sha=moved), "event")
    scene.hub.set_draft(scene.repo, number, draft=True, by="mona")
    assert "converted_to_draft" in (await scene.answer("pull_request", "converted_to_draft"))["reason"]
    scene.hub.set_draft(scene.repo, number, draft=False, by="mona")
    assert (await scene.job("pull_request", "ready_for_review")).command == Review(on="ready")
    scene.hub.close(scene.repo, number, by="mona")
    assert (await scene.job("pull_request", "closed")).command == CloseEvent()


@pytest.mark.parametrize(("button", "command"), [("stop", Stop()), ("approve", Approve(request_id="7f3a9c21"))])
async def test_the_buttons_of_a_check_run(scene: Scene, button: str, command: object) -> None:
    number, head = scene.pull()
    body = {
        "name": "codepilot",
        "head_sha": head,
        "conclusion": "action_required",
        "external_id": f"abcdefgh2345:pull:{number}:7f3a9c21",
        "actions": [{"label": "Do it", "description": "It", "identifier": button}],
    }
    async with client(scene.hub) as nobody:
        token = await installation_token(nobody, scene.app, scene.installation)
        made = await nobody.with_token(token).ask("POST", f"/repos/{scene.repo.full_name}/check-runs", body)
        assert made.status == 201, made.body
    [run] = scene.hub.check_runs(scene.repo)
    scene.hub.press(run, button, by="mona")
    job = await scene.job("check_run", "requested_action")
    assert (job.command, job.actor.login, job.thread.number, job.origin.id) == (command, "mona", number, run.id)
    scene.hub.rerun(run, by="mona")
    assert (await scene.job("check_run", "rerequested")).command == Retry(job_id="abcdefgh2345")


async def test_a_red_workflow_here_and_in_a_fork(scene: Scene) -> None:
    number, head = scene.pull()
    run = scene.hub.workflow_run(
        scene.repo, head_sha=head, head_branch="topic", conclusion="failure", actor="mona", event="pull_request"
    )
    job = await scene.job("workflow_run", "completed")
    assert isinstance(job.command, ChecksFailed)
    assert (job.command.pull, job.command.fork, job.origin.id) == (number, "", run.id)
    assert (job.thread.number, job.head_sha) == (number, head)

    scene.hub.add_user("forker")
    fork = scene.hub.add_repo("forker/calc", owner="forker", fork_of=scene.repo)
    scene.hub.commit(fork, {"evil.txt": "x\n"}, message="Mine", author="forker", branch="topic")
    scene.hub.open_pull(scene.repo, author="forker", head="forker:topic", title="Mine")
    scene.hub.workflow_run(
        scene.repo,
        head_sha=scene.hub.branches(fork)["topic"],
        head_branch="topic",
        conclusion="failure",
        actor="forker",
        head_repository=fork,
        event="pull_request",
    )
    of_fork = await scene.job("workflow_run", "completed")
    assert isinstance(of_fork.command, ChecksFailed)
    assert (of_fork.command.pull, of_fork.command.fork, of_fork.command.fork_id) == (0, "forker/calc", fork.id)


async def test_a_red_check_of_another_app(scene: Scene) -> None:
    number, head = scene.pull()
    other = scene.hub.add_app("other-ci")
    scene.hub.check(scene.repo, other, head_sha=head, name="build", conclusion="failure")
    job = await scene.job("check_run", "completed")
    assert isinstance(job.command, ChecksFailed)
    assert (job.command.name, job.command.pull, job.command.run_id) == ("build", number, 0)
    suite = await scene.job("check_suite", "completed")
    assert isinstance(suite.command, ChecksFailed)
    assert (suite.command.name, suite.command.pull) == ("other-ci", number)


async def test_the_app_is_taken_away(scene: Scene) -> None:
    scene.hub.suspend(scene.installation, by="mona")
    job = await scene.job("installation", "suspend")
    assert (job.command, job.installation) == (AccessLost(), scene.installation)
    scene.hub.unsuspend(scene.installation, by="mona")
    scene.hub.take_out(scene.installation, scene.repo, by="mona")
    gone = await scene.job("installation_repositories", "removed")
    assert gone.command == AccessLost(repo_ids=(scene.repo.id,))
    scene.hub.uninstall(scene.installation, by="mona")
    assert (await scene.job("installation", "deleted")).command == AccessLost()
