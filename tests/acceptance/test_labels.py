"""Labels that start work and labels that say what a run may do: who set them, on what, and what voids them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.commands import Review
from bot.domain.job import JobState
from bot.queue.records import StoredJob
from localhub import Issue, LocalHub, Repo
from tests.pauses import ASKING, REACHED
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, WAIT_FOR_GO, WEBHOOK_SECRET, Stage, acting, staged
from tests.waiting import eventually

KINDS = ("issue", "pull")
WRITES_AND_ASKS = acting('write_file("calc.py")\nexecute("main", "make mischief")', FIXED_CALC)


def a_thread(stage: Stage, kind: str) -> Issue:
    """An issue or a pull request, where somebody with triage only may set labels, too."""
    stage.hub.add_collaborator(stage.repo, "helper", "triage")
    return stage.issue() if kind == "issue" else stage.pull()


async def label(stage: Stage, thread: Issue, name: str, *, by: str = "mona") -> None:
    """Set a label, and wait until the bot has taken it in."""
    stage.hub.add_label(stage.repo, thread.number, name, by=by)
    end = await stage.end_after("issues" if thread.pull is None else "pull_request", "labeled")
    assert end.state is JobState.DONE, end


def labels(stage: Stage, thread: Issue) -> tuple[str, ...]:
    """The labels that a thread has now."""
    return stage.hub.issue(stage.repo, thread.number).labels


@pytest.mark.parametrize("kind", KINDS)
async def test_the_start_label_starts_a_fix(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        thread = a_thread(stage, kind)
        await label(stage, thread, "codepilot")
        [status] = stage.bot_comments(thread.number)
        assert COMPLETION in status
        assert "for @mona" in status
        branch = "topic" if kind == "pull" else next(iter(stage.bot_branches()))
        assert stage.file(branch, "calc.py") == FIXED_CALC.strip()


async def _fixes(stage: Stage, number: int) -> list[StoredJob]:
    """The work of a thread, without the review that a new pull request may ask for."""
    jobs = await stage.queue.jobs_in_thread(stage.repo.id, number)
    return [each for each in jobs if not isinstance(each.job.command, Review)]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_repositorys_own_start_label_starts_a_fix_beside_the_operators(
    hub: LocalHub, tmp_path: Path, kind: str
) -> None:
    config = {**FILES, ".github/codepilot.yml": "labels:\n  start: 'bot: go'\n"}
    async with staged(hub, tmp_path, [FIX], files=config) as stage:
        thread = a_thread(stage, kind)
        await label(stage, thread, "bot: go")
        [work] = await _fixes(stage, thread.number)
        end = await stage.ended(work.job.id)
        assert COMPLETION in end.status
        assert "for @mona" in end.status


@pytest.mark.parametrize("kind", KINDS)
async def test_the_repositorys_own_start_label_starts_nothing_in_words_that_changed_since(
    hub: LocalHub, tmp_path: Path, kind: str
) -> None:
    config = {**FILES, ".github/codepilot.yml": "labels:\n  start: 'bot: go'\n"}
    async with staged(hub, tmp_path, files=config, held=True) as stage:
        thread = a_thread(stage, kind)
        hub.add_label(stage.repo, thread.number, "bot: go", by="mona")
        await stage.answer_to("issues" if kind == "issue" else "pull_request", "labeled")
        hub.edit_thread(stage.repo, thread.number, by="mona", body="Run `make mischief`.")
        stage.open_for_work.set()
        end = await stage.end_after("issues" if kind == "issue" else "pull_request", "labeled")
        assert await stage.refusal(end) == "edited-since-label"
        assert await _fixes(stage, thread.number) == []


async def test_an_issue_that_is_assigned_to_the_bot_starts_a_fix_and_one_for_another_app_does_not(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        issue, other = stage.issue(), hub.add_app("other").bot.login
        hub.assign(stage.repo, issue.number, other, by="mona")
        assert (await stage.end_after("issues", "assigned")).state is JobState.DONE
        assert stage.bot_comments(issue.number) == []
        hub.assign(stage.repo, issue.number, other, stage.app.bot.login, by="mona")
        assert (await stage.end_after("issues", "assigned")).state is JobState.DONE
        [work] = await stage.queue.jobs_in_thread(stage.repo.id, issue.number)
        end = await stage.ended(work.job.id)
        assert COMPLETION in end.status
        assert "for @mona" in end.status


@pytest.mark.parametrize("kind", KINDS)
async def test_the_start_label_of_someone_with_triage_only_starts_nothing_and_says_nothing(
    hub: LocalHub, tmp_path: Path, kind: str
) -> None:
    async with staged(hub, tmp_path) as stage:
        thread = a_thread(stage, kind)
        hub.add_label(stage.repo, thread.number, "codepilot", by="helper")
        end = await stage.end_after("issues" if kind == "issue" else "pull_request", "labeled")
        assert end.state is JobState.REFUSED
        assert stage.bot_comments(thread.number) == []
        assert stage.providers == []
        assert hub.check_runs(stage.repo) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_label_a_command_off_the_list_waits_for_a_yes(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = a_thread(stage, kind)
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "sh check.sh" in stage.bot_comments(thread.number)[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_auto_lets_a_run_do_what_would_wait_otherwise(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = a_thread(stage, kind)
        await label(stage, thread, "codepilot:auto")
        end = await stage.ask(thread.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "permission: `auto`" in end.status
        assert "`sh check.sh` | passed" in end.status


@pytest.mark.parametrize("kind", KINDS)
async def test_auto_set_by_someone_with_triage_only_allows_nothing(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = a_thread(stage, kind)
        await label(stage, thread, "codepilot:auto", by="helper")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        [status] = stage.bot_comments(thread.number)
        assert "`codepilot:auto` does not count: helper, who set it, has no write access here." in status
        assert "permission: `ask`" in status


async def test_auto_of_someone_who_has_lost_their_role_since_allows_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = a_thread(stage, "pull")
        hub.add_collaborator(stage.repo, "leaver", "write")
        await label(stage, thread, "codepilot:auto", by="leaver")
        hub.add_collaborator(stage.repo, "leaver", "none")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "does not count: leaver" in stage.bot_comments(thread.number)[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_ask_makes_a_run_ask_where_the_operator_would_not(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [FIX], network=REACHED) as stage:
        thread = a_thread(stage, kind)
        # What only narrows counts whoever set it.
        await label(stage, thread, "codepilot:ask", by="helper")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        assert "permission: `ask`" in stage.bot_comments(thread.number)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["mona", "helper"])
async def test_read_only_leaves_looking_only(hub: LocalHub, tmp_path: Path, kind: str, by: str) -> None:
    async with staged(hub, tmp_path, ["```completion\nIt adds.\n```\n"]) as stage:
        thread = a_thread(stage, kind)
        await label(stage, thread, "codepilot:auto")
        await label(stage, thread, "codepilot:read-only", by=by)
        end = await stage.ask(thread.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "I change nothing here, because the label `codepilot:read-only` is set." in end.status
        assert stage.providers == []
        end = await stage.ask(thread.number, "/codepilot explain")
        assert end.state is JobState.DONE
        assert "It adds." in end.status


async def test_a_push_voids_a_label_takes_it_off_and_says_why(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = a_thread(stage, "pull")
        await label(stage, thread, "codepilot:auto")
        hub.add_label(stage.repo, thread.number, "bug", by="mona")
        moved = hub.commit(stage.repo, {"evil.sh": "x\n"}, message="More", author="mona", branch="topic")
        await stage.end_after("pull_request", "synchronize")
        assert labels(stage, thread) == ("bug",)
        [word] = stage.bot_comments(thread.number)
        assert f"I removed `codepilot:auto`: it was set for another commit than {moved[:10]}." in word
        await stage.waits(stage.say(thread.number, "/codepilot fix"))


async def test_a_label_that_a_push_voided_unseen_allows_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = a_thread(stage, "pull")
        await label(stage, thread, "codepilot:auto")
        # Its webhook is lost.
        hub.set_webhook(stage.app, "", WEBHOOK_SECRET)
        hub.commit(stage.repo, {"evil.sh": "x\n"}, message="More", author="mona", branch="topic")
        hub.set_webhook(stage.app, f"{stage.address}/webhook", WEBHOOK_SECRET)
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        [status] = stage.bot_comments(thread.number)
        assert "I removed the label `codepilot:auto`: it was set on commit" in status
        assert labels(stage, thread) == ()


async def test_other_words_void_a_label_on_an_issue(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        thread = a_thread(stage, "issue")
        await label(stage, thread, "codepilot:auto")
        hub.edit_thread(stage.repo, thread.number, by="mona", body="Run `make mischief`.")
        await stage.waits(stage.say(thread.number, "/codepilot fix"))
        [status] = stage.bot_comments(thread.number)
        assert "I removed the label `codepilot:auto`: this issue's text has changed since it was set." in status
        assert labels(stage, thread) == ()


async def test_the_bots_own_push_keeps_a_label(hub: LocalHub, tmp_path: Path) -> None:
    again = acting('execute("main", "sh check.sh && echo x > more.txt", check=True)', completion="Added more.")
    async with staged(hub, tmp_path, [FIX], [again], operator=ASKING) as stage:
        thread = a_thread(stage, "pull")
        await label(stage, thread, "codepilot:auto")
        before = hub.branches(stage.repo)["topic"]
        assert (await stage.ask(thread.number, "/codepilot fix")).state is JobState.DONE
        assert hub.branches(stage.repo)["topic"] != before
        await stage.end_after("pull_request", "synchronize")
        assert labels(stage, thread) == ("codepilot:auto",)
        end = await stage.ask(thread.number, "/codepilot fix more")
        assert end.state is JobState.DONE, end
        assert "permission: `auto`" in end.status
        assert stage.file("topic", "more.txt") == "x"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_thread_stops_what_runs_there(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO)]) as stage:
        thread = a_thread(stage, kind)
        before = hub.branches(stage.repo)
        command = stage.say(thread.number, "/codepilot fix")
        await stage.job_of(command)
        await stage.at_work()
        hub.close(stage.repo, thread.number, by="mona")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "The thread was closed." in end.status
        assert hub.branches(stage.repo) == before
        assert stage.nothing_left()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_thread_ends_what_waits_there(hub: LocalHub, tmp_path: Path, kind: str) -> None:
    async with staged(hub, tmp_path, [WRITES_AND_ASKS], operator=ASKING) as stage:
        thread = a_thread(stage, kind)
        command = stage.say(thread.number, "/codepilot fix")
        await stage.waits(command)
        hub.close(stage.repo, thread.number, by="mona")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "closed" in end.status
        assert "/codepilot approve" not in end.status
        assert f"`{end.job_id}.patch`" in end.status
        assert stage.nothing_published()


@pytest.mark.parametrize("how", ["uninstalled", "suspended", "taken out"])
async def test_an_app_that_is_taken_away_ends_what_waits(hub: LocalHub, tmp_path: Path, how: str) -> None:
    async with staged(hub, tmp_path, [FIX], operator=ASKING) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        await stage.waits(command)
        take_away(stage, how)
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED, end
        assert "The App was removed from this repository, or suspended." in end.reason
        assert stage.nothing_published()


@pytest.mark.parametrize("how", ["uninstalled", "suspended", "taken out"])
async def test_an_app_that_is_taken_away_stops_what_runs(hub: LocalHub, tmp_path: Path, how: str) -> None:
    async with staged(hub, tmp_path, [acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC)]) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await eventually(lambda: len(stage.events) > 0)
        await eventually(lambda: (stage.files_of(job_id) / "calc.py").read_text() == FIXED_CALC)
        take_away(stage, how)
        end = await stage.end_of(command)
        assert end.state is not JobState.DONE, end
        assert stage.nothing_published()
        assert stage.pulls() == []
        assert "+    return a + b\n" in (stage.data / "patches" / f"{job_id}.patch").read_text(encoding="utf-8")


def take_away(stage: Stage, how: str) -> None:
    """Take the App off the repository."""
    installation = stage.hub.install(stage.app, stage.repo)
    if how == "uninstalled":
        stage.hub.uninstall(installation, by="mona")
    elif how == "suspended":
        stage.hub.suspend(installation, by="mona")
    else:
        stage.hub.take_out(installation, stage.repo, by="mona")


def a_forks_pull(stage: Stage) -> tuple[Repo, Issue]:
    """A fork, and its pull request here."""
    hub = stage.hub
    hub.add_user("forker")
    fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
    hub.commit(fork, {"topic.txt": "x\n"}, message="Mine", author="forker", branch="topic")
    return fork, hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")


async def test_a_maintainers_label_lets_a_run_work_on_a_fork_and_nothing_is_pushed(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        fork, pull = a_forks_pull(stage)
        refused = await stage.ask(pull.number, "/codepilot fix")
        assert refused.state is JobState.REFUSED
        assert "comes from a fork" in refused.status
        await label(stage, pull, "codepilot:auto")
        here, there = hub.branches(stage.repo), hub.branches(fork)
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "Nothing is pushed to a fork: the patch is kept." in end.status
        assert (hub.branches(stage.repo), hub.branches(fork)) == (here, there)
        assert "+    return a + b\n" in (stage.data / "patches" / f"{end.job_id}.patch").read_text(encoding="utf-8")


async def test_the_author_of_a_fork_raises_nothing_with_a_label_and_a_push_voids_anybodys(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        fork, pull = a_forks_pull(stage)
        hub.add_collaborator(stage.repo, "forker", "write")
        await label(stage, pull, "codepilot:auto", by="forker")
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert "somebody other than its author must set it." in end.status
        hub.remove_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        await label(stage, pull, "codepilot:auto", by="mona")
        hub.commit(fork, {"evil.sh": "x\n"}, message="More", author="forker", branch="topic")
        await stage.end_after("pull_request", "synchronize")
        assert labels(stage, pull) == ()
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.REFUSED
        assert stage.providers == []
