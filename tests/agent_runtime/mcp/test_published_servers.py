"""The servers that the protocol's authors publish, in the sandbox of an agent."""

from __future__ import annotations

import sys
from pathlib import Path

from agent_runtime import AsyncRuntime, Policy, Rule, Status, ToolReturned
from agent_runtime.mcp.settings import McpServer
from tests.agent_runtime.mcp.parts import agent_with, block, python_sandbox
from tests.origin import Origin

ALLOWED = Policy(rules=(Rule(decision="allow", tool="*"),))


async def test_the_servers_for_time_and_git_answer_an_agent(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "work")
    origin.commit({"a.txt": "one\n"})
    (origin.path / "a.txt").write_text("two\n")
    servers = [
        McpServer(name="clock", command=(sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC")),
        McpServer(
            name="git", command=(sys.executable, "-m", "mcp_server_git"), tools=("git_status", "git_diff_unstaged")
        ),
    ]
    code = """\
clock_convert_time(source_timezone="Europe/Warsaw", time="16:30", target_timezone="Asia/Tokyo")
git_git_diff_unstaged(repo_path="/workspace")
"""
    agent = agent_with(origin.path, python_sandbox(), servers, block(code), policy=ALLOWED)
    async with AsyncRuntime(agent) as runtime:
        assert (await runtime.run("Look")).status is Status.FINISHED, runtime.session.events
        clock, git = [event.text for event in runtime.session.events if isinstance(event, ToolReturned)]
    assert "Asia/Tokyo" in clock
    assert "+two" in git
