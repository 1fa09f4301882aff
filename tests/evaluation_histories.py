"""Histories of two published projects, made for evaluations: each fault is repaired by a commit with its test."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.origin import Origin
from tests.real_failures import PROJECTS
from tests.source_files import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A commit that repairs a fault.

    Attributes:
        path: the file at fault, with `fault` in place of `code`.
        tests: files that come with it; a text that the published file has is taken out of it before.
    """

    message: str
    path: str
    fault: str
    code: str
    test_path: str
    test: str


ANNOTATED_TYPES = (
    Repair(
        message="A Len without bounds should have no constraints (#41)\n\n"
        "list(Len(0, None)) is [MinLen(0)]; it has to be empty.",
        path="annotated_types/__init__.py",
        fault="        if self.min_length >= 0:\n",
        code="        if self.min_length > 0:\n",
        test_path="tests/test_len.py",
        test="from annotated_types import Len\n\n\ndef test_no_bounds() -> None:\n"
        "    assert list(Len(0, None)) == []\n",
    ),
    Repair(
        message="Intervals lose an inclusive upper bound (#42)\n\nInterval(gt=1, le=5) accepts 6.",
        path="annotated_types/__init__.py",
        fault="",
        code="        if self.le is not None:\n            yield Le(self.le)\n",
        test_path="tests/test_interval.py",
        test="from annotated_types import Gt, Interval, Le\n\n\ndef test_upper_bound() -> None:\n"
        "    assert list(Interval(gt=1, le=5)) == [Gt(1), Le(5)]\n",
    ),
)
PATH_PARSE = (
    Repair(
        message="Paths of a drive lose their root (#7)\n\nThe root of `C:\\path\\dir` must be `C:\\`, and is `C:`.",
        path="index.js",
        fault="device = (result[1] || ''),",
        code="device = (result[1] || '') + (result[2] || ''),",
        test_path="test.js",
        test="checkParseFormat(pathParse.win32, winParseTests);\n",
    ),
)


def make_history(folder: Path, project: str, repairs: tuple[Repair, ...]) -> Origin:
    """Commit a published project with all faults and without their tests, and then each repair."""
    if not (PROJECTS / project).exists():
        subprocess.run([ROOT / "scripts/red-projects"], check=True)
    root = PROJECTS / project
    files = {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*") if path.is_file()}
    tests = {repair.test_path: files.get(repair.test_path, "") for repair in repairs}
    origin = Origin(folder)
    for repair in repairs:
        assert files[repair.path].count(repair.code) == 1
        files[repair.path] = files[repair.path].replace(repair.code, repair.fault or "# \n")
        if tests[repair.test_path]:
            files[repair.test_path] = tests[repair.test_path].replace(repair.test, "")
    origin.commit(files, "Publish the project")
    for repair in repairs:
        files[repair.path] = files[repair.path].replace(repair.fault or "# \n", repair.code)
        changed = {repair.path: files[repair.path], repair.test_path: tests[repair.test_path] or repair.test}
        origin.commit(changed, repair.message)
    return origin
