from __future__ import annotations

import pytest

from agent_runtime.interpreter.source import CodeError, parse_code
from agent_runtime.transports.blocks_parser import Slot, plan_payloads, same_file
from agent_runtime.workspace.edits import payload_count


def paths(code: str, known_writers: frozenset[str] = frozenset()) -> list[str | None] | None:
    slots = plan_payloads(parse_code(code), known_writers).slots
    return None if slots is None else [slot.path for slot in slots]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", []),
        ("print(read_file('a'))", []),
        ("for x in y: print(x)", []),
        ("edit_file('a')", []),
        ("tools.write_file('a')", []),
        ("'write_file'", []),
        ("# write_file('a')", []),
        ("write_file('a')", ["a"]),
        ("write_file(path='a')", ["a"]),
        ("write_file(path)", [None]),
        ("write_file(f'{x}.py')", [None]),
        ("write_file('a', mode='w')", ["a"]),
        ("write_file('a', mode='a')", ["a"]),
        ("write_file('a', start_line=1, end_line=2, mode='edit')", ["a"]),
        ("write_file('a', 1, 2, None, 'edit')", ["a"]),
        ("write_file('a', after_line=3, mode='insert')", ["a"]),
        ("write_file('a', mode='patch')", ["a"]),
        ("write_file('a', mode='replace')", ["a", "a"]),
        ("write_file('a', mode='multi_edit', edits=[(1, 2), (3, 4), (5, 6)])", ["a", "a", "a"]),
        ("write_file('a', mode='multi_edit', edits=((1, 2),))", ["a"]),
        ("write_file('a', mode='multi_edit', edits=[(x, y), (3, 4)])", ["a", "a"]),
        ("write_file('a', mode='multi_edit', edits=[])", []),
        ("write_file('a', None, None, None, 'multi_edit', [(1, 1), (2, 2)])", ["a", "a"]),
        ("write_file('a', payload=2)", []),
        ("write_file('a', mode='replace', payload=2)", []),
        ("write_file('a', mode=m, payload=2)", []),
        ("write_file(mode='patch', payload=2, hunks=[3, 8])", [None, None]),
        ("write_file(mode='patch', payload=2, hunks=None)", []),
        ("write_file(mode='patch', payload=2, hunks=[])", []),
        ("write_file('a', payload=None)", ["a"]),
        ("write_file('a', version=v, force=True)", ["a"]),
        ("write_file('a')\nif x:\n    print(1)\nwrite_file('b')", ["a", "b"]),
        ("r = write_file('a')", ["a"]),
        ("r: str = write_file('a')", ["a"]),
        ("r += write_file('a')", ["a"]),
        ("print(write_file('a'), write_file('b'))", ["a", "b"]),
        ("print([write_file('a'), {'k': write_file('b')}][0])", ["a", "b"]),
        ("write_file(write_file('inner'))", ["inner", None]),
        ("print(\n    write_file('a'),\n    write_file('b'),\n)", ["a", "b"]),
        ("write_file(\n    write_file('inner'),\n)", ["inner", None]),
        ("(x := write_file('a'))", ["a"]),
        ("ok = write_file('a') == 'x'", ["a"]),
        (
            "with a() as f:\n    write_file('a')\n    with b():\n        write_file('b')\nwrite_file('c')",
            ["a", "b", "c"],
        ),
        ("with write_file('a'):\n    write_file('b')", ["a", "b"]),
    ],
)
def test_straight_line_code_tells_its_payloads(code: str, expected: list[str | None]) -> None:
    assert paths(code) == expected


@pytest.mark.parametrize(
    "code",
    [
        "for p in ps: write_file(p)",
        "while x: write_file('a')",
        "if x: write_file('a')",
        "if write_file('a'): pass",
        "try:\n    write_file('a')\nexcept OSError:\n    pass",
        "def f():\n    write_file('a')",
        "class C:\n    write_file('a')",
        "with a():\n    for p in ps: write_file(p)",
        "[write_file(p) for p in ps]",
        "{write_file(p) for p in ps}",
        "{p: write_file(p) for p in ps}",
        "list(write_file(p) for p in ps)",
        "x and write_file('a')",
        "write_file('a') if x else None",
        "a < b < write_file('a')",
        "f = lambda: write_file('a')",
        "w = write_file",
        "map(write_file, ps)",
        "write_file = print",
        "def write_file(p): pass",
        "from m import write_file",
        "import m as write_file",
        "write_file(*args)",
        "write_file('a', **options)",
        "write_file('a', mode=m)",
        "write_file('a', mode=3)",
        "write_file('a', mode='unheard_of')",
        "write_file('a', mode='multi_edit')",
        "write_file('a', mode='multi_edit', edits=edits)",
        "write_file('a', mode='multi_edit', edits=[*more])",
        "write_file('a', mode='multi_edit', edits=[(i, i) for i in x])",
        "write_file('a')\nfor p in ps: write_file(p)",
    ],
)
def test_other_code_leaves_the_count_to_the_run(code: str) -> None:
    assert paths(code) is None


def test_a_slot_knows_the_line_of_its_call() -> None:
    plan = plan_payloads(parse_code("x = 1\nwrite_file(\n    'a',\n)\nwrite_file('b')"))
    assert plan.slots == (Slot(path="a", line=2), Slot(path="b", line=5))


@pytest.mark.parametrize(
    ("code", "writers"),
    [
        ("write_file('a')", set()),
        ("result = write_file('a')", set()),
        ("def save(p):\n    write_file(p)", {"save"}),
        ("w = write_file", {"w"}),
        ("save = lambda p: write_file(p)", {"save"}),
        ("table = {'w': write_file}", {"table"}),
        ("def a(): b()\ndef b(): write_file('x')\nc = a", {"a", "b", "c"}),
        ("if x:\n    def save(p):\n        old(p)", {"save"}),
        ("def show(p): print(p)", set()),
    ],
)
def test_names_that_write_when_used_later_are_known(code: str, writers: set[str]) -> None:
    assert plan_payloads(parse_code(code), frozenset({"old"})).writers == writers


@pytest.mark.parametrize("code", ["old('a')", "map(old, ps)", "write_file('a')\nold('b')", "def old(p): print(p)"])
def test_a_block_that_mentions_an_earlier_writer_leaves_the_count_to_the_run(code: str) -> None:
    assert paths(code, frozenset({"old"})) is None


@pytest.mark.parametrize(
    ("mode", "edits", "taken"), [("w", None, 1), ("replace", None, 2), ("multi_edit", 3, 3), ("patch", None, 1)]
)
def test_the_rule_for_one_call(mode: str, edits: int | None, taken: int) -> None:
    assert payload_count(mode, edits) == taken


def test_a_write_that_repeats_kept_contents_takes_none() -> None:
    assert paths("write_file('a', mode='replace', payload=2)") == []


@pytest.mark.parametrize("mode", ["multi_edit", "x", ""])
def test_a_call_that_is_no_write_has_no_count(mode: str) -> None:
    with pytest.raises(ValueError, match="no such write"):
        payload_count(mode)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "a", True),
        ("./a", "a", True),
        ("a//b", "a/./b", True),
        ("/a", "//a", True),
        ("a", "/a", False),
        ("a", "A", False),
        ("b/../a", "a", False),
        ("src/a", "a", False),
    ],
)
def test_the_same_file_in_other_spellings(one: str, other: str, *, same: bool) -> None:
    assert same_file(one, other) is same


@pytest.mark.parametrize(
    ("code", "line", "reason"),
    [("x = (\n", 1, "never closed"), ("x\n  y", 2, "indent"), ("-" * 9_000 + "1", None, "nested")],
)
def test_code_that_does_not_parse_says_where_and_why(code: str, line: int | None, reason: str) -> None:
    with pytest.raises(CodeError, match=reason) as caught:
        parse_code(code)
    assert caught.value.line == line
