"""Tell which definition a call means: by imports, names, and the class of what it is called on.

`callers` and `callees` answer for definitions of an index; `Resolver` looks names up as the language would, as far as
that can be told, and `ModulePaths` finds the files of imported modules.
"""

from __future__ import annotations

import posixpath
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from agent_runtime.index.store import calls_and_imports

_DEPTH = 6
_MOST_FILES = 2_000
_SELVES = frozenset({"self", "cls", "this"})
_FUNCTIONS = frozenset({"function", "method", "macro"})
_TYPES = frozenset({"class", "interface", "type", "module"})
_UNQUALIFIED = (".java", ".rb", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".h")
"""Languages in which a method may be called by its bare name."""
SCRIPTS = (".js", ".ts", ".tsx", ".jsx", ".mjs", ".cjs", ".mts", ".cts")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCall:
    """A call as it is found: `caller` and `means` are the numbers of the definitions around it, and that it calls."""

    path: str
    line: int
    callee: str
    sure: bool
    caller: int | None
    is_test: bool
    means: int | None = None


Finder = Callable[["Resolver", Sequence[int], Sequence[str]], list[FoundCall]]


def callers(resolver: Resolver, targets: Sequence[int], parts: Sequence[str]) -> list[FoundCall]:
    """The calls of some definitions. A call that means another definition of the same name is left out."""
    wanted = {number: resolver.known(number) for number in targets}
    name = parts[-1]
    names = {name}
    if name in {"__init__", "constructor"} and len(parts) > 1:  # called by the name of its class
        names.add(parts[-2])
        above = [each.parent for each in wanted.values() if each.parent is not None]
        wanted |= {number: resolver.known(number) for number in above}
    related = {name for each in wanted.values() for name in resolver.relatives(each)}
    found: list[FoundCall] = []
    for source in resolver.calling(names):
        called = names | {local for local, _, there in source.imports if there in names}
        for place, callee, receiver, line in source.calls:
            if callee not in called:
                continue
            caller = source.first + place if place >= 0 else None
            meant = resolver.meant(source, caller, receiver, callee)
            sure = any(number in wanted for number in meant)
            if meant and not sure and not any(resolver.owner(number) in related for number in meant):
                continue
            shown = f"{receiver}.{callee}" if receiver else callee
            found.append(
                FoundCall(path=source.path, line=line, callee=shown, sure=sure, caller=caller, is_test=source.is_test)
            )
    return sorted(found, key=lambda call: (not call.sure, call.is_test, call.path, call.line))


def callees(resolver: Resolver, targets: Sequence[int], _parts: Sequence[str]) -> list[FoundCall]:
    """The calls in some definitions, in their order; of a name that is called again, the first one."""
    found: dict[tuple[str, int | None], FoundCall] = {}
    for target in targets:
        source = resolver.source(resolver.known(target).file)
        for place, callee, receiver, line in source.calls:
            caller = source.first + place
            if place < 0 or not resolver.holds(target, caller):
                continue
            meant = resolver.meant(source, caller, receiver, callee)
            shown = f"{receiver}.{callee}" if receiver else callee
            if meant:
                known = resolver.known(meant[0])
                shown = f"{resolver.source(known.file).path}::{known.qualified}"
            found.setdefault(
                (shown, target),
                FoundCall(
                    path=source.path,
                    line=line,
                    callee=shown,
                    sure=bool(meant),
                    caller=caller,
                    is_test=source.is_test,
                    means=meant[0] if meant else None,
                ),
            )
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Known:
    """A definition as this module needs it."""

    number: int
    file: int
    name: str
    qualified: str
    kind: str
    parent: int | None
    bases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """A file: its calls, what its local names stand for, and the number of its first definition."""

    number: int
    path: str
    is_test: bool
    first: int
    calls: list[tuple[int, str, str, int]]
    imports: list[tuple[str, str, str]]


class Resolver:
    """Looks definitions up in one index."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._known: dict[int, _Known] = {}
        self._looked: dict[tuple[str, tuple[object, ...]], list[_Known]] = {}
        self._sources: dict[int, _Source] = {}
        self._modules = ModulePaths(database)
        # By depth, too: modules that import all of each other would have each path between them tried.
        self._exports: dict[tuple[int, str, int], list[int]] = {}
        self._methods: dict[tuple[int, str, int], list[int]] = {}

    def known(self, number: int) -> _Known:
        """A definition by its number."""
        if number not in self._known:
            self._look("id = ?", (number,))
        return self._known[number]

    def source(self, number: int) -> _Source:
        """A file by its number."""
        if number not in self._sources:
            path, is_test, first, facts = self._database.execute(
                "SELECT path, is_test, first, facts FROM files WHERE id = ?", (number,)
            ).fetchone()
            self._sources[number] = _Source(number, path, bool(is_test), first, *calls_and_imports(facts))
        return self._sources[number]

    def calling(self, names: set[str]) -> Iterator[_Source]:
        """The files that call one of some names."""
        numbers = [
            file
            for name in sorted(names)
            for (file,) in self._database.execute(
                "SELECT file FROM callees WHERE name = ? LIMIT ?", (name, _MOST_FILES)
            )
        ]
        return map(self.source, dict.fromkeys(numbers))

    def holds(self, outer: int, inner: int | None) -> bool:
        """Whether a definition is another one, or lies in it."""
        while inner is not None and inner != outer:
            inner = self.known(inner).parent
        return inner is not None

    def owner(self, number: int) -> str:
        """The name of the class of a method; empty for what is none."""
        return self.known(number).qualified.rpartition(".")[0].rpartition(".")[2]

    def relatives(self, known: _Known) -> set[str]:
        """The names of classes whose calls may mean a method: of its own, those above it, and above what extends it."""
        names = {self.owner(known.number)}
        for related in (self._extended, self._bases_by_name):
            pending = list(names)
            while pending and len(names) < _MOST_FILES:
                following = related.get(pending.pop(), set()) - names
                names |= following
                pending += following
        return names - {""}

    @cached_property
    def _bases_by_name(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, bases in self._database.execute("SELECT name, bases FROM definitions WHERE bases <> ''"):
            found.setdefault(name, set()).update(base.rpartition(".")[2] for base in bases.split())
        return found

    @cached_property
    def _extended(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, bases in self._bases_by_name.items():
            for base in bases:
                found.setdefault(base, set()).add(name)
        return found

    def meant(self, source: _Source, caller: int | None, receiver: str, name: str) -> list[int]:
        """The definitions that a call may mean; none where that cannot be told."""
        if receiver == "?":
            return []
        if not receiver:
            return self._bare(source, caller, name)
        owner = self._class_around(caller)
        if receiver in _SELVES:
            classes = [owner] if owner else []
        elif receiver in {"super()", "super"}:
            classes = self._bases(owner) if owner else []
        else:
            classes = self._classes(source, receiver.removesuffix("()"))
            if not classes and not receiver.endswith("()"):
                return [
                    n for module in self._modules_named(source, receiver) for n in self._export(module, name, _DEPTH)
                ]
        return self._method_of(classes, name, _DEPTH)

    def _look(self, where: str, values: tuple[object, ...]) -> list[_Known]:
        if (where, values) not in self._looked:
            rows = self._database.execute(
                f"SELECT id, file, name, qualified, kind, parent, bases FROM definitions WHERE {where}",  # noqa: S608 - our own words
                values,
            ).fetchall()
            self._looked[where, values] = [
                _Known(number, file, own, qualified, kind, parent, tuple(bases.split()))
                for number, file, own, qualified, kind, parent, bases in rows
            ]
            self._known.update((each.number, each) for each in self._looked[where, values])
        return self._looked[where, values]

    def _bare(self, source: _Source, caller: int | None, name: str) -> list[int]:
        """What a name without anything before it means: what is around it, then the file, then its imports."""
        here = self._look("file = ? AND name = ? AND kind <> 'constant'", (source.number, name))
        around = [*self._around(caller), None]
        for outer in around:
            if outer is None or self.known(outer).kind in _FUNCTIONS:  # a class's own names are not seen in its methods
                visible = [each.number for each in here if each.parent == outer]
                if visible:
                    return visible
        owner = self._class_around(caller) if source.path.endswith(_UNQUALIFIED) else None
        found = self._method_of([owner] if owner else [], name, _DEPTH) or self._imported(source, name, _DEPTH)
        if found:
            return found
        if source.path.endswith(".go"):
            folder = posixpath.dirname(source.path)
            same = self._look("name = ? AND parent IS NULL AND kind <> 'method'", (name,))
            return [each.number for each in same if posixpath.dirname(self.source(each.file).path) == folder]
        if not source.path.endswith((".py", ".pyi", *SCRIPTS)):
            every = self._look("name = ? AND kind NOT IN ('method', 'constant') LIMIT 2", (name,))
            return [every[0].number] if len(every) == 1 else []
        return []

    def _around(self, number: int | None) -> list[int]:
        """A definition and those around it, innermost first."""
        found = []
        while number is not None:
            found.append(number)
            number = self.known(number).parent
        return found

    def _class_around(self, caller: int | None) -> _Known | None:
        """The class whose method a definition is, or lies in."""
        for number in self._around(caller):
            known = self.known(number)
            if known.kind not in _FUNCTIONS:
                return known
            owner = known.qualified.rpartition(".")[0]
            if known.kind == "method" and known.parent is None and owner:  # its class is elsewhere: Go, Rust, C++
                named = self._look("name = ? AND qualified = ?", (owner.rpartition(".")[2], owner))
                classes = [each for each in named if each.kind not in _FUNCTIONS]
                near = sorted(
                    classes,
                    key=lambda each: (
                        -len(posixpath.commonprefix([self.source(each.file).path, self.source(known.file).path]))
                    ),
                )
                return near[0] if near else None
        return None

    def _bases(self, owner: _Known) -> list[_Known]:
        source = self.source(owner.file)
        return [each for base in owner.bases for each in self._classes(source, base) if each.number != owner.number]

    def _method_of(self, owners: Sequence[_Known], name: str, depth: int) -> list[int]:
        """The method of the first of some classes that has one, itself or from a base class."""
        for owner in owners:
            key = owner.number, name, depth
            if key not in self._methods:
                own = self._look("parent = ? AND name = ?", (owner.number, name))
                if not own:  # written outside of its class
                    named = name, f"{owner.qualified}.{name}"
                    apart = self._look("name = ? AND qualified = ? AND parent IS NULL", named)
                    folder = posixpath.dirname(self.source(owner.file).path)
                    own = [each for each in apart if posixpath.dirname(self.source(each.file).path) == folder] or apart
                inherited = self._method_of(self._bases(owner), name, depth - 1) if depth and not own else []
                self._methods[key] = [each.number for each in own] or inherited
            if self._methods[key]:
                return self._methods[key]
        return []

    def _classes(self, source: _Source, dotted: str) -> list[_Known]:
        """The classes that a name means in a file."""
        before, _, name = dotted.rpartition(".")
        if before:
            numbers = [n for module in self._modules_named(source, before) for n in self._export(module, name, _DEPTH)]
            found = [each for each in map(self.known, numbers) if each.kind in _TYPES]
            outer = [] if found else self._classes(source, before)
            return found + [each for o in outer for each in self._look("parent = ? AND name = ?", (o.number, name))]
        here = [each for each in self._look("file = ? AND name = ?", (source.number, name)) if each.kind in _TYPES]
        if here:
            return here
        found = [self.known(number) for number in self._imported(source, name, _DEPTH)]
        if not found and not source.path.endswith((".py", ".pyi", *SCRIPTS)):
            every = self._look("name = ? AND kind IN ('class', 'interface', 'type', 'module') LIMIT 2", (name,))
            found = every if len(every) == 1 else []
        return [each for each in found if each.kind in _TYPES]

    def _imported(self, source: _Source, name: str, depth: int) -> list[int]:
        """What an imported name is defined as."""
        found: list[int] = []
        for local, module, there in source.imports:
            if local == name and there not in {"", "*"}:
                for file in self._modules.named(source.path, module):
                    found += self._export(file, local if there == "default" else there, depth)
            elif there == "*":
                for file in self._modules.named(source.path, module):
                    found += self._export(file, name, depth)
        return list(dict.fromkeys(found))

    def _export(self, file: int, name: str, depth: int) -> list[int]:
        """What another file gets when it takes a name from this one."""
        if (file, name, depth) not in self._exports:
            # A constant may stand for anything that is called: `register = registry.register`.
            own = self._look("file = ? AND name = ? AND parent IS NULL AND kind <> 'constant'", (file, name))
            found = self._imported(self.source(file), name, depth - 1) if depth and not own else []
            self._exports[file, name, depth] = found or [each.number for each in own]
        return self._exports[file, name, depth]

    def _modules_named(self, source: _Source, dotted: str) -> list[int]:
        """The files that a local name, or what stands behind its dots, means."""
        first, *rest = dotted.split(".")
        found: list[int] = []
        for local, module, there in source.imports:
            if local == dotted and not there:
                found += self._modules.named(source.path, module)
            elif local == first and (there not in {"*", "default"} or not rest):
                whole = (
                    module
                    if there in {"", "default"}
                    else f"{module.removesuffix('.')}.{there}"
                    if module.strip(".")
                    else f"{module}{there}"
                )
                found += self._modules.named(source.path, ".".join([whole, *rest]) if rest else whole)
        return list(dict.fromkeys(found))


class ModulePaths:
    """The files of one index, by the names under which they are imported."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def named(self, path: str, module: str) -> list[int]:
        """The files of a module, as the file at a path names it."""
        folder = posixpath.dirname(path)
        if path.endswith((".py", ".pyi")):
            name = module.lstrip(".")
            for _ in range(len(module) - len(name) - 1):
                folder = posixpath.dirname(folder)
            below = name.replace(".", "/")
            ends = [f"{below}.py", f"{below}.pyi", f"{below}/__init__.py"] if below else ["__init__.py"]
            if module.startswith("."):
                return [n for end in ends if (n := self._paths.get(posixpath.join(folder, end)))]
            return [n for end in ends for n in self._ending(end)]
        if path.endswith(".go"):
            found = filter(None, map(self._by_tail.get, _tails(module)))
            return [self._paths[each] for each in next(found, [])]
        if not module.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(folder, module))
        names = [base, *(base + end for end in SCRIPTS), *(f"{base}/index{end}" for end in SCRIPTS)]
        names += [posixpath.splitext(base)[0] + end for end in (".ts", ".tsx")]  # `./x.js` is written for `x.ts`
        return [n for name in names if (n := self._paths.get(name))][:1]

    def _ending(self, end: str) -> list[int]:
        """The files whose path is, or ends in, another one; those that lie least deep."""
        found = self._by_tail.get(end, [])
        least = min((path.count("/") for path in found), default=0)
        return [self._paths[path] for path in found if path.count("/") == least]

    @cached_property
    def _paths(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT path, id FROM files"))

    @cached_property
    def _by_tail(self) -> dict[str, list[str]]:
        """The paths by what they end in; those of Go by what their directory ends in, which is what is imported."""
        found: dict[str, list[str]] = {}
        for path in self._paths:
            for tail in _tails(posixpath.dirname(path) if path.endswith(".go") else path):
                found.setdefault(tail, []).append(path)
        return found


def _tails(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]
