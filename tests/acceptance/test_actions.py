"""Declared actions on the hub by a real service: proposed by the agent, approved as a list, and applied."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import APP_PERMISSIONS, LocalHub
from tests.bot.jobs.test_run_action_kinds import ACTION_FILES, PROPOSALS
from tests.stage import acting, staged

_ISSUE, _PULL, _OWN, _CLOSED, _AGAIN, _DISCUSSION, _PART = range(1, 8)
_OF_ORGANIZATIONS = {"set-type", "set-fields"}


async def test_a_list_of_every_kind_is_approved_and_applied(hub: LocalHub, tmp_path: Path) -> None:
    calls = [
        f"propose({kind!r}, {', '.join(f'{name}={value!r}' for name, value in values.items())})"
        for kind, values in PROPOSALS.items()
        if kind not in _OF_ORGANIZATIONS
    ]
    script = [acting("\n".join(calls), completion="Proposed.")]
    async with staged(hub, tmp_path, script, files=dict(ACTION_FILES), operator={"level": "ask"}) as stage:
        repo = stage.repo
        hub.permit(stage.installation, {**APP_PERMISSIONS, "actions": "write", "discussions": "write"})
        hub.add_user("hubot")
        hub.add_collaborator(repo, "hubot", "write")
        for label in ("area/api", "task"):
            hub.create_label(repo, label)
        hub.add_milestone(repo, "v1", author="mona")
        hub.commit(repo, {"a.txt": "1\n"}, message="Develop", author="mona", branch="develop")
        hub.open_issue(repo, author="mona", title="It breaks", labels=["needs-triage", "bug"])
        hub.label(repo, _ISSUE, "needs-triage", by="mona")
        hub.open_pull(repo, author="mona", head="develop", title="Develop")
        hub.open_issue(repo, author="codepilot[bot]", title="A list", body="1. One")
        hub.open_issue(repo, author="mona", title="Closed")
        hub.close(repo, _CLOSED, by="mona")
        hub.open_issue(repo, author="mona", title="It breaks again")
        hub.open_discussion(repo, "Ideas", author="mona", title="How?")

        command = stage.say(_ISSUE, "/codepilot ask What is left?")
        job_id = await stage.waits(command)
        assert hub.issue(repo, _ISSUE).labels == ("needs-triage",)
        stage.say(_ISSUE, "/codepilot approve")
        end = await stage.ended(job_id)
        assert end.state is JobState.DONE, end
        assert end.status.count("- ✅") == len(calls), end.status

        issue, pull, part = (hub.issue(repo, number) for number in (_ISSUE, _PULL, _PART))
        assert issue.labels == ("bug", "area/api")
        assert [hub.login(number) for number in issue.assignees] == ["hubot"]
        assert issue.milestone_id is not None
        assert [child.number for child in hub.sub_issues(repo, _ISSUE)] == [_PART]
        assert (part.title, part.labels) == ("[part] Parse", ("task",))
        again = hub.issue(repo, _AGAIN)
        assert (again.state, again.state_reason, again.duplicate_of) == ("closed", "duplicate", issue.id)
        assert hub.issue(repo, _CLOSED).state == "open"
        assert pull.pull is not None
        assert (pull.pull.draft, [hub.login(number) for number in pull.pull.reviewers]) == (True, ["hubot"])
        assert (hub.issue(repo, _OWN).body or "").startswith("The list is empty.")
        [run] = hub.workflow_runs(repo)
        assert (run.event, run.head_branch, run.inputs) == ("workflow_dispatch", "develop", {"suite": "all"})
        assert [discussion.title for discussion in hub.discussions(repo)] == ["How?", "Why?"]
        assert len(hub.discussion_comments(repo, _DISCUSSION)) == 1
