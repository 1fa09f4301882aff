"""Each tool, and the largest things that a stranger's repository or a model can give it. See `bench_host`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LARGE = 9_900_000  # bytes; a file of more than 10,000,000 is not read
_STARS = "*a" * 13 + "*b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool.

    Attributes:
        arguments: of the call.
        payloads: what it writes.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    payloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is measured together.

    Attributes:
        tool: its name; empty for what the runtime does by itself.
        label: its input, in words.
        prepare: makes the workspace.
        calls: one after the other; each may end with an error.
        tasks: how many tasks the conversation has had before.
    """

    tool: str
    label: str
    prepare: Callable[[Path], None]
    calls: tuple[Call, ...] = (Call(),)
    tasks: int = 0


def nothing(_folder: Path) -> None:
    """An empty workspace."""


def _short_lines(folder: Path) -> None:
    for number in range(12):
        (folder / f"short{number}").write_text("ab\n" * (LARGE // 3))


def _table(folder: Path) -> None:
    """An ordinary file of 200,000 lines."""
    (folder / "table.csv").write_text(
        "".join(f"{n},{n * 7919 % 200_000:06},some text and more of it,1.5\n" for n in range(200_000))
    )


def _alike(folder: Path) -> None:
    """Lines that are all nearly the one that is looked for."""
    (folder / "alike").write_text("".join(f"{'ab' * 45}{n % 97}\n" for n in range(LARGE // 93)))


def _source(folder: Path) -> None:
    (folder / "source.py").write_text("".join(f"def f{n}(a):\n    return [a, {n}]\n\n" for n in range(27_000)))


def _stars(folder: Path) -> None:
    (folder / ".gitignore").write_text(f"{_STARS}\n")
    (folder / ("a" * 200)).touch()


def _names(folder: Path) -> None:
    """Many files, and as many patterns."""
    (folder / ".gitignore").write_text("".join(f"n{n}*\n" for n in range(100_000)))
    for number in range(100):
        below = folder / str(number)
        below.mkdir()
        for name in range(1000):
            (below / f"name{name}").touch()


def _long_lines(folder: Path) -> None:
    for number in range(30):
        (folder / f"long{number}").write_text("x" * LARGE)


def _matching_names(folder: Path) -> None:
    for number in range(100):
        below = folder / str(number)
        below.mkdir()
        for name in range(200):
            (below / f"{'a' * 150}{name}").write_text("x\n")


def _hunks() -> str:
    hunks = (
        f"@@\n-{n},{n * 7919 % 200_000:06},some text and more of it,1.5\n+changed {n}\n" for n in range(0, 200_000, 200)
    )
    return f"*** Begin Patch\n*** Update File: table.csv\n{''.join(hunks)}*** End Patch\n"


def _flood(size: int) -> Call:
    return Call(arguments={"command": f"yes {'ab' * 30} | head -c {size}", "session_id": "main", "timeout": 60})


CASES = (
    Case(
        tool="read_file",
        label="one line each of 12 files of 9.9 MB in lines of two letters",
        prepare=_short_lines,
        calls=tuple(Call(arguments={"path": f"short{n}", "start_line": 1, "end_line": 1}) for n in range(12)),
    ),
    Case(
        tool="read_file",
        label="a file of 200,000 lines, whole",
        prepare=_table,
        calls=(Call(arguments={"path": "table.csv"}),),
    ),
    Case(
        tool="write_file",
        label="old text that is not in 200,000 lines",
        prepare=_table,
        calls=(Call(arguments={"path": "table.csv", "mode": "replace"}, payloads=("no,such,line\n", "x\n")),),
    ),
    Case(
        tool="write_file",
        label="old text that is not in 9.9 MB, all of it like it",
        prepare=_alike,
        calls=(Call(arguments={"path": "alike", "mode": "replace"}, payloads=("ab" * 45 + "xx\n", "x\n")),),
    ),
    Case(
        tool="write_file",
        label="a line of 9.9 MB in lines of two letters",
        prepare=_short_lines,
        calls=(Call(arguments={"path": "short0", "mode": "edit", "start_line": 2, "end_line": 2}, payloads=("x\n",)),),
    ),
    Case(
        tool="write_file",
        label="a patch of 1,000 hunks on 200,000 lines",
        prepare=_table,
        calls=(Call(arguments={"mode": "patch"}, payloads=(_hunks(),)),),
    ),
    Case(
        tool="write_file",
        label="a line of 1 MB of Python",
        prepare=_source,
        calls=(
            Call(
                arguments={"path": "source.py", "mode": "edit", "start_line": 2, "end_line": 2}, payloads=("    x\n",)
            ),
        ),
    ),
    Case(tool="list_files", label="13 stars in .gitignore and a name of 200 letters", prepare=_stars),
    Case(tool="list_files", label="100,000 files, 100,000 patterns in .gitignore", prepare=_names),
    Case(
        tool="find",
        label="30 lines of 9.9 MB that match",
        prepare=_long_lines,
        calls=(Call(arguments={"pattern": "x", "max_results": 1000}),),
    ),
    Case(
        tool="find",
        label="20,000 names against a glob of 13 stars",
        prepare=_matching_names,
        calls=(Call(arguments={"pattern": "x", "include": f"*/{_STARS}"}),),
    ),
    Case(tool="execute", label="50 MB of output", prepare=nothing, calls=(_flood(50_000_000),)),
    Case(
        tool="read_output",
        label="50 MB of output that nobody has read",
        prepare=nothing,
        calls=(
            Call(arguments={"command": "(sleep 1; yes abcd | head -c 50000000)", "session_id": "main", "timeout": 0.5}),
            Call(arguments={"session_id": "main", "timeout": 60}),
        ),
    ),
    Case(
        tool="send_input",
        label="1 MB typed",
        prepare=nothing,
        calls=(
            Call(arguments={"command": "cat >/dev/null", "session_id": "main", "timeout": 0.5}),
            Call(arguments={"session_id": "main", "text": "ab\n" * 333_000, "timeout": 5}),
        ),
    ),
    Case(
        tool="terminate_terminal",
        label="a terminal that floods",
        prepare=nothing,
        calls=(
            Call(arguments={"command": "yes", "session_id": "main", "timeout": 0.5}),
            Call(arguments={"session_id": "main"}),
        ),
    ),
    Case(
        tool="ask_user",
        label="1 MB of question",
        prepare=nothing,
        calls=(Call(arguments={"question": "why? " * 200_000}),),
    ),
    Case(
        tool="archive_context",
        label="the first of 1,000 tasks",
        prepare=nothing,
        calls=(Call(arguments={"task": 1, "summary": "Done."}),),
        tasks=1000,
    ),
    Case(
        tool="reveal_context",
        label="the first of 1,000 tasks",
        prepare=nothing,
        calls=(Call(arguments={"position": 1}),),
        tasks=1000,
    ),
    Case(tool="list_archived_context", label="1,000 tasks", prepare=nothing, tasks=1000),
    Case(tool="", label="noting the files for a pause: 100,000 files, 100,000 patterns", prepare=_names),
    Case(
        tool="",
        label="12 files of 9.9 MB that a command has changed",
        prepare=_short_lines,
        calls=tuple(Call(arguments={"path": f"short{n}", "start_line": 1, "end_line": 1}) for n in range(12)),
    ),
)
