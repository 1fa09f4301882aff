"""Threat 39: no value can end its own delimiter and set another output."""

from __future__ import annotations

import re
from pathlib import Path

from bot.action.outputs import write_outputs


def test_the_delimiter_is_random_and_never_in_the_value(tmp_path: Path) -> None:
    path = tmp_path / "out"
    seen: list[str] = []

    def guessed() -> str:
        seen.append(f"guess{len(seen)}")
        return seen[-1]

    hostile = "x\nguess0\nadmin<<guess1\nyes\nguess1\n"
    write_outputs(path, {"summary": hostile}, new_delimiter=guessed)
    assert seen == ["guess0", "guess1", "guess2"]
    assert path.read_text() == f"summary<<guess2\n{hostile}\nguess2\n"


def test_no_two_outputs_share_a_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write_outputs(path, {f"o{n}": "v" for n in range(20)})
    delimiters = re.findall(r"<<([0-9a-f]{32})\n", path.read_text())
    assert len(set(delimiters)) == 20
