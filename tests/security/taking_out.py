"""Remove each defence from a copy of the tree, and verify that its tests fail; run by `scripts/take-out-defences`.

    scripts/take-out-defences           all of them
    scripts/take-out-defences 31 55     those of some threats

The exit code is 1 if a removal goes unnoticed, or a test fails with all defences in place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tests.security.defences import Defence, defences
from tests.source_files import ROOT

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", ".*_cache", "dist", "build", "*.egg-info")
_SECONDS = 300
# A test that stumbles over what is left of the code has not missed the defence.
_STUMBLED = re.compile(r"(?:Name|Attribute|Import|ModuleNotFound|Syntax|Type|UnboundLocal)Error\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of a test run.

    Attributes:
        skipped: reasons of skipped tests.
        failed: first lines of failed assertions.
        broke: first lines of other failures, or pytest's output if it ran no test.
    """

    passed: int
    skipped: tuple[str, ...]
    failed: tuple[str, ...]
    broke: tuple[str, ...]


def main(threats: Collection[int]) -> int:
    """Remove the defences of these threats, or of all, and return the exit code."""
    chosen = [each for each in defences() if not threats or each.threat in threats]
    with tempfile.TemporaryDirectory(prefix="codepilot-defences-") as directory:
        copy = Path(directory, "tree")
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT, symlinks=True)
        for place in (Path(directory), copy):
            place.chmod(0o755)  # some tests look at it as another user
        tests = list(dict.fromkeys(test for each in chosen for test in each.tests))
        whole = _run(copy, tests)
        click.echo(f"With all defences: {whole.passed} tests passed, {len(whole.skipped)} were skipped.")
        if whole.failed or whole.broke:
            click.echo("\n".join(["These fail already:", *map(_short, (*whole.failed, *whole.broke))]))
            return 1
        unseen = [each for each in chosen if not _missed(copy, each)]
    click.echo(f"\n{len(chosen) - len(unseen)} of {len(chosen)} defences are missed by their tests.")
    return 1 if unseen else 0


def _missed(copy: Path, defence: Defence) -> bool:
    """Whether a test notices the missing defence; prints its line of the table."""
    file = copy / defence.file
    source = file.read_text()
    file.write_text(defence.taken_out_of(source))
    try:
        answer = _run(copy, defence.tests)
    finally:
        file.write_text(source)
    here_skipped = bool(answer.skipped) and not (answer.passed or answer.failed or answer.broke)
    verdict = "missed" if answer.failed else "not here" if here_skipped else "BROKEN" if answer.broke else "UNSEEN"
    said = next(iter((*answer.failed, *answer.broke, *answer.skipped)), "its tests passed without it")
    click.echo(f"{defence.threat:>3}  {verdict:<8}  {defence.what:<72}  {_short(said)}")
    return bool(answer.failed) or here_skipped


def _short(said: str) -> str:
    return " ".join(said.split())[:90]


def _run(copy: Path, tests: Sequence[str]) -> Answer:
    """Run tests in the copy, whose modules precede the installed ones."""
    report = copy.parent / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", f"--junit-xml={report}", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(passed=0, skipped=(), failed=(), broke=(f"they did not end within {_SECONDS} s",))
    if not report.exists():
        return Answer(passed=0, skipped=(), failed=(), broke=(done.stdout[-2_000:] + done.stderr[-2_000:],))
    return _read(report)


def _read(report: Path) -> Answer:
    failed: list[str] = []
    broke: list[str] = []
    skipped: list[str] = []
    passed = 0
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        wrong = {child.tag: child.get("message", "") for child in case}
        name = case.get("name", "")
        if "failure" in wrong:
            (broke if _STUMBLED.match(wrong["failure"]) else failed).append(f"{name}: {wrong['failure']}")
        elif "error" in wrong:
            broke.append(f"{name}: {wrong['error']}")
        elif "skipped" in wrong:
            skipped.append(f"{name}: {wrong['skipped']}")
        else:
            passed += 1
    return Answer(passed=passed, skipped=tuple(skipped), failed=tuple(failed), broke=tuple(broke))


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]]))
