"""Rank the definitions of an index for a text in words. Runs in a worker process."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence

from agent_runtime.index.store import calls_and_imports, split_words

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


def terms(text: str) -> list[str]:
    """The words of a question that can tell one definition from another, each once."""
    found = dict.fromkeys(word.lower() for word in _WORD.findall(split_words(text[:_MOST_TEXT])))
    wanted = [word for word in found if word not in _COMMON and (len(word) > 1 or word.isdigit())]
    return (wanted or list(found))[:_MOST_TERMS]


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
