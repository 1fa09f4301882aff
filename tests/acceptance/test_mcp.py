"""MCP servers of the operator, on the hub."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from agent_runtime import ToolReturned, ToolsListed
from bot.domain.job import JobState
from localhub import LocalHub
from tests.agent_runtime.mcp.parts import HERE
from tests.pauses import pause_of
from tests.stage import FILES, acting, staged


async def test_jobs_have_the_servers_of_the_operator_that_the_repository_chooses(hub: LocalHub, tmp_path: Path) -> None:
    source = (HERE / "odd_server.py").read_text()
    entry = {"command": sys.executable, "args": ["-I", "-S", "-c", source, "plain"]}
    dying = {**entry, "args": [*entry["args"][:-1], "dies"]}
    servers = [
        {"name": "odd", **entry},
        {"name": "free", "allow": ["echo"], **entry},
        {"name": "unused", **entry},
        {"name": "gone", "allow": ["echo"], **dying},
    ]
    file = tmp_path / "mcp.yaml"
    file.write_text(yaml.safe_dump({"mcp": servers}))
    operator = {"mcp": file, "toolchains": (Path(sys.prefix),)}
    works = acting(
        'print(free_echo("allowed"))\ntry:\n    gone_echo("x")\nexcept OSError:\n    pass\nprint(odd_echo("approved"))',
        completion="There is nothing to change.",
    )
    looks = "```completion\nIt adds.\n```\n"
    files = FILES | {".github/codepilot.yml": "mcp: [odd, free, other, gone]\n"}
    async with staged(hub, tmp_path, [works], [works], [looks], files=files, operator=operator) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        pause = await pause_of(stage, command)
        assert "no rule is about this call, which an MCP server answers" in pause.status
        assert '"word": "approved"' in pause.status
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert "MCP servers that the operator does not define: `other`" in end.status
        assert "MCP servers did not answer a call: `gone`" in end.status
        called = [event for event in stage.events if isinstance(event, ToolReturned) and event.ok]
        assert [(each.tool, each.value) for each in called] == [("free_echo", "allowed"), ("odd_echo", "approved")]
        explained = await stage.ask(issue.number, "/codepilot explain")
        assert "It adds." in explained.status
        # The run that only reads has started none.
        assert [event.server for event in stage.events if isinstance(event, ToolsListed)] == ["odd", "free", "gone"]
