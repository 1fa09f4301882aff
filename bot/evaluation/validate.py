"""Run a task's tests in the sandbox; confirm that they fail before the real change and pass after it."""

from __future__ import annotations

import asyncio
import configparser
import hashlib
import json
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from agent_runtime import BoundExceededError, CommandEnd, CommandRunner, Network, Sandbox, run_bounded
from bot.evaluation.bundle import prepare_tree, unpack_bundle
from bot.evaluation.suite import (
    MAX_TESTS,
    Refusal,
    Suite,
    SuiteError,
    Task,
    Validation,
    load_toml,
    read_refusals,
    read_suite,
    write_refusals,
    write_task,
)
from bot.git.errors import GitError
from bot.git.filesystem import discard, open_root, read_file, run_thread
from bot.git.process import Git
from bot.prompt.sanitize import clean_line

COMMAND_TEST = "the test command"
"""The only test of a run without a JUnit report: whether the command ended with exit code 0."""

_MAX_REPORT_BYTES = 64 * 1024**2
_REPORT_SECONDS, _REPORT_MEMORY = 30.0, 1024**3
_TAIL_CHARS = 500
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_MAX_NAME, _MAX_REASON = 2_000, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """The sandbox of a task's commands; `setup_seconds` limits all of the setup, `test_seconds` each run."""

    sandbox: Sandbox
    setup_network: Network = field(default_factory=Network)
    network: Network = field(default_factory=Network)
    setup_seconds: float = 600.0
    test_seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Whether each test passed, by node id; `problem` is why tests are missing."""

    tests: Mapping[str, bool] = field(default_factory=dict)
    problem: str = ""
    setup_failed: bool = False
    seconds: float = 0.0


async def run_tests(tree: Path, task: Task, place: RunPlace, *, times: int = 1) -> list[RunReport]:
    """Run a task's setup, then its tests, in a new directory of `prepare_tree`.

    Returns:
        One report for each run; a single one if the setup failed.
    """
    remaining = place.setup_seconds
    async with CommandRunner(place.sandbox, tree, network=place.setup_network) as runner:
        for command in task.setup:
            end = await runner.run(command, seconds=max(0.0, remaining))
            remaining -= end.seconds
            if not end.ok:
                return [RunReport(problem=f"the setup failed: {_describe(end)}", setup_failed=True)]
    reports = []
    async with CommandRunner(place.sandbox, tree, network=place.network) as runner:
        for _ in range(times):
            name = f".codepilot-{secrets.token_hex(8)}.xml"
            # The option is split as a shell does, but without variables; so bash writes the directory into it.
            options = (
                f"-p no:cacheprovider --continue-on-collection-errors -o junit_family=xunit1 '--junitxml=$PWD/{name}'"
            )
            end = await runner.run(
                f'export PYTEST_ADDOPTS="${{PYTEST_ADDOPTS:-}} {options}"\n{task.test_command}',
                seconds=place.test_seconds,
            )
            reports.append(await _read_report(tree, name, replace(end, command=task.test_command)))
    return reports


async def _read_report(tree: Path, name: str, end: CommandEnd) -> RunReport:
    def take() -> bytes | None:
        path = name.encode()
        with open_root(tree) as root:
            content = read_file(root, path, "100644", limit=_MAX_REPORT_BYTES)
        with suppress(OSError):  # a directory, perhaps; the next report has another name
            (tree / name).unlink()
        return content

    content = await run_thread(take)
    problem = "" if end.ok else f"the tests did not end well: {_describe(end)}"
    if content is None:
        return RunReport(tests={COMMAND_TEST: end.ok}, problem=problem, seconds=end.seconds)
    if len(content) > _MAX_REPORT_BYTES:
        return RunReport(
            problem=f"the report of the tests has more than {_MAX_REPORT_BYTES:,} bytes", seconds=end.seconds
        )
    try:
        tests = await run_bounded(
            read_junit, content, seconds=_REPORT_SECONDS, memory=_REPORT_MEMORY, task="Reading the report of the tests"
        )
    except (BoundExceededError, ValueError) as error:
        return RunReport(problem=f"the report of the tests cannot be read: {error}", seconds=end.seconds)
    return RunReport(tests=tests, problem=problem if end.timed_out else "", seconds=end.seconds)


def read_junit(report: bytes) -> dict[str, bool]:
    """Read the tests of a JUnit report that were not skipped, in a worker."""
    try:
        top = ET.fromstring(report)  # noqa: S314 - in a worker with limits on time and memory
    except ET.ParseError as error:
        raise ValueError(f"it is not XML: {error}") from error
    tests: dict[str, bool] = {}
    for case in top.iter("testcase"):
        outcomes = {child.tag for child in case}
        if "skipped" in outcomes:
            continue
        file, classes = case.get("file", ""), case.get("classname", "")
        if file.startswith(("../", "/")):  # a base class in an installed package, which lies elsewhere on each machine
            file = ""
        module = file.removesuffix(".py").replace("/", ".")
        if file and (classes == module or classes.startswith(f"{module}.")):
            parts = [file, *filter(None, classes[len(module) + 1 :].split(".")), case.get("name", "")]
        else:
            parts = [*filter(None, (file or classes,)), case.get("name", "")]
        # Names of objects in parameters have their address, which is another one in each run.
        name = _ADDRESS.sub("0x…", "::".join(parts)[:_MAX_NAME])
        tests[name] = tests.get(name, True) and not outcomes & {"failure", "error"}
        if len(tests) > MAX_TESTS:
            raise ValueError(f"it has more than {MAX_TESTS:,} tests")
    return tests


_PLACES = (
    ("tool", "pytest"),
    ("tool", "poetry", "plugins"),
    ("tool", "setuptools", "dynamic", "entry-points"),
    ("project", "entry-points"),
    ("build-system", "backend-path"),
)


def read_pytest_settings(is_toml: bool, content: bytes) -> str:  # noqa: FBT001 - called by a worker
    """Return the sections for pytest and the entry points of a file of settings, as text. Runs in a bounded worker."""
    text = content.decode("utf-8", "replace")
    if is_toml:
        data = load_toml(text)
        sections = list[Any]()
        for place in _PLACES:
            table: Any = data
            for key in place:
                table = table.get(key) if isinstance(table, dict) else None
            sections.append(table)
        return json.dumps(sections, sort_keys=True)
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from error
    names = ("pytest", "tool:pytest", "options.entry_points")
    options = {name: dict(parser[name]) for name in names if name in parser}
    return json.dumps([options, parser.get("options", "entry_points", fallback="")], sort_keys=True)


def _describe(end: CommandEnd) -> str:
    outcome = "did not end" if end.exit_code is None else f"ended with exit code {end.exit_code}"
    tail = f"; it wrote: …{end.output.strip()[-_TAIL_CHARS:]}" if end.output.strip() else ""
    return f"`{end.command[-200:]}` {outcome} after {end.seconds:.1f} s{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """The result of a validation; `settled` counts tasks of an earlier one."""

    tasks: tuple[Task, ...]
    refusals: tuple[Refusal, ...]
    settled: int = 0


async def validate_suite(
    path: Path,
    place: RunPlace,
    *,
    jobs: int = 2,
    retry: bool = False,
    report: Callable[[str], None] = lambda _line: None,
) -> ValidationResult:
    """Validate the tasks of a suite, `jobs` at a time, and write each result at once.

    Args:
        retry: whether tasks that were refused are tried again although nothing of them has changed.

    Raises:
        SandboxError: the sandbox cannot be started.
        SettingsError: the sandbox cannot enforce the network.
        SuiteError: the suite cannot be read.
    """
    suite = read_suite(path)
    fingerprints = {task.id: fingerprint(suite, task) for task in suite.tasks}
    refused = {
        refusal.id: refusal
        for refusal in read_refusals(path)
        if refusal.stage == "validate" and not retry and refusal.fingerprint == fingerprints.get(refusal.id)
    }
    settled = {
        task.id for task in suite.tasks if task.validated and task.validated.fingerprint == fingerprints[task.id]
    }
    tasks: list[Task] = []
    turns = asyncio.Semaphore(jobs)

    async def validate(store: Git, task: Task) -> None:
        async with turns:
            try:
                validated = await _validate(store, suite, task, place, fingerprints[task.id])
            except (SuiteError, GitError) as error:
                mark, reason = fingerprints[task.id], clean_line(str(error), limit=_MAX_REASON)
                refused[task.id] = Refusal(
                    id=task.id, stage="validate", title=task.title, reason=reason, fingerprint=mark
                )
                write_task(path, task.model_copy(update={"validated": None}))
                write_refusals(path, "validate", list(refused.values()))
                report(f"{task.id}: refused: {reason}")
            else:
                tasks.append(validated)
                write_task(path, validated)
                count = len(validated.fail_to_pass)
                outcome = "1 test fails before, and passes" if count == 1 else f"{count} tests fail before, and pass"
                report(f"{task.id}: validated: {outcome} after")

    with tempfile.TemporaryDirectory(prefix="codepilot-eval-") as folder:
        store = await unpack_bundle(path, Path(folder) / "store.git")
        try:
            async with asyncio.TaskGroup() as group:
                for task in suite.tasks:
                    if task.id not in settled and task.id not in refused:
                        group.create_task(validate(store, task))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
    write_refusals(path, "validate", list(refused.values()))
    return ValidationResult(tasks=tuple(tasks), refusals=tuple(refused.values()), settled=len(settled))


def fingerprint(suite: Suite, task: Task) -> str:
    """Return a hash of a task's files, commands and declared tests."""
    facts = [1, task.base_commit, task.solution_commit, task.setup, task.test_command]
    content = json.dumps(facts).encode(), suite.read_hidden(task), suite.read_reference(task)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in content)).hexdigest()


async def _validate(store: Git, suite: Suite, task: Task, place: RunPlace, mark: str) -> Task:
    """Run the tests before the change, and twice after it.

    Raises:
        SuiteError: the tests do not confirm the task; the text is the reason.
    """
    started = time.monotonic()
    hidden, reference = suite.read_hidden(task), suite.read_reference(task)
    runs: list[RunReport] = []
    folder = Path(tempfile.mkdtemp(prefix="codepilot-eval-"))
    try:
        for name, change, times in (("before", b"", 1), ("after", reference, 2)):
            await prepare_tree(store, task, folder / name, change=change, hidden=hidden)
            runs += await run_tests(folder / name, task, place, times=times)
            if problem := next((run.problem for run in runs if run.setup_failed or not run.tests), ""):
                raise SuiteError(f"{name} the change {problem}")
    finally:
        await run_thread(discard, folder)
    before, after, again = (run.tests for run in runs)
    if after.get(COMMAND_TEST) is False:
        raise SuiteError(f"with the change {runs[1].problem}")
    passed = {name for name, ok in after.items() if ok and again.get(name)}
    flaky = {name for name in after.keys() | again.keys() if bool(after.get(name)) != bool(again.get(name))}
    # A name that changes in each run is missing, too; in a file that cannot be imported, all names are.
    files = {name.split("::")[0] for name in passed}
    broken = sorted(
        name
        for name, ok in before.items()
        if ok and name not in passed | flaky and (name in after or name.split("::")[0] not in files)
    )
    failing = sorted(name for name in passed if not before.get(name))
    if broken:
        raise SuiteError(f"the change breaks {_list_names(broken)}")
    if not failing:
        cause = f"; flaky ones are left out: {_list_names(sorted(flaky))}" if flaky else ""
        raise SuiteError(f"no test fails before the change and passes twice with it{cause}")
    passing = sorted(passed - set(failing))
    if task.fail_to_pass and (missing := sorted(set(task.fail_to_pass) - set(failing))):
        raise SuiteError(f"its fail_to_pass has tests that do not fail before and pass after: {_list_names(missing)}")
    validation = Validation(
        date=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        fingerprint=mark,
        seconds=round(time.monotonic() - started, 1),
        tests=len(after),
    )
    declared = set(task.pass_to_pass) or passed
    lists = {
        "fail_to_pass": task.fail_to_pass or failing,
        "pass_to_pass": [name for name in passing if name in declared],
    }
    return task.model_copy(update={**{key: tuple(names) for key, names in lists.items()}, "validated": validation})


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004 - as many as are shown
    return f"{', '.join(names[:3])}{more}"
