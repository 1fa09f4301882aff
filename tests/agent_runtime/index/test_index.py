from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import pytest

from agent_runtime.core.errors import BoundExceededError
from agent_runtime.index import index as index_module
from agent_runtime.index import store
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.index.store import SCHEMA, digest_of
from agent_runtime.processes.bounded_worker import MAX_PLAIN_BYTES
from agent_runtime.workspace.files import Workspace

_READY = 60.0
_BASKET = '''"""Baskets."""

from shop.prices import discounted


class Basket:
    """What a customer is about to buy."""

    # Kept sorted.
    @property
    def total(self):
        """The sum of all prices, rounded to whole cents."""
        return discounted(sum(self.prices))

    def empty(self):
        def clear():
            self.prices = []

        clear()


LIMIT = 10
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shop = tmp_path / "work" / "shop"
    shop.mkdir(parents=True)
    (shop / "basket.py").write_text(_BASKET)
    (shop / "prices.py").write_text("def discounted(price):\n    return price * 0.9\n")
    tests = shop.parent / "tests"
    tests.mkdir()
    (tests / "test_basket.py").write_text("def test_total_is_the_sum_of_all_prices():\n    assert True\n")
    return shop.parent


@contextlib.asynccontextmanager
async def _index(root: Path, index_dir: Path | None = None, hidden: str = "/") -> AsyncIterator[WorkspaceIndex]:
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, index_dir, is_hidden=lambda path: path == hidden)
        try:
            assert await index.wait_ready(_READY)
            yield index
        finally:
            await index.close()


async def test_definitions_are_found_by_descriptive_words(root: Path) -> None:
    async with _index(root) as index:
        assert next(iter(await index.search("sums up prices in cents"))).qualified == "Basket.total"


async def test_a_definition_is_whole_with_its_decorators_and_comments(root: Path) -> None:
    async with _index(root) as index:
        (found,) = await index.find_definitions("Basket.total")
        assert (found.path, found.kind, found.first, found.header, found.last) == (
            "shop/basket.py",
            "method",
            9,
            11,
            13,
        )
        assert (found.parents, found.is_test) == ((6,), False)


@pytest.mark.parametrize(
    "symbol", ["total", "Basket.total", "shop/basket.py::Basket.total", "shop.basket.Basket.total"]
)
async def test_a_definition_is_found_by_name_and_by_path(root: Path, symbol: str) -> None:
    async with _index(root) as index:
        assert [each.qualified for each in await index.find_definitions(symbol)] == ["Basket.total"]


async def test_the_innermost_definition_holds_a_line(root: Path) -> None:
    async with _index(root) as index:
        found = await index.definition_at("shop/basket.py", 17)
        assert found is not None
        assert (found.qualified, found.parents) == ("Basket.empty.clear", (6, 15))
        assert await index.definition_at("shop/basket.py", 2) is None


async def test_changed_files_are_found_after_a_refresh(root: Path) -> None:
    async with _index(root) as index:
        (root / "shop" / "basket.py").write_text("def weigh_parcel():\n    return 1\n")
        (root / "shop" / "prices.py").unlink()
        assert await index.wait_ready(_READY)
        assert [each.name for each in await index.search("weigh parcel")] == ["weigh_parcel"]
        assert await index.find_definitions("Basket") == await index.find_definitions("discounted") == []


async def test_a_hidden_file_is_not_reported(root: Path) -> None:
    async with _index(root, hidden="shop/basket.py") as index:
        assert await index.find_definitions("Basket") == []
        assert {each.path for each in await index.search("basket total prices")} == {
            "tests/test_basket.py",
            "shop/prices.py",
        }
        assert await index.callers("discounted") == []
        assert await index.graph("discounted", 2) == []


async def test_an_outline_has_the_names_of_files_that_are_neither_hidden_nor_too_large(root: Path) -> None:
    (root / "shop" / "large.py").write_text("def first(): ...\n" + "#" * store.MAX_FILE_BYTES)
    async with _index(root, hidden="shop/basket.py") as index:
        outlines = {outline.path: outline.names for outline in await index.outline_files([])}
    tests = ("test_total_is_the_sum_of_all_prices",)
    assert outlines == {"shop/large.py": None, "shop/prices.py": ("discounted",), "tests/test_basket.py": tests}


async def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("def stolen(): pass\n")
    (root / "inside.py").symlink_to(tmp_path / "elsewhere.py")
    (root / "shop" / "all").symlink_to(tmp_path)
    async with _index(root) as index:
        assert await index.find_definitions("stolen") == []


@pytest.mark.parametrize("swapped", [os.mkfifo, lambda path: Path(path).symlink_to("/etc/hostname")])
def test_a_replacement_of_a_listed_file_is_not_read(tmp_path: Path, swapped: Callable[[Path], None]) -> None:
    swapped(tmp_path / "seen.py")
    doing = store._Refresh(tmp_path / "none", 10, float("inf"), frozenset())
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        store._refresh_file(doing, descriptor, "seen.py", "seen.py", None)
    finally:
        os.close(descriptor)
    digests = doing.store.database.execute("SELECT digest FROM files").fetchall()
    assert set(digests) <= {(digest_of(b""),)}


async def test_strangers_files_are_read_within_bounds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_MEMORY", 1)
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace)
        assert not await index.wait_ready(_READY)
        assert "memory" in index.state.problem
        await index.close()


@pytest.mark.parametrize(("bound", "is_kept"), [("seconds", False), ("memory", True)])
async def test_a_file_that_was_refused_on_a_busy_machine_is_tried_again_by_the_next_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: Literal["seconds", "memory"], *, is_kept: bool
) -> None:
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, tmp_path / "kept.db")
        real = index._run_round

        async def slow(place: Path, most: int) -> tuple[dict[str, object], bytes]:
            if most and not index._refused:
                raise BoundExceededError("too much", bound=bound)
            return await real(place, most)

        monkeypatch.setattr(index, "_run_round", slow)
        assert await index.wait_ready(_READY)
        assert await index.find_definitions("discounted")
        assert len(index._refused) == 1
        await index.close()
    assert (tmp_path / "kept.db").exists() is is_kept


async def test_questions_are_answered_within_bounds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _index(root) as index:
        monkeypatch.setattr(index_module, "_QUERY_SECONDS", 0.000_01)
        assert not await index.find_definitions("Basket")
        assert "seconds" in index.failure


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"no index",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"codepilot-index ", b"codepilot-index 9"),
        lambda data: data.replace(b"Basket", b"Casket"),
    ],
)
async def test_a_damaged_or_foreign_cached_index_is_rebuilt(
    root: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    kept = tmp_path / "kept.db"
    async with _index(root, kept):
        whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    async with _index(root, kept) as index:
        assert len(await index.find_definitions("Basket")) == 1
        assert kept.read_bytes().partition(b" ")[0] == b"codepilot-index"
        assert len(kept.read_bytes()) == len(whole)


async def test_a_definition_is_found_after_many_edits_of_its_file(root: Path) -> None:
    async with _index(root) as index:
        for price in range(5):
            (root / "shop" / "labels.py").write_text(
                "\n".join(f"def label_{number}():\n    return {price}\n" for number in range(100))
            )
            assert await index.wait_ready(_READY)
        assert len(await index.search("label", 5)) == 5


async def test_a_failed_query_differs_from_an_empty_result(root: Path) -> None:
    async with _index(root) as index:
        for symbol in ("\ud800", "nothing"):
            assert not await index.find_definitions(symbol)
            assert bool(index.failure) == (symbol != "nothing")
            assert not await index.callers(symbol)
            assert bool(index.failure) == (symbol != "nothing")
        assert await index.definition_at("shop/basket.py", 10**30) is None


async def test_an_index_too_large_because_of_removed_files_is_rebuilt(root: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.db"
    async with _index(root, kept) as index:
        assert index.database_path is not None
        database = tmp_path / "large.db"
        database.write_bytes(index.database_path.read_bytes())
    with contextlib.closing(sqlite3.connect(database)) as large, large:
        large.execute("CREATE TABLE gone AS SELECT zeroblob(?)", (MAX_PLAIN_BYTES,))
    data = database.read_bytes()
    kept.write_bytes(b"codepilot-index %d %s\n" % (SCHEMA, digest_of(data).hex().encode()) + data)
    (root / "shop" / "prices.py").write_text("def reduced(): pass\n")
    async with _index(root, kept) as index:
        assert len(await index.find_definitions("reduced")) == 1
    assert kept.stat().st_size < MAX_PLAIN_BYTES


async def test_an_index_that_is_closed_while_it_begins_leaves_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, kept = tmp_path / "tmp", tmp_path / "kept.db"
    temporary.mkdir()
    os.mkfifo(kept)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace, kept)
        assert not await index.wait_ready(0.01)  # it waits for what is kept
        closing = asyncio.create_task(index.close())
        await asyncio.to_thread(kept.write_bytes, b"none")
        await closing
    assert list(temporary.iterdir()) == []
