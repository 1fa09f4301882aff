from __future__ import annotations

import pytest

from agent_runtime.context.transcript import Transcript, boundary, length, mechanical, place, usable
from agent_runtime.core.events import Archived, MessageInjected, Recorded, Summarised
from agent_runtime.core.values import Usage
from tests.agent_runtime.context.logs import observed, replied, returned, started, task_of, words


def cut_at(log: list[Recorded], *, keep: int, least: int = 1, most: int = 1_000_000) -> int | None:
    transcript = Transcript()
    transcript.update(log)
    return boundary(log, transcript.entries, keep=keep, least=least, most=most)


TWO_TASKS = [*task_of("alpha", 3, chars=4_000), *task_of("beta", 3, chars=4_000), started("gamma")]


def test_whole_steps_and_tasks_stay_from_the_end() -> None:
    everything = cut_at(TWO_TASKS, keep=0)
    assert everything == len(TWO_TASKS) - 1
    beta = next(n for n, event in enumerate(TWO_TASKS) if event == started("beta"))
    tokens = Transcript()
    tokens.update(TWO_TASKS)
    index = tokens.index(beta)
    assert index is not None
    assert cut_at(TWO_TASKS, keep=tokens.tokens - tokens.tokens_before(index)) == beta
    assert cut_at(TWO_TASKS, keep=tokens.tokens - tokens.tokens_before(index) - 1) == beta + 1


def test_the_last_step_always_stays() -> None:
    log: list[Recorded] = [
        started("alpha"),
        replied(),
        observed(words(4_000)),
        replied("last"),
        observed(words(40_000)),
    ]
    assert cut_at(log, keep=100) == 3


def test_the_opening_of_the_task_that_goes_on_does_not_count_as_gone() -> None:
    log: list[Recorded] = [started("alpha", words(40_000)), replied(), observed("a"), replied("last"), observed("b")]
    assert cut_at(log, keep=0, least=100) is None


def test_there_is_nothing_to_replace_at_the_beginning() -> None:
    assert cut_at([], keep=0) is None
    assert cut_at([started("alpha", words(40_000))], keep=0) is None
    assert cut_at([started("alpha"), replied(), observed(words(40_000))], keep=0, least=100) is None


def test_a_second_summary_reaches_further_than_the_first() -> None:
    log = [*TWO_TASKS[:-1], Summarised(upto=8, text="alpha was done", usage=Usage())]
    later = cut_at(log, keep=0)
    assert later is not None
    assert later > 8
    again = [*log, Summarised(upto=later, text="both were done", usage=Usage())]
    assert cut_at(again, keep=0) is None


def test_the_model_is_told_up_to_where_in_its_own_words() -> None:
    transcript = Transcript()
    transcript.update(TWO_TASKS)
    assert place(transcript.entries, 1) == 'your reply that begins with "Step 1 of alpha."'
    assert place(transcript.entries, len(TWO_TASKS) - 1) == 'the message that begins with "[Task] gamma"'


@pytest.mark.parametrize(
    ("reply", "summary"),
    [
        pytest.param(
            "Alpha was done in src/a.py, all tests pass.", "Alpha was done in src/a.py, all tests pass.", id="plain"
        ),
        pytest.param(
            "[GLOBAL SUMMARY]\nAlpha was done, all tests pass.", "Alpha was done, all tests pass.", id="with its title"
        ),
        pytest.param("", None, id="empty"),
        pytest.param(" \n", None, id="blank"),
        pytest.param("ok", None, id="too short to say anything"),
        pytest.param("�" * 400, None, id="no words"),
    ],
)
def test_what_of_a_reply_is_a_summary(reply: str, summary: str | None) -> None:
    assert usable(reply, max_tokens=500) == summary


def test_a_summary_may_be_longer_where_it_replaces_more() -> None:
    transcript = Transcript()
    transcript.update(TWO_TASKS)
    end = len(TWO_TASKS) - 1
    replaced = transcript.tokens_before(len(transcript.entries) - 1)
    assert length(transcript.entries, end, least=10) == pytest.approx(replaced / 20, abs=1)
    assert length(transcript.entries, end, least=5_000) == 5_000
    assert length(transcript.entries, 1, least=10) < length(transcript.entries, end, least=10)


def test_a_summary_is_cut_to_its_length() -> None:
    text = usable("All of it was done well. " * 1_000, max_tokens=100)
    assert text is not None
    assert len(text) < 1_000
    assert "characters left out" in text


def test_without_a_model_the_record_speaks() -> None:
    log: list[Recorded] = [
        *task_of("alpha", 1, summary="Alpha works."),
        *task_of("beta", 1),
        Archived(task=2, summary="Beta was set aside."),
        started("gamma\nand more"),
        replied(),
        returned(label="Running `pytest -q`"),
        observed(),
        replied("b"),
    ]
    text = mechanical(log, len(log) - 1, max_tokens=500, failure="the service is down")
    assert text.splitlines() == [
        "(From the record, since the model wrote no summary (the service is down).)",
        "Task 1: alpha -> finished: Alpha works.",
        "Task 2: beta -> Beta was set aside.",
        "Task 3: gamma and more -> calls so far, the last of 1: Running `pytest -q`",
    ]


def test_the_record_tells_what_people_said_in_a_task_that_goes_on() -> None:
    said = MessageInjected(step=1, text="Do not touch\nthe database.")
    log: list[Recorded] = [started("alpha"), replied(), returned(label="Running `ls`"), said, observed(), replied("b")]
    assert mechanical(log, len(log) - 1, max_tokens=500).splitlines()[1:] == [
        "Task 1: alpha -> calls so far, the last of 1: Running `ls`",
        "[USER MESSAGE] Do not touch the database.",
    ]


def test_the_record_goes_on_from_the_summary_before() -> None:
    log = [*task_of("alpha", 1), started("beta"), Summarised(upto=6, text="Alpha was long.", usage=Usage()), replied()]
    assert mechanical(log, 8, max_tokens=500).splitlines()[1:] == [
        "Alpha was long.",
        "Task 2: beta -> calls so far, the last of 0: none",
    ]


def test_the_record_is_cut_to_its_length() -> None:
    log = [event for n in range(200) for event in task_of(f"task {n}", 1)]
    assert len(mechanical(log, len(log), max_tokens=100)) < 1_000
