from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.syntax import find_error
from tests.block_files import BlockFiles


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("f();\n", None),
        ("", None),
        ("function f() {\n  return 1;\n", "'}' is missing (line 2: 'return 1;')"),
        ("let a = 1;\nlet = = 2;\n", "syntax error (line 2: 'let = = 2;')"),
        ("// é\nf(;\n", "')' is missing (line 2: 'f(;')"),
    ],
)
def test_the_first_error_is_reported_with_its_line(source: str, fault: str | None) -> None:
    assert find_error("src/a.js", source) == fault


@pytest.mark.parametrize(
    ("path", "good", "bad", "fault"),
    [
        ("a.go", "package a\n\nfunc f() int { return 1 }\n", "package a\n\nfunc f( int { return 1 }\n", "line 3"),
        ("a.rs", "fn f() -> i32 { 1 }\n", "fn f() -> i32 { 1\n", "line 1"),
        ("a.ts", "const a: number = 1;\n", "const a: = 1;\n", "line 1: 'const a: = 1;'"),
        ("a.mts", "export type A = { b: string };\n", "export type A = { b: string;\n", "line 1"),
        ("a.tsx", "const a = <b c={1}>d</b>;\n", "const a = <b c={1}>d</c;\n", "line 1"),
        ("a.jsx", "const a = <b>c</b>;\n", "const a = <b>c;\n", "line 1"),
        ("a.sh", "if true; then\n  ls\nfi\n", "if true; then\n  ls\n", "line"),
    ],
)
def test_installed_grammars_detect_syntax_errors(path: str, good: str, bad: str, fault: str) -> None:
    assert find_error(path, good) is None
    assert fault in (find_error(path, bad) or "nothing")


def test_an_edit_that_breaks_a_file_of_another_language_is_refused(tmp_path: Path) -> None:
    for name, good, bad in (
        ("a.go", "package a\n\nfunc f() {}\n", "func f( {}\n"),
        ("a.rs", "mod a;\n\nfn f() {}\n", "fn f() {\n"),
        ("a.ts", "let a = 1;\n\nlet b: number = 2;\n", "let b: = 2;\n"),
    ):
        (tmp_path / name).write_text(good)
        with Workspace(tmp_path) as workspace:
            tools = BlockFiles(workspace)
            tools.take(bad)
            with pytest.raises(ToolError, match=f"{name!r} not written"):
                tools.write(name, 3, 3, mode="edit")
        assert (tmp_path / name).read_text() == good


def test_a_language_whose_grammar_is_not_installed_is_not_checked() -> None:
    assert find_error("a.unknown", "((((") is None
    assert find_error("a.rb", "def f\n") is None or "missing" in str(find_error("a.rb", "def f\n"))


def test_an_edit_that_breaks_a_javascript_file_needs_force(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("f();\ng();\n")
    with Workspace(tmp_path) as workspace:
        tools = BlockFiles(workspace)
        for force in (False, True):
            tools.take("g(;\n")
            if force:
                assert "Syntax error: ')' " in tools.write("a.js", 2, 2, mode="edit", force=True).text
            else:
                with pytest.raises(ToolError, match=r"'\)' .*\(line 2"):
                    tools.write("a.js", 2, 2, mode="edit")
        tools.take("f(;\n")
        tools.write("a.js", 1, 1, mode="edit")
    assert (tmp_path / "a.js").read_text() == "f(;\ng(;\n"
