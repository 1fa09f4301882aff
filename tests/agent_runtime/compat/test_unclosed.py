"""Programs that end as the documents show it: without `close`, and without a word about that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandboxes import processes_with, seconds

ROOT = Path(__file__).parents[3]
_COMMAND = "sleep 1000 & echo done here; git init -q nested; (sleep 0.01; git init -q late) &"
_MODELS = f"""
import llm
from tests.agent_runtime.compat.llm_models import ScriptedModel, execute, plugged
model = ScriptedModel([execute({_COMMAND!r})], "All is well.")
class Models:
    @llm.hookimpl
    def register_models(self, register):
        register(model)
"""
_TOOLS = f"from agent_runtime.compat.coding import CodingTools\nprint(CodingTools('.').execute_command({_COMMAND!r}))"
_GLOBAL_TOOLS = f"""
from agent_runtime.compat.coding import CodingTools
tools = CodingTools(".")
print(tools.execute_command({_COMMAND!r}))
"""
_AGENT = f"""{_MODELS}
from agent_runtime.compat.coding import CodingAgent
agent = CodingAgent(model=model, root=".", approve=True)
result = agent.run("Do it.")
print(result.tool_calls[0][1].output, result.text)
"""
_CHAT = f"""{_MODELS}
from llm.cli import cli
with plugged(Models()):
    cli(["chat", "-m", "scripted-model", "--tool", "CodingTools", "--td"])
"""
_PYGENT = f"from agent_runtime.compat.pygent import Runtime\nrt = Runtime(workspace='.')\nprint(rt.bash({_COMMAND!r}))"

_TIMED_OUT = """
from agent_runtime.compat.pygent import Agent, Runtime
from tests.agent_runtime.compat.pygent_models import ScriptedModel, calls
agent = Agent(Runtime(workspace="."), ScriptedModel(calls(("bash", {"cmd": "sleep 1000"}))))
print("done here", agent.run_until_stop("Do it.", step_timeout=0.5).reason)
"""


_HOST = """
from agent_runtime.compat import coding, pygent
if {is_pygent}:
    rt = pygent.Runtime(workspace=".", sandbox="local")
    print(rt.bash({command!r}))
else:
    tools = coding.CodingTools(".", sandbox="local")
    print(tools.execute_command({command!r}))
"""


@pytest.mark.parametrize("program", [_TOOLS, _GLOBAL_TOOLS, _AGENT, _CHAT, _PYGENT, _TIMED_OUT])
def test_a_program_that_closes_nothing_ends_silently(project: Path, program: str) -> None:
    _run(project, program)
    assert not (project / "nested/.git").exists()


@pytest.mark.parametrize("is_pygent", [False, True])
def test_a_background_program_on_the_host_ends_with_a_program_that_closes_nothing(
    project: Path, *, is_pygent: bool
) -> None:
    tag = seconds(71900)
    command = f"nohup sleep {tag} >/dev/null 2>&1 & until pgrep -f 'sleep {tag}$'; do :; done; echo done here"
    _run(project, _HOST.format(is_pygent=is_pygent, command=command))
    assert not processes_with(tag)


def _run(project: Path, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{program}"],
        cwd=project,
        input="Do it.\nquit\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "done here" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "never retrieved" not in done.stderr
    assert done.returncode == 0
