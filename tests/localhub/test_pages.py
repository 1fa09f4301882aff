from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from localhub import LocalHub, NewComment
from localhub.git.diff import rows
from localhub.pages.markup import markdown
from tests.hub_client import Reply
from tests.hub_pages import browser
from tests.localhub.conftest import World, payloads_of, record_deliveries

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> [x](javascript:alert(1)) <b onclick=x>bold"


async def look(world: World, path: str) -> Reply:
    return await world.nobody.ask("GET", f"{world.hub.url}{path}")


async def post(world: World, path: str, form: dict[str, str], by: str = "mona") -> int:
    async with browser(world.hub.url, by) as page:
        return await page.send(path, form)


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
        ("/acme/widgets/issues/new", "to open an issue"),
        ("/acme/widgets/pulls/new", "to open a pull request"),
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
    patch = (await look(world, "/acme/widgets/pull/2.patch")).body
    assert patch.startswith(f"From {sha} ")
    assert "Initial commit" not in patch


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
    form = {"identifier": "approve"}
    assert "Its buttons appear once the run is completed." in (await look(world, page)).body
    assert await post(world, f"{page}/actions", form) == 422
    await world.bot.ask("PATCH", f"{path}/{number}", {"conclusion": "action_required"})
    async with browser(hub.url, "mona") as person:
        shown = await person.look(page)
    for expected in (
        ">Approve</button>",
        'title="Let it go on"',
        "<strong>Approve?</strong>",
        "&lt;b&gt;Look",
        "1\N{EN DASH}3",
    ):
        assert expected in shown, expected
    assert await post(world, f"{page}/actions", form) == 303
    assert await post(world, f"{page}/actions", {"rerun": "1"}) == 303
    assert await post(world, f"{page}/actions", {"identifier": "none"}) == 422
    told = [(each.event, each.action) for each in hub.deliveries][-2:]
    assert told == [("check_run", "requested_action"), ("check_run", "rerequested")]


async def test_a_person_comments_in_the_browser(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    form = {"body": "/codepilot fix\r\nplease", "verb": "comment"}
    assert await post(world, "/acme/widgets/issues/1/comments", form) == 303
    assert [c.body for c in world.hub.comments(world.repo, 1)] == ["/codepilot fix\nplease"]
    assert await post(world, "/acme/widgets/issues", {"title": "Another"}) == 303
    assert await post(world, "/acme/widgets/issues/2/comments", {"verb": "close"}) == 303
    assert world.hub.issue(world.repo, 2).state == "closed"


async def test_an_address_can_fill_in_a_comment_and_sends_nothing(world: World) -> None:
    world.hub.commit(world.repo, {"n.txt": "n\n"}, message="N", author="mona", branch="n")
    world.hub.open_pull(world.repo, author="mona", head="n", title="N")
    async with browser(world.hub.url, "mona") as person:
        page = await person.look("/acme/widgets/issues/1?body=%2Fcodepilot+review%3C%2Ftextarea%3E%3Cscript%3E")
    assert "/codepilot review&lt;/textarea&gt;&lt;script&gt;</textarea>" in page
    assert world.hub.comments(world.repo, 1) == []


@pytest.mark.parametrize(
    ("origin", "token", "status"),
    [
        ("http://evil.example", "", 403),
        ("null", "", 403),
        ("", "", 403),
        (None, "0" * 64, 403),
        (None, "", 303),
    ],
)
async def test_a_form_counts_from_a_page_of_the_same_session_only(
    world: World, origin: str | None, token: str, status: int
) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    async with browser(world.hub.url, "mona") as page:
        told = await page.send("/acme/widgets/issues/1/comments", {"body": "x"}, origin=origin, token=token)
    assert told == status
    assert len(world.hub.comments(world.repo, 1)) == (status == 303)


@pytest.mark.parametrize("path", ["/acme/widgets", "/api/v3/repos/acme/widgets", "/acme/widgets.git/info/refs"])
async def test_a_name_that_was_pointed_at_the_hub_is_refused(world: World, path: str) -> None:
    port = world.hub.url.rpartition(":")[2]
    for host, status in ((f"evil.example:{port}", 421), ("evil.example", 421), (f"localhost:{port}", 200)):
        query = "?service=git-upload-pack" if path.endswith("refs") else ""
        async with world.nobody.session.get(f"{world.hub.url}{path}{query}", headers={"Host": host}) as answer:
            assert answer.status == status, host


async def test_a_cookie_that_the_hub_did_not_sign_is_nobodys(world: World) -> None:
    port = world.hub.url.rpartition(":")[2]
    for cookie in ("", f"{world.mona.id}.00.00", f"{world.mona.id}.00.{'é' * 64}", "9" * 5000):
        headers = {"Cookie": f"hub-session-{port}={cookie}"}
        async with world.nobody.session.get(f"{world.hub.url}/login", headers=headers) as answer:
            assert "Sign out" not in await answer.text()
            assert {"HttpOnly", "SameSite=Lax"} <= set(answer.headers["Set-Cookie"].split("; "))


async def test_people_sign_in_and_out(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    async with browser(world.hub.url) as page:
        assert "Sign in</a> to comment" in await page.look("/acme/widgets/issues/1")
        assert await page.send("/acme/widgets/issues/1/comments", {"body": "x"}) == 403
        for login in ("nobody", "codepilot[bot]", ""):
            assert await page.send("/login", {"login": login}) == 422
        assert await page.send("/login", {"login": "eve", "to": "/acme"}) == 303
        assert "Sign out" in await page.look("/acme")
        assert await page.send("/acme/widgets/issues/1/comments", {"body": "From Eve"}) == 303
        assert await page.send("/logout", {}) == 303
        assert "Sign out" not in await page.look("/acme")
    assert [world.hub.login(each.author_id) for each in world.hub.comments(world.repo, 1)] == ["eve"]


@pytest.mark.parametrize("to", ["//evil.example", "/\\evil.example", "http://evil.example", "/a\nb"])
async def test_sign_in_leads_to_the_hubs_own_pages_only(world: World, to: str) -> None:
    async with browser(world.hub.url) as page:
        assert 'name="to" value="/"' in await page.look(f"/login?to={quote(to)}")


async def test_a_hub_with_one_person_needs_no_sign_in(hub: LocalHub) -> None:
    hub.add_user("mona")
    hub.add_repo("mona/calc", owner="mona", files={"a.txt": "a\n"})
    hub.open_issue(hub.repo("mona/calc"), author="mona", title="It breaks")
    async with browser(hub.url) as page:
        assert await page.send("/mona/calc/issues/1/comments", {"body": "/codepilot fix"}) == 303


async def test_people_label_a_thread(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks", labels=["bug"])
    path = "/acme/widgets/issues/1/labels"
    assert await post(world, path, {"new": "x"}, by="eve") == 403
    assert await post(world, path, {"label:bug": "1", "new": "codepilot"}) == 303
    assert world.hub.issue(world.repo, 1).labels == ("bug", "codepilot")
    assert await post(world, path, {"label:codepilot": "1"}) == 303
    assert world.hub.issue(world.repo, 1).labels == ("codepilot",)
    assert await post(world, path, {"new": "x" * 51}) == 422


async def test_people_open_pull_requests_comment_on_lines_and_review(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.commit(repo, {"src/a.py": "x = 2\ny = 3\n"}, message="Two", author="mona", branch="topic")
    form = {"title": "Two", "head": "topic", "base": "main"}
    assert await post(world, "/acme/widgets/pulls", form) == 303
    files = "/acme/widgets/pull/1/files"
    async with browser(hub.url, "eve") as page:
        link = '<a class="add" href="?path=src%2Fa.py&amp;line=2&amp;side=RIGHT#comment" aria-label="Discuss line 2">'
        assert link in (shown := await page.look(files)), shown
        assert "Comment on line 2<textarea" in await page.look(f"{files}?path=src/a.py&line=2&side=RIGHT")
        on_line = {"path": "src/a.py", "line": "2", "side": "RIGHT", "start_line": "1", "body": "Why three?"}
        assert await page.send(files, on_line) == 303
        for wrong in ({"line": "99"}, {"line": "x"}, {"side": "UP"}, {"path": "src/b.py"}, {"body": " "}):
            assert await page.send(files, {**on_line, **wrong}) == 422, wrong
    [made] = hub.review_comments(repo, 1)
    assert (made.body, made.start_line, made.line, hub.login(made.author_id)) == ("Why three?", 1, 2, "eve")
    replies, reviews = "/acme/widgets/pull/1/replies", "/acme/widgets/pull/1/reviews"
    assert await post(world, replies, {"to": str(made.id), "body": "Because."}) == 303
    assert await post(world, replies, {"to": "1", "body": "Because."}) == 404
    assert hub.review_comments(repo, 1)[1].in_reply_to == made.id
    assert await post(world, reviews, {"verdict": "approve"}) == 422
    assert await post(world, reviews, {"verdict": "approve"}, by="eve") == 303
    assert await post(world, reviews, {"verdict": "request_changes", "body": "No."}, by="eve") == 303
    assert await post(world, reviews, {"verdict": "comment"}, by="eve") == 422
    assert await post(world, reviews, {"verdict": "merge", "body": "x"}, by="eve") == 422
    assert [each.state for each in hub.reviews(repo, 1)][-2:] == ["APPROVED", "CHANGES_REQUESTED"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"default_permissions": []},
        {"default_permissions": {"contents": []}},
        {"default_permissions": {"contents": "all"}},
        {"default_events": "push"},
        {"default_events": [{}]},
        {"hook_attributes": "http://a.example"},
        {"hook_attributes": {"url": 5}},
        {"url": "http://[a"},
        {"redirect_url": "javascript:alert(1)"},
        {"name": ["x"]},
        {"name": ""},
    ],
)
async def test_a_manifest_that_cannot_be_used_is_refused(world: World, wrong: dict[str, object]) -> None:
    manifest = {"name": "Made", "url": "https://a.example", "redirect_url": "http://127.0.0.1:1/done", **wrong}
    for path in ("/settings/apps/new", "/settings/apps"):
        assert await post(world, path, {"manifest": json.dumps(manifest)}) == 422


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 20_000])
async def test_what_is_no_manifest_is_refused(world: World, text: str) -> None:
    assert await post(world, "/settings/apps/new", {"manifest": text}) == 422


async def test_a_reader_may_not_merge(world: World) -> None:
    world.hub.commit(world.repo, {"n.txt": "n\n"}, message="N", author="mona", branch="n")
    world.hub.open_pull(world.repo, author="mona", head="n", title="N")
    assert await post(world, "/acme/widgets/pull/1/merge", {}, by="eve") == 403
    assert await post(world, "/acme/widgets/pull/1/merge", {}) == 303
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


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "> [!NOTE]\n> Read **this**.",
            '<blockquote class="alert note">\n<p><strong>Note</strong></p>\n<p>Read <strong>this</strong>.</p>\n',
        ),
        (
            "> [!warning]\n>\n> - one",
            '<blockquote class="alert warning">\n<p><strong>Warning</strong></p>\n<ul>\n<li>one</li>\n</ul>\n',
        ),
        ("> [!NOTE]", "<blockquote>\n<p>[!NOTE]</p>\n</blockquote>"),
        ("> [!NOTE] and more", "<blockquote>\n<p>[!NOTE] and more</p>\n</blockquote>"),
        ("> [!DANGER]\n> x", "<blockquote>\n<p>[!DANGER]<br>\nx</p>\n</blockquote>"),
        ("> [!T\u0131P]\n> x", "<blockquote>\n<p>[!T\u0131P]<br>\nx</p>\n</blockquote>"),
        ("- > [!NOTE]\n  > x", "[!NOTE]"),
        (">", "<blockquote></blockquote>"),
        ('<blockquote class="top">x</blockquote>', "<blockquote>x</blockquote>"),
    ],
)
def test_alerts_are_shown_as_github_shows_them(source: str, expected: str) -> None:
    assert expected in markdown(source)


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


async def test_numbers_names_and_bodies_that_nothing_can_have_are_refused(world: World) -> None:
    hub, large = world.hub, "9" * 5_000
    hub.commit(world.repo, {"src/a.py": "x = 2\n"}, message="Fix", author="mona", branch="code/fix")
    hub.open_pull(world.repo, author="mona", head="code/fix", title="Fix it")
    for path in (f"issues/{large}", f"runs/{large}", f"pull/{large}.diff", "blob/main/a%00b", "tree/%00"):
        assert (await look(world, f"/acme/widgets/{path}")).status == 404, path
    line = {"path": "src/a.py", "line": "1", "body": "Why?"}
    assert await post(world, "/acme/widgets/pull/1/files", {**line, "line": large}) == 422
    assert await post(world, "/acme/widgets/pull/1/files", {**line, "start_line": large}) == 422
    assert await post(world, "/acme/widgets/pull/1/replies", {"to": large, "body": "Why?"}) == 404
    async with browser(hub.url, "mona") as page:
        for body in ("[]", "{"):
            json_type = {"Content-Type": "application/json"}
            async with page.web.post(f"{hub.url}/login/oauth/access_token", data=body, headers=json_type) as answer:
                assert answer.status == 400


@pytest.mark.parametrize("callback", [["javascript:alert(1)"], ["https://a;object-src *"], [1], {"a": 1}, "https://a"])
async def test_an_app_with_a_callback_that_is_no_address_is_refused(world: World, callback: object) -> None:
    given = {"name": "Other", "url": "https://a.example", "redirect_url": "https://a.example/x"}
    for manifest in ({**given, "callback_urls": callback}, {**given, "redirect_url": "https://a;object-src *"}):
        assert await post(world, "/settings/apps", {"manifest": json.dumps(manifest)}) == 422
    known = {**given, "callback_urls": ["http://[::1]:8080/back"]}
    assert await post(world, "/settings/apps", {"manifest": json.dumps(known)}) == 303


async def test_a_text_is_edited_on_its_page_by_its_author_and_by_writers(world: World) -> None:
    hub, repo = world.hub, world.repo
    issue = hub.open_issue(repo, author="eve", title="It breaks", body="Badly.")
    first = hub.comment(repo, 1, author="eve", body="/codepilot fix")
    other = hub.comment(repo, 1, author="mona", body="Me too")
    record_deliveries(world)
    path, changed = "/acme/widgets/issues/1/edit", {"body": "/codepilot explain"}
    subject = f"issuecomment-{first.id}"
    assert await post(world, path, changed | {"subject": subject}, by="eve") == 303
    [edited] = [payload for payload in payloads_of(world, "issue_comment") if payload["action"] == "edited"]
    assert (edited["comment"]["body"], edited["changes"]) == (
        "/codepilot explain",
        {"body": {"from": "/codepilot fix"}},
    )
    assert await post(world, path, changed | {"subject": subject}, by="mona") == 303  # the same text is no edit
    assert len(payloads_of(world, "issue_comment")) == 1
    assert await post(world, path, changed | {"subject": f"issuecomment-{other.id}"}, by="eve") == 403
    assert await post(world, path, changed | {"subject": "issuecomment-1"}, by="eve") == 404
    assert await post(world, path, {"body": " ", "subject": subject}, by="eve") == 422
    assert await post(world, path, {"body": "Really.", "subject": f"issue-{issue.id}"}, by="eve") == 303
    assert hub.issue(repo, 1).body == "Really."
    async with browser(hub.url, "eve") as page:
        assert (await page.look("/acme/widgets/issues/1")).count("<summary>Edit</summary>") == 2
    assert "<summary>Edit</summary>" not in (await look(world, "/acme/widgets/issues/1")).body


async def test_a_comment_on_a_line_is_edited_on_its_page(world: World) -> None:
    world.hub.commit(world.repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    world.hub.open_pull(world.repo, author="mona", head="topic", title="Two")
    world.hub.review_comment(world.repo, 1, author="mona", body="Why?", path="src/a.py", line=1)
    [comment] = world.hub.review_comments(world.repo, 1)
    record_deliveries(world)
    form = {"body": "Why two?", "subject": f"discussion-{comment.id}"}
    assert await post(world, "/acme/widgets/issues/1/edit", form) == 303
    assert world.hub.review_comments(world.repo, 1)[0].body == "Why two?"
    assert [payload["action"] for payload in payloads_of(world, "pull_request_review_comment")] == ["edited"]


async def test_a_repository_is_found_with_a_slash_at_the_end(world: World) -> None:
    page = await world.nobody.staying().ask("GET", f"{world.hub.url}/acme/widgets/")
    assert (page.status, page.headers["Location"]) == (303, "/acme/widgets")
