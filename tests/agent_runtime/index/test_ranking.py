"""Definitions rank by their words, their file's, and their callers."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agent_runtime import AgentFile, SettingsError
from agent_runtime.core.values import EmbeddingService
from agent_runtime.index import ranking, store
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.index.ranking import EmbeddingError, Embeddings, fuse, rank_by_words
from agent_runtime.workspace.files import Workspace
from tests.waiting import eventually

_SOURCES = {
    "upload/decoder.py": (
        '"""Multipart bodies of requests: where a part ends is found by its boundary."""\n\n\n'
        "class Decoder:\n"
        '    """Decodes multipart bodies."""\n\n'
        "    def next_event(self):\n"
        '        """The next part of a multipart body, up to its boundary."""\n'
        "        return self._cut(self.buffer)\n\n"
        "    def _cut(self, buffer):\n        return buffer[:1]\n\n"
        "    def reset(self):\n        self.buffer = b''\n"
    ),
    "upload/__init__.py": "",
    "a.py": "def connect(host):\n    return host\n",
    "z.py": "# Speaks TLS.\n\nPORT = 465\n\n\ndef connect(host):\n    return host\n",
    "orders.py": "def boundary():\n    return 1\n\n\ndef ship(parcel):\n    return parcel\n",
    "dist/orders.py": "def ship(parcel):\n    return parcel\n",
    "crowd.py": "\n\n".join(f"def paint_{each}(wall):\n    return 'paint', wall\n" for each in "abcdefgh"),
    "brush.py": "def clean(brush):\n    # after one has painted\n    return brush.paint\n",
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> sqlite3.Connection:
    return _indexed(tmp_path_factory.mktemp("ranked"), _SOURCES)


def _indexed(root: Path, sources: Mapping[str, str]) -> sqlite3.Connection:
    for name, text in sources.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    _, _, data = store.refresh(Workspace(root), str(root / "none"), 100, 60.0, []).partition(b"\n")
    database = sqlite3.connect(":memory:")
    database.deserialize(data)
    return database


def _ranked_names(database: sqlite3.Connection, text: str, most: int = 20) -> list[str]:
    told = dict(
        database.execute("SELECT d.id, path || ':' || qualified FROM definitions d JOIN files f ON f.id = d.file")
    )
    return [told[number] for number in rank_by_words(database, text, most)]


def test_a_helper_without_query_words_is_found_by_its_callers(database: sqlite3.Connection) -> None:
    found = _ranked_names(database, "A multipart body is searched for its boundary again and again")
    assert "upload/decoder.py:Decoder._cut" in found
    assert "upload/decoder.py:Decoder.reset" not in found


def test_of_two_definitions_that_fit_alike_the_one_in_a_file_about_the_question_is_first(
    database: sqlite3.Connection,
) -> None:
    assert _ranked_names(database, "connect to a host with TLS")[:2] == ["z.py:connect", "a.py:connect"]


def test_a_common_word_counts_in_the_only_path_that_contains_it(tmp_path: Path) -> None:
    text = "def send(order):\n    return order.parcel\n"
    sources = {f"step_{each}.py": text for each in "abcdefg"} | {
        "parcel.py": text,
        "quay.py": f"# At the dock.\n\n{text}",
    }
    assert _ranked_names(_indexed(tmp_path, sources), "a parcel at the dock")[0] == "parcel.py:send"


def test_a_copy_ranks_after_its_original(database: sqlite3.Connection) -> None:
    assert _ranked_names(database, "ship a parcel") == ["orders.py:ship", "dist/orders.py:ship"]


def test_definitions_of_one_file_do_not_take_all_places(database: sqlite3.Connection) -> None:
    assert "brush.py:clean" in _ranked_names(database, "paint", 5)


def test_a_question_without_words_finds_nothing(database: sqlite3.Connection) -> None:
    assert _ranked_names(database, "?!") == []


_MEANINGS = {"automobile": 0, "engine": 0, "wheel": 0, "jam": 1, "fruit": 1, "sugar": 1}
_SOURCE = "def wheel(): pass\n\ndef sugar(): pass\n\ndef other(): pass\n"


class _Service:
    """An embedding service on a socket that knows a few synonyms."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.keys: list[str] = []
        self.hangs = False
        self.waiting = 0
        self.answer: Callable[[list[str]], Any] = lambda texts: list(map(self._vector, texts))

    async def embed(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if self.hangs:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        self.texts += asked["input"]
        self.keys.append(request.headers["Authorization"])
        made = self.answer(asked["input"])
        if isinstance(made, int):
            return web.json_response({"error": {"message": "no"}}, status=made)
        data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(made)]
        return web.json_response(
            {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        )

    def _vector(self, text: str) -> list[float]:
        vector = [0.0, 0.0, 0.01]
        for word in re.findall(r"[a-z]+", text):
            if word in _MEANINGS:
                vector[_MEANINGS[word]] += 1
        return vector


@pytest.fixture
async def service() -> AsyncIterator[tuple[_Service, EmbeddingService]]:
    fake, app = _Service(), web.Application()
    app.router.add_post("/v1/embeddings", fake.embed)
    async with TestServer(app) as server:
        yield fake, EmbeddingService(model="m", base_url=str(server.make_url("/v1")), api_key="secret", seconds=10)


async def test_vectors_find_synonyms_and_are_requested_once(
    service: tuple[_Service, EmbeddingService], tmp_path: Path
) -> None:
    fake, told = service
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(_SOURCE)
    (root / "hidden.py").write_text("def private(): pass\n")
    for run in range(2):
        with Workspace(root) as workspace:
            index = WorkspaceIndex(
                workspace, tmp_path / "kept.db", is_hidden=lambda path: path == "hidden.py", service=told
            )
            assert await index.wait_ready(60)
            await eventually(partial(getattr, index, "vector_count"))
            assert [each.name for each in await index.search("automobile", 1)] == ["wheel"]
            assert [each.name for each in await index.search("fruit with sugar", 1)] == ["sugar"]
            await index.close()
        assert len([text for text in fake.texts if text.startswith("a.py ")]) == 3, f"run {run} sends nothing again"
    assert not [text for text in fake.texts if "private" in text]
    assert set(fake.keys) == {"Bearer secret"}


@pytest.mark.parametrize(
    "answer",
    [
        lambda _texts: 401,
        lambda _texts: [],
        lambda texts: [[1.0] * 9_000 for _ in texts],
        lambda texts: [[float(at)] * (at + 1) for at, _ in enumerate(texts)] + [[1.0]],
        lambda texts: [["x"] for _ in texts],
    ],
)
async def test_a_service_that_gives_no_vectors_is_an_error_of_its_own(
    service: tuple[_Service, EmbeddingService], tmp_path: Path, answer: Callable[[list[str]], Any]
) -> None:
    fake, told = service
    fake.answer = answer
    made = Embeddings(told, tmp_path / "kept.vectors")
    with pytest.raises(EmbeddingError):
        await made.update([(1, "wheel"), (2, "sugar")])
    await made.close()


async def test_damaged_cached_vectors_are_requested_again_once(
    service: tuple[_Service, EmbeddingService], tmp_path: Path
) -> None:
    fake, told = service
    (tmp_path / "kept.vectors").write_bytes(b"no database" * 100)
    made = Embeddings(told, tmp_path / "kept.vectors")
    await made.update([(1, "wheel"), (2, "sugar")])
    assert await made.nearest("engine", 1) == [1]
    fake.texts.clear()
    await made.update([(1, "wheel"), (2, "sugar")])
    assert not fake.texts
    await made.close()


async def test_recently_used_cached_vectors_stay(
    service: tuple[_Service, EmbeddingService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, told = service
    made = Embeddings(told, tmp_path / "kept.vectors")

    async def requests_on(day: int, *texts: str) -> list[str]:
        """Return the service's requests on a day."""
        monkeypatch.setattr(ranking, "_today", lambda: day)
        fake.texts.clear()
        await made.update(list(enumerate(texts)))
        return fake.texts[:]

    assert await requests_on(0, "wheel", "sugar") == ["wheel", "sugar"]
    assert await requests_on(20, "sugar") == []
    assert await requests_on(40, "sugar", "jam") == ["jam"]
    assert await requests_on(40, "wheel") == ["wheel"]
    monkeypatch.setattr(ranking, "_MAX_CACHED", 2)
    assert await requests_on(41, "sugar", "engine") == ["engine"]
    assert await requests_on(41, "sugar", "engine") == []
    assert await requests_on(41, "jam") == ["jam"]
    await made.close()


async def test_vectors_of_another_length_than_a_question_has_rank_nothing(
    service: tuple[_Service, EmbeddingService], tmp_path: Path
) -> None:
    fake, told = service
    ranked = Embeddings(told, tmp_path / "vectors")
    await ranked.update([(1, "wheel")])
    before = fake.answer
    for answer, found in ((lambda texts: [[1.0, 0.0] for _ in texts], []), (before, [1]), (lambda _: [[1.0]], [])):
        fake.answer = answer  # another model under the same name
        assert await ranked.nearest("automobile", 5) == found
    await ranked.close()


async def test_a_service_that_hangs_leaves_a_search_to_words(
    service: tuple[_Service, EmbeddingService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, told = service
    monkeypatch.setattr(ranking, "_NEAREST_SECONDS", 0.05)
    (tmp_path / "a.py").write_text(_SOURCE)
    with Workspace(tmp_path) as workspace:
        index = WorkspaceIndex(workspace, service=told)
        assert await index.wait_ready(60)
        await eventually(partial(getattr, index, "vector_count"))
        fake.hangs = True
        assert [each.name for each in await index.search("sugar", 1)] == ["sugar"]
        assert "too long" in index.state.problem
        await index.close()


async def test_the_bound_of_a_request_is_of_all_its_attempts(
    service: tuple[_Service, EmbeddingService], tmp_path: Path
) -> None:
    fake, told = service
    fake.hangs = True
    made = Embeddings(replace(told, seconds=0.3), tmp_path / "kept")
    with pytest.raises(EmbeddingError, match=r"in 0\.3 seconds"):
        await made.update([(1, "wheel")])
    await eventually(lambda: not fake.waiting)
    await made.close()


async def test_definitions_that_changed_meanwhile_end_the_request_for_the_old_ones(
    service: tuple[_Service, EmbeddingService], tmp_path: Path
) -> None:
    fake, told = service
    fake.hangs = True
    (tmp_path / "a.py").write_text("def old(): pass\n")
    with Workspace(tmp_path) as workspace:
        index = WorkspaceIndex(workspace, service=replace(told, seconds=300))
        assert await index.wait_ready(60)
        await eventually(lambda: fake.waiting)
        fake.hangs = False
        (tmp_path / "a.py").write_text(_SOURCE)
        assert await index.wait_ready(60)
        await eventually(partial(getattr, index, "vector_count"))
        assert [each.name for each in await index.search("automobile", 1)] == ["wheel"]
        await eventually(lambda: not fake.waiting)  # the first request was given up
        await index.close()


def test_rankings_are_fused_by_reciprocal_rank() -> None:
    assert fuse([1, 2, 3], [4, 2, 1]) == [1, 2, 4, 3]
    assert fuse([], [2]) == [2]


def test_an_agent_file_names_the_service_and_the_variable_of_its_key(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("- reply: Hello.\n")
    (tmp_path / "agent.yaml").write_text(
        "agent:\n  name: a\n  model: {provider: scripted, script: r}\n  index: {api_key_env: VOYAGE_API_KEY}\n"
    )
    described = AgentFile.load(tmp_path / "agent.yaml")
    found = described.embeddings({"VOYAGE_API_KEY": "k"})
    assert found == EmbeddingService(
        model="voyage-code-3", base_url="https://api.voyageai.com/v1", api_key="k", seconds=60.0, most=50
    )
    assert "'k'" not in repr(found)
    with pytest.raises(SettingsError, match="VOYAGE_API_KEY"):
        described.embeddings({})
