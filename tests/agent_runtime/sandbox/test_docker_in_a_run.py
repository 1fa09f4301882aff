"""A whole run whose commands, searches and control code keep to a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Agent, AsyncRuntime, Network, ScriptedProvider, SettingsError, Task
from tests.containers import StandIn

REPLY = """\
```codepilot
write_file("greeting.txt")
write_file("/tmp/greeting.txt")
result = execute("main", "pwd; cmp greeting.txt /tmp/greeting.txt", check=True)
print(find("hel+o")[0]["file"], result["exit_code"])
```
```text filename=greeting.txt
hello
```
```
hello
```
```completion
Done.
```
"""


@pytest.mark.slow
async def test_a_run_works_in_a_container_and_leaves_none(tmp_path: Path) -> None:
    engine, work = StandIn.at(tmp_path / "engine"), tmp_path / "work"
    work.mkdir()
    agent = Agent(provider=ScriptedProvider([REPLY]), work_dir=work, sandbox=engine.sandbox())
    async with AsyncRuntime(agent) as runtime:
        outcome = await runtime.run(Task(goal="Greet."))
    assert outcome.summary == "Done."
    assert (work / "greeting.txt").read_text() == "hello\n"
    assert engine.containers == []
    kinds = [call[0] for call in engine.calls if call[0] in {"run", "exec"}]
    assert kinds.count("exec") >= 1


async def test_a_container_gets_no_network_by_asking(tmp_path: Path) -> None:
    engine = StandIn.at(tmp_path / "engine")
    agent = Agent(
        provider=ScriptedProvider([]), work_dir=tmp_path, sandbox=engine.sandbox(), network=Network.of("registries")
    )
    with pytest.raises(SettingsError, match="'docker' cannot enforce a list of hosts"):
        AsyncRuntime(agent)
