"""Commands that need no agent: each takes effect at once, whatever runs in the thread.

`steer` answers, stops, continues, repeats or reports the thread's other jobs. An approval counts for the one request
that its author could have read. `parse_answer` answers help and words that are no command.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import assert_never

from bot.domain.commands import (
    Approve,
    BadUsage,
    BareCommand,
    Continue,
    Deny,
    Explain,
    Fix,
    Help,
    Plan,
    Retry,
    ShowStatus,
    Steering,
    Stop,
    Talk,
    UnknownVerb,
)
from bot.domain.grammar import render_help
from bot.domain.job import Job, JobState
from bot.events.delivery import job_id
from bot.jobs import waiting
from bot.jobs.access import ThreadSnapshot, check_access
from bot.jobs.context import Ending, JobContext, ShortReply
from bot.permissions.levels import Refusal
from bot.permissions.permissions import approver_refusal
from bot.prompt.sanitize import clean
from bot.publishing.markdown import code, duration, fence
from bot.queue.records import ApprovalAnswer, Request, RequestView, Signal, StoredJob

_MESSAGE_CHARS = 8_000
_NOTHING = "No job is running in this thread."
LIVE = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.WAITING})
"""The states of a job that has not ended."""


class _Unfit(Exception):  # noqa: N818 - an answer that travels as an exception
    """The command fits nothing that is there; the text says what to do."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason=reason, cause=cause)


async def steer(context: JobContext, command: Steering, here: ThreadSnapshot) -> Ending:
    """Do what someone with the right to command asks of the thread's jobs."""
    jobs = await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key)
    try:
        match command:
            case Stop():
                await _stop(context, jobs)
            case Continue(message=message):
                # A hostile text takes a second, in which other jobs must go on.
                await _continue(context, jobs, await asyncio.to_thread(clean, message, limit=_MESSAGE_CHARS))
            case Approve(request_id=request_id, like=like):
                await _answer(context, here, jobs, request_id, approved=True, note="", like=like)
            case Deny(request_id=request_id, why=why):
                words = await asyncio.to_thread(clean, why, limit=_MESSAGE_CHARS)
                shown = any(each.startswith(request_id) for each in await _shown(context, jobs))
                if words and not shown and not await _is_asked(context, jobs, request_id):
                    # The first of the words looked like an id, as `added` does.
                    request_id, words = "", f"{request_id} {words}".strip()
                await _answer(context, here, jobs, request_id, approved=False, note=words)
            case Retry(job_id=job_id):
                await _retry(context, jobs, job_id)
            case ShowStatus():
                # What is under way, and what waits, newest first.
                alive = [each for each in jobs if each.state in LIVE]
                lead = "" if alive else f"{_NOTHING} Last: "
                lines = [f"- {lead}{await _line(context, each)}" for each in alive or jobs[:1]]
                return Ending(state=JobState.DONE, view=ShortReply(text="\n".join(lines) or _NOTHING))
            case other:
                assert_never(other)
    except _Unfit as unfit:
        return await context.refuse(unfit.refusal)
    await context.react("+1")
    return Ending(state=JobState.DONE)


async def _stop(context: JobContext, jobs: tuple[StoredJob, ...]) -> None:
    if any(each.state in LIVE for each in jobs):
        await context.record.update(lambda record: replace(record, answering=""))
        await stop_all(context, jobs, f"Stopped by @{context.job.actor.login}.")
    elif (await context.record.read()).answering is None:  # else an earlier attempt has stopped them
        raise _Unfit("nothing-to-stop", _NOTHING)


async def stop_all(context: JobContext, jobs: tuple[StoredJob, ...], why: str) -> None:
    """End every job that is alive; each tells it in its own comment, and keeps what it did."""
    for each in (each for each in jobs if each.state in LIVE):
        await context.queue.send(
            each.job.id, Signal(kind="stop", text=why, by=context.job.actor.login, id=context.job.id)
        )
        await context.queue.wake(each.job.id)


async def _continue(context: JobContext, jobs: tuple[StoredJob, ...], message: str) -> None:
    # A second attempt of this command must not answer the next question, nor say again what was an answer.
    before = (await context.record.read()).answering
    for each in (each for each in jobs if each.state is JobState.WAITING):
        asked = await waiting.awaited(context.of(each.job))
        if asked is not None and asked.kind == "question" and before in {None, asked.request_id}:
            await _give(context, each.job, asked, approved=True, note=message)
            return
    if before is not None:
        await _wake_answered(context, jobs)
        return
    # Of those that have not begun, the newest may be anybody's.
    states = (JobState.RUNNING, JobState.WAITING, JobState.QUEUED)
    hearing = []
    for each in (each for each in jobs if each.state in states):
        record = context.of(each.job)
        # A job that waits for an answer reads nothing before that.
        if each.state is JobState.WAITING:
            hears = await waiting.is_waiting_for_model(record, each.until)
        else:
            hears = (await record.read()).ending is None
        if hears:
            hearing.append(each)
    target = next((each.job for state in states for each in hearing if each.state is state), None)
    signal = Signal(kind="message", text=message, by=context.job.actor.login, id=context.job.id)
    if target is None or not await context.queue.send(target.id, signal):
        waits = any(each.state is JobState.WAITING for each in jobs)
        remedy = "It waits for `approve` or `deny`." if waits else f"{_NOTHING} Start a new one with `fix`."
        raise _Unfit("nothing-to-continue", remedy)


async def _answer(
    context: JobContext,
    here: ThreadSnapshot,
    jobs: tuple[StoredJob, ...],
    request_id: str,
    *,
    approved: bool,
    note: str,
    like: bool = False,
) -> None:
    # A second attempt of this command must not answer the next request.
    before = (await context.record.read()).answering
    if before is not None and not await _is_asked(context, jobs, before):
        await _wake_answered(context, jobs)
        return
    target, asked = await _meant(context, jobs, before or request_id, "approve" if approved else "deny")
    if approved and asked.kind == "question":
        remedy = f"Answer it with `{context.job.trigger} continue` and your text."
        raise _Unfit("question", f"{code(asked.request_id)} is a question. {remedy}")
    if approved:
        facts = here.thread
        if number := (await context.of(target).read()).continues:
            pull = await context.github.pulls.get(here.repo.full_name, number)
            facts = replace(facts, continues=number, head_sha=pull.head_sha)
        refusal = approver_refusal(
            target,
            approver=context.job.actor,
            role=here.roles[0],
            facts=facts,
            author_id=here.thread.author_id,
            bound_to_sha=asked.bound_to,
            trusted_bots=context.services.bounds.trusted_bots,
        )
        if refusal is not None:
            if refusal.cause == "moved-head":
                await stop_all(context, tuple(each for each in jobs if each.job.id == target.id), refusal.reason)
            raise _Unfit(refusal.cause, refusal.reason)
    if like and not asked.like:
        plain = f"`{context.job.trigger} approve {asked.request_id}`"
        raise _Unfit("nothing-alike", f"No similar call can be approved with {code(asked.request_id)}. Answer {plain}.")
    await _give(context, target, asked, approved=approved, note=note, like=asked.like if like else ())


async def _wake_answered(context: JobContext, jobs: tuple[StoredJob, ...]) -> None:
    """Run what waits though it was answered: the one who answered died before that."""
    for each in jobs:
        record = context.of(each.job)
        waits = each.state is JobState.WAITING and not await waiting.is_waiting_for_model(record, each.until)
        if waits and await waiting.is_answered(record):
            await context.queue.wake(each.job.id)


async def _meant(context: JobContext, jobs: tuple[StoredJob, ...], request_id: str, verb: str) -> tuple[Job, Request]:
    """The one request that an answer is about."""
    found = await _open_requests(context, jobs)
    shown = await _shown(context, jobs)
    # One that is about to be shown can be answered by nobody but who guesses its id.
    readable = [asked for _, asked in found if asked.request_id in shown]
    if not request_id:
        # An answer without an id can only be about the one request that its author has read.
        if not readable:
            raise _Unfit("no-such-request", "No request is waiting here.")
        stored = await context.queue.get(context.job.id)
        arrived = stored.enqueued_at if stored is not None else 0.0
        meant = shown[readable[0].request_id]
        several = any(each != meant and each.kind != "question" for each in shown.values())
        if several or not meant.is_visible_at(written_at=context.job.origin.at, arrived=arrived):
            why = "This thread has shown more than one request" if several else "It was shown after you wrote"
            lines = _lines_for(context, readable, verb)
            raise _Unfit("which-request", f"{why}, so say which request you mean. {lines}")
        found = [(job, asked) for job, asked in found if asked in readable]
    fitting = [(job, asked) for job, asked in found if asked.has_id(request_id)]
    lines = _lines_for(context, readable, verb)
    if not fitting:
        reason = f"There is no request {code(request_id)} here."
        raise _Unfit("no-such-request", f"{reason} {lines}" if readable else reason)
    if len(fitting) > 1:
        raise _Unfit("several-requests", f"Several requests start with this id. {lines}")
    if fitting[0][1].until < time.time():
        raise _Unfit("too-late", "That request has expired. Give the command again.")
    return fitting[0]


async def _shown(context: JobContext, jobs: tuple[StoredJob, ...]) -> dict[str, RequestView]:
    """Every request that the thread has shown, by id."""
    return {each.request_id: each for stored in jobs for each in await waiting.shown_by(context.of(stored.job))}


def _lines_for(context: JobContext, waits: list[Request], verb: str) -> str:
    """What waits, as lines to paste."""
    these = "This waits" if len(waits) == 1 else "These wait"
    lines = "\n\n".join(fence(f"{context.job.trigger} {verb} {each.request_id}") for each in waits)
    return f"{these}; review what would happen, then answer:\n\n{lines}"


async def _open_requests(context: JobContext, jobs: tuple[StoredJob, ...]) -> list[tuple[Job, Request]]:
    """What waits in the thread for an answer."""
    found = []
    for each in jobs:
        # A job that is about to wait has told so before it does.
        if each.state not in {JobState.WAITING, JobState.RUNNING}:
            continue
        asked = await waiting.awaited(context.of(each.job))
        if asked is not None:
            found.append((each.job, asked))
    return found


async def _is_asked(context: JobContext, jobs: tuple[StoredJob, ...], request_id: str) -> bool:
    return any(asked.has_id(request_id) for _, asked in await _open_requests(context, jobs))


async def _give(
    context: JobContext, target: Job, asked: Request, *, approved: bool, note: str, like: tuple[str, ...] = ()
) -> None:
    await context.record.update(lambda record: replace(record, answering=asked.request_id))
    given = ApprovalAnswer(request_id=asked.request_id, approved=approved, note=note, by=context.job.actor, like=like)
    counts = await waiting.answer(context.of(target), given)
    # Also for the process that answered first: it may have died before it could.
    await context.queue.wake(target.id)
    if not counts:
        raise _Unfit("answered", "Somebody else has already answered that request.")


async def _retry(context: JobContext, jobs: tuple[StoredJob, ...], job_id: str) -> None:
    if await context.queue.get(retry_id(context.job)) is not None:
        return  # an attempt before this one has stored it
    if any(each.state in LIVE for each in jobs):
        raise _Unfit("still-alive", "A job is still running here. Stop it first, or wait until it ends.")
    for each in (each for each in jobs if job_id in {"", each.job.id}):
        job = replace(each.job, repo=context.job.repo)  # which may have another name by now
        # `retry` adopts no stranger's words unread: somebody with write access must have asked for the job.
        if job.is_from_event or job.origin.kind == "recipe":
            ours = each.state is not JobState.REFUSED
        else:
            ours = (await check_access(context.github, job, bounds=context.services.bounds)).may_command
        if ours:
            opened = (await context.of(job).read()).published.pull is not None
            await context.queue.accept(retry_of(job, asked_by=context.job, opened=opened))
            return
    if job_id:
        raise _Unfit("nothing-to-retry", f"I have no job {code(job_id)} in this thread that could be repeated.")
    raise _Unfit("nothing-to-retry", "I have not done any work in this thread yet.")


def retry_id(asked_by: Job) -> str:
    """The id of the one job that a command to repeat another one begins."""
    return job_id("again", asked_by.repo.id, asked_by.id)


_OF_RED_CI = {
    "fix": "Find out why checks fail here, and fix the cause, not the checks. What failed is quoted.",
    "explain": "Why do checks fail here, and what has to change in which lines? What failed is quoted.",
}


def retry_of(old: Job, *, asked_by: Job, opened: bool = False) -> Job:
    """The work of `old` once more: for the person who asks now, with the thread's words as they are now.

    Args:
        old: what is to be done again.
        asked_by: the command that asks for it.
        opened: whether `old` has opened a pull request: the retry continues in it, even if `--new` was given.
    """
    command = old.command
    if opened and isinstance(command, Fix | BareCommand | Plan):
        command = replace(command, options=replace(command.options, new=False))
    if old.origin.kind == "ci" and isinstance(command, Fix | Explain):  # what it is about was said by its origin alone
        command = replace(command, goal=_OF_RED_CI[command.verb])
    has_words = asked_by.origin.kind != "button"
    origin = asked_by.origin if old.is_from_event else replace(old.origin, at=asked_by.origin.at or old.origin.at)
    return replace(
        old,
        id=retry_id(asked_by),
        delivery_id=f"{asked_by.delivery_id}.again",
        thread=asked_by.thread if has_words else old.thread,
        actor=asked_by.actor,
        others=(),
        trigger=asked_by.trigger if has_words else old.trigger,
        origin=origin,
        command=command,
        head_sha="",
    )


async def _line(context: JobContext, stored: StoredJob) -> str:
    job, record = stored.job, context.of(stored.job)
    comment = (await record.read()).comment.posted
    name = f"[{job.command.verb}]({comment.url})" if comment is not None else job.command.verb
    if stored.state is JobState.WAITING and await waiting.is_waiting_for_model(record, stored.until):
        waits, state = None, "waiting for the model service"
    else:
        waits, state = await waiting.asked(record) if stored.state is JobState.WAITING else None, stored.state.value
    what = f", for `{job.trigger} approve {waits.request_id}` or `deny`" if waits else ""
    what = f", for `{job.trigger} continue` and an answer" if waits and waits.kind == "question" else what
    ago = duration(max(0.0, time.time() - stored.enqueued_at))
    return f"{name} for @{job.actor.login}: {state}{what}, started {ago} ago"


def answer_to(command: Talk, *, trigger: str, recipes: str = "") -> str:
    """What the bot says to what needs no agent and concerns no job.

    Args:
        command: what was said.
        trigger: the word that it began with.
        recipes: what the help says of the repository's recipes.
    """
    more = f"{code(f'{trigger} help')} lists all commands."
    match command:
        case UnknownVerb(word=word, nearest=nearest):
            hint = f" Did you mean {code(f'{trigger} {nearest}')}?" if nearest else ""
            return f"There is no command {code(word)}.{hint} {more}"
        case BadUsage(reason=reason):
            return f"{reason} {more}"
        case Help():
            return "\n\n".join(filter(None, (render_help(trigger=trigger), recipes)))
        case other:
            assert_never(other)
