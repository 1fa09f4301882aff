"""The suite of an evaluation on disk: a folder for each task, and one bundle of their base commits.

A suite may be shared, so it is untrusted.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent_runtime import BoundExceededError, SettingsError, call_bounded, check_settings
from bot.domain.errors import BotError
from bot.git.filesystem import open_root, read_file
from bot.prompt.sanitize import clean_line

SUITE_FILE, TASK_FILE, BUNDLE = "suite.toml", "task.toml", "repository.bundle"
REFUSALS = "refused.jsonl"
ISSUE, HIDDEN, REFERENCE = "issue.md", "hidden.patch", "reference.patch"
REFS = "refs/codepilot-eval/"
MAX_TASKS, MAX_TESTS, MAX_ISSUE_CHARS, MAX_PATCH_BYTES = 2_000, 20_000, 100_000, 4_000_000
_MAX_TOML_BYTES = 4_000_000
_TOML_SECONDS = 20.0
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
_COMMIT = re.compile(r"(?:[0-9a-f]{40})?")
_KEY = re.compile(r"\s*\[?([\w-]+)(?:\]|\s*=)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _check_id(value: str) -> str:
    if not is_task_id(value):
        raise ValueError(
            "must have at most 100 of the characters A-Z a-z 0-9 . _ -, and begin with a letter or a digit"
        )
    return value


def _check_commit(value: str) -> str:
    if not _COMMIT.fullmatch(value):
        raise ValueError("must be a commit's full id, 40 hexadecimal digits")
    return value


def _check_line(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError("must be one line without control characters")
    return value


TaskId = Annotated[str, AfterValidator(_check_id)]
Commit = Annotated[str, AfterValidator(_check_commit)]
Line = Annotated[str, Field(max_length=1_000), AfterValidator(_check_line)]
Command = Annotated[str, Field(max_length=10_000)]
TestNames = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=2_000)], ...], Field(max_length=MAX_TESTS)]


class SuiteError(BotError):
    """A suite that cannot be read or written; the text names the file and the remedy."""


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Validation(_Keys):
    """The record of a validation; another fingerprint of the task invalidates it."""

    date: Line
    fingerprint: Line
    seconds: float = Field(ge=0)
    tests: int = Field(ge=0)


class Task(_Keys):
    """The keys of a task's `task.toml`; the commits are those of the mined repository."""

    id: TaskId
    title: Annotated[Line, Field(min_length=1)]
    link: Line = ""
    base_commit: Commit = ""
    solution_commit: Commit = ""
    setup: Annotated[tuple[Command, ...], Field(max_length=50)] = ()
    test_command: Annotated[str, Field(min_length=1, max_length=10_000)]
    fail_to_pass: TestNames = ()
    pass_to_pass: TestNames = ()
    validated: Validation | None = None

    @model_validator(mode="after")
    def _check_validated(self) -> Self:
        if self.validated is not None and not self.fail_to_pass:
            raise ValueError("`fail_to_pass` must not be empty in a validated task")
        return self

    @property
    def ref(self) -> str:
        return f"{REFS}{self.id}"


class SuiteHead(_Keys):
    """The keys of `suite.toml`; `commit` is the newest one that was mined."""

    format: Literal[1] = 1
    repository: Annotated[Line, Field(min_length=1)]
    commit: Commit = ""
    date: Line = ""


class Refusal(_Keys):
    """A change or a task that was refused; its fingerprint is that of the task then."""

    id: str
    stage: Literal["mine", "import", "validate"]
    reason: str
    title: str = ""
    commit: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    path: Path
    head: SuiteHead
    tasks: tuple[Task, ...]

    def read_issue(self, task: Task) -> str:
        """Read the text that the agent gets."""
        path = f"{task.id}/{ISSUE}"
        text = _decode(_read(self.path, path, limit=4 * MAX_ISSUE_CHARS), path)
        if len(text) > MAX_ISSUE_CHARS:
            raise SuiteError(f"{self.path / path}: has more than {MAX_ISSUE_CHARS:,} characters; shorten it.")
        return text

    def read_hidden(self, task: Task) -> bytes:
        return _read(self.path, f"{task.id}/{HIDDEN}", limit=MAX_PATCH_BYTES)

    def read_reference(self, task: Task) -> bytes:
        """Read the real change without its tests."""
        return _read(self.path, f"{task.id}/{REFERENCE}", limit=MAX_PATCH_BYTES)


def is_task_id(value: str) -> bool:
    """Return whether the text can name a folder and a git reference."""
    return bool(_ID.fullmatch(value)) and ".." not in value and not value.endswith((".lock", ".partial"))


def read_suite(path: Path) -> Suite:
    """Read a suite and its tasks, ordered by id.

    Raises:
        SuiteError: the text has file, line and key of each error.
    """
    if not (path / SUITE_FILE).exists():
        raise SuiteError(f"{path} is not a suite; create it first: codepilot eval mine REPO --output {path}")
    head = _parse(path, SUITE_FILE, SuiteHead)
    names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
    folders = [name for name in names if is_task_id(name) and (path / name / TASK_FILE).exists()]
    if len(folders) > MAX_TASKS:
        raise SuiteError(f"{path}: has {len(folders):,} tasks; the limit is {MAX_TASKS:,}. Split it.")
    tasks = []
    for name in folders:
        task = _parse(path, f"{name}/{TASK_FILE}", Task)
        if task.id != name:
            raise SuiteError(
                f"{path / name / TASK_FILE}: `id` is {task.id}, but the folder is {name}; make them equal."
            )
        tasks.append(task)
    return Suite(path=path, head=head, tasks=tuple(tasks))


def write_suite(path: Path, head: SuiteHead) -> None:
    path.mkdir(parents=True, exist_ok=True)
    _replace(path / SUITE_FILE, _to_toml(head.model_dump()).encode())


def read_refusals(path: Path) -> list[Refusal]:
    if not (path / REFUSALS).exists():
        return []
    lines = _decode(_read(path, REFUSALS, limit=_MAX_TOML_BYTES), REFUSALS).splitlines()
    try:
        return [Refusal.model_validate_json(line) for line in lines if line]
    except ValidationError as error:
        raise SuiteError(f"{path / REFUSALS}: cannot be read; remove it: {error.errors()[0]['msg']}") from error


def write_refusals(path: Path, stage: str, refusals: Sequence[Refusal]) -> None:
    """Replace the refusals of a stage."""
    kept = [refusal for refusal in read_refusals(path) if refusal.stage != stage]
    lines = [f"{refusal.model_dump_json(exclude_defaults=True)}\n" for refusal in (*kept, *refusals)]
    _replace(path / REFUSALS, "".join(lines).encode())


def write_task(
    path: Path, task: Task, *, issue: str | None = None, hidden: bytes | None = None, reference: bytes | None = None
) -> None:
    """Write a task into the suite at `path`; a file that is None stays."""
    folder = path / task.id
    if folder.is_symlink():
        raise SuiteError(f"{folder}: is a link; replace it by a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    contents = {ISSUE: None if issue is None else issue.encode(), HIDDEN: hidden, REFERENCE: reference}
    for name, content in contents.items():
        if content is not None:
            _replace(folder / name, content)
    _replace(folder / TASK_FILE, _to_toml(task.model_dump(exclude_none=True)).encode())


def load_toml(text: str) -> dict[str, Any]:
    """Parse TOML in a worker; dates become texts."""
    try:
        data: dict[str, Any] = json.loads(json.dumps(tomllib.loads(text), default=str))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(str(error)) from error  # the worker's caller gets errors of this very class
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return data


def _parse(path: Path, name: str, shape: type[Any]) -> Any:  # noqa: ANN401 - an instance of `shape`
    text = _decode(_read(path, name, limit=_MAX_TOML_BYTES), name)
    try:
        data = call_bounded(load_toml, text, seconds=_TOML_SECONDS, task=f"Reading {name}")
        lines: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if match := _KEY.match(line):
                lines.setdefault(match[1], number)
        return check_settings(data, shape, source=str(path / name), lines=lines)
    except BoundExceededError as error:
        raise SuiteError(f"{path / name}: {error}") from error
    except SettingsError as error:
        raise SuiteError("\n".join(clean_line(line, limit=1_000) for line in str(error).splitlines())) from error
    except ValueError as error:
        raise SuiteError(f"{path / name}: this is not TOML: {error}.") from error


def _read(path: Path, name: str, *, limit: int) -> bytes:
    try:
        with open_root(path.resolve()) as root:
            content = read_file(root, os.fsencode(name), "100644", limit=limit)
    except OSError as error:
        raise SuiteError(f"{path / name}: cannot be read: {error.strerror}.") from error
    if content is None:
        raise SuiteError(f"{path / name}: is missing, or is a link or no plain file.")
    if len(content) > limit:
        raise SuiteError(f"{path / name}: has more than {limit:,} bytes.")
    return content


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{name}: is not UTF-8 (byte {error.start}).") from error


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)  # a shared suite may have a link in its place
    partial.write_bytes(content)
    partial.replace(path)


def _to_toml(data: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in data.items() if not isinstance(value, Mapping)]
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{key}]", *(f"{name} = {_value(item)}" for name, item in value.items())]
    return "\n".join(lines) + "\n"


def _value(value: str | float | Sequence[str]) -> str:
    if isinstance(value, str):
        # TOML escapes texts as JSON does, and forbids DEL beside the control characters.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return "[" + "".join(f"\n  {_value(item)}," for item in value) + ("\n]" if value else "]")
    return json.dumps(value)
