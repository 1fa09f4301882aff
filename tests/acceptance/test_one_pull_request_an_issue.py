"""A further fix of an issue goes on in the pull request that is open for it, through the App and through the Action."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.jobs.record import StoredRecord
from localhub import LocalHub
from tests.bot.jobs.test_run_pull_requests import EXPECTED
from tests.stage import FIX, acting, staged
from tests.workflow_runs import Workflows

MORE = acting('write_file("more.txt")', "More.\n", completion="Added more.")
CONTINUED = [ScriptedReply(text=MORE, expect=EXPECTED)]


async def test_a_second_fix_goes_on_in_the_first_ones_pull_request(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], CONTINUED) as stage:
        number = stage.issue().number
        assert (await stage.ask(number, "/codepilot fix")).state is JobState.DONE
        [pull] = stage.pulls()
        [branch] = stage.bot_branches()
        before = hub.branches(stage.repo)[branch]
        end = await stage.ask(number, "/codepilot fix and write more")
        assert end.state is JobState.DONE, end
        assert f"`#{pull.number}` is open for this issue; I continue there. `--new` opens another." in end.status
        assert f"[pull request #{pull.number}]({hub.url}/{stage.repo.full_name}/pull/{pull.number})" in end.status
        assert [other.pull.head_ref for other in stage.pulls() if other.pull is not None] == [branch]
        assert stage.git("rev-parse", f"{branch}^") == before
        assert stage.file(branch, "more.txt") == "More."
        link = (await StoredRecord(stage.queue, end.job_id).read()).published.pull
        assert link is not None
        assert link.number == pull.number


async def test_the_action_goes_on_in_it_too(hub: LocalHub, tmp_path: Path) -> None:
    flows = Workflows.of(hub, tmp_path)
    issue = hub.open_issue(flows.repo, author="mona", title="Adding is off by one")
    for said, script in (("/codepilot fix", FIX), ("/codepilot fix and write more", MORE)):
        hub.comment(flows.repo, issue.number, author="mona", body=said)
        run = await flows.run("issue_comment", [script])
        assert run.ended is JobState.DONE, run.summary
        assert "/pull/2" in run.outputs
    [pull] = [each for each in hub.issues(flows.repo) if each.pull is not None]
    assert f"`#{pull.number}` is open for this issue" in hub.comments(flows.repo, issue.number)[-1].body
    [branch] = set(hub.branches(flows.repo)) - {"main"}
    assert branch.startswith(f"codepilot/issue-{issue.number}-")
