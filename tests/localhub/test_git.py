"""Real git against the hub: clone, push and fetch over HTTP."""

from __future__ import annotations

import gzip
import os
from hashlib import sha256
from pathlib import Path

import pytest

from localhub.git import plumbing
from tests.hub_client import installation_token
from tests.localhub.conftest import World, clone_url, git, git_output


@pytest.mark.parametrize("protocol", ["0", "2"])
async def test_a_public_repository_is_cloned_by_anybody(world: World, tmp_path: Path, protocol: str) -> None:
    await git_output(
        tmp_path, "-c", f"protocol.version={protocol}", "clone", f"{world.hub.url}/acme/widgets.git", "copy"
    )
    assert (tmp_path / "copy" / "src" / "a.py").read_text() == "x = 1\n"


async def test_a_private_repository_is_there_for_those_who_may(world: World, tmp_path: Path) -> None:
    code, said = await git(tmp_path, "clone", f"{world.hub.url}/acme/secret.git", "none")
    assert code != 0
    assert "Username" in said
    code, said = await git(tmp_path, "clone", clone_url(world, world.secret, world.eve.token), "none")
    assert code != 0
    assert "not found" in said
    await git_output(tmp_path, "clone", clone_url(world, world.secret, world.mona.token), "secret")
    header = f"http.extraHeader=Authorization: Bearer {world.mona.token}"
    await git_output(tmp_path, "-c", header, "clone", f"{world.hub.url}/acme/secret.git", "bearer")


async def test_a_push_moves_the_pull_request_and_a_fetch_sees_it(world: World, tmp_path: Path) -> None:
    hub, repo = world.hub, world.repo
    hub.commit(repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="fix")
    pull = hub.open_pull(repo, author="mona", head="fix", title="Two")
    token = await installation_token(world.nobody, world.app, world.installation)
    await git_output(tmp_path, "clone", "--branch", "fix", clone_url(world, repo, token), "copy")
    copy = tmp_path / "copy"
    (copy / "big.bin").write_bytes(os.urandom(3_000_000))  # more than git sends in one piece, so the body is chunked
    await git_output(copy, "add", ".")
    await git_output(copy, "commit", "-m", "Three")
    await git_output(copy, "push")
    sha = await git_output(copy, "rev-parse", "HEAD")
    moved = hub.issue(repo, pull.number)
    assert moved.pull is not None
    assert moved.pull.head_sha == sha
    await git_output(copy, "fetch", "origin", f"refs/pull/{pull.number}/head")
    assert await git_output(copy, "rev-parse", "FETCH_HEAD") == sha


async def test_who_may_not_write_cannot_push(world: World, tmp_path: Path) -> None:
    read = {"permissions": {"contents": "read"}}
    narrow = await installation_token(world.nobody, world.app, world.installation, **read)
    for number, token in enumerate((world.eve.token, narrow)):
        name = f"copy{number}"
        await git_output(tmp_path, "clone", clone_url(world, world.repo, token), name)
        await git_output(tmp_path / name, "commit", "--allow-empty", "-m", "Mine")
        code, _ = await git(tmp_path / name, "push")
        assert code != 0
    assert len(world.hub.branches(world.repo)) == 1


async def test_a_push_that_breaks_a_rule_is_refused_in_githubs_words(world: World, tmp_path: Path) -> None:
    world.hub.add_rules(world.repo, "required_signatures", branches="topic")
    await git_output(tmp_path, "clone", clone_url(world, world.repo, world.mona.token), "mine")
    await git_output(tmp_path / "mine", "commit", "--allow-empty", "-m", "Mine")
    code, output = await git(tmp_path / "mine", "push", "origin", "HEAD:topic")
    assert code != 0
    assert "remote: error: GH013: Repository rule violations found for refs/heads/topic." in output
    assert "remote: - Commits must have verified signatures." in output
    code, _ = await git(tmp_path / "mine", "push", "origin", "HEAD:other")
    assert code == 0
    assert set(world.hub.branches(world.repo)) == {"main", "other"}


async def test_a_local_repository_is_taken_in_with_its_branch(world: World, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    await git_output(source, "init", "--initial-branch=trunk")
    (source / "a.txt").write_text("a\n")
    await git_output(source, "add", ".")
    await git_output(source, "commit", "-m", "First")
    repo = world.hub.add_repo("acme/taken", source=source)
    assert world.hub.branches(repo) == {"trunk": await git_output(source, "rev-parse", "HEAD")}
    assert (await world.owner.ask("GET", "/repos/acme/taken")).body["default_branch"] == "trunk"


async def test_what_goes_wrong_on_purpose_reaches_git(world: World, tmp_path: Path) -> None:
    world.hub.faults.add("GET", "*/info/refs", "503")
    code, said = await git(tmp_path, "clone", f"{world.hub.url}/acme/widgets.git", "copy")
    assert code != 0
    assert "503" in said


async def test_a_compressed_request_is_understood(world: World) -> None:
    body = gzip.compress(b"0014command=ls-refs\n00010000")
    headers = {
        "Content-Encoding": "gzip",
        "Content-Type": "application/x-git-upload-pack-request",
        "Git-Protocol": "version=2",
    }
    url = f"{world.hub.url}/acme/widgets.git/git-upload-pack"
    async with world.nobody.session.post(url, data=body, headers=headers) as answer:
        assert answer.status == 200
        assert "refs/heads/main" in await answer.text()


async def test_a_commit_with_a_time_that_git_cannot_read_is_shown_all_the_same(world: World, tmp_path: Path) -> None:
    await git_output(tmp_path, "init", "--quiet", "--bare", "old.git")
    old = tmp_path / "old.git"
    tree = await git_output(old, "hash-object", "-t", "tree", "-w", "/dev/null")
    raw = tmp_path / "raw"
    raw.write_text(f"tree {tree}\nauthor M m@e> 0 +0000\ncommitter M <m@e> 1 +051800\n\nOld\n")
    sha = await git_output(old, "hash-object", "-t", "commit", "-w", "--literally", str(raw))
    await git_output(old, "update-ref", "refs/heads/main", sha)
    await git_output(old, "symbolic-ref", "HEAD", "refs/heads/main")
    world.hub.add_repo("acme/old", owner="mona", source=old)
    reply = await world.owner.ask("GET", f"/repos/acme/old/commits/{sha}")
    assert reply.body["commit"]["message"] == "Old"


async def test_references_are_those_of_git_whether_packed_or_not(world: World) -> None:
    path = world.repo.path
    await git_output(path, "tag", "v1", "main")
    await git_output(path, "tag", "-a", "-m", "Two", "v2", "main")
    await git_output(path, "pack-refs", "--all")
    await git_output(path, "tag", "v3/rc", "main")
    await git_output(path, "branch", "topic", "main")
    for prefix in ("refs/", "refs/heads/", "refs/tags/v", "refs/tags/v3/"):
        listed = await git_output(path, "for-each-ref", "--format=%(refname) %(objectname) %(objecttype)")
        found = plumbing.refs(path, prefix)
        shown = [f"{ref.name} {ref.sha} {plumbing.kind_of_ref(path, ref)}" for ref in found]
        assert shown == [line for line in listed.splitlines() if line.startswith(prefix)]
        assert [plumbing.ref(path, ref.name) for ref in found] == found


@pytest.mark.parametrize("is_packed", [True, False])
async def test_one_reference_is_found_without_a_list_of_all(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_packed: bool
) -> None:
    path = world.repo.path
    await git_output(path, "tag", "v1", "main")
    if is_packed:
        await git_output(path, "pack-refs", "--all")

    def refuse(*_arguments: object) -> None:
        raise AssertionError("all references are listed")

    monkeypatch.setattr(os, "walk", refuse)
    assert plumbing.ref(path, "refs/tags/v1") is not None
    sha = plumbing.resolve(path, "main")
    assert [plumbing.resolve(path, name) for name in ("v1", "refs/tags/v1", "refs/heads/main")] == [sha] * 3
    assert plumbing.resolve(path, "refs/heads/v1") is None


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "HEAD", "refs/../HEAD", "refs/heads", "refs/heads/a\0", "refs/" + "a" * 5_000]
)
def test_no_file_but_a_reference_is_read(world: World, name: str) -> None:
    assert plumbing.ref(world.repo.path, name) is None
    assert all(ref.name.startswith("refs/heads/") for ref in plumbing.refs(world.repo.path, name))


async def test_the_activity_lists_the_changes_of_a_branch_newest_first_in_pages_with_cursors(world: World) -> None:
    hub, repo, path = world.hub, world.repo, "/repos/acme/widgets/activity?ref=refs/heads/topic"
    first = hub.commit(repo, {"n.txt": "1\n"}, message="One", author="mona", branch="topic")
    second = hub.commit(repo, {"n.txt": "2\n"}, message="Two", author="mona", branch="topic")
    plumbing.update_ref(repo.path, "refs/heads/topic", first)
    hub.sync(repo, author="mona")
    plumbing.delete_ref(repo.path, "refs/heads/topic")
    hub.sync(repo, author="mona")
    page = await world.bot.ask("GET", f"{path}&per_page=3")
    assert [(each["activity_type"], each["after"]) for each in page.body] == [
        ("branch_deletion", plumbing.NULL_SHA),
        ("force_push", first),
        ("push", second),
    ]
    following = page.headers["Link"].partition("<")[2].partition(">")[0]
    [oldest] = (await world.bot.ask("GET", following)).body
    assert (oldest["activity_type"], oldest["before"], oldest["after"]) == ("branch_creation", plumbing.NULL_SHA, first)


async def test_a_shallow_source_is_refused_and_objects_of_lfs_are_copied(world: World, tmp_path: Path) -> None:
    source, content = tmp_path / "source", b"large"
    await git_output(tmp_path, "init", "--quiet", "--initial-branch=main", str(source))
    for text in ("1", "2"):
        (source / "a.txt").write_text(text)
        await git_output(source, "add", ".")
        await git_output(source, "commit", "--quiet", "--message", text)
    oid = sha256(content).hexdigest()
    place = plumbing.large_object(source / ".git", oid)
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    await git_output(tmp_path, "clone", "--quiet", "--depth=1", f"file://{source}", "shallow")
    with pytest.raises(ValueError, match=r"shallow clone.*git fetch --unshallow"):
        world.hub.add_repo("acme/shallow", source=tmp_path / "shallow")
    full = world.hub.add_repo("acme/full", source=source)
    for repo in (full, world.hub.add_repo("mona/full", fork_of=full)):
        assert world.hub.large_files(repo) == {oid: content}


async def test_the_test_merge_of_a_pull_request_is_a_reference(world: World, tmp_path: Path) -> None:
    world.hub.commit(world.repo, {"b.py": "y = 1\n"}, message="Two", author="mona", branch="topic")
    number = world.hub.open_pull(world.repo, author="mona", head="topic", title="Two").number
    world.hub.commit(world.repo, {"c.py": "z = 1\n"}, message="Three", author="mona")
    await world.owner.ask("GET", f"/repos/acme/widgets/pulls/{number}")  # this begins the computation
    pull = (await world.owner.ask("GET", f"/repos/acme/widgets/pulls/{number}")).body
    await git_output(tmp_path, "clone", "--quiet", f"{world.hub.url}/acme/widgets.git", "copy")
    await git_output(tmp_path / "copy", "fetch", "--quiet", "origin", f"refs/pull/{number}/merge")
    listed = await git_output(tmp_path / "copy", "log", "--format=%H", "-1", "FETCH_HEAD")
    assert listed == pull["merge_commit_sha"]
    assert (await git_output(tmp_path / "copy", "show", "FETCH_HEAD:b.py")) == "y = 1"
    world.hub.commit(world.repo, {"b.py": "y = 2\n"}, message="Four", author="mona")
    await world.owner.ask("GET", f"/repos/acme/widgets/pulls/{number}")
    code, _ = await git(tmp_path / "copy", "fetch", "--quiet", "origin", f"refs/pull/{number}/merge")
    assert code != 0
