"""The run log: bounded, redacted, and compressed."""

from __future__ import annotations

import zlib

from agent_runtime import (
    ChildRecorded,
    Ended,
    Event,
    MessageInjected,
    Outcome,
    Paused,
    PendingCall,
    Replied,
    ReplyBroken,
    Resumed,
    Started,
    Status,
    Task,
    ToolReturned,
    Usage,
)
from bot.publishing.redact import Redactor
from bot.publishing.status_view import RunLog, build_log, pack_log, prepend_attempts, unpack_log

SECRET = "the-secret-of-this-test"


def _call(text: str = "done", *, ok: bool = True, label: str = "Running `pytest`") -> ToolReturned:
    return ToolReturned(
        number=1,
        tool="execute",
        args={"command": "pytest"},
        value=None,
        text=text,
        ok=ok,
        seconds=1.5,
        label=label,
        ended=5.0,
    )


def _reply(step: int = 1, cost: float | None = 0.25) -> Replied:
    return Replied(step=step, text="Working.", usage=Usage(requests=1, output_tokens=5, cost_usd=cost))


def _log(*events: Event) -> RunLog:
    return build_log(events, Redactor([SECRET]).redact)


def test_each_thing_that_happened_is_an_entry_in_its_order() -> None:
    pending = PendingCall(
        request_id="a1b2c3d4",
        kind="permission",
        tool="execute",
        args={},
        reason="a rule asks",
        preview="rm x",
        workspace="",
    )
    log = _log(
        _reply(),
        _call(ok=False),
        Paused(pending=pending, state="the sealed state", signature="s"),
        Resumed(request_id="a1b2c3d4", approved=True, note="go on"),
        MessageInjected(step=2, text="Use tabs."),
        ChildRecorded(task="t1", event=_call()),
        Ended(outcome=Outcome(status=Status.FINISHED, summary="Fixed.")),
    )
    assert [each.kind for each in log.entries] == ["reply", "call", "wait", "answer", "message", "call", "end"]
    assert [each.ok for each in log.entries] == [True, False, True, True, True, True, True]
    assert "the sealed state" not in str(log)
    assert log.entries[5].title.startswith("t1: ")
    assert log.entries[1].terminal


def test_the_cost_is_the_sum_of_all_replies_and_unknown_when_one_is() -> None:
    assert _log(_reply(), _reply(2), ChildRecorded(task="t1", event=_reply())).usage.cost_usd == 0.75
    assert _log(_reply(), _reply(2, None)).usage.cost_usd is None


def test_a_reply_that_broke_off_is_not_called_a_failure_of_the_service() -> None:
    broken = ReplyBroken(reason="the run ended while it came", usage=Usage())
    [entry] = _log(broken).entries
    assert (entry.title, entry.text) == ("A reply of the model broke off", broken.reason)


def test_secrets_and_terminal_codes_are_removed() -> None:
    [entry] = _log(_call(f"\x1b[31mred\x1b[0m {SECRET}\u202e", label=f"Running `{SECRET}`")).entries
    assert SECRET not in f"{entry.title}{entry.text}"
    assert entry.text == "red [redacted]"


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    [entry] = _log(_call("first\n" + "x" * 100_000 + "\nlast")).entries
    assert entry.text.startswith("first\n")
    assert entry.text.endswith("\nlast")
    assert "characters are left out" in entry.text
    assert len(entry.text) < 9_000


def test_a_long_log_keeps_its_beginning_and_its_end() -> None:
    log = _log(*(_call("x" * 7_000, label=f"call {number}") for number in range(5_000)))
    assert len(pack_log(log)) < 100_000
    assert len(log.entries) + log.left_out == 5_000
    assert log.entries[0].title == "call 0"
    assert log.entries[log.head].title == f"call {log.head + log.left_out}"
    assert log.entries[-1].title == "call 4999"
    assert sum(len(each.text) for each in log.entries) <= 1_000_000


def test_a_log_is_stored_and_read_again() -> None:
    log = _log(_reply(), _call())
    assert unpack_log(pack_log(log)) == log


def test_a_log_of_another_version_is_none() -> None:
    assert unpack_log(b"what is this") is None
    assert unpack_log(zlib.compress(b'{"entries": 5}')) is None
    assert unpack_log(pack_log(_log(_call()))[:-5]) is None


def test_a_stored_log_that_expands_without_end_is_no_log() -> None:
    assert unpack_log(zlib.compress(b" " * 64 * 1024 * 1024)) is None


def _run(run_id: str, cost: float) -> RunLog:
    return _log(Started(task=Task(goal="Fix it."), opening="Fix it.", run_id=run_id), _reply(cost=cost))


def test_a_log_follows_those_of_attempts_that_were_lost() -> None:
    first = prepend_attempts(_run("a", 1.0), None)
    second = prepend_attempts(_run("b", 0.5), first)
    again = prepend_attempts(_run("b", 0.75), second)
    third = prepend_attempts(_run("c", 2.0), unpack_log(pack_log(again)))
    assert [each.kind for each in again.entries] == ["reply", "note", "reply"]
    assert [each.kind for each in third.entries] == ["reply", "note", "reply", "note", "reply"]
    assert [each.usage.cost_usd for each in (first, second, again, third)] == [1.0, 1.5, 1.75, 3.75]
    assert [each.usage.requests for each in (first, second, again, third)] == [1, 2, 2, 3]
    assert (third.before, third.head) == (4, 5)
