"""Requests of jobs to people, and the answers to them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.domain.job import Actor

WaitKind = Literal["permission", "question", "publication", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One request to a person.

    Attributes:
        kind: a tool call that needs permission, a question of the agent, a change to protected files that is to be
            published, or a plan that is to be carried out.
        request_id: names it; hexadecimal digits.
        reason: why it waits; for a question, the question.
        preview: what would happen: a diff, a command.
        bound_to: the commit that it was asked about; another head of the pull request invalidates it.
        until: seconds since the epoch at which it is too late to answer.
        tree_sha: for a publication: the git tree that may be published.
        like: for a command: the patterns that an approval of others like it would allow for the rest of the run.
    """

    kind: WaitKind
    request_id: str
    reason: str
    preview: str
    bound_to: str
    until: float
    tree_sha: str = ""
    like: tuple[str, ...] = ()

    def is_meant_by(self, request_id: str) -> bool:
        """Whether an answer that names `request_id`, the whole or its beginning, is about this request."""
        return self.request_id.startswith(request_id.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """What a person answered.

    Attributes:
        request_id: of the request, whole.
        approved: whether it may happen; for a question, whether there is an answer.
        note: the answer, or a word about it to the agent.
        by: who answered.
        like: the patterns of commands that are approved for the rest of the run, too.
    """

    request_id: str
    approved: bool
    note: str
    by: Actor
    like: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRequest:
    """That a request can be read in its job's comment.

    Attributes:
        request_id: of the request, whole.
        kind: what was asked.
        at: since when, by GitHub's clock (ISO 8601, UTC, whole seconds).
        since: the same by ours, in seconds since the epoch.
    """

    request_id: str
    kind: WaitKind
    at: str
    since: float

    def may_have_been_read(self, *, written_at: str, arrived: float) -> bool:
        """Whether the author of an answer could see the request before.

        Args:
            written_at: when the answer was written, by GitHub's clock; empty where GitHub does not say.
            arrived: when it came to us, by our clock.
        """
        return written_at >= self.at and arrived >= self.since
