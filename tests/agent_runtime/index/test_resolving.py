from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.workspace.files import Workspace

_FILES = {
    "shop/__init__.py": "from .prices import rounded\n",
    "shop/prices.py": "def rounded(x): pass\n\ndef other():\n    rounded(1)\n",
    "shop/basket.py": (
        "from shop import rounded as cents\n"
        "from . import prices\n"
        "class Box:\n    def weigh(self): pass\n"
        "class Basket(Box):\n"
        "    def total(self):\n        cents(1)\n        prices.rounded(2)\n        self.weigh()\n        self.seal()\n"
        "    def seal(self): pass\n"
        "class Gift(Basket):\n    def seal(self): pass\n"
    ),
    "shop/till.py": (
        "from shop.basket import Basket, Gift\n"
        "def pay(thing, known: Gift):\n"
        "    basket = Basket()\n    basket.total()\n    thing.total()\n    known.weigh()\n    unknown.rounded()\n"
    ),
    "shop/mixed.py": (
        "from shop import basket\n"
        "class Sturdy:\n    def weigh(self): pass\n    def carry(self): self.weigh()\n"
        "class Padded:\n    def weigh(self): pass\n"
        "class Crate(Padded, Sturdy): pass\n"
        "carry = Crate().carry\n"
    ),
    "shop/van.py": "from shop import mixed\nmixed.carry()\n",
    "shop/mine.py": "def rounded(): pass\n\nrounded()\n",
    "web/cart.js": (
        "import { add as plus } from './sums';\nconst api = require('./sums');\n"
        "export function run() { plus(1); api.add(2); }\n"
    ),
    "web/sums.js": "export function add(x) { return x; }\n",
    "net/a.go": "package net\nfunc dial() {}\nfunc (c *Conn) open() { dial(); c.close() }\n",
    "net/b.go": "package net\ntype Conn struct{}\nfunc (c *Conn) close() {}\n",
    "other/c.go": "package other\nfunc dial() {}\n",
}  # fmt: skip


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[WorkspaceIndex]:
    for name, source in _FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    with Workspace(tmp_path) as workspace:
        found = WorkspaceIndex(workspace)
        assert await found.wait_ready(60)
        yield found
        await found.close()


async def _callers(index: WorkspaceIndex, symbol: str) -> dict[str, bool]:
    return {f"{call.path}:{call.line}": call.sure for call in await index.callers(symbol)}


async def test_callers_are_sure_by_imports_names_and_classes_and_maybe_else(index: WorkspaceIndex) -> None:
    assert await _callers(index, "shop/prices.py::rounded") == {
        "shop/prices.py:4": True,
        "shop/basket.py:7": True,
        "shop/basket.py:8": True,
        "shop/till.py:7": False,
    }
    assert await _callers(index, "Basket.total") == {"shop/till.py:4": True, "shop/till.py:5": False}
    assert await _callers(index, "Box.weigh") == {"shop/basket.py:9": True, "shop/till.py:6": True}
    assert await _callers(index, "Basket.seal") == {"shop/basket.py:10": True}
    assert await _callers(index, "Gift.seal") == {"shop/basket.py:10": False}, "the class of self may be a derived one"


async def test_classes_and_constants_may_be_called(index: WorkspaceIndex) -> None:
    assert await _callers(index, "Padded.weigh") == {"shop/mixed.py:4": False}
    assert await _callers(index, "Sturdy.weigh") == {"shop/mixed.py:4": True}
    assert await _callers(index, "Sturdy.carry") == {"shop/van.py:2": False}


async def test_callers_in_other_languages(index: WorkspaceIndex) -> None:
    assert await _callers(index, "net/a.go::dial") == {"net/a.go:3": True}
    assert await _callers(index, "Conn.close") == {"net/a.go:3": True}
    assert await _callers(index, "web/sums.js::add") == {"web/cart.js:3": True}, "one of them under another name"


async def test_callees_name_the_resolved_definition(index: WorkspaceIndex) -> None:
    calls = await index.callees("Basket.total")
    assert [(call.callee, call.sure, call.line) for call in calls] == [
        ("shop/prices.py::rounded", True, 7),
        ("shop/basket.py::Box.weigh", True, 9),
        ("shop/basket.py::Basket.seal", True, 10),
    ]
    assert {call.caller.qualified for call in calls if call.caller} == {"Basket.total"}


async def test_mutually_dependent_modules_and_classes_are_resolved(tmp_path: Path) -> None:
    every = range(14)
    for number in every:
        others = [other for other in every if other != number]
        (tmp_path / f"star{number}.py").write_text(
            "".join(f"from star{other} import *\n" for other in others) + "def run():\n    missing()\n"
        )
        (tmp_path / f"base{number}.py").write_text(
            "".join(f"from base{other} import Base{other}\n" for other in others)
            + f"class Base{number}({', '.join(f'Base{other}' for other in others)}):\n"
            + "    def work(self):\n        self.missing()\n"
        )
    with Workspace(tmp_path) as workspace:
        found = WorkspaceIndex(workspace)
        assert await found.wait_ready(60)
        assert {call.sure for call in await found.callees("run")} == {False}
        assert {call.sure for call in await found.callees("work")} == {False}
        await found.close()


async def test_callers_are_found_among_many_files_definitions_and_equal_names(tmp_path: Path) -> None:
    many, calls = range(2_000), "".join(f"\tv1.Run({number})\n" for number in range(6_000))
    for number in many:
        (tmp_path / f"f{number}.go").write_text("package f\n")
    imports = 'package f\nimport "k8s.example/api/core/v1"\ntype T struct{}\n'
    (tmp_path / "all.go").write_text(f"{imports}func (t *T) All() {{\n{calls}}}\n")
    (tmp_path / "types.go").write_text("package f\n" + "".join(f"type Run{number} int\n" for number in range(20_000)))
    (tmp_path / "a.java").write_text("".join(f"class C{number} {{ int get() {{ return 1; }} }}\n" for number in many))
    gets = "".join(f"  int f{number}() {{ return get(); }}\n" for number in many)
    (tmp_path / "b.java").write_text(f"class U {{\n{gets}}}\n")
    with Workspace(tmp_path) as workspace:
        found = WorkspaceIndex(workspace)
        assert await found.wait_ready(60)
        for name, path in (("Run", "all.go"), ("get", "b.java")):
            assert {call.path for call in await found.callers(name)} == {path}, found.failure
        await found.close()
