"""What is left out of a change that nobody can approve, and what stays of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from bot.git.change import Change
from bot.git.errors import ChangeError
from bot.git.tree import Tree
from bot.jobs.delivery import left_out
from bot.publishing.screening import Objection
from tests.changes import a_change, a_file


def _section(path: str, line: str = "+x") -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -0,0 +1 @@\n{line}\n"


CHANGE = replace(
    a_change(a_file("a.py"), a_file("uv.lock"), a_file("ci.yml")),
    patch=_section("a.py") + _section("uv.lock") + _section("ci.yml"),
)
LOCK, BOTH = Objection(cause="protected", files=("uv.lock",)), Objection(cause="escapes", files=("uv.lock", "ci.yml"))


@dataclass(slots=True)
class _Tree:
    """Takes files out of a change, unless what is left could not stand alone."""

    inseparable: bool = False
    asked: list[set[str]] = field(default_factory=list)

    async def without(self, change: Change, paths: Collection[str]) -> Change:
        self.asked.append(set(paths))
        if self.inseparable:
            raise ChangeError("They belong together.", "Split it.")
        return replace(change, files=tuple(each for each in change.files if each.path not in paths))


def _tree(tree: _Tree) -> Tree:
    return cast("Tree", tree)


async def test_each_file_is_left_out_once_however_many_rules_name_it() -> None:
    tree = _Tree()
    part = await left_out(_tree(tree), CHANGE, (LOCK, BOTH), str)
    assert tree.asked == [{"uv.lock", "ci.yml"}]
    assert part.rest is not None
    assert [each.path for each in part.rest.files] == ["a.py"]
    assert part.patch == _section("uv.lock") + _section("ci.yml")
    assert all(f"+++ b/{path}" in part.diff for path in ("uv.lock", "ci.yml"))
    assert "a.py" not in part.diff


async def test_nothing_is_published_where_nothing_is_left() -> None:
    change = replace(CHANGE, files=CHANGE.files[1:2], patch=_section("uv.lock"))
    assert (await left_out(_tree(_Tree()), change, (LOCK,), str)).rest is None


async def test_the_whole_change_is_kept_where_the_rest_cannot_stand_alone() -> None:
    part = await left_out(_tree(_Tree(inseparable=True)), CHANGE, (LOCK,), str)
    assert (part.rest, part.patch) == (None, CHANGE.patch)


@pytest.mark.parametrize("line", ["+hunter2", "+" + "x" * 600_000], ids=["secret", "long"])
async def test_what_cannot_be_shown_whole_is_kept_all_the_same(line: str) -> None:
    change = replace(CHANGE, patch=_section("a.py") + _section("uv.lock", line))
    part = await left_out(_tree(_Tree()), change, (LOCK,), lambda text: text.replace("hunter2", "…"))
    assert part.diff == ""
    assert part.patch == _section("uv.lock", line)
