from __future__ import annotations

from agent_runtime import Connection, NetworkLost, NetworkUsed, ToolReturned
from bot.publishing.progress import Progress
from bot.publishing.verdict import Edits
from bot.publishing.view import Activity, DeniedCall


def test_a_network_that_went_away_is_remembered() -> None:
    used = NetworkUsed(connection=Connection(host="a.example", port=443, allowed=True))
    progress = Progress().after(used).after(NetworkLost(reason="the proxy broke"))
    assert progress.network_lost == "the proxy broke"


def test_what_no_agent_does_is_one_activity_from_its_beginning_to_its_end() -> None:
    begun, ended = Activity(label="setup: make", state="doing"), Activity(label="setup: make", state="failed")
    copied = Activity(label="copied", state="done")
    assert Progress().told(begun).activities == (begun,)
    assert Progress().told(begun).told(ended).told(copied).activities == (ended, copied)
    assert Progress().told(begun).told(ended).told(begun).activities == (ended, begun)


def test_a_denied_call_is_kept_once() -> None:
    call = DeniedCall(tool="execute", asked="curl x", reason="network", setting="allow-commands", value="curl x")
    other = DeniedCall(tool="ask_user", asked="Which?", reason="a question")
    assert Progress().without(call).without(other).without(call).denied == (call, other)


def returned(tool: str, value: dict[str, object] | None = None, **args: object) -> ToolReturned:
    return ToolReturned(number=1, tool=tool, args=args, value=value, text="", ok=True, seconds=2, label=tool)  # type: ignore[arg-type] # plain data


def executed(command: str, status: str, exit_code: int | None, *, check: bool = False) -> ToolReturned:
    value: dict[str, object] = {"status": status, "exit_code": exit_code}
    return returned("execute", value, session_id="main", command=command, check=check)


def test_a_check_counts_by_what_it_is_and_not_by_how_it_was_called() -> None:
    progress = Progress()
    for command, check in (("pytest -q", False), ("ls", True), ("python -c 'x'", False), ("python -c 'y'", True)):
        progress = progress.after(executed(command, "completed", 1, check=check), at=3)
    assert [(each.command, each.exit_code, each.ended) for each in progress.checks] == [
        ("pytest -q", 1, 3),
        ("python -c 'y'", 1, 3),
    ]


def test_the_line_of_a_step_that_failed_is_a_check_without_being_called_one() -> None:
    progress = Progress(failing=("python tools/check.py\n./lint.sh | tee log",))
    for command in ("python tools/check.py", "python tools/other.py", "./lint.sh | tee log"):
        progress = progress.after(executed(command, "completed", 1), at=3)
    assert [each.command for each in progress.checks] == ["python tools/check.py"]


def test_a_check_that_went_on_is_told_with_the_end_that_was_read_later() -> None:
    looked = returned("read_output", {"status": "running", "exit_code": None}, session_id="main")
    ended = returned("read_output", {"status": "completed", "exit_code": 0}, session_id="main")
    begun = Progress().after(executed("pytest", "running", None), at=60).after(looked, at=70)
    assert [each.exit_code for each in begun.checks] == [None]
    over = begun.after(ended, at=80)
    assert [(each.exit_code, each.seconds, each.ended) for each in over.checks] == [(0, 22, 80)]
    assert over.running == ()
    assert over.after(ended, at=90).checks == over.checks


def test_a_write_makes_earlier_checks_outdated_and_a_refused_call_is_no_check() -> None:
    passed = (
        Progress().after(executed("pytest", "completed", 0), at=3).after(returned("execute", command="pytest"), at=4)
    )
    assert [each.standing for each in passed.judged] == ["counts"]
    written = passed.after(returned("write_file", path="a.py"), at=2).after(returned("write_file", path="a.py"), at=5)
    assert [each.standing for each in written.judged] == ["outdated"]
    assert [each.standing for each in passed.edited(Edits(first=4, last=4)).judged] == ["before"]
