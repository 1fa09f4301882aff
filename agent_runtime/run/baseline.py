"""The baseline of failures: the nearest tests, run on a copy of the workspace before the agent begins.

A later run of pytest without other failures does not withdraw a completion (decision 109).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import PurePosixPath

from agent_runtime.agent.agent import Agent
from agent_runtime.context.test_command import TrialResult
from agent_runtime.core.errors import SandboxError, ToolError
from agent_runtime.core.events import BaselineTaken
from agent_runtime.core.values import Task
from agent_runtime.delegation.copies import CopyBounds, copy_workspace
from agent_runtime.processes.spawn import finish_start
from agent_runtime.sandbox.protocol import PrivateDirectory
from agent_runtime.tools.shell import ShellTools
from agent_runtime.workspace.files import Workspace

log = logging.getLogger(__name__)

RUN_SECONDS = 30.0

_COPY_BYTES, _COPY_FILES, _COPY_SECONDS = 300_000_000, 5_000, 5.0
_FILE_BYTES, _READ_BYTES = 1_000_000, 20_000
_MAX_FILES, _MAX_READ, _MAX_RANKED, _MAX_FAILURES = 3, 300, 5, 200
_TEST_NAME = re.compile(r"\btest_\w{1,80}\b")
_SOURCE_NAME = re.compile(r"\b(?:[\w.-]{1,80}/){0,12}\w{1,80}\.py\b")
_IMPORT = re.compile(r"^\s{0,20}(?:from|import)\s([^\n#]{0,200})", re.MULTILINE)
_FAILED = re.compile(r"FAILED (?P<test>[\w./-]{1,300}\.py::[^\s\[\]`]{1,200}(?:\[[^`]{0,300}?\])?)(?: - .*)?")
_SUMMARY = re.compile(
    r"(?:=+ )?(?P<failed>\d{1,5}) failed(?P<passed>, \d{1,6} passed)?"
    r"(?:, \d{1,6} (?:skipped|deselected|xfailed|xpassed|warnings?)){0,5} in [\d.]{1,12}s(?: \([\d:]{1,12}\))?(?: =+)?"
)
_INCOMPLETE = ("ERROR ", "!")
_PYTEST = re.compile(
    r"(?:[A-Z][A-Z0-9_]{0,40}=[\w./:-]{0,200} )?(?:timeout \d{1,5} )?(?:uv run (?:--frozen )?|poetry run )?"
    r"(?:(?:[\w.-]{0,80}/){0,9}python[\d.]{0,5} -m pytest|(?:[\w.-]{0,80}/){0,9}pytest)(?: [^;&|<>\n`$]*)?"
    r"(?: ?2>&1)?(?: ?\| ?tail(?: -n)? ?-?\d{1,4})?"
)
_REPAIR = re.compile(
    r"\b(?:failing|failed|broken|red)\s+(?:\w+\s+){0,2}(?:tests?|suite|ci|builds?|checks?)\b"
    r"|\b(?:tests?|pytest|suite|ci|builds?|checks?)\s+(?:\w+\s+){0,3}"
    r"(?:pass(?:es|ing)?|fail(?:s|ed|ing|ures?)?|broken|red|green)\b"
    r"|\b(?:fix|repair)\s+(?:\w+\s+){0,2}(?:tests?|suite|ci|builds?)\b",
    re.IGNORECASE,
)
_SCRIPT = r"""export PYTHONDONTWRITEBYTECODE=1 UV_OFFLINE=1
{{ {command} -p no:cacheprovider --tb=no -rf --color=no {files} </dev/null 2>&1; printf '\nexit=%s\n' "$?"; }} |
  tail -c 9000"""
_EXIT = re.compile(r"^exit=(\d{1,3})\s*$", re.MULTILINE)


def read_failures(output: str) -> tuple[tuple[str, ...], bool]:
    """Return the failed tests in one complete summary of pytest without errors, and whether others passed."""
    lines = [line.rstrip() for line in output.split("\n")]  # the message in a line may have separators of its own
    failed = [line for line in lines if line.startswith("FAILED ")]
    tests = tuple(match["test"] for line in failed if line.isprintable() and (match := _FAILED.fullmatch(line)))
    summaries = [match for line in lines if (match := _SUMMARY.fullmatch(line))]
    is_complete = len(summaries) == 1 and int(summaries[0]["failed"]) == len(failed) == len(set(tests))
    if not is_complete or any(line.startswith(_INCOMPLETE) for line in lines):
        return (), False
    return tests, summaries[0]["passed"] is not None


def excuse_failures(
    before: Mapping[str, str], command: str, output: str, digest: Callable[[str], str]
) -> tuple[str, ...]:
    """Return the failures of pytest alone if others passed, and all failed `before` in files with this `digest`."""
    tests, some_passed = read_failures(output) if before and _PYTEST.fullmatch(command.strip()) else ((), False)
    is_old = all(before.get(test) and before[test] == digest(test.partition("::")[0]) for test in tests)
    return tests if some_passed and is_old else ()


def digest_file(workspace: Workspace, start_in: str, path: str) -> str:
    """Return a digest of a file's content; empty if it is missing or too large."""
    data = workspace.read_or_empty(posixpath.join(start_in, path), _FILE_BYTES)
    return hashlib.sha256(data).hexdigest()[:16] if data else ""


def choose_tests(
    workspace: Workspace, start_in: str, task: Task, ranked: Sequence[str], files: Sequence[str]
) -> tuple[str, ...]:
    """Return the test files that a task names, else those whose names or imports match its or the `ranked` paths."""
    text = _text_of(task)
    names, words, chosen = set(_TEST_NAME.findall(text)), dict[str, set[str]](), dict[str, None]()
    for path in files[:_MAX_READ]:
        data = workspace.read_or_empty(posixpath.join(start_in, path), _FILE_BYTES)[:_READ_BYTES]
        content, stem = data.decode(errors="replace"), PurePosixPath(path).stem
        if f"{stem}.py" in text or not names.isdisjoint(_TEST_NAME.findall(content)):
            chosen[path] = None
        words[path] = {*_tested(path).split("_"), *re.findall(r"\w+", " ".join(_IMPORT.findall(content)))}
    for source in [*_SOURCE_NAME.findall(text), *ranked][:_MAX_RANKED]:
        name = PurePosixPath(source).stem

        def match(path: str, source: str = source, name: str = name) -> tuple[int, int]:
            is_same = name in {PurePosixPath(path).stem, _tested(path)}
            is_related = is_same or not words[path].isdisjoint((name, *name.split("_")))
            shared = zip(source.split("/"), path.split("/"), strict=False)
            return is_same + is_related, sum(ours == theirs for ours, theirs in shared)

        if words and match(best := max(words, key=match))[0]:
            chosen[best] = None
    return tuple([*chosen][:_MAX_FILES] or files[:1])


def _tested(path: str) -> str:
    return PurePosixPath(path).stem.removeprefix("test_").removesuffix("_test")


def is_about(task: Task, test: str) -> bool:
    """Whether a task is about a failing test: it names the test or its file, or asks for tests that pass."""
    path, _, name = test.partition("[")[0].partition("::")
    text = _text_of(task)
    return _REPAIR.search(text) is not None or any(
        word in text for word in (path.rpartition("/")[2], name.rpartition("::")[2])
    )


def _text_of(task: Task) -> str:
    return "\n".join((task.goal, *(quote.text for quote in task.quotes)))


async def take_baseline(
    agent: Agent, workspace: Workspace, task: Task, result: TrialResult, *, files: Sequence[str]
) -> BaselineTaken:
    """Run test files on a copy of the workspace, in a sandbox of its own without network."""
    async with AsyncExitStack() as undo:
        try:
            shell = await _open_copy(agent, workspace, undo)
            shell.set_python_path(result.python_path)
            script = _SCRIPT.format(command=result.command, files=shlex.join(files))
            output = await shell.run_trial(script, RUN_SECONDS) or ""
        except (OSError, SandboxError, ToolError) as error:
            log.info("the tests were not run before the agent began: %s", error)
            output = ""
    tests, _ = read_failures(output) if _EXIT.findall(output)[-1:] == ["1"] else ((), False)

    def digest(test: str) -> str:
        return "" if is_about(task, test) else digest_file(workspace, agent.start_in, test.partition("::")[0])

    return BaselineTaken(
        failures=await asyncio.to_thread(lambda: {test: digest(test) for test in tests[:_MAX_FAILURES]})
    )


async def _open_copy(agent: Agent, workspace: Workspace, undo: AsyncExitStack) -> ShellTools:
    """Copy the workspace, and return tools for a sandbox on the copy; `undo` removes both."""
    files = (name for _, _, names in os.walk(workspace.root) for name in names)
    if await asyncio.to_thread(lambda: next(islice(files, _COPY_FILES, None), "")):  # before any of them is copied
        raise ToolError(f"the workspace has more than {_COPY_FILES:,} files")
    parent = agent.delegation.copies if agent.delegation is not None else None
    creation = asyncio.to_thread(PrivateDirectory, "codepilot-baseline-", parent)
    directory = await finish_start(creation, end=lambda unused: asyncio.to_thread(unused.close))
    undo.push_async_callback(asyncio.to_thread, directory.close)
    root = directory.path / "workspace"
    root.mkdir(mode=0o700)
    bounds = CopyBounds(
        bytes_left=_COPY_BYTES,
        files_left=_COPY_FILES,
        seconds=_COPY_SECONDS,
        reserved_bytes=agent.sandbox.limits.free_bytes,
    )
    await copy_workspace(workspace, root, None, bounds)
    shell = ShellTools(agent.sandbox, root, start_in=agent.start_in)
    undo.push_async_callback(shell.close)
    return shell
