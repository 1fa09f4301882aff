"""What GitHub refuses, leaves out or answers in another form, and the hub with it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest

from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.operations import branches
from tests.hub_client import Reply
from tests.localhub.conftest import World

R = "/repos/acme/widgets"


async def _blob(world: World, text: str) -> str:
    sha: str = (await world.bot.ask("POST", f"{R}/git/blobs", {"content": text})).body["sha"]
    return sha


async def _tree(world: World, *entries: Mapping[str, object], base: str | None = None) -> Reply:
    body: dict[str, object] = {"tree": list(entries)} | ({"base_tree": base} if base else {})
    return await world.bot.ask("POST", f"{R}/git/trees", body)


@pytest.mark.parametrize(
    "path", ["../x", "a/../b", "/x", "x/", "a//b", ".", ".git/config", "a/.GIT/hooks/x", "git~1", ".git ", ""]
)
async def test_a_tree_takes_no_path_that_git_would_not_check_out(world: World, path: str) -> None:
    sha = await _blob(world, "x")
    reply = await _tree(world, {"path": path, "mode": "100644", "type": "blob", "sha": sha})
    assert reply.status == 422, reply.body


async def test_a_tree_takes_trees_as_they_are(world: World) -> None:
    sha = await _blob(world, "x = 2\n")
    inner = await _tree(world, {"path": "deep/a.py", "mode": "100644", "type": "blob", "sha": sha})
    main = world.hub.branches(world.repo)["main"]
    entry = {"path": "src", "mode": "040000", "type": "tree", "sha": inner.body["sha"]}
    made = await _tree(world, entry, base=main)
    listed = git.tree(world.repo.path, made.body["sha"], recursive=True)
    assert [each.path for each in listed if each.type == "blob"] == ["README.md", "src/deep/a.py"]
    as_blob = await _tree(world, entry | {"mode": "100644"})
    assert as_blob.status == 422
    gone = await _tree(world, {"path": "src", "mode": "040000", "type": "tree", "sha": None}, base=main)
    assert [each.path for each in git.tree(world.repo.path, gone.body["sha"])] == ["README.md"]
    file = await _tree(world, {"path": "src", "mode": "100644", "type": "blob", "sha": sha}, base=main)
    assert [each.type for each in git.tree(world.repo.path, file.body["sha"])] == ["blob", "blob"]


async def test_bad_base64_long_titles_odd_colours_and_the_default_branch_are_refused(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="One")
    refused = [
        await world.bot.ask("POST", f"{R}/git/blobs", {"content": "a$b=", "encoding": "base64"}),
        await world.owner.ask("POST", f"{R}/issues", {"title": "x" * 257}),
        await world.owner.ask("PATCH", f"{R}/issues/1", {"title": "x" * 257}),
        await world.owner.ask("POST", f"{R}/labels", {"name": "odd", "color": "#ff0000"}),
        await world.bot.ask("DELETE", f"{R}/git/refs/heads/main"),
    ]
    assert [reply.status for reply in refused] == [422] * len(refused)
    assert "main" in world.hub.branches(world.repo)
    assert (await world.owner.ask("POST", f"{R}/issues", {"title": "x" * 256})).status == 201
    wrapped = base64.encodebytes(b"x" * 100).decode()
    assert (await world.bot.ask("POST", f"{R}/git/blobs", {"content": wrapped, "encoding": "base64"})).status == 201


async def test_lists_of_issues_and_commits_are_filtered(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.open_issue(repo, author="mona", title="One", body="ask @Eve, not mail@mona")
    hub.assign(repo, hub.open_issue(repo, author="mona", title="Two").number, "eve", by="mona")

    async def numbers(query: str) -> list[int]:
        return [issue["number"] for issue in (await world.owner.ask("GET", f"{R}/issues?{query}")).body]

    assert await numbers("assignee=eve") == [2]
    assert await numbers("assignee=none") == [1]
    assert await numbers("assignee=*") == [2]
    assert await numbers("mentioned=eve") == [1]
    assert await numbers("mentioned=mona") == []
    sha = hub.commit(repo, {"n.txt": "n\n"}, message="By Eve", author="eve")

    async def shas(query: str) -> list[str]:
        return [commit["sha"] for commit in (await world.owner.ask("GET", f"{R}/commits?{query}")).body]

    assert await shas("author=eve") == [sha]
    assert await shas("author=nobody") == []
    assert await shas("since=2999-01-01T00:00:00Z") == []
    assert sha in await shas("until=2999-01-01T00:00:00Z")
    assert await shas("path=n*.txt") == []


async def test_links_submodules_and_large_files_are_answered_in_their_own_form(world: World) -> None:
    repo, sha = world.repo, await _blob(world, "x = 1\n")
    world.hub.commit(repo, {"large.txt": "x" * (1024**2 + 1)}, message="Large", author="mona")
    modules = await _blob(world, '[submodule "v"]\n\tpath = vendor/lib\n\turl = https://example.com/lib.git\n')
    targets = {"near": "README.md", "far": "../../etc/passwd", "src/up": "../README.md"}
    links = [
        {"path": path, "mode": "120000", "type": "blob", "sha": await _blob(world, target)}
        for path, target in targets.items()
    ]
    main = world.hub.branches(repo)["main"]
    made = await _tree(
        world,
        {"path": "vendor/lib", "mode": "160000", "type": "commit", "sha": "1" * 40},
        {"path": ".gitmodules", "mode": "100644", "type": "blob", "sha": modules},
        {"path": "twin.py", "mode": "100644", "type": "blob", "sha": sha},
        *links,
        base=main,
    )
    commit = {"message": "Odd", "tree": made.body["sha"], "parents": [main]}
    head = (await world.bot.ask("POST", f"{R}/git/commits", commit)).body["sha"]
    await world.bot.ask("PATCH", f"{R}/git/refs/heads/main", {"sha": head})

    async def shown(path: str) -> dict[str, object]:
        body: dict[str, object] = (await world.owner.ask("GET", f"{R}/contents/{path}")).body
        return body

    assert base64.b64decode(str((await shown("near"))["content"])) == b"# Widgets\n"
    assert (await shown("src/up"))["type"] == "file"
    far = await shown("far")
    assert (far["type"], far["target"]) == ("symlink", "../../etc/passwd")
    module = await shown("vendor/lib")
    assert (module["type"], module["submodule_git_url"]) == ("submodule", "https://example.com/lib.git")
    large = await shown("large.txt")
    assert (large["content"], large["encoding"]) == ("", "none")
    raw = await world.owner.ask("GET", f"{R}/contents/large.txt", Accept="application/vnd.github.raw")
    assert len(raw.body) == 1024**2 + 1
    root = {entry["name"]: entry["type"] for entry in (await world.owner.ask("GET", f"{R}/contents")).body}
    assert (root["near"], root["vendor"], root["twin.py"]) == ("symlink", "dir", "file")


@pytest.mark.parametrize(
    ("path", "kind", "begins"),
    [
        ("/readme", "raw", "# Widgets"),
        ("/commits/main", "diff", "diff --git "),
        ("/commits/main", "patch", "From "),
        ("/compare/main...topic", "patch", "From "),
        ("/compare/main...topic", "diff", "diff --git "),
        ("/pulls/1", "v3.patch", "From "),
        ("/pulls/1", "diff", "diff --git "),
    ],
)
async def test_raw_diff_and_patch_are_given_where_asked_for(world: World, path: str, kind: str, begins: str) -> None:
    world.hub.commit(world.repo, {"t.txt": "t\n"}, message="Topic", author="mona", branch="topic")
    world.hub.open_pull(world.repo, author="mona", head="topic", title="Topic")
    reply = await world.owner.ask("GET", f"{R}{path}", Accept=f"application/vnd.github.{kind}")
    assert reply.body.startswith(begins), reply.body[:200]


async def test_head_answers_like_get_without_a_body_and_nobody_asks_without_a_name(world: World) -> None:
    head = await world.owner.ask("HEAD", R)
    whole = await world.owner.ask("GET", R)
    assert (head.status, head.body, head.headers["ETag"]) == (200, "", whole.headers["ETag"])
    nameless = await world.owner.ask("GET", R, None, User_Agent="")
    assert nameless.status == 403
    assert "User-Agent" in nameless.body


async def test_what_has_not_changed_and_asking_for_the_limit_cost_nothing(world: World) -> None:
    first = await world.owner.ask("GET", R)
    again = await world.owner.ask("GET", R, None, If_None_Match=first.headers["ETag"])
    limit = await world.owner.ask("GET", "/rate_limit")
    used = int(first.headers["X-RateLimit-Used"])
    assert (again.status, int(again.headers["X-RateLimit-Used"])) == (304, used)
    assert limit.body["resources"]["core"]["used"] == limit.body["rate"]["used"] == used
    assert (await world.stranger.ask("GET", "/rate_limit")).body["rate"]["used"] == 0


async def test_a_file_that_becomes_a_link_and_one_with_an_odd_name_keep_their_patches_apart(world: World) -> None:
    hub, repo = world.hub, world.repo
    odd = "\ndiff --git a/x b/x"
    hub.commit(repo, {"src/b.py": "b\n", odd: "1\n"}, message="One", author="mona")
    main, target = hub.branches(repo)["main"], await _blob(world, "b.py")
    entries = (
        {"path": "src/a.py", "mode": "120000", "type": "blob", "sha": target},
        {"path": odd, "mode": "100644", "type": "blob", "content": "2\ndiff --git a/y b/y\n"},
        {"path": "src/b.py", "mode": "100644", "type": "blob", "content": "c\n"},
    )
    tree = (await _tree(world, *entries, base=main)).body["sha"]
    commit = {"message": "Two", "tree": tree, "parents": [main]}
    head = (await world.bot.ask("POST", f"{R}/git/commits", commit)).body["sha"]
    files = (await world.owner.ask("GET", f"{R}/commits/{head}")).body["files"]
    patches = {file["filename"]: file["patch"] for file in files}
    assert "-x = 1" in patches["src/a.py"]
    assert "+b.py" in patches["src/a.py"]
    assert patches[odd].splitlines()[-2:] == ["+2", "+diff --git a/y b/y"]
    assert patches["src/b.py"].splitlines() == ["@@ -1 +1 @@", "-b", "+c"]


async def test_a_field_of_a_wrong_type_is_refused_with_its_name(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="One")
    bodies: tuple[dict[str, object], ...] = ({"assignees": 5}, {"assignees": [5]}, {"labels": "bug"}, {"body": {}})
    for body in bodies:
        reply = await world.bot.ask("PATCH", f"{R}/issues/1", body)
        assert reply.status == 422, body
        assert next(iter(body)) in reply.body["message"]


async def test_many_files_are_looked_at_with_few_processes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, repo = world.hub, world.repo
    asked: list[str] = []
    run = git.run

    def counted(path: Path, *args: str) -> bytes:
        asked.append(args[0])
        return run(path, *args)

    before = hub.branches(repo)["main"]
    after = hub.commit(repo, {f"{number}.txt": f"{number}\n" for number in range(60)}, message="Many", author="mona")
    monkeypatch.setattr(git, "run", counted)
    git_diff.files(repo.path, before, after)
    branches.push_payload(hub._site, repo, world.mona, branch="main", old=before, new=after)
    assert len(asked) < 12, asked


@pytest.mark.parametrize(
    "body", [{"title": "a\ud800"}, {"title": "a", "labels": ["\udfff"]}, {"title": "a", "\ud800": 1}]
)
async def test_half_of_a_surrogate_pair_is_no_json(world: World, body: Mapping[str, object]) -> None:
    reply = await world.owner.ask("POST", f"{R}/issues", body)
    assert (reply.status, reply.body["message"]) == (400, "Problems parsing JSON")


async def test_a_field_or_parameter_that_the_hub_does_not_serve_is_refused_and_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [
        await world.owner.ask("POST", f"{R}/issues", {"title": "One", "issue_field_values": [{}]}),
        await world.owner.ask("GET", f"{R}/issues?type=Bug"),
    ]
    assert [reply.status for reply in refused] == [422, 422]
    assert (
        "does not serve the field issue_field_values of POST /repos/{owner}/{repo}/issues."
        in refused[0].body["message"]
    )
    assert world.hub._site.store.issues_of(world.repo) == []
    assert (await world.owner.ask("GET", f"{R}/pages")).status == 404
    served = [record.getMessage() for record in caplog.records if "does not serve" in record.getMessage()]
    assert [line.partition(" serve ")[2].partition(" of")[0] for line in served] == [
        "the field issue_field_values",
        "the parameter type",
        "GET /repos/acme/widgets/pages",
    ]


async def test_an_issue_takes_one_assignee_as_well_as_several(world: World) -> None:
    made = await world.owner.ask("POST", f"{R}/issues", {"title": "One", "assignee": "eve", "assignees": ["mona"]})
    assert [each["login"] for each in made.body["assignees"]] == ["mona", "eve"]
    changed = await world.owner.ask("PATCH", f"{R}/issues/1", {"assignee": "mona"})
    assert [each["login"] for each in changed.body["assignees"]] == ["mona"]


async def test_one_of_several_tags_is_enough(world: World) -> None:
    tag = (await world.owner.ask("GET", R)).headers["ETag"]
    strong = tag.removeprefix("W/")
    statuses = [
        (await world.owner.ask("GET", R, **{"If-None-Match": wanted})).status
        for wanted in (f'"other", {tag}', strong, "*", '"other"')
    ]
    assert statuses == [304, 304, 304, 200]


async def test_an_unknown_version_of_the_api_is_refused(world: World) -> None:
    replies = [
        await world.owner.ask("GET", R, **{"X-GitHub-Api-Version": version}) for version in ("2022-11-28", "2020-01-01")
    ]
    assert [reply.status for reply in replies] == [200, 400]
    assert replies[0].headers["X-GitHub-Api-Version-Selected"] == "2022-11-28"
    assert (await world.owner.ask("GET", "/versions")).body == ["2022-11-28"]


async def test_a_token_may_be_the_user_and_people_have_scopes(world: World) -> None:
    for pair in (f"{world.mona.token}:", f"{world.mona.token}:x-oauth-basic", f"mona:{world.mona.token}"):
        basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
        reply = await world.nobody.ask("GET", "/user", Authorization=basic)
        assert reply.body["login"] == "mona"
        assert "repo" in reply.headers["X-OAuth-Scopes"]
    assert "X-OAuth-Scopes" not in (await world.bot.ask("GET", R)).headers


async def test_a_stranger_without_a_token_asks_sixty_times_an_hour(world: World) -> None:
    replies = [await world.nobody.ask("GET", R) for _ in range(61)]
    assert replies[0].headers["X-RateLimit-Limit"] == "60"
    assert [reply.status for reply in replies[59:]] == [200, 403]
    assert "rate limit exceeded" in replies[60].body["message"]
    assert (await world.nobody.ask("GET", "/rate_limit")).body["rate"]["remaining"] == 0
    assert (await world.owner.ask("GET", R)).status == 200
