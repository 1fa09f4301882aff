"""The check run's draft: GitHub's words, buttons and lengths."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_runtime import Status
from bot.domain.job import Thread
from bot.github.types import ReviewDraft, ReviewNote
from bot.publishing.checks import Check
from bot.publishing.markdown import Allowed
from bot.publishing.render import render_check
from bot.publishing.view import PendingView, StatusView
from tests.builders import a_job

MARK = "<!-- codepilot:job=j1 sig=00 -->"
VIEW = StatusView(
    state="working",
    asked="/codepilot fix",
    allowed=Allowed(login="mona", number=7, server="https://github.example", repo="octo/calc"),
    job_id="j1",
    marker=MARK,
    seconds=1.0,
)
SHA = "a" * 40
PENDING = PendingView(kind="permission", request_id="7f3a9b0c1d2e3f4a", trigger="/codepilot")


def view(state: str, **changes: object) -> StatusView:
    return replace(VIEW, state=state, **changes)  # type: ignore[arg-type] # whatever a view takes


@pytest.mark.parametrize(
    ("state", "kind", "status", "conclusion", "buttons"),
    [
        ("queued", "pull", "queued", None, ["stop"]),
        ("working", "pull", "in_progress", None, ["stop"]),
        ("done", "pull", "completed", "success", []),
        ("stopped", "pull", "completed", "cancelled", ["retry"]),
        ("failed", "pull", "completed", "failure", ["retry"]),
        ("refused", "pull", "completed", "skipped", []),
        ("done", "issue", "completed", "success", []),
        ("stopped", "issue", "completed", "neutral", ["retry"]),
        ("failed", "issue", "completed", "neutral", ["retry"]),
    ],
)
def test_a_state_in_githubs_words_with_the_buttons_that_fit(
    state: str, kind: str, status: str, conclusion: str | None, buttons: list[str]
) -> None:
    draft = render_check(view(state), job=a_job(kind=kind), head_sha=SHA)
    assert (draft.status, draft.conclusion) == (status, conclusion)
    assert [button.identifier for button in draft.buttons] == buttons


@pytest.mark.parametrize(("kind", "conclusion"), [("pull", "action_required"), ("issue", "neutral")])
def test_a_run_that_waits_is_complete_to_github_so_that_its_buttons_show(kind: str, conclusion: str) -> None:
    draft = render_check(view("waiting", pending=PENDING), job=a_job(kind=kind), head_sha=SHA)
    assert (draft.status, draft.conclusion) == ("completed", conclusion)
    names = [button.identifier for button in draft.buttons]
    assert names == ["approve 7f3a9b0c", "deny 7f3a9b0c", "stop"]


def test_a_question_has_no_button_for_yes() -> None:
    asked = replace(PENDING, kind="question")
    draft = render_check(view("waiting", pending=asked), job=a_job(), head_sha=SHA)
    assert [button.identifier for button in draft.buttons] == ["stop"]


@pytest.mark.parametrize(("kind", "conclusion"), [("pull", "timed_out"), ("issue", "neutral")])
def test_a_time_limit_has_its_own_word(kind: str, conclusion: str) -> None:
    draft = render_check(view("failed"), job=a_job(kind=kind), head_sha=SHA, status=Status.TIMEOUT)
    assert draft.conclusion == conclusion


def test_work_that_was_withheld_is_not_green() -> None:
    draft = render_check(view("done", withheld="It changes workflows."), job=a_job(kind="pull"), head_sha=SHA)
    assert draft.conclusion == "neutral"


def test_it_names_its_job_and_thread_for_the_buttons() -> None:
    draft = render_check(view("waiting", pending=PENDING), job=a_job(kind="pull"), head_sha=SHA)
    assert draft.external_id == "j1:pull:7:7f3a9b0c1d2e3f4a"
    assert render_check(view("working"), job=a_job(), head_sha=SHA).external_id == "j1:issue:7:-"
    on_branch = a_job(thread=Thread.of_branch("release/2"))
    assert render_check(view("working"), job=on_branch, head_sha=SHA).external_id == "j1:branch:release/2:-"
    assert (draft.name, draft.head_sha) == ("Codepilot fix", SHA)
    assert render_check(view("working"), job=a_job(), head_sha=SHA).name == "Codepilot fix #7"


def test_the_summary_is_the_comment_without_its_mark() -> None:
    draft = render_check(view("done", completion="Fixed it."), job=a_job(), head_sha=SHA)
    assert "Fixed it." in draft.summary
    assert MARK not in draft.summary
    assert draft.title == "Done: /codepilot fix"
    red = render_check(view("done", failed="CI"), job=a_job(), head_sha=SHA)
    assert red.title == "Done: Started by CI: CI failed"


def test_the_patch_is_attached() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-```\n+~~~\n"
    draft = render_check(view("done"), job=a_job(), head_sha=SHA, patch=patch)
    assert draft.text == f"### The patch\n\n````diff\n{patch}````"
    assert not render_check(view("done"), job=a_job(), head_sha=SHA).text


@pytest.mark.parametrize("patch", ["+line\n" * 20_000, "+" + "`" * 200_000, "x" * 70_000, "+" + "`" * 65_400])
def test_a_patch_that_does_not_fit_is_cut_with_a_word_about_the_whole(patch: str) -> None:
    draft = render_check(view("done"), job=a_job(), head_sha=SHA, patch=patch)
    assert len(draft.text) <= 65_535
    assert draft.text.endswith(f"{len(patch):,} characters. The bot keeps it under job `j1`._")


@pytest.mark.parametrize("patch", ["+\udcff\n", "+\x1b[31mred\n", "+\u202e\n"])
def test_what_cannot_be_seen_in_a_patch_is_left_out_and_that_is_said(patch: str) -> None:
    draft = render_check(view("done"), job=a_job(), head_sha=SHA, patch=patch)
    assert draft.text.encode()
    assert draft.text.endswith("_Shown without invisible characters. The bot keeps the patch under job `j1`._")


def test_the_line_ends_of_a_patch_stay() -> None:
    assert "-a\r\n+b\r\n c" in render_check(view("done"), job=a_job(), head_sha=SHA, patch="-a\r\n+b\r\n c\n").text


def test_failed_commands_and_the_notes_of_a_review_are_annotations() -> None:
    checks = (
        Check(command="ruff check", exit_code=0, seconds=1),
        Check(command="pytest -q", exit_code=1, seconds=3),
        Check(command="sleep 9", exit_code=None, seconds=9),
    )
    review = ReviewDraft(
        commit_sha=SHA,
        body="",
        notes=(
            ReviewNote(path="a.py", start_line=3, line=5, body="Off by one."),
            ReviewNote(path="a.py", line=9, body="Why remove it?", side="LEFT"),
        ),
    )
    draft = render_check(view("done", checks=checks), job=a_job(kind="pull"), head_sha=SHA, review=review)
    assert [(each.path, each.start_line, each.end_line, each.level, each.message) for each in draft.annotations] == [
        (".github", 1, 1, "failure", "Ended with exit code 1 after 3 s."),
        (".github", 1, 1, "failure", "Did not finish within 9 s."),
        ("a.py", 3, 5, "notice", "Off by one."),
    ]
    # GitHub only adds annotations, so they are not sent while more may come.
    assert render_check(view("working", checks=checks), job=a_job(), head_sha=SHA, review=review).annotations == ()


def test_no_more_of_a_patch_is_read_than_could_be_shown() -> None:
    patch = "\u200b" * 300_000 + "\n+the end\n"
    text = render_check(view("done"), job=a_job(), head_sha=SHA, patch="+a\n" + patch).text
    assert "+the end" not in text
    assert "_Shown without invisible characters. Truncated: the whole patch has 300,013 characters." in text
