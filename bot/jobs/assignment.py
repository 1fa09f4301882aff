"""The start of a piece of work: its command, its commit, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.domain.commands import Work
from bot.gate.decision import Grant
from bot.jobs.setup import RepoSettings
from bot.jobs.snapshot import ThreadSnapshot
from bot.publishing.text import one_line
from bot.workspace import Source

_BRANCH_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a piece of work begins with.

    Attributes:
        command: what is to be done.
        here: where, as GitHub has it now.
        grant: what it may do.
        asked: what the repository's configuration asks for.
        source: the commit that is worked on.
        output_schema: what the result must fit; None for a result in words.
        closing: why it only ends what an attempt before this began: nothing is published any more; else empty.
    """

    command: Work
    here: ThreadSnapshot
    grant: Grant
    asked: RepoSettings
    source: Source
    closing: str = ""
    output_schema: dict[str, Any] | None = None

    @property
    def head_fact(self) -> str:
        """A line for the agent that names commit and branch; a fork's branch is named by a stranger."""
        branch = one_line(self.here.thread.head_ref, _BRANCH_CHARS)
        return f"HEAD: {self.grant.bound_to_sha[:10]} on {branch}, nothing uncommitted (git is not needed)"
