"""However many files a run leaves, the event loop neither waits for their disk nor works on them one by one."""

from __future__ import annotations

import os
import sys
import threading
from asyncio import events
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from tests.origin import Origin

FEW, MANY = 50, 400
_ON_DISK = ("stat", "lstat", "open", "scandir", "listdir", "unlink", "mkdir")


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    origin = Origin(tmp_path / "origin")
    origin.commit({"keep.txt": "same\n", ".gitattributes": "*.txt text=auto\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        yield tree


def _add_files(tree: Tree, number: int) -> None:
    folder = tree.path / f"files-{number}"
    folder.mkdir()
    for name in range(number):
        (folder / f"{name}.txt").write_text(f"line {name}\n")


@contextmanager
def calls_in_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the calls of Python and C functions in each turn of the loop."""
    turns: list[int] = []
    run: Callable[[events.Handle], None] = events.Handle._run

    def count(*_event: object) -> None:
        turns[-1] += 1

    def counted(handle: events.Handle) -> None:
        turns.append(0)
        sys.setprofile(count)
        try:
            run(handle)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patched:
        patched.setattr(events.Handle, "_run", counted)
        yield turns


async def test_no_turn_of_the_loop_works_on_the_files_one_by_one(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    most = []
    for number in (FEW, MANY):
        _add_files(tree, number)
        with calls_in_turns(monkeypatch) as turns:
            assert len((await tree.change()).files) >= number
        most.append(max(turns))
    # Lists of names are joined there: a call for each. The work that was there took more than fifty.
    assert most[1] < most[0] + 4 * (MANY - FEW)


async def test_the_loop_waits_for_the_disk_as_often_for_more_files(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    own, calls = threading.get_ident(), 0

    def counting(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += threading.get_ident() == own
            return call(*args, **kwargs)

        return counted

    counts = []
    for number in (FEW, MANY):
        _add_files(tree, number)
        calls = 0
        with monkeypatch.context() as patched:
            for name in _ON_DISK:
                patched.setattr(os, name, counting(getattr(os, name)))
            assert len((await tree.change()).files) >= number
        counts.append(calls)
    assert counts[1] < counts[0] + (MANY - FEW) // 2, counts
