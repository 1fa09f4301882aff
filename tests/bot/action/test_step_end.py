"""What a step says of its end: the summary, and the annotations."""

from __future__ import annotations

from bot.action.outputs import MAX_SUMMARY_BYTES, StepEnd, notes_on, summary
from bot.domain.job import JobState
from bot.events.delivery import IgnoredDelivery
from bot.github.types import ReviewDraft, ReviewNote
from bot.jobs.context import Ending
from bot.publishing.checks import Check, Verdict
from bot.publishing.markdown import Allowed, harmless
from bot.publishing.render import render_status
from bot.publishing.view import StatusView
from bot.queue.records import JobRecord, RecordedEnding
from tests.builders import a_job
from tests.changes import a_file
from tests.security.test_38_workflow_commands import carried_out


def view_of(**changes: object) -> StatusView:
    usual: dict[str, object] = {
        "state": "done",
        "asked": "/codepilot fix",
        "allowed": Allowed(login="mona", number=1, server="https://github.com", repo="octo/calc"),
        "job_id": "j1",
        "marker": "<!-- m -->",
        "seconds": 3.0,
    }
    return StatusView(**{**usual, **changes})  # type: ignore[arg-type] # as the tests name them


def end_of(
    view: StatusView, *, state: JobState = JobState.DONE, patch: str = "", review: ReviewDraft | None = None
) -> StepEnd:
    ending = Ending(state=state, reason=view.reason, view=view, review=review)
    record = JobRecord(ending=RecordedEnding(state=state, body=render_status(view)))
    return StepEnd(ended=state, ending=ending, record=record, patch=patch)


CHANGED = (a_file("a.py"),)


def test_a_change_that_is_too_large_is_cut_at_a_line_and_everything_is_closed() -> None:
    patch = "diff --git a/a b/a\n" + "+``` é\n" * 300_000
    text = summary(end_of(view_of(files=CHANGED), patch=patch))
    assert MAX_SUMMARY_BYTES - 10_000 < len(text.encode()) <= MAX_SUMMARY_BYTES
    assert text.endswith("_Truncated: the whole change has 2,100,019 characters._\n\n</details>")
    fence = text.split("<summary>The change</summary>")[1].split("diff\n")[0].strip()
    assert set(fence) == {"`"}
    assert len(fence) > 3
    assert f"\n{fence}\n\n_Truncated: the whole" in text


def test_why_a_job_ended_without_a_comment_is_harmless_in_the_summary() -> None:
    why = "`CI` failed: the step `a` ![x](https://evil.example/x.png) @octo/team ` failed before any test"
    ending = Ending(state=JobState.REFUSED, reason=why)
    text = summary(StepEnd(ended=JobState.REFUSED, job=a_job(), ending=ending, server_url="https://github.com"))
    assert text.startswith("Codepilot: refused. `CI` failed")
    assert harmless(text, Allowed(login="", number=7, server="https://github.com", repo="octo/calc"))


def test_a_change_of_one_endless_line_is_left_out_rather_than_cut_in_the_middle() -> None:
    text = summary(end_of(view_of(files=CHANGED), patch="+" + "x" * 2_000_000))
    assert len(text.encode()) < 10_000
    assert "Truncated" in text


def test_what_a_run_left_that_was_not_to_change_anything_is_not_shown() -> None:
    assert "The change" not in summary(end_of(view_of(), patch="+x"))


def test_an_event_that_asks_for_nothing_is_said_to_do_so() -> None:
    end = StepEnd(ended=IgnoredDelivery(reason="list it in CODEPILOT_TRUSTED_BOTS"))
    assert summary(end) == "Codepilot had nothing to do: list it in the input `trusted-bots`"
    assert notes_on(end) == ["::notice title=Codepilot::Nothing to do: list it in the input `trusted-bots`"]


def test_a_failed_run_is_an_error_with_its_reason_and_remedy() -> None:
    end = end_of(view_of(state="failed", reason="The model\nbroke.", remedy="Ask again."), state=JobState.FAILED)
    assert notes_on(end) == ["::error title=Codepilot%3A failed::The model%0Abroke. Ask again."]


def test_a_red_check_is_an_error_and_a_verified_change_needs_no_word() -> None:
    red = Check(command="pytest -q", exit_code=2, seconds=1.0)
    first, second = notes_on(end_of(view_of(verdict=Verdict.RED, checks=(red,))))
    assert first == "::error title=Codepilot%3A red::`pytest -q` ended with exit code 2."
    assert second == "::error title=pytest -q::Ended with exit code 2 after 1 s."
    assert notes_on(end_of(view_of(verdict=Verdict.VERIFIED))) == []
    # The step is green: it changed nothing that could be wrong.
    assert notes_on(end_of(view_of(verdict=Verdict.UNCHANGED, checks=(red,)))) == [second.replace("error", "warning")]


def test_the_notes_of_a_review_stand_at_their_lines_and_no_more_than_github_shows() -> None:
    hostile = ReviewNote(path="src/a,b.py", line=7, start_line=5, side="RIGHT", body="Wrong\n::error::x\n##[error]y")
    removed = ReviewNote(path="src/a.py", line=3, side="LEFT", body="gone")
    review = ReviewDraft(commit_sha="a" * 40, body="", notes=(removed, *[hostile] * 12))
    lines = notes_on(end_of(view_of(), review=review))
    assert lines == ["::notice file=src/a%2Cb.py,line=5,endLine=7::Wrong%0A::error::x%0A# #[error]y"] * 10
    assert carried_out("\n".join(lines)) == lines
