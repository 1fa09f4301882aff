from __future__ import annotations

import pytest

from bot.action.outputs import (
    END_GROUP,
    MEANINGS,
    Conclusion,
    annotation,
    conclusion_of,
    exit_code,
    foreign,
    group,
    mask,
)
from bot.domain.job import JobState
from bot.events.delivery import IgnoredDelivery
from bot.publishing.checks import Verdict

HOSTILE = "a,b:c\r\n::set-output name=x::y\n##[error]z 100%\x1b[2J"


def test_an_annotation_is_one_line_whose_properties_and_message_are_escaped() -> None:
    line = annotation("error", HOSTILE, title=HOSTILE, file="src/a,b:c.py", line=3, end_line=5)
    assert "\n" not in line
    assert "\r" not in line
    assert "##[" not in line
    head, _, message = line.removeprefix("::").partition("::")
    assert head.startswith("error title=a%2Cb%3Ac %3A%3Aset-output name=x%3A%3Ay")
    assert head.endswith(",file=src/a%2Cb%3Ac.py,line=3,endLine=5")
    assert message == "a,b:c%0A::set-output name=x::y%0A# #[error]z 100%25"


def test_an_annotation_without_a_place_has_none() -> None:
    assert annotation("notice", "Fine.") == "::notice::Fine."
    assert annotation("warning", "Hm.", line=3) == "::warning::Hm."
    assert annotation("warning", "Hm.", file="a.py", line=3, end_line=3) == "::warning file=a.py,line=3::Hm."


def test_a_long_message_is_cut_where_the_runner_would() -> None:
    assert len(annotation("error", "x" * 10_000)) < 4_100


def test_a_group_has_a_title_of_one_line() -> None:
    assert group(HOSTILE).startswith("::group::a,b:c ::set-output")
    assert "\n" not in group(HOSTILE)
    assert END_GROUP == "::endgroup::"


def test_a_secret_is_masked_line_by_line() -> None:
    assert mask("one%\ntwo\n\n") == ["::add-mask::one%25", "::add-mask::two"]
    assert mask("") == []


def test_a_strangers_text_stands_between_a_stop_and_its_token() -> None:
    lines = foreign(HOSTILE, "t0k3n").split("\n")
    assert lines[0] == "::stop-commands::t0k3n"
    assert lines[-1] == "::t0k3n::"
    assert lines[1:-1] == ["a,b:c", "::set-output name=x::y", "# #[error]z 100%"]


def test_a_text_with_the_token_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="token"):
        foreign("::t0k3n::", "t0k3n")


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
