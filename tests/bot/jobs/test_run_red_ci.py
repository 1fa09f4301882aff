"""Fixes of failed checks and workflow runs that a repository asks for in its file, or a maintainer by a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from localhub import EndedJob
from tests.fakes.agent import Script, execute, reply, write
from tests.fakes.site import FakeThread
from tests.seam import COMPLETION, FIX, FIXED_CALC, NOTHING_LEFT, End, Seam, open_seam
from tests.stage import FILES

CONFIGURED = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\nreview_on: [ready]\n"}
EVERYWHERE = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests, default-branch]\n"}
REVIEW_ONLY = FILES | {".github/codepilot.yml": "review_on: [ready]\n"}
FIX_ONLY = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\n"}
SEE_IT_FAIL = reply(execute("sh check.sh", 1, output="1 failed"))
SEE_AND_FIX: Script = [SEE_IT_FAIL, *FIX]
WRONG_FIX = reply(write("calc.py", "def add(a, b):\n    return a + b + 2\n"), completion="Fixed!")


def attempt(number: int) -> Script:
    """Return a run that changes a file, by which a check of its own passes."""
    check = execute(f"""python3 -c "open('try-{number}.txt')" """, 1)
    return [reply(check), reply(write(f"try-{number}.txt", "x\n"), completion=f"Tried {number}.")]


def end_run(stage: Seam, conclusion: str, *, branch: str = "topic", by: str = "mona", actor: str = "mona") -> None:
    """End a workflow run on a branch's head."""
    stage.hub.workflow_run(
        stage.repo,
        head_sha=stage.repo.branches[branch],
        head_branch=branch,
        conclusion=conclusion,
        actor=actor,
        triggering_actor=by,
        event="push" if branch == "main" else "pull_request",
    )


async def fail_run(stage: Seam, *, branch: str = "topic", by: str = "mona", actor: str = "mona") -> End:
    """Let the workflow fail, by default that of the pull request; return the end of the fix."""
    end_run(stage, "failure", branch=branch, by=by, actor=actor)
    return await stage.end_after("workflow_run", "completed")


STILL_RED = "ended with exit code 1 before the change and with exit code 1 after it, run again"
NOT_SEEN = "The failure was not reproduced"


@pytest.mark.parametrize(
    ("branch", "script", "expected"),
    [
        ("topic", [SEE_IT_FAIL, WRONG_FIX], STILL_RED),
        ("topic", [WRONG_FIX], NOT_SEEN),
        ("topic", FIX, NOT_SEEN),
        ("main", [SEE_IT_FAIL, WRONG_FIX], STILL_RED),
    ],
    ids=["still red", "never reproduced", "run only after the change", "default branch"],
)
async def test_an_unproven_fix_is_not_committed(tmp_path: Path, branch: str, script: Script, expected: str) -> None:
    async with open_seam(tmp_path, script, files=EVERYWHERE) as stage:
        stage.commands["sh check.sh"] = 1
        number = stage.pull().number
        before = dict(stage.repo.branches)
        if branch == "topic":
            end_run(stage, "success", branch="main")
        end = await fail_run(stage, branch=branch)
        assert end.state is JobState.DONE, end
        text = end.status or stage.repo.checks[-1].summary or ""
        assert expected in text
        assert "> **Not published.** " in text
        assert text.count("he patch is ") == 1
        assert "> **Kept.** The patch is attached to the check run" in text
        assert stage.repo.branches == before
        assert [pull.number for pull in stage.pulls()] == [number]


async def test_a_fix_of_a_red_run_is_one_commit_with_its_proof(tmp_path: Path) -> None:
    script = [replace(SEE_IT_FAIL, expect=('The workflow "CI" failed on this pull request.',)), *FIX]
    async with open_seam(tmp_path, script, files=CONFIGURED) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        before = stage.head("topic")
        end = await fail_run(stage)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.head("topic^") == before
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()
        assert len(stage.bot_comments(pull.number)) == 1
        assert end.status.startswith("### ✅ Done, the failed command passes now · Started by CI: [`CI`](")
        assert "`sh check.sh` ended with exit code 1 before the change and with exit code 0 after it" in end.status


async def test_a_persons_pull_request_from_a_branch_with_the_bots_prefix_is_not_taken_for_the_bots(
    tmp_path: Path,
) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX, files=EVERYWHERE) as stage:
        branch = "codepilot/fix-ci-mine"
        stage.hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch=branch)
        stage.hub.open_pull(stage.repo, author="mona", head=branch, title="Mine")
        end = await fail_run(stage, branch="main")
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 2


async def test_a_failure_while_a_fix_of_the_branch_is_open_starts_no_other_and_says_so(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX, files=EVERYWHERE) as stage:
        assert (await fail_run(stage, branch="main")).state is JobState.DONE
        again = await fail_run(stage, branch="main")
        assert again.state is JobState.REFUSED
        assert "is already open for this branch." in again.reason
        assert len(stage.pulls()) == 1
        assert "is already open for this branch." in (stage.repo.checks[-1].summary or "")


async def test_a_second_attempt_of_a_run_leaves_the_branch_of_the_first_alone(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX, SEE_AND_FIX, files=EVERYWHERE) as stage:
        await fail_run(stage, branch="main")
        [run], [pull] = stage.repo.runs, stage.pulls()
        first = f"codepilot/fix-ci-{run.id}"
        mine = stage.hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch=first)
        stage.hub.close(stage.repo, pull.number, by="mona")
        stage.hub.run_again(run, by="mona")
        stage.hub.end_attempt(run, conclusion="failure")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        again = stage.pulls()[-1]
        assert again.pull is not None
        assert again.pull.head_ref == f"{first}-2"
        assert stage.file(f"{first}-2", "calc.py") == FIXED_CALC.strip()
        assert stage.repo.branches[first] == mine


async def test_all_failures_of_a_commit_are_one_piece_of_work(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX, files=CONFIGURED) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        other, head = stage.hub.add_app("other-ci"), stage.head("topic")
        end_run(stage, "failure")
        end_run(stage, "failure")
        for name in ("build", "lint"):
            stage.hub.check(stage.repo, other, head_sha=head, name=name, conclusion="failure")
        answers = [await stage.answer_to(event, "completed") for event in ("workflow_run", "check_run", "check_suite")]
        for answer in answers:
            await stage.ended(answer["job"])
        jobs = [stored.job for stored in await stage.queue.jobs_in_thread(stage.repo.id, pull.number)]
        ends = [await stage.ended(job.id) for job in jobs if job.lane == "work"]
        # A failure that is delivered after the fix finds another commit.
        assert [end.state for end in ends if end.state is not JobState.REFUSED] == [JobState.DONE], ends
        assert len(stage.providers) == 1
        assert len(stage.bot_comments(pull.number)) == 1


async def test_a_red_check_of_another_app_is_fixed(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX, files=CONFIGURED) as stage:
        stage.pull()
        other = stage.hub.add_app("other-ci")
        stage.hub.check(stage.repo, other, head_sha=stage.head("topic"), name="build (x86)", conclusion="failure")
        end = await stage.end_after("check_run", "completed")
        assert end.state is JobState.DONE, end
        assert "Started by CI: [`build (x86)`](" in end.status
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()


async def test_a_suite_whose_checks_fail_on_the_base_too_starts_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX, files=CONFIGURED) as stage:
        stage.pull()
        other = stage.hub.add_app("other-ci")
        for branch in ("main", "topic"):
            stage.hub.check(stage.repo, other, head_sha=stage.head(branch), name="lint", conclusion="failure")
        assert "it fails on `main`, too" in (await stage.end_after("check_run", "completed")).reason
        await stage.end_after("check_suite", "completed")
        # The next suite has the name of the App and of no check.
        stage.hub.check(stage.repo, other, head_sha=stage.head("topic"), name="build", conclusion="success")
        assert "it fails on `main`, too" in (await stage.end_after("check_suite", "completed")).reason
        assert stage.providers == []


async def test_a_proof_that_ignored_files_may_have_made_says_so(tmp_path: Path) -> None:
    files = CONFIGURED | {".gitignore": "*.local\n", "check.sh": "test -e ok.local\n"}
    touch = execute("touch ok.local", writes={"ok.local": ""})
    script = [SEE_IT_FAIL, reply(touch, write("other.py", "x = 1\n"), completion="Fixed!")]
    async with open_seam(tmp_path, script, files=files) as stage:
        stage.pull()
        end_run(stage, "success", branch="main")
        end = await fail_run(stage)
        assert "files in place that are not in the commit: `ok.local`." in end.status


async def test_a_label_of_a_person_without_write_access_enables_no_fix(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX) as stage:
        number = stage.pull().number
        end_run(stage, "success", branch="main")
        stage.hub.add_collaborator(stage.repo, "triager", "triage")
        stage.hub.add_label(stage.repo, number, "codepilot:fix-ci", by="triager")
        await stage.end_after("pull_request", "labeled")
        assert "not enabled" in (await fail_run(stage)).reason
        stage.hub.remove_label(stage.repo, number, "codepilot:fix-ci", by="mona")
        stage.hub.add_label(stage.repo, number, "Codepilot:fix-CI", by="mona")
        await stage.end_after("pull_request", "labeled")
        assert (await fail_run(stage)).state is JobState.DONE
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()


async def test_failed_jobs_are_run_again_first_where_the_repository_wants_it(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "fix_ci: pull-requests\nrerun_failed_jobs: true\n"}
    async with open_seam(tmp_path, SEE_AND_FIX, files=files) as stage:
        stage.app.permissions["actions"] = "write"
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        assert (await fail_run(stage)).state is JobState.REFUSED
        [comment] = stage.bot_comments(pull.number)
        assert "I re-ran its failed jobs once: if they pass, the failure was flaky," in comment
        run = stage.repo.runs[-1]
        assert (run.attempt, run.is_queued) == (2, True)
        stage.hub.end_attempt(run, conclusion="failure")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert stage.repo.runs[-1].attempt == 2


async def test_a_missing_permission_is_named(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files=CONFIGURED) as stage:
        del stage.app.permissions["actions"]
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        assert (await fail_run(stage)).state is JobState.REFUSED
        [comment] = stage.bot_comments(pull.number)
        assert "I did not start a fix. The App is missing the permission *Actions: read-only*." in comment
        assert stage.providers == []


@pytest.mark.parametrize("files", [FILES, REVIEW_ONLY], ids=["no file", "another key"])
async def test_a_red_run_is_left_alone_without_the_key(tmp_path: Path, files: dict[str, str]) -> None:
    async with open_seam(tmp_path, files=files) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        end = await fail_run(stage)
        assert end.reason == "fixing failed checks is not enabled here"
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []
        assert stage.repo.checks == []


async def test_the_pull_requests_own_file_enables_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        wish = {".github/codepilot.yml": CONFIGURED[".github/codepilot.yml"]}
        stage.hub.commit(stage.repo, wish, message="Wish", author="mona", branch="topic")
        stage.hub.open_pull(stage.repo, author="mona", head="topic", title="Wish")
        end_run(stage, "success", branch="main")
        assert "not enabled" in (await fail_run(stage)).reason
        assert stage.providers == []


async def test_a_workflow_that_fails_on_the_base_too_starts_nothing_which_is_told_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files=CONFIGURED) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        end_run(stage, "failure", branch="main")
        end = await fail_run(stage)
        assert end.state is JobState.REFUSED
        assert stage.providers == []
        [comment] = stage.bot_comments(pull.number)
        assert comment.startswith("The workflow `CI` failed on ")
        assert "it fails on `main`, too: this pull request did not break it. I changed nothing." in comment
        assert "started by CI, not by a person" in comment
        assert "@mona" not in comment
        assert (await fail_run(stage)).state is JobState.REFUSED
        assert stage.bot_comments(pull.number) == [comment]


async def test_after_two_attempts_a_red_run_is_left_to_people(tmp_path: Path) -> None:
    scripts: Sequence[Script] = [attempt(1), attempt(2), attempt(3)]
    async with open_seam(tmp_path, *scripts, files=CONFIGURED) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        bot = stage.app.bot.login
        for number, pusher in ((1, "mona"), (2, bot)):
            end = await fail_run(stage, by=pusher, actor=pusher)
            assert end.state is JobState.DONE, end
            assert stage.file("topic", f"try-{number}.txt") == "x"
        end = await fail_run(stage, by=bot, actor=bot)
        assert end.state is JobState.REFUSED
        assert "I have tried 2 times" in end.reason
        assert len(stage.providers) == 2
        # A person's commit begins another lineage.
        stage.hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch="topic")
        assert (await fail_run(stage)).state is JobState.DONE
        comments = stage.bot_comments(pull.number)
        title = "### ✅ Done, the failed command passes now · Started by CI: [`CI`]("
        assert [title in comment for comment in comments] == [True, True, False, True]
        assert "Use `fix` to make me try again." in comments[2]


@pytest.mark.parametrize("prefix", ["codepilot/", "codepilot-bot/", "bots/"])
async def test_a_red_run_of_the_bots_own_branch_starts_nothing(tmp_path: Path, prefix: str) -> None:
    files = dict(CONFIGURED)
    if prefix == "bots/":
        files[".github/codepilot.yml"] += "branch_prefix: bots/\n"
    async with open_seam(tmp_path, FIX, files=files) as stage:
        if prefix == "codepilot-bot/":
            stage.hub.commit(stage.repo, {"x.txt": "x\n"}, message="X", author="mona", branch="codepilot")
        await stage.ask(stage.issue().number, "/codepilot fix")
        [branch] = [name for name in stage.repo.branches if name.startswith(prefix)]
        end_run(stage, "success", branch="main")
        end = await fail_run(stage, branch=branch)
        assert end.state is JobState.REFUSED
        assert "This is one of my own branches;" in end.reason
        assert stage.bot_comments(stage.pulls()[-1].number) == []
        assert len(stage.providers) == 1


@pytest.mark.parametrize("role", ["actor", "by"])
async def test_the_actor_and_the_triggering_actor_must_both_have_write_access(tmp_path: Path, role: str) -> None:
    async with open_seam(tmp_path, files=CONFIGURED) as stage:
        pull = stage.pull()
        stage.hub.add_user("stranger")
        end_run(stage, "success", branch="main")
        end = await fail_run(stage, **{role: "stranger"})
        assert end.state is JobState.REFUSED
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []


def open_failing_fork(stage: Seam) -> FakeThread:
    """Open a stranger's pull request whose branch in a fork has the name of the repository's own; let its run fail."""
    hub = stage.hub
    hub.add_user("forker")
    fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
    hub.commit(fork, {"evil.txt": "x\n"}, message="Mine", author="forker", branch="topic")
    pull = hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")
    hub.workflow_run(
        stage.repo,
        head_sha=fork.branches["topic"],
        head_branch="topic",
        conclusion="failure",
        actor="forker",
        head_repository=fork,
        event="pull_request",
    )
    return pull


async def test_a_red_run_of_a_fork_ends_in_a_diagnosis(tmp_path: Path) -> None:
    diagnosis = "`add` in calc.py adds one too many; remove `+ 1` in line 2."
    script = [reply(write("calc.py", FIXED_CALC), completion="Fixed!"), reply(completion=diagnosis)]
    async with open_seam(tmp_path, script, files=CONFIGURED) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        before = dict(stage.repo.branches)
        of_fork = open_failing_fork(stage)
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert diagnosis in end.status
        assert "permission: `read-only`" in end.status
        assert stage.repo.branches == before
        assert stage.bot_comments(pull.number) == []
        assert len(stage.bot_comments(of_fork.number)) == 1


async def test_a_red_run_of_a_fork_is_left_alone_without_the_key(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        pull = open_failing_fork(stage)
        assert "not enabled" in (await stage.end_after("workflow_run", "completed")).reason
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []


async def test_a_red_run_of_another_bot_starts_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files=CONFIGURED) as stage:
        robot = stage.hub.add_user("robot[bot]", kind="Bot").login
        stage.hub.add_collaborator(stage.repo, robot, "write")
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        assert (await fail_run(stage, by=robot, actor=robot)).state is JobState.REFUSED
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []


async def test_a_red_run_of_an_older_commit_starts_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, files=CONFIGURED) as stage:
        stage.pull()
        end_run(stage, "success", branch="main")
        end_run(stage, "failure")
        assert "job" in await stage.answer_to("workflow_run", "completed")
        stage.hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch="topic")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.REFUSED
        assert "but the branch has moved on to " in end.reason
        assert stage.providers == []


async def test_a_fix_of_a_red_run_is_refused_silently_at_the_level_read_only(tmp_path: Path) -> None:
    async with open_seam(tmp_path, operator={"level": "read-only"}, files=FIX_ONLY) as stage:
        pull = stage.pull()
        end_run(stage, "success", branch="main")
        assert (await fail_run(stage)).state is JobState.REFUSED
        assert stage.bot_comments(pull.number) == []


# Material

STEPS = [("Run actions/setup-python@v6", "success"), ("Run tests", "failure")]


def fail_jobs(stage: Seam, *jobs: EndedJob) -> None:
    stage.hub.workflow_run(
        stage.repo,
        head_sha=stage.head("topic"),
        head_branch="topic",
        conclusion="failure",
        actor="mona",
        event="pull_request",
        jobs=jobs,
    )


async def test_a_fix_without_annotations_names_the_missing_permission(tmp_path: Path) -> None:
    async with open_seam(tmp_path, SEE_AND_FIX, files=CONFIGURED) as stage:
        del stage.app.permissions["checks"]
        stage.pull()
        end_run(stage, "success", branch="main")
        note = [("calc.py", 2, "no")]
        fail_jobs(stage, EndedJob(name="test", conclusion="failure", steps=STEPS, annotations=note, log=None))
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        missing = (
            "> The agent was given no annotations of the failing checks. The App is missing the permission *Checks: "
        )
        assert missing in end.status
        assert "Done, the failed command passes now" in end.status


async def test_a_fix_without_a_log_tells_the_agent_that_it_has_expired(tmp_path: Path) -> None:
    expected = (
        "failed job test of workflow CI: failure",
        "No log: GitHub has no log of this job: it was deleted",
    )
    async with open_seam(tmp_path, [replace(SEE_IT_FAIL, expect=expected), *FIX], files=CONFIGURED) as stage:
        stage.pull()
        end_run(stage, "success", branch="main")
        fail_jobs(stage, EndedJob(name="test", conclusion="failure", steps=STEPS, log=None))
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert len(stage.providers) == 1


async def test_the_changes_since_the_workflow_last_succeeded_are_quoted(tmp_path: Path) -> None:
    expected = ("on which this workflow last succeeded", "+since then")
    async with open_seam(tmp_path, [replace(NOTHING_LEFT, expect=expected)], files=CONFIGURED) as stage:
        stage.pull()
        end_run(stage, "success", branch="main")
        end_run(stage, "success")
        stage.hub.commit(stage.repo, {"new.txt": "since then\n"}, message="More", author="mona", branch="topic")
        fail_jobs(stage, EndedJob(name="test", conclusion="failure", steps=STEPS, log=None))
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end


async def test_the_summary_of_another_apps_check_of_the_default_branch_is_quoted(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "fix_ci: [default-branch]\n"}
    summary = "It fails: add() is off by one."
    script = [replace(NOTHING_LEFT, expect=("failing check build: failure", summary))]
    async with open_seam(tmp_path, script, files=files) as stage:
        other = stage.hub.add_app("other-ci")
        head = stage.head("main")
        stage.hub.check(stage.repo, other, head_sha=head, name="build", conclusion="failure", summary=summary)
        end = await stage.end_after("check_run", "completed")
        assert end.state is JobState.DONE, end
