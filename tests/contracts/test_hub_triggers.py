"""The payloads that the hub sends when people do something, and the jobs that they become."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime

import pytest

from bot.domain.access import BotProfile, text_binding
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
from bot.events.delivery import Delivery, IgnoredDelivery
from bot.events.triggers import job_from
from localhub import App, LocalHub, Repo
from tests.builders import SECRET
from tests.hub_client import client, installation_token

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
    """A hub whose deliveries become jobs as in the webhook's receiver."""

    hub: LocalHub
    app: App
    repo: Repo
    installation: int
    seen: set[str] = field(default_factory=set)

    def outcome(self, event: str, action: str) -> Job | IgnoredDelivery:
        """Return the job of the newest delivery of this kind that no earlier call has read, or why there is none."""
        guid, body = next(
            (delivery.guid, delivery.body)
            for delivery in sorted(self.hub.deliveries, key=lambda delivery: -delivery.id)
            if (delivery.event, delivery.action) == (event, action) and delivery.guid not in self.seen
        )
        self.seen.add(guid)
        profile = BotProfile(own_app_id=self.app.id)
        return job_from(Delivery(json.loads(body), event=event, delivery_id=guid), profile)

    def reason(self, event: str, action: str) -> str:
        outcome = self.outcome(event, action)
        assert isinstance(outcome, IgnoredDelivery), outcome
        return outcome.reason

    def job(self, event: str, action: str) -> Job:
        outcome = self.outcome(event, action)
        assert isinstance(outcome, Job), outcome
        return outcome

    def pull(self) -> tuple[int, str]:
        """Open a pull request; return its number and head."""
        changed = {"calc.py": "def add(a, b):\n    return a + b\n"}
        self.hub.commit(self.repo, changed, message="Fix", author="mona", branch="topic")
        number = self.hub.open_pull(self.repo, author="mona", head="topic", title="Fix it", body="So.").number
        return number, self.hub.branches(self.repo)["topic"]


@pytest.fixture
def scene(hub: LocalHub) -> Scene:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", files=FILES)
    app = hub.add_app("codepilot", webhook_secret=SECRET, events=EVENTS)
    installation = hub.install(app, repo)
    hub.set_webhook(app, "http://127.0.0.1:9/webhook", SECRET)
    return Scene(hub=hub, app=app, repo=repo, installation=installation)


def test_comments_on_lines_and_the_bodies_of_reviews(scene: Scene) -> None:
    number, head = scene.pull()
    comment = scene.hub.review_comment(
        scene.repo, number, author="mona", body="/codepilot explain this", path="calc.py", line=2
    )
    job = scene.job("pull_request_review_comment", "created")
    assert (job.command, job.origin.id, job.origin.root) == (Explain(goal="this"), comment.id, comment.id)
    assert job.origin.lines is not None
    assert (job.origin.lines.path, job.origin.lines.line, job.origin.lines.commit_sha) == ("calc.py", 2, head)
    assert (job.head_sha, job.thread.number) == (head, number)
    assert scene.reason("pull_request_review", "submitted") == "the review contains no command"

    scene.hub.review_comment(scene.repo, number, author="mona", body="/codepilot fix it", in_reply_to=comment.id)
    assert scene.job("pull_request_review_comment", "created").origin.root == comment.id
    assert scene.reason("pull_request_review", "submitted") == "the review contains no command"

    made = scene.hub.review(scene.repo, number, author="mona", body="/codepilot review --model m1")
    job = scene.job("pull_request_review", "submitted")
    assert (job.command.verb, job.origin.kind, job.origin.id) == ("review", "review", made.id)


def test_labels_are_bound_to_the_text_or_commit_at_that_time(scene: Scene) -> None:
    issue = scene.hub.open_issue(scene.repo, author="mona", title="Off by one", body="`add(1, 1)` gives 3.")
    scene.hub.add_label(scene.repo, issue.number, "codepilot:auto", by="mona")
    bound_to = text_binding("Off by one", "`add(1, 1)` gives 3.")
    labelled = scene.job("issues", "labeled").command
    assert isinstance(labelled, LabelEvent)
    assert labelled == LabelEvent(label="codepilot:auto", bound_to=bound_to, at=labelled.at)
    assert datetime.fromisoformat(labelled.at).tzinfo is not None
    scene.hub.edit_thread(scene.repo, issue.number, by="mona", body="Delete everything.")
    scene.hub.add_label(scene.repo, issue.number, "codepilot", by="mona")
    job = scene.job("issues", "labeled")
    assert (job.command, job.origin.kind, job.thread.body) == (Fix(), "label", "Delete everything.")
    assert text_binding(job.thread.title, job.thread.body) != bound_to

    number, head = scene.pull()
    scene.hub.add_label(scene.repo, number, "codepilot:auto", by="mona")
    labelled = scene.job("pull_request", "labeled").command
    assert isinstance(labelled, LabelEvent)
    assert (labelled.label, labelled.bound_to) == ("codepilot:auto", head)


def test_the_events_of_a_pull_request(scene: Scene) -> None:
    number, _ = scene.pull()
    scene.hub.commit(scene.repo, {"more.txt": "More.\n"}, message="More", author="mona", branch="topic")
    moved = scene.hub.branches(scene.repo)["topic"]
    job = scene.job("pull_request", "synchronize")
    assert (job.command, job.lane) == (PushEvent(head_sha=moved), "event")
    scene.hub.set_draft(scene.repo, number, draft=True, by="mona")
    assert "converted_to_draft" in scene.reason("pull_request", "converted_to_draft")
    scene.hub.set_draft(scene.repo, number, draft=False, by="mona")
    assert scene.job("pull_request", "ready_for_review").command == Review(on="ready")
    scene.hub.close(scene.repo, number, by="mona")
    assert scene.job("pull_request", "closed").command == CloseEvent()


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
    job = scene.job("check_run", "requested_action")
    assert (job.command, job.actor.login, job.thread.number, job.origin.id) == (command, "mona", number, run.id)
    scene.hub.rerun(run, by="mona")
    assert scene.job("check_run", "rerequested").command == Retry(job_id="abcdefgh2345")


def test_a_red_workflow_of_the_repository_and_of_a_fork(scene: Scene) -> None:
    number, head = scene.pull()
    run = scene.hub.workflow_run(
        scene.repo, head_sha=head, head_branch="topic", conclusion="failure", actor="mona", event="pull_request"
    )
    job = scene.job("workflow_run", "completed")
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
    of_fork = scene.job("workflow_run", "completed")
    assert isinstance(of_fork.command, ChecksFailed)
    assert (of_fork.command.pull, of_fork.command.fork, of_fork.command.fork_id) == (0, "forker/calc", fork.id)


def test_a_red_check_of_another_app(scene: Scene) -> None:
    number, head = scene.pull()
    other = scene.hub.add_app("other-ci")
    scene.hub.check(scene.repo, other, head_sha=head, name="build", conclusion="failure")
    job = scene.job("check_run", "completed")
    assert isinstance(job.command, ChecksFailed)
    assert (job.command.name, job.command.pull, job.command.run_id) == ("build", number, 0)
    suite = scene.job("check_suite", "completed")
    assert isinstance(suite.command, ChecksFailed)
    assert (suite.command.name, suite.command.pull) == ("other-ci", number)


def test_the_app_is_taken_away(scene: Scene) -> None:
    scene.hub.suspend(scene.installation, by="mona")
    job = scene.job("installation", "suspend")
    assert (job.command, job.installation) == (AccessLost(), scene.installation)
    scene.hub.unsuspend(scene.installation, by="mona")
    scene.hub.take_out(scene.installation, scene.repo, by="mona")
    gone = scene.job("installation_repositories", "removed")
    assert gone.command == AccessLost(repo_ids=(scene.repo.id,))
    scene.hub.uninstall(scene.installation, by="mona")
    assert scene.job("installation", "deleted").command == AccessLost()
