"""Write the step's outputs and summary to the files that the runner named."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from bot.domain.errors import BotError

_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")

MAX_SUMMARY_BYTES = 1024 * 1024
"""https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#step-isolation-and-limits"""


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
            raise ValueError(f"{name!r} is not a valid output name")
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


def _append(path: Path, content: bytes, variable: str) -> None:
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise BotError(f"the file {path} ({variable}) cannot be written: {error.strerror}") from error
