from __future__ import annotations

import pytest

from bot.domain.commands import Fix
from bot.domain.job import Lines, Origin, Thread
from tests.payloads import HEAD, job, reason

EVENT = "pull_request_review_comment"


def test_a_command_on_lines_becomes_a_job_that_knows_them() -> None:
    found = job(EVENT)
    assert found.command == Fix(goal="it")
    assert found.thread == Thread(kind="pull", number=8, title="Add it up", body="As said.", author="mona")
    assert found.head_sha == HEAD
    assert found.origin == Origin(
        kind="review_comment",
        id=901,
        at="2026-01-02T03:04:05Z",
        root=890,
        lines=Lines(path="calc.py", line=3, start_line=2, side="LEFT", hunk="@@ -1,3 +1,3 @@\n a\n-b", commit_sha=HEAD),
    )


def test_the_first_comment_of_a_thread_is_its_own_root() -> None:
    assert job(EVENT, comment__in_reply_to_id=None).origin.root == 901


def test_an_outdated_comment_has_no_line_and_names_the_commit_it_was_made_on() -> None:
    lines = job(EVENT, comment__line=None, comment__start_line=None).origin.lines
    assert lines is not None
    assert (lines.line, lines.start_line, lines.commit_sha) == (None, None, "b" * 40)


def test_a_comment_on_a_file_has_no_line() -> None:
    lines = job(EVENT, comment__subject_type="file", comment__line=1).origin.lines
    assert lines is not None
    assert (lines.line, lines.start_line) == (None, None)


def test_only_the_author_of_the_words_commands() -> None:
    assert "not the sender" in reason(EVENT, comment__user={"id": 21, "login": "someone"})


def test_a_comment_without_a_command_is_ignored() -> None:
    assert "no command" in reason(EVENT, comment__body="Nice.")


@pytest.mark.parametrize(
    "odd",
    [{"line": 0}, {"line": "3"}, {"side": "MIDDLE"}, {"commit_id": "HEAD"}, {"in_reply_to_id": -1}, {"path": None}],
)
def test_an_odd_field_is_named(odd: dict[str, object]) -> None:
    [(name, value)] = odd.items()
    assert f"comment.{name}" in reason(EVENT, **{f"comment__{name}": value})
