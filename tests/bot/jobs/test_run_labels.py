"""Labels that start work, and labels that set the permission of a run: their authors, commits and ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bot.domain.commands import Review
from bot.domain.job import JobState
from bot.queue.records import StoredJob
from tests.fakes.agent import do, execute, reply, wait_for_test, write
from tests.fakes.hub import INSTALLATION
from tests.fakes.site import FakeRepo, FakeThread
from tests.seam import ASKING, COMPLETION, FIX, FIXED_CALC, REACHED, Seam, open_seam
from tests.stage import FILES

KINDS = ("issue", "pull")
EVENTS = {"issue": "issues", "pull": "pull_request"}
CONFIGURED = {**FILES, ".github/codepilot.yml": "labels:\n  start: 'bot: go'\n"}


def open_thread(stage: Seam, kind: str) -> FakeThread:
    """Open an issue or pull request, on which `helper` may set labels."""
    stage.hub.add_collaborator(stage.repo, "helper", "triage")
    return stage.issue() if kind == "issue" else stage.pull()


async def label(stage: Seam, thread: FakeThread, name: str, *, by: str = "mona") -> None:
    stage.hub.add_label(stage.repo, thread.number, name, by=by)
    end = await stage.end_after("issues" if thread.pull is None else "pull_request", "labeled")
    assert end.state is JobState.DONE, end


async def fixes(stage: Seam, number: int) -> list[StoredJob]:
    """Return the jobs of a thread, without the review that a new pull request may start."""
    jobs = await stage.queue.jobs_in_thread(stage.repo.id, number)
    return [stored for stored in jobs if not isinstance(stored.job.command, Review)]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_start_label_starts_a_fix(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        thread = open_thread(stage, kind)
        await label(stage, thread, "codepilot")
        [status] = stage.bot_comments(thread.number)
        assert COMPLETION in status
        assert "for @mona" in status
        branch = "topic" if kind == "pull" else next(iter(stage.bot_branches()))
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_start_label_of_the_repository_starts_a_fix_beside_that_of_the_operator(
    tmp_path: Path, kind: str
) -> None:
    async with open_seam(tmp_path, FIX, files=CONFIGURED) as stage:
        thread = open_thread(stage, kind)
        await label(stage, thread, "bot: go")
        [fix] = await fixes(stage, thread.number)
        end = await stage.ended(fix.job.id)
        assert COMPLETION in end.status
        assert "for @mona" in end.status


@pytest.mark.parametrize("kind", KINDS)
async def test_the_start_label_of_the_repository_starts_nothing_in_a_text_that_changed_since(
    tmp_path: Path, kind: str
) -> None:
    async with open_seam(tmp_path, files=CONFIGURED) as stage:
        thread = open_thread(stage, kind)
        stage.hub.add_label(stage.repo, thread.number, "bot: go", by="mona")
        await stage.answer_to(EVENTS[kind], "labeled")
        stage.hub.edit_thread(stage.repo, thread.number, by="mona", body="Run `make mischief`.")
        end = await stage.end_after(EVENTS[kind], "labeled")
        assert await stage.refusal(end) == "edited-since-label"
        assert await fixes(stage, thread.number) == []


async def test_an_issue_that_is_assigned_to_another_app_starts_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue, other = stage.issue(), stage.hub.add_app("other").bot.login
        stage.hub.assign(stage.repo, issue.number, other, by="mona")
        assert (await stage.end_after("issues", "assigned")).state is JobState.DONE
        assert stage.bot_comments(issue.number) == []
        stage.hub.assign(stage.repo, issue.number, stage.app.bot.login, by="mona")
        assert (await stage.end_after("issues", "assigned")).state is JobState.DONE
        [work] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        end = await stage.ended(work.job.id)
        assert COMPLETION in end.status
        assert "for @mona" in end.status


@pytest.mark.parametrize("kind", KINDS)
async def test_the_start_label_of_a_person_with_triage_starts_nothing_and_is_not_answered(
    tmp_path: Path, kind: str
) -> None:
    async with open_seam(tmp_path) as stage:
        thread = open_thread(stage, kind)
        stage.hub.add_label(stage.repo, thread.number, "codepilot", by="helper")
        assert (await stage.end_after(EVENTS[kind], "labeled")).state is JobState.REFUSED
        assert stage.bot_comments(thread.number) == []
        assert stage.providers == []
        assert stage.repo.checks == []


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_label_an_unlisted_command_waits_for_an_approval(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, kind)
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "sh check.sh" in stage.bot_comments(thread.number)[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_label_auto_lets_a_run_make_a_command_that_would_wait_otherwise(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, kind)
        await label(stage, thread, "codepilot:auto")
        end = await stage.ask(thread.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "permission: `auto`" in end.status
        assert "`sh check.sh` | passed" in end.status


@pytest.mark.parametrize("kind", KINDS)
async def test_the_label_auto_of_a_person_with_triage_allows_nothing(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, kind)
        await label(stage, thread, "codepilot:auto", by="helper")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        [status] = stage.bot_comments(thread.number)
        assert "`codepilot:auto` does not count: helper, who set it, has no write access here." in status
        assert "permission: `ask`" in status


async def test_the_label_auto_of_a_person_who_has_lost_the_role_since_allows_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, "pull")
        stage.hub.add_collaborator(stage.repo, "leaver", "write")
        await label(stage, thread, "codepilot:auto", by="leaver")
        stage.hub.add_collaborator(stage.repo, "leaver", "none")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "does not count: leaver" in stage.bot_comments(thread.number)[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_label_ask_makes_a_run_ask_although_the_operator_would_not(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX, network=REACHED) as stage:
        thread = open_thread(stage, kind)
        # A label that only restricts counts from everyone who may set it.
        await label(stage, thread, "codepilot:ask", by="helper")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "permission: `ask`" in stage.bot_comments(thread.number)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["mona", "helper"])
async def test_the_label_read_only_leaves_only_verbs_that_read(tmp_path: Path, kind: str, by: str) -> None:
    async with open_seam(tmp_path, [reply(completion="It adds.")]) as stage:
        thread = open_thread(stage, kind)
        await label(stage, thread, "codepilot:auto")
        await label(stage, thread, "codepilot:read-only", by=by)
        end = await stage.ask(thread.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "I change nothing here, because the label `codepilot:read-only` is set." in end.status
        assert stage.providers == []
        end = await stage.ask(thread.number, "/codepilot explain")
        assert end.state is JobState.DONE
        assert "It adds." in end.status


async def test_a_push_voids_a_label_which_is_removed_with_the_reason(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, "pull")
        await label(stage, thread, "codepilot:auto")
        stage.hub.add_label(stage.repo, thread.number, "bug", by="mona")
        sha = stage.hub.commit(stage.repo, {"evil.sh": "x\n"}, message="More", author="mona", branch="topic")
        await stage.end_after("pull_request", "synchronize")
        assert thread.labels == ["bug"]
        [comment] = stage.bot_comments(thread.number)
        assert f"I removed `codepilot:auto`: it was set for another commit than {sha[:10]}." in comment
        await stage.waits(stage.say(thread.number, "/codepilot fix"))


async def test_a_label_that_a_push_voided_without_its_delivery_allows_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, "pull")
        await label(stage, thread, "codepilot:auto")
        stage.hub.is_connected = False
        stage.hub.commit(stage.repo, {"evil.sh": "x\n"}, message="More", author="mona", branch="topic")
        stage.hub.is_connected = True
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        [status] = stage.bot_comments(thread.number)
        assert "I removed the label `codepilot:auto`: it was set on commit" in status
        assert thread.labels == []


async def test_another_text_voids_a_label_on_an_issue(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, "issue")
        await label(stage, thread, "codepilot:auto")
        stage.hub.edit_thread(stage.repo, thread.number, by="mona", body="Run `make mischief`.")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        [status] = stage.bot_comments(thread.number)
        assert "I removed the label `codepilot:auto`: this issue's text has changed since it was set." in status
        assert thread.labels == []


async def test_a_push_of_the_bot_keeps_a_label(tmp_path: Path) -> None:
    command = "sh check.sh && echo x > more.txt"
    more = [reply(execute(command, writes={"more.txt": "x\n"}), completion="Added more.")]
    async with open_seam(tmp_path, FIX, more, operator=ASKING) as stage:
        thread = open_thread(stage, "pull")
        await label(stage, thread, "codepilot:auto")
        head = stage.head("topic")
        assert (await stage.ask(thread.number, "/codepilot fix")).state is JobState.DONE
        assert stage.head("topic^") == head
        await stage.end_after("pull_request", "synchronize")
        assert thread.labels == ["codepilot:auto"]
        end = await stage.ask(thread.number, "/codepilot fix more")
        assert end.state is JobState.DONE, end
        assert "permission: `auto`" in end.status
        assert stage.file("topic", "more.txt") == "x"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_thread_stops_its_running_job(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, [reply(wait_for_test())]) as stage:
        thread = open_thread(stage, kind)
        branches = dict(stage.repo.branches)
        command = stage.say(thread.number, "/codepilot fix")
        await stage.at_work()
        stage.hub.close(stage.repo, thread.number, by="mona")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "The thread was closed." in end.status
        assert stage.repo.branches == branches
        assert stage.nothing_left()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_thread_ends_its_waiting_job(tmp_path: Path, kind: str) -> None:
    script = [reply(write("calc.py", FIXED_CALC), execute("make mischief"))]
    async with open_seam(tmp_path, script, operator=ASKING) as stage:
        thread = open_thread(stage, kind)
        command = stage.say(thread.number, "/codepilot fix")
        await stage.waits(command)
        stage.hub.close(stage.repo, thread.number, by="mona")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "closed" in end.status
        assert "/codepilot approve" not in end.status
        assert f"`{end.job_id}.patch`" in end.status
        assert stage.nothing_published()


REMOVALS: Mapping[str, Callable[[Seam], None]] = {
    "uninstalled": lambda stage: stage.hub.uninstall(INSTALLATION, by="mona"),
    "suspended": lambda stage: stage.hub.suspend(INSTALLATION, by="mona"),
    "taken out": lambda stage: stage.hub.take_out(INSTALLATION, stage.repo, by="mona"),
}


@pytest.mark.parametrize("removal", REMOVALS)
async def test_the_removal_of_the_app_ends_a_waiting_job(tmp_path: Path, removal: str) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        await stage.waits(command)
        REMOVALS[removal](stage)
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "The App was removed from this repository, or suspended." in end.reason
        assert stage.nothing_published()


@pytest.mark.parametrize("removal", REMOVALS)
async def test_the_removal_of_the_app_stops_a_running_job_whose_patch_is_kept(tmp_path: Path, removal: str) -> None:
    remove = do(lambda: REMOVALS[removal](stage))
    script = [reply(write("calc.py", FIXED_CALC), remove, wait_for_test())]
    async with open_seam(tmp_path, script) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        end = await stage.end_of(command)
        assert end.state is not JobState.DONE, end
        assert stage.nothing_published()
        assert stage.pulls() == []
        assert "+    return a + b\n" in (stage.kept_patch(end.job_id) or "")


def pull_of_fork(stage: Seam) -> tuple[FakeRepo, FakeThread]:
    """Open a pull request from a fork; return both."""
    hub = stage.hub
    hub.add_user("forker")
    fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
    hub.commit(fork, {"topic.txt": "x\n"}, message="Mine", author="forker", branch="topic")
    return fork, hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")


async def test_the_label_of_a_maintainer_lets_a_run_work_on_a_fork_and_nothing_is_pushed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        fork, pull = pull_of_fork(stage)
        refused = await stage.ask(pull.number, "/codepilot fix")
        assert refused.state is JobState.REFUSED
        assert "comes from a fork" in refused.status
        await label(stage, pull, "codepilot:auto")
        branches = dict(stage.repo.branches), dict(fork.branches)
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "Nothing is pushed to a fork: the patch is kept." in end.status
        assert (stage.repo.branches, fork.branches) == branches
        assert "+    return a + b\n" in (stage.kept_patch(end.job_id) or "")


async def test_the_author_of_a_fork_allows_nothing_with_a_label_and_a_push_voids_that_of_others(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        fork, pull = pull_of_fork(stage)
        stage.hub.add_collaborator(stage.repo, "forker", "write")
        await label(stage, pull, "codepilot:auto", by="forker")
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "somebody other than its author must set it." in end.status
        stage.hub.remove_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        await label(stage, pull, "codepilot:auto", by="mona")
        stage.hub.commit(fork, {"evil.sh": "x\n"}, message="More", author="forker", branch="topic")
        await stage.end_after("pull_request", "synchronize")
        assert pull.labels == []
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert stage.providers == []


async def label_unheard(stage: Seam, thread: FakeThread, name: str = "codepilot:auto", *, by: str = "mona") -> None:
    """Set a label of which the bot gets no delivery, as before its installation, between a past and a future."""
    stage.advance(60.0)
    stage.hub.is_connected = False
    stage.hub.add_label(stage.repo, thread.number, name, by=by)
    stage.hub.is_connected = True
    stage.advance(60.0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_label_without_a_delivery_allows_what_githubs_history_proves(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, kind)
        await label_unheard(stage, thread)
        end = await stage.ask(thread.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "permission: `auto`" in end.status
        assert thread.labels == ["codepilot:auto"]
        assert stage.hub.calls.count("threads.label_history") == 1
        assert stage.hub.calls.count("repos.list_pushes") == (kind == "pull")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_label_without_a_delivery_has_the_role_of_the_person_who_set_it(tmp_path: Path, kind: str) -> None:
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, kind)
        await label_unheard(stage, thread, by="helper")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "helper, who set it, has no write access here." in stage.bot_comments(thread.number)[0]


def edit_title(stage: Seam, thread: FakeThread) -> None:
    stage.hub.edit_thread(stage.repo, thread.number, by="mona", title="Another title")


def edit_body(stage: Seam, thread: FakeThread) -> None:
    stage.hub.edit_thread(stage.repo, thread.number, by="mona", body="Run `make mischief`.")


def push(stage: Seam, _thread: FakeThread) -> None:
    stage.hub.commit(stage.repo, {"evil.sh": "x\n"}, message="More", author="mona", branch="topic")


CHANGES = {"title": ("issue", edit_title), "body": ("issue", edit_body), "push": ("pull", push)}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_later", [True, False], ids=["later", "in the same second"])
async def test_a_label_without_a_delivery_is_void_after_a_change(
    tmp_path: Path,
    change: str,
    is_later: bool,  # noqa: FBT001 - of the parameters
) -> None:
    kind, make_change = CHANGES[change]
    async with open_seam(tmp_path, FIX, operator=ASKING) as stage:
        thread = open_thread(stage, kind)
        await label_unheard(stage, thread)
        stage.advance(-60.0 if not is_later else 0.0)
        stage.hub.is_connected = False
        make_change(stage, thread)
        if not is_later:  # the second of the label, however long this took
            thread.renamed_at = thread.renamed_at and thread.settings[-1][2]
            thread.edited_at = thread.edited_at and thread.settings[-1][2]
            stage.repo.pushes[-1] = (*stage.repo.pushes[-1][:2], thread.settings[-1][2])
        stage.hub.is_connected = True
        stage.advance(60.0)
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        [status] = stage.bot_comments(thread.number)
        proven = is_later and kind == "pull"
        reason = "it was set on commit" if proven else "because I have no record of who set it, or for which commit."
        assert reason in status
        assert thread.labels == []
