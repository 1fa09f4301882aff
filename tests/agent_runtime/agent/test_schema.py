"""The published schema of agent files: fresh, and of the same mind as the library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.agent.agent_file import AgentFile
from agent_runtime.agent.schema import BUILT_IN, json_schema
from agent_runtime.core.errors import SettingsError
from tests.source_files import ROOT

_PUBLISHED = ROOT / "docs" / "agent.schema.json"
_CHECKER = Path(sys.executable).with_name("check-jsonschema")
_MODEL = "  model: {provider: scripted}\n"
_GOOD = {
    "least": f"agent:\n  name: A\n{_MODEL}",
    "rules": f"agent:\n  name: A\n{_MODEL}  permissions:\n    - {{deny: '*', paths: [secrets/**]}}\n",
    "no tools": f"agent:\n  name: A\n{_MODEL}  tools: []\n",
    "tools": "agent:\n  name: A\n" + _MODEL + "  tools:\n" + "".join(f"    - name: {name}\n" for name in BUILT_IN),
}
_BAD = {
    "unknown key": f"agent:\n  name: A\n{_MODEL}  rolle: x\n",
    "unknown tool": f"agent:\n  name: A\n{_MODEL}  tools: [{{name: exceute}}]\n",
    "unknown provider": "agent:\n  name: A\n  model: {provider: antropic}\n",
    "wrong type": f"agent:\n  name: A\n{_MODEL}  runtime: {{max_steps: '30'}}\n",
    "out of range": f"agent:\n  name: A\n{_MODEL}  runtime: {{max_steps: 0}}\n",
    "a key for a name": "agent:\n  name: A\n  model: {provider: openai, api_key_env: sk-1234567890}\n",
    "two decisions": f"agent:\n  name: A\n{_MODEL}  permissions: [{{allow: find, deny: find}}]\n",
    "no decision": f"agent:\n  name: A\n{_MODEL}  permissions: [{{paths: [a]}}]\n",
    "no tools given": f"agent:\n  name: A\n{_MODEL}  tools:\n",
    "no commands given": f"agent:\n  name: A\n{_MODEL}  permissions: [{{allow: execute, commands: }}]\n",
    "no paths": f"agent:\n  name: A\n{_MODEL}  permissions: [{{deny: find, paths: []}}]\n",
    "no model": "agent:\n  name: A\n",
    "nothing": "",
}


def _write(folder: Path, examples: dict[str, str]) -> list[Path]:
    paths = []
    for name, text in examples.items():
        paths.append(folder / f"{name.replace(' ', '-')}.yaml")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def _check(paths: list[Path]) -> subprocess.CompletedProcess[str]:
    options = ["--output-format", "json", "--verbose", "--schemafile", str(_PUBLISHED)]
    return subprocess.run([_CHECKER, *options, *paths], capture_output=True, text=True, check=False)


def test_the_published_schema_is_up_to_date() -> None:
    fresh = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        _PUBLISHED.write_text(fresh, encoding="utf-8")
    assert _PUBLISHED.read_text(encoding="utf-8") == fresh, (
        "run: UPDATE_DOCS=1 .venv/bin/pytest tests/agent_runtime/agent"
    )


def test_good_files_pass_the_schema_and_the_library(tmp_path: Path) -> None:
    paths = _write(tmp_path, _GOOD)
    done = _check(paths)
    assert done.returncode == 0, done.stdout
    for path in paths:
        assert AgentFile.load(path).name == "A"


def test_bad_files_pass_neither(tmp_path: Path) -> None:
    paths = _write(tmp_path, _BAD)
    refused = {each["filename"] for each in json.loads(_check(paths).stdout)["errors"]}
    assert refused == {str(path) for path in paths}
    for path in paths:
        with pytest.raises(SettingsError):
            AgentFile.load(path)


def test_the_examples_in_the_documents_pass_the_schema(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "agent-file.md").read_text(encoding="utf-8")
    examples = [part.partition("```")[0] for part in text.split("```yaml\n")[1:]]
    whole = {f"example {number}": each for number, each in enumerate(examples) if "agent:" in each}
    assert whole
    done = _check(_write(tmp_path, whole))
    assert done.returncode == 0, done.stdout
