from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agent_runtime import AgentFile, SettingsError
from agent_runtime.core.values import EmbeddingService
from agent_runtime.index import ranking
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.index.ranking import EmbeddingError, Embeddings, fused
from agent_runtime.workspace.files import Workspace
from tests.waiting import eventually

_MEANINGS = {"automobile": 0, "engine": 0, "wheel": 0, "jam": 1, "fruit": 1, "sugar": 1}
_SOURCE = "def wheel(): pass\n\ndef sugar(): pass\n\ndef other(): pass\n"


class _Service:
    """An embedding service on a real socket, which knows what a few words mean."""

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


async def test_vectors_find_what_words_do_not_and_are_asked_for_once(
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
                workspace, tmp_path / "kept.db", withholds=lambda path: path == "hidden.py", service=told
            )
            assert await index.ready(60)
            await eventually(partial(getattr, index, "ranked_by_vectors"))
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
        await made.take([(1, "wheel"), (2, "sugar")])
    await made.close()


async def test_kept_vectors_that_are_damaged_are_made_again_once(
    service: tuple[_Service, EmbeddingService], tmp_path: Path
) -> None:
    fake, told = service
    (tmp_path / "kept.vectors").write_bytes(b"no database" * 100)
    made = Embeddings(told, tmp_path / "kept.vectors")
    await made.take([(1, "wheel"), (2, "sugar")])
    assert await made.nearest("engine", 1) == [1]
    fake.texts.clear()
    await made.take([(1, "wheel"), (2, "sugar")])
    assert not fake.texts
    await made.close()


async def test_of_kept_vectors_those_stay_that_runs_use(
    service: tuple[_Service, EmbeddingService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, told = service
    made = Embeddings(told, tmp_path / "kept.vectors")

    async def asked(day: int, *texts: str) -> list[str]:
        """What the service is asked for on a day."""
        monkeypatch.setattr(ranking, "_today", lambda: day)
        fake.texts.clear()
        await made.take(list(enumerate(texts)))
        return fake.texts[:]

    assert await asked(0, "wheel", "sugar") == ["wheel", "sugar"]
    assert await asked(20, "sugar") == []
    assert await asked(40, "sugar", "jam") == ["jam"]
    assert await asked(40, "wheel") == ["wheel"]
    monkeypatch.setattr(ranking, "_MOST_KEPT", 2)
    assert await asked(41, "sugar", "engine") == ["engine"]
    assert await asked(41, "sugar", "engine") == []
    assert await asked(41, "jam") == ["jam"]
    await made.close()


async def test_vectors_of_another_length_than_a_question_has_rank_nothing(
    service: tuple[_Service, EmbeddingService], tmp_path: Path
) -> None:
    fake, told = service
    ranked = Embeddings(told, tmp_path / "vectors")
    await ranked.take([(1, "wheel")])
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
        assert await index.ready(60)
        await eventually(partial(getattr, index, "ranked_by_vectors"))
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
        await made.take([(1, "wheel")])
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
        assert await index.ready(60)
        await eventually(lambda: fake.waiting)
        fake.hangs = False
        (tmp_path / "a.py").write_text(_SOURCE)
        assert await index.ready(60)
        await eventually(partial(getattr, index, "ranked_by_vectors"))
        assert [each.name for each in await index.search("automobile", 1)] == ["wheel"]
        await eventually(lambda: not fake.waiting)  # the first request was given up
        await index.close()


def test_rankings_are_fused_by_reciprocal_rank() -> None:
    assert fused([1, 2, 3], [4, 2, 1]) == [1, 2, 4, 3]
    assert fused([], [2]) == [2]


def test_an_agent_file_names_the_service_and_the_variable_of_its_key(tmp_path: Path) -> None:
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
