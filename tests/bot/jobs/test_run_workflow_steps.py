"""A workflow's step on failed runs of other workflows, during outages, and for runs that wait for an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_runtime import Status
from bot.domain.errors import InputsError
from bot.domain.job import JobState
from tests.fakes.agent import end, execute, reply, write
from tests.fakes.github import outage
from tests.fakes.site import FakeRepo
from tests.seam import COMPLETION, FIX, FIXED_CALC, Seam, open_seam
from tests.seam_step import run_step
from tests.stage import FILES

CI_FIX = [reply(execute("sh check.sh", 1, output="1 failed", handled=True)), *FIX]
DIAGNOSIS = [reply(completion="`add` is off by one.")]
WAITING = {
    "CODEPILOT_NETWORK": "pypi.org",
    "CODEPILOT_LEVEL": "ask",
    "CODEPILOT_APPROVALS": "artifact",
    "CODEPILOT_SESSION_KEY": "session-key-of-the-seam-0123456789abcdef",
}
ASK = reply(write("calc.py", FIXED_CALC), execute("sh check.sh > log"))


def fail_run(stage: Seam, branch: str = "topic", fork: FakeRepo | None = None) -> None:
    """Open a pull request unless the branch is the default one, and let a run of `CI` fail on it."""
    home, author = fork or stage.repo, "forker" if fork else "mona"
    if branch != "main":
        stage.hub.commit(home, {"topic.txt": "A topic.\n"}, message="Add a topic", author=author, branch=branch)
        head = f"forker:{branch}" if fork else branch
        stage.hub.open_pull(stage.repo, author=author, head=head, title="Add a topic")
    stage.hub.workflow_run(
        stage.repo,
        head_sha=home.branches[branch],
        head_branch=branch,
        head_repository=home,
        conclusion="failure",
        actor=author,
        event="push" if branch == "main" else "pull_request",
    )


def add_fork(stage: Seam) -> FakeRepo:
    stage.hub.add_user("forker")
    return stage.hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)


def bodies(stage: Seam, number: int = 1) -> list[str]:
    return [comment.body for comment in stage.hub.comments(stage.repo, number)]


async def test_a_failed_run_of_a_pull_request_is_fixed_on_its_branch(tmp_path: Path) -> None:
    async with open_seam(tmp_path, CI_FIX) as stage:
        fail_run(stage)
        run = await run_step(stage, "workflow_run")
        assert run.ended is JobState.DONE, run.summary
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()
        assert "Started by CI: [`CI`](" in run.summary
        assert "@mona" not in run.summary
        assert len(stage.pulls()) == len(bodies(stage)) == 1


async def test_the_repository_limits_the_fixes_of_failed_runs_in_a_workflow(tmp_path: Path) -> None:
    files = FILES | {".github/codepilot.yml": "fix_ci: [default-branch]\n"}
    async with open_seam(tmp_path, files=files) as stage:
        fail_run(stage)
        assert (await run_step(stage, "workflow_run")).ended is JobState.DONE
        assert stage.providers == []
        assert bodies(stage) == []
        assert set(stage.repo.branches) == {"main", "topic"}


async def test_the_reason_for_no_fix_is_given_once_over_all_steps(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        fail_run(stage)
        stage.hub.commit(stage.repo, {"more.txt": "More.\n"}, message="Go on", author="mona", branch="topic")
        runs = [await run_step(stage, "workflow_run") for _ in range(2)]
        assert [run.ended for run in runs] == [JobState.REFUSED] * 2
        [comment] = bodies(stage)
        for text in (comment, *(run.summary for run in runs)):
            assert "the branch has moved on to" in text


async def test_a_fork_is_diagnosed_twice_however_often_it_fails(tmp_path: Path) -> None:
    async with open_seam(tmp_path, DIAGNOSIS, DIAGNOSIS) as stage:
        fail_run(stage, fork=add_fork(stage))
        runs = [await run_step(stage, "workflow_run") for _ in range(3)]
        assert [run.ended for run in runs] == [JobState.DONE, JobState.DONE, JobState.REFUSED]
        assert len(bodies(stage)) == 2
        assert "I have explained failed checks here 2 times," in runs[-1].summary


async def test_comments_of_other_workflows_do_not_count_as_explanations(tmp_path: Path) -> None:
    async with open_seam(tmp_path, DIAGNOSIS) as stage:
        fail_run(stage, fork=add_fork(stage))
        author = stage.hub.workflow_app.bot.login
        for text in ("CI asked: `CI` failed", f"<!-- codepilot:ci=j1 sig={'0' * 32} -->") * 2:
            stage.hub.comment(stage.repo, 1, author=author, body=f"### {text}")
        run = await run_step(stage, "workflow_run")
        assert run.ended is JobState.DONE, run.summary


@pytest.mark.parametrize(("times", "pause", "state"), [(2, 0.05, JobState.DONE), (99, 0.0, JobState.FAILED)])
async def test_a_step_waits_for_the_end_of_an_outage(tmp_path: Path, times: int, pause: float, state: JobState) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        stage.say(issue.number, "/codepilot fix")
        stage.hub.fail("threads.snapshot", outage(503), times=times)
        run = await run_step(stage, "issue_comment", None, pause)
        assert run.ended is state, run.summary
        assert (stage.hub.take_fault("threads.snapshot") is None) is (state is JobState.DONE)
        assert len(bodies(stage, issue.number)) == (2 if state is JobState.DONE else 1)


async def test_a_step_leaves_the_queue_of_another_version_alone(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.say(stage.issue().number, "/codepilot fix")
        folder = tmp_path / "shared"
        folder.mkdir()
        queue = folder / "queue.sqlite"
        queue.write_bytes(b"another version's")
        assert (await run_step(stage, "issue_comment", CODEPILOT_DATA_DIR=str(folder))).ended is JobState.DONE
        assert queue.read_bytes() == b"another version's"
        assert list(folder.rglob("*sqlite*")) == [queue]


async def say(stage: Seam, body: str, variables: Mapping[str, str]) -> JobState:
    """Comment in issue 1, and run the step that it starts."""
    stage.say(1, body)
    ended = (await run_step(stage, "issue_comment", **variables)).ended
    assert isinstance(ended, JobState)
    return ended


def request_of(stage: Seam) -> str:
    """Return the id of the request in the status comment."""
    match = re.search(r"/codepilot approve ([\w-]+)", bodies(stage)[1])
    assert match is not None
    return match[1]


@pytest.mark.parametrize("kept", ["nothing", "expired", "unreadable"])
async def test_an_answer_without_a_saved_run_is_refused_with_the_remedy(tmp_path: Path, kept: str) -> None:
    async with open_seam(tmp_path, [ASK]) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix", WAITING) is JobState.WAITING
        assert "### ✋ Waiting for you" in bodies(stage)[1]
        name, reason = "codepilot-session-1", "no run has stored an artifact `codepilot-session-1`"
        if kept != "nothing":
            days = 0 if kept == "expired" else 90
            stage.hub.keep_artifact(stage.repo, name, {"session.codepilot": b"sealed"}, run_id=41, days=days)
            reason = f"The artifact `{name}` of the waiting run has expired. Give the"
        if kept == "unreadable":
            stage.hub.workflow_app.permissions.pop("actions")
            reason = "Add `actions: read` to the `permissions:` of its job, and answer again."
        assert await say(stage, f"/codepilot approve {request_of(stage)}", WAITING) is JobState.REFUSED
        assert reason in bodies(stage)[-1]
        assert "### ✋ Waiting for you" in bodies(stage)[1]


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("bot.git.tree.MAX_CARRIED_BYTES", "too large for a waiting workflow run."),
        ("bot.git.tree._MAX_FILES", "too large for a waiting workflow run."),
        ("bot.jobs.handover._MAX_SESSION_BYTES", "conversation is too long to be stored between two workflow runs."),
        ("bot.jobs.storage.MAX_SEALED_BYTES", "the limit for a waiting workflow run is 0."),
    ],
)
async def test_a_run_that_is_too_large_to_save_ends_and_keeps_its_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    monkeypatch.setattr(limit, 0)
    async with open_seam(tmp_path, [ASK]) as stage:
        issue = stage.issue()
        stage.say(issue.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment", **WAITING)
        assert run.ended is JobState.STOPPED
        assert reason in bodies(stage)[1]
        assert "+    return a + b" in run.summary


async def test_without_the_input_a_call_is_denied_and_the_run_continues(tmp_path: Path) -> None:
    script = [ASK, reply(write("calc.py", FIXED_CALC), completion=COMPLETION)]
    async with open_seam(tmp_path, script) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix", WAITING | {"CODEPILOT_APPROVALS": ""}) is JobState.DONE
        status = bodies(stage)[1]
        assert "**Denied, because nobody can approve calls in this run**" in status
        assert WAITING["CODEPILOT_SESSION_KEY"] not in status


@pytest.mark.parametrize(
    ("held", "missing"),
    [
        ({"contents": "read"}, "`contents: write`"),
        ({"pull_requests": "read"}, "`pull-requests: write`"),
        ({"contents": "read", "pull_requests": ""}, "`contents: write` and `pull-requests: write`"),
    ],
)
async def test_a_missing_permission_of_the_token_ends_the_job_before_the_model_is_paid(
    tmp_path: Path, held: Mapping[str, str], missing: str
) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.hub.workflow_app.permissions |= held
        issue = stage.issue()
        stage.say(issue.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment")
        assert run.ended is JobState.FAILED
        assert re.search(r"^conclusion<<\w+\nmisconfigured$", run.outputs, re.MULTILINE)
        assert stage.providers == []
        for text in ("\n".join(bodies(stage, issue.number)), run.summary):
            assert f"The token lacks {missing}, so nothing could be published." in text
            assert f"Add {missing} to `permissions:` of the workflow's job." in text


@pytest.mark.parametrize("command", ["/codepilot explain", "/codepilot fix --dry-run"])
async def test_work_that_publishes_nothing_needs_no_permission_to_write_files(tmp_path: Path, command: str) -> None:
    async with open_seam(tmp_path, FIX if "fix" in command else DIAGNOSIS) as stage:
        stage.hub.workflow_app.permissions |= {"contents": "read", "pull_requests": ""}
        stage.say(stage.issue().number, command)
        run = await run_step(stage, "issue_comment")
        assert run.ended is JobState.DONE, run.summary
        assert "tokens.find_missing" in stage.hub.calls


async def test_a_check_of_permissions_without_a_clear_answer_refuses_nothing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        stage.say(stage.issue().number, "/codepilot fix")
        stage.hub.fail("tokens.find_missing", outage(503), times=2)
        run = await run_step(stage, "issue_comment")
        assert run.ended is JobState.DONE, run.summary
        assert stage.hub.take_fault("tokens.find_missing") is None
        assert len(stage.pulls()) == 1


LABELLED = {"CODEPILOT_LEVEL": "ask", "CODEPILOT_NETWORK": "pypi.org"}


@pytest.mark.parametrize("kind", ["issue", "pull"])
@pytest.mark.parametrize("setter", ["mona", "helper"])
async def test_a_label_counts_in_a_workflow_if_a_person_with_write_access_set_it(
    tmp_path: Path, kind: str, setter: str
) -> None:
    async with open_seam(tmp_path, [ASK]) as stage:
        stage.hub.add_collaborator(stage.repo, "helper", "triage")
        thread = stage.issue() if kind == "issue" else stage.pull()
        stage.advance(60.0)
        stage.hub.add_label(stage.repo, thread.number, "codepilot:auto", by=setter)
        stage.advance(60.0)
        stage.say(thread.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment", **LABELLED)
        level = "auto" if setter == "mona" else "ask"
        assert f"permission: `{level}`" in "\n".join(bodies(stage, thread.number))
        assert ("helper, who set it, has no write access here" in run.summary) is (setter == "helper")
        assert thread.labels == ["codepilot:auto"]


MODES = ("always", "on-change", "never")


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_is_posted_only_where_the_thread_is_always_told(tmp_path: Path, mode: str) -> None:
    async with open_seam(tmp_path, [reply(completion='{"kind": "bug"}')]) as stage:
        issue = stage.issue()
        prompt = {"CODEPILOT_PROMPT": "Classify this issue.", "CODEPILOT_COMMAND": "ask"}
        run = await run_step(stage, "issues", **prompt, CODEPILOT_COMMENT=mode)
        assert run.ended is JobState.DONE, run.summary
        said = bodies(stage, issue.number)
        assert len(said) == (mode == "always")
        assert stage.hub.calls.count("comments.create") == (mode == "always")


@pytest.mark.parametrize("mode", MODES)
async def test_a_change_is_reported_unless_the_thread_is_never_told(tmp_path: Path, mode: str) -> None:
    async with open_seam(tmp_path, FIX) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment", CODEPILOT_COMMENT=mode)
        assert run.ended is JobState.DONE, run.summary
        assert COMPLETION in run.summary
        assert len(stage.pulls()) == 1
        [_, *said] = bodies(stage, issue.number)
        assert len(said) == (mode != "never")
        assert [content for _, content in command.reactions] == ([] if mode == "never" else ["eyes"])


@pytest.mark.parametrize("mode", MODES)
async def test_a_failure_is_reported_unless_the_thread_is_never_told(tmp_path: Path, mode: str) -> None:
    async with open_seam(tmp_path, DIAGNOSIS) as stage:
        stage.hub.workflow_app.permissions |= {"contents": "read"}
        issue = stage.issue()
        stage.say(issue.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment", CODEPILOT_COMMENT=mode)
        assert run.ended is JobState.FAILED
        assert "The token lacks `contents: write`" in run.summary
        assert len(bodies(stage, issue.number)) == 1 + (mode != "never")


async def test_nobody_is_asked_where_the_thread_is_never_told(tmp_path: Path) -> None:
    denied = [reply(write("calc.py", FIXED_CALC), execute("sh check.sh > log"), completion=COMPLETION)]
    async with open_seam(tmp_path, denied) as stage:
        issue = stage.issue()
        stage.say(issue.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment", **WAITING, CODEPILOT_COMMENT="never")
        assert run.ended is not JobState.WAITING, run.summary
        assert len(bodies(stage, issue.number)) == 1


async def test_a_request_is_shown_where_the_thread_is_told_of_changes(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [ASK]) as stage:
        issue = stage.issue()
        stage.say(issue.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment", **WAITING, CODEPILOT_COMMENT="on-change")
        assert run.ended is JobState.WAITING, run.summary
        assert any("/codepilot approve" in body for body in bodies(stage, issue.number))


RED = [reply(write("calc.py", FIXED_CALC), execute("pytest -q", 1, check=False, handled=True), completion="Tried.")]


@pytest.mark.parametrize(
    ("conclusion", "command"),
    [("red", "fix"), ("failed", "explain"), ("refused", "review"), ("misconfigured", "fix"), ("unchanged", "fix")],
)
async def test_the_summary_has_the_conclusion_of_the_output(tmp_path: Path, conclusion: str, command: str) -> None:
    scripts = {"red": RED, "failed": [], "unchanged": [reply(completion="Nothing to do.")]}
    async with open_seam(tmp_path, scripts.get(conclusion, FIX)) as stage:
        if conclusion == "misconfigured":
            stage.hub.workflow_app.permissions |= {"contents": "read"}
        stage.say(stage.issue().number, f"/codepilot {command}")
        run = await run_step(stage, "issue_comment")
        assert re.search(rf"^conclusion<<\w+\n{conclusion}$", run.outputs, re.MULTILINE)
        assert f"| Conclusion | `{conclusion}` |" in run.summary


async def test_a_command_that_failed_without_ending_its_step_is_marked(tmp_path: Path) -> None:
    async with open_seam(tmp_path, RED) as stage:
        stage.say(stage.issue().number, "/codepilot fix")
        run = await run_step(stage, "issue_comment")
        assert "- [x] ⚠️ `` Running `pytest -q` ``" in run.summary


SERVERS = {"CODEPILOT_MCP_SERVERS": "- {name: docs, url: 'https://mcp.example.com', headers: {X-Key: '${DOCS_KEY}'}}"}


async def test_servers_of_the_workflow_file_are_offered_and_their_secrets_are_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_KEY", "key-of-the-docs-7f3a91c0")
    async with open_seam(tmp_path, [reply(completion="It said key-of-the-docs-7f3a91c0.")]) as stage:
        issue = stage.issue()
        stage.say(issue.number, "/codepilot fix")
        run = await run_step(stage, "issue_comment", **SERVERS)
        assert run.ended is JobState.DONE, run.summary
        assert [spec.servers for spec in stage.providers[0].specs] == [("docs",)]
        for text in (*bodies(stage, issue.number), run.summary, run.outputs):
            assert "key-of-the-docs" not in text


@pytest.mark.parametrize("written", ["- {name: docs, url: 'https://${{ github.event.issue.title }}'}", "${{ env.X }}"])
async def test_servers_that_others_could_name_are_not_started(tmp_path: Path, written: str) -> None:
    async with open_seam(tmp_path, DIAGNOSIS) as stage:
        stage.say(stage.issue().number, "/codepilot explain")
        servers = {"CODEPILOT_MCP_SERVERS": "- {name: docs, url: 'https://evil.example'}"}
        run = await run_step(stage, "issue_comment", {"mcp": written}, **servers)
        assert run.ended is JobState.DONE, run.summary
        assert [spec.servers for spec in stage.providers[0].specs] == [()]
        assert "in the input `mcp`. To allow more, write `${NAME}` in its place" in run.summary


async def test_a_server_without_its_variable_is_an_error_of_the_input(tmp_path: Path) -> None:
    async with open_seam(tmp_path) as stage:
        stage.say(stage.issue().number, "/codepilot fix")
        with pytest.raises(InputsError, match=r"The input `mcp` is not valid\. .*DOCS_KEY is not set"):
            await run_step(stage, "issue_comment", **SERVERS)
        assert stage.providers == []


async def test_a_rejected_key_is_named_by_its_input_with_the_advice(tmp_path: Path) -> None:
    text = "Anthropic did not accept the API key (HTTP 401). Check ANTHROPIC_API_KEY."
    async with open_seam(tmp_path, [reply(end(Status.FAILED, text))]) as stage:
        stage.hub.comment(stage.repo, stage.issue().number, author="mona", body="/codepilot fix")
        run = await run_step(stage, "issue_comment")
        _, body = bodies(stage)
    assert "Anthropic did not accept the API key (HTTP 401).\n" in body
    assert "**How to fix it:** Check the input `anthropic-api-key`. Then give the same command again." in body
    assert run.ended is JobState.FAILED


@pytest.mark.parametrize("pusher", ["the bot", "a person"])
async def test_a_label_outlasts_the_bots_own_commits_and_no_others(tmp_path: Path, pusher: str) -> None:
    more = [reply(execute("sh check.sh", writes={"more.txt": "x\n"}), completion="Added more.")]
    async with open_seam(tmp_path, FIX, more) as stage:
        pull, summaries = stage.pull(), list[str]()
        stage.advance(60.0)
        stage.hub.add_label(stage.repo, pull.number, "codepilot:auto", by="mona")
        for words in ("fix", "fix more"):
            stage.advance(60.0)
            if words != "fix" and pusher == "a person":
                stage.hub.commit(stage.repo, {"evil.sh": "x\n"}, message="More", author="mona", branch="topic")
                stage.advance(60.0)
            stage.say(pull.number, f"/codepilot {words}")
            run = await run_step(
                stage, "issue_comment", **LABELLED, CODEPILOT_SESSION_KEY=WAITING["CODEPILOT_SESSION_KEY"]
            )
            summaries.append(run.summary)
        is_own = pusher == "the bot"
        assert ("permission: `auto`" in summaries[-1]) is is_own
        assert ("it was set on commit" in summaries[-1]) is not is_own
        assert pull.labels == (["codepilot:auto"] if is_own else [])


@pytest.mark.parametrize("approvals", ["", "artifact"])
async def test_a_setting_is_called_by_its_input_also_where_runs_wait(tmp_path: Path, approvals: str) -> None:
    script = [reply(end(Status.MAX_STEPS, "The limit of steps was reached."))]
    async with open_seam(tmp_path, script) as stage:
        stage.issue()
        assert await say(stage, "/codepilot fix", WAITING | {"CODEPILOT_APPROVALS": approvals}) is JobState.FAILED
        assert "ask the operator to raise the input `max-steps`" in bodies(stage)[1]
