from __future__ import annotations

import pytest

from agent_runtime.index import parsing
from agent_runtime.index.parsing import ParsedFile, TooSlowError, grammar, is_test, language_of, parse

_SOURCES = {
    "a.py": "class Jar:\n    def open(self):\n        turn()\n",
    "a.js": "class Jar {\n  open() {\n    turn();\n  }\n}\n",
    "a.ts": "export class Jar {\n  open(): void {\n    turn();\n  }\n}\n",
    "a.tsx": "class Jar {\n  open() {\n    turn();\n  }\n}\n",
    "a.go": "package a\ntype Jar struct{}\nfunc (j *Jar) open() {\n\tturn()\n}\n",
    "a.rs": "struct Jar;\nimpl Jar {\n  fn open(&self) {\n    turn();\n  }\n}\n",
    "a.java": "class Jar {\n  void open() {\n    turn();\n  }\n}\n",
    "a.rb": "class Jar\n  def open\n    turn()\n  end\nend\n",
    "a.c": "struct Jar { int lid; };\nint open(void) {\n  return turn();\n}\n",
    "a.cpp": "class Jar { int lid; };\nint Jar::open() {\n  return turn();\n}\n",
}


def _read(name: str, source: str) -> ParsedFile:
    language = language_of(name)
    assert language is not None
    return parse(language, source.encode())


@pytest.mark.parametrize("name", _SOURCES)
def test_all_languages_yield_definitions_and_calls(name: str) -> None:
    found = _read(name, _SOURCES[name])
    assert [piece.name for piece in found.pieces] == ["Jar", "open"]
    outer, method = found.pieces
    assert (outer.kind, outer.header) in {("class", outer.first), ("type", outer.first)}
    assert method.qualified == ("open" if name == "a.c" else "Jar.open")
    assert method.last == method.header + (1 if name == "a.py" else 2)
    assert [(place, callee) for place, callee, *_ in found.calls] == [(1, "turn")]


def test_comments_above_a_definition_belong_to_it() -> None:
    found = _read("a.rs", "use a;\n\n/// Opens.\n#[inline]\npub fn open() {}\n")
    assert [(piece.first, piece.header, piece.docstring.split("\n")[0]) for piece in found.pieces] == [
        (3, 5, "/// Opens.")
    ]
    (exported,) = _read("a.js", "// Opens.\nexport const open = () => {\n};\n").pieces
    assert (exported.first, exported.header, exported.last) == (1, 2, 3)


def test_a_class_is_searched_by_its_own_words_and_not_by_those_of_its_methods() -> None:
    outer, _ = _read(
        "a.py", 'class Jar(Glass, metaclass=Meta):\n    """Holds jam."""\n    lid = 1\n\n    def spoon(self): pass\n'
    ).pieces
    assert (outer.docstring.strip(), outer.bases) == ('"""Holds jam."""', ["Glass"])
    assert "lid" in outer.body
    assert "spoon" not in outer.body


@pytest.mark.parametrize(
    ("source", "receiver"),
    [
        ("turn()", ""),
        ("lid.turn()", "lid"),
        ("self.lid.turn()", "self.lid"),
        ("super().turn()", "super()"),
        ("lids[0].turn()", "?"),
        ("make().lid()[1].turn()", "?"),
        ("'text'.turn()", "?"),
    ],
)
def test_a_call_names_its_receiver(source: str, receiver: str) -> None:
    assert [call[2] for call in _read("a.py", source).calls if call[1] == "turn"] == [receiver]


def test_a_local_variable_of_one_class_stands_for_it() -> None:
    calls = {
        call[3]: call[2]
        for call in _read(
            "a.py", "def f(c: Lid):\n    a = Jar()\n    a.x()\n    b = Jar()\n    b = 1\n    b.x()\n    c.x()\n"
        ).calls
    }
    assert (calls[3], calls[6], calls[7]) == ("Jar()", "b", "Lid()")


def test_a_file_that_parses_slowly_is_skipped() -> None:
    language = language_of("a.cpp")
    assert language is not None
    assert grammar(language)
    with pytest.raises(TooSlowError):
        parse(language, b"a<" * 400_000)


def test_no_file_takes_its_grammar_longer_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    language, source = language_of("a.py"), b"x = 1\n" * 50_000
    assert language is not None
    parse(language, source)
    monkeypatch.setattr(parsing, "_SECONDS", 0.0)
    with pytest.raises(TooSlowError):
        parse(language, source)


def test_a_tree_that_is_slow_to_query_is_skipped() -> None:
    language = language_of("a.py")
    assert language is not None
    with pytest.raises(TooSlowError):
        parse(language, b"(" * 3_000)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("tests/a.py", True), ("a/test_b.py", True), ("a/b_test.go", True), ("a/b.spec.ts", True),
     ("src/BTest.java", True), ("src/contest.py", False), ("attest/a.py", False), ("a/latest.js", False)],
)  # fmt: skip
def test_tests_are_recognised_by_path(path: str, expected: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert is_test(path) is expected
