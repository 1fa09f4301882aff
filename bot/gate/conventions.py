"""Names and places shared by all jobs of a process. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.gate.repo_config import PATH

OWN_PREFIX = "codepilot/"
"""What the names of the bot's own branches begin with, where nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """How all jobs of a process name and place things.

    Attributes:
        branch_prefix: what the names of new branches begin with.
        repo_file: the path of the repository's own file.
        working_directory: the directory below the repository's root in which commands start; empty for the root.
        output_schema: what results must fit: a JSON schema, or the path of one in the repository; None for words.
        base: where new pull requests are for where no command says so; empty for the repository's own choice.
    """

    branch_prefix: str = OWN_PREFIX
    repo_file: str = PATH
    working_directory: str = ""
    base: str = ""
    output_schema: Mapping[str, Any] | str | None = None
