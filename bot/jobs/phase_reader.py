"""Reads from GitHub, each question asked once for as long as a phase of a job lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from bot.domain.access import Role
from bot.github import Annotation, BotIdentity, CommentFacts, GitHub, JobFacts, RedCheck, ReviewFacts, RunFacts

T = TypeVar("T")

_ANNOTATIONS = 20


class PhaseReader:
    """What GitHub says while a job begins, or while it publishes; later decisions use new requests.

    Args:
        github: acts for the job.
    """

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._answers: dict[Hashable, Any] = {}

    def continued_by(self, github: GitHub) -> PhaseReader:
        """The same phase with another client: the one that began it is closed."""
        reader = PhaseReader(github)
        reader._answers = self._answers
        return reader

    async def me(self) -> BotIdentity:
        """See `Accounts.me`."""
        return await self._github.accounts.me()

    async def role_of(self, repo: str, account_id: int, login: str) -> Role:
        """See `Accounts.role_of`."""
        return await self._once(
            ("role", repo, account_id, login), lambda: self._github.accounts.role_of(repo, account_id, login)
        )

    async def file_at(self, repo: str, path: str) -> bytes | None:
        """A file on the default branch; see `Repos.file_at`."""
        return await self._once(("file", repo, path), lambda: self._github.repos.file_at(repo, path))

    async def comments(self, repo: str, number: int) -> tuple[CommentFacts, ...]:
        """See `Comments.of_thread`."""
        return await self._once(("comments", repo, number), lambda: self._github.comments.of_thread(repo, number))

    async def reviews(self, repo: str, number: int) -> tuple[ReviewFacts, ...]:
        """See `Reviews.of_pull`."""
        return await self._once(("reviews", repo, number), lambda: self._github.reviews.of_pull(repo, number))

    async def failing_checks(self, repo: str, sha: str) -> tuple[RedCheck, ...]:
        """See `Checks.failing`."""
        return await self._once(("checks", repo, sha), lambda: self._github.checks.failing(repo, sha))

    async def annotations(self, repo: str, check_id: int) -> tuple[Annotation, ...]:
        """The first annotations of a check run."""
        return await self._once(
            ("annotations", repo, check_id), lambda: self._github.checks.annotations(repo, check_id, _ANNOTATIONS)
        )

    async def run(self, repo: str, run_id: int) -> RunFacts:
        """See `Runs.get`."""
        return await self._once(("run", repo, run_id), lambda: self._github.runs.get(repo, run_id))

    async def jobs_of_run(self, repo: str, run_id: int) -> tuple[JobFacts, ...]:
        """See `Runs.jobs`."""
        return await self._once(("jobs", repo, run_id), lambda: self._github.runs.jobs(repo, run_id))

    async def _once(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        if question not in self._answers:
            self._answers[question] = await ask()
        answer: T = self._answers[question]
        return answer
