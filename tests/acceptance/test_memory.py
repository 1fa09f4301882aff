"""From a correction to a rule that the next run is told, with one pull request between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs.state import Inbox
from bot.queue.records import Signal
from localhub import LocalHub
from tests.acceptance.test_setup import openings
from tests.stage import FILES, FIX, WAIT_FOR_GO, acting, staged
from tests.waiting import eventually

RULE = "Keep the public names of `calc`."
OTHER = "Run `sh check.sh` before each commit."


async def test_a_correction_becomes_a_rule_that_the_next_run_is_told(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, arrived = Inbox.put, list[Signal]()

    def note(inbox: Inbox, signal: Signal) -> None:
        put(inbox, signal)
        arrived.append(signal)

    monkeypatch.setattr(Inbox, "put", note)
    files = {**FILES, "CLAUDE.md": "# Calc\n\nBe kind.\n"}
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX], [FIX], files=files) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.at_work()
        assert (await stage.end_of(stage.say(issue.number, f"/codepilot continue {RULE}"))).state is JobState.DONE
        await eventually(lambda: arrived)
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert "**Keep this for next time?**" in end.status
        assert f"```\n/codepilot remember {RULE}\n```" in end.status

        # The offer of this thread, and a rule of another one.
        kept = [await stage.ask(issue.number, "/codepilot remember")]
        kept.append(await stage.ask(stage.issue().number, f"/codepilot remember {OTHER}"))
        assert [each.state for each in kept] == [JobState.DONE] * 2, kept
        pull = stage.pulls()[-1]
        assert all(rule in (pull.body or "") for rule in (RULE, OTHER))
        assert stage.git("diff", "--name-only", "main", "codepilot/memory-1").split() == ["CLAUDE.md"]
        text = stage.file("codepilot/memory-1", "CLAUDE.md")
        assert text.startswith(f"# Calc\n\nBe kind.\n\n## Rules learned by Codepilot\n\n- {RULE} ([#{issue.number}](")
        assert not any(OTHER in opening for opening in openings(stage))

        hub.merge(stage.repo, pull.number, by="mona")
        later = await stage.ask(stage.issue().number, "/codepilot fix")
        assert later.state is JobState.DONE, later
        told = openings(stage)[-1]
        assert "from CLAUDE.md]\n# Calc" in told
        assert all(f"- {rule} ([#" in told for rule in (RULE, OTHER))
