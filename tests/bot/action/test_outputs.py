from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.action.outputs import (
    END_GROUP,
    MAX_SUMMARY_BYTES,
    MEANINGS,
    Conclusion,
    StepEnd,
    conclusion_of,
    enclose_foreign_text,
    exit_code,
    format_annotation,
    format_annotations,
    format_summary,
    mask_secret,
    open_group,
    outputs_of,
    write_outputs,
    write_summary,
)
from bot.domain.errors import BotError
from bot.domain.job import JobState
from bot.events.delivery import IgnoredDelivery
from bot.github.types import ReviewDraft, ReviewNote
from bot.jobs.record import JobRecord, RecordedEnding
from bot.publishing.checks import Check, Verdict
from bot.publishing.markdown import Allowlist, is_harmless
from bot.publishing.outcome import PendingView, Waiting
from bot.publishing.render import render_status
from bot.publishing.status_view import DeniedCall, StatusView
from tests.builders import a_job
from tests.changes import a_file
from tests.security.test_38_workflow_commands import carried_out
from tests.status_views import a_status_view

HOSTILE = "a,b:c\r\n::set-output name=x::y\n##[error]z 100%\x1b[2J"


def test_an_annotation_is_one_line_whose_properties_and_message_are_escaped() -> None:
    line = format_annotation("error", HOSTILE, title=HOSTILE, file="src/a,b:c.py", line=3, end_line=5)
    assert "\n" not in line
    assert "\r" not in line
    assert "##[" not in line
    head, _, message = line.removeprefix("::").partition("::")
    assert head.startswith("error title=a%2Cb%3Ac %3A%3Aset-output name=x%3A%3Ay")
    assert head.endswith(",file=src/a%2Cb%3Ac.py,line=3,endLine=5")
    assert message == "a,b:c%0A::set-output name=x::y%0A# #[error]z 100%25"


def test_an_annotation_without_a_place_has_none() -> None:
    assert format_annotation("notice", "Fine.") == "::notice::Fine."
    assert format_annotation("warning", "Hm.", line=3) == "::warning::Hm."
    assert format_annotation("warning", "Hm.", file="a.py", line=3, end_line=3) == "::warning file=a.py,line=3::Hm."


def test_a_long_message_is_cut_where_the_runner_would() -> None:
    assert len(format_annotation("error", "x" * 10_000)) < 4_100


def test_a_group_has_a_title_of_one_line() -> None:
    assert open_group(HOSTILE).startswith("::group::a,b:c ::set-output")
    assert "\n" not in open_group(HOSTILE)
    assert END_GROUP == "::endgroup::"


def test_a_secret_is_masked_line_by_line() -> None:
    assert mask_secret("one%\ntwo\n\n") == ["::add-mask::one%25", "::add-mask::two"]
    assert mask_secret("") == []


def test_a_strangers_text_stands_between_a_stop_and_its_token() -> None:
    lines = enclose_foreign_text(HOSTILE, "t0k3n").split("\n")
    assert lines[0] == "::stop-commands::t0k3n"
    assert lines[-1] == "::t0k3n::"
    assert lines[1:-1] == ["a,b:c", "::set-output name=x::y", "# #[error]z 100%"]


def test_a_text_with_the_token_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="token"):
        enclose_foreign_text("::t0k3n::", "t0k3n")


@pytest.mark.parametrize(
    ("ended", "verdict", "conclusion", "code"),
    [
        (JobState.DONE, Verdict.VERIFIED, "verified", 0),
        (JobState.DONE, Verdict.UNVERIFIED, "unverified", 0),
        (JobState.DONE, Verdict.RED, "red", 1),
        (JobState.DONE, Verdict.UNCHANGED, "unchanged", 0),
        (JobState.DONE, Verdict.SETUP_FAILED, "setup_failed", 1),
        (JobState.DONE, None, "done", 0),
        (JobState.REFUSED, None, "refused", 0),
        (JobState.WAITING, None, "waiting", 0),
        (JobState.STOPPED, None, "stopped", 1),
        (JobState.FAILED, None, "failed", 1),
        (JobState.FAILED, Verdict.VERIFIED, "failed", 1),
        (JobState.QUEUED, None, "failed", 1),
        (IgnoredDelivery(reason="talk"), None, "ignored", 0),
        (None, None, "cancelled", 1),
    ],
)
def test_the_conclusion_and_the_exit_code_agree(
    ended: JobState | IgnoredDelivery | None, verdict: Verdict | None, conclusion: str, code: int
) -> None:
    found = conclusion_of(ended, verdict)
    assert (found.value, exit_code(found)) == (conclusion, code)


def test_a_missing_permission_is_a_misconfiguration() -> None:
    assert conclusion_of(JobState.FAILED, misconfigured=True) is Conclusion.MISCONFIGURED
    assert conclusion_of(JobState.DONE, misconfigured=True) is Conclusion.DONE


def test_every_conclusion_has_its_exit_code_and_meaning_and_a_failed_step_has_none_of_a_passed_one() -> None:
    assert set(MEANINGS) == set(Conclusion)
    assert {code for code, _ in MEANINGS.values()} == {0, 1, 2}
    assert {Conclusion(each.value) for each in Verdict} < set(Conclusion)


def view_of(**changes: object) -> StatusView:
    usual: dict[str, Any] = {
        "state": "done",
        "command": "/codepilot fix",
        "allowed": Allowlist(login="mona", number=1, server="https://github.com", repo="octo/calc"),
        "job_id": "j1",
        "marker": "<!-- m -->",
        "seconds": 3.0,
    }
    return a_status_view(**{**usual, **changes})


def end_of(
    view: StatusView, *, state: JobState = JobState.DONE, patch: str = "", review: ReviewDraft | None = None
) -> StepEnd:
    if review is not None and view.outcome is not None:
        view = replace(view, outcome=replace(view.outcome, review=review))
    record = JobRecord(ending=RecordedEnding(state=state, body=render_status(view)))
    return StepEnd(ended=state, view=view, record=record, patch=patch)


CHANGED = (a_file("a.py"),)


def test_a_change_that_is_too_large_is_cut_at_a_line_and_everything_is_closed() -> None:
    patch = "diff --git a/a b/a\n" + "+``` é\n" * 300_000
    text = format_summary(end_of(view_of(files=CHANGED), patch=patch))
    assert MAX_SUMMARY_BYTES - 10_000 < len(text.encode()) <= MAX_SUMMARY_BYTES
    assert text.endswith("_Truncated: the whole change has 2,100,019 characters._\n\n</details>")
    fence = text.split("<summary>The change</summary>")[1].split("diff\n")[0].strip()
    assert set(fence) == {"`"}
    assert len(fence) > 3
    assert f"\n{fence}\n\n_Truncated: the whole" in text


def test_why_a_job_ended_without_a_comment_is_harmless_in_the_summary() -> None:
    why = "`CI` failed: the step `a` ![x](https://evil.example/x.png) @octo/team ` failed before any test"
    view = view_of(state="refused", reason=why)
    assert view.outcome is not None
    view = replace(view, outcome=replace(view.outcome, is_silent=True))
    text = format_summary(StepEnd(ended=JobState.REFUSED, job=a_job(), view=view, server_url="https://github.com"))
    assert text.startswith("Codepilot: refused. `CI` failed")
    assert is_harmless(text, Allowlist(login="", number=7, server="https://github.com", repo="octo/calc"))


def test_a_change_of_one_endless_line_is_left_out_rather_than_cut_in_the_middle() -> None:
    text = format_summary(end_of(view_of(files=CHANGED), patch="+" + "x" * 2_000_000))
    assert len(text.encode()) < 10_000
    assert "Truncated" in text


def test_what_a_run_left_that_was_not_to_change_anything_is_not_shown() -> None:
    assert "The change" not in format_summary(end_of(view_of(), patch="+x"))


def test_an_event_that_asks_for_nothing_is_said_to_do_so() -> None:
    end = StepEnd(ended=IgnoredDelivery(reason="list it in CODEPILOT_TRUSTED_BOTS"))
    said = "Codepilot had nothing to do: list it in the input `trusted-bots`"
    assert format_summary(end) == f"{said}\n\n| Conclusion | `ignored` |\n|---|---|"
    assert format_annotations(end) == ["::notice title=Codepilot::Nothing to do: list it in the input `trusted-bots`"]


def test_a_run_that_waits_says_for_what() -> None:
    pending = PendingView(kind="permission", request_id="7f3a", trigger="/codepilot", reason="make is not listed.")
    end = end_of(replace(view_of(), outcome=Waiting(until=0.0, pending=pending)), state=JobState.WAITING)
    assert outputs_of(end)["summary"] == "make is not listed."
    assert format_annotations(end) == ["::warning title=Codepilot%3A waiting::make is not listed."]


def test_a_failed_run_is_an_error_with_its_reason_and_remedy() -> None:
    end = end_of(view_of(state="failed", reason="The model\nbroke.", remedy="Ask again."), state=JobState.FAILED)
    assert format_annotations(end) == ["::error title=Codepilot%3A failed::The model%0Abroke. Ask again."]


def test_a_red_check_is_an_error_and_a_verified_change_needs_no_word() -> None:
    red = Check(command="pytest -q", exit_code=2, seconds=1.0)
    first, second = format_annotations(end_of(view_of(verdict=Verdict.RED, checks=(red,))))
    assert first == "::error title=Codepilot%3A red::`pytest -q` ended with exit code 2."
    assert second == "::error title=pytest -q::Ended with exit code 2 after 1 s."
    assert format_annotations(end_of(view_of(verdict=Verdict.VERIFIED))) == []
    # The step is green: it changed nothing that could be wrong.
    assert format_annotations(end_of(view_of(verdict=Verdict.UNCHANGED, checks=(red,)))) == [
        second.replace("error", "warning")
    ]


def test_the_notes_of_a_review_stand_at_their_lines_and_no_more_than_github_shows() -> None:
    hostile = ReviewNote(path="src/a,b.py", line=7, start_line=5, side="RIGHT", body="Wrong\n::error::x\n##[error]y")
    removed = ReviewNote(path="src/a.py", line=3, side="LEFT", body="gone")
    review = ReviewDraft(commit_sha="a" * 40, body="", notes=(removed, *[hostile] * 12))
    lines = format_annotations(end_of(view_of(), review=review))
    assert lines == ["::notice file=src/a%2Cb.py,line=5,endLine=7::Wrong%0A::error::x%0A# #[error]y"] * 10
    assert carried_out("\n".join(lines)) == lines


def _outputs(path: Path) -> dict[str, str]:
    """Read an output file by the runner's rules: `name<<delimiter`, lines, the delimiter alone on a line."""
    outputs, lines = {}, iter(path.read_bytes().decode().split("\n"))
    for line in lines:
        if line:
            name, delimiter = line.split("<<")
            value = []
            while (part := next(lines)) != delimiter:
                value.append(part)
            outputs[name] = "\n".join(value)
    return outputs


def test_outputs_are_added_to_what_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write_outputs(path, {"status": "finished"})
    write_outputs(path, {"summary": "two\nlines", "empty": ""})
    assert _outputs(path) == {"status": "finished", "summary": "two\nlines", "empty": ""}


def test_a_value_that_holds_the_delimiter_gets_another_one(tmp_path: Path) -> None:
    path = tmp_path / "out"
    delimiters = iter(["EOF", "END", "other"])
    write_outputs(path, {"summary": "x\nEOF\nadmin<<END\n1\nEND"}, new_delimiter=lambda: next(delimiters))
    assert _outputs(path) == {"summary": "x\nEOF\nadmin<<END\n1\nEND"}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_-]{0,8}", fullmatch=True), st.text()))
def test_any_value_comes_back_whole(tmp_path: Path, outputs: dict[str, str]) -> None:
    path = tmp_path / "out"
    path.unlink(missing_ok=True)
    write_outputs(path, outputs)
    assert _outputs(path) == {name: value.encode("utf-8", "replace").decode() for name, value in outputs.items()}


@pytest.mark.parametrize("name", ["", "a b", "a<<b", "a=b", "a\nb", "1a"])
def test_an_outputs_name_is_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid output name"):
        write_outputs(tmp_path / "out", {name: "x"})
    assert not (tmp_path / "out").exists()


def test_a_long_summary_is_cut_to_what_github_shows(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    write_summary(path, "ä" * MAX_SUMMARY_BYTES)
    text = path.read_text()
    assert len(text.encode()) <= MAX_SUMMARY_BYTES
    assert text.endswith("_Cut here: GitHub shows at most 1 MiB of a summary._\n")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BotError, match="GITHUB_OUTPUT"):
        write_outputs(tmp_path / "none" / "out", {"a": "b"})
    with pytest.raises(BotError, match="GITHUB_STEP_SUMMARY"):
        write_summary(tmp_path / "none" / "out", "x")


def test_denied_calls_are_an_output_with_five_fields_each() -> None:
    denied = (
        DeniedCall(
            tool="shell",
            request="make 'x'\n::set-output name=status::done",
            reason="nobody can approve it",
            setting="allow-commands",
            value="make *",
        ),
        DeniedCall(tool="ask", request="Which one?", reason="nobody can answer"),
    )
    end = StepEnd(ended=JobState.DONE, record=JobRecord(denied=denied))
    assert json.loads(outputs_of(end)["denied-calls"]) == [
        {
            "tool": "shell",
            "request": "make 'x'\n::set-output name=status::done",
            "reason": "nobody can approve it",
            "setting": "allow-commands",
            "value": "make *",
        },
        {"tool": "ask", "request": "Which one?", "reason": "nobody can answer", "setting": "", "value": ""},
    ]
    assert "\n" not in outputs_of(end)["denied-calls"]
