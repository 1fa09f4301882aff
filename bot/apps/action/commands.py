"""Workflow commands: lines of a step's output that GitHub's runner carries out. Pure.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from typing import Literal

from bot.publishing.text import clean, one_line

Level = Literal["error", "warning", "notice"]

MOST_ANNOTATIONS = 10
"""Of each level in one step; GitHub drops the rest:
https://docs.github.com/en/rest/checks/runs#create-a-check-run and the runner's own limit."""

# The runner cuts a message there: https://github.com/actions/runner/blob/main/src/Runner.Worker/ExecutionContext.cs
_MESSAGE_CHARS = 4_000
_TITLE_CHARS = 200

END_GROUP = "::endgroup::"


def annotation(level: Level, message: str, *, title: str = "", file: str = "", line: int = 0, end_line: int = 0) -> str:
    """A line in the log that GitHub also shows above the run, and beside the lines of a file.

    Args:
        level: how bad it is.
        message: what there is to say; may have several lines.
        title: above it.
        file: of the repository; empty for what is about no file.
        line: its first line, from 1.
        end_line: its last line, where there are several.
    """
    properties = {
        "title": one_line(_shown(title), _TITLE_CHARS),
        "file": _shown(file),
        "line": str(line) if file and line else "",
        "endLine": str(end_line) if file and end_line > line else "",
    }
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::{level}{' ' if written else ''}{written}::{_data(_shown(message)[:_MESSAGE_CHARS])}"


def group(title: str) -> str:
    """What folds the lines that follow, up to `END_GROUP`, below a title."""
    return f"::group::{_data(one_line(_shown(title), _TITLE_CHARS))}"


def mask(secret: str) -> list[str]:
    """What has the runner take a secret out of everything that this job writes; a line each, as it masks by lines."""
    return [f"::add-mask::{_data(line)}" for line in dict.fromkeys(secret.splitlines()) if line.strip()]


def foreign(text: str, token: str) -> str:
    """A text that others wrote, between two commands that keep the runner from looking for commands in it.

    Args:
        text: the text.
        token: ends it; new and random for each text, or its author could write it.

    Raises:
        ValueError: the text holds the token.
    """
    shown = _shown(text).rstrip("\n")
    if token in shown:
        raise ValueError("the token that is to end a text must not be in it")
    return f"::stop-commands::{token}\n{shown}\n::{token}::"


def _shown(text: str) -> str:
    """Without control codes, and without the older form of commands, which the log's page reads wherever it stands."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n")).replace("##[", "# #[")


# https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
