"""Definitions are ranked by their own words, by those of their files, and by what calls them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_runtime.index import store
from agent_runtime.index.ranking import ranked
from agent_runtime.workspace.files import Workspace

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


def _found(database: sqlite3.Connection, text: str, most: int = 20) -> list[str]:
    told = dict(
        database.execute("SELECT d.id, path || ':' || qualified FROM definitions d JOIN files f ON f.id = d.file")
    )
    return [told[number] for number in ranked(database, text, most)]


def test_a_helper_without_a_word_of_the_question_is_found_by_what_calls_it(database: sqlite3.Connection) -> None:
    found = _found(database, "A multipart body is searched for its boundary again and again")
    assert "upload/decoder.py:Decoder._cut" in found
    assert "upload/decoder.py:Decoder.reset" not in found


def test_of_two_definitions_that_fit_alike_the_one_in_a_file_about_the_question_is_first(
    database: sqlite3.Connection,
) -> None:
    assert _found(database, "connect to a host with TLS")[:2] == ["z.py:connect", "a.py:connect"]


def test_a_word_that_every_text_has_counts_in_the_one_path_that_has_it(tmp_path: Path) -> None:
    text = "def send(order):\n    return order.parcel\n"
    sources = {f"step_{each}.py": text for each in "abcdefg"} | {
        "parcel.py": text,
        "quay.py": f"# At the dock.\n\n{text}",
    }
    assert _found(_indexed(tmp_path, sources), "a parcel at the dock")[0] == "parcel.py:send"


def test_a_copy_comes_after_what_it_was_made_from(database: sqlite3.Connection) -> None:
    assert _found(database, "ship a parcel") == ["orders.py:ship", "dist/orders.py:ship"]


def test_definitions_of_one_file_do_not_take_all_places(database: sqlite3.Connection) -> None:
    assert "brush.py:clean" in _found(database, "paint", 5)


def test_a_question_without_words_finds_nothing(database: sqlite3.Connection) -> None:
    assert _found(database, "?!") == []
