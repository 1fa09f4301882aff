"""The changed lines that a run has read, found out from its events."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import pytest

from agent_runtime import ChildRecorded, Event, Observed, Quote, Started, Task, ToolReturned
from agent_runtime.core.values import Plain, ToolAnswer
from agent_runtime.workspace.edits import number_lines
from bot.domain.difference import ChangedFile, Hunk, Section
from bot.prompt.difference import DIFF_SOURCE
from bot.prompt.reading import Reading, Unread, find_unread
from tests.differences import difference_of, new_file

FILE, SECTION = new_file("src/a.py", [f"line {n}" for n in range(1, 101)])
GONE = ChangedFile(path="gone.py", status="deleted", removed=2)
GONE_SECTION = Section(path="gone.py", previous="gone.py", hunks=(Hunk(old=1, new=0, lines=("-x", "-y")),))
RENAMED = ChangedFile(path="new.py", previous="old.py", status="renamed", added=1, removed=1)
RENAMED_SECTION = Section(path="new.py", previous="old.py", hunks=(Hunk(old=9, new=9, lines=(" a", "-b", "+c", " d")),))


def call(tool: str, text: str, *, value: Plain = None, ok: bool = True, **args: Plain) -> ToolReturned:
    return ToolReturned(number=1, tool=tool, args=args, value=value, text=text, ok=ok, seconds=0.1, label="")


def read_file(first: int, last: int, path: str = "src/a.py", *, of: int = 100) -> ToolReturned:
    head = f"[read_file] {path.partition('::')[0]!r} (lines {first}\u2013{last} of {of}, version 1a2b3c)"
    listing, _ = number_lines([f"line {n}" for n in range(1, last + 1)], first, last)
    return call("read_file", "\n".join([head, *listing]), path=path, start_line=first)


def step(*calls: ToolReturned) -> list[Event]:
    """Return a step whose results the model got."""
    return [*calls, Observed(step=1, text="\n\n".join(each.text for each in calls), ok=True)]


def unread(
    events: Sequence[Event],
    files: Sequence[tuple[ChangedFile, Section | None]] = ((FILE, SECTION),),
    ignored: Collection[str] = (),
) -> Unread:
    sections = [section for _, section in files if section is not None]
    return find_unread([file for file, _ in files], ignored, sections, Reading.of(events))


def started(text: str, source: str = DIFF_SOURCE) -> Started:
    return Started(task=Task(goal="Review it.", quotes=(Quote(source=source, text=text),)), opening="")


def test_a_run_without_a_step_has_read_nothing() -> None:
    assert unread([]) == Unread(names=(("src/a.py", "new, +100"),), total=1, changed=1)


@pytest.mark.parametrize(("room", "total"), [(60_000, 0), (1_000, 1)])
def test_hunks_of_the_first_message_are_read(room: int, total: int) -> None:
    difference = difference_of({"src/a.py": [f"line {n}" for n in range(1, 101)]})
    assert unread([started(difference.render(room))]).total == total


def test_a_quote_of_another_source_shows_no_hunks() -> None:
    difference = difference_of({"src/a.py": [f"line {n}" for n in range(1, 101)]})
    assert unread([started(difference.render(60_000), "comment by @eve")]).total == 1


def test_ranges_of_several_reads_add_up() -> None:
    events = [*step(read_file(41, 100)), *step(read_file(1, 40))]
    assert unread(events).total == 0
    assert unread(events[:2]).total == 1


def test_a_file_is_read_by_any_spelling_of_its_path_and_by_a_symbol() -> None:
    assert unread(step(read_file(1, 60, "./src//a.py"), read_file(61, 100, "src/a.py::Class.f"))).total == 0


def test_all_parts_of_a_read_of_several_files_count() -> None:
    one, two = read_file(1, 60), read_file(41, 100, "./src/a.py")
    text = two.text.replace(re.search(r"(?s)\n41 .*(?=\n61 )", two.text)[0], "\n[lines 41-60: above]")  # type: ignore[index]
    both = call("read_file", f"{one.text}\n\n{text}", path=["src/a.py::C", "./src/a.py", "src/b.py"])
    assert unread(step(both)).total == 0
    assert unread(step(call("read_file", both.text, path=["src/a.py"]))).total == 1


def test_the_lines_shown_count_and_not_those_asked_for() -> None:
    shown = read_file(1, 80)
    outline = call("read_file", f"{shown.text}\nOutline of the rest:\n90 | def f", path="src/a.py", end_line=None)
    assert unread(step(outline)).total == 1


def test_lines_that_the_step_did_not_show_are_not_read() -> None:
    result = read_file(1, 100)
    cut = result.text[: result.text.index("\n90 |")]
    note = "\n[not shown, since a step shows 20,000 characters: lines 90-100 of 'src/a.py']"
    events: list[Event] = [result, Observed(step=1, text=cut + note, ok=True)]
    assert unread(events).total == 1
    assert unread([*events, *step(read_file(90, 100))]).total == 0


def test_a_printed_head_shows_no_lines() -> None:
    result = read_file(1, 100)
    head = result.text.partition("\n")[0]
    assert unread([result, Observed(step=1, text=f"{head}\n1 | line 1\nand so on", ok=True)]).total == 1


@pytest.mark.parametrize("tool", ["read_file", "find"])
def test_a_line_that_a_tool_cuts_is_not_read(tool: str) -> None:
    file, section = new_file("b.py", [f"x = 1{' ' * 3_000}; attack()"])
    shown = f"x = 1{' ' * 1_000}\u2026 [+2,010 characters]"
    read = call("read_file", f"[read_file] 'b.py' (lines 1\u20131 of 1)\n1 | {shown}", path="b.py")
    found = call("find", f"[find] 1 match(es)\nb.py:1:{shown}", value=[{"file": "b.py", "line": 1, "text": shown}])
    assert unread(step(read if tool == "read_file" else found), [(file, section)]).total == 1


def test_lines_of_another_version_are_not_read() -> None:
    file, section = new_file("src/a.py", [f"new {n}" for n in range(1, 101)])
    assert unread(step(read_file(1, 100)), [(file, section)]).total == 1


def test_a_result_that_only_the_agents_code_got_is_not_read() -> None:
    result = read_file(1, 100)
    assert unread([result, Observed(step=1, text="[done, without output]", ok=True)]).total == 1
    assert unread([result]).total == 1


def test_answers_of_native_calls_are_read() -> None:
    result = read_file(1, 100)
    answer = ToolAnswer(id="1", text=result.text, ok=True)
    assert unread([result, Observed(step=1, text="", ok=True, answers=(answer,))]).total == 0


def test_a_failed_read_shows_nothing() -> None:
    failed = call("read_file", "[read_file] 'src/a.py' (lines 1\u2013100 of 100)", ok=False, path="src/a.py")
    assert unread(step(failed)).total == 1


def test_search_results_count_with_the_lines_that_they_show() -> None:
    file, section = new_file("b.py", ["x = 1", "y = 2"])
    matches: list[Plain] = [{"file": "b.py", "line": 1, "text": "x = 1"}, {"file": "b.py", "line": 2, "text": "y = 2"}]
    both = call("find", "[find] 2 match(es)\nb.py\n1:x = 1\n2:y = 2", value=matches, pattern=".")
    cut = call("find", "[find] 2 match(es)\nb.py\n1:x = 1", value=matches, pattern=".")
    names = call("find", "[find] 1 file\nb.py", value=[], pattern=".")
    assert [unread(step(each), [(file, section)]).total for each in (both, cut, names)] == [0, 1, 1]


PATCH = "--- /dev/null\n+++ b/src/a.py\n@@ -0,0 +1,100 @@\n" + "\n".join(f"+line {n}" for n in range(1, 101))


def test_diffs_are_read_and_no_forged_ones() -> None:
    # A commit message, or a file with a patch, can have any text.
    forged = PATCH.replace("line 50", "harmless")
    for patch, total in ((PATCH, 0), (forged, 1), (PATCH.replace("src/a.py", "a.py"), 1)):
        assert unread(step(call("execute", f"[execute] exit code 0\n{patch}\n", command="git log -p"))).total == total


def test_a_diff_that_the_step_cut_is_not_read() -> None:
    result = call("execute", f"[execute] exit code 0\n{PATCH}\n", command="git diff")
    cut = result.text.replace("+line 50\n", "[900 characters left out of execute]\n")
    assert unread([result, Observed(step=1, text=cut, ok=True)]).total == 1


def test_a_deleted_file_is_read_in_a_diff() -> None:
    patch = "--- a/gone.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y"
    files = [(GONE, GONE_SECTION)]
    assert unread([], files).names == (("gone.py", "deleted, -2"),)
    assert unread(step(call("execute", f"[execute]\n{patch}", command="git diff")), files).total == 0


def test_the_new_lines_of_a_renamed_file_are_read() -> None:
    files = [(RENAMED, RENAMED_SECTION)]
    for text, total in (("10 | c", 0), ("9 | c", 1), ("10 | b", 1)):
        result = call("read_file", f"[read_file] 'new.py' (lines 9\u201310 of 11)\n{text}", path="new.py")
        assert unread(step(result), files).total == total


def test_what_a_delegated_task_reads_is_read() -> None:
    events = [ChildRecorded(task="t1", event=event) for event in step(read_file(1, 100))]  # type: ignore[arg-type] # both are recorded
    assert unread(events).total == 0


def test_steps_of_different_runs_do_not_mix() -> None:
    result = read_file(1, 100)
    other = ChildRecorded(task="t1", event=Observed(step=1, text=result.text, ok=True))
    assert unread([result, other]).total == 1


def test_files_read_in_part_say_so() -> None:
    hunks = tuple(Hunk(old=n, new=n, lines=("-a", f"+line {n}")) for n in (1, 20, 40))
    file = ChangedFile(path="src/a.py", status="modified", added=3, removed=3)
    assert unread(step(read_file(15, 25)), [(file, Section(path="src/a.py", hunks=hunks))]).names == (
        ("src/a.py", "+3 -3, 2 of 3 parts"),
    )


def test_a_patch_that_was_cut_is_not_read_to_the_end() -> None:
    short = Section(path="src/a.py", hunks=(SECTION.hunks[0].head(50),))
    assert unread(step(read_file(1, 100)), [(FILE, short)]).total == 1


def test_files_without_lines_need_no_reading_but_binary_ones_are_named() -> None:
    moved = ChangedFile(path="b.py", previous="a.py", status="renamed")
    image = ChangedFile(path="logo.png", status="added", binary=True, size=1_234)
    gone = ChangedFile(path="old.png", status="deleted", binary=True, size=9)
    gaps = unread([], [(moved, None), (image, None), (gone, None)])
    assert gaps.names == (("logo.png", "new, binary, 1,234 bytes"),)
    assert not gaps.is_partial


def test_unread_lock_and_generated_files_beside_others_make_no_review_in_part() -> None:
    paths = ("uv.lock", "a_pb2.py", "vendor/a.py", "a.min.js")
    for path, count in zip(paths, (1, 1, 0, 0), strict=True):
        file = new_file(path, ["x"])[0].with_mark({})
        gaps = unread([started(PATCH)], [(FILE, SECTION), (file, None)])
        assert (gaps.generated, gaps.is_partial) == (count, not count), path
        assert unread([], [(file, None)]).is_partial, "nothing was read"


def test_names_are_bounded_and_counts_are_not() -> None:
    files = [(new_file(f"f{n}.py", ["x"])[0], None) for n in range(450)]
    found = unread([], files, ignored={f"f{n}.py" for n in range(100)})
    assert (len(found.names), found.total, found.changed) == (50, 350, 350)
    assert (len(found.ignored), found.ignored_total) == (50, 100)


def test_names_can_be_stored() -> None:
    name = "\udcff" + "d" * 3_000
    [(shown, _)] = unread([], [(new_file(name, ["x"])[0], None)]).names
    assert len(shown.encode()) < 300
