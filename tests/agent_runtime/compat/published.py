"""Published tests of another project, run against our implementation of it.

Its source distribution is fetched by its name, checked by its hash, and read, never installed: its tests import our
package under the other's name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Published:
    """The tests of a project.

    Attributes:
        name: of its distribution.
        version: of that.
        sha256: of its file.
        package: the name under which the tests import it.
        module: our module in its place.
        fixtures: a module with the fixtures that its distribution leaves out; empty for none.
    """

    name: str
    version: str
    sha256: str
    package: str
    module: str
    fixtures: str = ""


def fetch_source(name: str, version: str, sha256: str, place: Path) -> Path:
    """Return the unpacked source distribution; skip the test where pip cannot fetch it."""
    wanted = place / "wanted.txt"
    wanted.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
    argv = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--no-build-isolation"]
    fetched = subprocess.run(
        [*argv, "--no-binary", name, "--require-hashes", "-r", str(wanted), "-d", str(place)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if fetched.returncode != 0:
        pytest.skip(f"pip could not fetch {name} {version}: {fetched.stderr.strip()[-300:]}")
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(place, filter="data")
    return place / archive.name.removesuffix(".tar.gz")


def outcomes(of: Published, place: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Run published tests; return by name `passed`, or the first line of the error.

    Args:
        of: the tests.
        place: an empty directory.
        environment: more variables for the tests.
    """
    tests = fetch_source(of.name, of.version, of.sha256, place) / "tests"
    alias = place / "alias" / of.package
    alias.mkdir(parents=True)
    (alias / "__init__.py").write_text(f"from {of.module} import *\n")
    if of.fixtures:
        (tests / "conftest.py").write_text(f"from {of.fixtures} import *\n")
    report = place / "report.xml"
    # From a directory of its own, so that none of our settings count.
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}", f"--rootdir={tests}")
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tests)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": f"{alias.parent}:{ROOT}", **(environment or {})},
        capture_output=True,
        timeout=110,
        check=False,
    )
    return {
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}": _came_of(case)
        for case in ET.parse(report).iter("testcase")  # noqa: S314 - pytest wrote it
    }


def _came_of(case: ET.Element) -> str:
    wrong = next((child for child in case if child.tag in {"failure", "error", "skipped"}), None)
    return "passed" if wrong is None else wrong.get("message", wrong.tag).partition("\n")[0]
