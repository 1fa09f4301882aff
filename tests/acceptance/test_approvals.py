"""At the level `ask`: a run waits for a person at a command that is on no list, and goes on at that very call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.access import TrustedBots
from bot.domain.job import JobState
from localhub import Comment, LocalHub
from tests.acceptance.test_service_process import Site, site
from tests.pauses import (
    ASKING,
    REACHED,
    Pause,
    buttons_of,
    check_of,
    next_pause,
    out_of_time,
    pause_of,
    shown_later,
    still_waits,
)
from tests.stage import COMPLETION, FIXED_CALC, Stage, acting, staged
from tests.waiting import eventually

RAN = 'execute("main", "echo ran >> ran.txt")'
ASKS = acting(f'write_file("calc.py")\n{RAN}', FIXED_CALC, completion=COMPLETION)
"""One step: a write that needs no approval, then a command that does; nothing more is asked of the model."""
NOTHING_LEFT = "```completion\nNothing left to do.\n```\n"


async def _paused(stage: Stage, number: int) -> tuple[Comment, Pause]:
    command = stage.say(number, "/codepilot fix")
    return command, await pause_of(stage, command)


def _asking(ready: Site) -> Site:
    asking = {"CODEPILOT_LEVEL": "ask", "CODEPILOT_NETWORK": str(REACHED)}
    return replace(ready, variables={**ready.variables, **asking})


def _ran_once(stage: Stage) -> None:
    """One comment, one pull request, and in it what the approved command did, once."""
    [(branch, sha)] = stage.bot_branches().items()
    assert stage.file(sha, "ran.txt") == "ran"
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    assert stage.git("rev-list", "--count", f"main..{branch}") == "1"
    assert len(stage.pulls()) == 1


async def test_a_run_waits_with_the_call_its_preview_and_two_lines_to_answer(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        _, pause = await _paused(stage, stage.issue().number)
        for said in (
            "Waiting for you",
            "echo ran >> ran.txt",
            f"/codepilot approve {pause.request_id}\n",
            f"/codepilot deny {pause.request_id}\n",
            "UTC",
        ):
            assert said in pause.status, said
        assert not (stage.files_of(pause.job_id) / "ran.txt").exists()
        assert (stage.files_of(pause.job_id) / "calc.py").read_text() == FIXED_CALC
        assert stage.nothing_published()
        check = check_of(stage, pause.job_id)
        assert (check.status, check.conclusion) == ("completed", "neutral")
        assert set(buttons_of(check)) == {"Approve", "Deny", "Stop"}


async def test_a_command_that_nobody_could_be_shown_whole_is_refused_to_the_model(
    hub: LocalHub, tmp_path: Path
) -> None:
    """Too long to be read, or with a part that would be shown as `[redacted]`; one that is only tall is shown."""
    commands = ("touch " + "x" * 30_000, "echo -----BEGIN RSA PRIVATE KEY-----; touch evil", "\n" * 300 + "touch tail")
    calls = [
        f"try:\n    execute('main', {each!r})\nexcept PermissionError as error:\n    print(error)" for each in commands
    ]
    told = ScriptedReply(text=NOTHING_LEFT, expect=("its text is not read", "like a secret"))
    async with staged(hub, tmp_path, [acting("\n".join(calls))], [told], operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await _paused(stage, issue.number)
        assert "… 299 blank lines" in pause.status
        assert "> touch tail" in pause.status
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        assert (await stage.end_of(command)).state is JobState.DONE


async def test_an_approval_continues_the_run_at_the_call_which_is_made_once(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await _paused(stage, issue.number)
        approval = stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        _ran_once(stage)
        [status] = stage.bot_comments(issue.number)
        assert COMPLETION in status
        assert "Waiting for you" not in status
        # The first leg's work is told, too.
        assert "1 step" in status
        await stage.end_of(approval)
        assert stage.reactions(approval) == ["+1"]
        assert [each.remaining for each in stage.providers] == [0, 0]
        assert stage.nothing_left()
        # Nothing was verified, for nothing was changed by a test, a build or a linter.
        assert check_of(stage, pause.job_id).conclusion == "neutral"


async def test_an_approval_without_an_id_means_the_only_request(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        command, _ = await _paused(stage, issue.number)
        stage.say(issue.number, "/codepilot approve")
        assert (await stage.end_of(command)).state is JobState.DONE
        _ran_once(stage)


async def test_an_approval_without_an_id_is_for_none_of_several_requests_that_were_shown(
    hub: LocalHub, tmp_path: Path
) -> None:
    twice = acting(f'{RAN}\nexecute("main", "echo evil >> evil.txt")', completion=COMPLETION)
    async with staged(hub, tmp_path, [twice], operator=ASKING) as stage:
        issue = stage.issue()
        command, first = await _paused(stage, issue.number)
        await stage.ask(issue.number, f"/codepilot approve {first.short_id}")
        second = await next_pause(stage, first)
        for verb in ("approve", "deny"):
            bare = await stage.ask(issue.number, f"/codepilot {verb}")
            assert bare.state is JobState.REFUSED
        assert await still_waits(stage, second)
        [told] = [
            each for each in stage.bot_comments(issue.number) if "This thread has shown more than one request" in each
        ]
        assert f"\n```\n/codepilot approve {second.request_id}\n```\n" in told
        assert first.request_id not in told
        stage.say(issue.number, f"/codepilot approve {second.request_id}")
        assert (await stage.end_of(command)).state is JobState.DONE


async def test_an_approval_that_was_written_before_the_request_could_be_read_counts_for_nothing(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await _paused(stage, issue.number)
        await shown_later(stage, pause)
        bare = await stage.ask(issue.number, "/codepilot approve")
        assert await stage.refusal(bare) == "which-request"
        assert f"/codepilot approve {pause.request_id}" in bare.status
        assert await still_waits(stage, pause)


async def test_the_workers_are_free_while_runs_wait(hub: LocalHub, tmp_path: Path) -> None:
    others = [NOTHING_LEFT]
    async with staged(hub, tmp_path, [ASKS], [ASKS], [ASKS], others, operator=ASKING) as stage:
        # The stage works on two jobs at once.
        for _ in range(3):
            await _paused(stage, stage.issue().number)
        free = stage.issue()
        end = await stage.ask(free.number, "/codepilot fix")
        assert end.state is JobState.DONE
        assert "Nothing left to do." in end.status


async def test_a_waiting_run_does_not_hold_up_its_own_thread(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], [NOTHING_LEFT], operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await _paused(stage, issue.number)
        assert (await stage.ask(issue.number, "/codepilot explain what waits")).state is JobState.DONE
        assert await still_waits(stage, pause)


async def test_a_denial_with_words_reaches_the_model_which_goes_on(hub: LocalHub, tmp_path: Path) -> None:
    told = ScriptedReply(text=NOTHING_LEFT, expect=("not approved", "write no files by hand"))
    asks = acting(f'write_file("calc.py")\n{RAN}', FIXED_CALC)
    async with staged(hub, tmp_path, [asks], [told], operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await _paused(stage, issue.number)
        stage.say(issue.number, f"/codepilot deny {pause.short_id} write no files by hand")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        [sha] = stage.bot_branches().values()
        assert stage.git("diff", "--name-only", "main", sha) == "calc.py"
        assert len(stage.bot_comments(issue.number)) == 1


async def test_a_run_may_wait_several_times_each_for_its_own_answer(hub: LocalHub, tmp_path: Path) -> None:
    twice = acting(f"{RAN}\n{RAN.replace('ran.txt', 'again.txt')}", completion=COMPLETION)
    async with staged(hub, tmp_path, [twice], operator=ASKING) as stage:
        issue = stage.issue()
        command, first = await _paused(stage, issue.number)
        stage.say(issue.number, f"/codepilot approve {first.short_id}")
        second = await next_pause(stage, first)
        assert "again.txt" in second.status
        assert f"approve {first.short_id}" not in second.status
        # The first answer says nothing about the second request.
        stale = await stage.ask(issue.number, f"/codepilot approve {first.request_id}")
        assert stale.state is JobState.REFUSED
        assert second.request_id in stale.status
        assert await still_waits(stage, second)
        stage.say(issue.number, f"/codepilot approve {second.short_id}")
        assert (await stage.end_of(command)).state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert (stage.file(sha, "ran.txt"), stage.file(sha, "again.txt")) == ("ran", "ran")


async def test_two_approvals_at_the_same_moment_count_once(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command, pause = await _paused(stage, issue.number)
        answers = [
            stage.say(issue.number, f"/codepilot approve {pause.short_id}", author=author)
            for author in ("mona", "rita", "mona")
        ]
        ends = [await stage.end_of(each) for each in answers]
        assert (await stage.end_of(command)).state is JobState.DONE
        assert [each.state for each in ends].count(JobState.DONE) == 1, ends
        assert [each.state for each in ends].count(JobState.REFUSED) == 2, ends
        _ran_once(stage)


async def test_who_says_no_first_is_not_overruled(hub: LocalHub, tmp_path: Path) -> None:
    asks = acting(RAN)
    async with staged(hub, tmp_path, [asks], [NOTHING_LEFT], operator=ASKING) as stage:
        hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command, pause = await _paused(stage, issue.number)
        await stage.ask(issue.number, f"/codepilot deny {pause.short_id}")
        late = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}", author="rita")
        assert late.state is JobState.REFUSED
        end = await stage.end_of(command)
        assert "Nothing left to do." in end.status
        assert stage.nothing_published()


@pytest.mark.parametrize("role", ["none", "triage"])
async def test_who_may_not_write_may_not_approve(hub: LocalHub, tmp_path: Path, role: str) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        hub.add_collaborator(stage.repo, "stranger", role)  # type: ignore[arg-type]
        issue = stage.issue()
        _, pause = await _paused(stage, issue.number)
        said = len(stage.bot_comments(issue.number))
        for verb in ("approve", "deny"):
            answer = stage.say(issue.number, f"/codepilot {verb} {pause.short_id}", author="stranger")
            assert (await stage.end_of(answer)).state is JobState.REFUSED
            assert stage.reactions(answer) == ["confused"]
        assert await still_waits(stage, pause)
        assert len(stage.bot_comments(issue.number)) == said
        assert not (stage.files_of(pause.job_id) / "ran.txt").exists()


async def test_no_bot_approves_trusted_or_not(hub: LocalHub, tmp_path: Path) -> None:
    helper = hub.add_user("helper[bot]", kind="Bot")
    trusting = {**ASKING, "trusted_bots": TrustedBots(ids=frozenset({helper.id}))}
    async with staged(hub, tmp_path, [ASKS], operator=trusting) as stage:
        hub.add_user("other[bot]", kind="Bot")
        for bot in ("helper[bot]", "other[bot]"):
            hub.add_collaborator(stage.repo, bot, "admin")
        issue = stage.issue()
        _, pause = await _paused(stage, issue.number)
        for bot in ("helper[bot]", "other[bot]", stage.app.bot.login):
            answer = await stage.answer(stage.say(issue.number, f"/codepilot approve {pause.short_id}", author=bot))
            if "job" in answer:
                assert (await stage.ended(answer["job"])).state is JobState.REFUSED, bot
        assert await still_waits(stage, pause)


async def test_a_wrong_id_approves_nothing_and_is_told_what_waits(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await _paused(stage, issue.number)
        wrong = format((int(pause.short_id, 16) + 1) % 0x10000, "04x")
        end = await stage.ask(issue.number, f"/codepilot approve {wrong}")
        assert end.state is JobState.REFUSED
        assert wrong in end.status
        assert pause.request_id in end.status
        assert await still_waits(stage, pause)


async def test_an_approval_where_nothing_waits_says_so(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, operator=ASKING) as stage:
        named = await stage.ask(stage.issue().number, "/codepilot approve 7f3a")
        bare = await stage.ask(stage.issue().number, "/codepilot approve")
        assert [await stage.refusal(each) for each in (named, bare)] == ["no-such-request", "no-such-request"]
        assert "`7f3a`" in named.status


async def test_an_approval_in_another_thread_counts_for_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        _, pause = await _paused(stage, stage.issue().number)
        end = await stage.ask(stage.issue().number, f"/codepilot approve {pause.short_id}")
        assert end.state is JobState.REFUSED
        assert await still_waits(stage, pause)


async def test_a_request_that_nobody_answers_ends_the_run_and_its_work_is_kept(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator={**ASKING, "approval_hours": 0}) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert "Nobody answered the request" in end.status
        [branch] = stage.bot_branches()
        assert branch in end.status
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.pulls() == []
        assert "ran.txt" not in stage.git("ls-tree", "--name-only", branch)
        late = await stage.ask(issue.number, "/codepilot approve")
        assert late.state is JobState.REFUSED
        assert len(stage.providers) <= 1


async def test_an_approval_that_comes_too_late_is_refused(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await _paused(stage, issue.number)
        await out_of_time(stage, pause)
        late = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert "expired" in late.status
        await stage.queue.wake(pause.job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert "ran.txt" not in stage.git("log", "--all", "--name-only")


async def test_a_stop_ends_a_run_that_waits(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await _paused(stage, issue.number)
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert "Stopped by @mona" in end.status
        late = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert stage.pulls() == []


async def test_a_push_voids_what_waits_for_the_commit_before(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        pull = stage.pull()
        command, pause = await _paused(stage, pull.number)
        moved = hub.commit(stage.repo, {"more.txt": "x"}, message="More", author="mona", branch="topic")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert f"The pull request moved to {moved[:10]}" in end.status
        late = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert stage.git("rev-parse", "topic") == moved
        assert "ran.txt" not in stage.git("log", "--all", "--name-only")


async def test_an_approval_after_a_push_that_nobody_told_of_is_refused_with_both_commits(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        pull = stage.pull()
        before = stage.git("rev-parse", "topic")
        command, pause = await _paused(stage, pull.number)
        # The delivery of the push is lost.
        hub.set_webhook(stage.app, "http://127.0.0.1:9/lost", "lost")
        moved = hub.commit(stage.repo, {"more.txt": "x"}, message="More", author="mona", branch="topic")
        hub.set_webhook(stage.app, f"{stage.address}/webhook", "acceptance-webhook-secret-4f1c")
        end = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}")
        assert end.state is JobState.REFUSED
        assert before[:10] in end.status
        assert moved[:10] in end.status
        dropped = await stage.end_of(command)
        assert dropped.state is JobState.STOPPED
        assert moved[:10] in dropped.status
        assert stage.git("rev-parse", "topic") == moved
        assert "ran.txt" not in stage.git("log", "--all", "--name-only")


async def test_an_approval_outlives_the_service(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as first:
        issue = first.issue()
        command, pause = await _paused(first, issue.number)
    async with staged(hub, tmp_path, [], operator=ASKING, after=first) as second:
        assert await still_waits(second, pause)
        second.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await second.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        _ran_once(second)
        assert len(second.bot_comments(issue.number)) == 1
        assert second.nothing_left()


async def test_buttons_do_what_comments_do(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        command, pause = await _paused(stage, stage.issue().number)
        check = check_of(stage, pause.job_id)
        hub.press(check, buttons_of(check)["Approve"], by="mona")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        _ran_once(stage)


@pytest.mark.parametrize("label", ["Deny", "Stop"])
async def test_buttons_refuse_and_stop(hub: LocalHub, tmp_path: Path, label: str) -> None:
    async with staged(hub, tmp_path, [acting(RAN)], [NOTHING_LEFT], operator=ASKING) as stage:
        command, pause = await _paused(stage, stage.issue().number)
        check = check_of(stage, pause.job_id)
        hub.press(check, buttons_of(check)[label], by="mona")
        end = await stage.end_of(command)
        assert end.state is (JobState.DONE if label == "Deny" else JobState.STOPPED)
        assert stage.nothing_published()


async def test_a_strangers_press_counts_for_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        stranger = hub.add_user("stranger").login
        _, pause = await _paused(stage, stage.issue().number)
        check = check_of(stage, pause.job_id)
        hub.press(check, buttons_of(check)["Approve"], by=stranger)
        end = await stage.end_after("check_run", "requested_action")
        assert end.state is JobState.REFUSED
        assert await still_waits(stage, pause)


async def test_a_page_that_is_out_of_date_approves_no_later_request(hub: LocalHub, tmp_path: Path) -> None:
    twice = acting(f"{RAN}\n{RAN.replace('ran.txt', 'again.txt')}", completion=COMPLETION)
    async with staged(hub, tmp_path, [twice], operator=ASKING) as stage:
        issue = stage.issue()
        _, first = await _paused(stage, issue.number)
        check = check_of(stage, first.job_id)
        shown = buttons_of(check)["Approve"]
        hub.press(check, shown, by="mona")
        second = await next_pause(stage, first)
        # The hub offers only what the check run has now; a page shown before has the old button, and an old check run.
        stale = hub._site.store.check_runs[check.id]
        hub._site.store.check_runs.put(check)
        hub.press(check, shown, by="mona")
        hub._site.store.check_runs.put(stale)
        end = await stage.end_after("check_run", "requested_action")
        assert end.state is JobState.REFUSED, end
        assert await still_waits(stage, second)
        assert not (stage.files_of(second.job_id) / "again.txt").exists()


async def test_the_author_of_a_fork_does_not_approve_and_another_maintainer_does(hub: LocalHub, tmp_path: Path) -> None:
    test = acting(RAN, completion="It ran.")
    async with staged(hub, tmp_path, [test], operator=ASKING) as stage:
        for login in ("rita", "fred"):
            hub.add_collaborator(stage.repo, login, "write")
        fork = hub.add_repo("fred/calc", owner="fred", fork_of=stage.repo)
        hub.commit(fork, {"calc.py": FIXED_CALC}, message="Fix", author="fred", branch="fix")
        pull = hub.open_pull(stage.repo, author="fred", head="fred:fix", title="Fix", body="")
        hub.label(stage.repo, pull.number, "codepilot:ask", by="rita")
        assert (await stage.end_after("pull_request", "labeled")).state is JobState.DONE
        command = stage.say(pull.number, "/codepilot test", author="rita")
        pause = await pause_of(stage, command)
        own = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}", author="fred")
        assert own.state is JobState.REFUSED
        assert "your own fork" in own.status
        assert await still_waits(stage, pause)
        stage.say(pull.number, f"/codepilot approve {pause.short_id}", author="rita")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert "It ran." in end.status
        assert stage.nothing_published()


async def test_the_label_auto_lets_a_run_go_on_unasked(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        issue = stage.issue()
        hub.label(stage.repo, issue.number, "codepilot:auto", by="mona")
        assert (await stage.end_after("issues", "labeled")).state is JobState.DONE
        assert (await stage.ask(issue.number, "/codepilot fix")).state is JobState.DONE
        _ran_once(stage)


async def test_the_label_ask_makes_a_run_wait_that_would_not(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], network=REACHED) as stage:
        issue = stage.issue()
        hub.label(stage.repo, issue.number, "codepilot:ask", by="mona")
        await stage.end_after("issues", "labeled")
        _, pause = await _paused(stage, issue.number)
        assert "permission: `ask`" in pause.status


async def test_the_label_of_somebody_with_triage_only_raises_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING) as stage:
        hub.add_collaborator(stage.repo, "tina", "triage")
        issue = stage.issue()
        hub.label(stage.repo, issue.number, "codepilot:auto", by="tina")
        await stage.end_after("issues", "labeled")
        _, pause = await _paused(stage, issue.number)
        assert "codepilot:auto" in pause.status
        assert not (stage.files_of(pause.job_id) / "ran.txt").exists()


async def test_listed_commands_wait_for_nobody(hub: LocalHub, tmp_path: Path) -> None:
    control = 'write_file("calc.py")\nexecute("main", "cat calc.py && ls", check=True)'
    async with staged(hub, tmp_path, [acting(control, FIXED_CALC, completion=COMPLETION)], operator=ASKING) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 1


@pytest.mark.slow
async def test_an_approval_outlives_a_service_that_was_killed(hub: LocalHub, tmp_path: Path) -> None:
    async with site(hub, tmp_path, script=[{"reply": ASKS}]) as ready:
        here = _asking(ready)
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as first:
            command, pause = await _paused(stage, issue.number)
            await first.kill()
        async with here.serving() as second:
            stage.say(issue.number, f"/codepilot approve {pause.short_id}")
            end = await stage.end_of(command)
            assert (end.state, end.job_id) == (JobState.DONE, pause.job_id), second.log.read_text()
            _ran_once(stage)
            assert len(stage.bot_comments(issue.number)) == 1
            assert stage.nothing_left()


@pytest.mark.slow
async def test_a_service_killed_at_an_approved_call_makes_it_no_second_time_unasked(
    hub: LocalHub, tmp_path: Path
) -> None:
    waits = 'execute("main", "echo ran >> ran.txt; until [ -e go ]; do sleep 0.02; done; rm go")'
    script = [{"reply": acting(waits)}, {"reply": NOTHING_LEFT}]
    async with site(hub, tmp_path, script=script) as ready:
        here = _asking(ready)
        stage = here.stage
        issue = stage.issue()
        async with here.serving() as first:
            command, pause = await _paused(stage, issue.number)
            stage.say(issue.number, f"/codepilot approve {pause.short_id}")
            await eventually((stage.files_of(pause.job_id) / "ran.txt").exists, within=60)
            await first.kill()
        (tmp_path / "script.yaml").write_text(yaml.safe_dump([{"reply": NOTHING_LEFT}]))
        async with here.serving() as second:
            end = await stage.end_of(command)
            assert end.state is JobState.DONE, second.log.read_text()
            [sha] = stage.bot_branches().values()
            assert stage.file(sha, "ran.txt") == "ran"


async def test_a_commit_of_the_bots_own_voids_what_waits_for_the_commit_before(hub: LocalHub, tmp_path: Path) -> None:
    listed = acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION, fence="python")
    async with staged(hub, tmp_path, [ASKS], [listed], operator=ASKING) as stage:
        pull = stage.pull()
        command, pause = await _paused(stage, pull.number)
        assert (await stage.ask(pull.number, "/codepilot fix")).state is JobState.DONE
        head = stage.git("rev-parse", "topic")
        late = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert head[:10] in late.status
        assert (await stage.end_of(command)).state is JobState.STOPPED
        assert stage.git("rev-parse", "topic") == head


async def test_an_approval_can_cover_others_like_it_until_something_is_pushed(hub: LocalHub, tmp_path: Path) -> None:
    """It holds over several legs, and covers nothing of another shape and nothing after a push."""
    wait = "until [ -e go ]; do sleep 0.02; done; rm go"
    commands = ("touch made one", "touch made two", wait, "touch made three", "touch -c made")
    calls = "\n".join(f"execute('main', {each!r})" for each in commands)
    async with staged(hub, tmp_path, [acting(calls)], operator=ASKING) as stage:
        pull = stage.pull()
        _, pause = await _paused(stage, pull.number)
        assert "for the rest of this run, whatever fits `touch <path> <path>`, where `<path>` is any" in pause.status
        stage.say(pull.number, f"/codepilot approve {pause.short_id} --like")
        pause = await next_pause(stage, pause)
        assert "until [ -e go ]" in pause.status, "another one of the kind was asked about"
        assert "--like" not in pause.status
        assert (stage.files_of(pause.job_id) / "two").exists()
        wanting = await stage.ask(pull.number, f"/codepilot approve {pause.short_id} --like")
        assert "No similar call can be approved with" in wanting.status
        stage.say(pull.number, f"/codepilot approve {pause.short_id}")
        await eventually(lambda: any(getattr(each, "args", {}).get("command") == wait for each in stage.events) or None)
        hub.commit(stage.repo, {"pushed.txt": "x\n"}, message="Push", author="mona", branch="topic")
        await stage.end_after("pull_request", "synchronize")
        (stage.files_of(pause.job_id) / "go").touch()
        pause = await next_pause(stage, pause)
        assert "touch made three" in pause.status
        assert not (stage.files_of(pause.job_id) / "three").exists()
