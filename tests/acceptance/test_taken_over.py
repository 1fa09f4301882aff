"""A worker whose job another one has taken over, as after a long pause: it writes nothing more to GitHub."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bot.queue import transitions
from localhub import LocalHub
from tests.stage import FIX, Stage, acting, staged
from tests.waiting import eventually

_LOOK = acting('execute("main", "sleep 0.1; cat calc.py")')


def take_over(stage: Stage, job_id: str) -> None:
    """Be another worker, on which DBOS runs the workflow again."""
    assert stage.queue._store.run_sync(lambda tx: transitions.begin(tx, job_id, 1, "another")) is not None


@pytest.mark.parametrize("moment", ["PATCH /issues/comments/", "PATCH /check-runs/"])
async def test_a_worker_that_lost_its_job_writes_nothing_more(
    hub: LocalHub, tmp_path: Path, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    verb, place = moment.split()
    written: list[str] = []
    async with staged(hub, tmp_path, [*[_LOOK] * 20, FIX], edit_seconds=0.02, held=True) as stage:
        job_id = await stage.job_of(stage.say(stage.issue().number, "/codepilot fix"))

        def on_call(call: str, taken: partial[None]) -> None:
            method, path = call.split()
            if written and method not in {"GET", "QUERY"} and not path.endswith("/access_tokens"):
                written.append(call)
            if not written and method == verb and place in path:
                taken()
                written.append(call)

        stage.on_call = partial(on_call, taken=partial(take_over, stage, job_id))
        stage.open_for_work.set()
        await eventually(lambda: "taken over by another worker; this one stops" in caplog.text, within=60)
    assert len(written) == 1, written
    assert not stage.bot_branches()
