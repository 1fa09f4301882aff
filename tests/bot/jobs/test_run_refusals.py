"""Commands that the bot refuses or cannot carry out: told once, to the people concerned, with nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.github.types import GitHubError
from bot.jobs.faults import ACCESS_PATIENCE_SECONDS
from tests.fakes.agent import do, execute, reply, write
from tests.fakes.github import no_answer, not_found, outage, rate_limited
from tests.seam import COMPLETION, FIX, FIXED_CALC, End, Seam, open_seam


@pytest.mark.parametrize("role", ["triage", "none"])
async def test_a_person_without_write_access_gets_one_reaction_and_nothing_else(tmp_path: Path, role: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.add_collaborator(stage.repo, "passer-by", role)  # type: ignore[arg-type]
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix", author="passer-by")
        assert (await stage.end_of(command)).state is JobState.REFUSED
        assert stage.reactions(command) == ["confused"]
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []
        assert stage.nothing_published()
        assert stage.workspaces.git.calls == []


@pytest.mark.parametrize("gone", ["comment", "archived"])
async def test_a_person_without_write_access_gets_no_comment_when_the_reaction_fails(tmp_path: Path, gone: str) -> None:
    async with open_seam(tmp_path) as stage:
        stage.hub.add_user("stranger")
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix", author="stranger")
        await stage.job_of(command)
        if gone == "comment":
            stage.hub.delete_comment(command, by="stranger")
        else:
            stage.hub.archive(stage.repo)
        assert (await stage.end_of(command)).state is JobState.REFUSED
        assert stage.bot_comments(issue.number) == []


async def test_an_unknown_verb_is_answered_with_the_nearest_one_on_one_line(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fxi the sum")
        assert end.state is JobState.DONE
        assert f"for @mona · job `{end.job_id}`" in end.status
        first, _, _ = end.status.partition("\n")
        assert first == (
            "There is no command `fxi`. Did you mean `/codepilot fix`? `/codepilot help` lists all commands."
        )
        assert stage.providers == []


async def test_help_lists_every_verb(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot help")
        assert end.state is JobState.DONE
        assert "`/codepilot fix [what to do]`" in end.status
        assert "`/codepilot help`" in end.status
        assert len(stage.bot_comments(issue.number)) == 1


async def test_the_operators_own_trigger_stands_in_every_answer(tmp_path: Path) -> None:
    async with open_seam(tmp_path, trigger="/robot") as stage:
        end = await stage.ask(stage.issue().number, "/robot help")
        assert "`/robot fix [what to do]`" in end.status
        assert f"for @mona · job `{end.job_id}`" in end.status
        assert "/codepilot" not in end.status


async def test_a_closed_issue_is_left_alone_with_the_reason(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue()
        stage.hub.close(stage.repo, issue.number, by="mona")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert await stage.refusal(end) == "closed"
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.providers == []


async def test_a_locked_issue_is_left_alone_for_github_lets_no_app_comment_there(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue()
        stage.hub.lock(stage.repo, issue.number)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert (end.state, end.reason.partition(".")[0]) == (JobState.REFUSED, "This issue is locked")
        assert stage.bot_comments(issue.number) == []
        assert stage.providers == []


async def test_a_fork_is_not_worked_on(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        hub = stage.hub
        hub.add_user("forker")
        fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
        hub.commit(fork, {"check.sh": "curl evil.example\n"}, message="Mine", author="forker", branch="topic")
        pull = hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "comes from a fork" in end.status
        assert stage.providers == []


async def test_a_repository_archived_meanwhile_ends_the_job_although_nothing_can_be_said(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        await stage.job_of(command)
        stage.hub.archive(stage.repo)
        end = await stage.end_of(command)
        assert end.state is JobState.REFUSED
        assert "archived" in end.reason
        assert stage.providers == []


@pytest.mark.parametrize("approved", [True, False])
async def test_a_change_to_a_workflow_waits_for_an_approval_of_its_own(tmp_path: Path, *, approved: bool) -> None:
    path = ".github/workflows/ci.yml"
    script = [reply(write("calc.py", FIXED_CALC), write(path, "on: push\n"), completion="Fixed, and CI added.")]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        pause = await stage.pause_of(command)
        [status] = stage.bot_comments(issue.number)
        assert f"`{path}`" in status
        assert "+on: push" in status
        assert stage.nothing_published()
        assert stage.pulls() == []
        stage.say(issue.number, f"/codepilot {'approve' if approved else 'deny'} {pause.request_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        if approved:
            [sha] = stage.bot_branches().values()
            assert stage.file(sha, path) == "on: push"
            assert [each.pull.draft for each in stage.pulls() if each.pull] == [True]
        else:
            assert "Not published" in end.status
            assert f"`{path}`" in end.status
            assert stage.nothing_published()
            assert stage.pulls() == []
            patch = stage.kept_patch(end.job_id) or ""
            assert "+on: push" in patch
            assert "+    return a + b" in patch


@pytest.mark.parametrize("verb", ["fix", "explain", "plan", "ask what is this?", "mend the sum"])
async def test_an_empty_repository_is_told_so_by_every_command(tmp_path: Path, verb: str) -> None:
    async with open_seam(tmp_path, files={}) as stage:
        end = await stage.ask(stage.issue().number, f"/codepilot {verb}")
        assert await stage.refusal(end) == "no-commit"
        issue = stage.issue()
        assert (await stage.ask(issue.number, "/codepilot status")).state is JobState.DONE
        assert "No job is running" in " ".join(stage.bot_comments(issue.number))


async def test_a_branch_deleted_between_command_and_run_is_told_so(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        pull = stage.pull()
        command = stage.say(pull.number, "/codepilot fix")
        await stage.job_of(command)
        stage.hub.delete_branch(stage.repo, "topic")
        end = await stage.end_of(command)
        # GitHub closes a pull request whose branch is deleted; its delivery may end the job first.
        assert end.state in {JobState.REFUSED, JobState.STOPPED}
        assert "closed" in end.status
        assert len(stage.bot_comments(pull.number)) == 1
        assert stage.nothing_published()
        assert "topic" not in stage.repo.branches


async def test_a_branch_deleted_without_its_delivery_is_told_so(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        pull = stage.pull()
        command = stage.say(pull.number, "/codepilot fix")
        await stage.job_of(command)
        stage.hub.is_connected = False
        stage.hub.delete_branch(stage.repo, "topic")
        end = await stage.end_of(command)
        assert await stage.refusal(end) == "closed"
        assert len(stage.bot_comments(pull.number)) == 1
        assert stage.nothing_published()


async def moved_meanwhile(tmp_path: Path, files: Mapping[str, str]) -> tuple[Seam, End, str]:
    """Have a person push to `topic` while the agent works; return the end and the pushed commit."""
    pushed: list[str] = []

    def push() -> None:
        pushed.append(stage.hub.commit(stage.repo, files, message="Mine", author="mona", branch="topic"))

    script = [reply(do(push), write("calc.py", FIXED_CALC), execute("sh check.sh"), completion=COMPLETION)]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(stage.pull().number, "/codepilot fix")
        return stage, end, pushed[0]


async def test_a_change_follows_a_branch_that_moved_while_the_agent_worked(tmp_path: Path) -> None:
    stage, end, pushed = await moved_meanwhile(tmp_path, {"README.md": "# Mine\n"})
    assert end.state is JobState.DONE
    assert "People pushed to `topic` in the meantime" in end.status
    assert stage.head("topic^") == pushed
    assert (stage.file("topic", "README.md"), stage.file("topic", "calc.py")) == ("# Mine", FIXED_CALC.strip())
    assert stage.bot_branches() == {}
    assert len(stage.pulls()) == 1


async def test_a_change_that_does_not_fit_on_a_branch_that_moved_gets_one_of_its_own(tmp_path: Path) -> None:
    stage, end, pushed = await moved_meanwhile(tmp_path, {"calc.py": "add = sum\n"})
    assert end.state is JobState.DONE
    assert "People pushed to `topic` in the meantime" in end.status
    assert stage.head("topic") == pushed
    [(branch, sha)] = stage.bot_branches().items()
    assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
    _, own = (each.pull for each in stage.pulls())
    assert own is not None
    assert (own.base_ref, own.head_ref) == ("topic", branch)


async def test_the_default_branch_may_move_while_the_agent_works_on_an_issue(tmp_path: Path) -> None:
    def push() -> None:
        stage.hub.commit(stage.repo, {"README.md": "# Mine\n"}, message="Mine", author="mona")

    async with open_seam(tmp_path, [reply(do(push), write("calc.py", FIXED_CALC), completion=COMPLETION)]) as stage:
        base = stage.head("main")
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert stage.head(f"{sha}^") == base
        assert stage.head("main") != base


FAULTS: Mapping[str, tuple[Callable[[], GitHubError], bool]] = {
    "503": (lambda: outage(503), False),
    "no answer": (no_answer, False),
    "answer lost": (no_answer, True),
    "limited": (lambda: rate_limited(30), False),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_api_that_stumbles_over_the_first_comment_costs_no_second_one(tmp_path: Path, fault: str) -> None:
    error, after = FAULTS[fault]
    async with open_seam(tmp_path, [reply(completion="Nothing to do.")]) as stage:
        issue = stage.issue()
        stage.hub.fail("comments.create", error(), after=after)
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert len(stage.bot_comments(issue.number)) == 1
        assert stage.hub.take_fault("comments.create") is None


@pytest.mark.parametrize("call", ["commits.create_with_branch", "threads.snapshot", "checks.update"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_an_api_that_stumbles_while_publishing_costs_nothing_twice(tmp_path: Path, fault: str, call: str) -> None:
    error, after = FAULTS[fault]
    stumble = do(lambda: stage.hub.fail(call, error(), after=after))
    async with open_seam(tmp_path, [reply(stumble, write("calc.py", FIXED_CALC), completion=COMPLETION)]) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "Not published" not in end.status
        assert len(stage.pulls()) == 1
        [sha] = stage.bot_branches().values()
        assert stage.commits_between("main", sha) == 1
        assert stage.hub.take_fault(call) is None
        assert len(stage.bot_comments(issue.number)) == 1
        assert len(stage.providers) == 1


async def test_a_job_of_an_app_that_is_uninstalled_is_asked_about_again(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        job_id = await stage.job_of(command)
        # No token is made for it any more.
        stage.hub.fail("threads.snapshot", not_found(), times=1000)
        await stage.settle()
        outage = (await stage.record(job_id)).service_outage
        assert outage is not None
        assert await stage.state_of(job_id) is JobState.QUEUED
        # The queue tries again until the patience is over.
        assert (await stage.end_of(command)).state is JobState.FAILED
        outage = (await stage.record(job_id)).service_outage
        assert outage is not None
        assert outage.retry_at - outage.since > ACCESS_PATIENCE_SECONDS
        assert stage.providers == []


async def test_a_default_branch_that_is_gone_is_told_as_that(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        issue = stage.issue()
        stage.hub.delete_branch(stage.repo, "main")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.REFUSED, end
        assert "The branch `main`," in end.status
        assert "deleted or renamed" in end.status


async def test_an_app_without_a_permission_says_so_before_the_model_is_asked(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.app.permissions |= {"contents": "read"}
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.FAILED
        assert "The token lacks `contents: write`, so nothing could be published. I have not started." in end.status
        assert "Grant the App `contents: write` in its settings, then accept it in the installation." in end.status
        assert stage.providers == []


async def test_a_permission_that_was_accepted_since_the_token_was_made_counts(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, FIX) as stage:
        stage.hub.app.permissions |= {"contents": "read"}
        assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.FAILED
        stage.hub.app.permissions |= {"contents": "write"}
        assert (await stage.ask(stage.issue().number, "/codepilot fix")).state is JobState.DONE
