"""At the level `ask`: a run waits for a person at a command that is on no list, and goes on at that very call."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.domain.access import TrustedBots
from bot.domain.job import JobState
from tests.fakes.agent import Execute, Script, do, execute, reply, write
from tests.seam import ASKING, COMPLETION, FIXED_CALC, NOTHING_LEFT, REACHED, Seam, open_seam

RAN = execute("echo ran >> ran.txt", appends={"ran.txt": "ran\n"}, check=False)
AGAIN = execute("echo ran >> again.txt", appends={"again.txt": "ran\n"}, check=False)
WAIT = "until [ -e go ]; do sleep 0.02; done; rm go"
ASKS: Script = [reply(write("calc.py", FIXED_CALC), RAN, completion=COMPLETION)]
"""One reply: a write that needs no approval, then a command that does."""


def assert_ran_once(stage: Seam) -> None:
    """Assert one pull request, with the effect of the approved command in it once."""
    [(branch, sha)] = stage.bot_branches().items()
    assert stage.file(sha, "ran.txt") == "ran"
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    assert stage.commits_between("main", branch) == 1
    assert len(stage.pulls()) == 1


async def test_a_run_waits_with_the_call_its_preview_and_two_lines_to_answer(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        _, pause = await stage.paused_fix(stage.issue().number)
        for text in (
            "Waiting for you",
            "echo ran >> ran.txt",
            f"/codepilot approve {pause.request_id}\n",
            f"/codepilot deny {pause.request_id}\n",
            "UTC",
        ):
            assert text in pause.status, text
        assert not (stage.files_of(pause.job_id) / "ran.txt").exists()
        assert (stage.files_of(pause.job_id) / "calc.py").read_text() == FIXED_CALC
        assert stage.nothing_published()
        check = stage.check_of(pause.job_id)
        assert (check.status, check.conclusion) == ("completed", "neutral")
        assert set(stage.buttons_of(pause.job_id)) == {"Approve", "Deny", "Stop"}


async def test_a_call_is_approved_in_a_reply_to_the_notices_mail(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        [notice] = stage.notices(issue.number)
        assert "```bash\n" in notice
        assert "echo ran >> ran.txt" in notice
        lines = notice.splitlines()
        approval = f"/codepilot approve {pause.request_id}"
        assert approval in lines
        assert f"/codepilot deny {pause.request_id}" in lines
        old = "\n".join(f"> {line}" for line in lines)
        attribution = "On Tue, Jan 2, 2024 at 10:00 AM codepilot[bot] ***@***.***>\nwrote:"
        only_quoted = stage.say(issue.number, f"{attribution}\n\n{old}")
        assert await stage.still_waits(pause)
        assert stage.reactions(only_quoted) == []
        stage.say(issue.number, f"{approval}\n\nSent from my iPhone\n\n{attribution}\n\n{old}\n")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert_ran_once(stage)


async def test_a_command_that_cannot_be_shown_whole_is_refused_to_the_model(tmp_path: Path) -> None:
    """Too long to be read, or with a part that would be shown as `[redacted]`; one that is only tall is shown."""
    commands = ("touch " + "x" * 30_000, "echo -----BEGIN RSA PRIVATE KEY-----; touch evil", "\n" * 300 + "touch tail")
    calls = [execute(command, check=False, handled=True) for command in commands]
    script = [reply(*calls), replace(NOTHING_LEFT, expect=("its text is not read", "like a secret"))]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        assert "… 299 blank lines" in pause.status
        assert "> touch tail" in pause.status
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert stage.providers[0].commands == [commands[2]]


async def test_an_approval_continues_the_run_at_the_call_which_is_made_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        approval = stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        assert_ran_once(stage)
        [status] = stage.bot_comments(issue.number)
        assert COMPLETION in status
        assert "Waiting for you" not in status
        # The first segment's work is told, too.
        assert "1 step" in status
        await stage.end_of(approval)
        assert stage.reactions(approval) == ["+1"]
        [play] = stage.providers
        assert (play.remaining, play.commands) == (0, [RAN.command])
        assert stage.nothing_left()
        # Nothing was verified, for nothing was changed by a test, a build or a linter.
        assert stage.check_of(pause.job_id).conclusion == "neutral"


async def test_an_approval_without_an_id_means_the_only_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        command, _ = await stage.paused_fix(issue.number)
        stage.say(issue.number, "/codepilot approve")
        assert (await stage.end_of(command)).state is JobState.DONE
        assert_ran_once(stage)


async def test_an_approval_without_an_id_is_for_none_of_several_requests_that_were_shown(tmp_path: Path) -> None:
    evil = execute("echo evil >> evil.txt", check=False)
    async with open_seam(tmp_path, [reply(RAN, evil, completion=COMPLETION)], operator=ASKING) as stage:
        issue = stage.issue()
        command, first = await stage.paused_fix(issue.number)
        await stage.ask(issue.number, f"/codepilot approve {first.short_id}")
        second = await stage.next_pause(first)
        for verb in ("approve", "deny"):
            bare = await stage.ask(issue.number, f"/codepilot {verb}")
            assert bare.state is JobState.REFUSED
        assert await stage.still_waits(second)
        [notice] = [
            body for body in stage.bot_comments(issue.number) if "This thread has shown more than one request" in body
        ]
        assert f"\n```\n/codepilot approve {second.request_id}\n```\n" in notice
        assert first.request_id not in notice
        stage.say(issue.number, f"/codepilot approve {second.request_id}")
        assert (await stage.end_of(command)).state is JobState.DONE


async def test_an_approval_that_was_written_before_the_request_could_be_read_counts_for_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        at = datetime.fromtimestamp(stage.clock() + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        approvals = (await stage.record(pause.job_id)).approvals
        shown = {pause.request_id: replace(approvals.request_views[pause.request_id], at=at)}
        later = replace(approvals, request_views=shown)
        await stage.record_of(pause.job_id).update(lambda record: replace(record, approvals=later))
        bare = await stage.ask(issue.number, "/codepilot approve")
        assert await stage.refusal(bare) == "which-request"
        assert f"/codepilot approve {pause.request_id}" in bare.status
        assert await stage.still_waits(pause)


async def test_a_waiting_run_does_not_hold_up_its_own_thread(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, [NOTHING_LEFT], operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        assert (await stage.ask(issue.number, "/codepilot explain what waits")).state is JobState.DONE
        assert await stage.still_waits(pause)


async def test_a_denial_with_words_reaches_the_model_which_goes_on(tmp_path: Path) -> None:
    answered = replace(NOTHING_LEFT, expect=("not approved", "write no files by hand"))
    script = [reply(write("calc.py", FIXED_CALC), RAN), answered]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        stage.say(issue.number, f"/codepilot deny {pause.short_id} write no files by hand")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        [sha] = stage.bot_branches().values()
        assert stage.changed_paths("main", sha) == ["calc.py"]
        assert stage.providers[0].commands == []
        assert len(stage.bot_comments(issue.number)) == 1


async def test_a_run_may_wait_several_times_each_for_its_own_answer(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(RAN, AGAIN, completion=COMPLETION)], operator=ASKING) as stage:
        issue = stage.issue()
        command, first = await stage.paused_fix(issue.number)
        stage.say(issue.number, f"/codepilot approve {first.short_id}")
        second = await stage.next_pause(first)
        assert "again.txt" in second.status
        assert f"approve {first.short_id}" not in second.status
        # The first answer says nothing about the second request.
        stale = await stage.ask(issue.number, f"/codepilot approve {first.request_id}")
        assert stale.state is JobState.REFUSED
        assert second.request_id in stale.status
        assert await stage.still_waits(second)
        stage.say(issue.number, f"/codepilot approve {second.short_id}")
        assert (await stage.end_of(command)).state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert (stage.file(sha, "ran.txt"), stage.file(sha, "again.txt")) == ("ran", "ran")


async def test_several_approvals_count_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        answers = [
            stage.say(issue.number, f"/codepilot approve {pause.short_id}", author=author)
            for author in ("mona", "rita", "mona")
        ]
        ends = [await stage.end_of(answer) for answer in answers]
        assert (await stage.end_of(command)).state is JobState.DONE
        assert [end.state for end in ends].count(JobState.DONE) == 1, ends
        assert [end.state for end in ends].count(JobState.REFUSED) == 2, ends
        assert_ran_once(stage)


async def test_a_first_denial_is_not_overruled(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(RAN), NOTHING_LEFT], operator=ASKING) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        await stage.ask(issue.number, f"/codepilot deny {pause.short_id}")
        late = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}", author="rita")
        assert late.state is JobState.REFUSED
        end = await stage.end_of(command)
        assert "Nothing left to do." in end.status
        assert stage.nothing_published()


@pytest.mark.parametrize("role", ["none", "triage"])
async def test_a_person_without_write_access_may_not_approve(tmp_path: Path, role: str) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        stage.hub.add_collaborator(stage.repo, "stranger", role)  # type: ignore[arg-type]
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        count = len(stage.bot_comments(issue.number))
        for verb in ("approve", "deny"):
            answer = stage.say(issue.number, f"/codepilot {verb} {pause.short_id}", author="stranger")
            assert (await stage.end_of(answer)).state is JobState.REFUSED
            assert stage.reactions(answer) == ["confused"]
        assert await stage.still_waits(pause)
        assert len(stage.bot_comments(issue.number)) == count
        assert not (stage.files_of(pause.job_id) / "ran.txt").exists()


@pytest.mark.parametrize("bot", ["helper[bot]", "other[bot]", "codepilot[bot]"])
async def test_no_bot_approves_trusted_or_not(tmp_path: Path, bot: str) -> None:
    trusting = {**ASKING, "trusted_bots": TrustedBots(logins=frozenset({"helper[bot]"}))}
    async with open_seam(tmp_path, ASKS, operator=trusting) as stage:
        stage.hub.add_user(bot, kind="Bot")
        stage.hub.add_collaborator(stage.repo, bot, "admin")
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        answer = await stage.answer(stage.say(issue.number, f"/codepilot approve {pause.short_id}", author=bot))
        assert ("job" in answer) == (bot == "helper[bot]"), answer
        if "job" in answer:
            assert (await stage.ended(answer["job"])).state is JobState.REFUSED
        assert await stage.still_waits(pause)


async def test_a_wrong_id_approves_nothing_and_is_answered_with_what_waits(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        wrong = format((int(pause.short_id, 16) + 1) % 0x10000, "04x")
        end = await stage.ask(issue.number, f"/codepilot approve {wrong}")
        assert end.state is JobState.REFUSED
        assert wrong in end.status
        assert pause.request_id in end.status
        assert await stage.still_waits(pause)


async def test_an_approval_where_nothing_waits_says_so(tmp_path: Path) -> None:
    async with open_seam(tmp_path, operator=ASKING) as stage:
        named = await stage.ask(stage.issue().number, "/codepilot approve 7f3a")
        bare = await stage.ask(stage.issue().number, "/codepilot approve")
        assert [await stage.refusal(each) for each in (named, bare)] == ["no-such-request", "no-such-request"]
        assert "`7f3a`" in named.status


async def test_an_approval_in_another_thread_counts_for_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        _, pause = await stage.paused_fix(stage.issue().number)
        end = await stage.ask(stage.issue().number, f"/codepilot approve {pause.short_id}")
        assert end.state is JobState.REFUSED
        assert await stage.still_waits(pause)


async def test_a_request_without_an_answer_ends_the_run_and_its_work_is_kept(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        stage.advance(stage.services.bounds.approval_seconds)
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert f"Nobody answered the request `{pause.request_id}`" in end.status
        [branch] = stage.bot_branches()
        assert branch in end.status
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()
        assert stage.pulls() == []
        assert "ran.txt" not in stage.paths(branch)
        late = await stage.ask(issue.number, "/codepilot approve")
        assert late.state is JobState.REFUSED
        assert len(stage.providers) == 1


async def test_an_approval_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        await stage.expire(pause)
        late = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert "expired" in late.status
        await stage.queue.wake(pause.job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert "ran.txt" not in stage.all_paths()


async def test_a_stop_ends_a_run_that_waits(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        stage.say(issue.number, "/codepilot stop")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert "Stopped by @mona" in end.status
        late = await stage.ask(issue.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert stage.pulls() == []


async def test_a_push_voids_what_waits_for_the_commit_before(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        pull = stage.pull()
        command, pause = await stage.paused_fix(pull.number)
        moved = stage.hub.commit(stage.repo, {"more.txt": "x"}, message="More", author="mona", branch="topic")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert f"The pull request moved to {moved[:10]}" in end.status
        late = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert stage.head("topic") == moved
        assert "ran.txt" not in stage.all_paths()


async def test_an_approval_after_a_push_whose_delivery_is_lost_is_refused_with_both_commits(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        pull = stage.pull()
        before = stage.head("topic")
        command, pause = await stage.paused_fix(pull.number)
        stage.hub.is_connected = False
        moved = stage.hub.commit(stage.repo, {"more.txt": "x"}, message="More", author="mona", branch="topic")
        stage.hub.is_connected = True
        end = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}")
        assert end.state is JobState.REFUSED
        assert before[:10] in end.status
        assert moved[:10] in end.status
        dropped = await stage.end_of(command)
        assert dropped.state is JobState.STOPPED
        assert moved[:10] in dropped.status
        assert stage.head("topic") == moved
        assert "ran.txt" not in stage.all_paths()


async def test_an_approval_outlives_the_worker(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        await stage.restart()
        assert await stage.still_waits(pause)
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert (end.state, end.job_id) == (JobState.DONE, pause.job_id)
        assert_ran_once(stage)
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.nothing_left()


@pytest.mark.parametrize(
    ("label", "state"), [("Approve", JobState.DONE), ("Deny", JobState.DONE), ("Stop", JobState.STOPPED)]
)
async def test_buttons_do_what_comments_do(tmp_path: Path, label: str, state: JobState) -> None:
    async with open_seam(tmp_path, [reply(RAN, completion=COMPLETION), NOTHING_LEFT], operator=ASKING) as stage:
        command, pause = await stage.paused_fix(stage.issue().number)
        stage.press(pause.job_id, label)
        end = await stage.end_of(command)
        assert end.state is state, end
        assert stage.nothing_published() == (label != "Approve")


async def test_a_strangers_press_counts_for_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        stage.hub.add_user("stranger")
        _, pause = await stage.paused_fix(stage.issue().number)
        stage.press(pause.job_id, "Approve", by="stranger")
        end = await stage.end_after("check_run", "requested_action")
        assert end.state is JobState.REFUSED
        assert await stage.still_waits(pause)


async def test_a_page_that_is_out_of_date_approves_no_later_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(RAN, AGAIN, completion=COMPLETION)], operator=ASKING) as stage:
        _, first = await stage.paused_fix(stage.issue().number)
        old_page, old_button = replace(stage.check_of(first.job_id)), stage.buttons_of(first.job_id)["Approve"]
        stage.press(first.job_id, "Approve")
        second = await stage.next_pause(first)
        stage.hub.press(old_page, old_button, by="mona")
        end = await stage.end_after("check_run", "requested_action")
        assert end.state is JobState.REFUSED, end
        assert await stage.still_waits(second)
        assert stage.providers[0].commands == [RAN.command]


async def test_the_author_of_a_fork_does_not_approve_and_another_maintainer_does(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(RAN, completion="It ran.")], operator=ASKING) as stage:
        hub = stage.hub
        for login in ("rita", "fred"):
            hub.add_collaborator(stage.repo, login, "write")
        fork = hub.add_repo("fred/calc", owner="fred", fork_of=stage.repo)
        hub.commit(fork, {"calc.py": FIXED_CALC}, message="Fix", author="fred", branch="fix")
        pull = hub.open_pull(stage.repo, author="fred", head="fred:fix", title="Fix", body="")
        hub.label(stage.repo, pull.number, "codepilot:ask", by="rita")
        assert (await stage.end_after("pull_request", "labeled")).state is JobState.DONE
        command = stage.say(pull.number, "/codepilot test", author="rita")
        pause = await stage.pause_of(command)
        own = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}", author="fred")
        assert own.state is JobState.REFUSED
        assert "your own fork" in own.status
        assert await stage.still_waits(pause)
        stage.say(pull.number, f"/codepilot approve {pause.short_id}", author="rita")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert "It ran." in end.status
        assert stage.nothing_published()


async def test_the_label_auto_lets_a_run_go_on_unasked(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        issue = stage.issue()
        stage.hub.label(stage.repo, issue.number, "codepilot:auto", by="mona")
        assert (await stage.end_after("issues", "labeled")).state is JobState.DONE
        assert (await stage.ask(issue.number, "/codepilot fix")).state is JobState.DONE
        assert_ran_once(stage)


async def test_the_label_ask_makes_a_run_wait_that_would_not(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, network=REACHED) as stage:
        issue = stage.issue()
        stage.hub.label(stage.repo, issue.number, "codepilot:ask", by="mona")
        await stage.end_after("issues", "labeled")
        _, pause = await stage.paused_fix(issue.number)
        assert "permission: `ask`" in pause.status


async def test_the_label_of_a_person_with_triage_only_raises_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, ASKS, operator=ASKING) as stage:
        stage.hub.add_collaborator(stage.repo, "tina", "triage")
        issue = stage.issue()
        stage.hub.label(stage.repo, issue.number, "codepilot:auto", by="tina")
        await stage.end_after("issues", "labeled")
        _, pause = await stage.paused_fix(issue.number)
        assert "codepilot:auto" in pause.status
        assert not (stage.files_of(pause.job_id) / "ran.txt").exists()


async def test_listed_commands_need_no_approval(tmp_path: Path) -> None:
    script = [reply(write("calc.py", FIXED_CALC), execute("cat calc.py && ls"), completion=COMPLETION)]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 1


async def test_a_commit_of_the_bots_own_voids_what_waits_for_the_commit_before(tmp_path: Path) -> None:
    other = [reply(write("calc.py", FIXED_CALC), completion=COMPLETION)]
    async with open_seam(tmp_path, ASKS, other, operator=ASKING) as stage:
        pull = stage.pull()
        command, pause = await stage.paused_fix(pull.number)
        assert (await stage.ask(pull.number, "/codepilot fix")).state is JobState.DONE
        head = stage.head("topic")
        late = await stage.ask(pull.number, f"/codepilot approve {pause.short_id}")
        assert late.state is JobState.REFUSED
        assert head[:10] in late.status
        assert (await stage.end_of(command)).state is JobState.STOPPED
        assert stage.head("topic") == head


async def test_an_approval_can_cover_others_like_it_until_a_push(tmp_path: Path) -> None:
    """It holds over several segments, and covers no call of another shape and none after a push."""

    def push() -> None:
        stage.hub.commit(stage.repo, {"pushed.txt": "x\n"}, message="Push", author="mona", branch="topic")

    def touch(*names: str) -> Execute:
        return execute(f"touch {' '.join(names)}", check=False)

    other = execute(WAIT, check=False)
    calls = (touch("made", "one"), touch("made", "two"), other, do(push), touch("made", "three"), touch("-c", "made"))
    async with open_seam(tmp_path, [reply(*calls)], operator=ASKING) as stage:
        pull = stage.pull()
        _, first = await stage.paused_fix(pull.number)
        assert "for the rest of this run, whatever fits `touch <path> <path>`, where `<path>` is any" in first.status
        stage.say(pull.number, f"/codepilot approve {first.short_id} --like")
        second = await stage.next_pause(first)
        assert "until [ -e go ]" in second.status, "another one of the kind was asked about"
        assert stage.providers[0].commands == ["touch made one", "touch made two"]
        stage.say(pull.number, f"/codepilot approve {second.short_id}")
        third = await stage.next_pause(second)
        assert "touch made three" in third.status
        assert stage.providers[0].commands == ["touch made one", "touch made two", WAIT]


async def test_a_call_without_similar_ones_is_not_approved_with_them(tmp_path: Path) -> None:
    async with open_seam(
        tmp_path, [reply(execute(WAIT, check=False), completion=COMPLETION)], operator=ASKING
    ) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        assert "--like" not in pause.status
        refused = await stage.ask(issue.number, f"/codepilot approve {pause.short_id} --like")
        assert "No similar call can be approved with" in refused.status
        assert await stage.still_waits(pause)
