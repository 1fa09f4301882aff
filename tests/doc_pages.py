"""The pages of the library's guide as something to run: files, examples, what is typed, what is printed.

A page marks its fences with comments; those with one name belong together:

    file: PATH        a file that the page's examples find, its model replaced by a script if it is an agent file
    example: NAME     a program; all of a page's run in order, in one directory
    output: NAME      what it prints, and what is typed; UPDATE_DOCS=1 writes it anew
    script: NAME      what the model says in it; hidden, since it stands inside the comment
    typed: NAME       what its user types; hidden in the same way
"""

from __future__ import annotations

import builtins
import os
import re
import runpy
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.forked import returned
from tests.source_files import ROOT

ENTRY = ROOT / "docs" / "library.md"
PAGES = (ENTRY, *sorted((ROOT / "docs" / "guide").glob("*.md")), ROOT / "docs" / "from-codepilot.md")

_MARKED = re.compile(
    r"^<!-- (?P<kind>file|example|output): (?P<name>\S+) -->\n"
    r"(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_HIDDEN = re.compile(r"^<!-- (?P<kind>script|typed): (?P<name>\S+)\n(?P<text>.*?)^-->$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^(?P<before>.*)\n```python$", re.MULTILINE)
_SECONDS = re.compile(r"\b\d+\.\d s\b")


@dataclass(frozen=True)
class Page:
    """What a page marks, each kind by name and in order."""

    path: Path
    files: dict[str, str] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Page:
        text, page = path.read_text(encoding="utf-8"), cls(path)
        kinds = {"file": page.files, "example": page.examples, "output": page.outputs}
        for marked in _MARKED.finditer(text):
            kinds[marked["kind"]][marked["name"]] = marked["text"]
        for hidden in _HIDDEN.finditer(text):
            (page.scripts if hidden["kind"] == "script" else page.typed)[hidden["name"]] = hidden["text"]
        return page

    @property
    def shown(self) -> str:
        """The page as its readers see it: without what stands in comments."""
        return _HIDDEN.sub("", self.path.read_text(encoding="utf-8"))

    def unmarked(self) -> list[int]:
        """Lines of Python fences that nothing runs."""
        text = self.path.read_text(encoding="utf-8")
        return [
            text.count("\n", 0, found.end()) + 1
            for found in _PYTHON.finditer(text)
            if not found["before"].startswith(("<!-- example:", "<!-- file:"))
        ]

    def lay_out(self, folder: Path) -> None:
        """Write the files that the examples find: those of the page, and the entry page's agent file."""
        (folder / "workspace").mkdir(exist_ok=True)
        for name, text in {"agent.yaml": Page.read(ENTRY).files["agent.yaml"], **self.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_scripted(text, folder) if name.endswith("agent.yaml") else text, encoding="utf-8")

    def ran(self, name: str, folder: Path, *arguments: str, typed: str | None = None) -> str:
        """What an example prints; its times are rounded away."""
        if name in self.scripts:
            (folder / "script.yaml").write_text(self.scripts[name], encoding="utf-8")
        program = folder / name if name in self.files else folder / "example.py"
        if name in self.examples:
            program.write_text(self.examples[name], encoding="utf-8")
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder)}
        stdin = self.typed.get(name, "") if typed is None else typed
        done = returned(_run, program.name, *arguments, env=env, at=folder, stdin=stdin)
        assert done.returncode == 0, f"{self.path.name}, example {name}:\n{done.stdout}\n{done.stderr}"
        return _SECONDS.sub("0.0 s", done.stdout)

    def write_output(self, name: str, printed: str) -> None:
        """Put what an example printed in the place of what the page says."""

        assert not printed or printed.endswith("\n"), (
            f"{self.path.name}, example {name}: end what it prints with a line break"
        )

        def fresh(marked: re.Match[str]) -> str:
            if (marked["kind"], marked["name"]) != ("output", name):
                return marked[0]
            return f"<!-- output: {name} -->\n{marked['fence']}{marked['language']}\n{printed}{marked['fence']}"

        text = self.path.read_text(encoding="utf-8")
        self.path.write_text(_MARKED.sub(fresh, text), encoding="utf-8")


def _scripted(text: str, folder: Path) -> str:
    """An agent file that asks a script instead of its model."""
    document = yaml.safe_load(text)
    document["agent"]["model"] = {"provider": "scripted", "script": str(folder / "script.yaml")}
    return yaml.safe_dump(document)


def _run(program: str, *arguments: str) -> None:
    """Run a program so that what is typed appears, as it does on a terminal."""
    ask = builtins.input

    def echoing(prompt: str = "") -> str:
        line = ask(prompt)
        print(line)  # noqa: T201 - see above
        return line

    builtins.input = echoing  # type: ignore[assignment]
    warnings.simplefilter("error")
    sys.path.insert(0, "")
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
