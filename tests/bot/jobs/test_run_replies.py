"""A comment without a command answers the agent's question."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs import waiting
from tests.fakes.agent import Script, ask_user, execute, reply, write
from tests.seam import ASKING, COMPLETION, FIXED_CALC, Pause, Seam, open_seam

QUESTION = "Should `add()` take floats, too?"


NESTED_MAIL = f"""Me, too.

From: mona ***@***.***>
Sent: 2 Jan
To: mona/calc
Subject: Re: a

Floats.

From: codepilot[bot] ***@***.***>
Sent: 2 Jan
To: mona/calc
Subject: Re: a

{QUESTION}"""


def asks(*answer: str) -> Script:
    """Return a run that asks, and fixes the bug when it has read these words."""
    return [reply(ask_user(QUESTION)), reply(write("calc.py", FIXED_CALC), completion=COMPLETION, expect=answer)]


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


async def answered_with(stage: Seam, pause: Pause) -> str:
    """Run jobs until a pause is over; return the text that the agent was given."""
    end = await stage.ended(pause.job_id)
    assert end.state is JobState.DONE, end
    [play] = stage.providers
    [answer] = play.answers
    return answer.note


async def test_the_account_that_gave_the_command_answers_in_a_plain_reply(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks("Yes, and complex numbers")) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        assert "Reply here until " in pause.status
        assert "or write this line. A reply by anybody but @mona has to quote the question." in pause.status
        assert "Reply here until " in stage.notices(issue.number)[0]
        answer = stage.say(issue.number, "Yes, and complex numbers.\n\nTwo tests, please.")
        assert await answered_with(stage, pause) == "Yes, and complex numbers.\n\nTwo tests, please."
        assert stage.reactions(answer) == ["+1"]
        assert len(stage.bot_comments(issue.number)) == 1
        [notice] = stage.notices(issue.number)
        assert "no longer waits: `mona` answered it" in notice
        assert "Reply here" not in notice


@pytest.mark.parametrize(
    "text",
    [
        "{quote}\n\nFloats only.",
        "{line}\n\nFloats only.",
        "Floats only.\n\nOn Tue, Jan 2, 2024 at 10:00 AM codepilot[bot] ***@***.***> wrote:\n\n{quote}",
        "Floats only.\n\nFrom: codepilot[bot] ***@***.***>\nSent: 2 Jan\nTo: mona/calc\nSubject: Re: a\n\n{mail}",
        "On 1/2/24 10:00, codepilot[bot] wrote:\n{quote}\n\nFloats only.\n\n-- \nRita",
    ],
    ids=["quote reply", "quoted line", "mail", "mail without quotes", "mail, answered below"],
)
async def test_another_maintainer_answers_by_quoting_the_question(tmp_path: Path, text: str) -> None:
    async with open_seam(tmp_path, asks("Floats only.")) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        [notice] = stage.notices(issue.number)
        body = text.format(quote=quoted(notice), line=f"> {QUESTION}", mail=notice)
        answer = stage.say(issue.number, body, author="rita")
        assert await answered_with(stage, pause) == "Floats only."
        assert stage.reactions(answer) == ["+1"]


@pytest.mark.parametrize(
    ("author", "text"),
    [
        ("rita", "Yes."),
        ("rita", "> Adding is off by one\n\nYes."),
        ("mona", "@rita what do you think?"),
        ("mona", "> Should `add()` take floats, too?\n\n@rita, do you know?"),
        ("mona", "Shall I write /codepilot continue yes?"),
        ("mona", "> Should `add()` take floats, too?"),
        ("mona", "<!-- yes -->"),
        ("mona", "Rita, what do you think?"),
        ("rita", f"I am not sure.\n\n> I'd say floats, too.\n>\n> > {QUESTION}"),
        ("rita", f"Me, too.\n\nOn 1/2/24 10:00, mona ***@***.***> wrote:\n\n> Floats.\n>\n>> {QUESTION}"),
        ("rita", NESTED_MAIL),
    ],
)
async def test_a_discussion_below_the_question_is_no_answer(tmp_path: Path, author: str, text: str) -> None:
    async with open_seam(tmp_path, asks()) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        comment = stage.say(issue.number, text, author=author)
        assert await stage.still_waits(pause)
        assert stage.reactions(comment) == []
        assert len(stage.bot_comments(issue.number)) == 1


async def test_a_comment_elsewhere_or_from_before_the_question_is_no_answer(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks()) as stage:
        issue, other = stage.issue(), stage.issue()
        early = stage.say(issue.number, "It happens with floats.")
        _, pause = await stage.paused_fix(issue.number)
        comment = stage.say(other.number, "Yes.")
        assert await stage.still_waits(pause)
        assert [stage.reactions(each) for each in (early, comment)] == [[], []]


async def test_a_comment_from_before_the_question_that_arrives_late_is_no_answer(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks()) as stage:
        issue = stage.issue()
        stage.say(issue.number, "It happens with floats.")
        late = stage.hub.deliveries.pop()
        stage.advance(2)
        _, pause = await stage.paused_fix(issue.number)
        stage.hub.deliveries.append(late)
        assert await stage.still_waits(pause)
        assert late.answer["status"] == "ignored"


async def test_a_reply_to_a_question_that_has_expired_is_no_answer(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks()) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        await stage.expire(pause)
        assert (await stage.answer(stage.say(issue.number, "Yes.")))["status"] == "ignored"


@pytest.mark.parametrize("question", ["Ok?", "Which *one* of `a_b` & <c>?", "A long question, " * 30])
async def test_any_question_is_quoted(tmp_path: Path, question: str) -> None:
    async with open_seam(tmp_path, [reply(ask_user(question)), reply(completion=COMPLETION)]) as stage:
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        shown = next(line for line in pause.status.splitlines() if "A question." in line)
        mail = "\n".join(f"> {line}" for line in textwrap.wrap(shown, 70))
        stage.say(issue.number, f"{mail}\n\nYes.", author="rita")
        assert await answered_with(stage, pause) == "Yes."


async def test_a_comment_in_a_thread_where_nothing_waits_is_dropped_without_a_request(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks()) as stage:
        busy, quiet = stage.issue(), stage.issue()
        await stage.paused_fix(busy.number)
        count = len(stage.calls)
        for author in ("mona", "rita"):
            stage.hub.add_collaborator(stage.repo, "rita", "write")
            for number in (busy.number, quiet.number):
                comment = stage.say(number, "I saw this, too.", author="rita" if number == busy.number else author)
                answer = await stage.answer(comment)
                assert answer["status"] == "ignored"
                assert "answers no question" in answer["reason"]
        await stage.settle()
        assert len(stage.calls) == count


async def test_a_question_in_a_thread_about_lines_is_answered_there(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks("Yes.")) as stage:
        pull = stage.pull()
        ask = stage.hub.review_comment(
            stage.repo, pull.number, author="mona", body="/codepilot fix", path="topic.txt", line=1
        )
        await stage.settle()
        [job_id] = {delivery.answer["job"] for delivery in stage.hub.deliveries if delivery.subject == ask.id}
        pause = await stage.pause_of_job(job_id)
        stage.say(pull.number, "Not here.")
        stage.hub.review_comment(stage.repo, pull.number, author="mona", body="Nor here.", path="topic.txt", line=1)
        assert await stage.still_waits(pause)
        stage.hub.review_comment(stage.repo, pull.number, author="mona", body="Yes.", in_reply_to=ask.id)
        assert await answered_with(stage, pause) == "Yes."


async def test_where_several_requests_wait_a_reply_has_to_quote_the_question(tmp_path: Path) -> None:
    script: Script = [reply(execute("sh check.sh"), completion=COMPLETION)]
    async with open_seam(tmp_path, asks("Yes."), script, operator=ASKING) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        _, other = await stage.paused_fix(issue.number)
        assert "/codepilot approve" in other.status
        stage.say(issue.number, "Yes.")
        assert await stage.still_waits(pause)
        stage.say(issue.number, f"> {QUESTION}\n\nYes.")
        end = await stage.ended(pause.job_id)
        assert end.state is JobState.DONE, end
        assert await stage.still_waits(other)


@pytest.mark.parametrize("author", ["mona", "rita"])
async def test_a_mention_of_the_bot_answers_while_its_question_waits(tmp_path: Path, author: str) -> None:
    async with open_seam(tmp_path, asks("Yes, floats, too")) as stage:
        stage.profile = replace(stage.profile, triggers=("/codepilot", "@codepilot"))
        stage.hub.add_collaborator(stage.repo, "rita", "write")
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        answer = stage.say(issue.number, "@codepilot Yes, floats, too", author=author)
        end = await stage.end_of(answer)
        assert end.state is JobState.DONE
        assert "The run that asked goes on with your answer." in stage.bot_comments(issue.number)[-1]
        assert await answered_with(stage, pause) == "Yes, floats, too"
        assert "+1" in stage.reactions(answer)


async def test_a_command_without_a_verb_while_a_question_waits_begins_no_work(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks()) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        end = await stage.ask(issue.number, "/codepilot Floats only")
        assert await stage.refusal(end) == "unclear-work"
        assert "```\n/codepilot continue Floats only\n```" in end.status
        assert await stage.still_waits(pause)


async def test_a_mention_that_answered_is_no_work_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_seam(tmp_path, asks("Yes, floats, too")) as stage:
        stage.profile = replace(stage.profile, triggers=("/codepilot", "@codepilot"))
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        with monkeypatch.context() as patched:
            patched.setattr(type(stage.queue), "wake", stage.hang)
            answer = stage.say(issue.number, "@codepilot Yes, floats, too")
            await stage.settle()
        await stage.restart()
        assert await answered_with(stage, pause) == "Yes, floats, too"
        assert (await stage.end_of(answer)).state is JobState.DONE
        assert len(stage.providers) == 1


@pytest.mark.parametrize("text", ["ja", "👍", "Great"])
async def test_a_short_word_is_an_answer(tmp_path: Path, text: str) -> None:
    async with open_seam(tmp_path, asks(text)) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        stage.say(issue.number, text)
        assert await answered_with(stage, pause) == text


@pytest.mark.parametrize("text", ["Cancel it, please.", "Stop, wrong branch.", "hold on", "Thanks!"])
async def test_a_plain_word_that_may_not_be_the_answer_is_asked_about(tmp_path: Path, text: str) -> None:
    async with open_seam(tmp_path, asks()) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        stage.say(issue.number, text)
        assert await stage.still_waits(pause)
        told = stage.bot_comments(issue.number)[-1]
        assert "```\n/codepilot stop\n```" in told
        assert f"```\n/codepilot continue {text}\n```" in told


async def test_the_first_answer_counts(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks("first")) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        first, second = (stage.say(issue.number, text) for text in ("first", "second"))
        assert await answered_with(stage, pause) == "first"
        assert [stage.reactions(each) for each in (first, second)] == [["+1"], []]


async def test_an_answer_outlives_the_worker_that_stored_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_seam(tmp_path, asks("Yes.")) as stage:
        issue = stage.issue()
        _, pause = await stage.paused_fix(issue.number)
        with monkeypatch.context() as patched:
            patched.setattr(waiting, "store_answer", stage.hang)
            answer = stage.say(issue.number, "Yes.")
            await stage.settle()
        await stage.restart()
        assert await answered_with(stage, pause) == "Yes."
        assert stage.reactions(answer) == ["+1"]


async def test_a_workflow_offers_no_plain_reply(tmp_path: Path) -> None:
    async with open_seam(tmp_path, asks(), services={"is_long_running": False}) as stage:
        _, pause = await stage.paused_fix(stage.issue().number)
        assert "Reply here" not in pause.status
        assert "/codepilot continue <your answer>" in pause.status
