"""Threads, labels, comments and reviews."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.domain.job import Actor
from bot.github.issues import Text
from bot.github.types import CommentTarget, GitHubError, ReviewDraft, ReviewNote
from bot.publishing.outcome import Published
from bot.publishing.publish import ReviewTarget, publish_review
from localhub import Repo as HubRepo
from localhub.git.diff import FileDiff
from localhub.state.store import Json, Site
from localhub.views import git as git_views
from tests.github_world import LINES, SECRET, World
from tests.publishing_world import Remembered
from tests.waiting import eventually


@pytest.fixture
def lines(world: World) -> CommentTarget:
    """A thread that a person began about a line of a pull request."""
    pull = world.pull()
    root = world.hub.review_comment(
        world.repo, pull.number, author="mona", body="Why twenty?", path="long.txt", line=20
    )
    return CommentTarget(kind="review_thread", number=pull.number, root=root.id)


async def test_an_answer_stands_in_the_thread_about_the_lines(world: World, lines: CommentTarget) -> None:
    made = await world.github.comments.create(world.name, lines, f"Because. {SECRET} <!-- mark -->")
    [_, answer] = world.hub.review_comments(world.repo, lines.number)
    assert (answer.id, answer.in_reply_to) == (made.id, lines.root)
    assert SECRET not in answer.body
    assert world.hub.comments(world.repo, lines.number) == []
    edited = await world.github.comments.edit(world.name, lines, made.id, "Changed. <!-- mark -->")
    assert edited.body == "Changed. <!-- mark -->"


async def test_our_answer_is_found_in_its_own_thread_only(world: World, lines: CommentTarget) -> None:
    world.hub.review_comment(world.repo, lines.number, author="mona", body="mark", in_reply_to=lines.root)
    made = await world.github.comments.create(world.name, lines, "mark")
    other = world.hub.review_comment(world.repo, lines.number, author="mona", body="Another", path="long.txt", line=21)
    me = await world.github.accounts.me()
    [answer] = await world.github.comments.find(world.name, lines, "mark", me.id)
    assert answer.id == made.id
    elsewhere = CommentTarget(kind="review_thread", number=lines.number, root=other.id)
    assert await world.github.comments.find(world.name, elsewhere, "mark", me.id) == ()


async def test_a_comment_on_lines_takes_a_reaction(world: World, lines: CommentTarget) -> None:
    for _ in range(2):
        await world.github.comments.react(world.name, lines, lines.root, "eyes")
    [root] = world.hub.review_comments(world.repo, lines.number)
    assert [each.content for each in world.hub.reactions(root)] == ["eyes"]


async def test_all_that_was_said_is_read_oldest_first_over_pages(world: World) -> None:
    for n in range(101):
        world.hub.comment(world.repo, world.issue.number, author="mona", body=f"Word {n}")
    edited = world.hub.comments(world.repo, world.issue.number)[3]
    world.hub.edit_comment(edited, by="mona", body="Changed")
    said = await world.github.comments.list_for_thread(world.name, world.issue.number)
    mona = world.hub.add_user("mona")
    assert [each.body for each in said[:5]] == ["Word 0", "Word 1", "Word 2", "Changed", "Word 4"]
    assert len(said) == 101
    assert {each.author for each in said} == {Actor(id=mona.id, login="mona")}
    assert said[0].created_at == said[0].updated_at
    assert said[3].created_at <= said[3].updated_at


async def test_comments_on_lines_say_where_they_stand(world: World, lines: CommentTarget) -> None:
    await world.github.comments.create(world.name, lines, "Because.")
    first, second = await world.github.reviews.list_line_comments(world.name, lines.number)
    assert (first.id, first.root) == (lines.root, lines.root)
    assert (second.root, second.body) == (lines.root, "Because.")
    assert (first.path, first.line) == ("long.txt", 20)
    assert "+line twenty" in first.hunk


async def test_the_words_of_reviews(world: World) -> None:
    pull = world.pull()
    world.hub.add_collaborator(world.repo, "hubot", "write")
    world.hub.review(world.repo, pull.number, author="hubot", body="Please split it.", state="CHANGES_REQUESTED")
    [review] = await world.github.reviews.list_for_pull(world.name, pull.number)
    assert (review.author.login, review.body, review.state) == ("hubot", "Please split it.", "CHANGES_REQUESTED")
    assert review.created_at == review.updated_at != ""
    assert review.commit_sha == world.hub.branches(world.repo)["topic"]


def test_a_thread_about_lines_needs_its_first_comment() -> None:
    with pytest.raises(ValueError, match="review_thread"):
        CommentTarget(kind="review_thread", number=1)


async def test_a_text_is_read_as_its_page_shows_it_wherever_it_stands(world: World, lines: CommentTarget) -> None:
    comment = world.hub.comment(world.repo, world.issue.number, author="mona", body="**Below**")
    review = world.hub.review(world.repo, lines.number, author="mona", body="**Above**")
    texts: tuple[tuple[int, Text, int, str], ...] = (
        (world.issue.number, "thread", 0, "<p>Badly.</p>"),
        (world.issue.number, "comment", comment.id, "<p><strong>Below</strong></p>"),
        (lines.number, "review_comment", lines.root, "<p>Why twenty?</p>"),
        (lines.number, "review", review.id, "<p><strong>Above</strong></p>"),
    )
    for number, kind, text_id, said in texts:
        assert (await world.github.comments.render(world.name, number, kind, text_id)).strip() == said


async def test_only_the_sign_for_a_command_that_counts_overtakes_what_is_written_for_others(world: World) -> None:
    comment = world.hub.comment(world.repo, world.issue.number, author="mona", body="/codepilot fix")
    pace = world.github._connection.session.pace
    async with asyncio.timeout(10):
        async with pace.turn():
            # A stranger can have as many of these as there are comments.
            late = asyncio.create_task(world.github.comments.react(world.name, world.thread, comment.id, "confused"))
            await eventually(lambda: pace.waiting == 1)
            await world.github.comments.react(world.name, world.thread, comment.id, "eyes")
            assert [each.content for each in world.hub.reactions(comment)] == ["eyes"]
        await late


async def test_the_comments_of_a_repository_that_was_renamed_are_all_looked_through(world: World) -> None:
    for number in range(40):
        await world.github.comments.create(world.name, world.thread, f"comment {number}")
    world.hub.rename(world.repo, "sums")
    me = await world.github.accounts.me()
    [comment] = await world.github.comments.find(world.name, world.thread, "comment 39", me.id)
    assert comment.body == "comment 39"


async def test_a_label_is_taken_off_and_once_more_changes_nothing(world: World) -> None:
    number, name = world.issue.number, "codepilot:auto/\u00fc ?"
    world.hub.add_label(world.repo, number, name, by="mona")
    assert set(world.hub.issue(world.repo, number).labels) == {"bug", name}
    for _ in range(2):
        await world.github.threads.remove_label(world.name, number, name)
    assert world.hub.issue(world.repo, number).labels == ("bug",)


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
    said = world.hub.review_comments(world.repo, pull.number)
    assert [(each.start_line, each.line, each.body) for each in said] == [
        (None, 20, "About 20"),
        (19, 21, "About 21"),
    ]


async def test_notes_that_github_has_no_lines_for_are_said_in_the_body(world: World) -> None:
    pull = world.pull()
    head = world.hub.branches(world.repo)["topic"]
    notes = (a_note(20), a_note(1), a_note(3, path="no`such\nfile"))
    draft = ReviewDraft(commit_sha=head, body="Words.", notes=notes)
    made = await world.github.reviews.create(world.name, pull.number, draft)
    assert made.body == "Words.\n\n`long.txt:1`\n\nAbout 1\n\n`no'such file:3`\n\nAbout 3"
    placed = await world.github.reviews.list_line_comments(world.name, pull.number)
    assert [(comment.path, comment.line) for comment in placed] == [("long.txt", 20)]
    assert len(world.hub.reviews(world.repo, pull.number)) == 1


async def test_one_bad_comment_among_ten_moves_alone_and_cannot_be_committed(world: World) -> None:
    pull = world.pull()
    head = world.hub.branches(world.repo)["topic"]
    good = [a_note(line) for line in (17, 18, 19, 20, 21, 22, 23)] + [a_note(20, 18), a_note(20, side="LEFT")]
    bad = replace(a_note(99), body="Name it.\n\n```suggestion\nx = 1\n```")
    draft = ReviewDraft(commit_sha=head, body="Words.", notes=(*good[:5], bad, *good[5:]))
    requests: list[str] = []
    world.hub.observe(on_exchange=lambda exchange: requests.append(exchange.path.rpartition("/")[2]))
    made = await world.github.reviews.create(world.name, pull.number, draft)
    assert made.body == "Words.\n\n`long.txt:99`\n\nName it.\n\n```\nx = 1\n```"
    placed = world.hub.review_comments(world.repo, pull.number)
    assert [(comment.start_line, comment.line, comment.side) for comment in placed] == [
        (note.start_line, note.line, note.side) for note in good
    ]
    assert requests[-3:] == ["reviews", "files", "reviews"]
    assert len(requests) <= 4, "a token may be asked for"


@pytest.mark.parametrize(("line", "is_placed"), [(20, True), (99, False)])
async def test_a_comment_on_a_file_whose_patch_github_leaves_out_is_tried(
    world: World, monkeypatch: pytest.MonkeyPatch, *, line: int, is_placed: bool
) -> None:
    world.hub.commit(world.repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")
    pull = world.pull()
    show = git_views.diff_entry

    def show_small(site: Site, repo: HubRepo, file: FileDiff, sha: str) -> Json:
        return show(site, repo, replace(file, patch=None) if file.path == "long.txt" else file, sha)

    monkeypatch.setattr(git_views, "diff_entry", show_small)
    notes = (a_note(line), a_note(1, path="a.txt"), a_note(50, path="a.txt"))
    draft = ReviewDraft(commit_sha=world.hub.branches(world.repo)["topic"], body="Words.", notes=notes)
    made = await world.github.reviews.create(world.name, pull.number, draft)
    placed = [comment.path for comment in world.hub.review_comments(world.repo, pull.number)]
    assert placed == (["long.txt", "a.txt"] if is_placed else ["a.txt"])
    assert "`a.txt:50`" in made.body
    assert ("`long.txt:" in made.body) is not is_placed
    assert len(world.hub.reviews(world.repo, pull.number)) == 1


async def test_a_comment_on_a_renamed_file_is_under_its_new_name(world: World) -> None:
    files = {"long.txt": None, "moved.txt": LINES.replace("line 20\n", "line twenty\n")}
    world.hub.commit(world.repo, files, message="Move", author="mona", branch="topic")
    pull = world.hub.open_pull(world.repo, author="mona", head="topic", title="Move")
    head = world.hub.branches(world.repo)["topic"]
    notes = (a_note(20, path="moved.txt"), a_note(20, path="moved.txt", side="LEFT"), a_note(1, path="moved.txt"))
    old = a_note(20, path="long.txt", side="LEFT")
    draft = ReviewDraft(commit_sha=head, body="Words.", notes=(*notes, old))
    made = await world.github.reviews.create(world.name, pull.number, draft)
    assert made.body == "Words.\n\n`moved.txt:1`\n\nAbout 1\n\n`long.txt:20`\n\nAbout 20"
    placed = world.hub.review_comments(world.repo, pull.number)
    assert [(comment.path, comment.line, comment.side) for comment in placed] == [
        ("moved.txt", 20, "RIGHT"),
        ("moved.txt", 20, "LEFT"),
    ]


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
    place = ReviewTarget(repo=world.name, number=pull.number, marker="<!-- mark -->")
    world.hub.review(world.repo, pull.number, author="mona", body="A copy. <!-- mark -->")
    world.hub.faults.add("POST", "*/reviews", "drop_answer")
    first = await publish_review(world.github, record, draft, target=place)
    assert first.review_url is not None
    assert first.review_url.endswith(f"#pullrequestreview-{world.hub.reviews(world.repo, pull.number)[1].id}")
    for url in (None, first.review_url):
        record.value = replace(record.value, review_url=url)
        assert await publish_review(world.github, record, draft, target=place) == first
    assert len(world.hub.reviews(world.repo, pull.number)) == 2


async def test_a_review_that_github_makes_late_is_not_sent_a_second_time(world: World) -> None:
    pull, record = world.pull(), Remembered(Published())
    draft = ReviewDraft(commit_sha=world.hub.branches(world.repo)["topic"], body="Words.", notes=(a_note(20),))
    place = ReviewTarget(repo=world.name, number=pull.number, marker="<!-- mark -->")
    world.hub.faults.add("POST", "*/reviews", "drop")
    with pytest.raises(GitHubError, check=lambda error: error.is_transient):
        await publish_review(world.github, record, draft, target=place)
    late = await world.github.reviews.create(world.name, pull.number, replace(draft, body="Words. <!-- mark -->"))
    assert (await publish_review(world.github, record, draft, target=place)).review_url == late.html_url
    assert len(world.hub.reviews(world.repo, pull.number)) == 1


async def test_a_dry_run_sends_no_review(world: World) -> None:
    pull = world.pull()
    draft = ReviewDraft(commit_sha=world.sha, body="Words.", notes=(a_note(20),))
    place = ReviewTarget(repo=world.name, number=pull.number, marker="<!-- mark -->")
    delivered = await publish_review(world.github, Remembered(Published()), draft, target=place, dry_run=True)
    assert delivered.dry_run_note == "A review with 1 comment on lines."
    assert world.hub.reviews(world.repo, pull.number) == []
