"""Snippets of code lead to the methods that they run, by operators, results of functions and names of variables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pytest

from agent_runtime.index.parsing import is_installed, language_of, parse
from agent_runtime.index.resolving import Resolver, find_used
from agent_runtime.index.snippets import read_uses
from agent_runtime.index.store import IndexStore

_METHODS = """
    __setitem__ __getitem__ __delitem__ __eq__ __lt__ __contains__ __len__ __enter__ __exit__ __await__ __aenter__
    __aexit__ __iter__ __call__ __add__ __radd__ __ior__ __str__ __repr__ __hash__ __bool__ __copy__ __reduce__ __neg__
    __setattr__ __delattr__ __getattr__
"""
_BOX = (
    "class Base:\n    def inherited(self): pass\n"
    "class Box(Base):\n    def __init__(self): pass\n    @property\n    def lid(self) -> 'Lid':\n        pass\n"
    + "".join(f"    def {name}(self, *_): pass\n" for name in _METHODS.split())
    + "class Lid:\n    def shut(self): pass\n    def __enter__(self): return self\n    def __exit__(self): pass\n"
    "def make():\n    return _make()\ndef _make():\n    return Box()\n"
    "def opened() -> Iterator[Lid]:\n    pass\n"
)


@pytest.fixture(scope="module")
def resolver() -> Resolver:
    store = IndexStore(sqlite3.connect(":memory:"), new=True)
    for path, source in {
        "box.py": _BOX,
        "files.py": (
            "class Resource:\n    def close(self): pass\n    def __exit__(self): self.close()\n"
            "    def reopen(self): self.close()\n    def __enter__(self):\n"
            + "        pass\n"
            * 9
            + "        self.long()\n"
            "    def long(self): pass\n"
            "class File(Resource):\n    def close(self): pass\n"
        ),
        "test_box.py": "class Box:\n    def __setitem__(self): pass\n",
        "jar.js": "export class Jar { constructor() {} seal() {} }\n",
    }.items():
        language = language_of(path)
        assert language is not None
        if is_installed(language):
            store.put(path, (0, 0, 0, 0), 0, b"", parse(language, source.encode()))
    return Resolver(store.database)


def find_names(resolver: Resolver, *snippets: str, classes: Sequence[str] = ()) -> list[str]:
    numbers = [definition.number for name in classes for definition in resolver.find_global(name)]
    definitions = map(resolver.definition, find_used(resolver, read_uses(snippets), numbers)[0])
    return [definition.qualified for definition in definitions if not resolver.source(definition.file).is_test]


@pytest.mark.parametrize(
    ("code", "methods"),
    [
        ("b[1, ...] = 2", "__setitem__"),
        ("b[1]", "__getitem__"),
        ("del b[1]", "__delitem__"),
        ("b[1] += 2", "__getitem__ __setitem__"),
        ("assert b == 1", "__eq__"),
        ("b != 1", "__eq__"),
        ("1 > b", "__lt__"),
        ("1 not in b", "__contains__"),
        ("print(len(b))", "__len__"),
        ("with b: pass", "__enter__ __exit__"),
        ("async with b: pass", "__aenter__ __aexit__"),
        ("await b", "__await__"),
        ("for x in b: pass", "__iter__"),
        ("[x for x in b]", "__iter__"),
        ("list(b)", "__iter__"),
        ("b(1)", "__call__"),
        ("b + 1", "__add__"),
        ("1 + b", "__radd__"),
        ("b |= 1", "__ior__"),
        ("-b", "__neg__"),
        ("str(b)", "__str__"),
        ("f'{b!r}'", "__repr__"),
        ("hash(b)", "__hash__"),
        ("if b: pass", "__bool__"),
        ("copy.copy(b)", "__copy__"),
        ("pickle.dumps(b)", "__reduce__"),
        ("b.size = 1", "__setattr__"),
        ("del b.size", "__delattr__"),
        ("b.size", "__getattr__"),
        ("b.inherited()", "inherited"),
        ("b.lid.shut()", "lid shut"),
        ("with b.lid as l: l.shut()", "lid shut __enter__ __exit__"),
    ],
)
def test_an_operator_leads_to_the_method_of_its_class(resolver: Resolver, code: str, methods: str) -> None:
    names = find_names(resolver, "b = Box()", code)
    assert {name.rpartition(".")[2] for name in names} == {"__init__", *methods.split()}


@pytest.mark.parametrize(
    ("code", "classes", "method"),
    [
        ("from box import make\nx = make()\nx[1] = 2", [], "Box.__setitem__"),
        ("with box.opened() as x: x.shut()", [], "Lid.shut"),
        ("class Mine(Box): pass\nMine()[1] = 2", [], "Box.__setitem__"),
        ("box[1] = 2", [], "Box.__setitem__"),
        ("x[1] = 2", ["Box"], "Box.__setitem__"),
        ("x = Box()\nx.f(\nx[1] = 2", [], "Box.__setitem__"),
        ("def f(:\n\nb = Box()\nb[1] = 2\n)", [], "Box.__setitem__"),
    ],
)
def test_the_class_of_a_variable_is_found(resolver: Resolver, code: str, classes: list[str], method: str) -> None:
    assert method in find_names(resolver, code, classes=classes)


def test_a_variable_of_unknown_value_leads_nowhere(resolver: Resolver) -> None:
    assert find_names(resolver, "x[1] = 2", "len(y) == 3", "make") == []


def test_callees_of_a_short_method_and_overrides_are_behind_it(resolver: Resolver) -> None:
    _, behind = find_used(resolver, read_uses(["with Resource() as r: pass"]), [])
    assert [resolver.definition(number).qualified for number in behind] == ["Resource.close", "File.close"]
    _, behind = find_used(resolver, read_uses(["File().reopen()"]), [])
    assert [resolver.definition(number).qualified for number in behind] == ["File.close"]


def test_javascript_is_read(resolver: Resolver) -> None:
    pytest.importorskip("tree_sitter_javascript")
    assert find_names(resolver, "const jar = new Jar();\njar.seal();\n") == ["Jar.seal"]


def test_the_number_of_uses_is_bounded() -> None:
    assert len(read_uses(["".join(f"x{number}[1]\n" for number in range(5_000))])) == 100
