"""Work that nobody asks for in words: a workflow's run that went red, a pull request that became ready."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from bot.jobs.record import StoredRecord
from localhub import APP_PERMISSIONS, Issue, LocalHub
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, SEE_IT_FAIL, End, Stage, acting, staged

CONFIGURED = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\nreview_on: [ready]\n"}
EVERYWHERE = FILES | {".github/codepilot.yml": "fix_ci: [pull-requests, default-branch]\n"}
ONE_KEY = {
    "fix_ci": FILES | {".github/codepilot.yml": "review_on: [ready]\n"},
    "review_on": FILES | {".github/codepilot.yml": "fix_ci: [pull-requests]\n"},
}
REVIEW = "````completion\nIt adds a topic.\n\n```json\n[]\n```\n````\n"


LIE = acting('write_file("calc.py")', "def add(a, b):\n    return a + b + 2\n", completion="Fixed!", fence="python")


def writes(number: int) -> list[str]:
    """A run that changes something, and makes a check of its own pass by it."""
    check = f"""execute("main", "python3 -c \\"open('try-{number}.txt')\\"", check=True)"""
    return [acting(check), acting(f'write_file("try-{number}.txt")', "x\n", completion=f"Tried {number}.")]


def ran(stage: Stage, conclusion: str, *, branch: str = "topic", by: str = "mona", actor: str = "mona") -> None:
    """A workflow ended on a branch's head."""
    stage.hub.workflow_run(
        stage.repo,
        head_sha=stage.hub.branches(stage.repo)[branch],
        head_branch=branch,
        conclusion=conclusion,
        actor=actor,
        triggering_actor=by,
        event="push" if branch == "main" else "pull_request",
    )


async def red(stage: Stage, *, by: str = "mona", actor: str = "mona") -> End:
    """The pull request's workflow went red; how the job ended that this began."""
    ran(stage, "failure", by=by, actor=actor)
    return await stage.end_after("workflow_run", "completed")


async def test_a_red_run_is_fixed_where_the_repository_wants_it(hub: LocalHub, tmp_path: Path) -> None:
    script: list[str | ScriptedReply] = [
        ScriptedReply(text=SEE_IT_FAIL, expect=('The workflow "CI" failed on this pull request.',)),
        FIX,
    ]
    async with staged(hub, tmp_path, script, files=CONFIGURED) as stage:
        pull = stage.pull()
        ran(stage, "success", branch="main")
        before = hub.branches(stage.repo)["topic"]
        end = await red(stage)
        assert end.state is JobState.DONE, end
        assert COMPLETION in end.status
        assert stage.git("rev-parse", "topic^") == before
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()
        assert len(stage.bot_comments(pull.number)) == 1
        assert end.status.startswith("### ✅ Done, the failed command passes now · Started by CI: [`CI`](")
        proof = "**Proof:** `sh check.sh` ended with exit code 1 before the change and with exit code 0 after it"
        assert proof in end.status
        assert "Co-authored-by" not in stage.git("show", "--no-patch", "--format=%B", "topic")


STILL_RED = "ended with exit code 1 before the change and with exit code 1 after it, run again"
NOT_SEEN = "The failure was not reproduced"


@pytest.mark.parametrize(
    ("where", "script", "said"),
    [
        ("pull request", [SEE_IT_FAIL, LIE], STILL_RED),
        ("pull request", [LIE], NOT_SEEN),
        ("pull request", [FIX], NOT_SEEN),
        ("default branch", [SEE_IT_FAIL, LIE], STILL_RED),
    ],
    ids=["still red", "never looked", "looked afterwards only", "default branch"],
)
async def test_what_is_not_proven_is_not_committed(
    hub: LocalHub, tmp_path: Path, where: str, script: list[str], said: str
) -> None:
    async with staged(hub, tmp_path, script, files=EVERYWHERE) as stage:
        number = stage.pull().number
        before = hub.branches(stage.repo)
        if where == "pull request":
            ran(stage, "success", branch="main")
            end = await red(stage)
            told = end.status
        else:
            ran(stage, "failure", branch="main")
            end = await stage.end_after("workflow_run", "completed")
            [check] = hub.check_runs(stage.repo)
            told = check.summary or ""
        assert end.state is JobState.DONE, end
        assert said in told
        assert "> **Not published.** " in told
        assert told.count("he patch is ") == 1
        assert "> **Kept.** The patch is attached to the check run" in told
        assert hub.branches(stage.repo) == before
        assert [each.number for each in stage.pulls()] == [number]


async def test_a_red_default_branch_is_fixed_by_a_pull_request(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=EVERYWHERE, edit_seconds=3600.0) as stage:
        before = hub.branches(stage.repo)["main"]
        ran(stage, "failure", branch="main")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        run = hub.workflow_runs(stage.repo)[-1]
        assert set(stage.bot_branches()) == {f"codepilot/fix-ci-{run.id}"}
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert (pull.pull.base_ref, pull.pull.draft) == ("main", False)
        assert hub.branches(stage.repo)["main"] == before
        body = pull.body or ""
        assert COMPLETION in body
        assert "**Proof:** `sh check.sh` ended with exit code 1 before the change and with exit code 0 after it" in body
        assert (
            f"[`CI`]({hub.url}/mona/calc/actions/runs/{run.id}) failed on the branch `main` at {before[:10]}." in body
        )
        assert "because checks failed" in body
        assert "@mona" not in body
        [check] = hub.check_runs(stage.repo)
        assert (check.status, check.conclusion, check.head_sha) == ("completed", "success", before)
        assert (check.title or "").endswith(": Started by CI: CI failed")
        assert "| passed, run by the bot" in (check.summary or "")
        assert sum(call.startswith("PATCH ") and "/check-runs/" in call for call in stage.calls) == 1, stage.calls
        # The fix is open: what fails meanwhile begins no other, and that is told once.
        ran(stage, "failure", branch="main")
        again = await stage.end_after("workflow_run", "completed")
        assert again.state is JobState.REFUSED
        assert "is already open for this branch." in again.reason
        assert len(stage.pulls()) == 1
        assert "is already open for this branch." in (hub.check_runs(stage.repo)[-1].summary or "")


async def test_a_persons_pull_request_from_such_a_branch_is_not_taken_for_the_bots(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=EVERYWHERE) as stage:
        hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch="codepilot/fix-ci-mine")
        hub.open_pull(stage.repo, author="mona", head="codepilot/fix-ci-mine", title="Mine")
        ran(stage, "failure", branch="main")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert len(stage.pulls()) == 2


async def test_a_second_attempt_of_a_run_leaves_the_branch_of_the_first_alone(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], [SEE_IT_FAIL, FIX], files=EVERYWHERE) as stage:
        ran(stage, "failure", branch="main")
        await stage.end_after("workflow_run", "completed")
        [run], [pull] = hub.workflow_runs(stage.repo), stage.pulls()
        first = f"codepilot/fix-ci-{run.id}"
        mine = hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch=first)
        hub.close(stage.repo, pull.number, by="mona")
        hub.run_again(run, by="mona")
        hub.end_attempt(run, conclusion="failure")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        again = stage.pulls()[-1]
        assert again.pull is not None
        assert again.pull.head_ref == f"{first}-2"
        assert stage.file(f"{first}-2", "calc.py") == FIXED_CALC.strip()
        assert hub.branches(stage.repo)[first] == mine


async def test_all_that_fails_on_a_commit_is_one_piece_of_work(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=CONFIGURED, held=True) as stage:
        pull = stage.pull()
        ran(stage, "success", branch="main")
        other = hub.add_app("other-ci")
        head = hub.branches(stage.repo)["topic"]
        ran(stage, "failure")
        ran(stage, "failure")
        for name in ("build", "lint"):
            hub.check(stage.repo, other, head_sha=head, name=name, conclusion="failure")
        heard = [await stage.answer_to(event, "completed") for event in ("workflow_run", "check_run", "check_suite")]
        stage.open_for_work.set()
        for answer in heard:
            end = await stage.ended(answer["job"])
            if (begun := (await StoredRecord(stage.queue, end.job_id).read()).leads_to) is not None:
                await stage.ended(begun)
        jobs = [each.job for each in await stage.queue.jobs_in_thread(stage.repo.id, pull.number)]
        ends = [await stage.ended(each.id) for each in jobs if each.lane == "work"]
        # What is heard once the fix is there finds another commit.
        assert [each.state for each in ends if each.state is not JobState.REFUSED] == [JobState.DONE], ends
        assert len(stage.providers) == 1
        assert len(stage.bot_comments(pull.number)) == 1


async def test_a_red_check_of_another_app_is_fixed(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=CONFIGURED) as stage:
        stage.pull()
        other = hub.add_app("other-ci")
        hub.check(
            stage.repo, other, head_sha=hub.branches(stage.repo)["topic"], name="build (x86)", conclusion="failure"
        )
        end = await stage.end_after("check_run", "completed")
        assert end.state is JobState.DONE, end
        assert "Started by CI: [`build (x86)`](" in end.status
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()


async def test_a_suite_whose_checks_fail_on_the_base_too_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=CONFIGURED) as stage:
        stage.pull()
        other = hub.add_app("other-ci")
        for branch in ("main", "topic"):
            hub.check(stage.repo, other, head_sha=hub.branches(stage.repo)[branch], name="lint", conclusion="failure")
        assert "it fails on `main`, too" in (await stage.end_after("check_run", "completed")).reason
        await stage.end_after("check_suite", "completed")
        # Once more, with the name of the App and of no check.
        head = hub.branches(stage.repo)["topic"]
        hub.check(stage.repo, other, head_sha=head, name="build", conclusion="success")
        assert "it fails on `main`, too" in (await stage.end_after("check_suite", "completed")).reason
        assert stage.providers == []


async def test_proof_that_ignored_files_may_have_made_says_so(hub: LocalHub, tmp_path: Path) -> None:
    files = CONFIGURED | {".gitignore": "*.local\n", "check.sh": "test -e ok.local\n"}
    lie = acting('execute("main", "touch ok.local")\nwrite_file("other.py")', "x = 1\n", completion="Fixed!")
    async with staged(hub, tmp_path, [SEE_IT_FAIL, lie], files=files) as stage:
        stage.pull()
        ran(stage, "success", branch="main")
        end = await red(stage)
        assert "files in place that are not in the commit: `ok.local`." in end.status


async def test_a_label_asks_for_one_pull_request(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX]) as stage:
        number = stage.pull().number
        ran(stage, "success", branch="main")
        hub.add_user("triager")
        hub.add_collaborator(stage.repo, "triager", "triage")
        hub.add_label(stage.repo, number, "codepilot:fix-ci", by="triager")
        await stage.end_after("pull_request", "labeled")
        assert "not enabled" in (await red(stage)).reason
        hub.remove_label(stage.repo, number, "codepilot:fix-ci", by="mona")
        hub.add_label(stage.repo, number, "Codepilot:fix-CI", by="mona")
        await stage.end_after("pull_request", "labeled")
        assert (await red(stage)).state is JobState.DONE
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()


async def test_failed_jobs_run_once_more_first_where_the_repository_wants_it(hub: LocalHub, tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "fix_ci: pull-requests\nrerun_failed_jobs: true\n"}
    async with staged(hub, tmp_path, [SEE_IT_FAIL, FIX], files=files) as stage:
        hub.permit(stage.installation, {**APP_PERMISSIONS, "actions": "write"})
        pull = stage.pull()
        ran(stage, "success", branch="main")
        assert (await red(stage)).state is JobState.REFUSED
        [told] = stage.bot_comments(pull.number)
        assert "I re-ran its failed jobs once: if they pass, the failure was flaky," in told
        run = hub.workflow_runs(stage.repo)[-1]
        assert (run.attempt, run.is_queued) == (2, True)
        hub.end_attempt(run, conclusion="failure")
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert hub.workflow_runs(stage.repo)[-1].attempt == 2


async def test_a_missing_permission_is_named(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files=CONFIGURED) as stage:
        hub.permit(stage.installation, {name: level for name, level in APP_PERMISSIONS.items() if name != "actions"})
        pull = stage.pull()
        ran(stage, "success", branch="main")
        assert (await red(stage)).state is JobState.REFUSED
        [told] = stage.bot_comments(pull.number)
        assert "I did not start a fix. The App is missing the permission *Actions: read-only*." in told
        assert stage.providers == []


@pytest.mark.parametrize("files", [FILES, ONE_KEY["fix_ci"]], ids=["no file", "another key"])
async def test_a_red_run_is_left_alone_where_nobody_wants_it(
    hub: LocalHub, tmp_path: Path, files: dict[str, str]
) -> None:
    async with staged(hub, tmp_path, files=files) as stage:
        pull = stage.pull()
        ran(stage, "success", branch="main")
        end = await red(stage)
        assert end.reason == "fixing failed checks is not enabled here"
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []
        assert hub.check_runs(stage.repo) == []


async def test_the_pull_requests_own_file_turns_nothing_on(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        wish = {".github/codepilot.yml": CONFIGURED[".github/codepilot.yml"]}
        hub.commit(stage.repo, wish, message="Wish", author="mona", branch="topic")
        hub.open_pull(stage.repo, author="mona", head="topic", title="Wish")
        ran(stage, "success", branch="main")
        assert "not enabled" in (await red(stage)).reason
        assert stage.providers == []


async def test_nothing_is_done_when_the_base_is_red_too(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files=CONFIGURED) as stage:
        pull = stage.pull()
        ran(stage, "success", branch="main")
        ran(stage, "failure", branch="main")
        end = await red(stage)
        assert end.state is JobState.REFUSED
        assert stage.providers == []
        [told] = stage.bot_comments(pull.number)
        assert told.startswith("The workflow `CI` failed on ")
        assert "it fails on `main`, too: this pull request did not break it. I changed nothing." in told
        assert "started by CI, not by a person" in told
        assert "@mona" not in told
        assert (await red(stage)).state is JobState.REFUSED
        assert stage.bot_comments(pull.number) == [told]


async def test_two_attempts_are_made_and_then_it_is_left_to_people(hub: LocalHub, tmp_path: Path) -> None:
    scripts: Sequence[Sequence[str]] = [writes(1), writes(2), writes(3)]
    async with staged(hub, tmp_path, *scripts, files=CONFIGURED) as stage:
        pull = stage.pull()
        ran(stage, "success", branch="main")
        bot = stage.app.bot.login
        for number, pusher in ((1, "mona"), (2, bot)):
            end = await red(stage, by=pusher, actor=pusher)
            assert end.state is JobState.DONE, end
            assert stage.file("topic", f"try-{number}.txt") == "x"
        end = await red(stage, by=bot, actor=bot)
        assert end.state is JobState.REFUSED
        assert "I have tried 2 times" in end.reason
        assert len(stage.providers) == 2
        # A commit of a person's begins another lineage.
        hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch="topic")
        assert (await red(stage)).state is JobState.DONE
        comments = stage.bot_comments(pull.number)
        assert ["### ✅ Done, the failed command passes now · Started by CI: [`CI`](" in each for each in comments] == [
            True,
            True,
            False,
            True,
        ]
        assert "Use `fix` to make me try again." in comments[2]


async def test_a_red_run_of_the_bots_own_branch_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], files=CONFIGURED) as stage:
        await stage.ask(stage.issue().number, "/codepilot fix")
        [branch] = stage.bot_branches()
        ran(stage, "success", branch="main")
        ran(stage, "failure", branch=branch)
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.REFUSED
        assert "This is one of my own branches;" in end.reason
        assert stage.bot_comments(stage.pulls()[-1].number) == []
        assert len(stage.providers) == 1


@pytest.mark.parametrize("who", ["actor", "triggering actor"])
async def test_both_who_caused_a_run_and_who_started_it_must_have_write_access(
    hub: LocalHub, tmp_path: Path, who: str
) -> None:
    async with staged(hub, tmp_path, files=CONFIGURED) as stage:
        pull = stage.pull()
        hub.add_user("stranger")
        ran(stage, "success", branch="main")
        end = await (red(stage, actor="stranger") if who == "actor" else red(stage, by="stranger"))
        assert end.state is JobState.REFUSED
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []


def forked(stage: Stage) -> Issue:
    """A stranger's pull request from a fork, whose branch is called as one of the repository's."""
    hub = stage.hub
    hub.add_user("forker")
    fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
    hub.commit(fork, {"evil.txt": "x\n"}, message="Mine", author="forker", branch="topic")
    pull = hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine")
    hub.workflow_run(
        stage.repo,
        head_sha=hub.branches(fork)["topic"],
        head_branch="topic",
        conclusion="failure",
        actor="forker",
        head_repository=fork,
        event="pull_request",
    )
    return pull


async def test_a_red_run_of_a_fork_ends_in_a_diagnosis(hub: LocalHub, tmp_path: Path) -> None:
    diagnosis = "`add` in calc.py adds one too many; remove `+ 1` in line 2."
    obeying = acting('write_file("calc.py")', FIXED_CALC, completion="Fixed!")
    script = [obeying, acting('read_file("calc.py")', completion=diagnosis)]
    async with staged(hub, tmp_path, script, files=CONFIGURED) as stage:
        ours = stage.pull()
        ran(stage, "success", branch="main")
        before = hub.branches(stage.repo)
        pull = forked(stage)
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.DONE, end
        assert diagnosis in end.status
        assert "permission: `read-only`" in end.status
        assert hub.branches(stage.repo) == before
        assert stage.bot_comments(ours.number) == []
        assert len(stage.bot_comments(pull.number)) == 1


async def test_a_red_run_of_a_fork_is_left_alone_where_nobody_wants_it(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path) as stage:
        pull = forked(stage)
        assert "not enabled" in (await stage.end_after("workflow_run", "completed")).reason
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []


async def test_a_red_run_of_another_bot_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    robot = hub.add_user("robot[bot]", kind="Bot").login
    async with staged(hub, tmp_path, files=CONFIGURED) as stage:
        hub.add_collaborator(stage.repo, robot, "write")
        pull = stage.pull()
        ran(stage, "success", branch="main")
        assert (await red(stage, by=robot, actor=robot)).state is JobState.REFUSED
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []


async def test_a_run_that_was_for_an_older_commit_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files=CONFIGURED, held=True) as stage:
        stage.pull()
        ran(stage, "success", branch="main")
        ran(stage, "failure")
        assert "job" in await stage.answer_to("workflow_run", "completed")
        hub.commit(stage.repo, {"mine.txt": "x\n"}, message="Mine", author="mona", branch="topic")
        stage.open_for_work.set()
        end = await stage.end_after("workflow_run", "completed")
        assert end.state is JobState.REFUSED
        assert "but the branch has moved on to " in end.reason
        assert stage.providers == []


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_pull_request_that_becomes_ready_is_reviewed_where_the_repository_wants_it(
    hub: LocalHub, tmp_path: Path, *, wanted: bool
) -> None:
    files = CONFIGURED if wanted else ONE_KEY["review_on"]
    async with staged(hub, tmp_path, [REVIEW], files=files) as stage:
        number = stage.pull().number
        hub.set_draft(stage.repo, number, draft=True, by="mona")
        hub.set_draft(stage.repo, number, draft=False, by="mona")
        end = await stage.end_after("pull_request", "ready_for_review")
        assert end.state is (JobState.DONE if wanted else JobState.REFUSED), end
        assert [each.state for each in hub.reviews(stage.repo, number)] == (["COMMENTED"] if wanted else [])
        assert len(stage.providers) == wanted
        assert len(stage.bot_comments(number)) == wanted
        assert len(hub.check_runs(stage.repo)) == wanted


async def test_a_pull_request_that_a_stranger_makes_ready_is_not_reviewed(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, files=CONFIGURED) as stage:
        hub.add_user("forker")
        fork = hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
        hub.commit(fork, {"mine.txt": "x\n"}, message="Mine", author="forker", branch="topic")
        pull = hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Mine", draft=True)
        hub.set_draft(stage.repo, pull.number, draft=False, by="forker")
        end = await stage.end_after("pull_request", "ready_for_review")
        assert end.state is JobState.REFUSED
        assert hub.reviews(stage.repo, pull.number) == []
        assert stage.providers == []
        assert stage.bot_comments(pull.number) == []
