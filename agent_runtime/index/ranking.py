"""Ranking of definitions by words, and by vectors of an OpenAI-compatible service.

`rank_by_words` runs in a worker process; `Embeddings` needs numpy; `fuse` merges both rankings.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_runtime.core.values import EmbeddingService
from agent_runtime.index.store import calls_and_imports, split_words

if TYPE_CHECKING:
    import openai


_WEIGHTS = (8.0, 4.0, 6.0, 4.0)
"""Of name, signature, docstring and body."""
_FILE_WEIGHTS = {"path": 2.0, "names": 1.0, "text": 1.5}
"""Of a file's path, defined names and text."""
_FILE_SHARE = 0.3
"""Share of a file's definitions in each one's score."""
_DECAY = 0.5
"""Weight of each next definition in a file's score."""
_CALLEE_SHARE, _CALLER_SHARE = 0.5, 0.3
"""Share of a definition's score for those that it calls, or that call it, in its file."""
_MAX_CALL_FILES = 8
"""Files in which calls are followed."""
_MAX_HOMONYMS = 2
"""Most definitions that a called name may have in its file."""
_NEXT_WEIGHT = 0.75
"""Weight of each next definition of a file."""
_CANDIDATES = 300
_FUSION_CONSTANT = 60
"""Constant of reciprocal rank fusion; its authors' value."""
_MAX_TERMS = 32
_MAX_TEXT = 4_000
_WORD = re.compile(r"[^\W_]+")
_STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between both but
by  can cannot could did do does doing don down during each else few for from further get gets had has have
having he  her here his how i if in into is isn it its itself just let me might more most must my no nor not
now of off on  once only or other our out over own s same she should so some such t than that the their them
then there these  they this those through to too under until up us use used uses using very was we were what
when where which while  who whom why will with would you your
    """.split()  # noqa: SIM905 - shorter than a list
)
_BEST_DEFINITIONS = (
    # Join, as words outlive their definitions.
    "SELECT d.id, d.file, f.weight, -bm25(words, ?, ?, ?, ?) AS score FROM words "
    "JOIN definitions d ON d.id = words.rowid JOIN files f ON f.id = d.file WHERE words MATCH ? "
    "ORDER BY score * f.weight DESC LIMIT ?"
)
_MATCHING_FILES = "SELECT rowid, -bm25(file_words) FROM file_words WHERE file_words MATCH ?"


def rank_by_words(database: sqlite3.Connection, text: str, limit: int) -> list[int]:
    """Rank definitions by their words, their file's, and their neighbours'."""
    words = query_terms(text)
    if not words:
        return []
    query = " OR ".join(f'"{word}"' for word in words)
    texts: dict[int, float] = {}
    # One query per column: a word common in texts may be rare in paths.
    for column, factor in _FILE_WEIGHTS.items():
        for file, score in database.execute(_MATCHING_FILES, (f"{column} : ({query})",)):
            texts[file] = texts.get(file, 0.0) + factor * score
    own: dict[int, float] = {}
    weights: dict[int, float] = {}
    by_file: dict[int, list[float]] = {}
    members: dict[int, list[int]] = {}
    for number, file, weight, score in database.execute(_BEST_DEFINITIONS, (*_WEIGHTS, query, _CANDIDATES)):
        own[number], weights[file] = score, weight
        by_file.setdefault(file, []).append(score)
        members.setdefault(file, []).append(number)
    of_file = {
        file: texts.get(file, 0.0) + _FILE_SHARE * sum(score * _DECAY**rank for rank, score in enumerate(scores))
        for file, scores in by_file.items()
    }
    scored: list[tuple[float, int]] = []
    for rank, file in enumerate(sorted(by_file, key=lambda item: -of_file[item] * weights[item])):
        gained = _neighbour_scores(database, file, own) if rank < _MAX_CALL_FILES else {}
        scores_in_file = sorted(
            ((own.get(item, 0.0) + gained.get(item, 0.0), item) for item in dict.fromkeys([*members[file], *gained])),
            reverse=True,
        )
        scored += [
            ((score + of_file[file] * _NEXT_WEIGHT**rank) * weights[file], item)
            for rank, (score, item) in enumerate(scores_in_file)
        ]
    return [number for _, number in sorted(scored, key=lambda item: -item[0])[:limit]]


def query_terms(text: str) -> list[str]:
    """Return the distinctive words of a query."""
    words = dict.fromkeys(word.lower() for word in _WORD.findall(split_words(text[:_MAX_TEXT])))
    distinctive = [word for word in words if word not in _STOP_WORDS and (len(word) > 1 or word.isdigit())]
    return (distinctive or list(words))[:_MAX_TERMS]


def _neighbour_scores(database: sqlite3.Connection, file: int, own: Mapping[int, float]) -> dict[int, float]:
    """Return the scores that a file's definitions gain from callers and callees."""
    first, facts = database.execute("SELECT first, facts FROM files WHERE id = ?", (file,)).fetchone()
    by_name: dict[str, list[int]] = {}
    for number, name in database.execute(
        "SELECT id, name FROM definitions WHERE file = ? AND kind <> 'constant'", (file,)
    ):
        by_name.setdefault(name, []).append(number)
    gained: dict[int, float] = {}
    for place, name, receiver, _ in calls_and_imports(facts)[0]:
        called: Sequence[int] = by_name.get(name, ())
        if place < 0 or len(called) > _MAX_HOMONYMS or receiver not in {"", "self", "cls", "this"}:
            continue
        caller = first + place
        for callee in called:
            if callee != caller:
                gained[callee] = max(gained.get(callee, 0.0), _CALLEE_SHARE * own.get(caller, 0.0))
                gained[caller] = max(gained.get(caller, 0.0), _CALLER_SHARE * own.get(callee, 0.0))
    return {number: score for number, score in gained.items() if score}


def fuse(*rankings: Sequence[int]) -> list[int]:
    """Merge rankings by reciprocal rank."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (_FUSION_CONSTANT + rank)
    return sorted(scores, key=lambda number: -scores[number])


_BATCH = 64
_MAX_DIMENSIONS = 8_192  # numbers of one vector
_MAX_QUERY_CHARS = 4_000  # a query may be a whole issue
_NEAREST_SECONDS = 5.0
"""Timeout of a query's vector: the first message waits for it."""
_DAY_SECONDS = 24 * 3600
_CACHE_DAYS = 30
_MAX_CACHED = 60_000
"""Vectors in the shared cache; the least recently used go first."""
_VECTORS = "CREATE TABLE IF NOT EXISTS used_vectors(key BLOB PRIMARY KEY, day INTEGER NOT NULL, vector BLOB NOT NULL)"


class EmbeddingError(Exception):
    """The service returned no vectors."""


class Embeddings:
    """Vectors of a workspace's definitions, cached by text, so that no text is sent twice."""

    def __init__(self, service: EmbeddingService, cache_path: Path) -> None:
        """Store the options; `cache_path` is their file."""
        self._service = service
        self._cache_path = cache_path
        # Replaced, never modified, as a thread may be reading it.
        self._vectors: tuple[tuple[int, bytes], ...] = ()
        self._matrix: tuple[object, list[int], Any] | None = None
        self._client: openai.AsyncOpenAI | None = None

    @property
    def count(self) -> int:
        """Number of ranked definitions."""
        return len(self._vectors)

    async def update(self, texts: Sequence[tuple[int, str]]) -> None:
        """Rank exactly these definitions, by number.

        Raises:
            EmbeddingError: some have no vector; the others are ranked.
        """
        vectors: list[tuple[int, bytes]] = []
        try:
            for start in range(0, len(texts), _BATCH):
                part = texts[start : start + _BATCH]
                keys = [self._key(text) for _, text in part]
                cached = await asyncio.to_thread(self._load_cached, keys)
                new = {key: text for key, (_, text) in zip(keys, part, strict=True) if key not in cached}
                if new:
                    created = dict(zip(new, await self._request(list(new.values())), strict=True))
                    await asyncio.to_thread(self._store, created)
                    cached |= created
                vectors += [(number, cached[key]) for (number, _), key in zip(part, keys, strict=True)]
            await asyncio.to_thread(self._prune)
        finally:
            self._vectors = tuple(vectors)

    async def nearest(self, text: str, limit: int) -> list[int]:
        """Return the definitions nearest to a text, best first.

        Raises:
            EmbeddingError: no vector, or not in time.
        """
        if not self._vectors:
            return []
        try:
            async with asyncio.timeout(_NEAREST_SECONDS):
                (vector,) = await self._request([text[:_MAX_QUERY_CHARS]])
        except TimeoutError as error:
            raise EmbeddingError("the embedding service took too long over a question") from error
        return await asyncio.to_thread(self._rank, vector, limit)

    async def close(self) -> None:
        """Close connections; idempotent."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _key(self, text: str) -> bytes:
        whole = f"{self._service.base_url}\0{self._service.model}\0{text}"
        return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=16).digest()

    async def _request(self, texts: list[str]) -> list[bytes]:
        """Request unit vectors, as float32.

        Raises:
            EmbeddingError: no or invalid vectors.
        """
        import numpy as np  # noqa: PLC0415 - needed only with a service
        import openai  # noqa: PLC0415 - the same

        service = self._service
        if self._client is None:
            self._client = openai.AsyncOpenAI(
                api_key=service.api_key or "none", base_url=service.base_url, timeout=service.seconds
            )
        try:
            async with asyncio.timeout(service.seconds):  # the client's own timeout applies to each attempt
                answer = await self._client.embeddings.create(model=service.model, input=texts, encoding_format="float")
            vectors = [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]
            matrix = np.asarray(vectors, dtype=np.float32)
        except TimeoutError as error:
            raise EmbeddingError(f"the embedding service gave no vectors in {service.seconds:g} seconds") from error
        except openai.OpenAIError as error:
            raise EmbeddingError(f"the embedding service gave no vectors: {type(error).__name__}") from error
        except (TypeError, ValueError) as error:
            raise EmbeddingError("the embedding service gave vectors of different lengths, or none at all") from error
        if matrix.ndim != 2 or len(matrix) != len(texts) or not 0 < matrix.shape[1] <= _MAX_DIMENSIONS:  # noqa: PLR2004 - a matrix
            raise EmbeddingError("the embedding service did not give one vector for each text")
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise EmbeddingError("the embedding service gave vectors that are no numbers")
        return [row.tobytes() for row in matrix / np.maximum(lengths, 1e-12)]

    def _rank(self, query: bytes, limit: int) -> list[int]:
        import numpy as np  # noqa: PLC0415 - see above

        vectors, cached = self._vectors, self._matrix
        if cached is None or cached[0] is not vectors or cached[2].shape[1] != len(query) // 4:
            same = [(number, vector) for number, vector in vectors if len(vector) == len(query)]
            joined = b"".join(vector for _, vector in same)
            matrix = np.frombuffer(joined, dtype=np.float32).reshape(len(same), len(query) // 4)
            self._matrix = cached = (vectors, [number for number, _ in same], matrix)
        _, numbers, matrix = cached
        if not numbers:
            return []
        likeness = matrix @ np.frombuffer(query, dtype=np.float32)
        return [numbers[place] for place in np.argsort(-likeness)[:limit]]

    def _load_cached(self, keys: list[bytes]) -> dict[bytes, bytes]:
        placeholders = ", ".join("?" * len(keys))
        try:
            with closing(sqlite3.connect(self._cache_path)) as database, database:
                database.execute(_VECTORS)
                statement = f"UPDATE used_vectors SET day = ? WHERE key IN ({placeholders}) RETURNING key, vector"  # noqa: S608 - marks only
                return dict(database.execute(statement, [_today(), *keys]))
        except sqlite3.OperationalError:  # a disk error: request them again
            return {}
        except sqlite3.DatabaseError:  # damaged; remove it, or every later run would request all vectors again
            for end in ("", "-journal"):
                with suppress(OSError):
                    Path(f"{self._cache_path}{end}").unlink()
            return {}

    def _store(self, vectors: dict[bytes, bytes]) -> None:
        try:
            with closing(sqlite3.connect(self._cache_path)) as database, database:
                database.execute(_VECTORS)
                rows = [(key, _today(), vector) for key, vector in vectors.items()]
                database.executemany("INSERT OR IGNORE INTO used_vectors VALUES (?, ?, ?)", rows)
        except sqlite3.DatabaseError:  # the vectors serve this run only
            return

    def _prune(self) -> None:
        try:
            with closing(sqlite3.connect(self._cache_path)) as database, database:
                database.execute("DELETE FROM used_vectors WHERE day < ?", [_today() - _CACHE_DAYS])
                beyond = "SELECT rowid FROM used_vectors ORDER BY day DESC, rowid DESC LIMIT -1 OFFSET ?"
                database.execute(f"DELETE FROM used_vectors WHERE rowid IN ({beyond})", [_MAX_CACHED])  # noqa: S608 - our own
        except sqlite3.DatabaseError:  # the next run tries again
            return


def _today() -> int:
    return int(time.time() // _DAY_SECONDS)
