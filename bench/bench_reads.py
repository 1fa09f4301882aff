"""Characters that a step shows of the files that it reads; nothing is timed."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json.decoder
import json.encoder
import shutil
import tempfile
import textwrap
from pathlib import Path

from agent_runtime import Agent, AsyncRuntime, Observed, SandboxSettings, ScriptedProvider, pick_sandbox
from bench.measure import Figure

_FILES = (json.decoder, json.encoder, textwrap, argparse)
_NAMES = (
    "decoder.py::JSONDecoder.raw_decode",
    "encoder.py::JSONEncoder.iterencode",
    "textwrap.py::TextWrapper._split_chunks",
    "argparse.py::ArgumentParser._get_values",
)
_WHOLE = "\n".join(f"read_file({Path(inspect.getfile(module)).name!r})" for module in _FILES)
_MOST = 16_500


def measure() -> list[Figure]:
    """Characters of a step that reads four files of the standard library, and one function of each."""
    whole, named = asyncio.run(_chars(_WHOLE)), asyncio.run(_chars(f"read_file({list(_NAMES)})"))
    return [
        Figure(label="characters of a step that reads four files whole", value=whole, unit="", bound=_MOST),
        Figure(label="the same, one function of each, in one call", value=named, unit="", bound=_MOST),
    ]


async def _chars(control: str) -> int:
    replies = [f"```codepilot\n{control}\n```\n", "```completion\nRead.\n```\n"]
    with tempfile.TemporaryDirectory() as directory:
        for module in _FILES:
            shutil.copy(inspect.getfile(module), directory)
        sandbox = pick_sandbox("auto", SandboxSettings())
        agent = Agent(provider=ScriptedProvider(replies), work_dir=Path(directory), sandbox=sandbox, chat=False)
        async with AsyncRuntime(agent) as runtime:
            await runtime.run("Read them.")
            [step] = [event for event in runtime.session.events if isinstance(event, Observed)]
    assert step.ok, step.text
    return len(step.text)
