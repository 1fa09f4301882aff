"""The results of an evaluation on disk: `results.jsonl`, with one object a run, and the files beside it.

RESULTS/results.jsonl
RESULTS/patches/TASK@CONFIG.ATTEMPT.patch
RESULTS/configs/CONFIG.yaml
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from bot.domain.errors import BotError
from bot.evaluation.suite import MAX_PATCH_BYTES
from bot.git.filesystem import open_root, read_file

MAX_RESULTS_BYTES = 1024**3

NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
"""Pattern of the names of tasks and configurations, which are parts of file names."""

RunStatus = Literal["done", "failed", "refused", "stopped", "waiting", "error"]
"""State of the run's job; `error` if the bot or the judge failed, so that nothing is known about the configuration."""

Verdict = Literal["", "verified", "unverified", "red", "unchanged", "setup_failed"]
"""The bot's verdict (`bot.publishing.checks.Verdict`); empty if there is none."""

_Name = Annotated[str, Field(pattern=f"^{NAME}$")]
_Count = Annotated[int, Field(ge=0)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ResultsError(BotError):
    """The results cannot be read or written; the text has the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTokens:
    """Tokens of one phase.

    Attributes:
        input: outside the provider's cache, with what is written to it.
        cached: read from the provider's cache.
        output: with reasoning.
    """

    input: _Count = 0
    cached: _Count = 0
    output: _Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """The result of a run: one attempt at a task with a configuration.

    Attributes:
        attempt: from 1.
        said_done: whether the bot's comment claimed success.
        solved: None if the change was not judged.
        tests: whether each named test passed with the change.
        cost_usd: None for an unknown price.
        seconds: from the command to the job's end, without the judgement.
        approvals: approvals that the run requested.
        patch: the change's file in `patches`; empty without a change.
        error: failure of the bot or of the judge; empty if there is none.
    """

    task: _Name
    config: _Name
    attempt: Annotated[int, Field(ge=1)]
    status: RunStatus
    verdict: Verdict = ""
    said_done: bool = False
    solved: bool | None = None
    tests: Mapping[str, bool] = field(default_factory=dict)
    cost_usd: _Amount | None = 0.0
    seconds: _Amount = 0.0
    requests: _Count = 0
    tokens: Mapping[str, PhaseTokens] = field(default_factory=dict)
    approvals: _Count = 0
    patch: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.@-]*)?$", max_length=255)] = ""
    error: str = ""
    job_id: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task, self.config, self.attempt

    @property
    def is_false_claim(self) -> bool:
        """Whether the bot claimed success without solving the task."""
        return self.said_done and self.solved is False

    @property
    def sentence(self) -> str:
        """The result in a line for people."""
        verdict = {True: "solved", False: "not solved", None: "error"}[self.solved]
        cost = "unknown cost" if self.cost_usd is None else f"${self.cost_usd:.2f}"
        claim = ", although the bot said that its checks passed" if self.is_false_claim else ""
        text = f"{self.task}  {self.config}  #{self.attempt}  {verdict}{claim}, {cost}, {self.seconds:.0f} s"
        return f"{text}: {self.error}" if self.error else text


_RESULT = TypeAdapter(EvalResult)


def read_results(directory: Path) -> tuple[EvalResult, ...]:
    """Read the latest result of each run; a run that failed with an error may have been repeated.

    Raises:
        ResultsError: unreadable, or not from this version.
    """
    return tuple({result.key: result for result in _read_lines(directory)}.values())


def _read_lines(directory: Path) -> tuple[EvalResult, ...]:
    """Read all results in their order; ignore the last line if it is incomplete."""
    path = _file(directory)
    if not os.path.lexists(path):
        return ()
    *lines, _incomplete = _read(directory, path.name, limit=MAX_RESULTS_BYTES).split(b"\n")
    return tuple(_parse_line(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line)


def read_patch(directory: Path, name: str) -> bytes:
    """Read the change of a run, without following links.

    Raises:
        ResultsError: it is missing or too large.
    """
    return _read(directory, f"patches/{name}", limit=MAX_PATCH_BYTES)


def _read(directory: Path, name: str, *, limit: int) -> bytes:
    path = directory / name
    try:
        with open_root(directory.resolve()) as root:
            content = read_file(root, os.fsencode(name), "100644", limit=limit)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}.") from error
    if content is None or len(content) > limit:
        raise ResultsError(f"{path} is missing, is no plain file, or has more than {limit:,} bytes.")
    return content


def _parse_line(line: bytes, place: str) -> EvalResult:
    try:
        return _RESULT.validate_json(line, extra="forbid")
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        message = f"`{key}`: {problem['msg']}" if key else problem["msg"]
        raise ResultsError(f"{place}: {message}. Remove the line, and its run is repeated.") from error


@contextmanager
def open_results(directory: Path) -> Iterator[ResultsWriter]:
    """Open a directory of results for one writer, and create it if it is missing.

    Raises:
        ResultsError: it cannot be written, or another process writes to it.
    """
    path = _file(directory)
    try:
        for folder in (directory, directory / "patches", directory / "configs"):
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ResultsError(f"{error.filename} cannot be written: {error.strerror}; name another --results.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ResultsError(
                f"Another `codepilot eval run` writes to {directory}; name another --results."
            ) from error
        yield ResultsWriter(directory, descriptor)
    finally:
        os.close(descriptor)


class ResultsWriter:
    """Appends results; each is on the disk when `append` returns.

    Attributes:
        results: all results so far, also those of repeated runs.
    """

    def __init__(self, directory: Path, descriptor: int) -> None:
        self._descriptor = descriptor
        self.directory = directory
        self.results = [*_read_lines(directory)]
        # A process that was killed has left half a line, which the next result must not continue.
        data = _file(directory).read_bytes()
        self._end = data.rfind(b"\n") + 1

    def add_config(self, name: str, content: bytes) -> None:
        """Copy a configuration beside its results.

        Raises:
            ResultsError: it differs from that of earlier results.
        """
        path = self.directory / "configs" / f"{name}.yaml"
        if path.exists() and path.read_bytes() != content:
            raise ResultsError(
                f"The configuration {name} has changed since its results in {self.directory}. Give it another `name`, "
                f"or name another --results. {path} has the earlier one."
            )
        path.write_bytes(content)

    def append(self, result: EvalResult) -> None:
        """Write a result.

        Raises:
            ResultsError: the disk is full, or failed.
        """
        data = _RESULT.dump_json(result) + b"\n"
        try:
            os.ftruncate(self._descriptor, self._end)
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self._end + written)
            os.fsync(self._descriptor)
        except OSError as error:
            raise ResultsError(f"{_file(self.directory)} cannot be written: {error.strerror}.") from error
        self._end += len(data)
        self.results.append(result)


def _file(directory: Path) -> Path:
    return directory / "results.jsonl"
