"""Every case of the edit corpus, from the reply's text to the files on the disk."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.transports.blocks_parser import ReplyParser
from agent_runtime.workspace.files import Workspace
from tests.agent_runtime.tools.edit_corpus import CASES, Case, Files
from tests.block_files import BlockFiles


def reply_to(case: Case) -> str:
    blocks = [f"`````codepilot\n{case.call}\n`````"]
    blocks += [f"`````text\n{ended(content)}`````" for content in case.contents]
    return "\n".join(blocks) + "\n"


def ended(content: str) -> str:
    """Return a content as a fence can hold it: whole lines with LF."""
    content = content.replace("\r\n", "\n")
    return content if not content or content.endswith("\n") else f"{content}\n"


def payloads_in(reply: str) -> list[str]:
    parser = ReplyParser()
    parser.feed(reply)
    return [payload.text for payload in parser.finish().payloads]


def put(root: Path, files: Files) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content or b"")


def on_disk(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def calls(code: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return the literal calls of a control block."""
    found: list[tuple[list[Any], dict[str, Any]]] = []
    for statement in ast.parse(code).body:
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        arguments = [ast.literal_eval(argument) for argument in statement.value.args]
        named = {each.arg or "": ast.literal_eval(each.value) for each in statement.value.keywords}
        found.append((arguments, named))
    return found


def make_calls(tools: BlockFiles, code: str) -> str:
    return "\n".join(tools.write(*given, **named).text for given, named in calls(code))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_of_the_corpus(case: Case, tmp_path: Path) -> None:
    put(tmp_path, case.before)
    with Workspace(tmp_path) as workspace:
        tools = BlockFiles(workspace)
        for path in case.read:
            tools.read_file(path)
        put(tmp_path, case.meanwhile)
        before = on_disk(tmp_path)
        assert payloads_in(reply_to(case)) == [ended(content) for content in case.contents]
        tools.take(*case.contents, control=case.call)  # without the last newline that a fence would add
        if case.refused:
            with pytest.raises(ToolError, match=case.refused):
                make_calls(tools, case.call)
            assert on_disk(tmp_path) == before
            return
        told = make_calls(tools, case.call)
    assert re.search(case.says, told), told
    wanted = {
        name: content.encode() if isinstance(content, str) else content
        for name, content in {**before, **case.after}.items()
    }
    assert on_disk(tmp_path) == {name: content for name, content in wanted.items() if content is not None}


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 150
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
