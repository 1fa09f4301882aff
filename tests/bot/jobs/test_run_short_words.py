"""Short words, mentions and second commands, answered in the thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from tests.fakes.agent import Script, ask_user, execute, reply, wait_for_test, write
from tests.seam import ASKING, FIX, FIXED_CALC, NOTHING_LEFT, Seam, open_seam
from tests.stage import FILES

WAITS: Script = [reply(wait_for_test()), NOTHING_LEFT]
NEEDS_APPROVAL: Script = [reply(write("calc.py", FIXED_CALC), execute("sh deploy.sh")), NOTHING_LEFT]


@pytest.mark.parametrize(
    "words", ["cancel", "please stop", "Stop!", "abort", "halt", "kill it", "Cancel, wrong branch"]
)
async def test_a_stop_word_stops_the_running_job_and_begins_none(tmp_path: Path, words: str) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        number = stage.issue().number
        command = stage.say(number, "/codepilot fix")
        await stage.job_of(command)
        await stage.at_work()
        stop = stage.say(number, f"/codepilot {words}")
        assert (await stage.end_of(command)).state is JobState.STOPPED
        assert stage.reactions(stop) == ["+1"]
        assert len(stage.providers) == 1


@pytest.mark.parametrize(
    ("words", "cause", "line"),
    [
        ("cancel", "nothing-to-stop", "If `cancel` is work, write `/codepilot fix` and what to do."),
        ("stop!", "nothing-to-stop", "No job is running in this thread."),
        ("yes", "no-such-request", "No request is waiting here. If `yes` is work, write `/codepilot fix`"),
        ("approve", "no-such-request", "No request is waiting here."),
        ("no", "no-such-request", "No request is waiting here."),
    ],
)
async def test_a_short_word_without_a_job_is_answered_and_begins_none(
    tmp_path: Path, words: str, cause: str, line: str
) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, f"/codepilot {words}")
        assert await stage.refusal(end) == cause
        assert line in end.status
        assert stage.providers == []


@pytest.mark.parametrize("words", ["hold on", "no, use tabs", "fix stop", "yes?"])
async def test_words_of_two_meanings_are_answered_with_the_lines_to_write(tmp_path: Path, words: str) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, f"/codepilot {words}")
        assert end.state is JobState.DONE
        assert f"It is not clear what `{words}` means." in end.status
        for line in ("/codepilot approve", "/codepilot deny", "/codepilot stop"):
            assert f"\n{line}\n" in end.status
        assert stage.providers == []


@pytest.mark.parametrize(
    ("words", "approved"), [("yes", True), ("LGTM 👍", True), ("no", False), ("Nope, thanks", False)]
)
async def test_yes_and_no_answer_the_only_request_that_waits(tmp_path: Path, words: str, approved: bool) -> None:  # noqa: FBT001 - a parameter of the test
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        number = stage.issue().number
        command, _ = await stage.paused_fix(number)
        answer = stage.say(number, f"/codepilot {words}")
        await stage.end_of(command)
        assert stage.reactions(answer) == ["+1"]
        assert ("sh deploy.sh" in stage.providers[0].commands) is approved


@pytest.mark.parametrize("words", ["yes", "no"])
async def test_yes_and_no_are_the_answer_to_a_question(tmp_path: Path, words: str) -> None:
    script: Script = [reply(ask_user("Shall I rename it?")), NOTHING_LEFT]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        number = stage.issue().number
        command, _ = await stage.paused_fix(number)
        stage.say(number, f"/codepilot {words}")
        assert (await stage.end_of(command)).state is JobState.DONE
        assert [(answer.approved, answer.note) for answer in stage.providers[0].answers] == [(True, words)]


async def test_yes_approves_no_request_that_its_author_has_not_read(tmp_path: Path) -> None:
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        number = stage.issue().number
        command = stage.say(number, "/codepilot fix")
        early = stage.say(number, "/codepilot yes")
        await stage.end_of(early)
        assert await stage.still_waits(await stage.pause_of(command))


@pytest.mark.parametrize(
    "body", ["yes", "> /codepilot approve\n\nyes", "> /codepilot yes", "I think:\n\n/codepilot yes"]
)
async def test_a_yes_without_the_trigger_on_the_first_line_approves_nothing(tmp_path: Path, body: str) -> None:
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        number = stage.issue().number
        _, pause = await stage.paused_fix(number)
        assert "no command" in (await stage.answer(stage.say(number, body)))["reason"]
        assert await stage.still_waits(pause)


@pytest.mark.parametrize("words", ["yes, but only the first", "not fine", "ja", "hold on"])
async def test_a_text_without_a_verb_while_a_request_waits_approves_nothing_and_begins_no_work(
    tmp_path: Path, words: str
) -> None:
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        number = stage.issue().number
        _, pause = await stage.paused_fix(number)
        end = await stage.ask(number, f"/codepilot {words}")
        assert await stage.refusal(end) == "unclear-work"
        for verb in (f"approve {pause.request_id}", f"deny {pause.request_id}", "stop"):
            assert f"\n/codepilot {verb}\n" in end.status
        assert len(stage.providers) == 1
        assert await stage.still_waits(pause)


async def test_a_strangers_yes_approves_nothing_and_is_not_answered(tmp_path: Path) -> None:
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        stage.hub.add_user("stranger")
        number = stage.issue().number
        _, pause = await stage.paused_fix(number)
        for words in ("yes", "no", "cancel", "hold on"):
            answer = stage.say(number, f"/codepilot {words}", author="stranger")
            assert (await stage.end_of(answer)).state is JobState.REFUSED
            assert stage.reactions(answer) == ["confused"]
        assert await stage.still_waits(pause)
        assert len(stage.bot_comments(number)) == 1


async def test_a_no_while_a_job_works_names_the_lines_that_steer_it(tmp_path: Path) -> None:
    async with open_seam(tmp_path, WAITS) as stage:
        number = stage.issue().number
        job_id = await stage.job_of(stage.say(number, "/codepilot fix"))
        await stage.at_work()
        end = await stage.ask(number, "/codepilot no")
        assert await stage.refusal(end) == "no-such-request"
        assert "\n/codepilot stop\n" in end.status
        assert "\n/codepilot continue no\n" in end.status
        await stage.let_go(job_id)


NOT_DONE = "Only the first command of a comment is done. Not done: `/codepilot {}`."


@pytest.mark.parametrize(
    ("body", "left_out"),
    [
        ("/codepilot stop\n/codepilot fix", "fix"),
        ("/codepilot status\n\n/codepilot review the tests", "review the tests"),
        ("/codepilot help\n/codepilot stop", "stop"),
        ("/codepilot review\n/codepilot approve", "approve"),
        ("/codepilot undo\n/codepilot retry", "retry"),
    ],
)
async def test_the_answer_names_the_second_command_as_not_done(tmp_path: Path, body: str, left_out: str) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, body)
        assert NOT_DONE.format(left_out) in end.status
        assert stage.providers == []


async def test_the_comment_of_work_names_the_second_command_while_it_runs_and_when_it_is_done(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test()), *FIX]) as stage:
        number = stage.issue().number
        command = stage.say(number, "/codepilot fix the sum\n\n/codepilot review")
        job_id = await stage.job_of(command)
        await stage.at_work()
        assert NOT_DONE.format("review") in stage.bot_comments(number)[0]
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        assert NOT_DONE.format("review") in end.status
        assert "/codepilot review" not in stage.providers[0].opening


def _hear_mentions(stage: Seam) -> None:
    stage.profile = replace(stage.profile, triggers=("/codepilot", "@codepilot", "@codepilot[bot]"))


@pytest.mark.parametrize("mention", ["@codepilot", "@Codepilot:", "@codepilot[bot],"])
async def test_a_mention_commands_and_the_lines_to_answer_with_begin_with_it(tmp_path: Path, mention: str) -> None:
    async with open_seam(tmp_path, NEEDS_APPROVAL, operator=ASKING) as stage:
        _hear_mentions(stage)
        number = stage.issue().number
        command = stage.say(number, f"{mention} fix it")
        pause = await stage.pause_of(command)
        assert f"\n{mention.rstrip(':,').lower()} approve {pause.request_id}\n" in pause.status
        stage.say(number, f"{mention} yes")
        assert (await stage.end_of(command)).state is JobState.DONE


@pytest.mark.parametrize(
    "body",
    [
        "Ask @codepilot fix it",
        "Thanks.\n\n@codepilot fix it",
        "> @codepilot fix it",
        "```\n@codepilot fix it\n```",
        "`@codepilot fix it`",
        "@codepilots fix it",
        "@codepilot-x fix it",
        "@octo/codepilot fix it",
        "me@codepilot fix it",
    ],
)
async def test_a_mention_elsewhere_commands_nothing(tmp_path: Path, body: str) -> None:
    async with open_seam(tmp_path) as stage:
        _hear_mentions(stage)
        assert "no command" in (await stage.answer(stage.say(stage.issue().number, body)))["reason"]


async def test_a_mention_by_a_bot_or_by_the_bot_itself_commands_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        _hear_mentions(stage)
        stage.hub.add_user("helper[bot]")
        number = stage.issue().number
        for author in ("helper[bot]", stage.app.bot.login):
            answer = await stage.answer(stage.say(number, "@codepilot fix it", author=author))
            assert answer["status"] == "ignored"
            assert "bots cannot give commands" in answer["reason"]


async def test_a_repository_that_lists_its_triggers_hears_no_mention(tmp_path: Path) -> None:
    files: Mapping[str, str] = {**FILES, ".github/codepilot.yml": "triggers: [/codepilot]\n"}
    async with open_seam(tmp_path, files=files) as stage:
        _hear_mentions(stage)
        command = stage.say(stage.issue().number, "@codepilot fix it")
        assert (await stage.end_of(command)).state is JobState.REFUSED
        assert stage.providers == []
