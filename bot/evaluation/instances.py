"""Import instances of the format of SWE-bench: a JSON array, or JSON objects one after another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from agent_runtime import SettingsError, check_settings
from bot.evaluation.mine import Candidate, Clone, read_tasks, store_candidates
from bot.evaluation.suite import MAX_ISSUE_CHARS, Commit, SuiteError, SuiteHead, Task, TaskId, TestNames
from bot.prompt.sanitize import clean_line

_MAX_BYTES = 256 * 1024**2
_MAX_PROBLEMS = 20


def _parse_list(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value  # data sets have lists in texts, too


_Patch = Annotated[str, Field(min_length=1, max_length=4_000_000)]
_Tests = Annotated[TestNames, BeforeValidator(_parse_list)]


class Instance(BaseModel):
    """The fields that are read; others are ignored."""

    instance_id: TaskId
    repo: Annotated[str, Field(min_length=1, max_length=200)]
    base_commit: Commit
    problem_statement: Annotated[str, Field(min_length=1, max_length=MAX_ISSUE_CHARS)]
    patch: _Patch
    test_patch: _Patch
    FAIL_TO_PASS: _Tests = ()
    PASS_TO_PASS: _Tests = ()


async def import_instances(
    file: Path, clone: Path, suite: Path, *, test_command: str, setup: tuple[str, ...] = ()
) -> tuple[Task, ...]:
    """Add the instances of a file to a suite; the clone has their base commits.

    Raises:
        SuiteError: the text names line, instance and field of each error.
    """

    def collect() -> tuple[list[Candidate], SuiteHead, Path]:
        present = {task.id for task in read_tasks(suite)}
        problems: list[str] = []
        candidates: dict[str, Candidate] = {}
        repos: dict[str, int] = {}
        opened = Clone(clone)
        with opened.repo:
            for line, data in _read_values(file):
                try:
                    instance = _read_instance(file, line, data)
                    repos.setdefault(instance.repo, line)
                    if instance.instance_id not in present:
                        candidates[instance.instance_id] = _make_candidate(
                            opened, instance, f"{file}:{line}", test_command, setup
                        )
                except SuiteError as error:
                    name = data.get("instance_id", "") if isinstance(data, dict) else ""
                    problems.append(f"{clean_line(str(name), limit=100) or 'instance'}: {error}")
            if len(repos) > 1:
                listed = ", ".join(f"{clean_line(name, limit=100)} (line {line})" for name, line in repos.items())
                problems.append(f"{file}: has instances of several repositories: {listed}; import a file for each.")
            if problems:
                raise SuiteError("\n".join([*problems[:_MAX_PROBLEMS], *(["…"] if problems[_MAX_PROBLEMS:] else [])]))
            head = SuiteHead(repository=next(iter(repos), "") or clone.name, date=f"{datetime.now(UTC):%Y-%m-%d}")
            return [*candidates.values()], head, opened.objects

    candidates, head, objects = await asyncio.to_thread(collect)
    await store_candidates(suite, head, candidates, objects)
    return tuple(candidate.task for candidate in candidates)


def _read_values(file: Path) -> Iterator[tuple[int, object]]:
    """Read each value and its line."""
    try:
        with file.open("rb") as source:
            content = source.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise SuiteError(f"{file}: has more than {_MAX_BYTES:,} bytes; split it.")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise SuiteError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SuiteError(f"{file}: is not UTF-8 (byte {error.start}).") from error
    decoder, place, line, counted = json.JSONDecoder(), 0, 1, 0
    separators = " \t\r\n,[]" if text.lstrip().startswith("[") else " \t\r\n"
    while True:
        while place < len(text) and text[place] in separators:
            place += 1
        line, counted = line + text.count("\n", counted, place), place
        if place == len(text):
            return
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{file}:{line}: this is not JSON: {error}") from error
        yield line, value


def _read_instance(file: Path, line: int, data: object) -> Instance:
    if not isinstance(data, dict):
        raise SuiteError(f"{file}:{line}: must be an object with the fields of an instance")
    try:
        return check_settings(data, Instance, source=str(file), lines=dict.fromkeys(Instance.model_fields, line))
    except (SettingsError, RecursionError) as error:
        keys = set(data) - set(Instance.model_fields)
        similar = next((key for name in Instance.model_fields for key in get_close_matches(name, keys, n=1)), "")
        hint = f" Is `{clean_line(similar, limit=60)}` a misspelling?" if similar else ""
        raise SuiteError(f"{error}{hint}") from error


def _make_candidate(
    clone: Clone, instance: Instance, place: str, test_command: str, setup: tuple[str, ...]
) -> Candidate:
    title, _, body = instance.problem_statement.strip().partition("\n")
    try:
        tree = clone.resolve(f"{instance.base_commit}^{{tree}}")
    except SuiteError as error:
        raise SuiteError(
            f"{place}: `base_commit`: the clone does not have {instance.base_commit}; fetch it."
        ) from error
    task = Task(
        id=instance.instance_id,
        title=clean_line(title, limit=300) or instance.instance_id,
        base_commit=instance.base_commit,
        setup=setup,
        test_command=test_command,
        fail_to_pass=instance.FAIL_TO_PASS,
        pass_to_pass=instance.PASS_TO_PASS,
    )
    # Only a newline may be missing: empty lines at the end belong to the last hunk.
    patches = (instance.test_patch, instance.patch)
    hidden, reference = ((text if text.endswith("\n") else f"{text}\n").encode() for text in patches)
    return Candidate(task=task, issue=f"{body.strip()}\n", hidden=hidden, reference=reference, tree=tree)
