"""What a fetched history may hold: decision 37."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bot.git.errors import CloneError, WorkspaceError
from bot.git.mirror import Mirror, Source
from bot.git.workspace import Workspaces
from tests.odd_histories import follow, two_authors, two_links, with_author, with_message, with_tree
from tests.origin import Origin

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
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "origin")


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(path=tmp_path / "mirror.git", lock=tmp_path / "mirror.lock")


def main_at(origin: Origin, sha: str) -> Source:
    return Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)


async def test_faults_of_old_history_that_harm_nobody_are_fetched(origin: Origin, mirror: Mirror) -> None:
    sha = follow(origin, *(make(origin) for make in HARMLESS.values()))
    await mirror.provide(main_at(origin, sha), keep=None)


@pytest.mark.parametrize("fault", HARMFUL)
async def test_what_could_write_elsewhere_or_run_something_is_refused(
    fault: str, origin: Origin, mirror: Mirror
) -> None:
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
