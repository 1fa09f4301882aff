"""Measure the code index: what it finds beside BM25 on files and ripgrep on words, and what it costs.

Usage: python -m bench.bench_index FOLDER [all|even|odd]. The packages of `bench/questions/` are downloaded into the
folder with pip and npm, unless they are there. All questions were written before
anything was tuned; every second one (odd) was held back from the first round of it, none from the second.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from agent_runtime.index import index as index_module
from agent_runtime.index import ranking, store
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.index.parsing import language_of
from agent_runtime.index.store import split_words
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.search import find_ripgrep
from bench.measure import percentile
from bench.packages import unpacked

_QUESTIONS = Path(__file__).with_name("questions")
_FIRST = 5
_RANKED = 50


@dataclass(frozen=True, slots=True)
class _Question:
    ask: str
    files: frozenset[str]


@dataclass(slots=True)
class _Score:
    """Number of questions with the right file among the first five, and the sum of 1 / rank."""

    questions: int = 0
    hits: int = 0
    reciprocal: float = 0.0

    def add(self, files: list[str], right: frozenset[str]) -> int:
        place = next((place for place, file in enumerate(files, 1) if file in right), 0)
        self.questions += 1
        self.hits += 0 < place <= _FIRST
        self.reciprocal += 1 / place if place else 0
        return place

    @override
    def __str__(self) -> str:
        return f"{self.hits} of {self.questions}, MRR {self.reciprocal / max(1, self.questions):.2f}"


def main(folder: Path, part: str) -> None:
    total = {name: _Score() for name in ("index", "BM25 on files", "ripgrep on words")}
    for source in sorted(_QUESTIONS.glob("*.json")):
        described = json.loads(source.read_text(encoding="utf-8"))
        root = unpacked(folder, described["requirement"])
        questions = [_Question(each["ask"], frozenset(each["files"])) for each in described["questions"]]
        chosen = {"all": questions, "even": questions[::2], "odd": questions[1::2]}[part]
        print(f"\n## {described['source']}: {len(chosen)} questions")
        asyncio.run(_measure(root, chosen, total))
    print("\nAll:", "; ".join(f"{name} {score}" for name, score in total.items()))


async def _measure(root: Path, questions: list[_Question], total: dict[str, _Score]) -> None:
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace)
        begun, worked = time.perf_counter(), time.process_time()
        await index.wait_ready(600)
        built = time.perf_counter() - begun
        place = index.database_path
        assert place is not None
        worked = time.process_time()
        with Workspace(root) as again:
            store.refresh(again, "/nowhere", 10**9, 600, [])
        worked = time.process_time() - worked
        fresh = []
        for _ in range(5):
            begun = time.perf_counter()
            await index.wait_ready(600)
            fresh.append(time.perf_counter() - begun)
        taken = []
        for question in questions * 3:
            begun = time.perf_counter()
            await index.search(question.ask)
            taken.append(time.perf_counter() - begun)
        with sqlite3.connect(place) as database:
            (symbols,) = database.execute("SELECT count(*) FROM definitions").fetchone()
        print(
            f"{index.state.files:,} files, {symbols:,} definitions; built in {built:.1f} s, {worked:.1f} s of work; "
            f"refresh {1000 * min(fresh):.0f} ms; a question {1000 * percentile(taken, 0.1):.0f} ms, the median "
            f"{1000 * percentile(taken, 0.5):.0f} ms; {place.stat().st_size / 1e6:.1f} MB"
        )
        beside = _bm25(root)
        ways: dict[str, Callable[[str], list[str]]] = {
            "index": lambda ask: _by_index(place, ask),
            "BM25 on files": beside,
            "ripgrep on words": lambda ask: _by_ripgrep(root, ask),
        }
        scores = {name: _Score() for name in ways}
        for question in questions:
            places = []
            for name, way in ways.items():
                ranked = await asyncio.to_thread(way, question.ask)
                places.append(scores[name].add(ranked, question.files))
                total[name].add(ranked, question.files)
            print("  ".join(f"{place:>3}" for place in places), " ", question.ask)
        print("; ".join(f"{name} {score}" for name, score in scores.items()))
        await index.close()


def _by_index(place: Path, ask: str) -> list[str]:
    rows = json.loads(index_module.answer_query(str(place), "search", ask, _RANKED))
    return list(dict.fromkeys(row[0] for row in rows))


def _sources(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.is_file() and language_of(path.name)]


def _bm25(root: Path) -> Callable[[str], list[str]]:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE VIRTUAL TABLE files USING fts5(path UNINDEXED, words, tokenize='porter unicode61')")
    for path in _sources(root):
        text = split_words(path.read_text(encoding="utf-8", errors="replace"))
        database.execute("INSERT INTO files VALUES (?, ?)", (str(path.relative_to(root)), text))

    def rank(ask: str) -> list[str]:
        query = " OR ".join(f'"{word}"' for word in ranking.query_terms(ask))
        found = database.execute("SELECT path FROM files WHERE files MATCH ? ORDER BY rank LIMIT 50", (query,))
        return [path for (path,) in found]

    return rank


def _by_ripgrep(root: Path, ask: str) -> list[str]:
    """Files by how many of the words they hold, then by how often."""
    words: dict[str, set[str]] = {}
    often: dict[str, int] = {}
    for word in ranking.query_terms(ask):
        argv = [
            str(find_ripgrep()),
            "--no-config",
            "--count-matches",
            "--with-filename",
            "-i",
            "-w",
            re.escape(word),
            ".",
        ]
        answer = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False).stdout
        for line in answer.splitlines():
            path, _, count = line.removeprefix("./").rpartition(":")
            if language_of(path):
                words.setdefault(path, set()).add(word)
                often[path] = often.get(path, 0) + int(count)
    return sorted(words, key=lambda path: (-len(words[path]), -often[path], path))[:_RANKED]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "all")
