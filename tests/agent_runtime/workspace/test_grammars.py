from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.errors import ToolError
from agent_runtime.reply import Payload
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.payloads import Payloads
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.grammars import fault_in


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
def test_the_first_fault_is_told_with_its_line(source: str, fault: str | None) -> None:
    assert fault_in("src/a.js", source) == fault


def test_a_language_whose_grammar_is_not_installed_is_not_checked() -> None:
    assert fault_in("a.unknown", "((((") is None
    assert fault_in("a.rb", "def f\n") is None or "missing" in str(fault_in("a.rb", "def f\n"))


def test_an_edit_that_breaks_a_javascript_file_is_refused_until_it_is_meant(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("f();\ng();\n")
    with Workspace(tmp_path) as workspace:
        tools = FileTools(workspace)
        for force in (False, True):
            tools.begin_step(Payloads([Payload(text="g(;\n", filename=None)]))
            if force:
                assert (
                    "Syntax error: ')' is missing (line 2"
                    in tools.write_file("a.js", 2, 2, mode="edit", force=True).text
                )
            else:
                with pytest.raises(ToolError, match=r"parses now and would not after this: '\)' is missing \(line 2"):
                    tools.write_file("a.js", 2, 2, mode="edit")
        tools.begin_step(Payloads([Payload(text="f(;\n", filename=None)]))
        tools.write_file("a.js", 1, 1, mode="edit")
    assert (tmp_path / "a.js").read_text() == "f(;\ng(;\n"
