"""Resolution of calls to definitions, by imports, names, and the receiver's class.

Start with `callers` and `callees`; `Resolver` looks names up; `ModulePaths` finds imported files.
"""

from __future__ import annotations

import posixpath
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from agent_runtime.index.parsing import is_copied
from agent_runtime.index.snippets import Use
from agent_runtime.index.store import calls_and_imports

_DEPTH = 6
_MAX_FILES = 2_000
_RESULT_DEPTH = 3
_MAX_NAMESAKES = 3
_MAX_VALUES = 6
_MAX_BEHIND = 20
_WRAPPER_LINES = 6
"""Lines of a method that leaves the work to another one."""
_SELVES = frozenset({"self", "cls", "this"})
_FUNCTIONS = frozenset({"function", "method", "macro"})
_TYPES = frozenset({"class", "interface", "type", "module"})
_UNQUALIFIED = (".java", ".rb", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".h")
"""Languages that call methods by bare name."""
SCRIPTS = (".js", ".ts", ".tsx", ".jsx", ".mjs", ".cjs", ".mts", ".cts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCall:
    """A call; `caller` and `target` are numbers of definitions."""

    path: str
    line: int
    callee: str
    sure: bool
    caller: int | None
    is_test: bool
    target: int | None = None


Finder = Callable[["Resolver", Sequence[int], Sequence[str]], list[ResolvedCall]]


def callers(resolver: Resolver, targets: Sequence[int], parts: Sequence[str]) -> list[ResolvedCall]:
    """Return the calls of some definitions, except those that mean another one."""
    definitions = {number: resolver.definition(number) for number in targets}
    name = parts[-1]
    names = {name}
    if name in {"__init__", "constructor"} and len(parts) > 1:  # called by its class's name
        names.add(parts[-2])
        above = [definition.parent for definition in definitions.values() if definition.parent is not None]
        definitions |= {number: resolver.definition(number) for number in above}
    related = {name for definition in definitions.values() for name in resolver.relatives(definition)}
    calls: list[ResolvedCall] = []
    for source in resolver.files_calling(names):
        called = names | {local for local, _, imported in source.imports if imported in names}
        for place, callee, receiver, line in source.calls:
            if callee not in called:
                continue
            caller = source.first + place if place >= 0 else None
            resolved = resolver.resolve_call(source, caller, receiver, callee)
            sure = any(number in definitions for number in resolved)
            if resolved and not sure and not any(resolver.owner(number) in related for number in resolved):
                continue
            text = f"{receiver}.{callee}" if receiver else callee
            calls.append(
                ResolvedCall(path=source.path, line=line, callee=text, sure=sure, caller=caller, is_test=source.is_test)
            )
    return sorted(calls, key=lambda call: (not call.sure, call.is_test, call.path, call.line))


def callees(resolver: Resolver, targets: Sequence[int], _parts: Sequence[str]) -> list[ResolvedCall]:
    """Return the distinct calls in some definitions, in order."""
    calls: dict[tuple[str, int | None], ResolvedCall] = {}
    for target in targets:
        source = resolver.source(resolver.definition(target).file)
        for place, callee, receiver, line in source.calls:
            caller = source.first + place
            if place < 0 or not resolver.contains(target, caller):
                continue
            resolved = resolver.resolve_call(source, caller, receiver, callee)
            text = f"{receiver}.{callee}" if receiver else callee
            if resolved:
                definition = resolver.definition(resolved[0])
                text = f"{resolver.source(definition.file).path}::{definition.qualified}"
            calls.setdefault(
                (text, target),
                ResolvedCall(
                    path=source.path,
                    line=line,
                    callee=text,
                    sure=bool(resolved),
                    caller=caller,
                    is_test=source.is_test,
                    target=resolved[0] if resolved else None,
                ),
            )
    return list(calls.values())


def find_used(resolver: Resolver, uses: Sequence[Use], classes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the functions that uses run, and those that these call, or that override them.

    A variable of unknown value has its name's class, or one of `classes`.
    """
    used: dict[int, set[_Definition]] = {}
    named = [(resolver.definition(number), True) for number in classes]
    alike = resolver.classes_named_like({name.partition(".")[0] for name, *_ in uses})
    for name, *following in uses:
        steps: list[str] = following
        values: list[Value] = [(definition, False) for definition in resolver.find_global(name)]
        if not values or (values[0][0].kind in _FUNCTIONS and (not steps or steps[0] != "()")):
            variable, *attributes = name.split(".")
            own = [(definition, True) for definition in alike.get(variable.lower(), ())]
            values, steps = own or named, [*(f".{attribute}" for attribute in attributes), *following]
        for step in steps:
            functions, following_values = resolver.follow(values, step)
            for number in functions:
                used.setdefault(number, set()).update(owner for owner, _ in values if owner.kind in _TYPES)
            values = following_values
    wrappers = (
        (number, owners) for number, owners in used.items() if resolver.definition(number).length <= _WRAPPER_LINES
    )
    behind = (other for number, owners in wrappers for other in resolver.find_behind(number, owners))
    return list(used), [number for number in dict.fromkeys(behind) if number not in used][:_MAX_BEHIND]


@dataclass(frozen=True, slots=True)
class _Definition:
    number: int
    file: int
    name: str
    qualified: str
    kind: str
    parent: int | None
    length: int
    bases: str
    results: str


_COLUMNS = "id, file, name, qualified, kind, parent, last - header, bases, results"
Value = tuple[_Definition, bool]
"""A class or a function, or with True an instance of the class."""


@dataclass(frozen=True, slots=True)
class _Source:
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
        self._definitions: dict[int, _Definition] = {}
        self._lookups: dict[tuple[str, tuple[object, ...]], list[_Definition]] = {}
        self._sources: dict[int, _Source] = {}
        self._modules = ModulePaths(database)
        # By depth, too: modules that star-import each other would have all paths between them tried.
        self._exports: dict[tuple[int, str, int], list[int]] = {}
        self._methods: dict[tuple[int, str, int], list[int]] = {}

    def definition(self, number: int) -> _Definition:
        """Return a definition."""
        if number not in self._definitions:
            self._lookup("id = ?", (number,))
        return self._definitions[number]

    def source(self, number: int) -> _Source:
        """Return a file."""
        if number not in self._sources:
            path, is_test, first, facts = self._database.execute(
                "SELECT path, is_test, first, facts FROM files WHERE id = ?", (number,)
            ).fetchone()
            self._sources[number] = _Source(number, path, bool(is_test), first, *calls_and_imports(facts))
        return self._sources[number]

    def files_calling(self, names: set[str]) -> Iterator[_Source]:
        """Return the files that call one of some names."""
        numbers = [
            file
            for name in sorted(names)
            for (file,) in self._database.execute("SELECT file FROM callees WHERE name = ? LIMIT ?", (name, _MAX_FILES))
        ]
        return map(self.source, dict.fromkeys(numbers))

    def contains(self, outer: int, inner: int | None) -> bool:
        """Whether a definition equals or contains another."""
        while inner is not None and inner != outer:
            inner = self.definition(inner).parent
        return inner is not None

    def owner(self, number: int) -> str:
        """Return a method's class name, or ""."""
        return self.definition(number).qualified.rpartition(".")[0].rpartition(".")[2]

    def relatives(self, definition: _Definition) -> set[str]:
        """Return the classes whose calls may mean a method: its class, the bases, subclasses and their bases."""
        names = {self.owner(definition.number)}
        for related in (self._subclasses, self._bases_by_name):
            pending = list(names)
            while pending and len(names) < _MAX_FILES:
                following = related.get(pending.pop(), set()) - names
                names |= following
                pending += following
        return names - {""}

    @cached_property
    def _bases_by_name(self) -> dict[str, set[str]]:
        by_name: dict[str, set[str]] = {}
        for name, bases in self._database.execute("SELECT name, bases FROM definitions WHERE bases <> ''"):
            by_name.setdefault(name, set()).update(base.rpartition(".")[2] for base in bases.split())
        return by_name

    @cached_property
    def _subclasses(self) -> dict[str, set[str]]:
        by_base: dict[str, set[str]] = {}
        for name, bases in self._bases_by_name.items():
            for base in bases:
                by_base.setdefault(base, set()).add(name)
        return by_base

    def resolve_call(self, source: _Source, caller: int | None, receiver: str, name: str) -> list[int]:
        """Return the definitions that a call may mean; none if unknown."""
        if receiver == "?":
            return []
        if not receiver:
            return self._resolve_bare_name(source, caller, name)
        owner = self._enclosing_class(caller)
        if receiver in _SELVES:
            classes = [owner] if owner else []
        elif receiver in {"super()", "super"}:
            classes = self._bases(owner) if owner else []
        else:
            classes = self._find_classes(source, receiver.removesuffix("()"))
            if not classes and not receiver.endswith("()"):
                return [
                    n for module in self._module_files(source, receiver) for n in self._export(module, name, _DEPTH)
                ]
        return self._find_method(classes, name, _DEPTH)

    def find_global(self, dotted: str) -> list[_Definition]:
        """Return the definitions that a dotted name of a snippet means, outside tests and copies."""
        parts = dotted.split(".")
        own = [
            definition
            for definition in self._lookup("name = ? AND kind <> 'constant'", (parts[-1],))
            if not (source := self.source(definition.file)).is_test and not is_copied(source.path)
        ]
        for suffix in (f".{dotted}", f".{'.'.join(parts[-2:])}"):
            if len(parts) > 1 and (exact := [d for d in own if f".{d.qualified}".endswith(suffix)]):
                return exact[:_MAX_NAMESAKES]
        top = [definition for definition in own if definition.kind != "method"]
        return top if len(top) <= _MAX_NAMESAKES else []

    def classes_named_like(self, variables: Collection[str]) -> dict[str, list[_Definition]]:
        """Return classes by the name of a variable: `multi_dict` for `MultiDict`."""
        words = {name.replace("_", "").lower(): name.lower() for name in variables if not name[:1].isupper()}
        marks = ", ".join("?" * len(words))
        alike: dict[str, list[_Definition]] = {}
        for definition in self._lookup(f"kind = 'class' AND lower(name) IN ({marks})", tuple(words)):
            if not self.source(definition.file).is_test:
                alike.setdefault(words[definition.name.lower()], []).append(definition)
        return {name: classes for name, classes in alike.items() if len(classes) <= _MAX_NAMESAKES}

    def follow(self, values: Sequence[Value], step: str) -> tuple[list[int], list[Value]]:
        """Take a step from values; return the functions that run, and the values after it."""
        functions: list[int] = []
        following: list[Value] = []
        for definition, is_instance in values:
            is_class = definition.kind in _TYPES
            if step == "()" and not is_class:
                functions.append(definition.number)
                following += self._results(definition.number)
                continue
            classes = [definition] if is_class else [owner for owner, _ in self._results(definition.number)]
            names = step[1:] if step != "()" else "__call__" if is_instance else "__init__|__new__|constructor"
            numbers = next(filter(None, (self._find_method(classes, name, _DEPTH) for name in names.split("|"))), [])
            functions += numbers
            if step == "()" and not is_instance:
                following.append((definition, True))
            elif step.startswith("."):
                following += [(self.definition(number), False) for number in numbers]
            elif numbers:
                following += [result for number in numbers for result in self._results(number)]
            else:  # an annotation may have been that of an iterator or a context
                following.append((definition, is_instance))
        return functions, list(dict.fromkeys(following))[:_MAX_VALUES]

    def find_behind(self, number: int, owners: Collection[_Definition]) -> list[int]:
        """Return the callees of a method, and its and their overrides in subclasses of the classes it is called on."""
        method, numbers = self.definition(number), list[int]()
        for call in callees(self, [number], ()):
            name = call.callee.rpartition(".")[2]
            own = self._find_method(list(owners), name, _DEPTH) if "." in call.callee else []
            numbers += own or ([call.target] if call.target is not None else [])
        names = {owner.name for owner in owners}
        for name in dict.fromkeys([method.name, *(self.definition(each).name for each in numbers)]):
            for other in self._lookup("name = ? AND kind = 'method' LIMIT 50", (name,)):
                parent = self.definition(other.parent) if other.parent is not None else None
                if parent and names & {base.rpartition(".")[2] for base in parent.bases.split()}:
                    numbers.append(other.number)
        return [each for each in numbers if not self.source(self.definition(each).file).is_test]

    def _results(self, number: int, depth: int = _RESULT_DEPTH) -> list[Value]:
        """Return instances of the classes that a function's annotation and its return statements name."""
        function = self.definition(number)
        source, results = self.source(function.file), list[Value]()
        for name in function.results.split() if depth else ():
            owner = self._enclosing_class(number)
            if name in {*_SELVES, "Self"}:
                results += [(owner, True)] if owner else []
            elif classes := self._find_classes(source, name):
                results += [(definition, True) for definition in classes]
            else:
                receiver, _, last = name.rpartition(".")
                for called in self.resolve_call(source, number, receiver, last):
                    results += self._results(called, depth - 1)
        return results[:_MAX_VALUES]

    def _lookup(self, where: str, values: tuple[object, ...]) -> list[_Definition]:
        if (where, values) not in self._lookups:
            rows = self._database.execute(f"SELECT {_COLUMNS} FROM definitions WHERE {where}", values)  # noqa: S608 - constants only
            self._lookups[where, values] = [_Definition(*row) for row in rows]
            self._definitions.update((definition.number, definition) for definition in self._lookups[where, values])
        return self._lookups[where, values]

    def _resolve_bare_name(self, source: _Source, caller: int | None, name: str) -> list[int]:
        """Resolve a bare name in the enclosing definitions, then the file, then its imports."""
        local = self._lookup("file = ? AND name = ? AND kind <> 'constant'", (source.number, name))
        scopes = [*self._enclosing(caller), None]
        for outer in scopes:
            if outer is None or self.definition(outer).kind in _FUNCTIONS:  # class names are not in its methods' scope
                visible = [definition.number for definition in local if definition.parent == outer]
                if visible:
                    return visible
        owner = self._enclosing_class(caller) if source.path.endswith(_UNQUALIFIED) else None
        numbers = self._find_method([owner] if owner else [], name, _DEPTH) or self._follow_import(source, name, _DEPTH)
        if numbers:
            return numbers
        if source.path.endswith(".go"):
            folder = posixpath.dirname(source.path)
            same = self._lookup("name = ? AND parent IS NULL AND kind <> 'method'", (name,))
            return [d.number for d in same if posixpath.dirname(self.source(d.file).path) == folder]
        if not source.path.endswith((".py", ".pyi", *SCRIPTS)):
            matches = self._lookup("name = ? AND kind NOT IN ('method', 'constant') LIMIT 2", (name,))
            return [matches[0].number] if len(matches) == 1 else []
        return []

    def _enclosing(self, number: int | None) -> list[int]:
        numbers = []
        while number is not None:
            numbers.append(number)
            number = self.definition(number).parent
        return numbers

    def _enclosing_class(self, caller: int | None) -> _Definition | None:
        """Return the class of the method that contains a definition."""
        for number in self._enclosing(caller):
            definition = self.definition(number)
            if definition.kind not in _FUNCTIONS:
                return definition
            owner = definition.qualified.rpartition(".")[0]
            if definition.kind == "method" and definition.parent is None and owner:  # outside its class: Go, Rust, C++
                homonyms = self._lookup("name = ? AND qualified = ?", (owner.rpartition(".")[2], owner))
                classes = [candidate for candidate in homonyms if candidate.kind not in _FUNCTIONS]
                nearest = sorted(
                    classes,
                    key=lambda c: (
                        -len(posixpath.commonprefix([self.source(c.file).path, self.source(definition.file).path]))
                    ),
                )
                return nearest[0] if nearest else None
        return None

    def _bases(self, owner: _Definition) -> list[_Definition]:
        source = self.source(owner.file)
        return [c for base in owner.bases.split() for c in self._find_classes(source, base) if c.number != owner.number]

    def _find_method(self, owners: Sequence[_Definition], name: str, depth: int) -> list[int]:
        """Return the method of the first class that has one, own or inherited."""
        for owner in owners:
            key = owner.number, name, depth
            if key not in self._methods:
                own = self._lookup("parent = ? AND name = ?", (owner.number, name))
                if not own:  # defined outside its class
                    names = name, f"{owner.qualified}.{name}"
                    outside = self._lookup("name = ? AND qualified = ? AND parent IS NULL", names)
                    folder = posixpath.dirname(self.source(owner.file).path)
                    own = [m for m in outside if posixpath.dirname(self.source(m.file).path) == folder] or outside
                inherited = self._find_method(self._bases(owner), name, depth - 1) if depth and not own else []
                self._methods[key] = [method.number for method in own] or inherited
            if self._methods[key]:
                return self._methods[key]
        return []

    def _find_classes(self, source: _Source, dotted: str) -> list[_Definition]:
        before, _, name = dotted.rpartition(".")
        if before:
            numbers = [n for module in self._module_files(source, before) for n in self._export(module, name, _DEPTH)]
            classes = [definition for definition in map(self.definition, numbers) if definition.kind in _TYPES]
            outer = [] if classes else self._find_classes(source, before)
            return classes + [d for o in outer for d in self._lookup("parent = ? AND name = ?", (o.number, name))]
        local = [d for d in self._lookup("file = ? AND name = ?", (source.number, name)) if d.kind in _TYPES]
        if local:
            return local
        definitions = [self.definition(number) for number in self._follow_import(source, name, _DEPTH)]
        if not definitions and not source.path.endswith((".py", ".pyi", *SCRIPTS)):
            matches = self._lookup("name = ? AND kind IN ('class', 'interface', 'type', 'module') LIMIT 2", (name,))
            definitions = matches if len(matches) == 1 else []
        return [definition for definition in definitions if definition.kind in _TYPES]

    def _follow_import(self, source: _Source, name: str, depth: int) -> list[int]:
        numbers: list[int] = []
        for local, module, imported in source.imports:
            if local == name and imported not in {"", "*"}:
                for file in self._modules.find_files(source.path, module):
                    numbers += self._export(file, local if imported == "default" else imported, depth)
            elif imported == "*":
                for file in self._modules.find_files(source.path, module):
                    numbers += self._export(file, name, depth)
        return list(dict.fromkeys(numbers))

    def _export(self, file: int, name: str, depth: int) -> list[int]:
        """Return the definitions of a name imported from this file."""
        if (file, name, depth) not in self._exports:
            # A constant may be any callable: `register = registry.register`.
            own = self._lookup("file = ? AND name = ? AND parent IS NULL AND kind <> 'constant'", (file, name))
            imported = self._follow_import(self.source(file), name, depth - 1) if depth and not own else []
            self._exports[file, name, depth] = imported or [definition.number for definition in own]
        return self._exports[file, name, depth]

    def _module_files(self, source: _Source, dotted: str) -> list[int]:
        """Return the files that a local dotted name means."""
        first, *rest = dotted.split(".")
        files: list[int] = []
        for local, module, imported in source.imports:
            if local == dotted and not imported:
                files += self._modules.find_files(source.path, module)
            elif local == first and (imported not in {"*", "default"} or not rest):
                whole = (
                    module
                    if imported in {"", "default"}
                    else f"{module.removesuffix('.')}.{imported}"
                    if module.strip(".")
                    else f"{module}{imported}"
                )
                files += self._modules.find_files(source.path, ".".join([whole, *rest]) if rest else whole)
        return list(dict.fromkeys(files))


class ModulePaths:
    """Files of an index by import name."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def find_files(self, path: str, module: str) -> list[int]:
        """Return the files of a module, as imported by the file at `path`."""
        folder = posixpath.dirname(path)
        if path.endswith((".py", ".pyi")):
            name = module.lstrip(".")
            for _ in range(len(module) - len(name) - 1):
                folder = posixpath.dirname(folder)
            below = name.replace(".", "/")
            ends = [f"{below}.py", f"{below}.pyi", f"{below}/__init__.py"] if below else ["__init__.py"]
            if module.startswith("."):
                return [n for end in ends if (n := self._paths.get(posixpath.join(folder, end)))]
            return [n for end in ends for n in self._least_nested(end)]
        if path.endswith(".go"):
            matches = filter(None, map(self._by_tail.get, _tails(module)))
            return [self._paths[match] for match in next(matches, [])]
        if not module.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(folder, module))
        names = [base, *(base + end for end in SCRIPTS), *(f"{base}/index{end}" for end in SCRIPTS)]
        names += [posixpath.splitext(base)[0] + end for end in (".ts", ".tsx")]  # `./x.js` may mean `x.ts`
        return [n for name in names if (n := self._paths.get(name))][:1]

    def _least_nested(self, tail: str) -> list[int]:
        """Return the least nested files whose path ends so."""
        paths = self._by_tail.get(tail, [])
        least = min((path.count("/") for path in paths), default=0)
        return [self._paths[path] for path in paths if path.count("/") == least]

    @cached_property
    def _paths(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT path, id FROM files"))

    @cached_property
    def _by_tail(self) -> dict[str, list[str]]:
        """Paths by suffix; in Go, by the directory's suffix, which is imported."""
        by_tail: dict[str, list[str]] = {}
        for path in self._paths:
            for tail in _tails(posixpath.dirname(path) if path.endswith(".go") else path):
                by_tail.setdefault(tail, []).append(path)
        return by_tail


def _tails(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]
