"""Commands without an agent, which take effect at once: `steer` and `parse_answer`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
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
    ReplyEvent,
    Retry,
    ShowStatus,
    Steering,
    Stop,
    Talk,
    Unclear,
    Undo,
    UnknownVerb,
)
from bot.domain.grammar import Place, find_missing_input, render_help
from bot.domain.job import LIVE_STATES, Job, JobState
from bot.domain.short_words import find_meaning, find_opening, split_words
from bot.events.delivery import job_id
from bot.jobs import reports, waiting
from bot.jobs.access import ThreadSnapshot, check_access
from bot.jobs.context import JobContext
from bot.jobs.record import ApprovalAnswer, Request, RequestView, with_ending
from bot.jobs.stamps import with_unread
from bot.permissions.levels import Refusal
from bot.permissions.permissions import approver_refusal
from bot.prompt.sanitize import clean
from bot.publishing.markdown import code, duration, fence, one_line
from bot.publishing.outcome import Finished, JobOutcome, Stopped
from bot.publishing.render import COMPLETION_LIMIT
from bot.queue.records import Signal, StoredJob

_MESSAGE_CHARS = 8_000
_WORDS_CHARS = 40
_NUMBER_DIGITS = 3
LONG_PLAN = "The plan is too long to be shown in full, so it cannot be approved. Ask for a shorter one."
_NO_JOB = "No job is running in this thread."


class _NoMatchError(Exception):
    """The command matches no job or request; the text has the remedy."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason=reason, cause=cause)


async def steer(context: JobContext, command: Steering, snapshot: ThreadSnapshot) -> JobOutcome:
    jobs = await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key)
    try:
        match command:
            case Stop(word=word):
                await _stop(context, jobs, word)
            case Continue(message=message):
                # A hostile text takes a second, in which other jobs must go on.
                await _continue(context, jobs, await asyncio.to_thread(clean, message, limit=_MESSAGE_CHARS))
            case Approve(request_id=request_id, like=like, word=word):
                await _answer(context, snapshot, jobs, request_id, approved=True, word=word, like=like)
            case Deny(word=word) if word:
                await _answer(context, snapshot, jobs, "", approved=False, word=word)
            case Deny(request_id=request_id, why=why):
                reason = await asyncio.to_thread(clean, why, limit=_MESSAGE_CHARS)
                is_shown = any(each.startswith(request_id) for each in await _shown_requests(context, jobs))
                if reason and not is_shown and not await _is_open(context, jobs, request_id):
                    # The first of the words looked like an id, as `added` does.
                    request_id, reason = "", f"{request_id} {reason}".strip()
                await _answer(context, snapshot, jobs, request_id, approved=False, note=reason)
            case Retry(job_id=job_id):
                await _retry(context, jobs, job_id)
            case ShowStatus():
                # What is under way, and what waits, newest first.
                live = [each for each in jobs if each.state in LIVE_STATES]
                lead = "" if live else f"{_NO_JOB} Last: "
                lines = [f"- {lead}{await _status_line(context, each)}" for each in live or jobs[:1]]
                return Finished(reply="\n".join(lines) or with_unread(_NO_JOB, context.services.stamps))
            case other:
                assert_never(other)
    except _NoMatchError as unfit:
        return await context.refuse(unfit.refusal)
    await context.react("+1")
    return Finished(is_silent=True)


async def _stop(context: JobContext, jobs: tuple[StoredJob, ...], word: str) -> None:
    if any(entry.state in LIVE_STATES for entry in jobs):
        await context.record.update(lambda record: replace(record, answering=""))
        await stop_all(context, jobs, f"Stopped by @{context.job.actor.login}.")
    elif (await context.record.read()).answering is None:  # else an earlier attempt has stopped them
        work = f" If {code(word)} is work, write {code(f'{context.job.trigger} fix')} and what to do." if word else ""
        raise _NoMatchError("nothing-to-stop", with_unread(f"{_NO_JOB}{work}", context.services.stamps))


async def stop_all(context: JobContext, jobs: tuple[StoredJob, ...], reason: str) -> None:
    """Stop all live jobs; each reports it and keeps its work."""
    stop = Signal(kind="stop", text=reason, by=context.job.actor.login, id=context.job.id)
    for entry in (entry for entry in jobs if entry.state in LIVE_STATES):
        if not await cancel_job(context, entry.job, reason, unless_worked=True):
            await context.queue.send(entry.job.id, stop)


async def cancel_job(context: JobContext, job: Job, reason: str, *, unless_worked: bool = False) -> bool:
    """End a queued or waiting job without a run; return False if it runs or has ended.

    Args:
        unless_worked: also return False if the job may have work to keep; report jobs that were not shown yet.
    """
    record, ending = await context.record_of(job).read(), None
    if unless_worked and record.has_worked:
        return False
    target = context.for_job(job)
    if record.is_shown or (unless_worked and not job.is_from_event):
        ending = await reports.render_report(target, Stopped(reason=reason))
        ending = ending and replace(ending, proven=record.is_shown)
    change = with_ending(ending, unless_worked=unless_worked)
    if not await context.queue.cancel(job.id, JobState.STOPPED, reason, record_ending=change):
        return False
    await target.services.store_log(job)
    await context.services.workspaces.discard(job.id)
    return True


async def _continue(context: JobContext, jobs: tuple[StoredJob, ...], message: str) -> None:
    # A second attempt of this command must not answer the next question, nor say again what was an answer.
    earlier = (await context.record.read()).answering
    for entry in (entry for entry in jobs if entry.state in LIVE_STATES):
        request = (await context.record_of(entry.job).read()).approvals.open_request
        if request is None or request.kind != "question" or earlier not in {None, request.request_id}:
            continue
        if entry.state is JobState.WAITING or request.request_id in await _shown_requests(context, (entry,)):
            await _store_answer(context, entry.job, request, approved=True, note=message)
            return
    if earlier is not None:
        await _resume_answered(context, jobs)
        return
    # Of those that have not begun, the newest may be anybody's.
    states = (JobState.RUNNING, JobState.WAITING, JobState.QUEUED)
    listening = []
    for entry in (entry for entry in jobs if entry.state in states):
        record = await context.record_of(entry.job).read()
        # A job that waits for an answer reads nothing before that.
        is_waiting = entry.state is JobState.WAITING
        if record.is_waiting_for_model(entry.until) if is_waiting else record.ending is None:
            listening.append(entry)
    target = next((entry.job for state in states for entry in listening if entry.state is state), None)
    if target is None and (plan_job := await find_plan(context, jobs)) is not None:
        await context.queue.accept(plan_job)
        return
    if not message and target is not None:
        raise _NoMatchError("no-message", "`continue` requires a message for the job. Write it after the command.")
    signal = Signal(kind="message", text=message, by=context.job.actor.login, id=context.job.id)
    if target is None or not await context.queue.send(target.id, signal):
        is_waiting = any(entry.state is JobState.WAITING for entry in jobs)
        remedy = "It waits for `approve` or `deny`." if is_waiting else f"{_NO_JOB} Start a new one with `fix`."
        raise _NoMatchError("nothing-to-continue", remedy)


async def answer_question(context: JobContext, reply: ReplyEvent) -> JobOutcome:
    """Answer the agent's question with a comment that has no command; do nothing where it is no answer."""
    job, queue, silence = context.job, context.queue, Finished(is_silent=True)
    stored, earlier = await queue.get(job.id), (await context.record.read()).answering
    arrived = stored.enqueued_at if stored is not None else 0.0
    question = await waiting.find_question(queue, job, arrived=arrived)
    if earlier is not None and (question is None or question[1].request_id != earlier):
        await _resume_answered(context, await queue.jobs_in_thread(job.repo.id, job.thread.key))
    elif question is None:
        return silence
    elif (await check_access(context.github, job, bounds=context.services.bounds)).may_command:
        # A hostile text takes a second, in which other jobs must go on.
        message = await asyncio.to_thread(clean, reply.message, limit=_MESSAGE_CHARS)
        is_unclear = find_meaning(message) in {"stop", "unclear"} or find_opening(message) == "stop"
        if is_unclear or not split_words(message):
            lines = _fence(job.trigger, ("stop", f"continue {message}"))
            reason = f"Your comment may be the answer, or be about the run. Write the line that you mean:\n\n{lines}"
            return await context.refuse(Refusal(reason=reason, cause="unclear-reply"))
        try:
            await _store_answer(context, *question, approved=True, note=message)
        except _NoMatchError:  # somebody was faster
            return silence
    else:
        return silence
    await context.react("+1")
    return silence


async def is_answer(context: JobContext) -> bool:
    """Whether a command without a verb answers the agent's question, also in an earlier attempt."""
    if (await context.record.read()).answering is not None:
        return True
    return await waiting.find_question(context.queue, context.job, arrived=context.state.started_at) is not None


async def ask_about(context: JobContext, command: BareCommand | Unclear) -> Refusal | None:
    """Return the question about a text without a verb that may answer a request of the thread; None if none waits."""
    job, text = context.job, command.goal if isinstance(command, BareCommand) else command.words
    jobs, verbs = await context.queue.jobs_in_thread(job.repo.id, job.thread.key), ["stop"]
    shown, text = await _shown_requests(context, jobs), text if len(text) < _WORDS_CHARS else "<your answer>"
    for request in (request for _, request in await _open_requests(context, jobs) if request.request_id in shown):
        answers = [f"approve {request.request_id}", f"deny {request.request_id}"]
        verbs += [f"continue {text}"] if request.kind == "question" else answers
    if len(verbs) == 1:
        return None
    work = f"For work, write {code(f'{job.trigger} fix')} and what to do."
    reason = f"A run waits for an answer here. Write the line that you mean:\n\n{_fence(job.trigger, verbs)}\n\n{work}"
    return Refusal(reason=reason, cause="unclear-work")


async def keep_plan(context: JobContext, plan: str) -> str:
    """Keep a plan for `continue`, since nobody can approve it in this run; return the note about that."""
    if len(plan) > COMPLETION_LIMIT:
        return LONG_PLAN
    await context.record.update(lambda record: replace(record, plan=plan))
    return f"`{context.job.trigger} continue` starts the work on this plan."


async def find_plan(context: JobContext, jobs: tuple[StoredJob, ...]) -> Job | None:
    """Return the job that carries out the thread's last work, if that is a finished plan which nobody could approve."""
    work = [entry for entry in jobs if not isinstance(entry.job.command, Undo)]
    if not work or work[0].state is not JobState.DONE:
        return None
    plan = (await context.record_of(work[0].job).read()).plan
    command = context.job.command
    message = command.message if isinstance(command, Continue) else ""
    return job_from_plan(work[0].job, plan, asked_by=context.job, message=message) if plan else None


def job_from_plan(plan_job: Job, plan: str, *, asked_by: Job | None = None, message: str = "") -> Job:
    """Return the job that carries out a plan, by default for the plan's requester.

    Args:
        message: of a person, in addition to the plan's goal.
    """
    command, asked_by = plan_job.command, asked_by or plan_job
    if not isinstance(command, Plan | BareCommand):
        raise TypeError(f"{command.verb} makes no plan")
    goal = "\n\n".join(filter(None, (command.goal, message)))
    return replace(
        plan_job,
        id=job_id("plan", plan_job.repo.id, plan_job.id),
        delivery_id=f"{plan_job.delivery_id}.plan",
        actor=asked_by.actor,
        thread=asked_by.thread,
        trigger=asked_by.trigger,
        origin=replace(plan_job.origin, at=asked_by.origin.at or plan_job.origin.at),
        # A model may write what UTF-8 cannot hold, and so no queue.
        command=Fix(goal=goal, options=command.options, plan=plan.encode("utf-8", "replace").decode()),
        head_sha="",
    )


async def _answer(
    context: JobContext,
    snapshot: ThreadSnapshot,
    jobs: tuple[StoredJob, ...],
    request_id: str,
    *,
    approved: bool,
    note: str = "",
    word: str = "",
    like: bool = False,
) -> None:
    # A second attempt of this command must not answer the next request.
    earlier = (await context.record.read()).answering
    if earlier is not None and not await _is_open(context, jobs, earlier):
        await _resume_answered(context, jobs)
        return
    if approved and word and (plan_job := await find_plan(context, jobs)) is not None:
        await context.queue.accept(plan_job)
        return
    target, request = await _select(context, jobs, earlier or request_id, "approve" if approved else "deny", word)
    if word and request.kind == "question":
        await _store_answer(context, target, request, approved=True, note=word)
        return
    if approved and request.kind == "question":
        remedy = f"Answer it with `{context.job.trigger} continue` and your text."
        raise _NoMatchError("question", f"{code(request.request_id)} is a question. {remedy}")
    if approved:
        refusal = await approval_refusal(context, snapshot, target, request)
        if refusal is not None:
            if refusal.cause == "moved-head":
                await stop_all(context, tuple(entry for entry in jobs if entry.job.id == target.id), refusal.reason)
            raise _NoMatchError(refusal.cause, refusal.reason)
    if request.kind == "actions" and not approved and (numbers := read_numbers(note)):
        await _strike(context, target, request, numbers)
        return
    if like and not request.like:
        plain = f"`{context.job.trigger} approve {request.request_id}`"
        text = f"No similar call can be approved with {code(request.request_id)}. Answer {plain}."
        raise _NoMatchError("nothing-alike", text)
    await _store_answer(context, target, request, approved=approved, note=note, like=request.like if like else ())


def read_numbers(words: str) -> tuple[int, ...]:
    """Return the numbers that a denial begins with, as in `2, 4 and #5 because …`."""
    numbers: list[int] = []
    for word in words.replace(",", " ").split():
        digits = word.removeprefix("#").rstrip(".:;")
        if digits.isascii() and digits.isdecimal() and len(digits) <= _NUMBER_DIGITS:
            numbers.append(int(digits))
        elif word.casefold() != "and":
            break
    return tuple(numbers)


async def _strike(context: JobContext, target: Job, request: Request, numbers: tuple[int, ...]) -> None:
    """Deny single proposals of a list; deny the request if none is left."""
    if unknown := set(numbers) - set(request.numbers):
        listed = ", ".join(map(str, sorted(unknown)))
        raise _NoMatchError("no-such-action", f"The list {code(request.request_id)} has no number {listed}.")
    await context.record.update(lambda record: replace(record, answering=request.request_id))
    record = await context.record_of(target).actions.update(
        lambda actions: replace(actions, struck=tuple(sorted({*actions.struck, *numbers})))
    )
    if set(request.numbers) <= set(record.struck):
        await _store_answer(context, target, request, approved=False, note="every action of the list")
    else:
        await context.queue.wake(target.id)


async def approval_refusal(
    context: JobContext, snapshot: ThreadSnapshot, target: Job, request: Request
) -> Refusal | None:
    """Return why the user of this job may not approve the request of another one; None if the user may."""
    facts = snapshot.thread
    if number := (await context.record_of(target).read()).continues:
        pull = await context.github.pulls.get(snapshot.repo.full_name, number)
        facts = replace(facts, continues=number, head_sha=pull.head_sha)
    return approver_refusal(
        target,
        approver=context.job.actor,
        role=snapshot.roles[0],
        facts=facts,
        author_id=snapshot.thread.author_id,
        bound_to_sha=request.bound_to,
        trusted_bots=context.services.bounds.trusted_bots,
    )


async def _resume_answered(context: JobContext, jobs: tuple[StoredJob, ...]) -> None:
    """Resume answered jobs whose answering worker died."""
    for entry in jobs:
        record = await context.record_of(entry.job).read()
        is_waiting = entry.state is JobState.WAITING and not record.is_waiting_for_model(entry.until)
        if is_waiting and record.approvals.is_answered:
            await context.queue.wake(entry.job.id)


async def _select(
    context: JobContext, jobs: tuple[StoredJob, ...], request_id: str, verb: str, word: str
) -> tuple[Job, Request]:
    requests = await _open_requests(context, jobs)
    shown = await _shown_requests(context, jobs)
    # One that is about to be shown can be answered by nobody but who guesses its id.
    readable = [request for _, request in requests if request.request_id in shown]
    if not request_id:
        # An answer without an id can only be about the one request that its author has read.
        if not readable:
            trigger, reason = context.job.trigger, "No request is waiting here."
            if any(entry.state in LIVE_STATES for entry in jobs):
                verbs = ("stop", f"continue {word or '<message>'}")[: 1 + context.services.is_long_running]
                reason += f" To steer the job that is under way, write one of these:\n\n{_fence(trigger, verbs)}"
            elif word:
                reason = f"{reason} If {code(word)} is work, write {code(f'{trigger} fix')} and what to do."
            raise _NoMatchError("no-such-request", reason)
        stored = await context.queue.get(context.job.id)
        arrived = stored.enqueued_at if stored is not None else 0.0
        latest = shown[readable[0].request_id]
        is_ambiguous = any(other != latest and other.kind != "question" for other in shown.values())
        if is_ambiguous or not latest.is_visible_at(written_at=context.job.origin.at, arrived=arrived):
            reason = "This thread has shown more than one request" if is_ambiguous else "It was shown after you wrote"
            lines = _answer_lines(context, readable, verb)
            raise _NoMatchError("which-request", f"{reason}, so say which request you mean. {lines}")
        requests = [(job, request) for job, request in requests if request in readable]
    fitting = [(job, request) for job, request in requests if request.has_id(request_id)]
    lines = _answer_lines(context, readable, verb)
    if not fitting:
        reason = f"There is no request {code(request_id)} here."
        raise _NoMatchError("no-such-request", f"{reason} {lines}" if readable else reason)
    if len(fitting) > 1:
        raise _NoMatchError("several-requests", f"Several requests start with this id. {lines}")
    if fitting[0][1].until < time.time():
        raise _NoMatchError("too-late", "That request has expired. Give the command again.")
    return fitting[0]


async def _shown_requests(context: JobContext, jobs: tuple[StoredJob, ...]) -> dict[str, RequestView]:
    """Return all requests that the thread has shown, by id."""
    records = [await context.record_of(stored.job).read() for stored in jobs]
    return {request_id: view for record in records for request_id, view in record.approvals.request_views.items()}


def _answer_lines(context: JobContext, requests: list[Request], verb: str) -> str:
    subject = "This waits" if len(requests) == 1 else "These wait"
    lines = _fence(context.job.trigger, (f"{verb} {request.request_id}" for request in requests))
    return f"{subject}; review what would happen, then answer:\n\n{lines}"


def _fence(trigger: str, verbs: Iterable[str]) -> str:
    return "\n\n".join(fence(f"{trigger} {verb}") for verb in verbs)


async def _open_requests(context: JobContext, jobs: tuple[StoredJob, ...]) -> list[tuple[Job, Request]]:
    requests = []
    for entry in (entry for entry in jobs if entry.state in LIVE_STATES):
        # A job that is about to wait, or is between two attempts, shows its request already.
        request = (await context.record_of(entry.job).read()).approvals.open_request
        if request is not None:
            requests.append((entry.job, request))
    return requests


async def _is_open(context: JobContext, jobs: tuple[StoredJob, ...], request_id: str) -> bool:
    return any(request.has_id(request_id) for _, request in await _open_requests(context, jobs))


async def _store_answer(
    context: JobContext, target: Job, request: Request, *, approved: bool, note: str, like: tuple[str, ...] = ()
) -> None:
    await context.record.update(lambda record: replace(record, answering=request.request_id))
    new = ApprovalAnswer(request_id=request.request_id, approved=approved, note=note, by=context.job.actor, like=like)
    is_first = await waiting.store_answer(context.record_of(target), new)
    # Also for the process that answered first: it may have died before it could.
    await context.queue.wake(target.id)
    if not is_first:
        raise _NoMatchError("answered", "Somebody else has already answered that request.")


async def _retry(context: JobContext, jobs: tuple[StoredJob, ...], job_id: str) -> None:
    if await context.queue.get(retry_id(context.job)) is not None:
        return  # an attempt before this one has stored it
    if any(entry.state in LIVE_STATES for entry in jobs):
        raise _NoMatchError("still-alive", "A job is still running here. Stop it first, or wait until it ends.")
    # Without an id the work is meant, not the commit that undid it: to undo that one brings the change back.
    over = {JobState.DONE, JobState.REFUSED}
    undone = {entry.job.id for entry in jobs if isinstance(entry.job.command, Undo) and entry.state in over}
    for entry in (entry for entry in jobs if job_id == entry.job.id or (not job_id and entry.job.id not in undone)):
        job = replace(entry.job, repo=context.job.repo)  # which may have another name by now
        # `retry` adopts no stranger's words unread: somebody with write access must have asked for the job.
        if job.is_from_event or job.origin.kind == "recipe":
            is_allowed = entry.state is not JobState.REFUSED
        else:
            is_allowed = (await check_access(context.github, job, bounds=context.services.bounds)).may_command
        if is_allowed:
            stamps = context.services.stamps
            if stamps is not None and job.id in stamps.restored and not stamps.restored[job.id].is_whole:
                raise _NoMatchError("no-words", "The words of that command are too long to be kept. Give it again.")
            has_pull = (await context.record_of(job).read()).published.pull is not None
            await context.queue.accept(build_retry(job, asked_by=context.job, has_pull=has_pull))
            return
    if job_id:
        raise _NoMatchError("nothing-to-retry", f"I have no job {code(job_id)} in this thread that could be repeated.")
    nothing = with_unread("I have not done any work in this thread yet.", context.services.stamps)
    raise _NoMatchError("nothing-to-retry", nothing)


def retry_id(asked_by: Job) -> str:
    return job_id("again", asked_by.repo.id, asked_by.id)


_CI_GOALS = {
    "fix": "Find out why checks fail here, and fix the cause, not the checks. What failed is quoted.",
    "explain": "Why do checks fail here, and what has to change in which lines? What failed is quoted.",
}


def build_retry(old: Job, *, asked_by: Job, has_pull: bool = False) -> Job:
    """Return the job that repeats `old` for the requester of `asked_by`.

    If `has_pull`, it continues in the pull request of `old`, even with `--new`.
    """
    command = old.command
    if has_pull and isinstance(command, Fix | BareCommand | Plan):
        command = replace(command, options=replace(command.options, new=False))
    if old.origin.kind == "ci" and isinstance(command, Fix | Explain):  # what it is about was said by its origin alone
        command = replace(command, goal=_CI_GOALS[command.verb])
    has_words = asked_by.origin.kind != "button"
    origin = asked_by.origin if old.is_from_event else replace(old.origin, at=asked_by.origin.at or old.origin.at)
    return replace(
        old,
        id=retry_id(asked_by),
        delivery_id=f"{asked_by.delivery_id}.again",
        thread=asked_by.thread if has_words else old.thread,
        actor=asked_by.actor,
        other_actors=(),
        trigger=asked_by.trigger if has_words else old.trigger,
        left_out="",
        origin=origin,
        command=command,
        head_sha="",
    )


async def _status_line(context: JobContext, stored: StoredJob) -> str:
    job, record = stored.job, await context.record_of(stored.job).read()
    comment = record.comment.posted
    name = f"[{job.command.verb}]({comment.url})" if comment is not None else job.command.verb
    if stored.state is JobState.WAITING and record.is_waiting_for_model(stored.until):
        waits, state = None, "waiting for the model service"
    else:
        waits = record.approvals.waiting if stored.state is JobState.WAITING else None
        state = waiting.describe_service_wait(record, stored.state) or stored.state.value
    what = f", for `{job.trigger} approve {waits.request_id}` or `deny`" if waits else ""
    what = f", for `{job.trigger} continue` and an answer" if waits and waits.kind == "question" else what
    ago = duration(max(0.0, time.time() - stored.enqueued_at))
    return f"{name} for @{job.actor.login}: {state}{what}, started {ago} ago"


def answer_to(command: Talk, *, trigger: str, place: Place = "app", recipes: str = "") -> str:
    """Return the reply to a command that needs no agent and no job.

    Args:
        trigger: the word before the command.
        place: the one whose verbs the reply lists.
        recipes: the help text about the repository's recipes.
    """
    more = f"{code(f'{trigger} help')} lists all commands."
    match command:
        case Unclear(words=words):
            lines = _fence(
                trigger, (verb for verb in ("approve", "deny", "stop") if not find_missing_input(verb, place))
            )
            text = f"It is not clear what {code(one_line(words, _WORDS_CHARS))} means. Write the line that you mean:"
            return f"{text}\n\n{lines}\n\nFor work, write {code(f'{trigger} fix')} and what to do. {more}"
        case UnknownVerb(word=word, nearest=nearest):
            hint = f" Did you mean {code(f'{trigger} {nearest}')}?" if nearest else ""
            return f"There is no command {code(word)}.{hint} {more}"
        case BadUsage(reason=reason):
            return f"{reason} {more}"
        case Help():
            return "\n\n".join(filter(None, (render_help(trigger=trigger, place=place), recipes)))
        case other:
            assert_never(other)
