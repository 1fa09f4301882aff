from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.context.transcript import (
    MemorySettings,
    Meter,
    Transcript,
    build_summary,
    describe_place,
    estimate,
    estimate_message,
    extract_summary,
    find_boundary,
    render_messages,
    summary_length,
)
from agent_runtime.core.errors import SettingsError
from agent_runtime.core.events import (
    Archived,
    Imported,
    MessageInjected,
    Paused,
    Recorded,
    Recovered,
    Resumed,
    Revealed,
    Shrunk,
    Started,
    Summarised,
)
from agent_runtime.core.values import IMAGE_TOKENS, PendingCall, ToolAnswer, ToolRequest, Usage
from agent_runtime.prompts import notes
from agent_runtime.providers.protocol import Message
from agent_runtime.transports.native import NAME_CHARS
from tests.agent_runtime.context.logs import ended, observed, replied, returned, started, task_of, words
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.sessions.samples import any_event

WAITING = PendingCall(
    request_id="1", kind="permission", tool="execute", args={}, reason="asked", preview="$ ls", workspace="0"
)
LOG: list[Recorded] = [
    started("a", "do a"),
    replied("  \n"),
    returned("read_file", label="read_file('x')"),
    observed("seen"),
    observed("more"),
    replied("done "),
    ended(),
    started("b", "do b"),
    replied("b1"),
    MessageInjected(step=2, text="faster\n"),
    observed("b seen"),
    Paused(pending=WAITING, state="", signature=""),
    Resumed(request_id="1", approved=True),
    replied("b2"),
    Recovered(text="[died]"),
]


def roles_and_texts(log: list[Recorded]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in render_messages(log)]


def test_roles_alternate_and_words_are_kept() -> None:
    assert roles_and_texts(LOG) == [
        ("user", "do a"),
        ("assistant", "(empty reply)"),
        ("user", "seen\n\nmore"),
        ("assistant", "done "),
        ("user", "do b"),
        ("assistant", "b1"),
        ("user", "[USER MESSAGE] faster\n\nb seen"),
        ("assistant", "b2"),
        ("user", "[died]"),
    ]


def test_a_history_from_elsewhere_is_told_and_begins_with_the_user() -> None:
    log: list[Recorded] = [
        Imported(role="assistant", text="hello"),
        Imported(role="user", text="hi"),
        started("a", "do a"),
    ]
    assert roles_and_texts(log) == [
        ("user", "[The beginning of this conversation is not kept.]"),
        ("assistant", "hello"),
        ("user", "hi\n\ndo a"),
    ]


def test_an_archived_task_stays_as_it_is_until_the_conversation_is_shrunk() -> None:
    log = [*LOG, Archived(task=1, summary="a was done")]
    assert roles_and_texts(log) == roles_and_texts(LOG)
    assert roles_and_texts([*log, Shrunk(tasks=(1,))]) == [
        ("user", "[ARCHIVED TASK 1]\na was done\n\ndo b"),
        *roles_and_texts(LOG)[5:],
    ]


def test_a_revealed_task_is_not_put_back_where_it_was() -> None:
    log = [*LOG, Archived(task=1, summary="a was done"), Shrunk(tasks=(1,))]
    assert roles_and_texts([*log, Revealed(task=1)]) == roles_and_texts(log)


def test_a_task_that_is_archived_again_gets_its_new_summary_with_the_next_shrinking() -> None:
    log = [*LOG, Archived(task=1, summary="old"), Shrunk(tasks=(1,)), Revealed(task=1), Archived(task=1, summary="new")]
    transcript = Transcript()
    assert "old" in transcript.messages(log)[0].text
    assert transcript.pending == {1: "new"}
    assert "new" in transcript.messages([*log, Shrunk(tasks=(1,))])[0].text
    assert transcript.pending == {}


def test_results_that_are_left_out_say_what_they_were() -> None:
    assert roles_and_texts([*LOG, Shrunk(outputs=(3,))])[2] == (
        "user",
        "[Results left out here, 4 characters: read_file('x'). Call again for what you need.]\n\nmore",
    )


def test_a_summary_tells_the_beginning_and_keeps_the_opening_of_the_task_that_goes_on() -> None:
    within_b = [*LOG, Summarised(upto=13, text="a, then half of b", usage=Usage())]
    assert roles_and_texts(within_b) == [
        ("user", "[GLOBAL SUMMARY]\na, then half of b\n\ndo b"),
        ("assistant", "b2"),
        ("user", "[died]"),
    ]
    before_b = [*LOG, Summarised(upto=7, text="a", usage=Usage())]
    assert roles_and_texts(before_b) == [("user", "[GLOBAL SUMMARY]\na\n\ndo b"), *roles_and_texts(LOG)[5:]]


def test_the_last_summary_replaces_those_before() -> None:
    log = [*LOG, Summarised(upto=7, text="first", usage=Usage()), Summarised(upto=8, text="second", usage=Usage())]
    assert roles_and_texts(log)[0] == ("user", "[GLOBAL SUMMARY]\nsecond\n\ndo b")


def test_a_task_that_was_half_summarised_can_still_be_archived() -> None:
    log = [
        *LOG,
        Summarised(upto=13, text="a, then half of b", usage=Usage()),
        started("c", "do c"),
        Archived(task=2, summary="b was done"),
        Shrunk(tasks=(2,)),
    ]
    assert roles_and_texts(log) == [
        ("user", "[GLOBAL SUMMARY]\na, then half of b\n\n[ARCHIVED TASK 2]\nb was done\n\ndo c")
    ]


CHANGES: list[Recorded] = [
    Archived(task=1, summary="a was done"),
    Shrunk(tasks=(1,), outputs=(10,)),
    replied("b3"),
    Summarised(upto=8, text="a", usage=Usage()),
    observed("after"),
    Revealed(task=1),
]


@pytest.mark.parametrize("log", [LOG, LOG + CHANGES], ids=["growing", "shrinking, too"])
def test_a_log_that_grows_tells_the_same_as_one_read_at_once(log: list[Recorded]) -> None:
    growing = Transcript()
    for end in range(len(log) + 1):
        assert growing.messages(log[:end]) == render_messages(log[:end])


TASK = st.integers(1, 4)
PLACE = st.integers(0, 24)
EVENT: st.SearchStrategy[Recorded] = st.one_of(
    st.sampled_from(
        [
            started("t"),
            started("p", images=(picture(),)),
            replied("r"),
            observed("o"),
            returned(label="l"),
            replace(replied("n"), requests=(ToolRequest(id="c", name="read_file", arguments="{}"),)),
            replace(observed(""), answers=(ToolAnswer(id="c", text="read", ok=True),)),
            MessageInjected(step=1, text="m"),
            Imported(role="user", text="u"),
            Imported(role="assistant", text="a"),
        ]
    ),
    TASK.map(lambda task: Archived(task=task, summary="s")),
    TASK.map(lambda task: Revealed(task=task)),
    st.tuples(TASK, PLACE).map(lambda at: Shrunk(tasks=(at[0],), outputs=(at[1],))),
    PLACE.map(lambda upto: Summarised(upto=upto, text="g", usage=Usage())),
)
"""What may stand in a log; what an event decides about others may be wrong about them."""


def logs() -> st.SearchStrategy[list[Recorded]]:
    """Any log in which a summary tells what came before it."""
    return st.lists(EVENT, max_size=25).map(
        lambda events: [
            replace(event, upto=min(event.upto, place)) if isinstance(event, Summarised) else event
            for place, event in enumerate(events)
        ]
    )


@given(logs())
def test_any_log_tells_one_conversation_whose_roles_alternate(log: list[Recorded]) -> None:
    growing = Transcript()
    for end in range(len(log)):
        growing.update(log[:end])
    told, fresh = growing.messages(log), Transcript()
    assert told == fresh.messages(log)
    assert growing.entries == fresh.entries
    assert [message.role for message in told] == ["user", "assistant"] * (len(told) // 2) + ["user"] * (len(told) % 2)
    assert growing.tokens == sum(entry.tokens for entry in growing.entries)


@given(logs(), st.integers(0, 25))
def test_a_log_without_decisions_only_adds_to_what_was_told(log: list[Recorded], end: int) -> None:
    quiet = [event for event in log if not isinstance(event, Shrunk | Summarised)]
    earlier, later = render_messages(quiet[:end]), render_messages(quiet)
    whole = len(earlier) - 1  # the last one may still grow
    assert later[: max(0, whole)] == earlier[: max(0, whole)]
    assert not earlier or later[whole].text.startswith(earlier[whole].text)


def test_what_was_told_is_told_again_without_a_new_look() -> None:
    growing = Transcript()
    first = growing.messages(LOG)
    second = growing.messages(LOG)
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_what_stands_before_a_result_that_is_left_out_is_not_told_again() -> None:
    growing = Transcript()
    first = growing.messages(LOG)
    second = growing.messages([*LOG, Shrunk(outputs=(10,))])
    assert [a is b for a, b in zip(first, second, strict=True)] == [True] * 6 + [False] * 3


def test_results_that_are_a_message_of_their_own_are_left_out_in_place() -> None:
    log: list[Recorded] = [started("a", "do a"), replied("1"), observed("one"), replied("2"), observed("two")]
    growing = Transcript()
    first = growing.messages(log)
    second = growing.messages([*log, Shrunk(outputs=(2,))])
    assert [a is b for a, b in zip(first, second, strict=True)] == [True] * 2 + [False] + [True] * 2
    assert second == render_messages([*log, Shrunk(outputs=(2,))])


STEP: st.SearchStrategy[list[Recorded]] = st.sampled_from(
    [
        [replied("r"), returned(label="l"), observed("o")],
        [
            replace(replied("n"), requests=(ToolRequest(id="c", name="read_file", arguments="{}"),)),
            returned(label="l"),
            replace(observed(""), answers=(ToolAnswer(id="c", text="read", ok=True),)),
        ],
        [replied("cut off"), Recovered(text="[died]")],
        [started("next", "do it")],
    ]
)


@given(
    parts=st.lists(st.one_of(STEP, st.sets(st.integers(0, 24), max_size=4)), max_size=12),
    calls_tools=st.booleans(),
    asked=st.integers(1, 5),
)
def test_steps_whose_results_are_left_out_are_told_as_when_the_log_is_read_at_once(
    parts: list[list[Recorded] | set[int]], asked: int, *, calls_tools: bool
) -> None:
    log: list[Recorded] = [started("first", "do a")]
    growing = Transcript(calls_tools=calls_tools)
    for number, part in enumerate(parts):
        log += part if isinstance(part, list) else [Shrunk(outputs=tuple(sorted(part)))]
        if number % asked == 0:
            fresh = Transcript(calls_tools=calls_tools)
            assert growing.messages(log) == fresh.messages(log)
            assert (growing.entries, growing.tokens) == (fresh.entries, fresh.tokens)


def test_a_log_that_was_emptied_begins_anew() -> None:
    transcript = Transcript()
    transcript.messages(LOG + CHANGES)
    assert transcript.messages(LOG[:2]) == render_messages(LOG[:2])


def test_a_message_that_no_window_holds_loses_its_middle() -> None:
    log: list[Recorded] = [started("a", "A" * 900 + "Z" * 900)]
    [message] = Transcript(max_entry_chars=1000).messages(log)
    assert len(message.text) <= 1000
    assert message.text.startswith("AAA")
    assert message.text.endswith("ZZZ")
    assert "characters left out" in message.text


def test_calls_that_no_window_holds_lose_the_middle_of_their_arguments() -> None:
    large = ToolRequest(id="c1", name="write_file", arguments='{"content": "' + "A" * 5_000 + '"}')
    small = ToolRequest(id="c2", name="look", arguments='{"a": 1}')
    reply = replace(replied("r"), requests=(large, small), reasoning="x" * 5_000)
    _, cut = Transcript(max_entry_chars=1_000).messages([started("a", "do a"), reply])
    assert sum(len(each.arguments) for each in cut.requests) <= 1_000
    assert "characters left out" in cut.requests[0].arguments
    assert (cut.requests[1], cut.reasoning) == (small, "")
    _, whole = Transcript().messages([started("a", "do a"), reply])
    assert (whole.requests, whole.reasoning) == ((large, small), reply.reasoning)


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("plain caf\u00e9 \U0001f600", "plain caf\u00e9 \U0001f600"),
        ("half \ud83d of it", "half \ufffd of it"),
        ("\ud83d\ude00 in halves", "\U0001f600 in halves"),
        ("name-\udcff.txt", "name-\ufffd.txt"),
    ],
)
def test_what_no_request_can_carry_is_not_told(said: str, sent: str) -> None:
    told = render_messages([started("a", said), replied(said), observed(said)])
    assert [message.text for message in told] == [sent, sent, sent]
    assert all(message.text.encode() for message in told)


CHART, FORM = picture("chart"), picture("form", shade=9)
SHOWN: list[Recorded] = [
    started("a", "do a", images=(CHART, FORM)),
    replied("a1"),
    observed("a seen"),
    ended(),
    started("b", "do b", images=(FORM,)),
    replied("b1"),
    observed("b seen"),
    replied("b2"),
]


def user_messages(log: list[Recorded]) -> list[tuple[str, list[str]]]:
    """The messages of the user: text, and where their images are from."""
    return [
        (each.text, [image.source for image in each.images]) for each in render_messages(log) if each.role == "user"
    ]


def test_the_message_that_opens_a_task_has_its_images_in_order() -> None:
    assert user_messages(SHOWN[:3]) == [("do a", ["chart", "form"]), ("a seen", [])]


def test_messages_that_become_one_keep_their_images() -> None:
    assert user_messages(SHOWN) == [("do a", ["chart", "form"]), ("a seen\n\ndo b", ["form"]), ("b seen", [])]
    assert user_messages([SHOWN[0], *SHOWN[4:]])[0] == ("do a\n\ndo b", ["chart", "form", "form"])


def test_an_archived_task_shows_its_images_until_the_conversation_is_shrunk() -> None:
    log = [*SHOWN, Archived(task=1, summary="a was done")]
    assert user_messages(log) == user_messages(SHOWN)
    assert user_messages([*log, Shrunk(tasks=(1,))]) == [
        ("[ARCHIVED TASK 1]\na was done\n\ndo b", ["form"]),
        ("b seen", []),
    ]


def test_behind_a_summary_only_the_task_that_goes_on_shows_its_images() -> None:
    assert user_messages([*SHOWN, Summarised(upto=7, text="a, then b", usage=Usage())]) == [
        ("[GLOBAL SUMMARY]\na, then b\n\ndo b", ["form"])
    ]
    between = [*SHOWN[:4], replied("more"), Summarised(upto=4, text="a", usage=Usage())]
    assert user_messages(between)[0] == ("[GLOBAL SUMMARY]\na\n\ndo a", ["chart", "form"])


def test_each_image_counts_as_much_as_one_has_at_most() -> None:
    transcript, plain = Transcript(), Transcript()
    transcript.update(SHOWN)
    plain.update(
        [
            replace(event, task=replace(event.task, images=())) if isinstance(event, Started) else event
            for event in SHOWN
        ]
    )
    assert transcript.tokens - plain.tokens == 3 * IMAGE_TOKENS
    assert transcript.entries[0].tokens - plain.entries[0].tokens == 2 * IMAGE_TOKENS


def test_a_model_that_does_not_see_is_told_that_there_were_images() -> None:
    blind = Transcript(sees_images=False)
    opening, *rest = blind.messages(SHOWN[:3])
    assert (opening.text, opening.images) == ("do a\n\n[The images are not shown here.]", ())
    assert rest == [*render_messages(SHOWN[:3])[1:]]
    assert blind.tokens < IMAGE_TOKENS


@pytest.mark.parametrize("log", [SHOWN, [*SHOWN, Archived(task=1, summary="a"), Shrunk(tasks=(1,)), replied("b3")]])
def test_a_log_with_images_grows_like_any_other(log: list[Recorded]) -> None:
    growing = Transcript()
    for end in range(len(log) + 1):
        assert growing.messages(log[:end]) == render_messages(log[:end])


@settings(deadline=None, max_examples=60)
@given(events=st.lists(any_event(), max_size=12), calls_tools=st.booleans())
def test_whatever_a_log_holds_each_request_has_its_answer_in_the_next_message(
    events: list[Recorded], *, calls_tools: bool
) -> None:
    told = Transcript(max_entry_chars=40, calls_tools=calls_tools).messages(events)
    assert [message.role for message in told] == ["user" if n % 2 == 0 else "assistant" for n in range(len(told))]
    for before, after in pairwise([Message(role="assistant", text=""), *told]):
        assert [each.id for each in after.answers] == [each.id for each in before.requests]
    assert calls_tools or not any(message.requests or message.answers for message in told)


ASKED = [
    ToolRequest(id=id_, name="look", arguments="{}")
    for id_ in ("call_1", "call_1_1", "call_1_2", "call_1_1_3", "x" * 64)
]


@settings(deadline=None, max_examples=100)
@given(
    steps=st.lists(st.tuples(st.lists(st.sampled_from(ASKED), max_size=3, unique=True), st.integers(0, 3)), max_size=8),
    out=st.sets(st.integers(0, 20)),
)
def test_ids_that_come_again_are_told_apart_and_answered_each(
    steps: list[tuple[list[ToolRequest], int]], out: set[int]
) -> None:
    log: list[Recorded] = [started("a", "do a")]
    for number, (asked, answered) in enumerate(steps):
        log.append(replace(replied(f"r{number}"), requests=tuple(asked)))
        given = tuple(ToolAnswer(id=each.id, text=f"{number} {each.id}") for each in asked[:answered])
        if answered:
            log.append(replace(observed("seen"), answers=given))
    growing = Transcript()
    for end in range(len(log)):
        earlier = growing.messages(log[:end])
        assert growing.messages(log[: end + 1])[: len(earlier) - 1] == earlier[:-1]
    kept = [each for message in growing.messages(log) for each in message.requests]
    assert len({each.id for each in kept}) == len(kept) == sum(len(asked) for asked, _ in steps)
    assert all(len(each.id) <= NAME_CHARS for each in kept)
    told = [each.text for message in growing.messages(log) for each in message.answers]
    wanted = [f"{n} {each.id}" for n, (asked, answered) in enumerate(steps) for each in asked[:answered]]
    assert [text for text in told if text != notes.UNANSWERED] == wanted
    log.append(Shrunk(outputs=tuple(out)))
    assert growing.messages(log) == render_messages(log)
    for before, after in pairwise(growing.messages(log)):
        assert [each.id for each in after.answers] == [each.id for each in before.requests]


def cut_at(log: list[Recorded], *, keep: int, least: int = 1, most: int = 1_000_000) -> int | None:
    transcript = Transcript()
    transcript.update(log)
    return find_boundary(log, transcript.entries, keep=keep, least=least, most=most)


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
    assert describe_place(transcript.entries, 1) == 'your reply that begins with "Step 1 of alpha."'
    assert describe_place(transcript.entries, len(TWO_TASKS) - 1) == 'the message that begins with "[Task] gamma"'


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
    assert extract_summary(reply, max_tokens=500) == summary


def test_a_summary_may_be_longer_where_it_replaces_more() -> None:
    transcript = Transcript()
    transcript.update(TWO_TASKS)
    end = len(TWO_TASKS) - 1
    replaced = transcript.tokens_before(len(transcript.entries) - 1)
    assert summary_length(transcript.entries, end, least=10) == pytest.approx(replaced / 20, abs=1)
    assert summary_length(transcript.entries, end, least=5_000) == 5_000
    assert summary_length(transcript.entries, 1, least=10) < summary_length(transcript.entries, end, least=10)


def test_a_summary_is_cut_to_its_length() -> None:
    text = extract_summary("All of it was done well. " * 1_000, max_tokens=100)
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
    text = build_summary(log, len(log) - 1, max_tokens=500, failure="the service is down")
    assert text.splitlines() == [
        "(From the record, since the model wrote no summary (the service is down).)",
        "Task 1: alpha -> finished: Alpha works.",
        "Task 2: beta -> Beta was set aside.",
        "Task 3: gamma and more -> calls so far, the last of 1: Running `pytest -q`",
    ]


def test_the_record_tells_what_people_said_in_a_task_that_goes_on() -> None:
    said = MessageInjected(step=1, text="Do not touch\nthe database.")
    log: list[Recorded] = [started("alpha"), replied(), returned(label="Running `ls`"), said, observed(), replied("b")]
    assert build_summary(log, len(log) - 1, max_tokens=500).splitlines()[1:] == [
        "Task 1: alpha -> calls so far, the last of 1: Running `ls`",
        "[USER MESSAGE] Do not touch the database.",
    ]


def test_the_record_goes_on_from_the_summary_before() -> None:
    log = [*task_of("alpha", 1), started("beta"), Summarised(upto=6, text="Alpha was long.", usage=Usage()), replied()]
    assert build_summary(log, 8, max_tokens=500).splitlines()[1:] == [
        "Alpha was long.",
        "Task 2: beta -> calls so far, the last of 0: none",
    ]


def test_the_record_is_cut_to_its_length() -> None:
    log = [event for n in range(200) for event in task_of(f"task {n}", 1)]
    assert len(build_summary(log, len(log), max_tokens=100)) < 1_000


PROSE = """\
A test that fails tells you where to look; a test that passes tells you nothing at all. The reader of this page has five
minutes and wants to know what the program does, how it is started and what it costs. Everything else can wait until she
asks for it, and most of it never will be asked for.
"""
PYTHON = '''\
def mean(values: list[float]) -> float:
    """The arithmetic mean; 0.0 for nothing."""
    if not values:
        return 0.0
    return sum(values) / len(values)


class Meter:
    def __init__(self, ratio: float = 1.0) -> None:
        self.ratio = ratio
'''
TRACEBACK = """\
Traceback (most recent call last):
  File "/workspace/src/stats.py", line 12, in mean
    return total / count
           ~~~~~~^~~~~~~
ZeroDivisionError: division by zero
=========== 1 failed, 23 passed, 2 skipped in 0.45s ===========
"""
JSON = """\
{"name": "codepilot", "version": "0.1.0", "private": true, "files": ["dist/index.js", "README.md"],
 "dependencies": {"react": "^19.2.1", "left-pad": "~1.3.0"}, "ports": [8080, 8443, 9000]}
"""
CHINESE = "这个程序读取一个文件并且把结果写到屏幕上。如果文件不存在它会告诉用户应该怎么做而不是直接退出。"
JAPANESE = "このプログラムはファイルを読み込み、結果を画面に表示します。"
GERMAN = """\
Dieses Programm liest eine Datei und schreibt das Ergebnis auf den Bildschirm. Wenn die Datei fehlt, sagt es, was zu tun
ist, anstatt einfach aufzuhören.
"""

# By o200k_base, the vocabulary of OpenAI's models, as the npm package gpt-tokenizer 4.0.0 counts.
COUNTED = {PROSE: 68, PYTHON: 74, TRACEBACK: 66, JSON: 73, CHINESE: 29, JAPANESE: 19, GERMAN: 34}


@pytest.mark.parametrize("text", [PROSE, PYTHON, TRACEBACK, JSON])
def test_prose_and_code_are_estimated_within_15_percent(text: str) -> None:
    assert estimate(text) == pytest.approx(COUNTED[text], rel=0.15)


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, GERMAN])
def test_other_languages_are_rather_estimated_too_high(text: str) -> None:
    assert 0.9 < estimate(text) / COUNTED[text] < 1.4


@pytest.mark.parametrize(
    "text", ["é" * 1_000, "🐛" * 1_000, "─" * 1_000, "1234567890" * 100, "\udcff" * 1_000, "한" * 1_000]
)
def test_strange_text_is_not_taken_for_little(text: str) -> None:
    assert estimate(text) > 200


def test_nothing_is_nothing_and_more_is_more() -> None:
    assert estimate("") == 0
    texts = [PYTHON * count for count in range(1, 6)]
    assert sorted(map(estimate, texts)) == [estimate(text) for text in texts]


def test_an_image_counts_as_much_as_one_has_at_most_and_its_bytes_count_nothing() -> None:
    plain, shown = (Message(role="user", text=PROSE, images=images) for images in ((), (picture(), picture())))
    assert estimate_message(plain) == estimate(PROSE)
    assert estimate_message(shown) == estimate(PROSE) + 2 * IMAGE_TOKENS


def test_a_meter_learns_from_what_the_provider_counted() -> None:
    meter = Meter()
    assert meter.expect(1_000) == 1_000
    meter.correct(1_000, Usage(requests=1, input_tokens=100, cached_tokens=1_000, cache_write_tokens=200))
    assert meter.ratio == pytest.approx(1.3)
    assert meter.expect(2_000) == 2_600


@pytest.mark.parametrize(
    ("estimated", "usage"),
    [
        (1_000, Usage(requests=1)),
        (100, Usage(requests=1, input_tokens=180)),
        (1_000, Usage(requests=1, input_tokens=20_000)),
        (1_000, Usage(requests=1, input_tokens=10)),
        (1_000, Usage(requests=2, input_tokens=2_000)),
    ],
)
def test_a_meter_learns_nothing_from_numbers_that_tell_nothing(estimated: int, usage: Usage) -> None:
    meter = Meter(ratio=1.2)
    meter.correct(estimated, usage)
    assert meter.ratio == 1.2


def test_the_defaults_are_those_of_the_documentation() -> None:
    memory = MemorySettings()
    assert (memory.max_context_tokens, memory.global_summary_threshold, memory.global_summary_max_tokens) == (
        120_000,
        0.9,
        500,
    )
    assert memory.threshold_tokens == 108_000


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_context_tokens": 100}, "max_context_tokens is 100"),
        ({"global_summary_threshold": 0.0}, "global_summary_threshold is 0.0"),
        ({"global_summary_threshold": 90}, "global_summary_threshold is 90"),
        ({"global_summary_max_tokens": 0}, "global_summary_max_tokens is 0"),
        ({"max_context_tokens": 8_000, "global_summary_max_tokens": 4_000}, "use 50 to 2000"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, int], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        MemorySettings(**settings)
