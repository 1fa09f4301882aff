"""Reviews and comments on lines: where they belong, how they are told, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from localhub import NewComment, UnplacedError
from localhub.api.auth import HubError
from localhub.rest import pulls
from localhub.views import git as views
from tests.localhub.conftest import World, payloads_of, record_deliveries

R = "/repos/acme/widgets"
OLD = "".join(f"line {number}\n" for number in range(1, 31))
NEW = OLD.replace("line 2\n", "line two\n").replace("line 29\n", "")


@pytest.fixture
def pull(world: World) -> World:
    """Pull request #1 of eve's; it changes line 2 of `long.txt` and takes line 29 away."""
    hub, repo = world.hub, world.repo
    hub.commit(repo, {"long.txt": OLD}, message="Long", author="mona")
    hub.commit(repo, {"long.txt": NEW}, message="Change", author="mona", branch="topic")
    hub.open_pull(repo, author="eve", head="topic", title="Change")
    record_deliveries(world)
    return world


async def test_a_comment_on_a_line_tells_the_line_and_its_hunk(pull: World) -> None:
    made = pull.hub.review_comment(pull.repo, 1, author="mona", path="long.txt", line=2, body="/codepilot why?")
    told = payloads_of(pull, "pull_request_review_comment")[0]
    assert told["action"] == "created"
    assert (told["comment"]["id"], told["comment"]["path"], told["comment"]["line"]) == (made.id, "long.txt", 2)
    assert told["comment"]["diff_hunk"] == "@@ -1,5 +1,5 @@\n line 1\n-line 2\n+line two"
    assert told["comment"]["position"] == 3
    assert told["pull_request"]["head"]["sha"] == told["comment"]["commit_id"]


async def test_every_comment_on_a_line_comes_with_a_review(pull: World) -> None:
    pull.hub.review_comment(pull.repo, 1, author="mona", path="long.txt", line=2, body="Why?")
    review = payloads_of(pull, "pull_request_review")[0]["review"]
    assert (review["state"], review["body"]) == ("commented", None)
    listed = (await pull.bot.ask("GET", f"{R}/pulls/1/reviews")).body
    assert [(each["id"], each["state"], each["body"]) for each in listed] == [(review["id"], "COMMENTED", "")]


async def test_answers_belong_to_the_comment_that_began_the_conversation(pull: World) -> None:
    first = pull.hub.review_comment(pull.repo, 1, author="mona", path="long.txt", line=2, body="Why?")
    path = f"{R}/pulls/1/comments/{first.id}/replies"
    second = (await pull.bot.ask("POST", path, {"body": "Because."})).body
    third = pull.hub.review_comment(pull.repo, 1, author="mona", body="I see.", in_reply_to=second["id"])
    assert (second["in_reply_to_id"], third.in_reply_to) == (first.id, first.id)
    assert (second["path"], second["line"], second["user"]["login"]) == ("long.txt", 2, "codepilot[bot]")
    assert (await pull.bot.ask("POST", f"{R}/pulls/1/comments/1/replies", {"body": "?"})).status == 404


@pytest.mark.parametrize(
    ("where", "missing"),
    [
        ({"path": "gone.txt", "line": 1}, "path"),
        ({"path": "long.txt", "line": 15}, "line"),
        ({"path": "long.txt", "line": 29, "side": "RIGHT"}, None),
        ({"path": "long.txt", "line": 29, "side": "LEFT"}, None),
        ({"path": "long.txt", "line": 3, "start_line": 1}, None),
        ({"path": "long.txt", "line": 3, "start_line": 4}, "start_line"),
        ({"path": "long.txt", "line": 27, "start_line": 2}, "start_line"),
    ],
)
async def test_a_comment_goes_only_where_the_difference_shows(
    pull: World, where: dict[str, Any], missing: str | None
) -> None:
    body = {"event": "COMMENT", "body": "", "comments": [{"body": "Here", **where}]}
    reply = await pull.bot.ask("POST", f"{R}/pulls/1/reviews", body)
    if missing is None:
        assert reply.status == 200, reply.body
        return
    name = missing.replace("_", " ").capitalize()
    assert (reply.status, reply.body["errors"]) == (422, [f"{name} could not be resolved"])
    assert not pull.hub.reviews(pull.repo, 1)
    single = {"body": "Here", "commit_id": pull.hub.branches(pull.repo)["topic"], **where}
    reply = await pull.bot.ask("POST", f"{R}/pulls/1/comments", single)
    assert (reply.status, reply.body["errors"][0]["field"]) == (422, f"pull_request_review_thread.{missing}")


@pytest.fixture
def moved(world: World) -> World:
    """Pull request #1 of eve's; it renames `long.txt`, and changes line 2 of it."""
    hub, repo = world.hub, world.repo
    hub.commit(repo, {"long.txt": OLD}, message="Long", author="mona")
    files = {"long.txt": None, "moved.txt": OLD.replace("line 2\n", "line two\n")}
    hub.commit(repo, files, message="Move", author="mona", branch="topic")
    hub.open_pull(repo, author="eve", head="topic", title="Move")
    return world


@pytest.mark.parametrize("path", ["pulls/1/files", "compare/main...topic"])
async def test_a_renamed_file_has_one_entry_with_both_names_and_only_its_changes(moved: World, path: str) -> None:
    body = (await moved.bot.ask("GET", f"{R}/{path}")).body
    [file] = body["files"] if "compare" in path else body
    assert (file["status"], file["filename"], file["previous_filename"]) == ("renamed", "moved.txt", "long.txt")
    assert (file["additions"], file["deletions"]) == (1, 1)
    assert file["patch"].startswith("@@ -1,5 +1,5 @@\n line 1\n-line 2\n+line two\n")


@pytest.mark.parametrize(
    ("path", "side", "line", "missing"),
    [
        ("moved.txt", "RIGHT", 2, ""),
        ("moved.txt", "LEFT", 2, ""),
        ("moved.txt", "RIGHT", 20, "Line"),
        ("long.txt", "LEFT", 2, "Path"),
    ],
)
async def test_a_comment_on_a_renamed_file_takes_its_new_name(
    moved: World, path: str, side: str, line: int, missing: str
) -> None:
    comment = {"body": "Here", "path": path, "side": side, "line": line}
    reply = await moved.bot.ask("POST", f"{R}/pulls/1/reviews", {"event": "COMMENT", "comments": [comment]})
    assert reply.body.get("errors", []) == ([f"{missing} could not be resolved"] if missing else [])


async def test_no_more_files_are_listed_than_github_lists(moved: World, monkeypatch: pytest.MonkeyPatch) -> None:
    moved.hub.commit(moved.repo, {"a.txt": "x", "b.txt": "x"}, message="More", author="mona", branch="topic")
    monkeypatch.setattr(pulls, "MAX_FILES", 2)
    monkeypatch.setattr(views, "MAX_COMPARED_FILES", 1)
    assert len((await moved.bot.ask("GET", f"{R}/pulls/1/files")).body) == 2
    assert len((await moved.bot.ask("GET", f"{R}/compare/main...topic")).body["files"]) == 1


async def test_a_review_with_several_comments_is_one_review(pull: World) -> None:
    suggestion = {"path": "long.txt", "line": 2, "side": "RIGHT", "body": "```suggestion\nline 2\n```"}
    span = {"path": "long.txt", "line": 5, "start_line": 3, "start_side": "RIGHT", "body": "All of these"}
    body = {"event": "COMMENT", "body": "Two remarks", "comments": [suggestion, span]}
    made = (await pull.bot.ask("POST", f"{R}/pulls/1/reviews", body)).body
    assert [each["action"] for each in payloads_of(pull, "pull_request_review")] == ["submitted"]
    told = [each["comment"] for each in payloads_of(pull, "pull_request_review_comment")]
    assert [each["pull_request_review_id"] for each in told] == [made["id"]] * 2
    assert [(each["start_line"], each["line"]) for each in told] == [(None, 2), (3, 5)]
    listed = (await pull.bot.ask("GET", f"{R}/pulls/1/reviews/{made['id']}/comments")).body
    assert [each["body"] for each in listed] == [suggestion["body"], "All of these"]


async def test_nobody_approves_their_own_work(pull: World) -> None:
    for event in ("APPROVE", "REQUEST_CHANGES"):
        refused = await pull.stranger.ask("POST", f"{R}/pulls/1/reviews", {"event": event, "body": "Good"})
        assert refused.status == 422
    pull.hub.review(pull.repo, 1, author="mona", body="/codepilot fix these", state="CHANGES_REQUESTED")
    told = payloads_of(pull, "pull_request_review")[0]
    assert (told["review"]["state"], told["review"]["body"]) == ("changes_requested", "/codepilot fix these")
    with pytest.raises(HubError, match="Unprocessable"):
        pull.hub.review(pull.repo, 1, author="eve", state="APPROVED")


async def test_nothing_of_a_review_is_kept_when_one_comment_has_no_place(pull: World) -> None:
    good, bad = (NewComment(path="long.txt", line=line, body="x") for line in (2, 15))
    with pytest.raises(UnplacedError, match="line could not be resolved"):
        pull.hub.review(pull.repo, 1, author="mona", comments=[good, bad])
    assert not pull.hub.review_comments(pull.repo, 1)
    assert not payloads_of(pull, "pull_request_review")


@pytest.mark.parametrize("body", [{"event": "COMMENT"}, {"event": "COMMENT", "body": " "}, {"event": "SHRUG"}])
async def test_a_review_says_something(pull: World, body: dict[str, str]) -> None:
    assert (await pull.bot.ask("POST", f"{R}/pulls/1/reviews", body)).status == 422


async def test_a_comment_on_a_line_is_edited_reacted_to_and_deleted(pull: World) -> None:
    made = pull.hub.review_comment(pull.repo, 1, author="mona", path="long.txt", line=2, body="Why?")
    one = f"{R}/pulls/comments/{made.id}"
    assert (await pull.bot.ask("POST", f"{one}/reactions", {"content": "eyes"})).status == 201
    assert [each.content for each in pull.hub.reactions(made)] == ["eyes"]
    assert (await pull.stranger.ask("PATCH", one, {"body": "Mine"})).status == 403
    pull.hub.edit_review_comment(made, by="mona", body="Why two?")
    shown = (await pull.bot.ask("GET", one)).body
    assert (shown["body"], shown["reactions"]["eyes"]) == ("Why two?", 1)
    assert payloads_of(pull, "pull_request_review_comment")[-1]["changes"] == {"body": {"from": "Why?"}}
    pull.hub.delete_review_comment(made, by="mona")
    assert (await pull.bot.ask("PATCH", one, {"body": "Late"})).status == 404


async def test_a_locked_pull_request_takes_no_review_of_an_app(pull: World) -> None:
    pull.hub.lock(pull.repo, 1, by="mona")
    refused = await pull.bot.ask("POST", f"{R}/pulls/1/reviews", {"event": "COMMENT", "body": "x"})
    assert refused.status == 403


async def test_the_difference_comes_as_text_when_asked_for(pull: World) -> None:
    reply = await pull.bot.ask("GET", f"{R}/pulls/1", None, Accept="application/vnd.github.diff")
    assert reply.headers["Content-Type"].startswith("application/vnd.github.diff")
    assert reply.body.startswith("diff --git a/long.txt b/long.txt\n")
    files = (await pull.bot.ask("GET", f"{R}/pulls/1/files?per_page=1")).body
    assert [(each["filename"], each["additions"], each["deletions"]) for each in files] == [("long.txt", 1, 2)]


async def test_only_its_author_knows_of_a_pending_review_until_it_is_submitted(pull: World) -> None:
    line = {"path": "long.txt", "line": 2, "body": "Why two?"}
    reviews = f"{R}/pulls/1/reviews"
    begun = (await pull.owner.ask("POST", reviews, {"body": "Draft", "comments": [line]})).body
    assert begun["state"] == "PENDING"
    assert "submitted_at" not in begun
    assert [each["id"] for each in (await pull.owner.ask("GET", reviews)).body] == [begun["id"]]
    assert (await pull.bot.ask("GET", reviews)).body == (await pull.bot.ask("GET", f"{R}/pulls/1/comments")).body == []
    assert (await pull.bot.ask("GET", f"{reviews}/{begun['id']}")).status == 404
    [own] = (await pull.owner.ask("GET", f"{reviews}/{begun['id']}/comments")).body
    assert (await pull.bot.ask("GET", f"{R}/pulls/comments")).body == []
    assert (await pull.bot.ask("GET", f"{R}/pulls/comments/{own['id']}")).status == 404
    assert (await pull.bot.ask("POST", f"{R}/pulls/1/comments/{own['id']}/replies", {"body": "So"})).status == 404
    assert payloads_of(pull, "pull_request_review") == payloads_of(pull, "pull_request_review_comment") == []
    second = await pull.owner.ask("POST", reviews, {"event": "COMMENT", "body": "More"})
    assert (second.status, second.body["errors"]) == (422, ["User can only have one pending review per pull request"])
    done = (await pull.owner.ask("POST", f"{reviews}/{begun['id']}/events", {"event": "COMMENT"})).body
    assert (done["state"], done["body"]) == ("COMMENTED", "Draft")
    assert [each["body"] for each in (await pull.bot.ask("GET", f"{R}/pulls/1/comments")).body] == ["Why two?"]
    assert [each["review"]["id"] for each in payloads_of(pull, "pull_request_review")] == [begun["id"]]
    assert (await pull.owner.ask("DELETE", f"{reviews}/{begun['id']}")).status == 422


async def test_a_pending_review_can_be_taken_back(pull: World) -> None:
    line = {"path": "long.txt", "line": 2, "body": "Why two?"}
    begun = (await pull.owner.ask("POST", f"{R}/pulls/1/reviews", {"comments": [line]})).body
    assert (await pull.stranger.ask("DELETE", f"{R}/pulls/1/reviews/{begun['id']}")).status == 404
    assert (await pull.owner.ask("DELETE", f"{R}/pulls/1/reviews/{begun['id']}")).status == 200
    assert (await pull.owner.ask("GET", f"{R}/pulls/1/reviews")).body == []
    assert (await pull.owner.ask("POST", f"{R}/pulls/1/reviews", {"event": "APPROVE"})).body["state"] == "APPROVED"
