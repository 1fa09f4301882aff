from __future__ import annotations

from agent_runtime.context.conversation import Results
from agent_runtime.core.events import Recorded, Shrunk, Summarised
from agent_runtime.core.values import Usage
from tests.agent_runtime.context.logs import observed, replied, returned, started


def command(output: str, *, number: int = 1, tool: str = "execute", terminal: str = "main") -> list[Recorded]:
    """A step that shows what a terminal showed."""
    text = f"[terminal:{terminal}:cmd{number}] $ make\n{output}\n[status: completed | 0.1 s]"
    return [replied(), returned(tool, text, output=output), observed(text)]


FIRST = "".join(f"compiling {n}\n" for n in range(100))
SECOND = "".join(f"linking {n}\n" for n in range(100))


def superseded(log: list[Recorded]) -> list[int]:
    """The answer for a log that grows, which is that for the whole log."""
    growing, whole = Results(), Results()
    for end in range(len(log) + 1):
        growing.update(log[:end])
    whole.update(log)
    assert growing.superseded() == whole.superseded()
    return whole.superseded()


def test_pieces_of_output_are_superseded_by_the_whole() -> None:
    log = [started(), *command(FIRST), *command(SECOND, tool="read_output")]
    assert superseded(log) == []
    assert superseded([*log, *command(FIRST + SECOND, tool="read_output")]) == [3, 6]


def test_output_so_long_that_only_head_and_tail_are_shown_is_superseded_too() -> None:
    early = f"{FIRST * 4}[… 90,000 characters left out …]\n{SECOND * 4}"
    late = f"{FIRST * 4}[… 99,000 characters left out …]\n{SECOND * 4}done\n"
    [reply, call, seen] = command(early)
    clipped = returned("execute", f"{call.text[:5_000]}\n[9 characters left out]\n{call.text[-5_000:]}")  # type: ignore[union-attr] # it is a ToolReturned
    assert superseded([started(), reply, clipped, seen, *command(late, tool="read_output")]) == [3]


def test_another_command_or_another_terminal_supersedes_nothing() -> None:
    log = [started(), *command(FIRST)]
    assert superseded([*log, *command(FIRST, number=2)]) == []
    assert superseded([*log, *command(FIRST, terminal="server")]) == []


def test_output_that_the_whole_does_not_show_is_kept() -> None:
    log = [started(), *command(FIRST), *command(FIRST[:500] + "[... left out ...]" + SECOND, tool="read_output")]
    assert superseded(log) == []


def test_a_step_that_showed_other_things_as_well_is_kept() -> None:
    [reply, call, seen] = command(FIRST)
    mixed = [reply, call, observed(f"{seen.text}\n\n{'a file' * 300}")]  # type: ignore[union-attr] # it is an Observed
    assert superseded([started(), *mixed, *command(FIRST + SECOND, tool="read_output")]) == []


def test_a_result_that_the_code_kept_for_itself_supersedes_nothing() -> None:
    [reply, call, _] = command(FIRST + SECOND, tool="read_output")
    assert superseded([started(), *command(FIRST), reply, call, observed("ok")]) == []


def test_small_results_do_not_matter() -> None:
    assert superseded([started(), *command("ok"), *command("ok and more", tool="read_output")]) == []


def test_large_results_are_far_behind_after_many_replies() -> None:
    results = Results()
    log: list[Recorded] = [started(), *command(FIRST), replied(), observed("small"), *[replied()] * 18]
    results.update(log)
    assert results.far_behind() == []
    results.update([*log, replied()])
    assert results.far_behind() == [3]


def test_what_was_left_out_or_summarised_is_no_candidate_again() -> None:
    log = [started(), *command(FIRST), *command(FIRST + SECOND, tool="read_output"), *command(SECOND, number=2)]
    assert superseded([*log, Shrunk(outputs=(3,))]) == []
    assert superseded([*log, Summarised(upto=4, text="s", usage=Usage())]) == []


def test_a_log_that_was_emptied_begins_anew() -> None:
    results = Results()
    results.update([started(), *command(FIRST), *command(FIRST + SECOND, tool="read_output")])
    results.update([started()])
    assert results.superseded() == []
