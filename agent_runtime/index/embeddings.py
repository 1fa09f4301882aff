"""Rank definitions by vectors of an OpenAI-compatible service, beside the words. Optional; needs numpy."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_runtime.core.embedding_service import EmbeddingService

if TYPE_CHECKING:
    import openai

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
