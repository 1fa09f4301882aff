from __future__ import annotations

import pytest

from agent_runtime.transports.blocks_parser import expected_writes


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
