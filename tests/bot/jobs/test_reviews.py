"""The review that a run came to: what is said of it, and that it is sent once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime import Outcome, Policy, Status
from bot.domain.commands import Review
from bot.git.mirror import Source
from bot.github.types import CommentFacts, GitHubError, ReviewCommentFacts, ReviewDraft, ReviewFacts
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext
from bot.jobs.delivery import read_review, send_review
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Grant
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import Allowed
from bot.publishing.publish import Delivered
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import account, context_of, on_a_line, snapshot

BOT, HEAD = 99, "a" * 40
DIFF = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
HERE = snapshot(base_ref="main", head_sha=HEAD)


@dataclass(slots=True)
class _GitHub:
    """A pull request with what was said on its lines, and the reviews that arrive; `lost` answers are not told."""

    said: Sequence[ReviewCommentFacts] = ()
    lost: int = 0
    sent: list[ReviewFacts] = field(default_factory=list)

    async def create(self, _: str, __: int, draft: ReviewDraft) -> ReviewFacts:
        made = ReviewFacts(
            id=len(self.sent),
            author="codepilot[bot]",
            author_id=BOT,
            body=draft.body,
            state="COMMENTED",
            submitted_at="",
            commit_sha=draft.commit_sha,
            html_url=f"https://github.com/octo/calc/pull/7#review-{len(self.sent)}",
        )
        self.sent.append(made)
        if self.lost:
            self.lost -= 1
            raise GitHubError("review it", 502, "Bad gateway", "Later.")
        return made

    async def of_pull(self, *_: object) -> tuple[ReviewFacts, ...]:
        return tuple(self.sent)

    async def line_comments(self, *_: object) -> tuple[ReviewCommentFacts, ...]:
        return tuple(self.said)


async def _context(github: _GitHub, asked: dict[str, Any] | None = None) -> JobContext:
    async def diff(_: int, base: Source, head: Source, limit: int) -> str:
        (asked if asked is not None else {}).update(base=base, head=head, limit=limit)
        return DIFF

    engine, job = InMemoryEngine(), a_job(kind="pull", command=Review())
    await engine.accept(job)
    services = SimpleNamespace(
        workspaces=SimpleNamespace(diff=diff),
        allowed=lambda _job: Allowed(login="mona", number=7, server="https://github.com", repo="octo/calc"),
    )
    client = SimpleNamespace(accounts=account(BOT), reviews=github)
    return replace(context_of(engine, job, github=client, services=services), marker="<!-- mark -->")


def _begun(*, dry_run: bool = False) -> Assignment:
    return Assignment(
        command=Review(),
        here=HERE,
        grant=Grant(policy=Policy(), publish="review", bound_to_sha=HEAD, dry_run=dry_run),
        asked=RepoSettings(config=RepoConfig(), base_sha="b" * 40),
        source=Source(url="/origin", token="", ref="refs/pull/7/head", sha=HEAD),
    )


def _completion(*bodies: str, line: int = 2) -> Outcome:
    notes = [{"path": "a.py", "line": line, "body": body} for body in bodies]
    return Outcome(status=Status.FINISHED, summary=f"Looks good.\n\n```json\n{json.dumps(notes)}\n```\n")


def _line_comment(author_id: int, body: str) -> ReviewCommentFacts:
    comment = CommentFacts(id=1, author="x", author_id=author_id, body=body, created_at="", updated_at="", html_url="")
    return on_a_line(comment)


async def test_a_review_is_of_the_commit_that_was_looked_at_and_of_lines_in_its_diff() -> None:
    asked: dict[str, Any] = {}
    review = await read_review(await _context(_GitHub(), asked), _begun(), _completion("Why 2?"))
    assert review.commit_sha == HEAD
    assert [(each.path, each.line, each.body) for each in review.notes] == [("a.py", 2, "Why 2?")]
    assert (asked["base"].ref, asked["base"].sha, asked["head"].sha) == ("refs/heads/main", "b" * 40, HEAD)


async def test_what_the_bot_said_on_a_line_before_is_not_said_again_but_what_another_said_is() -> None:
    github = _GitHub(said=[_line_comment(BOT, "Why   2?\r\n"), _line_comment(5, "Name it.")])
    review = await read_review(await _context(github), _begun(), _completion("Why 2?", "Name it."))
    assert [each.body for each in review.notes] == ["Name it."]


@pytest.mark.parametrize("summary", [None, "", "```json\n[{]\n```", "Fine.\n\n```json\n[]\n```"])
async def test_a_run_that_said_little_makes_a_review_all_the_same(summary: str | None) -> None:
    outcome = Outcome(status=Status.FINISHED, summary=summary)
    review = await read_review(await _context(_GitHub()), _begun(), outcome)
    assert review.notes == ()
    assert review.body


async def test_a_review_is_sent_once_however_often_the_job_is_started_again() -> None:
    github = _GitHub()
    context = await _context(github)
    review = await read_review(context, _begun(), _completion("Why 2?"))
    first = await send_review(context, _begun(), HERE, review)
    assert first == await send_review(context, _begun(), HERE, review)
    assert first == Delivered(review_url=github.sent[0].html_url)
    assert len(github.sent) == 1


async def test_a_review_whose_answer_was_lost_is_found_and_not_sent_again() -> None:
    github = _GitHub(lost=1)
    context = await _context(github)
    review = await read_review(context, _begun(), _completion("Why 2?"))
    assert (await send_review(context, _begun(), HERE, review)).review_url == github.sent[0].html_url
    assert len(github.sent) == 1


async def test_a_dry_run_sends_nothing_and_says_how_much_it_would() -> None:
    github = _GitHub()
    context = await _context(github)
    review = await read_review(context, _begun(), _completion("Why 2?", "Name it."))
    delivered = await send_review(context, _begun(dry_run=True), HERE, review)
    assert github.sent == []
    assert "2 comments" in delivered.would
    assert delivered.review_url is None
