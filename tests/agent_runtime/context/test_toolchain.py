"""The line that tells the model which programs it has: those that run."""

from __future__ import annotations

import platform
import resource
import sys
from pathlib import Path

from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.context.first_message import toolchain


def _program(directory: Path, name: str, *lines: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    (directory / name).chmod(0o755)


async def test_a_program_that_cannot_run_is_not_named(tmp_path: Path) -> None:
    programs, workspace = tmp_path / "programs", tmp_path / "workspace"
    workspace.mkdir()
    _program(programs, "pytest", f"#!{tmp_path}/no/such/python", "")
    _program(programs, "npm", "#!/bin/sh", "exit 1")
    _program(programs, "cargo", "#!/bin/sh", 'test "$1" = --version')
    _program(programs, "go", "#!/bin/sh", 'test "$1" = version')
    python = Path(sys.base_prefix)
    settings = SandboxSettings(read_only=(programs, python), path=(programs, python / "bin"))
    line = await toolchain(pick_sandbox("auto", settings), workspace)
    assert line.startswith(f"Programs: python3 ({platform.python_version()})")
    named = line.split()
    assert {"cargo", "go", "git"} <= set(named)
    assert not {"pytest", "npm"} & set(named)


async def test_the_workspace_answers_for_no_program_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "platform.py").write_text("python_version = lambda: 'a stranger'\n")
    python = Path(sys.base_prefix)
    line = await toolchain(pick_sandbox("auto", SandboxSettings(read_only=(python,), path=(python / "bin",))), tmp_path)
    assert line.startswith(f"Programs: python3 ({platform.python_version()})")


async def test_a_program_that_answers_without_end_is_ended_and_none_is_named(tmp_path: Path) -> None:
    programs, workspace = tmp_path / "programs", tmp_path / "workspace"
    workspace.mkdir()
    _program(programs, "python3", "#!/bin/sh", "exec yes")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sandbox = pick_sandbox("auto", SandboxSettings(read_only=(programs,), path=(programs,)))
    assert await toolchain(sandbox, workspace) == ""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB
