"""Count the callers that the code index finds, beside those that a trace of Django's own tests shows.

Usage: python -m bench.bench_calls FOLDER. Django's source is downloaded into the folder with pip, and what its tests
need is installed there, unless it is there. The tests run with SQLite, and each call between two functions of Django is
noted. Those pairs count whose caller names the callee in a call, as Python's own parser says: no index finds
`getattr(self, name)()`. A sure caller can be checked if it was seen to call that name: it is right if it was seen to
call this definition, and it may have called the method of a subclass in place of it.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.workspace.files import Workspace
from bench.packages import unpacked

_DJANGO = "pip: Django==5.2"
_NEEDED = ("asgiref==3.8.1", "sqlparse==0.5.3")
_TESTS = (
    "basic",
    "forms_tests",
    "template_tests",
    "auth_tests",
    "utils_tests",
    "aggregation",
    "admin_views.test_actions",
)
_FUNCTIONS = 150
_SEED = 1
_READY = 600.0
_TRACER = """
import atexit, json, os, runpy, sys, threading
root, out, *sys.argv = sys.argv[1:]
inside, seen = os.path.join(root, "django") + os.sep, set()
def note(frame, event, _):
    above = frame.f_back
    if event == "call" and above and all(each.f_code.co_filename.startswith(inside) for each in (frame, above)):
        seen.add((above.f_code, frame.f_code))
def store():
    sys.setprofile(None)
    place = lambda code: (os.path.relpath(code.co_filename, root), code.co_qualname.replace(".<locals>", ""))
    with open(out, "w") as file:
        json.dump([[*place(caller), *place(callee)] for caller, callee in list(seen)], file)
atexit.register(store)
threading.setprofile(note)
sys.setprofile(note)
runpy.run_path(sys.argv[0], run_name="__main__")
"""

_Place = tuple[str, str]
"""A path, and the qualified name of a function there."""


def main(folder: Path) -> None:
    root = unpacked(folder, _DJANGO).resolve()
    known: dict[str, dict[str, set[str]]] = {}
    traced = _traced(folder, root)
    for path in {caller[0] for caller, _ in traced}:
        _collect(ast.parse((root / path).read_text(encoding="utf-8")), "", known.setdefault(path, {}))
    called = {
        (caller, callee)
        for caller, callee in traced
        if callee[1].rpartition(".")[2] in known[caller[0]].get(caller[1], set())
    }
    callees = sorted({callee for _, callee in called if not callee[1].endswith("__") and "<" not in callee[1]})
    chosen = random.Random(_SEED).sample(callees, min(_FUNCTIONS, len(callees)))  # noqa: S311 - a sample, no secret
    asyncio.run(_compare(root, called, chosen))


def _traced(folder: Path, root: Path) -> set[tuple[_Place, _Place]]:
    """The pairs of functions of which the first was seen to call the second."""
    needed, out = folder.resolve() / "django-needs", folder.resolve() / "django-calls.json"
    if not needed.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(needed), *_NEEDED]
        subprocess.run(pip, check=True)
    if not out.exists():
        tests = [str(root / "tests" / "runtests.py"), "--parallel=1", "-v0", *_TESTS]
        env = {**os.environ, "PYTHONPATH": f"{root}:{needed}"}
        subprocess.run(
            [sys.executable, "-c", _TRACER, str(root), str(out), *tests], cwd=root / "tests", env=env, check=False
        )
    rows = json.loads(out.read_text(encoding="utf-8"))
    pairs = {((path, name), (other, callee)) for path, name, other, callee in rows}
    return {pair for pair in pairs if all(path.endswith(".py") for path, _ in pair)}  # and not a template's name


def _collect(node: ast.AST, around: str, into: dict[str, set[str]]) -> None:
    """The names that each function of a file calls, by Python's parser."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _collect(child, f"{around}.{child.name}".lstrip("."), into)
            continue
        if isinstance(child, ast.Call):
            name = child.func.id if isinstance(child.func, ast.Name) else getattr(child.func, "attr", "")
            into.setdefault(around, set()).add(name)
        _collect(child, around, into)


async def _compare(root: Path, called: set[tuple[_Place, _Place]], chosen: list[_Place]) -> None:
    sure_found = found = traced = right = other = wrong = 0
    missed: list[str] = []
    with Workspace(root) as workspace:
        index = WorkspaceIndex(workspace)
        await index.wait_ready(_READY)
        for callee in chosen:
            name = callee[1].rpartition(".")[2]
            calls = await index.callers("::".join(callee))
            told: dict[_Place, bool] = {}
            for call in calls:
                if call.caller is not None:
                    place = call.caller.path, call.caller.qualified
                    told[place] = told.get(place, False) or call.sure
            callers = {caller for caller, each in called if each == callee}
            traced += len(callers)
            found += sum(caller in told for caller in callers)
            sure_found += sum(told.get(caller, False) for caller in callers)
            missed += [f"{'::'.join(callee)} in {'::'.join(caller)}" for caller in callers if caller not in told]
            for caller in (place for place, sure in told.items() if sure):
                seen = {each for place, each in called if place == caller and each[1].rpartition(".")[2] == name}
                right += callee in seen
                other += bool(seen) and callee not in seen and "." in callee[1]
                wrong += bool(seen) and callee not in seen and "." not in callee[1]
        await index.close()
    print("| functions | traced callers | sure | sure or maybe | sure, checked | right | of a subclass | wrong |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    seen_sure = right + other + wrong
    print(f"| {len(chosen)} | {traced} | {sure_found} | {found} | {seen_sure} | {right} | {other} | {wrong} |")
    print(*(f"not found: {each}" for each in sorted(missed)), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
