from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from agent_runtime import (
    Connection,
    Event,
    NetworkLost,
    NetworkUsed,
    Replied,
    Started,
    Summarised,
    Task,
    ToolCalled,
    ToolReturned,
    Usage,
)
from bot.publishing.checks import Edits
from bot.publishing.status_view import Activity, DeniedCall, Progress

SET_UP = Activity(label="setup: make deps", state="done")


def test_a_network_that_went_away_is_remembered() -> None:
    used = NetworkUsed(connection=Connection(host="a.example", port=443, allowed=True))
    progress = Progress().apply_event(used).apply_event(NetworkLost(reason="the proxy broke"))
    assert progress.network_lost == "the proxy broke"


def _run(run_id: str, cost: float) -> list[Event]:
    begun = Started(task=Task(goal="Fix it."), opening="Fix it.", run_id=run_id)
    return [begun, Replied(step=1, text="x", usage=Usage(requests=1, cost_usd=cost))]


def test_the_usage_of_an_abandoned_run_counts_once() -> None:
    lost = Progress().replay_log(_run("a", 1.0))
    kept = Progress(usage=lost.usage, run_id=lost.run_id)
    assert kept.replay_log(_run("a", 1.0)).usage == kept.replay_log([]).usage == lost.usage
    assert kept.replay_log(_run("b", 0.5)).usage.cost_usd == 1.5
    assert Progress().replay_log(_run("", 1.0)).usage == lost.usage


def test_unavailable_servers_are_listed_once() -> None:
    failed = ToolReturned(
        number=1, tool="docs_search", args={}, value={"server_down": "docs"}, text="x", ok=False, seconds=1, label="x"
    )
    other, answered = replace(failed, value={"server_down": "db"}), replace(failed, value={"server_down": "a"}, ok=True)
    progress = reduce(Progress.apply_event, [failed, other, failed, answered], Progress(warning="Setup failed."))
    assert progress.servers_down == ("docs", "db")
    assert progress.warnings.startswith("Setup failed.\n\nMCP servers did not answer a call: `docs`, `db`.")
    assert Progress(warning="Setup failed.").warnings == "Setup failed."


def test_an_activity_of_the_bot_replaces_its_started_form() -> None:
    begun, ended = Activity(label="setup: make", state="doing"), Activity(label="setup: make", state="failed")
    copied = Activity(label="copied", state="done")
    assert Progress().with_activity(begun).activities == (begun,)
    assert Progress().with_activity(begun).with_activity(ended).with_activity(copied).activities == (ended, copied)
    assert Progress().with_activity(begun).with_activity(ended).with_activity(begun).activities == (ended, begun)


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        (("npm run build",), "`npm run build` still ran and was ended before the change was read."),
        (("a\nb", "c"), "`a b`, `c` still ran and were ended before the change was read."),
        (tuple("abcdefg"), "`e` and 2 more programs still ran"),
        ((), ""),
    ],
)
def test_programs_that_were_ended_are_named(programs: tuple[str, ...], sentence: str) -> None:
    warnings = Progress(ended_programs=programs).warnings
    assert sentence in warnings
    assert bool(warnings) == bool(programs)


def test_a_denied_call_is_recorded_once() -> None:
    call = DeniedCall(tool="execute", request="curl x", reason="network", setting="allow-commands", value="curl x")
    other = DeniedCall(tool="ask_user", request="Which?", reason="a question")
    assert Progress().with_denied_call(call).with_denied_call(other).with_denied_call(call).denied == (call, other)


def returned(tool: str, value: dict[str, object] | None = None, *, at: float = 3, **args: object) -> ToolReturned:
    call = ToolReturned(number=1, tool=tool, args=args, value=value, text="", ok=True, seconds=2, label=tool)  # type: ignore[arg-type] # plain data
    return replace(call, ended=at)


def executed(command: str, status: str, exit_code: int | None, *, check: bool = False, at: float = 3) -> ToolReturned:
    value: dict[str, object] = {"status": status, "exit_code": exit_code}
    return returned("execute", value, at=at, session_id="main", command=command, check=check)


def test_failures_that_the_library_excuses_are_those_of_the_check() -> None:
    failed = executed("pytest -q", "completed", 1)
    excused = replace(
        failed, value={"status": "completed", "exit_code": 1, "failed_before": ["tests/test_a.py::test_b"]}
    )
    assert [each.failed_before for each in Progress().apply_event(excused).checks] == [("tests/test_a.py::test_b",)]
    assert [each.failed_before for each in Progress().apply_event(failed).checks] == [()]


def test_a_check_is_recognized_by_its_command() -> None:
    progress = Progress()
    for command, check in (("pytest -q", False), ("ls", True), ("python -c 'x'", False), ("python -c 'y'", True)):
        progress = progress.apply_event(executed(command, "completed", 1, check=check))
    assert [(each.command, each.exit_code, round(each.ended)) for each in progress.checks] == [
        ("pytest -q", 1, 3),
        ("python -c 'y'", 1, 3),
    ]


def test_the_line_of_a_step_that_failed_is_a_check_without_being_called_one() -> None:
    progress = Progress(failing=("python tools/check.py\n./lint.sh | tee log",))
    for command in ("python tools/check.py", "python tools/other.py", "./lint.sh | tee log"):
        progress = progress.apply_event(executed(command, "completed", 1))
    assert [each.command for each in progress.checks] == ["python tools/check.py"]


def test_a_background_check_gets_its_later_exit_code() -> None:
    looked = returned("read_output", {"status": "running", "exit_code": None}, at=70, session_id="main")
    ended = returned("read_output", {"status": "completed", "exit_code": 0}, at=80, session_id="main")
    begun = Progress().apply_event(executed("pytest", "running", None, at=60)).apply_event(looked)
    assert [each.exit_code for each in begun.checks] == [None]
    over = begun.apply_event(ended)
    assert [(each.exit_code, round(each.seconds), round(each.ended)) for each in over.checks] == [(0, 22, 80)]
    assert over.running == ()
    assert over.apply_event(replace(ended, ended=90)).checks == over.checks


def test_a_write_makes_earlier_checks_outdated_and_a_refused_call_is_no_check() -> None:
    passed = (
        Progress()
        .apply_event(executed("pytest", "completed", 0))
        .apply_event(returned("execute", at=4, command="pytest"))
    )
    assert [each.standing for each in passed.judged_checks] == ["counts"]
    written = passed.apply_event(returned("write_file", at=2, path="a.py")).apply_event(
        returned("write_file", at=5, path="a.py")
    )
    assert [each.standing for each in written.judged_checks] == ["outdated"]
    assert [each.standing for each in passed.with_edits(Edits(first=4, last=4)).judged_checks] == ["before"]


def test_a_run_is_the_same_to_a_process_that_reads_its_log_as_to_one_that_saw_it() -> None:
    begun = Progress(failing=("make check",), warning="no network", setup_failed="make deps", activities=(SET_UP,))
    log: list[Event] = [
        Replied(step=1, text="", usage=Usage(input_tokens=5)),
        returned("write_file", at=2, path="a.py"),
        executed("pytest", "completed", 0, at=4),
        Summarised(upto=1, text="", usage=Usage(input_tokens=7)),
    ]
    seen = begun
    for event in log:
        if isinstance(event, ToolReturned):  # only those who watch are told of its beginning
            seen = seen.apply_event(ToolCalled(number=1, tool=event.tool, args={}, label=event.label))
        seen = seen.apply_event(event)
    assert begun.replay_log(log) == seen
    assert (seen.steps, seen.usage.input_tokens, [each.state for each in seen.activities]) == (1, 12, ["done"] * 3)
    assert seen.setup_failed == "make deps"
