"""The documents say what the code says: generated parts are up to date, examples run."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agent_runtime import AsyncRuntime, SandboxSettings, ScriptedProvider, pick_sandbox
from bot.config_table import settings_table
from bot.intake.commands import help_text
from bot.jobs.job import TRANSITIONS
from tests.source_files import ROOT

_GENERATED = re.compile(r"(<!-- generated: (?P<name>[a-z]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
_EXAMPLE = re.compile(r"<!-- example: (?P<name>[a-z]+) -->\n```python\n(?P<code>.*?)```", re.DOTALL)
_SHOWN_SCRIPT = re.compile(r"<!-- script: tools -->\n````yaml\n(?P<text>.*?)````", re.DOTALL)

_SCRIPT = """\
- reply: |
    I write it and look.
    ```codepilot
    write_file("greeting.txt")
    execute("main", "cat greeting.txt", check=True)
    ```
    ```text filename=greeting.txt
    hello
    ```
    ```completion
    There is a greeting now.
    ```
"""


def _states() -> str:
    arrows = [f"    {before} --> {after}" for before, nexts in TRANSITIONS.items() for after in sorted(nexts)]
    ends = [f"    {state} --> [*]" for state, nexts in TRANSITIONS.items() if not nexts]
    first = next(iter(TRANSITIONS))
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *arrows, *ends, "```"])


def _action_table(part: str) -> str:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    rows = [f"| `{name}` | {entry['description']} |" for name, entry in action[part].items()]
    return "\n".join([f"| {part.removesuffix('s')} | meaning |", "|---|---|", *rows])


def _tools() -> str:
    """The declarations of a runtime's own tools. As text: the formatter would touch up what the model is told."""
    sandbox = pick_sandbox("local", SandboxSettings())
    runtime = AsyncRuntime(provider=ScriptedProvider([]), work_dir=ROOT, sandbox=sandbox)
    try:
        return f"```text\n{runtime.registry.declarations}\n```"
    finally:
        asyncio.run(runtime.close())


_MAKERS: dict[str, Callable[[], str]] = {
    "commands": help_text,
    "inputs": lambda: _action_table("inputs"),
    "outputs": lambda: _action_table("outputs"),
    "settings": settings_table,
    "states": _states,
    "tools": _tools,
}


def _documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("path", _documents(), ids=lambda path: path.name)
def test_the_generated_parts_of_a_document_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    fresh = _GENERATED.sub(lambda found: f"{found[1]}{_MAKERS[found['name']]().strip()}\n{found[4]}", text)
    if os.environ.get("UPDATE_DOCS") and fresh != text:
        path.write_text(fresh, encoding="utf-8")
        text = fresh
    assert text == fresh, f"{path.name} is out of date; run: UPDATE_DOCS=1 .venv/bin/pytest tests/test_docs.py"


def test_everything_that_is_generated_stands_in_some_document() -> None:
    named = {found["name"] for path in _documents() for found in _GENERATED.finditer(path.read_text(encoding="utf-8"))}
    assert named == set(_MAKERS)


def test_the_example_of_the_library_runs(tmp_path: Path) -> None:
    examples = {found["name"]: found["code"] for found in _EXAMPLE.finditer((ROOT / "README.md").read_text("utf-8"))}
    asked = 'provider_for("anthropic", api_key=Path("key.txt").read_text().strip())'
    assert asked in examples["library"], "the example asks another model now; tell this test how to replace it"
    script = tmp_path / "script.yaml"
    script.write_text(_SCRIPT, encoding="utf-8")
    code = examples["library"].replace(
        asked, f"provider_for('scripted', options=ModelOptions(script=Path({str(script)!r})))"
    )
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    done = _ran(f"from agent_runtime import ModelOptions\n{code}", workspace)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "finished There is a greeting now.\n"
    assert (workspace / "greeting.txt").read_text(encoding="utf-8") == "hello\n"


def test_the_example_of_a_tool_of_ones_own_runs_with_the_script_beside_it(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    example, script = _EXAMPLE.search(text), _SHOWN_SCRIPT.search(text)
    assert example is not None
    assert script is not None
    (tmp_path / "script.yaml").write_text(script["text"], encoding="utf-8")
    done = _ran(example["code"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "ticket succeeded",
        "write_file succeeded",
        "execute succeeded",
        "finished The title is in title.txt.",
    ]


def _ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
