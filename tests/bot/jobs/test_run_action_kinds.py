"""Declared actions from the proposal to GitHub: each kind by the App, once over faults, and as an approved list."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.domain.actions import KINDS
from bot.domain.job import JobState
from bot.github.actions import DispatchedRun
from tests.fakes.agent import Script, propose, reply
from tests.fakes.github import FakeActions, no_answer
from tests.seam import Seam, open_seam
from tests.seam_step import run_step
from tests.stage import FILES

DECLARED = """\
actions:
  add-labels: {labels: [bug, "area/*"]}
  remove-labels: {labels: [needs-triage]}
  set-type: {types: [Bug]}
  set-assignees: {assignees: [hubot]}
  set-milestone: {milestones: [v1]}
  set-fields: {fields: [Size, Level]}
  close: {reasons: [duplicate], target: repository}
  reopen: {target: repository}
  create-issue: {title-prefix: "[part] ", labels: [task]}
  add-sub-issue: {}
  comment: {target: repository}
  request-reviewers: {reviewers: [hubot], target: repository}
  update-body: {target: repository}
  set-draft: {target: repository}
  start-workflow: {workflows: [nightly.yml], refs: [develop], inputs: [suite]}
  create-discussion: {categories: [Ideas]}
  comment-discussion: {}
  notice: {}
  missing-information: {}
"""
NIGHTLY = "on:\n  workflow_dispatch:\n    inputs:\n      suite: {required: true}\njobs: {}\n"
ACTION_FILES = FILES | {".github/codepilot.yml": DECLARED, ".github/workflows/nightly.yml": NIGHTLY}
_ISSUE, _PULL, _OWN, _CLOSED, _AGAIN, _DISCUSSION = range(1, 7)
PROPOSALS: Mapping[str, dict[str, Any]] = {
    "add-labels": {"labels": ["bug", "area/api"]},
    "remove-labels": {"labels": ["needs-triage"]},
    "set-type": {"type": "Bug"},
    "set-assignees": {"assignees": ["hubot"]},
    "set-milestone": {"milestone": "v1"},
    "set-fields": {"fields": {"Size": "3", "Level": "High"}},
    "close": {"reason": "duplicate", "duplicate_of": _ISSUE, "issue": _AGAIN},
    "reopen": {"issue": _CLOSED},
    "create-issue": {"title": "Parse", "body": "Write the parser. @everybody"},
    "add-sub-issue": {"sub_issue": "new-1"},
    "comment": {"body": "See the issue.", "issue": _PULL},
    "request-reviewers": {"reviewers": ["hubot"], "issue": _PULL},
    "update-body": {"body": "The list is empty.", "issue": _OWN},
    "set-draft": {"draft": True, "issue": _PULL},
    "start-workflow": {"workflow": "nightly.yml", "ref": "develop", "inputs": {"suite": "all"}},
    "create-discussion": {"category": "Ideas", "title": "Why?", "body": "So that it is fast."},
    "comment-discussion": {"discussion": _DISCUSSION, "body": "Agreed."},
    "notice": {"text": "Nothing else is to do."},
    "missing-information": {"text": "Which version is it?"},
}
ALL = [reply(*(propose(kind, **values) for kind, values in PROPOSALS.items()), completion="Proposed.")]


@asynccontextmanager
async def actions_stage(
    directory: Path, *scripts: Script, level: str = "auto", is_workflow: bool = False
) -> AsyncIterator[Seam]:
    """Open a repository of an organization with all that `PROPOSALS` name."""
    async with open_seam(directory, *scripts, files=ACTION_FILES, operator={"level": level}) as stage:
        hub, repo = stage.hub, stage.repo
        app = hub.workflow_app if is_workflow else hub.app
        hub.add_user("acme", kind="Organization")
        repo.full_name = "acme/calc"
        app.permissions |= {"actions": "write", "discussions": "write", "issue_fields": "" if is_workflow else "read"}
        hub.add_collaborator(repo, "mona", "admin")
        hub.add_collaborator(repo, "hubot", "write")
        for label in ("area/api", "task"):
            hub.create_label(repo, label)
        hub.add_milestone(repo, "v1", author="mona")
        hub.add_issue_type("acme", "Bug")
        hub.add_issue_field("acme", "Size", "number")
        hub.add_issue_field("acme", "Level", "single_select", options=["High"])
        hub.commit(repo, {"a.txt": "1\n"}, message="Develop", author="mona", branch="develop")
        hub.open_issue(repo, author="mona", title="It breaks", labels=["needs-triage", "bug"])
        hub.label(repo, _ISSUE, "needs-triage", by="mona")
        hub.open_pull(repo, author="mona", head="develop", title="Develop")
        hub.open_issue(repo, author=app.bot.login, title="A list", body="1. One")
        hub.open_issue(repo, author="mona", title="Closed")
        hub.close(repo, _CLOSED, by="mona")
        hub.open_issue(repo, author="mona", title="It breaks again")
        hub.open_discussion(repo, "Ideas", author="mona", title="How?")
        yield stage


def _effects(stage: Seam) -> dict[str, object]:
    """Return what each kind left on GitHub."""
    hub, repo = stage.hub, stage.repo
    issue, pull, again = (hub.issue(repo, number) for number in (_ISSUE, _PULL, _AGAIN))
    created = [thread for thread in hub.issues(repo) if thread.number > _DISCUSSION and thread.pull is None]
    assert pull.pull is not None
    return {
        "labels": issue.labels,
        "type": issue.type,
        "assignees": [hub.users[number].login for number in issue.assignees],
        "milestone": issue.milestone,
        "fields": issue.fields,
        "closed": (again.state, again.state_reason, again.duplicate_of == issue.id),
        "reopened": hub.issue(repo, _CLOSED).state,
        "created": [(thread.title, thread.labels, thread.parent) for thread in created],
        "comments": len([each for each in hub.comments(repo, _PULL) if "See the issue." in each.body]),
        "reviewers": [hub.users[number].login for number in pull.pull.reviewers],
        "body": (hub.issue(repo, _OWN).body or "").startswith("The list is empty."),
        "draft": pull.pull.draft,
        "runs": [(run.event, run.head_branch, run.inputs) for run in repo.runs],
        "discussions": [each.title for each in hub.discussions(repo)],
        "answers": [each.body.startswith("Agreed.") for each in hub.discussion_comments(repo, _DISCUSSION)],
    }


APPLIED: Mapping[str, object] = {
    "labels": ["bug", "area/api"],
    "type": "Bug",
    "assignees": ["hubot"],
    "milestone": "v1",
    "fields": {"Size": 3, "Level": "High"},
    "closed": ("closed", "duplicate", True),
    "reopened": "open",
    "created": [("[part] Parse", ["task"], _ISSUE)],
    "comments": 1,
    "reviewers": ["hubot"],
    "body": True,
    "draft": True,
    "runs": [("workflow_dispatch", "develop", {"suite": "all"})],
    "discussions": ["How?", "Why?"],
    "answers": [True],
}


def _signs(status: str) -> list[str]:
    return re.findall(r"^- (\S+) \d+\. ", status, re.MULTILINE)


async def test_the_app_applies_each_kind_and_lists_it(tmp_path: Path) -> None:
    assert PROPOSALS.keys() == KINDS.keys()
    async with actions_stage(tmp_path, ALL) as stage:
        end = await stage.ask(_ISSUE, "/codepilot ask What is left?")
        assert end.state is JobState.DONE
        assert _effects(stage) == APPLIED
        bodies = [thread.body or "" for thread in stage.hub.issues(stage.repo)]
        assert not any("@everybody" in body.replace("`@everybody`", "") for body in bodies)
    assert _signs(end.status) == ["✅"] * len(KINDS)
    for text in ("Nothing else is to do.", "Which version is it?"):
        assert text in end.status


async def test_a_workflow_applies_each_kind_but_fields_whose_list_its_token_cannot_read(tmp_path: Path) -> None:
    async with actions_stage(tmp_path, ALL, is_workflow=True) as stage:
        stage.say(_ISSUE, "/codepilot ask What is left?")
        run = await run_step(stage, "issue_comment", CODEPILOT_LEVEL="auto")
        assert run.ended is JobState.DONE, run.summary
        assert _effects(stage) == {**APPLIED, "fields": {}}
    assert "there is no issue field named `Size`" in run.summary


_CREATING = ("create_issue", "create_discussion", "comment_discussion", "start_workflow", "add_sub_issue", "close")


@pytest.mark.parametrize("call", _CREATING)
async def test_an_action_is_applied_once_though_its_answer_was_lost(tmp_path: Path, call: str) -> None:
    async with actions_stage(tmp_path, ALL) as stage:
        stage.hub.fail(f"actions.{call}", no_answer(), after=True)
        command = stage.say(_ISSUE, "/codepilot ask What is left?")
        for _ in range(5):
            await stage.settle()
            stage.advance(300.0)
        await stage.settle()
        assert (await stage.end_of(command)).state is JobState.DONE
        assert _effects(stage) == APPLIED


async def test_a_second_start_of_a_workflow_is_not_taken_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = [propose("start-workflow", workflow="nightly.yml", ref="develop", inputs={"suite": each}) for each in "ab"]
    async with actions_stage(tmp_path, [reply(*starts, completion="Proposed.")]) as stage:
        declared = DECLARED.replace("inputs: [suite]", "inputs: [suite], max: 2")
        stage.hub.commit(stage.repo, {".github/codepilot.yml": declared}, message="Two", author="mona", branch="main")
        start = FakeActions.start_workflow

        async def lose_second(
            client: FakeActions, repo: str, workflow: str, *, branch: str, inputs: Mapping[str, str]
        ) -> DispatchedRun:
            if inputs == {"suite": "b"} and not lost:
                lost.append(1)
                raise no_answer()
            return await start(client, repo, workflow, branch=branch, inputs=inputs)

        lost: list[int] = []
        monkeypatch.setattr(FakeActions, "start_workflow", lose_second)
        command = stage.say(_ISSUE, "/codepilot ask What is left?")
        for _ in range(5):
            await stage.settle()
            stage.advance(300.0)
        await stage.end_of(command)
        await stage.end_of(command)
        assert lost
        assert [run.inputs for run in stage.repo.runs] == [{"suite": "a"}, {"suite": "b"}]


async def test_a_list_waits_at_the_level_ask_and_single_actions_can_be_denied(tmp_path: Path) -> None:
    async with actions_stage(tmp_path, ALL, level="ask") as stage:
        command = stage.say(_ISSUE, "/codepilot ask What is left?")
        job_id = await stage.waits(command)
        before = _effects(stage)
        assert before["labels"] == ["needs-triage"]
        assert before["discussions"] == ["How?"]
        await stage.restart()
        stage.say(_ISSUE, "/codepilot deny 1, 15 and 16")
        await stage.settle()
        assert await stage.state_of(job_id) is JobState.WAITING
        stage.say(_ISSUE, "/codepilot approve")
        await stage.settle()
        end = await stage.ended(job_id)
        wanted = {**APPLIED, "labels": [], "runs": [], "discussions": ["How?"]}
        assert _effects(stage) == wanted
    assert [number for number, sign in enumerate(_signs(end.status), 1) if sign == "🚫"] == [1, 15, 16]


async def test_an_action_without_its_permission_fails_alone_and_names_it(tmp_path: Path) -> None:
    async with actions_stage(tmp_path, ALL) as stage:
        stage.hub.app.permissions |= {"actions": "read"}
        del stage.hub.app.permissions["discussions"]
        end = await stage.ask(_ISSUE, "/codepilot ask What is left?")
        effects = _effects(stage)
    assert end.state is JobState.DONE
    assert (effects["runs"], effects["discussions"]) == ([], ["How?"])
    assert {**effects, "runs": APPLIED["runs"], "discussions": APPLIED["discussions"], "answers": [True]} == APPLIED
    assert "`actions: write`" in end.status
    assert sorted(set(_signs(end.status))) == sorted({"✅", "❌", "⚠️"})
