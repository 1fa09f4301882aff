"""The log of a run on its page, kept and live."""

from __future__ import annotations

from pathlib import Path

from agent_runtime import Event, Replied, Started, Task, Usage
from bot.publishing.view import log_of, pack_log
from tests.bot.dashboard.serving import served
from tests.builders import a_job


def _run(run_id: str, text: str) -> list[Event]:
    begun = Started(task=Task(goal="Fix it."), opening="Fix it.", run_id=run_id)
    return [begun, Replied(step=1, text=text, usage=Usage(requests=1, output_tokens=5, cost_usd=1.0))]


async def test_a_run_that_began_anew_is_live_behind_the_log_of_the_attempt_before(tmp_path: Path) -> None:
    async with served(tmp_path) as site:
        await site.engine.accept(a_job())
        await site.engine.keep_log(a_job(), pack_log(log_of(_run("a", "First."), str)), cost_usd=1.0)
        await site.sign_in()
        # Between two attempts there is no session.
        assert "First." in (await site.get("/runs/j1"))[1]
        site.events = _run("b", "Second.")
        _, text, _ = await site.get("/runs/j1")
    assert text.index("First.") < text.index("The run started again") < text.index("Second.")
    assert "$2.00" in text
