from __future__ import annotations

import pytest

from agent_runtime.policy.policy import CallFacts
from agent_runtime.tools import tool


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\twith a tab\nand a line", "plain text\twith a tab\nand a line"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb\u2066c\ufeff", "a\\u200bb\\u2066c\\ufeff"),
        ("\x1b[2Kx\r\x00\x9b", "\\x1b[2Kx\\r\\x00\\x9b"),
        ("a\u00a0b\u3000c\u2028d", "a\\xa0b\\u3000c\\u2028d"),
        ("\u3164\u115f\u2800", "\\u3164\\u115f\\u2800"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("caf\u00e9 cafe\u0301 \u65e5\u672c \U0001f600", "caf\u00e9 cafe\u0301 \u65e5\u672c \U0001f600"),
        ("a\ufe0f", "a\\ufe0f"),
        ("z" + "\u0300" * 4, "z\u0300\u0300\\u0300\\u0300"),
        ("\ue000", "\\ue000"),
    ],
)
def test_nothing_stays_unseen(text: str, shown: str) -> None:
    assert tool.visible(text) == shown
    assert tool.visible(shown) == shown


def test_long_lines_and_many_of_them_are_cut_and_counted() -> None:
    assert tool.clip_line("x" * 600) == "x" * 500 + "… [+100 characters]"
    assert tool.clip_line("x" * 500) == "x" * 500
    assert tool.render_clipped(["a"] * 302) == "\n".join(["a"] * 300) + "\n… 2 more lines not shown"
    assert len(tool.render_clipped(["y" * 500] * 300)) < 20_100
    assert tool.render_clipped(["y" * 500] * 300).endswith("… 261 more lines not shown")


def test_a_command_is_shown_whole_and_cannot_forge_another() -> None:
    command = "pytest -q\nIn terminal main, /:\n$ true " + "x" * 300 + "; rm -rf ."
    shown = tool.preview_command(command, terminal="main", cwd="/work", fresh=False).split("\n")
    assert shown[:4] == ["In terminal main, /work:", "$ pytest -q", "> In terminal main, /:", "> $ true " + "x" * 151]
    assert shown[-1].endswith("; rm -rf .")
    assert all(line.startswith("… ") for line in shown[4:])
    assert tool.preview_command("ls", terminal="a\u202eb", cwd="", fresh=True).startswith(
        "In a new terminal a\\u202eb:"
    )


def test_input_is_previewed_as_a_literal() -> None:
    shown = tool.preview_input("yes\n\x1b[A\u202e", terminal="main", running="python -i")
    assert shown == "Typed into terminal main, where `python -i` runs:\n'yes\\n\\x1b[A\\u202e'"


def test_any_other_call_is_shown_with_its_arguments() -> None:
    assert tool.preview_call("deploy", {"to": "prod\u202e", "n": [1]}) == (
        'deploy\n{\n  "to": "prod\\u202e",\n  "n": [\n    1\n  ]\n}'
    )


def test_blank_lines_are_counted_and_nothing_of_a_command_is_omitted() -> None:
    lines = ["true", *[" \t"] * 300, *["echo x"] * 400, "", "", "rm -rf ."]
    shown = tool.preview_command("\n".join(lines), terminal="main", cwd="", fresh=False).split("\n")
    assert shown[1:4] == ["$ true", "… 300 blank lines", "> echo x"]
    assert shown.count("> echo x") == 400
    assert shown[-3:] == ["> ", "> ", "> rm -rf ."]


def test_no_line_can_be_taken_for_one_that_counts_others() -> None:
    shown = tool.preview_command("true\n… 300 blank lines\n}\n}\n}\n}", terminal="main", cwd="", fresh=False)
    assert shown.split("\n")[2:] == ["> … 300 blank lines", *["> }"] * 4]


@pytest.mark.parametrize("command", ["x" * 20_001, "x\n" * 10_000, "\u202e" * 4_000, "x\n\n" * 5_000])
def test_a_text_that_is_too_long_is_not_previewed_in_part(command: str) -> None:
    assert not tool.preview_command(command, terminal="main", cwd="", fresh=False)
    assert not tool.preview_input(command, terminal="main", running="cat")
    assert not tool.preview_call("deploy", {"to": command})


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (CallFacts(tool="execute", args={}, command="pytest -q\nrm \u202ex"), r"Execute: pytest -q\nrm \u202ex"),
        (CallFacts(tool="send_input", args={"session_id": "main"}, typed_input="yes\n"), r"Type into 'main': yes\n"),
        (CallFacts(tool="deploy", args={"to": "production"}), 'deploy {"to": "production"}'),
        (
            CallFacts(
                tool="write_file", args={"mode": "edit", "start_line": 3, "end_line": 4}, paths=("a",), writes=True
            ),
            "Write 'a' (replace lines 3-4)",
        ),
        (
            CallFacts(tool="write_file", args={"mode": "insert", "after_line": 0}, paths=("a",), writes=True),
            "Write 'a' (insert after line 0)",
        ),
        (
            CallFacts(tool="write_file", args={"mode": "multi_edit", "edits": [[1, 2]]}, paths=("a",), writes=True),
            "Write 'a' (replace lines [[1, 2]])",
        ),
        (
            CallFacts(tool="write_file", args={"mode": "patch"}, paths=("a", "it's\n"), writes=True),
            r"""Write 'a', "it's\n" (patch)""",
        ),
        (CallFacts(tool="edit_file", args={"path": "a"}, paths=("a",), writes=True), "Write 'a' (edit_file)"),
    ],
)
def test_a_call_in_one_line_has_its_files_without_their_contents(facts: CallFacts, told: str) -> None:
    assert tool.describe_in_line(facts) == told
