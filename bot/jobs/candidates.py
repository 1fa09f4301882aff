"""Several attempts at one fix at the same time; the best is brought into the job's files."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_runtime import (
    AsyncRuntime,
    ChildWatched,
    Delegation,
    Event,
    Outcome,
    Status,
    Task,
    TaskManager,
    TaskStatus,
    Usage,
    UsageError,
)
from bot.jobs.status import StatusReporter
from bot.publishing.checks import Edits, Verdict, verdict_of
from bot.publishing.status_view import CandidateView, Progress

log = logging.getLogger(__name__)
_ORDER = (Verdict.VERIFIED, Verdict.UNVERIFIED, Verdict.SETUP_FAILED, Verdict.RED, Verdict.UNCHANGED)
_SUMMARY_CHARS = 2_000


class Candidates:
    """The attempts of one job. They share its budget, and each has a copy of its files."""

    def __init__(self, runtime: AsyncRuntime, reporter: StatusReporter, count: int, committed: Collection[str]) -> None:
        """Start nothing yet.

        Args:
            runtime: the job's; it runs nothing itself.
            reporter: shows all attempts.
            count: how many attempts.
            committed: the files of the commit that is worked on, some of which git may ignore.
        """
        self._runtime, self._reporter, self._count = runtime, reporter, count
        self._committed = frozenset(committed)
        # Beside the job's files: on the same file system, and removed with them if this process dies.
        copies = runtime.agent.work_dir.parent
        self._manager = TaskManager(Delegation(max_tasks=count, at_once=count, copies=copies))
        self._begun = reporter.progress
        self._progress: dict[str, Progress] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._messages: list[tuple[str, str]] = []
        self._stopped = False

    def stop(self) -> None:
        """End all attempts; the best is still brought into the job's files, as unfinished work."""
        self._stopped = True
        self._ending += [asyncio.ensure_future(self._manager.cancel(each)) for each in self._progress]

    def send_message(self, message: str, *, id: str = "") -> None:  # noqa: A002 - as in the event
        """Tell all attempts something, those that begin later, too."""
        self._messages.append((message, id))
        for each in self._progress:
            self._manager.send_message(each, message, id=id)

    async def best(self, task: Task, facts: Sequence[str]) -> Outcome | None:
        """Make the attempts, and give how the best one ended; None where none can be made."""
        self._runtime.hooks.add(self._listen)
        try:
            why = await self._start(task, facts)
            if not self._progress and not self._stopped:
                self._reporter.warn(f"I made one attempt instead of several candidates: {why}")
                return None
            if why:
                self._reporter.warn(f"I made only {len(self._progress)} of {self._count} candidates: {why}")
            if self._stopped:  # also those that began in this moment
                self.stop()
            statuses = [await self._manager.wait(each) for each in self._progress]
            await asyncio.gather(*self._ending)
            judged = [await asyncio.to_thread(self._judged, number, each) for number, each in enumerate(statuses, 1)]
            # Bring the best attempt into the job's files that can be, and report all.
            usage = sum((each.attempt.usage for each in judged), Usage())
            outcome, taken = Outcome(status=Status.STOPPED), None
            for each in sorted(judged, key=lambda each: each.rank):
                try:
                    await self._manager.collect(each.task)
                except UsageError as error:  # a link, for example, or a very large file
                    self._reporter.warn(f"The change of attempt {each.attempt.number} could not be used. {error}")
                    outcome = Outcome(status=Status.FAILED, reason="No attempt made a change that could be used.")
                    continue
                taken, outcome = each, each.outcome
                break
            attempts = tuple(replace(each.attempt, taken=each is taken) for each in judged)
            now = self._reporter.progress
            shown = taken.progress if taken else now
            self._reporter.progress = replace(
                shown, usage=usage, denied=now.denied, warning=now.warning, attempts=attempts
            )
            if self._stopped:
                outcome = replace(outcome, status=Status.STOPPED)
            return replace(outcome, usage=usage, pending=None)
        finally:
            await self._manager.close()

    async def _start(self, task: Task, facts: Sequence[str]) -> str:
        """Start as many attempts as can be; gives why there are not more, or nothing."""
        limits = self._runtime.agent.policy.limits
        money, tokens = limits.max_cost_usd, limits.max_tokens
        each = replace(
            limits,
            max_cost_usd=None if money is None else money / self._count,
            max_tokens=None if tokens is None else tokens // self._count,
        )
        while len(self._progress) < self._count and not self._stopped:
            try:
                name = await self._manager.start_task(
                    task, self._runtime, facts=facts, limits=each, also=self._committed
                )
            except UsageError as error:
                log.warning("only %s of %s attempts were started: %s", len(self._progress), self._count, error)
                return f"{error}."
            self._progress.setdefault(name, self._begun)
            for message, id_ in self._messages:
                self._manager.send_message(name, message, id=id_)
        return ""

    def _listen(self, event: Event) -> None:
        if isinstance(event, ChildWatched):
            self._progress[event.task] = self._progress.get(event.task, self._begun).apply_event(event.event)

    def _judged(self, number: int, status: TaskStatus) -> _Judged:
        """What the host saw of an attempt. Its programs have ended, so nothing changes its files any more."""
        names = [(kind, name) for kind, _, name in (change.partition(": ") for change in status.changes)]
        progress = self._progress[status.id]
        if times := _written(self._manager.copy_of(status.id), names):
            progress = progress.with_edits(Edits(first=min(times), last=max(times)))
        verdict = verdict_of(progress.judged_checks, changed=bool(names), setup_failed=bool(progress.setup_failed))
        outcome = status.outcome or Outcome(status=Status.FAILED)
        attempt = CandidateView(
            number=number,
            ended=outcome.status.value,
            verdict=verdict,
            files=len(names),
            lines=status.lines,
            steps=status.steps,
            usage=status.usage,
            summary=str(outcome)[:_SUMMARY_CHARS],
        )
        log.info("attempt %s: %s", number, attempt)
        return _Judged(task=status.id, attempt=attempt, progress=progress, outcome=outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """An attempt that has ended, and what the host saw of it."""

    task: str
    attempt: CandidateView
    progress: Progress
    outcome: Outcome

    @property
    def rank(self) -> tuple[bool, int, float, int]:
        """Sorts the best one first: finished, its checks pass, the smallest change; one of unknown size is none."""
        told = self.attempt
        finished = self.outcome.status is Status.FINISHED
        size = math.inf if told.lines is None else told.lines + told.files
        return not finished, _ORDER.index(told.verdict), size, told.number


def _written(copy: Path, changes: Sequence[tuple[str, str]]) -> list[float]:
    """When the changed files of a copy were written, which no program can set.

    Infinite, so that no check counts, where that is not known: for more files than are told by name, and for a name
    that is shown quoted because it would break a line.
    """
    times: list[float] = []
    for kind, name in changes:
        try:
            times.append((copy / name).lstat().st_ctime if name else math.inf)
        except OSError:
            if kind != "deleted":
                return [math.inf]
    return times
