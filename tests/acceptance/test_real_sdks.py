"""Whole jobs with the providers' own SDKs, against a model service on a real socket that also stumbles."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_runtime import RunLimits, StreamReset
from agent_runtime.providers.models import ModelOptions
from bot.domain.job import JobState
from localhub import LocalHub
from tests.agent_runtime.providers.conversations import KEY, WIRES, Naps, provider_on
from tests.model_server import Breaks, Fails, ModelServer, Reply, Wire
from tests.stage import COMPLETION, FIX, FIXED_CALC, acting, staged

STUMBLES: dict[str, list[Reply]] = {
    "none": [],
    "529": [Fails(529, "overloaded_error", "Overloaded")],
    "429": [Fails(429, "rate_limit_error", "Slow down", retry_after="2")],
    "drop": [Breaks("drop", text="Half a thought that is never fini")],
    "early end": [Breaks("early", text="Half a thought that is never fini")],
    "malformed": [Breaks("malformed", text="Half a thought that is never fini")],
}


@pytest.mark.parametrize(
    ("wire", "stumble"),
    [*((wire, "none") for wire in WIRES), *(("anthropic", each) for each in list(STUMBLES)[1:]), ("responses", "drop")],
)
async def test_a_bug_is_fixed_over_the_wire_whatever_it_stumbles_over(
    hub: LocalHub, tmp_path: Path, wire: Wire, stumble: str
) -> None:
    naps = Naps()
    replies: list[Reply] = [acting('read_file("calc.py")'), *STUMBLES[stumble], FIX]
    async with ModelServer(replies) as server:
        options = ModelOptions(retry=naps.retry())
        async with staged(hub, tmp_path, provider=lambda: provider_on(server, wire, options)) as stage:
            end = await stage.ask(stage.issue().number, "/codepilot fix")
            assert end.state is JobState.DONE, end.status
            assert COMPLETION in end.status
            assert "2 steps" in end.status
            assert "Half a thought" not in end.status
            [sha] = stage.bot_branches().values()
            assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
            resets = [event for event in stage.events if isinstance(event, StreamReset)]
            assert [event.attempt for event in resets] == ([] if stumble == "none" else [2])
        assert len(server.requests) == len(replies)
        assert len(naps.seconds) == len(STUMBLES[stumble])


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_service_that_stays_down_is_named_and_the_work_so_far_stays_on_a_branch(
    hub: LocalHub, tmp_path: Path, wire: Wire
) -> None:
    down = [Fails(529, "overloaded_error", "Overloaded")] * 3
    async with ModelServer([acting('write_file("calc.py")', FIXED_CALC), *down]) as server:
        options = ModelOptions(retry=Naps().retry())
        at_once = RunLimits(outage_seconds=0)
        async with staged(
            hub,
            tmp_path,
            provider=lambda: provider_on(server, wire, options),
            limits=at_once,
            operator={"model_patience": 0},
        ) as stage:
            issue = stage.issue()
            end = await stage.ask(issue.number, "/codepilot fix")
            assert end.state is JobState.FAILED
            assert ("Anthropic" if wire == "anthropic" else "gpt-6.2-sol") in end.status
            assert "3 attempts" in end.status
            assert "**How to fix it:**" in end.status
            assert "120 tokens" in end.status
            assert len(stage.bot_comments(issue.number)) == 1
            [(branch, sha)] = stage.bot_branches().items()
            assert branch == f"codepilot/issue-{issue.number}-{end.job_id}-wip"
            assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
            assert f"`{branch}`" in end.status
            assert stage.pulls() == []
            assert stage.nothing_left()


async def test_a_refused_key_is_told_without_the_key(hub: LocalHub, tmp_path: Path) -> None:
    async with ModelServer([Fails(401, "authentication_error", f"invalid key {KEY}")]) as server:
        async with staged(hub, tmp_path, provider=lambda: provider_on(server, "anthropic")) as stage:
            end = await stage.ask(stage.issue().number, "/codepilot fix")
            assert end.state is JobState.FAILED
            assert "did not accept the API key" in end.status
            assert KEY not in end.status
        assert len(server.requests) == 1


async def test_the_model_that_a_command_names_is_the_one_that_is_asked(hub: LocalHub, tmp_path: Path) -> None:
    answer = "```completion\nBecause.\n```\n"
    async with ModelServer([answer, answer]) as server:
        named = {"provider": "openai", "model": "m1", "models": ("m2",), "base_url_key": SecretStr(KEY)}
        operator = {**named, "base_url": server.url_openai}
        async with staged(hub, tmp_path, provider="settings", operator=operator) as stage:
            issue = stage.issue()
            for said, model in (("", "m1"), ("--model m2 ", "m2")):
                end = await stage.ask(issue.number, f"/codepilot ask {said}why?")
                assert end.state is JobState.DONE, end
                assert server.requests[-1].json["model"] == model
                assert f"{model}" in end.status
