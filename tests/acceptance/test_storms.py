"""Very many events that nobody asked anything with: a person's word does not wait for them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

ISSUES = 30
LABELS = 5
_LABELLED = "SELECT length(body), finished_at FROM jobs WHERE json_extract(body, '$.command.verb') = 'labelled'"


def storm(stage: Stage, prefix: str) -> list[str]:
    """Set labels on other issues; the deliveries' GUIDs."""
    before = {each.guid for each in stage.hub.deliveries}
    for _ in range(ISSUES):
        number = stage.issue(body="words " * 2000).number
        for label in range(LABELS):
            stage.hub.add_label(stage.repo, number, f"{prefix}-{label}", by="mona")
    sent = {each.guid for each in stage.hub.deliveries if each.action == "labeled"} - before
    assert len(sent) == ISSUES * LABELS
    return sorted(sent)


async def answers(stage: Stage, guids: list[str]) -> list[str]:
    """Return the answers of the webhook server to deliveries."""

    def given() -> list[str] | None:
        found = [each for each in stage.hub.deliveries if each.guid in set(guids) and each.status_code]
        return [json.loads(each.response_body)["status"] for each in found] if len(found) == len(guids) else None

    return await eventually(given, within=60)


@pytest.mark.slow
async def test_a_storm_of_labels_delays_no_stop_and_is_soon_dropped_on_receipt(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO)], held=True) as stage:
        issue = stage.issue()
        work = stage.say(issue.number, "/codepilot fix")
        await stage.job_of(work)
        # Nobody has looked yet what labels are called here, so these are kept.
        assert set(await answers(stage, storm(stage, "noise"))) == {"accepted"}
        stop = stage.say(issue.number, "/codepilot stop")
        stop_id = await stage.job_of(stop)
        with closing(sqlite3.connect(stage.data / "jobs.sqlite")) as rows:
            assert max(size for size, _ in rows.execute(_LABELLED)) < 700
            stage.calls.clear()
            stage.open_for_work.set()
            assert (await stage.end_of(stop)).state is JobState.DONE
            await eventually(
                lambda: not rows.execute("SELECT 1 FROM jobs WHERE finished_at IS NULL").fetchall(), within=60
            )
            [(stopped_at,)] = rows.execute("SELECT finished_at FROM jobs WHERE id = ?", (stop_id,))
            ahead = [at for _, at in rows.execute(_LABELLED) if at < stopped_at]
        assert len(ahead) < ISSUES * LABELS / 2
        assert (await stage.end_of(work)).state is JobState.STOPPED
        # One looked for them all.
        assert len([call for call in stage.calls if "/contents/" in call]) <= 4, stage.calls
        stage.calls.clear()
        assert set(await answers(stage, storm(stage, "more"))) == {"ignored"}
        assert stage.calls == []
