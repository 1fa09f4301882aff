"""Run a task's tests in the sandbox; confirm that they fail before the real change and pass after it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree as ET

from agent_runtime import BoundExceededError, CommandEnd, CommandRunner, Network, Sandbox, run_bounded
from bot.evaluation.suite import MAX_TESTS, Task
from bot.git.filesystem import open_root, read_file, run_thread

COMMAND_TEST = "the test command"
"""The only test of a run without a JUnit report: whether the command ended with exit code 0."""

_MAX_REPORT_BYTES = 64 * 1024**2
_REPORT_SECONDS, _REPORT_MEMORY = 30.0, 1024**3
_TAIL_CHARS = 500
_MAX_NAME = 2_000


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
        module = file.removesuffix(".py").replace("/", ".")
        if file and (classes == module or classes.startswith(f"{module}.")):
            parts = [file, *filter(None, classes[len(module) + 1 :].split(".")), case.get("name", "")]
        else:
            parts = [*filter(None, (file or classes,)), case.get("name", "")]
        name = "::".join(parts)[:_MAX_NAME]
        tests[name] = tests.get(name, True) and not outcomes & {"failure", "error"}
        if len(tests) > MAX_TESTS:
            raise ValueError(f"it has more than {MAX_TESTS:,} tests")
    return tests


def _describe(end: CommandEnd) -> str:
    outcome = "did not end" if end.exit_code is None else f"ended with exit code {end.exit_code}"
    tail = f"; it wrote: …{end.output.strip()[-_TAIL_CHARS:]}" if end.output.strip() else ""
    return f"`{end.command[-200:]}` {outcome} after {end.seconds:.1f} s{tail}"
