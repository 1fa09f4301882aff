from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from agent_runtime.core.errors import FormatCode, FormatError
from agent_runtime.core.events import Streamed
from agent_runtime.transports.blocks_parser import Payload, Reply, ReplyParser, expected_writes, parse
from tests.agent_runtime.transports.reply_cases import (
    ACCEPTED,
    CASES,
    DONE,
    README_EXAMPLE,
    REJECTED,
    RUN,
    WRITE,
    Accepted,
    Rejected,
)


def outcome(text: str, stop: str, *cuts: int) -> tuple[object, ...]:
    """Return the value of a reply that arrives in these chunks, with its live text."""
    return outcome_of([text[a:b] for a, b in zip((0, *cuts), (*cuts, len(text)), strict=True)], stop)


def outcome_of(chunks: list[str], stop: str) -> tuple[object, ...]:
    parser = ReplyParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)] + parser.flush()
    try:
        return merged(events), parser.finish(stop)
    except FormatError as error:
        return merged(events), error.code, str(error)


def merged(events: list[Streamed]) -> list[Streamed]:
    """Join the texts of consecutive events."""
    result: list[Streamed] = []
    for event in events:
        if result and result[-1].completion == event.completion:
            result[-1] = Streamed(text=result[-1].text + event.text, completion=event.completion)
        else:
            result.append(event)
    return result


def live(text: str) -> tuple[str, str]:
    """Return the live prose and completion."""
    parser = ReplyParser()
    events = parser.feed(text) + parser.flush()
    return (
        "".join(event.text for event in events if not event.completion),
        "".join(event.text for event in events if event.completion),
    )


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_an_accepted_reply_has_this_value(case: Accepted) -> None:
    reply = parse(case.text, case.stop)
    assert reply.control == case.control
    assert tuple((payload.text, payload.filename) for payload in reply.payloads) == case.payloads
    assert reply.completion == case.completion
    assert reply.prose == case.prose
    assert reply.exact_payloads == case.exact


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_a_rejected_reply_names_the_rule_the_place_and_the_remedy(case: Rejected) -> None:
    with pytest.raises(FormatError) as caught:
        parse(case.text, case.stop)
    assert caught.value.code == case.code
    for words in case.parts:
        assert words in str(caught.value)


def test_every_format_code_has_an_example() -> None:
    assert {case.code for case in REJECTED} == set(get_args(FormatCode)) - {"missing_tool"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_reply_means_the_same_for_every_way_to_cut_it_in_two(case: Accepted | Rejected) -> None:
    whole = outcome(case.text, case.stop)
    if len(case.text) > 1_000:
        cuts = [1, 2, 11, 12, 13, 14, 500, len(case.text) - 5, len(case.text) - 4, len(case.text) - 1]
    else:
        cuts = list(range(len(case.text) + 1))
        assert outcome_of(list(case.text), case.stop) == whole
    for cut in cuts:
        assert outcome(case.text, case.stop, cut) == whole


def test_parse_and_parser_agree() -> None:
    parser = ReplyParser()
    parser.feed(README_EXAMPLE)
    assert parser.finish() == parse(README_EXAMPLE)
    assert parser.finish() == parse(README_EXAMPLE)


def test_a_payload_says_where_it_stands_and_how_it_was_opened() -> None:
    (payload,) = parse(README_EXAMPLE).payloads
    assert payload == Payload(
        text="# Use\n```sh\nmake\n```\n",
        filename="README.md",
        info="markdown filename=README.md",
        line=5,
    )


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse(RUN).control = "x"  # type: ignore[misc]


def test_prose_display_and_completion_are_live_and_nothing_else_is() -> None:
    text = "Hi.\n```sh\nmake\n```\n" + WRITE + "between\n```\nsecret\n```\n" + DONE
    assert live(text) == ("Hi.\n```sh\nmake\n```\n", "Done.\n")


def test_display_below_a_control_block_that_writes_nothing_is_live() -> None:
    assert live(RUN + "not live\n```sh\nmake\n```\n") == ("```sh\nmake\n```\n", "")


def test_everything_is_live_without_a_control_block() -> None:
    text = "Hi.\n```sh\nmake\n```\n> ```codepilot\nBye ``"
    assert live(text) == (text, "")
    assert live("Hi.\n" + DONE + "Bye.") == ("Hi.\nBye.", "Done.\n")


def test_nothing_is_live_after_a_broken_rule() -> None:
    assert live(RUN + RUN + "more\n" + DONE) == ("", "")
    assert live("```codepilot\n(\n```\n" + DONE) == ("", "")


def test_a_watcher_sees_prose_and_completion() -> None:
    assert merged(ReplyParser().feed(README_EXAMPLE)) == [
        Streamed(text="Fixing both.\n"),
        Streamed(text="Done.\n", completion=True),
    ]


@pytest.mark.parametrize(
    ("chunk", "shown"),
    [
        ("Hello", "Hello"),
        ("a ```", "a ```"),
        ("  ", ""),
        ("   ``", ""),
        ("    ", "    "),
        ("``x", "``x"),
        ("```py", ""),
        ("```py`", "```py`"),
        ("~~~ `", ""),
        ("a\n", "a\n"),
        ("a\n~", "a\n"),
        ("a\r", "a"),
    ],
)
def test_only_the_prefix_of_a_possible_fence_is_held_back(chunk: str, shown: str) -> None:
    events = ReplyParser().feed(chunk)
    assert "".join(event.text for event in events if not event.completion) == shown


def test_a_completion_streams_token_by_token() -> None:
    parser = ReplyParser()
    parser.feed("```completion\n")
    assert parser.feed("All") == [Streamed(text="All", completion=True)]
    assert parser.feed(" done") == [Streamed(text=" done", completion=True)]
    assert parser.feed(".\n``") == [Streamed(text=".\n", completion=True)]
    assert parser.feed("`") == []
    assert parser.flush() == []


def test_held_back_text_is_shown_when_the_text_ends() -> None:
    parser = ReplyParser()
    assert parser.feed("``") == []
    assert parser.flush() == [Streamed(text="``")]
    assert parser.flush() == []
    assert parser.finish() == Reply(control=None, payloads=(), completion=None, prose="``")


def test_a_parser_reads_one_reply() -> None:
    parser = ReplyParser()
    parser.feed("Hi.")
    parser.finish()
    with pytest.raises(RuntimeError, match="new ReplyParser"):
        parser.feed("more")


@pytest.mark.parametrize("stop", ["", "end_turn", "Stop"])
def test_an_unknown_stop_reason_is_the_callers_mistake(stop: str) -> None:
    with pytest.raises(ValueError, match="'stop' or 'length'"):
        parse("Hi.", stop)


def test_a_function_that_writes_is_remembered_for_later_replies() -> None:
    first = parse("```codepilot\ndef save(path):\n    write_file(path)\n```\n")
    assert first.writers == {"save"}
    later = "```codepilot\nsave('a')\n```\n```\nx\n```\n"
    assert parse(later).payloads == ()
    assert [payload.text for payload in parse(later, known_writers=first.writers).payloads] == ["x\n"]


def certain(code: str) -> list[object]:
    return [each.arguments.get("path") for each in expected_writes(code) if each.certain]


def test_a_write_is_planned_with_its_arguments_and_place() -> None:
    [first, second] = expected_writes("x = 1\nwrite_file('a')\nwrite_file('b', 3, end_line=4, mode='edit', payload=2)")
    assert (first.line, first.payloads, first.arguments) == (2, 1, {"path": "a"})
    assert (second.line, second.payloads, second.call) == (
        3, 0, "write_file('b', 3, end_line=4, mode='edit', payload=2)",
    )  # fmt: skip
    assert second.arguments == {"path": "b", "start_line": 3, "end_line": 4, "mode": "edit", "payload": 2}


@pytest.mark.parametrize(
    ("code", "paths"),
    [
        ("write_file('a')\nwrite_file('b')", ["a", "b"]),
        ("execute('main', 'x')\nread_file('q')\nwrite_file('a')\nprint('now')\nx = 1\nwrite_file('b')", ["a", "b"]),
        ("write_file('a')\nexecute('main', 'black .')\nwrite_file('b')", ["a"]),
        ("write_file('a')\nread_file('b')\nwrite_file('b')", ["a"]),
        ("write_file('a')\nfor x in y: execute('main', x)\nwrite_file('b')", ["a"]),
        ("write_file('a')\nfor x in y: print(x)\nwrite_file('b')", ["a", "b"]),
        ("write_file('a')\nassert x\nwrite_file('b')", ["a"]),
        ("write_file('a')\nif x:\n    raise ValueError\nwrite_file('b')", ["a"]),
        ("write_file('a')\nhelper()\nwrite_file('b')", ["a"]),
        ("write_file('a')\nx.method()\nwrite_file('b')", ["a"]),
        ("write_file('a')\nwrite_file(name)\nwrite_file('b')", ["a"]),
        ("write_file(name)\nwrite_file('b')", []),
        ("print(write_file('a'), write_file('b'))", ["a", "b"]),
        ("print(write_file('a'), execute('main', 'x'))\nwrite_file('b')", ["a"]),
        ("for x in y: write_file(x)", []),
        ("write_file('a')\nif x: write_file('b')", []),
        ("write_file('a'", []),
        ("", []),
    ],
)
def test_writes_are_certain_until_something_comes_between(code: str, paths: list[str]) -> None:
    assert certain(code) == paths
