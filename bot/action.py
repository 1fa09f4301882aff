"""The second door: a workflow run's event to the same delivery, and the step's outputs and summary."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from bot.config import ActionSettings
from bot.errors import BotError, MalformedError
from bot.intake.deliveries import Delivery, from_action

_MAX_EVENT_BYTES = 25 * 1024 * 1024
_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")

MAX_SUMMARY_BYTES = 1024 * 1024
"""https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#step-isolation-and-limits"""


def delivery_from(settings: ActionSettings) -> Delivery:
    """Read the event that started the workflow.

    Raises:
        MalformedError: the event file cannot be read, is no JSON object, or is about another repository.
    """
    path = settings.event_path
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_EVENT_BYTES + 1)
    except OSError as error:
        raise MalformedError(f"the event file {path} (GITHUB_EVENT_PATH) cannot be read: {error.strerror}") from error
    if len(content) > _MAX_EVENT_BYTES:
        raise MalformedError(f"the event file {path} (GITHUB_EVENT_PATH) has more than {_MAX_EVENT_BYTES:,} bytes")
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the event file {path} (GITHUB_EVENT_PATH) is not JSON: {error}") from error
    delivery = from_action(
        event=settings.event_name,
        payload=payload,
        run_id=str(settings.run_id),
        run_attempt=str(settings.run_attempt),
    )
    _check_repository(delivery, settings)
    return delivery


def write_outputs(
    path: Path, outputs: Mapping[str, str], *, new_delimiter: Callable[[], str] = lambda: secrets.token_hex(16)
) -> None:
    """Add the step's outputs to the file that the runner named in `GITHUB_OUTPUT`.

    Values may hold anything: each is written between delimiters that are random and checked to be absent from it, so
    that no value can set another output.

    Raises:
        BotError: the file cannot be written.
        ValueError: an output's name is no name, which is a bug of the caller.
    """
    written = []
    for name, value in outputs.items():
        if not _OUTPUT_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for an output")
        delimiter = new_delimiter()
        while delimiter in value:
            delimiter = new_delimiter()
        written.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    _append(path, "".join(written).encode("utf-8", "replace"), "GITHUB_OUTPUT")


def write_summary(path: Path, markdown: str) -> None:
    """Add to the step's summary, in the file that the runner named in `GITHUB_STEP_SUMMARY`.

    GitHub drops a summary over 1 MiB whole, so a longer one is cut, and says so.

    Raises:
        BotError: the file cannot be written.
    """
    content = markdown.encode("utf-8", "replace") + b"\n"
    if len(content) > MAX_SUMMARY_BYTES:
        note = b"\n\n_Cut here: GitHub shows at most 1 MiB of a summary._\n"
        content = content[: MAX_SUMMARY_BYTES - len(note)].decode("utf-8", "ignore").encode() + note
    _append(path, content, "GITHUB_STEP_SUMMARY")


def _check_repository(delivery: Delivery, settings: ActionSettings) -> None:
    """The token is good for the workflow's repository alone, so an event about another one is no job of this run."""
    repository = delivery.payload.get("repository")
    name = repository.get("full_name") if isinstance(repository, dict) else None
    if not isinstance(name, str) or name.lower() != settings.repository.lower():
        raise MalformedError(
            f"the event in {settings.event_path} (GITHUB_EVENT_PATH) is about {name or 'no repository'}, "
            f"and this workflow runs in {settings.repository} (GITHUB_REPOSITORY)"
        )


def _append(path: Path, content: bytes, variable: str) -> None:
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise BotError(f"the file {path} ({variable}) cannot be written: {error.strerror}") from error
