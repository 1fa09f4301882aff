"""Two small packages with a history, and suites of tasks from it, for evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.evaluation.bundle import add_base, unpack_bundle, write_bundle
from bot.evaluation.suite import SuiteHead, Task, Validation, read_suite, write_suite, write_task
from bot.evaluation.validate import fingerprint
from tests.origin import Origin

PYTEST = "python -m pytest -q"
# The plugins of the environment that runs the tests cost most of the time.
_PLUGINS = ("anyio", "asyncio", "hypothesispytest", "timeout", "xdist", "xdist.looponfail")
PYPROJECT = f"[tool.pytest.ini_options]\naddopts = '{' '.join(f'-p no:{name}' for name in _PLUGINS)}'\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A merged change of a package: a source file and a test file before and after.

    Attributes:
        added: the names of the tests that it adds, which fail before.
    """

    id: str
    title: str
    issue: str
    source: str
    before: str
    after: str
    tests: str
    old_tests: str
    new_tests: str
    added: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    name: str
    changes: tuple[Change, ...]
    other_files: dict[str, str] = field(default_factory=dict)


_FARES = "def child(price):\n    return price // 2\n"
_FARES_TESTS = "from fares import child\n\n\ndef test_even():\n    assert child(10) == 5\n"
FARES = Package(
    name="transit/fares",
    changes=(
        Change(
            id="12-half-cents",
            title="Half cents are lost",
            issue="`child(5)` gives 2, but half a fare is rounded up: it must give 3.",
            source="fares.py",
            before=_FARES,
            after="def child(price):\n    return -(-price // 2)\n",
            tests="tests/test_fares.py",
            old_tests=_FARES_TESTS,
            new_tests=f"{_FARES_TESTS}\n\ndef test_odd_is_rounded_up():\n    assert child(5) == 3\n",
            added=("tests/test_fares.py::test_odd_is_rounded_up",),
            kept=("tests/test_fares.py::test_even",),
        ),
    ),
    other_files={"README.md": "# Fares\n"},
)

_FREE = _FARES.replace("return price // 2", "return -(-price // 2)")
_LATER = Change(
    id="31-free-for-babies",
    title="Babies pay",
    issue="`baby(10)` must give 0.",
    source="fares.py",
    before=_FREE,
    after=f"{_FREE}\n\ndef baby(price):\n    return 0\n",
    tests="tests/test_babies.py",
    old_tests="from fares import child\n",
    new_tests="from fares import baby\n\n\ndef test_babies_are_free():\n    assert baby(10) == 0\n",
    added=("tests/test_babies.py::test_babies_are_free",),
    kept=(),
)
FARES = replace(FARES, changes=(*FARES.changes, _LATER))

_SLUGS = "def slug(title):\n    return title.lower().replace(' ', '-')\n"
_SLUGS_TESTS = "from slugs import slug\n\n\ndef test_spaces():\n    assert slug('A b') == 'a-b'\n"
SLUGS = Package(
    name="texts/slugs",
    changes=(
        Change(
            id="7-outer-spaces",
            title="Slugs begin with a dash",
            issue="`slug(' A b')` gives `-a-b`. Outer spaces must be ignored.",
            source="slugs/__init__.py",
            before=_SLUGS,
            after=_SLUGS.replace("title.lower", "title.strip().lower"),
            tests="slugs/tests/test_slugs.py",
            old_tests=_SLUGS_TESTS,
            new_tests=f"{_SLUGS_TESTS}\n\ndef test_outer_spaces():\n    assert slug(' A b') == 'a-b'\n",
            added=("slugs/tests/test_slugs.py::test_outer_spaces",),
            kept=("slugs/tests/test_slugs.py::test_spaces",),
        ),
    ),
    # Not the level of a configuration, and instructions that one may replace.
    other_files={".github/codepilot.yml": "level: read-only\ninstructions: Write British English.\n"},
)


def make_history(package: Package, path: Path) -> Origin:
    """Make a repository with a first commit and one for each change; the files of earlier changes stay."""
    origin = Origin(path)
    first = {change.source: change.before for change in reversed(package.changes)}
    tests = {change.tests: change.old_tests for change in reversed(package.changes)}
    origin.commit({**first, **tests, "pyproject.toml": PYPROJECT, **package.other_files}, message="Begin")
    for change in package.changes:
        files = {change.source: change.after, change.tests: change.new_tests}
        origin.commit(files, message=f"{change.title} (#{change.id.partition('-')[0]})")
    return origin


async def make_suite(package: Package, directory: Path) -> Path:
    """Make a suite with a task for each change of a package."""
    origin, suite = make_history(package, directory / "origin"), directory / "suite"
    write_suite(suite, SuiteHead(repository=package.name, commit=origin.git("rev-parse", "HEAD")))
    store = await unpack_bundle(suite, directory / "first.git", objects=[origin.path / ".git/objects"])
    for change, commit in zip(
        package.changes, origin.git("rev-list", "--reverse", f"HEAD~{len(package.changes)}..HEAD").split(), strict=True
    ):
        task = Task(
            id=change.id,
            title=change.title,
            base_commit=origin.git("rev-parse", f"{commit}^"),
            solution_commit=commit,
            test_command=PYTEST,
            fail_to_pass=change.added,
            pass_to_pass=change.kept,
        )
        await add_base(store, task, origin.git("rev-parse", f"{commit}^^{{tree}}"), at=1_700_000_000)
        diff = ("diff", "--binary", "--full-index", f"{commit}^", commit, "--")
        hidden, reference = (f"{origin.git(*diff, path)}\n".encode() for path in (change.tests, change.source))
        write_task(suite, task, issue=change.issue, hidden=hidden, reference=reference)
    written = read_suite(suite)
    for task in written.tasks:
        mark = fingerprint(written, task)
        validated = Validation(date="2026-11-28T20:00:00Z", fingerprint=mark, seconds=1.0, tests=2)
        write_task(suite, task.model_copy(update={"validated": validated}))
    await write_bundle(store, suite)
    return suite
