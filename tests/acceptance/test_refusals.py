"""Commands that the bot refuses or fails: one report, for the user concerned, and no files left."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from bot.domain.job import JobState
from bot.jobs.record import ServiceOutage, StoredRecord
from localhub import LocalHub, Trouble
from tests.builders import a_comment_event, signature
from tests.durable import begun, runnable
from tests.stage import FIX, FIXED_CALC, WEBHOOK_SECRET, staged
from tests.waiting import eventually


async def test_who_may_not_write_gets_one_reaction_and_nothing_else(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        hub.add_collaborator(stage.repo, "passer-by", "triage")
        issue = stage.issue()
        for author in ("passer-by", hub.add_user("stranger").login):
            command = stage.say(issue.number, "/codepilot fix", author=author)
            end = await stage.end_of(command)
            assert end.state is JobState.REFUSED
            assert stage.reactions(command) == ["confused"]
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []
        assert stage.nothing_published()
        assert list((stage.data / "workspaces" / "mirrors").iterdir()) == []


async def test_a_branch_of_any_name_that_git_takes_is_worked_on(hub: LocalHub, tmp_path: Path) -> None:
    branch = "fix(\u00fc)/\U0001f41b-$HOME&100%'`id`;a=b,#1"
    async with staged(hub, tmp_path, [FIX]) as stage:
        pull = stage.pull(branch)
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.bot_branches() == {}


@pytest.mark.parametrize("trouble", ["503", "404", "drop"])
async def test_a_job_waits_for_git_and_is_done_when_it_answers(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: Trouble
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        issue = stage.issue()
        hub.faults.add("GET", "*/info/refs", trouble, times=99)
        command = stage.say(issue.number, "/codepilot fix")
        await eventually(lambda: "The repository could not be fetched: git on GitHub" in caplog.text)
        hub.faults.clear()
        assert (await stage.end_of(command)).state is JobState.DONE
        [line] = [each for each in caplog.records if "could not be fetched" in each.getMessage()]
        assert line.exc_info is None
        assert len(stage.bot_comments(issue.number)) == 1


async def test_a_clone_that_is_refused_for_too_long_is_told_with_a_remedy(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, held=True) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id, now = await stage.job_of(command), time.time()
        outage = ServiceOutage(
            service="git", reason="", since=now - 700, retry_at=now, until=now, doubtful_since=now - 700
        )
        await StoredRecord(stage.queue, job_id).update(lambda record: replace(record, service_outage=outage))
        hub.faults.add("GET", "*/info/refs", "404", times=99)
        stage.open_for_work.set()
        end = await stage.end_of(command)
        hub.faults.clear()
        assert end.state is JobState.FAILED
        assert "The repository could not be fetched: git on GitHub refused access" in end.status
        assert "GitHub's API shows it all the same" in end.status
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.nothing_left()
        assert stage.providers == []


async def test_an_api_that_stumbles_while_publishing_costs_nothing_twice(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        issue = stage.issue()

        def stumble(_: str) -> None:
            # The last question before the commit is sent.
            if sum(call.endswith("/permission") for call in stage.calls) == 2 and not met:
                hub.faults.add("POST", "*/api/graphql", "drop_answer")
                met.append("drop_answer")

        met: list[str] = []
        stage.on_call = stumble
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "Not published" not in end.status
        assert len(stage.pulls()) == 1
        [sha] = stage.bot_branches().values()
        assert stage.git("rev-list", "--count", f"main..{sha}") == "1"
        assert met
        assert len(hub.faults) == 0


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_a_job_that_is_given_up_is_told_of_only_where_an_answer_had_begun(
    hub: LocalHub, tmp_path: Path, *, is_acknowledged: bool
) -> None:
    async with staged(hub, tmp_path, [FIX], held=True) as stage:
        stranger = hub.add_user("stranger").login
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix", author="mona" if is_acknowledged else stranger)
        command_job = await stage.job_of(command)

        async def find_runnable() -> list[str] | None:
            return await runnable(stage.queue) or None

        ready: list[str] = await eventually(find_runnable)
        assert ready == [command_job]
        for attempt in (1, 2, 3, 4):
            if attempt == 4:  # the second charge has it held for a while
                assert await begun(stage.queue, command_job, "killed") is None
                await stage.queue.release_hold(command_job)
            claim = await begun(stage.queue, command_job, f"killed-{attempt}")
            assert claim is not None
            assert claim[1] == attempt
        assert len(stage.bot_comments(issue.number)) == is_acknowledged
        stage.open_for_work.set()
        end = await stage.end_of(command)
        assert end.state is JobState.FAILED
        assert "died several times" in end.reason
        comments = stage.bot_comments(issue.number)
        assert ["died several times" in body for body in comments] == ([True] if is_acknowledged else [])
        assert stage.providers == []


async def test_a_delivery_that_nobody_can_act_for_stops_no_other_job(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        body = json.dumps(a_comment_event("/codepilot fix", installation=None)).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "issue_comment",
            "X-GitHub-Delivery": "00000000-0000-0000-0000-000000000002",
            "X-Hub-Signature-256": signature(body, WEBHOOK_SECRET),
        }
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{stage.address}/webhook", data=body, headers=headers) as answer,
        ):
            receipt = await answer.json()
        assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.DONE
        if "job" in receipt:
            stored = await stage.queue.get(receipt["job"])
            assert stored is not None
            assert stored.state is JobState.FAILED
            assert "installation" in stored.reason


async def test_a_path_of_the_server_is_in_no_comment(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        # Git's own error text about a file in place of a mirror has its path.
        mirrors = stage.data / "workspaces" / "mirrors"
        shutil.rmtree(mirrors, ignore_errors=True)
        mirrors.write_text("")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED, end
        assert str(stage.data) not in end.status
        assert "The machine that the bot runs on failed" in end.status
