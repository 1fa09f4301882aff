"""Commands in comments, reviews and comments on lines."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.access import BotProfile, TrustedBots
from bot.domain.commands import Fix, ReplyEvent, UnknownVerb
from bot.domain.job import Actor, Job, LineRange, Origin, Repo, Thread
from bot.events.delivery import Delivery, IgnoredDelivery
from bot.events.triggers import job_from, router
from tests.builders import a_comment_event
from tests.payloads import HEAD, job, reason

OWN = frozenset({77})
TRUSTED = frozenset({88})


def _read(payload: dict[str, Any], *, event: str = "issue_comment", delivery_id: str = "d1") -> Job | IgnoredDelivery:
    delivery = Delivery(payload, event=event, delivery_id=delivery_id)
    return job_from(delivery, BotProfile(own_ids=OWN, trusted_bots=TrustedBots(ids=TRUSTED)))


def _job(payload: dict[str, Any], *, delivery_id: str = "d1") -> Job:
    found = _read(payload, delivery_id=delivery_id)
    assert isinstance(found, Job), found
    return found


def _reason(payload: dict[str, Any]) -> str:
    found = _read(payload)
    assert isinstance(found, IgnoredDelivery), found
    return found.reason


def test_a_command_in_a_new_comment_becomes_a_complete_job() -> None:
    job = _job(a_comment_event())
    assert job == Job(
        id=job.id,
        delivery_id="d1",
        repo=Repo(id=10, full_name="octo/calc", private=False),
        thread=Thread(kind="issue", number=7, title="Adding is off by one", body="It is.", author="mona"),
        actor=Actor(id=20, login="octo-owner"),
        origin=Origin(kind="comment", id=900),
        command=Fix(goal="it"),
        installation=30,
    )


def test_a_comment_on_a_pull_request_is_told_apart() -> None:
    assert _job(a_comment_event(issue__pull_request={"url": "…"})).thread.kind == "pull"
    assert _job(a_comment_event(issue__pull_request=None)).thread.kind == "issue"


def test_the_jobs_id_is_short_and_comes_from_the_comment_alone() -> None:
    first = _job(a_comment_event(), delivery_id="d1")
    assert first.id == _job(a_comment_event("/codepilot fix something else"), delivery_id="d2").id
    assert len(first.id) == 12
    assert first.id.isalnum()
    assert first.id == first.id.lower()
    assert first.id != _job(a_comment_event(comment__id=901)).id
    assert first.id != _job(a_comment_event(repository__id=11)).id


def test_an_unknown_verb_is_a_job_too_for_it_is_answered() -> None:
    assert _job(a_comment_event("/codepilot fxi")).command == UnknownVerb(word="fxi", nearest="fix")


@pytest.mark.parametrize("action", ["edited", "deleted", "pinned", ""])
def test_only_a_new_comment_acts(action: str) -> None:
    assert "action is created" in _reason(a_comment_event(action=action))


def test_any_of_the_triggers_may_be_said_and_the_one_that_was_is_kept() -> None:
    listening = BotProfile(triggers=("/codepilot", "@helper"))
    for body, trigger in (("@Helper fix it", "@helper"), ("/codepilot fix it", "/codepilot")):
        delivery = Delivery(a_comment_event(body), event="issue_comment", delivery_id="d1")
        found = job_from(delivery, listening)
        assert isinstance(found, Job)
        assert (found.trigger, found.command) == (trigger, Fix(goal="it"))


@pytest.mark.parametrize("triggers", [(), ("",), ("/codepilot", "")])
def test_a_bot_listens_for_something(triggers: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="one word"):
        BotProfile(triggers=triggers)


def test_a_comment_without_a_command_is_ignored() -> None:
    assert "no command" in _reason(a_comment_event("Looks good"))


def test_the_bots_own_comment_is_ignored_even_when_it_is_on_the_list() -> None:
    payload = a_comment_event(sender__id=77, comment__user={"id": 77, "login": "codepilot[bot]"})
    assert "own" in _reason(payload)


@pytest.mark.parametrize(("login", "kind"), [("renovate[bot]", "Bot"), ("renovate[bot]", "User"), ("renovate", "Bot")])
def test_bots_do_not_command(login: str, kind: str) -> None:
    payload = a_comment_event(sender__login=login, sender__type=kind)
    assert "20" in _reason(payload)
    assert "CODEPILOT_TRUSTED_BOTS" in _reason(payload)


def test_a_bot_that_the_operator_lists_by_number_commands() -> None:
    payload = a_comment_event(
        sender__id=88, sender__login="ci[bot]", sender__type="Bot", comment__user={"id": 88, "login": "ci[bot]"}
    )
    assert _job(payload).actor.id == 88


def test_only_the_sender_of_the_delivery_commands() -> None:
    assert "not the sender" in _reason(a_comment_event(comment__user={"id": 21, "login": "someone"}))


def test_a_deleted_author_and_an_empty_body_are_fine() -> None:
    thread = _job(a_comment_event(issue__user=None, issue__body=None)).thread
    assert (thread.author, thread.body) == ("ghost", "")


def test_text_that_utf8_cannot_store_is_made_storable() -> None:
    job = _job(a_comment_event("/codepilot fix \ud800", issue__title="a\udfff"))
    assert job.command == Fix(goal="?")
    assert job.thread.title == "a?"


_NEEDED = {
    "issue": "x",
    "issue__number": "x",
    "issue__title": 3,
    "comment": "x",
    "comment__id": "x",
    "comment__body": 3,
    "comment__user": "x",
    "repository": "x",
    "repository__id": True,
    "repository__full_name": "x y",
    "repository__private": "no",
    "sender": "x",
    "sender__id": "20",
    "sender__login": "x y",
    "sender__type": 3,
}


@pytest.mark.parametrize("path", _NEEDED)
@pytest.mark.parametrize("value", [None, [], {}, ...])
def test_a_missing_or_odd_field_is_named_and_the_delivery_ignored(path: str, value: object) -> None:
    odd = _NEEDED[path] if value is ... else value
    assert path.replace("__", ".") in _reason(a_comment_event(**{path: odd}))


@pytest.mark.parametrize("name", ["octo", "octo/calc/x", "../..x/..\n", "octo/calc;rm", "octo/ calc"])
def test_a_repository_name_is_a_repository_name(name: str) -> None:
    assert "repository.full_name" in _reason(a_comment_event(repository__full_name=name))


def test_an_event_without_a_trigger_is_ignored() -> None:
    found = _read({"zen": "Design for failure."}, event="ping")
    assert found == IgnoredDelivery(reason="no trigger handles the event ping")
    assert "ping" not in router.actions


REVIEW = "pull_request_review"


def test_a_command_in_a_reviews_words_becomes_a_job() -> None:
    found = job(REVIEW)
    assert found.command == Fix(goal="it")
    assert found.thread == Thread(kind="pull", number=8, title="Add it up", body="As said.", author="mona")
    assert found.origin == Origin(kind="review", id=902, at="2026-01-02T03:04:05Z")
    assert found.head_sha == HEAD


@pytest.mark.parametrize("body", [None, "", "LGTM"])
def test_a_review_without_a_command_is_ignored(body: str | None) -> None:
    # GitHub makes an empty review of every single comment on a line, and sends both.
    assert "no command" in reason(REVIEW, review__body=body)


@pytest.mark.parametrize("action", ["edited", "dismissed"])
def test_only_a_new_review_acts(action: str) -> None:
    assert action in reason(REVIEW, action=action)


def test_only_the_author_of_a_review_commands() -> None:
    assert "not the sender" in reason(REVIEW, review__user={"id": 21, "login": "someone"})


REVIEW_COMMENT = "pull_request_review_comment"


def test_a_command_on_lines_becomes_a_job_that_knows_them() -> None:
    found = job(REVIEW_COMMENT)
    assert found.command == Fix(goal="it")
    assert found.thread == Thread(kind="pull", number=8, title="Add it up", body="As said.", author="mona")
    assert found.head_sha == HEAD
    assert found.origin == Origin(
        kind="review_comment",
        id=901,
        at="2026-01-02T03:04:05Z",
        root=890,
        lines=LineRange(
            path="calc.py", line=3, start_line=2, side="LEFT", hunk="@@ -1,3 +1,3 @@\n a\n-b", commit_sha=HEAD
        ),
    )


def test_the_first_comment_of_a_thread_is_its_own_root() -> None:
    assert job(REVIEW_COMMENT, comment__in_reply_to_id=None).origin.root == 901


def test_an_outdated_comment_has_no_line_and_names_the_commit_it_was_made_on() -> None:
    lines = job(REVIEW_COMMENT, comment__line=None, comment__start_line=None).origin.lines
    assert lines is not None
    assert (lines.line, lines.start_line, lines.commit_sha) == (None, None, "b" * 40)


def test_a_comment_on_a_file_has_no_line() -> None:
    lines = job(REVIEW_COMMENT, comment__subject_type="file", comment__line=1).origin.lines
    assert lines is not None
    assert (lines.line, lines.start_line) == (None, None)


def test_only_the_author_of_a_comment_on_lines_commands() -> None:
    assert "not the sender" in reason(REVIEW_COMMENT, comment__user={"id": 21, "login": "someone"})


def test_a_comment_without_a_command_may_answer_a_question_and_carries_no_thread() -> None:
    found = job(REVIEW_COMMENT, comment__body="> Which one?\n\nThe first.", comment__in_reply_to_id=5)
    assert found.command == ReplyEvent(message="The first.", quoted="> Which one?")
    assert (found.lane, found.origin.root, found.thread.title, found.thread.body) == ("event", 5, "", "")


def test_a_workflow_starts_no_job_for_a_comment_without_a_command() -> None:
    assert "no command" in _reason(a_comment_event("The first."))


@pytest.mark.parametrize(
    "body", ["", "> Which one?", "@rita, which one?", "<!-- the first -->", "See /codepilot help", "-- \nMona"]
)
def test_a_comment_that_answers_nobody_is_ignored(body: str) -> None:
    assert "no command" in reason(REVIEW_COMMENT, comment__body=body)


@pytest.mark.parametrize(
    "odd",
    [{"line": 0}, {"line": "3"}, {"side": "MIDDLE"}, {"commit_id": "HEAD"}, {"in_reply_to_id": -1}, {"path": None}],
)
def test_an_odd_field_is_named(odd: dict[str, object]) -> None:
    [(name, value)] = odd.items()
    assert f"comment.{name}" in reason(REVIEW_COMMENT, **{f"comment__{name}": value})
