"""Reviews by the bot: comments on lines, and never a verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.github.types import GitHubError, ReviewDraft, ReviewNote
from bot.publishing.publish import ReviewPlace, publish_review
from bot.publishing.view import Published
from tests.github_world import SECRET, World
from tests.publishing_world import Remembered

PATCH = (
    "@@ -17,4 +17,4 @@ def f():\n line 17\n-old 18\n+new 18\n line 19\n line 20\n@@ -30 +30,2 @@\n line 30\n+line 31"
)


def a_note(line: int, start_line: int | None = None, *, path: str = "long.txt", side: str = "RIGHT") -> ReviewNote:
    return ReviewNote(
        path=path, line=line, start_line=start_line, side="LEFT" if side == "LEFT" else "RIGHT", body=f"About {line}"
    )


async def test_a_review_comments_on_lines_and_gives_no_verdict(world: World) -> None:
    pull = world.pull()
    head = world.hub.branches(world.repo)["topic"]
    draft = ReviewDraft(commit_sha=head, body=f"Two words. {SECRET}", notes=(a_note(20), a_note(21, 19)))
    made = await world.github.reviews.create(world.name, pull.number, draft)
    [review] = world.hub.reviews(world.repo, pull.number)
    assert (made.id, made.state, review.state) == (review.id, "COMMENTED", "COMMENTED")
    assert SECRET not in (review.body or "")
    said = await world.github.reviews.line_comments(world.name, pull.number)
    assert [(each.start_line, each.line, each.comment.body) for each in said] == [
        (None, 20, "About 20"),
        (19, 21, "About 21"),
    ]


async def test_notes_that_github_has_no_lines_for_are_said_in_the_body(world: World) -> None:
    pull = world.pull()
    head = world.hub.branches(world.repo)["topic"]
    notes = (a_note(20), a_note(1), a_note(3, path="no`such\nfile"))
    draft = ReviewDraft(commit_sha=head, body="Words.", notes=notes)
    made = await world.github.reviews.create(world.name, pull.number, draft)
    said = ("Words.", "`long.txt:20`", "About 20", "`long.txt:1`", "About 1", "`no'such file:3`", "About 3")
    assert made.body == "\n\n".join(said)
    assert await world.github.reviews.line_comments(world.name, pull.number) == ()
    assert len(world.hub.reviews(world.repo, pull.number)) == 1


async def test_a_body_that_would_be_too_long_says_how_much_is_missing(world: World) -> None:
    pull = world.pull()
    head = world.hub.branches(world.repo)["topic"]
    notes = tuple(replace(a_note(1), body="x" * 20_000) for _ in range(5))
    draft = ReviewDraft(commit_sha=head, body="Words.", notes=notes)
    made = await world.github.reviews.create(world.name, pull.number, draft)
    assert made.body.endswith("\n\n_2 more comments were omitted._")


async def test_a_review_is_sent_once_however_often_it_is_begun(world: World) -> None:
    pull, record = world.pull(), Remembered(Published())
    draft = ReviewDraft(commit_sha=world.hub.branches(world.repo)["topic"], body="Words.", notes=(a_note(20),))
    place = ReviewPlace(repo=world.name, number=pull.number, marker="<!-- mark -->")
    world.hub.review(world.repo, pull.number, author="mona", body="A copy. <!-- mark -->")
    world.hub.faults.add("POST", "*/reviews", "drop_answer")
    first = await publish_review(world.github, record, draft, place=place)
    assert first.review_url is not None
    assert first.review_url.endswith(f"#pullrequestreview-{world.hub.reviews(world.repo, pull.number)[1].id}")
    for url in (None, first.review_url):
        record.value = replace(record.value, review_url=url)
        assert await publish_review(world.github, record, draft, place=place) == first
    assert len(world.hub.reviews(world.repo, pull.number)) == 2


async def test_a_review_that_github_makes_late_is_not_sent_a_second_time(world: World) -> None:
    pull, record = world.pull(), Remembered(Published())
    draft = ReviewDraft(commit_sha=world.hub.branches(world.repo)["topic"], body="Words.", notes=(a_note(20),))
    place = ReviewPlace(repo=world.name, number=pull.number, marker="<!-- mark -->")
    world.hub.faults.add("POST", "*/reviews", "drop")
    with pytest.raises(GitHubError, check=lambda error: error.passing):
        await publish_review(world.github, record, draft, place=place)
    late = await world.github.reviews.create(world.name, pull.number, replace(draft, body="Words. <!-- mark -->"))
    assert (await publish_review(world.github, record, draft, place=place)).review_url == late.html_url
    assert len(world.hub.reviews(world.repo, pull.number)) == 1


async def test_a_dry_run_sends_no_review(world: World) -> None:
    pull = world.pull()
    draft = ReviewDraft(commit_sha=world.sha, body="Words.", notes=(a_note(20),))
    place = ReviewPlace(repo=world.name, number=pull.number, marker="<!-- mark -->")
    delivered = await publish_review(world.github, Remembered(Published()), draft, place=place, dry_run=True)
    assert delivered.would == "A review with 1 comment on lines."
    assert world.hub.reviews(world.repo, pull.number) == []
