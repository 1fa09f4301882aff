"""Threat 11: a person approves only what was shown to them whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Observed,
    Policy,
    Rule,
    SandboxSettings,
    ScriptedProvider,
    Status,
    on_permission_request,
    pick_sandbox,
)

ASKS = (Rule(decision="ask", tool="execute"), Rule(decision="ask", tool="write_file"))
DONE = "```completion\nDone.\n```\n"
TAIL = "touch evil"
TOO_LONG = f"{'true; ' * 4_000}{TAIL}"


def command(text: str) -> str:
    return f"```codepilot\nexecute('main', {text!r})\n```\n"


@asynccontextmanager
async def runtime(folder: Path, *replies: str) -> AsyncIterator[AsyncRuntime]:
    agent = Agent(
        provider=ScriptedProvider([*replies, DONE]),
        work_dir=folder,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        policy=Policy(rules=ASKS),
        chat=False,
    )
    async with AsyncRuntime(agent) as made:
        yield made


@pytest.mark.parametrize(
    "text",
    ["\n" * 300 + TAIL, "true\n" * 400 + TAIL, "true; " * 2_105 + TAIL, "true" + " " * 5_000 + "; " + TAIL],
    ids=["blank lines", "lines", "one long line", "spaces"],
)
async def test_the_end_of_a_command_that_waits_is_shown(tmp_path: Path, text: str) -> None:
    async with runtime(tmp_path, command(text)) as made:
        outcome = await made.run("Go")
        assert outcome.pending is not None
        assert outcome.pending.preview.replace("\n… ", "").endswith(TAIL)
        assert max(map(len, outcome.pending.preview.splitlines())) <= 162


@pytest.mark.parametrize(
    "reply", [command(TOO_LONG), "```codepilot\nwrite_file('evil')\n```\n```text\n" + "x\n" * 20_000 + "```\n"]
)
async def test_an_oversized_call_is_denied_to_the_model(tmp_path: Path, reply: str) -> None:
    asked: list[str] = []

    def approve(description: str, **_: object) -> bool:
        asked.append(description)
        return True

    async with runtime(tmp_path, reply) as made:
        on_permission_request(made)(approve)
        outcome = await made.run("Go")
        assert outcome.status is Status.FINISHED
        told = "".join(event.text for event in made.session.events if isinstance(event, Observed))
    assert "too long to approve" in told
    assert asked == []
    assert not (tmp_path / "evil").exists()


async def test_code_that_decides_by_the_arguments_may_approve_it(tmp_path: Path) -> None:
    decide: Callable[..., bool] = lambda pending, **_: pending.args["command"] == TOO_LONG  # noqa: E731 - short
    async with runtime(tmp_path, command(TOO_LONG)) as made:
        made.hooks.register("permission_request", decide, by_arguments=True)
        assert (await made.run("Go")).status is Status.FINISHED
    assert (tmp_path / "evil").exists()
