"""Run several attempts at one fix in parallel, and keep the best."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Sequence
from contextlib import suppress
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
from bot.jobs.state import RunState
from bot.publishing.checks import Edits, Verdict, verdict_of
from bot.publishing.status_view import CandidateView, Progress

log = logging.getLogger(__name__)
_VERDICT_ORDER = (Verdict.VERIFIED, Verdict.UNVERIFIED, Verdict.SETUP_FAILED, Verdict.RED, Verdict.UNCHANGED)
_SUMMARY_CHARS = 2_000
_UNUSABLE = "No attempt made a change that could be used as a whole. The other files of the best one are kept."


class Candidates:
    """The attempts of one job, which share its budget; each has a copy of its files."""

    def __init__(self, runtime: AsyncRuntime, state: RunState, count: int, committed: Collection[str]) -> None:
        self._runtime, self._state, self._count = runtime, state, count
        self._committed = frozenset(committed)
        # Beside the job's files: on the same file system, and removed with them if this process dies.
        copies = runtime.agent.work_dir.parent
        self._manager = TaskManager(Delegation(max_tasks=count, at_once=count, copies=copies))
        self._initial_progress = state.progress
        self._progress: dict[str, Progress] = {}
        self._cancellations: list[asyncio.Task[None]] = []
        self._messages: list[tuple[str, str]] = []
        self._stopped = False

    def stop(self) -> None:
        """End all attempts; the best becomes unfinished work."""
        self._stopped = True
        self._cancellations += [asyncio.ensure_future(self._manager.cancel(name)) for name in self._progress]

    def send_message(self, message: str, *, id: str = "") -> None:  # noqa: A002 - as in the event
        """Send a message to all attempts, including later ones."""
        self._messages.append((message, id))
        for name in self._progress:
            self._manager.send_message(name, message, id=id)

    async def run_best(self, task: Task, facts: Sequence[str]) -> Outcome | None:
        """Run the attempts, collect the best change and return its outcome; None if none can be made."""
        self._runtime.hooks.add(self._listen)
        try:
            reason = await self._start(task, facts)
            if not self._progress and not self._stopped:
                self._state.warn(f"I made one attempt instead of several candidates: {reason}")
                return None
            if reason:
                self._state.warn(f"I made only {len(self._progress)} of {self._count} candidates: {reason}")
            if self._stopped:  # also those that began in this moment
                self.stop()
            statuses = [await self._manager.wait(name) for name in self._progress]
            await asyncio.gather(*self._cancellations)
            results = [await asyncio.to_thread(self._evaluate, n, status) for n, status in enumerate(statuses, 1)]
            # Bring the best attempt into the job's files that can be, and report all.
            usage = sum((result.attempt.usage for result in results), Usage())
            outcome, chosen = Outcome(status=Status.STOPPED), None
            ranked = sorted(results, key=lambda result: result.rank)
            for result in ranked:
                try:
                    await self._manager.collect(result.task)
                except UsageError as error:  # a link, for example, or a very large file
                    self._state.warn(f"The change of attempt {result.attempt.number} could not be used. {error}")
                    outcome = Outcome(status=Status.FAILED, reason=_UNUSABLE)
                    continue
                chosen, outcome = result, result.outcome
                break
            if chosen is None and ranked:
                with suppress(UsageError):  # its changes are not known
                    await self._manager.collect(ranked[0].task, skip_conflicts=True)
            attempts = tuple(replace(result.attempt, is_selected=result is chosen) for result in results)
            current = self._state.progress
            progress = chosen.progress if chosen else current
            self._state.progress = replace(
                progress,
                usage=self._initial_progress.usage + usage,
                denied=current.denied,
                warning=current.warning,
                attempts=attempts,
            )
            if self._stopped:
                outcome = replace(outcome, status=Status.STOPPED)
            return replace(outcome, usage=usage, pending=None)
        finally:
            await self._manager.close()

    async def _start(self, task: Task, facts: Sequence[str]) -> str:
        """Start the attempts; return why fewer were started, or an empty text."""
        limits = self._runtime.agent.policy.limits
        money, tokens = limits.max_cost_usd, limits.max_tokens
        share = replace(
            limits,
            max_cost_usd=None if money is None else money / self._count,
            max_tokens=None if tokens is None else tokens // self._count,
        )
        while len(self._progress) < self._count and not self._stopped:
            try:
                name = await self._manager.start_task(
                    task, self._runtime, facts=facts, limits=share, extra=self._committed
                )
            except UsageError as error:
                log.warning("only %s of %s attempts were started: %s", len(self._progress), self._count, error)
                return f"{error}."
            self._progress.setdefault(name, self._initial_progress)
            for message, id_ in self._messages:
                self._manager.send_message(name, message, id=id_)
        return ""

    def _listen(self, event: Event) -> None:
        if isinstance(event, ChildWatched):
            self._progress[event.task] = self._progress.get(event.task, self._initial_progress).apply_event(event.event)

    def _evaluate(self, number: int, status: TaskStatus) -> _Evaluated:
        """Evaluate an attempt. Its processes have ended, so its files no longer change."""
        names = [(kind, name) for kind, _, name in (change.partition(": ") for change in status.changes)]
        progress = self._progress[status.id]
        if times := _change_times(self._manager.copy_path(status.id), names):
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
        return _Evaluated(task=status.id, attempt=attempt, progress=progress, outcome=outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluated:
    task: str
    attempt: CandidateView
    progress: Progress
    outcome: Outcome

    @property
    def rank(self) -> tuple[bool, int, float, int]:
        """Sort key, best first: finished, checks pass, small change; an unknown size is last."""
        attempt = self.attempt
        finished = self.outcome.status is Status.FINISHED
        size = math.inf if attempt.lines is None else attempt.lines + attempt.files
        return not finished, _VERDICT_ORDER.index(attempt.verdict), size, attempt.number


def _change_times(copy: Path, changes: Sequence[tuple[str, str]]) -> list[float]:
    """Return the change times of the files, which no program can set.

    Infinite, so that no check counts, for files that are not listed or whose names are quoted.
    """
    times: list[float] = []
    for kind, name in changes:
        try:
            times.append((copy / name).lstat().st_ctime if name else math.inf)
        except OSError:
            if kind != "deleted":
                return [math.inf]
    return times
