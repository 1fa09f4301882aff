from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Policy,
    Recorder,
    Sandbox,
    ScriptedProvider,
    Started,
    Status,
    ToolReturned,
    read_skills,
    replay_recording,
)

SKILL = "---\nname: release\ndescription: Make a release.\n---\nTag it.\n"
REPLY = """Reading.
```codepilot
print(read_skill("release"))
try:
    read_skill("other")
except ValueError as error:
    print(error)
```
```completion
Done.
```
"""


async def test_skills_are_listed_once_and_read_on_demand(place: Path, sandbox: Sandbox) -> None:
    folder = place / ".claude" / "skills" / "release"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    provider = ScriptedProvider([REPLY, "```completion\nDone.\n```\n"])
    agent = Agent(provider=provider, work_dir=place, sandbox=sandbox, policy=Policy(default="ask"))
    skilled = replace(agent, skills=read_skills(place))
    recorder = Recorder(skilled, place.parent / "run.jsonl")
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        assert (await runtime.run("Release")).status is Status.FINISHED
        assert (await runtime.run("Again")).status is Status.FINISHED
        first, second = [event.opening for event in runtime.session.events if isinstance(event, Started)]
        read, refused = [event for event in runtime.session.events if isinstance(event, ToolReturned)]
    assert "# Skills" in first
    assert "- release: Make a release." in first
    assert "# Skills" not in second
    assert (read.value, read.text) == (
        "Tag it.",
        "[skill release, whose other files are in .claude/skills/release/]\nTag it.",
    )
    assert "there are: release" in refused.text
    assert (await replay_recording(place.parent / "run.jsonl", work_dir=place, sandbox=sandbox)).is_same
    async with AsyncRuntime(agent) as runtime:
        assert "read_skill" not in runtime.registry.names
