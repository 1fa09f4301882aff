"""Rank the definitions of an index for a text: by its words, and by vectors of an embedding service if there is one.

`ranked` runs in a worker process, over the tables of `store`. `Embeddings` asks an OpenAI-compatible service and needs
numpy; both rankings are merged by `fused`.
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
"""Of a file's path, of the names that it defines, and of its text."""
_FILE_PART = 0.3
"""What a file's definitions together add to each of them."""
_DECAY = 0.5
"""Of a file, the best definition counts whole, the second one half, and so on: several fit better than one."""
_CALLED, _CALLING = 0.5, 0.3
"""Of a definition's own score, what those get that it calls in its file, and that call it there."""
_FOLLOWED = 8
"""Files in which calls are followed."""
_ALIKE = 2
"""Definitions of one name in a file that a call of that name may all mean."""
_AGAIN = 0.75
"""What each further definition of a file counts, after the one that is ranked before it."""
_CANDIDATES = 300
_SMOOTH = 60
"""Of reciprocal rank fusion: how little the first places stand out; the value of its authors."""
_MOST_TERMS = 32
_MOST_TEXT = 4_000
_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between both but
by  can cannot could did do does doing don down during each else few for from further get gets had has have
having he  her here his how i if in into is isn it its itself just let me might more most must my no nor not
now of off on  once only or other our out over own s same she should so some such t than that the their them
then there these  they this those through to too under until up us use used uses using very was we were what
when where which while  who whom why will with would you your
    """.split()  # noqa: SIM905 - a list of so many words is read by nobody
)
_BEST = (
    # Words outlive the definitions that they were of, which must not take the places of others.
    "SELECT d.id, d.file, f.weight, -bm25(words, ?, ?, ?, ?) AS score FROM words "
    "JOIN definitions d ON d.id = words.rowid JOIN files f ON f.id = d.file WHERE words MATCH ? "
    "ORDER BY score * f.weight DESC LIMIT ?"
)
_FILES = "SELECT rowid, -bm25(file_words) FROM file_words WHERE file_words MATCH ?"


def ranked(database: sqlite3.Connection, text: str, most: int) -> list[int]:
    """The numbers of definitions for a text, best first: each by its words, its file's, and those of its neighbours."""
    words = terms(text)
    if not words:
        return []
    query = " OR ".join(f'"{word}"' for word in words)
    texts: dict[int, float] = {}
    # One question for each column: a word that every text has may be in the path of one file only.
    for column, factor in _FILE_WEIGHTS.items():
        for file, score in database.execute(_FILES, (f"{column} : ({query})",)):
            texts[file] = texts.get(file, 0.0) + factor * score
    own: dict[int, float] = {}
    weights: dict[int, float] = {}
    by_file: dict[int, list[float]] = {}
    members: dict[int, list[int]] = {}
    for number, file, weight, score in database.execute(_BEST, (*_WEIGHTS, query, _CANDIDATES)):
        own[number], weights[file] = score, weight
        by_file.setdefault(file, []).append(score)
        members.setdefault(file, []).append(number)
    of_file = {
        file: texts.get(file, 0.0) + _FILE_PART * sum(score * _DECAY**place for place, score in enumerate(scores))
        for file, scores in by_file.items()
    }
    scored: list[tuple[float, int]] = []
    for place, file in enumerate(sorted(by_file, key=lambda each: -of_file[each] * weights[each])):
        near = _neighbours(database, file, own) if place < _FOLLOWED else {}
        found = sorted(
            ((own.get(each, 0.0) + near.get(each, 0.0), each) for each in dict.fromkeys([*members[file], *near])),
            reverse=True,
        )
        scored += [
            ((score + of_file[file] * _AGAIN**before) * weights[file], each)
            for before, (score, each) in enumerate(found)
        ]
    return [number for _, number in sorted(scored, key=lambda each: -each[0])[:most]]


def terms(text: str) -> list[str]:
    """The words of a question that can tell one definition from another, each once."""
    found = dict.fromkeys(word.lower() for word in _WORD.findall(split_words(text[:_MOST_TEXT])))
    wanted = [word for word in found if word not in _COMMON and (len(word) > 1 or word.isdigit())]
    return (wanted or list(found))[:_MOST_TERMS]


def _neighbours(database: sqlite3.Connection, file: int, own: Mapping[int, float]) -> dict[int, float]:
    """What definitions of a file get from those that call them, or that they call, by scores of their own."""
    first, facts = database.execute("SELECT first, facts FROM files WHERE id = ?", (file,)).fetchone()
    named: dict[str, list[int]] = {}
    for number, name in database.execute(
        "SELECT id, name FROM definitions WHERE file = ? AND kind <> 'constant'", (file,)
    ):
        named.setdefault(name, []).append(number)
    gained: dict[int, float] = {}
    for place, name, receiver, _ in calls_and_imports(facts)[0]:
        called: Sequence[int] = named.get(name, ())
        if place < 0 or len(called) > _ALIKE or receiver not in {"", "self", "cls", "this"}:
            continue
        caller = first + place
        for each in called:
            if each != caller:
                gained[each] = max(gained.get(each, 0.0), _CALLED * own.get(caller, 0.0))
                gained[caller] = max(gained.get(caller, 0.0), _CALLING * own.get(each, 0.0))
    return {number: score for number, score in gained.items() if score}


def fused(*rankings: Sequence[int]) -> list[int]:
    """One ranking of several, by reciprocal rank."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (_SMOOTH + place)
    return sorted(scores, key=lambda number: -scores[number])


_BATCH = 64
_LONGEST = 8_192  # numbers of one vector
_MOST_ASKED = 4_000  # characters of a question, which may be a whole issue
_NEAREST_SECONDS = 5.0
"""How long a question waits for its vector: words answer it, too, and the first message waits for the answer."""
_DAY_SECONDS = 24 * 3600
_KEPT_DAYS = 30
_MOST_KEPT = 60_000
"""Vectors in the file that runs share; those that no run has used for longest go first."""
_VECTORS = "CREATE TABLE IF NOT EXISTS used_vectors(key BLOB PRIMARY KEY, day INTEGER NOT NULL, vector BLOB NOT NULL)"


class EmbeddingError(Exception):
    """The service gave no vectors; the text says why."""


class Embeddings:
    """The vectors of one workspace's definitions; what was once asked for is kept by its text.

    A text that did not change is never sent again, in this run or a later one.
    """

    def __init__(self, service: EmbeddingService, place: Path) -> None:
        """Begin with what is kept.

        Args:
            service: who is asked.
            place: the file that keeps vectors.
        """
        self._service = service
        self._place = place
        # Replaced whole, never changed: a thread may be ranking by the one before.
        self._known: tuple[tuple[int, bytes], ...] = ()
        self._matrix: tuple[object, list[int], Any] | None = None
        self._client: openai.AsyncOpenAI | None = None

    @property
    def count(self) -> int:
        """How many definitions are ranked."""
        return len(self._known)

    async def take(self, texts: Sequence[tuple[int, str]]) -> None:
        """Rank these definitions, by their numbers, and no others.

        Raises:
            EmbeddingError: the service gave no vectors for some of them; the others are ranked.
        """
        known: list[tuple[int, bytes]] = []
        try:
            for at in range(0, len(texts), _BATCH):
                part = texts[at : at + _BATCH]
                keys = [self._key(text) for _, text in part]
                kept = await asyncio.to_thread(self._kept, keys)
                new = {key: text for key, (_, text) in zip(keys, part, strict=True) if key not in kept}
                if new:
                    made = dict(zip(new, await self._asked(list(new.values())), strict=True))
                    await asyncio.to_thread(self._keep, made)
                    kept |= made
                known += [(number, kept[key]) for (number, _), key in zip(part, keys, strict=True)]
            await asyncio.to_thread(self._prune)
        finally:
            self._known = tuple(known)

    async def nearest(self, text: str, most: int) -> list[int]:
        """The numbers of the definitions nearest to a text, best first.

        Raises:
            EmbeddingError: the service gave no vector for it, or not in time.
        """
        if not self._known:
            return []
        try:
            async with asyncio.timeout(_NEAREST_SECONDS):
                (wanted,) = await self._asked([text[:_MOST_ASKED]])
        except TimeoutError as error:
            raise EmbeddingError("the embedding service took too long over a question") from error
        return await asyncio.to_thread(self._ranked, wanted, most)

    async def close(self) -> None:
        """Give connections back; idempotent."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _key(self, text: str) -> bytes:
        whole = f"{self._service.base_url}\0{self._service.model}\0{text}"
        return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=16).digest()

    async def _asked(self, texts: list[str]) -> list[bytes]:
        """Unit vectors of some texts, as float32.

        Raises:
            EmbeddingError: the service gave none, or what is none.
        """
        import numpy as np  # noqa: PLC0415 - only who has set a service up needs it
        import openai  # noqa: PLC0415 - the same

        service = self._service
        if self._client is None:
            self._client = openai.AsyncOpenAI(
                api_key=service.api_key or "none", base_url=service.base_url, timeout=service.seconds
            )
        try:
            async with asyncio.timeout(service.seconds):  # the client's own bound is of each of its attempts
                answer = await self._client.embeddings.create(model=service.model, input=texts, encoding_format="float")
            found = [each.embedding for each in sorted(answer.data, key=lambda each: each.index)]
            matrix = np.asarray(found, dtype=np.float32)
        except TimeoutError as error:
            raise EmbeddingError(f"the embedding service gave no vectors in {service.seconds:g} seconds") from error
        except openai.OpenAIError as error:
            raise EmbeddingError(f"the embedding service gave no vectors: {type(error).__name__}") from error
        except (TypeError, ValueError) as error:
            raise EmbeddingError("the embedding service gave vectors of different lengths, or none at all") from error
        if matrix.ndim != 2 or len(matrix) != len(texts) or not 0 < matrix.shape[1] <= _LONGEST:  # noqa: PLR2004 - a matrix
            raise EmbeddingError("the embedding service gave something else than one vector for each text")
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise EmbeddingError("the embedding service gave vectors that are no numbers")
        return [row.tobytes() for row in matrix / np.maximum(lengths, 1e-12)]

    def _ranked(self, wanted: bytes, most: int) -> list[int]:
        import numpy as np  # noqa: PLC0415 - see above

        known, made = self._known, self._matrix
        if made is None or made[0] is not known or made[2].shape[1] != len(wanted) // 4:
            same = [(number, vector) for number, vector in known if len(vector) == len(wanted)]
            joined = b"".join(vector for _, vector in same)
            matrix = np.frombuffer(joined, dtype=np.float32).reshape(len(same), len(wanted) // 4)
            self._matrix = made = (known, [number for number, _ in same], matrix)
        _, numbers, matrix = made
        if not numbers:
            return []
        likeness = matrix @ np.frombuffer(wanted, dtype=np.float32)
        return [numbers[place] for place in np.argsort(-likeness)[:most]]

    def _kept(self, keys: list[bytes]) -> dict[bytes, bytes]:
        marks = ", ".join("?" * len(keys))
        try:
            with closing(sqlite3.connect(self._place)) as database, database:
                database.execute(_VECTORS)
                found = f"UPDATE used_vectors SET day = ? WHERE key IN ({marks}) RETURNING key, vector"  # noqa: S608 - marks only
                return dict(database.execute(found, [_today(), *keys]))
        except sqlite3.OperationalError:  # the disk refuses: they are made again
            return {}
        except sqlite3.DatabaseError:  # damaged; left there, it would have every later run pay for all of them
            for end in ("", "-journal"):
                with suppress(OSError):
                    Path(f"{self._place}{end}").unlink()
            return {}

    def _keep(self, made: dict[bytes, bytes]) -> None:
        try:
            with closing(sqlite3.connect(self._place)) as database, database:
                database.execute(_VECTORS)
                rows = [(key, _today(), vector) for key, vector in made.items()]
                database.executemany("INSERT OR IGNORE INTO used_vectors VALUES (?, ?, ?)", rows)
        except sqlite3.DatabaseError:  # they serve for this run only
            return

    def _prune(self) -> None:
        try:
            with closing(sqlite3.connect(self._place)) as database, database:
                database.execute("DELETE FROM used_vectors WHERE day < ?", [_today() - _KEPT_DAYS])
                beyond = "SELECT rowid FROM used_vectors ORDER BY day DESC, rowid DESC LIMIT -1 OFFSET ?"
                database.execute(f"DELETE FROM used_vectors WHERE rowid IN ({beyond})", [_MOST_KEPT])  # noqa: S608 - our own
        except sqlite3.DatabaseError:  # the next run tries it again
            return


def _today() -> int:
    return int(time.time() // _DAY_SECONDS)
