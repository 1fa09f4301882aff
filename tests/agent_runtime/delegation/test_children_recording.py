"""A run with child runs, recorded and replayed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Delegation,
    Persona,
    SandboxSettings,
    ScriptedProvider,
    Status,
    pick_sandbox,
)
from agent_runtime.recordings import Recorder, compare_recording, replay_recording
from tests.agent_runtime.delegation.scripts import DONE, Children, block
from tests.agent_runtime.transports.native.parts import asks, finish


async def test_child_runs_are_recorded_and_replayed_in_any_order(tmp_path: Path) -> None:
    project, before, tape = tmp_path / "project", tmp_path / "before", tmp_path / "run.jsonl"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    shutil.copytree(project, before)
    sandbox = pick_sandbox("auto", SandboxSettings())
    children = Children(
        ALPHA=[block('print(read_file("a.txt"))'), block('write_file("a.txt")', "1\n", completion="Alpha.")],
        BETA=[block('write_file("b.txt")', "2\n", completion="Beta.")],
    )
    code = 'tasks = [delegate("ALPHA", persona="quick"), delegate("BETA")]\nprint([collect(task) for task in tasks])'
    given = Delegation(provider=children, personas=(Persona(name="quick", tools=("read_file", "write_file")),))
    agent = Agent(
        provider=ScriptedProvider([block(code, completion="Done.")]),
        work_dir=project,
        sandbox=sandbox,
        delegation=given,
        chat=False,
    )
    recorder = Recorder(agent, tape)
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        outcome = await runtime.run("Share it")
        assert outcome.status is Status.FINISHED, outcome.reason
    replayed = await replay_recording(tape, work_dir=before, sandbox=sandbox)
    assert replayed.is_same, replayed
    assert replayed.requests == 4
    compared = await compare_recording(tape)
    assert (compared.requests, compared.differences) == (1, ())


CALLED = {
    "SHARE": [asks(("delegate", {"prompt": "ALPHA"}), ("collect", {"task": "t1"})), asks(finish())],
    "ALPHA": [asks(("delegate", {"prompt": "BETA"}), ("collect", {"task": "t1"})), asks(finish("Alpha."))],
    "BETA": [asks(("write_file", {"path": "b.txt", "content": "2\n"}), finish("Beta."))],
}
WRITTEN = {
    "SHARE": [block('delegate("ALPHA")\ncollect("t1")'), DONE],
    "ALPHA": [block('delegate("BETA")\ncollect("t1")'), DONE],
    "BETA": [block('write_file("b.txt")', "2\n", completion="Beta.")],
}


@pytest.mark.parametrize(
    ("parent", "children"), [("blocks", ""), ("tools", ""), ("blocks", "tools"), ("tools", "blocks")]
)
async def test_parent_and_children_are_distinguished_in_each_transport(
    tmp_path: Path, parent: Literal["blocks", "tools"], children: str
) -> None:
    project, before, tape = tmp_path / "project", tmp_path / "before", tmp_path / "run.jsonl"
    project.mkdir()
    shutil.copytree(project, before)
    sandbox = pick_sandbox("auto", SandboxSettings())
    own = Children(preferred=children == "tools", **(CALLED if children == "tools" else WRITTEN)) if children else None
    agent = Agent(
        provider=Children(preferred=True, **(CALLED if parent == "tools" else WRITTEN)),
        transport=parent,
        work_dir=project,
        sandbox=sandbox,
        delegation=Delegation(provider=own, max_depth=2),
        chat=False,
    )
    recorder = Recorder(agent, tape)
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        outcome = await runtime.run("SHARE")
        assert outcome.status is Status.FINISHED, outcome.reason
        assert outcome.usage.requests == 5
    assert (project / "b.txt").read_text() == "2\n"
    replayed = await replay_recording(tape, work_dir=before, sandbox=sandbox)
    assert replayed.is_same, replayed
    assert replayed.requests == 5
    compared = await compare_recording(tape)
    assert (compared.requests, compared.differences) == (2, ())
