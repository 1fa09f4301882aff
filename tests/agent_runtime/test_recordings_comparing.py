from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from agent_runtime.core.errors import ScriptError
from agent_runtime.core.events import Observed, Recorded, Replied, ReplyBroken, Started, Summarised
from agent_runtime.core.values import Task, Usage
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import Message, ReplyEnd, ReplyStart, Request, TextChunk
from agent_runtime.providers.recording import EVENT, Tape, TapeWriter, parse_tape
from agent_runtime.recordings import Comparison, compare
from agent_runtime.sessions.codec import encode
from agent_runtime.tools.tool import Registry
from agent_runtime.transports.blocks import BlockTransport

ACT = "```codepilot\nfind('x')\n```\n"
BEGUN = Started(task=Task(goal="Go"), opening="# Task\nGo")


def asked(*texts: str) -> Request:
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[index % 2], text=text) for index, text in enumerate(texts))  # type: ignore[arg-type]  # the roles are the two there are
    return Request(system="Old", messages=messages, status="[Step]")


def taped(*happened: Recorded | tuple[Request, str]) -> Tape:
    """A recording of events, and of requests with their replies."""
    writer = TapeWriter()
    lines = [writer.header_line("m", {})]
    for each in happened:
        if isinstance(each, tuple):
            request, reply = each
            number, line = writer.request_line(request)
            end = ReplyEnd(stop="stop", usage=Usage(requests=1))
            chunks: Sequence[ReplyStart | TextChunk | ReplyEnd] = [
                ReplyStart(attempt=1),
                TextChunk(text="void"),
                ReplyStart(attempt=2),
                TextChunk(text=reply),
                end,
            ]
            lines += [line, writer.reply_line(number, chunks, None)]
        else:
            lines.append(writer.note_line(EVENT, json.loads(encode(each))))
    return parse_tape("".join(lines), source="t")


def replied(text: str) -> Replied:
    return Replied(step=1, text=text, usage=Usage(requests=1))


def observed(text: str) -> Observed:
    return Observed(step=1, text=text, ok=True)


def run_of(*, first_reply: str = ACT, seen: str = "Found.", told: str = "Found.") -> Tape:
    """Two steps; the step showed `seen` by its event, and the model was told `told`."""
    return taped(
        BEGUN,
        (asked("# Task\nGo"), first_reply),
        replied(first_reply),
        observed(seen),
        (asked("# Task\nGo", first_reply, told), ACT),
        replied(ACT),
        observed("Found again."),
    )


def compared(tape: Tape, *, system: str) -> Comparison:
    return compare(tape, system=system, read=BlockTransport().open(Registry(), RunLimits()).read_reply)


def test_the_same_code_asks_the_same() -> None:
    found = compared(run_of(), system="Old")
    assert (found.requests, found.summaries, found.differences) == (2, 0, ())


def test_a_difference_is_told_once_however_many_requests_have_it() -> None:
    (told,) = compared(run_of(), system="New").differences
    assert told.endswith("-Old\n+New")


def test_a_message_that_is_rendered_otherwise_is_shown() -> None:
    (told,) = compared(run_of(told="[old frame] Found."), system="Old").differences
    assert "--- recorded message 3" in told
    assert "-user: [old frame] Found.\n+user: Found." in told


def test_a_reply_that_todays_grammar_refuses_is_shown() -> None:
    bad = "```codepilot\nfind('x')\n```\n```codepilot\nfind('y')\n```\n"
    (told,) = compared(run_of(first_reply=bad), system="Old").differences
    assert told.startswith("reply 1 was accepted, and would be rejected now (multiple_control):")


def test_a_reply_that_was_refused_then_too_is_no_difference() -> None:
    bad = "```codepilot\nfind('x')\n```\n```codepilot\nfind('y')\n```\n"
    error = "[Format error 1 of 3 in a row: multiple_control. Nothing was run.]\nOne block."
    assert compared(run_of(first_reply=bad, seen=error, told=error), system="Old").differences == ()


def test_a_request_for_a_summary_is_counted_and_not_compared() -> None:
    summary = Summarised(upto=1, text="It began.", usage=Usage(requests=1))
    tape = taped(BEGUN, (asked("Sum up."), "It began."), summary)
    found = compared(tape, system="Old")
    assert (found.requests, found.summaries, found.differences) == (0, 1, ())


def test_a_request_for_a_summary_that_broke_off_or_met_an_outage_is_not_compared_either() -> None:
    summary = Summarised(upto=1, text="It began.", usage=Usage(requests=1))
    broken = ReplyBroken(reason="it broke", usage=Usage())
    tape = taped(BEGUN, (asked("Sum up."), ""), broken, (asked("Sum up."), "It began."), summary)
    found = compared(tape, system="Old")
    assert (found.requests, found.summaries, found.differences) == (0, 2, ())


def test_without_events_there_is_nothing_to_compared() -> None:
    with pytest.raises(ScriptError, match="contains no events"):
        compared(taped((asked("Hello"), "Hi.")), system="Old")


def test_an_event_of_another_version_is_told() -> None:
    writer = TapeWriter()
    text = writer.header_line("m", {}) + writer.note_line(EVENT, {"kind": "Teleported"})
    with pytest.raises(ScriptError, match="Teleported"):
        compared(parse_tape(text, source="t"), system="Old")
