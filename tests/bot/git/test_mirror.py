"""Mirrors: unusual histories, and the cached checkout."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.workspace.files import Workspace
from bot.git.errors import CloneError, GitError, RepositoryEmptyError, WorkspaceError
from bot.git.filesystem import copy_names, lock_if_free
from bot.git.mirror import Mirror, Source
from bot.git.process import Git
from bot.git.workspace import Workspaces
from tests.odd_histories import follow, two_authors, two_links, with_author, with_message, with_tree
from tests.origin import Origin
from tests.tls_hosts import serving
from tests.waiting import eventually

REPO = 4711
FILE = b"100644"
HARMLESS = {
    "badDate": with_author(b"Mona <mona@example.com> soon +0000"),
    "badDateOverflow": with_author(b"Mona <mona@example.com> 99999999999999999999 +0000"),
    "badEmail": with_author(b"Mona <mona@example.com 1700000000 +0000"),
    "badName": with_author(b"Mona> <mona@example.com> 1700000000 +0000"),
    "badTimezone": with_author(b"Mona <mona@example.com> 1700000000 +00000"),
    "missingEmail": with_author(b"Mona 1700000000 +0000"),
    "missingNameBeforeEmail": with_author(b"<mona@example.com> 1700000000 +0000"),
    "missingSpaceBeforeDate": with_author(b"Mona <mona@example.com>1700000000 +0000"),
    "missingSpaceBeforeEmail": with_author(b"Mona<mona@example.com> 1700000000 +0000"),
    "multipleAuthors": two_authors,
    "nulInCommit": with_message(b"before\0after\n"),
    "zeroPaddedDate": with_author(b"Mona <mona@example.com> 01700000000 +0000"),
    "badFilemode": with_tree((b"100660", b"a", b"")),
    "zeroPaddedFilemode": with_tree((b"0100644", b"a", b"")),
    "duplicateEntries": with_tree((FILE, b"a", b"1"), (FILE, b"a", b"2")),
}
HARMFUL = {
    "fullPathname": with_tree((FILE, b"a/b", b"")),
    "hasDot": with_tree((FILE, b".", b"")),
    "hasDotdot": with_tree((FILE, b"..", b"")),
    "hasDotgit": with_tree((FILE, b".GIT", b"")),
    "gitmodulesName": with_tree(
        (FILE, b".gitmodules", b'[submodule "../../x"]\npath = a\nurl = https://x.example/a\n')
    ),
    "gitmodulesPath": with_tree((FILE, b".gitmodules", b'[submodule "a"]\npath = -a\nurl = https://x.example/a\n')),
    "gitmodulesUpdate": with_tree((FILE, b".gitmodules", b'[submodule "a"]\npath = a\nupdate = !touch x\n')),
    "gitmodulesUrl": with_tree((FILE, b".gitmodules", b'[submodule "a"]\npath = a\nurl = -u./x\n')),
    "gitmodulesSymlink": with_tree((b"120000", b".gitmodules", b"elsewhere")),
    "nulInHeader": with_author(b"Mo\0na <mona@example.com> 1700000000 +0000"),
    "nullSha1": with_tree((b"160000", b"a", None)),
    "treeNotSorted": with_tree((FILE, b"b", b""), (FILE, b"a", b"")),
}


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(path=tmp_path / "mirror.git", lock=tmp_path / "mirror.lock")


def main_at(origin: Origin, sha: str) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)


async def test_harmless_faults_of_old_history_are_fetched(origin: Origin, mirror: Mirror) -> None:
    sha = follow(origin, *(make(origin) for make in HARMLESS.values()))
    await mirror.provide(main_at(origin, sha), keep=None)


@pytest.mark.parametrize("fault", HARMFUL)
async def test_dangerous_objects_are_rejected(fault: str, origin: Origin, mirror: Mirror) -> None:
    sha = follow(origin, HARMFUL[fault](origin))
    with pytest.raises(CloneError, match=fault):
        await mirror.provide(main_at(origin, sha), keep=None)


async def test_work_on_a_commit_without_a_date_can_be_committed(origin: Origin, tmp_path: Path) -> None:
    odd = HARMLESS["badDate"](origin)
    origin.git("update-ref", "refs/heads/main", odd)
    async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, odd)) as tree:
        (tree.path / "a.txt").write_text("new\n")
        change = await tree.change()
        assert await tree.commit(change, message="Add a") == await tree.commit(change, message="Add a")


@pytest.mark.parametrize("twice", [HARMLESS["duplicateEntries"], two_links])
async def test_a_commit_that_has_a_name_twice_is_not_checked_out(
    twice: Callable[[Origin], str], origin: Origin, tmp_path: Path
) -> None:
    odd = twice(origin)
    origin.git("update-ref", "refs/heads/main", odd)
    with pytest.raises(WorkspaceError, match=f"{odd[:10]}.*twice"):
        async with Workspaces(tmp_path / "state").open("job", REPO, main_at(origin, odd)):
            pass


def snapshot(root: Path) -> dict[str, str]:
    """Kind and content of every file below `root`."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(each for each in folders if (Path(folder) / each).is_symlink())]:
            path = Path(folder) / name
            if path.is_symlink():
                found[str(path.relative_to(root))] = f"-> {path.readlink()}"
            else:
                executable = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
                found[str(path.relative_to(root))] = f"{executable} {path.read_text()}"
    return found


async def files_of(workspaces: Workspaces, origin: Origin, job: str, sha: str) -> dict[str, str]:
    async with workspaces.open(job, 1, Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)) as tree:
        found = snapshot(tree.path)
        # What the agent does to its copy must not reach the next job.
        for name in found:
            (tree.path / name).unlink()
        (tree.path / "left behind").write_text("x")
        return found


@pytest.mark.parametrize("is_prepared", [True, False])
async def test_each_job_gets_exactly_its_commit(tmp_path: Path, origin: Origin, *, is_prepared: bool) -> None:
    first = origin.commit({"a.txt": "one", "d/b.txt": "two", "run.sh": "three", "x": "file"})
    (origin.path / "run.sh").chmod(0o755)
    (origin.path / "link").symlink_to("a.txt")
    second = origin.commit({"a.txt": "changed", "d/b.txt": None, "x": None, "x/y": "now a folder"})
    workspaces = Workspaces(tmp_path / "bot")
    expected = {
        first: {"a.txt": "- one", "d/b.txt": "- two", "run.sh": "- three", "x": "- file"},
        second: {"a.txt": "- changed", "link": "-> a.txt", "run.sh": "x three", "x/y": "- now a folder"},
    }
    for number, sha in enumerate([first, second, second, first, second, first, first]):
        assert await files_of(workspaces, origin, f"job{number}", sha) == expected[sha]
        if is_prepared:
            await workspaces.prepare_checkout()


async def test_a_prepared_checkout_is_taken_once_by_a_rename_and_its_index_describes_the_files(
    tmp_path: Path, origin: Origin
) -> None:
    source = main_at(origin, origin.commit({"a.txt": "one", "d/b.txt": "two"}))
    workspaces = Workspaces(tmp_path / "bot")
    async with workspaces.open("first", 1, source):
        await workspaces.prepare_checkout()
    inode = (tmp_path / "bot/mirrors/1.files/files/a.txt").stat().st_ino
    async with workspaces.open("second", 1, source) as second, workspaces.open("third", 1, source) as third:
        assert (second.path / "a.txt").stat().st_ino == inode != (third.path / "a.txt").stat().st_ino
        for tree in (second, third):
            index = tree.path.parent / "trusted/checkout.index"
            git = Git(git_dir=tree.git_dir, work_tree=tree.path, index=index)
            assert await git.run("ls-files") == b"a.txt\nd/b.txt\n"
            assert await git.run("diff-files") == b""


async def test_no_job_waits_for_a_checkout_that_is_being_prepared(tmp_path: Path, origin: Origin) -> None:
    source = main_at(origin, origin.commit({"a.txt": "one"}))
    workspaces = Workspaces(tmp_path / "bot")
    async with workspaces.open("first", 1, source):
        await workspaces.prepare_checkout()
    with lock_if_free(tmp_path / "bot/mirrors/1.files.lock") as is_held:
        assert is_held
        assert await files_of(workspaces, origin, "second", source.sha) == {"a.txt": "- one"}
        assert (tmp_path / "bot/mirrors/1.files/commit").exists()
        await workspaces.prepare_checkout()  # another worker does


@pytest.mark.parametrize(
    "damage", ["note", "index", "note, and half the files", "power cut, half the files", "empty note", "taken index"]
)
async def test_an_incomplete_checkout_is_never_used(tmp_path: Path, origin: Origin, damage: str) -> None:
    sha = origin.commit({"a.txt": "one", "b.txt": "two"})
    workspaces = Workspaces(tmp_path / "bot")
    whole = await files_of(workspaces, origin, "first", sha)
    await workspaces.prepare_checkout()
    folder = tmp_path / "bot" / "mirrors" / "1.files"
    if damage == "empty note":
        (folder / "commit").write_text("")
    if damage == "taken index":  # a worker that was killed while it took the checkout
        (folder / "commit").unlink()
        (folder / "index").unlink()
    if "power" in damage:
        (folder / "commit").write_text(f"{sha} another-start-of-the-machine")
    if "note" in damage:
        (folder / "commit").unlink()
    if damage == "index":
        (folder / "commit").unlink()
        (folder / "index").write_bytes(b"half written")
    if "files" in damage:
        (folder / "files" / "a.txt").unlink()
        (folder / "files" / "stray").write_text("x")
    for job in ("second", "third"):
        assert await files_of(workspaces, origin, job, sha) == whole
        await workspaces.prepare_checkout()
    assert (folder / "commit").read_text().startswith(sha)


@pytest.mark.parametrize("killed", ["init", "read-tree"])
async def test_a_preparation_that_is_cut_short_leaves_nothing_to_take(
    tmp_path: Path, origin: Origin, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = origin.commit({"a.txt": "one", "b.txt": "two"})
    workspaces = Workspaces(tmp_path / "bot")
    whole = await files_of(workspaces, origin, "first", sha)
    with monkeypatch.context() as patched:
        began = fake_git(tmp_path, patched, killed, "touch began; exec sleep 600")
        preparing = asyncio.create_task(workspaces.prepare_checkout())
        await eventually(began.exists)
        preparing.cancel()
        await asyncio.wait([preparing])
    assert await files_of(workspaces, origin, "second", sha) == whole


async def test_a_preparation_that_fails_is_logged_and_leaves_nothing(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workspaces = Workspaces(tmp_path / "bot")
    await files_of(workspaces, origin, "first", origin.commit({"a.txt": "one"}))
    fake_git(tmp_path, monkeypatch, "read-tree", "echo 'fatal: write error: No space left on device' >&2; exit 128")
    await workspaces.prepare_checkout()
    assert "no checkout of repository 1 was prepared" in caplog.text
    assert not (tmp_path / "bot/mirrors/1.files").exists()


def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, script: str) -> Path:
    """Replace a command of git by a script in `tmp_path`; return its file `began`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    rest = f'case " $* " in *\' {command} \'*) cd {tmp_path}; {script};; esac\nexec {shutil.which("git")} "$@"\n'
    (folder / "git").write_text(f"#!/bin/sh\n{rest}")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path / "began"


async def test_a_background_command_has_the_lowest_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_git(tmp_path, monkeypatch, "read-tree", "nice; exit")
    assert [await Git(is_background=quiet).text("read-tree", "x") for quiet in (False, True)] == ["0", "19"]


async def test_a_disk_error_is_reported(tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    sha = origin.commit({"a.txt": "one"})
    fake_git(tmp_path, monkeypatch, "read-tree", "echo 'fatal: write error: No space left on device' >&2; exit 128")
    workspaces = Workspaces(tmp_path / "bot")
    with pytest.raises(WorkspaceError, match="No space left"):
        await files_of(workspaces, origin, "job", sha)
    assert list((tmp_path / "bot" / "jobs").iterdir()) == []


async def test_the_jobs_of_a_repository_share_a_code_index_that_lies_outside_of_their_files(
    tmp_path: Path, origin: Origin
) -> None:
    first = origin.commit({"a.py": "def first(): pass\n", "b.py": "def second(): pass\n"})
    second = origin.commit({"b.py": "def third(): pass\n"})
    workspaces = Workspaces(tmp_path / "bot")
    parsed = []
    for job, sha in (("one", first), ("two", first), ("three", second)):
        source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
        async with workspaces.open(job, 1, source) as tree:
            assert tree.code_index is not None
            assert not tree.code_index.is_relative_to(tree.path)
            with Workspace(tree.path) as files:
                index = WorkspaceIndex(files, tree.code_index)
                assert await index.wait_ready(60)
                parsed.append(index.state.parsed)
                assert len(await index.find_definitions("second")) == (sha == first)
                await index.close()
    assert parsed == [2, 0, 1]


async def test_a_cp_that_complains_on_and_on_is_ended_with_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complains = tmp_path / "cp"
    complains.write_text("#!/bin/sh\nexec cat /dev/zero >&2\n")
    complains.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(complains))
    for milliseconds in range(20, 30):
        copying = asyncio.create_task(copy_names(tmp_path, tmp_path, ["a"]))
        await asyncio.wait([copying], timeout=milliseconds / 1000)
        copying.cancel()
        _, left = await asyncio.wait([copying], timeout=20)
        assert not left


ANSWERS: dict[str, tuple[int, str, str, str]] = {
    # status, content type, certainty, public text
    "401": (401, "text/plain", "doubtful", "git on GitHub refused access"),
    "403": (403, "text/plain", "doubtful", "git on GitHub refused access: 403"),
    "404": (404, "text/plain", "doubtful", "git on GitHub refused access"),
    "429": (429, "text/plain", "passing", "git on GitHub answered 429"),
    "503": (503, "text/html", "passing", "git on GitHub answered 503"),
    "redirect": (302, "text/html", "passing", ""),
    # Git takes it for the list of references of an old kind of server.
    "page": (200, "text/html", "doubtful", "git on GitHub does not show the branch or commit"),
    "half an answer": (200, "application/x-git-upload-pack-advertisement", "passing", ""),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_answer_of_a_git_server_is_recognised_from_the_messages_of_git(mirror: Mirror, name: str) -> None:
    status, kind, certainty, symptom = ANSWERS[name]

    async def answer(_: web.Request) -> web.Response:
        headers = {"Location": "https://sso.example/login"} if status == 302 else {}
        return web.Response(status=status, content_type=kind, text="<html>Unicorn!</html>", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with serving(app, None) as port:
        source = Source(url=f"http://127.0.0.1:{port}/o/r.git", token="", ref="refs/heads/main", sha="a" * 40)
        with pytest.raises(CloneError) as refused:
            await replace(mirror, pauses=()).provide(source, keep=None)
    cause = refused.value.__cause__
    assert isinstance(cause, GitError)
    assert cause.certainty == certainty, cause.stderr
    assert symptom in cause.symptom
    assert cause.symptom in refused.value.reason or isinstance(refused.value, RepositoryEmptyError)
    assert "127.0.0.1" not in str(refused.value)


async def test_a_server_that_does_not_listen_is_a_passing_fault_without_its_address(
    mirror: Mirror, origin: Origin
) -> None:
    source = replace(main_at(origin, "a" * 40), url="http://127.0.0.1:9/o/r.git")
    with pytest.raises(CloneError, match="git on GitHub did not answer") as refused:
        await replace(mirror, pauses=()).provide(source, keep=None)
    assert "127.0.0.1" not in str(refused.value)


@pytest.mark.parametrize(
    ("command", "number"),
    [("ls-tree -r {}", errno.ENOSPC), ("archive {}", errno.ENOSPC), ("cat-file blob {}:big.txt", errno.EIO)],
)
async def test_a_full_disk_is_recognised_from_the_messages_of_git(
    mirror: Mirror, origin: Origin, command: str, number: int
) -> None:
    sha = origin.commit({"big.txt": "x" * 1_000_000})
    await mirror.provide(main_at(origin, sha), keep=None)
    with pytest.raises(GitError) as failed:
        await mirror.git.run(*command.format(sha).split(), stdout=Path("/dev/full"))
    assert failed.value.errno == number, failed.value.stderr
