from __future__ import annotations

import pytest

from localhub import NewComment
from localhub.git.rows import rows
from localhub.pages.markup import markdown
from tests.hub_client import Reply
from tests.localhub.conftest import World

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> [x](javascript:alert(1)) <b onclick=x>bold"


async def look(world: World, path: str) -> Reply:
    return await world.nobody.ask("GET", f"{world.hub.url}{path}")


async def post(world: World, path: str, form: dict[str, str], origin: str) -> int:
    url = f"{world.hub.url}{path}"
    async with world.nobody.session.post(url, data=form, headers={"Origin": origin}, allow_redirects=False) as answer:
        return answer.status


async def test_every_page_shows_what_it_is_for(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.open_issue(repo, author="mona", title="It <b>breaks", body="- [x] seen", labels=["bug"])
    hub.comment(repo, 1, author="codepilot[bot]", body="| a | b |\n|---|---|\n| 1 | 2 |")
    sha = hub.commit(repo, {"src/a.py": "x = 2\n"}, message="Fix", author="mona", branch="code/fix")
    hub.open_pull(repo, author="mona", head="code/fix", title="Fix it")
    check = {"name": "tests", "head_sha": sha, "status": "in_progress"}
    run = (await world.bot.ask("POST", "/repos/acme/widgets/check-runs", check)).body["id"]
    for path, expected in (
        ("/", "acme/widgets"),
        ("/acme", "acme/secret"),
        ("/apps/codepilot", "codepilot"),
        ("/acme/widgets", "<h1>Widgets</h1>"),
        ("/acme/widgets/tree/code/fix/src", "a.py"),
        ("/acme/widgets/blob/code/fix/src/a.py", "6 bytes"),
        ("/acme/widgets/commits/main", "Initial commit"),
        ("/acme/widgets/issues", "It &lt;b&gt;breaks"),
        ("/acme/widgets/issues/new", "Open issue"),
        ("/acme/widgets/issues/1", "<table>"),
        ("/acme/widgets/issues/1", 'type="checkbox"'),
        ("/acme/widgets/pulls", "Fix it"),
        ("/acme/widgets/pull/2", "busy"),
        ("/acme/widgets/pull/2/commits", sha[:7]),
        ("/acme/widgets/pull/2/files", '<tr class="added">'),
        ("/acme/widgets/pull/2.diff", "+x = 2"),
        (f"/acme/widgets/commit/{sha}", "verified"),
        (f"/acme/widgets/runs/{run}", "in progress"),
    ):
        page = await look(world, path)
        assert page.status == 200, path
        assert expected in page.body, path
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert (await look(world, "/acme/widgets/issues/2")).headers["Content-Type"].startswith("text/html")
    assert (await look(world, "/acme/widgets/issues/99")).status == 404


async def test_a_pull_request_shows_what_was_said_and_done(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.commit(repo, {"src/a.py": "x = 2\ny = 3\n"}, message="Two", author="mona", branch="topic")
    hub.open_pull(repo, author="mona", head="topic", title="Two")
    hub.add_label(repo, 1, "codepilot:auto", by="mona")
    hub.assign(repo, 1, "codepilot[bot]", by="mona")
    suggestion = NewComment(path="src/a.py", line=2, start_line=1, body=f"```suggestion\nx = 4\n```\n{HOSTILE}")
    hub.review(repo, 1, author="codepilot[bot]", body="Two remarks", comments=[suggestion])
    first = hub.review_comments(repo, 1)[0]
    hub.review_comment(repo, 1, author="mona", body="Why four?", in_reply_to=first.id)
    hub.review(repo, 1, author="codepilot[bot]")
    for path in ("/acme/widgets/pull/1", "/acme/widgets/pull/1/files"):
        page = (await look(world, path)).body
        assert "<del>x = 2</del><del>y = 3</del><ins>x = 4</ins>" in page, path
        assert page.index("Suggested change") < page.index("Why four?"), path
        assert "alert(1)</script>" not in page, path
    page = (await look(world, "/acme/widgets/pull/1")).body
    for expected in ("added <span", "codepilot:auto", "assigned <a", "Two remarks", "src/a.py:1\N{EN DASH}2"):
        assert expected in page, expected
    hub.commit(repo, {"src/a.py": "x = 5\n"}, message="Five", author="mona", branch="topic")
    assert "outdated" in (await look(world, "/acme/widgets/pull/1")).body
    assert "Why four?" not in (await look(world, "/acme/widgets/pull/1/files")).body


async def test_a_person_presses_a_check_runs_buttons(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.set_webhook(world.app, "http://127.0.0.1:9/hook", "s")
    note = {"path": "src/a.py", "start_line": 1, "end_line": 3, "annotation_level": "warning", "message": "<b>Look"}
    output = {"title": "Waiting", "summary": "**Approve?**", "annotations": [note | {"title": "Here"}]}
    button = {"label": "Approve", "description": "Let it go on", "identifier": "approve"}
    body = {"name": "codepilot", "head_sha": hub.branches(repo)["main"], "output": output, "actions": [button]}
    path = "/repos/acme/widgets/check-runs"
    number = (await world.bot.ask("POST", path, body)).body["id"]
    page = f"/acme/widgets/runs/{number}"
    form = {"as": "mona", "identifier": "approve"}
    assert "Its buttons appear once the run is completed." in (await look(world, page)).body
    assert await post(world, f"{page}/actions", form, world.hub.url) == 422
    await world.bot.ask("PATCH", f"{path}/{number}", {"conclusion": "action_required"})
    shown = (await look(world, page)).body
    for expected in (
        ">Approve</button>",
        'title="Let it go on"',
        "<strong>Approve?</strong>",
        "&lt;b&gt;Look",
        "1\N{EN DASH}3",
    ):
        assert expected in shown, expected
    assert await post(world, f"{page}/actions", form, world.hub.url) == 303
    assert await post(world, f"{page}/actions", {"as": "mona", "rerun": "1"}, world.hub.url) == 303
    assert await post(world, f"{page}/actions", {"as": "mona", "identifier": "none"}, world.hub.url) == 422
    told = [(each.event, each.action) for each in hub.deliveries][-2:]
    assert told == [("check_run", "requested_action"), ("check_run", "rerequested")]


async def test_a_person_comments_in_the_browser(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    form = {"as": "mona", "body": "/codepilot fix\r\nplease", "verb": "comment"}
    assert await post(world, "/acme/widgets/issues/1/comments", form, world.hub.url) == 303
    assert [c.body for c in world.hub.comments(world.repo, 1)] == ["/codepilot fix\nplease"]
    assert await post(world, "/acme/widgets/issues", {"as": "mona", "title": "Another"}, world.hub.url) == 303
    assert await post(world, "/acme/widgets/issues/2/comments", {"as": "mona", "verb": "close"}, world.hub.url) == 303
    assert world.hub.issue(world.repo, 2).state == "closed"


async def test_an_address_can_fill_in_a_comment_and_sends_nothing(world: World) -> None:
    world.hub.commit(world.repo, {"n.txt": "n\n"}, message="N", author="mona", branch="n")
    world.hub.open_pull(world.repo, author="mona", head="n", title="N")
    page = await look(world, "/acme/widgets/issues/1?body=%2Fcodepilot+review%3C%2Ftextarea%3E%3Cscript%3E")
    assert "/codepilot review&lt;/textarea&gt;&lt;script&gt;</textarea>" in page.body
    assert world.hub.comments(world.repo, 1) == []


@pytest.mark.parametrize("origin", ["http://evil.example", "null", ""])
async def test_a_form_from_elsewhere_is_refused(world: World, origin: str) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    assert await post(world, "/acme/widgets/issues/1/comments", {"as": "mona", "body": "x"}, origin) == 403
    assert world.hub.comments(world.repo, 1) == []


async def test_a_reader_may_not_merge(world: World) -> None:
    world.hub.commit(world.repo, {"n.txt": "n\n"}, message="N", author="mona", branch="n")
    world.hub.open_pull(world.repo, author="mona", head="n", title="N")
    assert await post(world, "/acme/widgets/pull/1/merge", {"as": "eve"}, world.hub.url) == 403
    assert await post(world, "/acme/widgets/pull/1/merge", {"as": "mona"}, world.hub.url) == 303
    assert world.hub.branches(world.repo)["main"] != world.hub.branches(world.repo)["n"]


async def test_hostile_text_is_shown_and_does_nothing(world: World) -> None:
    world.hub.open_issue(world.repo, author="eve", title=HOSTILE, body=HOSTILE)
    page = await look(world, "/acme/widgets/issues/1")
    for bad in ("<script>alert", "onerror", "javascript:", "onclick"):
        assert f"<b {bad}" not in page.body
    body = page.body.partition('class="pad prose"')[2].partition("</article>")[0]
    assert not any(bad in body for bad in ("alert(1)</script>", "onerror", "onclick", 'href="javascript'))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("~~gone~~", "<s>gone</s>"),
        ("https://example.com", '<a href="https://example.com" rel="nofollow noreferrer">https://example.com</a>'),
        ("a\nb", "<br>"),
        ("<details><summary>More</summary>\n\nx\n\n</details>", "<details><summary>More</summary>"),
        ("<!-- marker -->text", "text"),
        ("```python\nx = 1\n```", "<pre><code"),
        ("| a |\n|--:|\n| 1 |", '<th class="right">a</th>'),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("<a href='jaVaScript:x'>y</a>", '<a rel="nofollow noreferrer">y</a>'),
        ("<style>*{}</style>kept", "kept"),
        ("<b>open", "<b>open</b>"),
        ("</div></article>x", "x"),
    ],
)
def test_markdown_is_githubs_and_harmless(source: str, expected: str) -> None:
    shown = markdown(source)
    assert expected in shown
    assert not any(bad in shown for bad in ("<style", "marker", "</article", "<script"))


def test_references_become_links() -> None:
    shown = markdown("Closes #12, thanks @mona-l. `#1` me@example.com a#2 [#3](/x)", "/acme/widgets")
    assert '<a href="/acme/widgets/issues/12" rel="nofollow noreferrer">#12</a>' in shown
    assert '<a href="/mona-l" rel="nofollow noreferrer">@mona-l</a>.' in shown
    assert shown.count("/issues/") == 1


def test_a_difference_becomes_numbered_rows() -> None:
    found = rows("@@ -3,2 +3,3 @@ def f():\n a\n-b\n+c\n+d\n\\ No newline at end of file")
    assert [(row.kind, row.old, row.new, row.text) for row in found[1:]] == [
        ("same", 3, 3, "a"),
        ("removed", 4, None, "b"),
        ("added", None, 4, "c"),
        ("added", None, 5, "d"),
        ("note", None, None, "No newline at end of file"),
    ]
