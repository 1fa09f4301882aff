"""Proposed actions: judged at the end of a run, shown in one list, approved or denied, and applied once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.domain.job import JobState
from bot.git.change import Change
from bot.jobs import results
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import add_pull
from bot.jobs.context import JobContext
from bot.publishing.outcome import Published
from tests.fakes.agent import Script, propose, reply, write
from tests.fakes.github import FakeActions, outage
from tests.seam import FIXED_CALC, Seam, open_seam
from tests.stage import FILES

ACTIONS = """\
actions:
  add-labels: {labels: [bug, "area/*"], from: anyone}
  close: {reasons: [not-planned, duplicate]}
  create-issue: {title-prefix: "[part] ", labels: [bug], max: 3}
  add-sub-issue: {max: 3}
  comment: {target: created, max: 2}
  notice: {}
"""
DECLARED = FILES | {".github/codepilot.yml": ACTIONS}
AUTO: dict[str, Any] = {"level": "auto"}
ASK: dict[str, Any] = {"level": "ask"}
SPLIT: Script = [
    reply(
        propose("add-labels", labels=["bug"]),
        propose("create-issue", title="Subtraction", body="For @mona: `sub` is missing."),
        propose("add-sub-issue", sub_issue="new-1"),
        propose("comment", issue="new-1", body="Begin here."),
        propose("close", reason="not-planned"),
        completion="Two parts.",
    )
]


async def _paused(stage: Seam, number: int, words: str = "/codepilot ask") -> tuple[Any, str, str]:
    """Give a command whose proposals wait; return its comment, and the id and the text of the request."""
    command = stage.say(number, words)
    job_id = await stage.waits(command)
    record = await stage.record(job_id)
    request = record.approvals.open_request
    assert request is not None
    assert request.kind == "actions"
    return command, request.request_id, stage.bot_comments(number)[0]


def _issue(stage: Seam) -> int:
    for name in ("bug", "area/core", "codepilot:auto"):
        stage.hub.create_label(stage.repo, name)
    return stage.issue().number


async def test_at_auto_they_are_applied_in_order_and_shown_with_their_results(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=AUTO) as stage:
        number = _issue(stage)
        end = await stage.ask(number, "/codepilot ask what are the parts?")
        assert end.state is JobState.DONE
        thread, created = stage.repo.threads[number], stage.repo.threads[max(stage.repo.threads)]
        assert {label.casefold() for label in thread.labels} == {"bug"}
        assert thread.state == "closed"
        assert created.title == "[part] Subtraction"
        assert "@mona" not in (created.body or "").replace("`@mona`", "")
        assert [comment.body.partition("\n")[0] for comment in created.comments] == ["Begin here."]
        for line in (
            f"- ✅ 1. Label #{number} with `bug`",
            f"- ✅ 2. Create the issue `[part] Subtraction` ([#{created.number}](",
            f"- ✅ 3. Make `#{created.number}` a sub-issue of #{number}",
            f"- ✅ 5. Close #{number} as not planned",
        ):
            assert line in end.status
        assert end.status.startswith("### ✅ Done")


async def test_at_ask_one_list_waits_and_what_is_for_anyone_does_not(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, status = await _paused(stage, number)
        thread = stage.repo.threads[number]
        assert {label.casefold() for label in thread.labels} == {"bug"}
        assert [each.state for each in stage.repo.threads.values()] == ["open"]
        assert "2. Create the issue `[part] Subtraction` (new-1)\n   Labels: bug\n   | For `@mona`: `sub` is" in status
        assert f"- ✅ 1. Label #{number} with `bug`" in status
        assert f"/codepilot deny {request_id} <numbers>" in status
        stage.say(number, f"/codepilot approve {request_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        assert thread.state == "closed"
        assert end.status.count("- ✅") == 5


async def test_single_actions_are_denied_by_number_and_the_rest_still_waits(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, _ = await _paused(stage, number)
        await stage.ask(number, "/codepilot deny 4 and #5, too early")
        status = stage.bot_comments(number)[0]
        assert "- 🚫 5. Close" in status
        assert "5. Close" not in status.split("```")[1]
        stage.say(number, f"/codepilot approve {request_id}")
        end = await stage.end_of(command)
        thread, created = stage.repo.threads[number], stage.repo.threads[max(stage.repo.threads)]
        assert (thread.state, created.title, created.comments) == ("open", "[part] Subtraction", [])
        assert f"- 🚫 4. Comment on `#{created.number}`" in end.status


async def test_what_is_about_a_denied_issue_is_denied_with_it(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, _ = await _paused(stage, number)
        await stage.ask(number, "/codepilot deny 2")
        status = stage.bot_comments(number)[0]
        assert "3. Make" not in status.split("```")[1]
        stage.say(number, f"/codepilot approve {request_id}")
        end = await stage.end_of(command)
        assert end.status.startswith("### ✅ Done")
        assert end.status.count("its issue was denied") == 2
        assert stage.repo.threads[number].state == "closed"


async def test_a_list_whose_every_action_is_denied_waits_no_more(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, _ = await _paused(stage, number)
        unknown = await stage.ask(number, f"/codepilot deny {request_id} 1")
        assert await stage.refusal(unknown) == "no-such-action"
        stage.say(number, f"/codepilot deny {request_id} 2 3 4 5")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        assert end.status.count("- 🚫") == 4
        assert list(stage.repo.threads) == [number]


async def test_a_denial_of_the_list_has_its_reason_and_publishes_the_rest(tmp_path: Path) -> None:
    script = [reply(write("calc.py", FIXED_CALC), propose("close", reason="not-planned"), completion="Fixed.")]
    async with open_seam(tmp_path, script, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, _ = await _paused(stage, number, "/codepilot fix")
        assert stage.nothing_published()
        stage.say(number, f"/codepilot deny {request_id} it stays open until the release")
        end = await stage.end_of(command)
        assert "- 🚫 1. Close" in end.status
        assert "@mona said no: it stays open until the release" in end.status.replace("`@mona`", "@mona")
        assert len(stage.pulls()) == 1
        assert stage.repo.threads[number].state == "open"


async def test_what_github_no_longer_has_is_refused_and_named_in_the_headline(tmp_path: Path) -> None:
    script = [reply(propose("add-labels", labels=["area/gone", "bug"]), propose("notice", text="All"), completion="x")]
    async with open_seam(tmp_path, script, files=DECLARED, operator=AUTO) as stage:
        number = _issue(stage)
        end = await stage.ask(number, "/codepilot ask")
        assert end.status.startswith("### ⚠️ Done; 1 of 2 actions not done")
        assert "the label `area/gone` does not exist" in end.status
        assert not stage.repo.threads[number].labels


async def test_undeclared_actions_do_not_exist_for_the_agent(tmp_path: Path) -> None:
    script = [
        reply(propose("reopen")),
        reply(completion="No such action.", expect=("There is no action `reopen`",)),
    ]
    async with open_seam(tmp_path, script, files=DECLARED, operator=AUTO) as stage:
        end = await stage.ask(_issue(stage), "/codepilot ask")
        assert end.state is JobState.DONE
        assert "**Actions**" not in end.status


async def test_a_dry_run_applies_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        end = await stage.ask(number, "/codepilot fix --dry-run")
        assert end.state is JobState.DONE
        assert "not applied in a dry run" in end.status
        assert (stage.repo.threads[number].labels, len(stage.repo.threads)) == ([], 1)


@pytest.mark.parametrize("call", ["create_issue", "add_labels", "close", "add_sub_issue"])
async def test_an_action_whose_answer_is_lost_is_done_once(tmp_path: Path, call: str) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=AUTO) as stage:
        number = _issue(stage)
        stage.hub.fail(f"actions.{call}", outage(), after=True)
        end = await stage.ask(number, "/codepilot ask")
        assert end.state is JobState.DONE
        [created] = [thread for thread in stage.repo.threads.values() if thread.title == "[part] Subtraction"]
        assert len(created.comments) == 1
        assert end.status.count("- ✅") == 5


async def test_the_run_of_a_stranger_without_a_declared_kind_for_anyone_has_no_proposals(tmp_path: Path) -> None:
    script = [reply(completion="Fine.", expect_not=("propose",))]
    async with open_seam(tmp_path, script, files=FILES, operator=AUTO) as stage:
        assert (await stage.ask(_issue(stage), "/codepilot ask")).state is JobState.DONE


async def test_a_killed_worker_repeats_no_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=AUTO) as stage:
        number = _issue(stage)
        command = stage.say(number, "/codepilot ask")
        with monkeypatch.context() as patched:
            patched.setattr(FakeActions, "add_sub_issue", stage.hang)
            await stage.settle()
        assert len(stage.repo.threads) == 2
        assert not stage.repo.threads[2].comments
        await stage.restart()
        end = await stage.end_of(command)
        assert len(stage.repo.threads) == 2
        assert stage.repo.threads[2].comments[0].body.startswith("Begin here.")
        assert end.status.count("- ✅") == 5


async def test_a_job_that_fails_for_good_names_what_it_did(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SPLIT, files=DECLARED, operator=AUTO) as stage:
        number = _issue(stage)
        stage.hub.fail("actions.close", outage(), times=500)
        command = stage.say(number, "/codepilot ask")
        for _ in range(26):
            await stage.settle()
            stage.advance(900.0)
        end = await stage.end_of(command)
        assert end.state is JobState.FAILED
        assert end.status.count("- ✅") == 4
        assert "5. Close" in end.status


async def test_an_approval_is_for_the_listed_actions_alone(tmp_path: Path) -> None:
    declared = ACTIONS.replace(", from: anyone", "")
    script = [
        reply(propose("add-labels", labels=["area/gone"]), propose("close", reason="not-planned"), completion="x")
    ]
    async with open_seam(tmp_path, script, files=FILES | {".github/codepilot.yml": declared}, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, status = await _paused(stage, number)
        assert "area/gone" not in status.split("```")[1]
        stage.hub.create_label(stage.repo, "area/gone")
        stage.say(number, f"/codepilot approve {request_id}")
        end = await stage.end_of(command)
        assert stage.repo.threads[number].state == "closed"
        assert not stage.repo.threads[number].labels
        assert "- ⚠️ 1. Label" in end.status


async def test_a_denial_holds_though_the_level_no_longer_asks(tmp_path: Path) -> None:
    script = [reply(propose("close", reason="not-planned"), completion="x")]
    async with open_seam(tmp_path, script, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, _ = await _paused(stage, number)
        stage.hub.label(stage.repo, number, "codepilot:auto", by="mona")
        stage.say(number, f"/codepilot deny {request_id} not yet")
        end = await stage.end_of(command)
        assert stage.repo.threads[number].state == "open"
        assert "- 🚫 1. Close" in end.status


async def test_a_declaration_that_changed_since_the_approval_changes_no_action(tmp_path: Path) -> None:
    script = [reply(propose("create-issue", title="Part", body="It."), completion="x")]
    async with open_seam(tmp_path, script, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, request_id, _ = await _paused(stage, number)
        changed = ACTIONS.replace("labels: [bug], max: 3", 'labels: ["area/core"], max: 3')
        stage.hub.commit(stage.repo, {".github/codepilot.yml": changed}, message="Edit", author="mona", branch="main")
        stage.say(number, f"/codepilot approve {request_id}")
        end = await stage.end_of(command)
        assert len(stage.repo.threads) == 1
        assert "The approved list did not have it in this form." in end.status


async def test_the_text_of_an_issue_created_in_the_run_is_replaced(tmp_path: Path) -> None:
    declared = f"{ACTIONS}  update-body: {{target: created}}\n"
    script = [
        reply(
            propose("create-issue", title="Part", body="It."),
            propose("update-body", issue="new-1", body="Better."),
            completion="x",
        )
    ]
    async with open_seam(tmp_path, script, files=FILES | {".github/codepilot.yml": declared}, operator=AUTO) as stage:
        number = _issue(stage)
        end = await stage.ask(number, "/codepilot ask")
        assert end.state is JobState.DONE
        assert (stage.repo.threads[number + 1].body or "").startswith("Better.")


async def test_a_stop_while_the_list_waits_publishes_nothing(tmp_path: Path) -> None:
    script = [reply(write("calc.py", FIXED_CALC), propose("close", reason="not-planned"), completion="Fixed.")]
    async with open_seam(tmp_path, script, files=DECLARED, operator=ASK) as stage:
        number = _issue(stage)
        command, _, _ = await _paused(stage, number, "/codepilot fix")
        stage.say(number, "/codepilot stop")
        end = await stage.end_of(command)
        assert stage.nothing_published()
        assert stage.repo.threads[number].state == "open"
        assert "1. Close #1 as not planned: Stopped by" in end.status


async def test_assignees_of_the_time_of_publishing_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = "actions:\n  set-assignees: {assignees: [hubot]}\n"
    script = [reply(write("calc.py", FIXED_CALC), propose("set-assignees", assignees=["hubot"]), completion="Fixed.")]
    async with open_seam(tmp_path, script, files=FILES | {".github/codepilot.yml": declared}, operator=AUTO) as stage:
        stage.hub.add_collaborator(stage.repo, "hubot", "write")
        number, mona = _issue(stage), stage.hub.user("mona")

        async def assign_before(
            context: JobContext, snapshot: ThreadSnapshot, published: Published, change: Change
        ) -> Published:
            stage.repo.threads[number].assignees.append(mona.id)
            return await add_pull(context, snapshot, published, change)

        monkeypatch.setattr(results, "add_pull", assign_before)
        end = await stage.ask(number, "/codepilot fix")
        assert end.state is JobState.DONE
        assert len(stage.repo.threads[number].assignees) == 2


async def test_the_operators_start_label_is_not_set_though_the_file_names_another(tmp_path: Path) -> None:
    declared = 'labels: {start: "go"}\nactions:\n  add-labels: {labels: ["*"]}\n'
    script = [reply(propose("add-labels", labels=["codepilot"]), completion="x")]
    async with open_seam(tmp_path, script, files=FILES | {".github/codepilot.yml": declared}, operator=AUTO) as stage:
        number = _issue(stage)
        stage.hub.create_label(stage.repo, "codepilot")
        end = await stage.ask(number, "/codepilot ask")
        assert "the label `codepilot` starts a run" in end.status
        assert not stage.repo.threads[number].labels


async def test_actions_are_not_applied_without_the_change_that_a_person_denied(tmp_path: Path) -> None:
    workflow = ".github/workflows/ci.yml"
    script = [reply(write(workflow, "on: push\n"), propose("close", reason="not-planned"), completion="Added CI.")]
    async with open_seam(tmp_path, script, files=DECLARED, operator=AUTO) as stage:
        number = _issue(stage)
        command = stage.say(number, "/codepilot fix")
        await stage.waits(command)
        stage.say(number, "/codepilot deny not here")
        end = await stage.end_of(command)
        assert stage.repo.threads[number].state == "open"
        assert "1. Close #1 as not planned: The change was denied." in end.status
