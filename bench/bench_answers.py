"""Characters of tools' answers, which the model pays for in every later request."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import cast

from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.core.errors import ToolError
from agent_runtime.tools.search import SearchTools
from agent_runtime.workspace.files import Workspace
from bench.bench_search import copy_of_stdlib
from bench.measure import Figure
from tests.block_files import BlockFiles

HUNKS, FILES = 41, 8
_FUNCTION = """def parse_field_{i}(record, default=None):
    value = record.get("field_{i}", default)
    if value is None:
        raise KeyError("field_{i}")
    return value

"""
_HUNK = """@@ def parse_field_{i}(record, default=None):
     value = record.get("field_{i}", default)
     if value is None:
-        raise KeyError("field_{i}")
+        raise MissingField("field_{i}", record)
"""


def measure() -> list[Figure]:
    """The answers to a patch of many hunks, to an edit of many lines and to searches with context."""
    return [*_writes(), *asyncio.run(_searches())]


def _writes() -> list[Figure]:
    places = [range(n * HUNKS // FILES, (n + 1) * HUNKS // FILES) for n in range(FILES)]
    patch = "".join(
        "".join([f"*** Update File: fields{n}.py\n", *(_HUNK.format(i=i) for i in place)])
        for n, place in enumerate(places)
    )
    sent = f"*** Begin Patch\n{patch}*** End Patch\n"
    block = "".join(_FUNCTION.format(i=i) for i in range(100, 120))
    with tempfile.TemporaryDirectory() as directory, Workspace(Path(directory)) as workspace:
        for n, place in enumerate(places):
            Path(directory, f"fields{n}.py").write_text("".join(_FUNCTION.format(i=i) for i in place))
        Path(directory, "fields.py").write_text("".join(_FUNCTION.format(i=i) for i in range(HUNKS)))
        tools = BlockFiles(workspace)
        bad = sent.replace('-        raise KeyError("field_7")', "-        no such line")
        with contextlib.suppress(ToolError):
            tools.take(bad).write(mode="patch")
        again = 'write_file(mode="patch", payload=1, hunks=[8])\n' + _HUNK.format(i=7)
        patched = tools.take(_HUNK.format(i=7)).write(mode="patch", payload=1, hunks=[8]).text
        edited = tools.take(block).write("fields.py", 61, 120, mode="edit").text
    return [
        _figure(f"answer to a patch of {HUNKS} hunks in {FILES} files", patched, f"{len(sent):,} characters sent"),
        _figure("sent again when one of its hunks was bad", again, f"{len(sent):,} characters, the whole patch"),
        _figure("answer to an edit that puts 120 lines in place of 60", edited, f"{len(block):,} characters sent"),
    ]


async def _searches() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory, Workspace(copy_of_stdlib(Path(directory))) as workspace:
        search = SearchTools(workspace, pick_sandbox("auto", SandboxSettings()))
        figures = []
        for pattern, target, context in (("def test_", "unittest", 3), ("class .*Error", "concurrent/futures", 5)):
            told = await search.find(pattern, target=target, context=context)
            names = {str(hit["file"]) for hit in cast("list[dict[str, str]]", told.value)}
            paths = sum(told.text.count(name) * len(name) for name in names)
            figures.append(_figure(f"find({pattern!r}, context={context})", told.text, f"{paths:,} of them paths"))
        search.close()
    return figures


def _figure(label: str, text: str, note: str) -> Figure:
    return Figure(label=label, value=len(text), unit="characters", note=note)
