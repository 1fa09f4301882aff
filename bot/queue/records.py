"""The stored values of the queue: jobs, signals to them, requests to people, and the record of each job's progress.

A restart reads the `JobRecord`, so that no step is done twice. Jobs and records are stored as JSON. Two versions of the
bot may share a database during a deployment: a field that this version does not know stays in a record, and a job that
it cannot read is left to workers of the other one (`OtherVersionError`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError, WrapValidator

from agent_runtime import Outcome
from bot.domain.errors import OtherVersionError
from bot.domain.job import Actor, Job, JobState
from bot.github.types import CheckDraft
from bot.publishing.checks import Verdict
from bot.publishing.status_view import CommitRef, DeniedCall, Progress, PublishState, RecordPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A job as the queue holds it. Times are seconds since the epoch.

    Attributes:
        job: the job.
        state: where it stands.
        reason: why it ended as it did; empty for one that has not ended or needs no reason.
        attempts: how often it was handed out, since it last waited.
        enqueued_at: when it was stored.
        finished_at: when it ended; None when it has not.
        until: how long a waiting one waits; None for all others.
    """

    job: Job
    state: JobState
    reason: str
    attempts: int
    enqueued_at: float
    finished_at: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The jobs that have not ended.

    Attributes:
        by_state: how many are in each state.
        oldest_seconds: how long the oldest queued job has waited that was never begun; 0 when there is none.
    """

    by_state: Mapping[JobState, int]
    oldest_seconds: float

    STATES: ClassVar = (JobState.QUEUED, JobState.RUNNING, JobState.WAITING)
    """Those of jobs that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A word to a job that is under way.

    Attributes:
        kind: `stop` ends it, a `message` is told to its agent.
        text: the message, or why it is to stop.
        by: the login of its sender.
        id: names the signal; the same one is kept once, however often it is sent.
    """

    kind: Literal["stop", "message"]
    text: str
    by: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Selects pieces of work, the newest first.

    Attributes:
        states: the states that they may be in; empty for any.
        repository: `owner/name`, or one of the two; empty for any.
        person: the login of the person who asked; empty for anybody.
        repo_ids: the repositories that they may be of; None for all.
        limit: how many are found at most.
        offset: how many of the newest are passed over.
    """

    states: frozenset[JobState] = frozenset()
    repository: str = ""
    person: str = ""
    repo_ids: frozenset[int] | None = None
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekCost:
    """The cost of the runs of one repository that ended in one week.

    Attributes:
        repository: its name, as the last of the jobs has it.
        week: the number of the week since 1970, which begins on a Monday.
        runs: how many runs there were.
        cost_usd: their cost in US dollars, as far as it is known.
        unknown: how many runs have a cost that is not known.
    """

    repository: str
    week: int
    runs: int
    cost_usd: float
    unknown: int


_DAYS_TO_MONDAY = 3  # 1970 began on a Thursday


def week_of(at: float) -> int:
    """Return the number of the week, in UTC, that contains a time in seconds since the epoch."""
    return (int(at // 86_400) + _DAYS_TO_MONDAY) // 7


def week_begins(week: int) -> float:
    """Return the time at which a week begins, in seconds since the epoch."""
    return (week * 7 - _DAYS_TO_MONDAY) * 86_400.0


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
        """Return whether an answer that names `request_id`, in full or abbreviated, is about this request."""
        return self.request_id.startswith(request_id.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """The answer of a person to a request.

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
    """A request that can be read in its job's comment.

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
        """Return whether the author of an answer could see the request before.

        Args:
            written_at: when the answer was written, by GitHub's clock; empty where GitHub does not say.
            arrived: when it came to us, by our clock.
        """
        return written_at >= self.at and arrived >= self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """A comment or a check run of a job on GitHub."""

    id: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentRecord:
    """A comment of a job.

    Attributes:
        requests: how often GitHub was asked to make it; after more than one there may be two.
        posted: the comment, once GitHub has told its id.
        below: whether it is below the pull request, since its thread of lines is gone.
    """

    requests: int = 0
    posted: Posted | None = None
    below: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """The check run of a job.

    Attributes:
        head_sha: the commit that it is of; None where the job has none.
        requests: how often GitHub was asked to make it; after more than one there may be two.
        posted: the check run, once GitHub has told its id.
    """

    head_sha: str | None = None
    requests: int = 0
    posted: Posted | None = None


def _if_readable(value: object, read: Callable[[object], Any]) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEnding:
    """The report of a job's end, which is final.

    Attributes:
        state: the state the job ends in.
        body: the text of the comment.
        check: what the check run says; None where there is none, or where another version wrote it.
        proven: whether the asker is known to have access; else nobody is told before GitHub says so.
        notice: what the asker is told in a comment of its own, beside the edited one; empty for nothing.
    """

    state: JobState
    body: str
    check: Annotated[CheckDraft | None, WrapValidator(_if_readable)] = None
    proven: bool = True
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsRecord:
    """The requests of a job to people, and their answers.

    Attributes:
        waiting: what it waits for, or waited for last.
        shown: every request that its comment has shown, by id.
        answers: the first answer to each request, by id, the newest first.
        alike_void: whether something was pushed, so that approvals are for no further calls.
    """

    waiting: Waiting | None = None
    shown: Mapping[str, ShownRequest] = field(default_factory=dict, metadata={"progress": False})
    answers: Mapping[str, ApprovalAnswer] = field(default_factory=dict, metadata={"progress": False})
    alike_void: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished run of the agent.

    Attributes:
        outcome: how it ended.
        progress: what the agent did.
        base_sha: the commit it worked on.
        tree_sha: the git tree it left; the patch must give the same again.
    """

    outcome: Outcome
    progress: Progress
    base_sha: str
    tree_sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of the model service, as one job has met it.

    Attributes:
        since: when it was first met, in seconds since the epoch.
        tries: how often the job has come to wait for its end.
        steps: how far the run was; a run that gets further has seen the end of it.
        until: when the job is tried again.
    """

    since: float
    tries: int
    steps: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubOutage:
    """The times of the first and the last failed request to GitHub in an outage, in seconds since the epoch."""

    since: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """The progress of one job.

    Attributes:
        seen: whether the command has its reaction.
        greeted_at: when the comment was made that says the job is queued, in seconds since the epoch.
        comment: its status comment.
        parts: further comments that show what is too long for that one, by name.
        check: its check run.
        base_sha: the commit that it works on.
        generation: names the state of its files, which tells them from older ones on other machines.
        bound: whether something allowed it for that commit only.
        continues: the number of the pull request in which it continues; 0 for none.
        branch_number: which of the branches that fix one workflow run is its own.
        steps: how many steps its agent has made.
        progress: what was known when its agent started; the rest is in the log of its session.
        denied: the calls that were denied because nobody could be asked.
        approvals: what it asked people.
        outage: the outage of the model service that it has met last.
        github_outage: the trouble with GitHub that it has met last.
        result: what its finished run came to.
        verdict: what the host knows of that.
        published: what it has sent.
        answering: the request that an `approve`, `deny` or `continue` is about; empty once a `stop` has met live jobs.
        undoing: the commit that an `undo` takes back.
        leads_to: the id of the work that an event began.
        ending: how it ended.
    """

    seen: bool = False
    greeted_at: float | None = None
    comment: CommentRecord = CommentRecord()
    parts: Mapping[str, CommentRecord] = field(default_factory=dict)
    check: CheckRecord = CheckRecord()
    base_sha: str | None = None
    generation: str | None = field(default=None, metadata={"progress": False})
    bound: bool = False
    continues: int | None = None
    branch_number: int | None = None
    steps: int = 0
    progress: Progress | None = None
    denied: tuple[DeniedCall, ...] | None = None
    approvals: ApprovalsRecord = ApprovalsRecord()
    outage: Outage | None = None
    github_outage: GitHubOutage | None = None
    result: RunResult | None = None
    verdict: Verdict | None = None
    published: PublishState = field(default_factory=PublishState)
    answering: str | None = None
    undoing: CommitRef | None = None
    leads_to: str | None = None
    ending: RecordedEnding | None = None

    @property
    def is_shown(self) -> bool:
        """Return whether people may see that the job has begun, and so have to see that it ends."""
        return self.comment.requests > 0 or self.check.requests > 0


class JobRecords(Protocol):
    """The records of all jobs; every method may raise `QueueError`."""

    async def record(self, job_id: str) -> JobRecord:
        """The record of a job; an empty one where nothing is recorded."""
        ...

    async def update(self, job_id: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """Record what `change` makes of a job's record, in one transaction; it is on disk when this returns.

        `change` is pure. It may be called more than once, and never at the same time as another one of that job.
        """
        ...


T = TypeVar("T")


class StoredPart(Generic[T]):
    """One group of values in the record of one job."""

    def __init__(
        self,
        records: JobRecords,
        job_id: str,
        get: Callable[[JobRecord], T],
        put: Callable[[JobRecord, T], JobRecord],
    ) -> None:
        self._records, self._job_id, self._get, self._put = records, job_id, get, put

    async def read(self) -> T:
        """Return the stored value."""
        return self._get(await self._records.record(self._job_id))

    async def update(self, change: Callable[[T], T]) -> T:
        """Record what `change` makes of it; see `JobRecords.update`."""
        after = await self._records.update(self._job_id, lambda record: self._put(record, change(self._get(record))))
        return self._get(after)


class StoredRecord(StoredPart[JobRecord]):
    """The record of one job, where it is stored."""

    def __init__(self, records: JobRecords, job_id: str) -> None:
        super().__init__(records, job_id, lambda record: record, lambda _, record: record)

    @property
    def comment(self) -> RecordPart[CommentRecord]:
        """Its status comment."""
        return self._part(lambda record: record.comment, lambda record, comment: replace(record, comment=comment))

    @property
    def check(self) -> RecordPart[CheckRecord]:
        """Its check run."""
        return self._part(lambda record: record.check, lambda record, check: replace(record, check=check))

    @property
    def published(self) -> RecordPart[PublishState]:
        """Its published changes."""
        return self._part(lambda record: record.published, lambda record, done: replace(record, published=done))

    def part(self, name: str) -> RecordPart[CommentRecord]:
        """A further comment."""
        return self._part(
            lambda record: record.parts.get(name, CommentRecord()),
            lambda record, part: replace(record, parts={**record.parts, name: part}),
        )

    def _part(self, get: Callable[[JobRecord], T], put: Callable[[JobRecord, T], JobRecord]) -> RecordPart[T]:
        return StoredPart(self._records, self._job_id, get, put)


# Each kind of command has its own literal `verb`, by which pydantic tells them apart.
_JOB = TypeAdapter(Job)


def encode_job(job: Job) -> str:
    """Return the text that is stored of a job."""
    return _JOB.dump_json(job).decode()


def decode_job(body: str) -> Job:
    """Return a stored job.

    Raises:
        OtherVersionError: another version stored it, and this one cannot read it. What it holds is not told: people's
            words are among it.
    """
    try:
        return _JOB.validate_json(body)
    except ValidationError as error:
        places = {".".join(map(str, each["loc"])) or "all of it" for each in error.errors(include_input=False)}
        raise OtherVersionError(
            f"the stored job cannot be read by this version; what it cannot read: {', '.join(sorted(places)[:5])}"
        ) from None


log = logging.getLogger(__name__)

RECORD_VERSION = 1
"""Written with each record. A change that an older record does not fit raises it and adds a step to `decode_record`."""

_RECORD = TypeAdapter(JobRecord)


def encode_record(record: JobRecord, *, over: str | None = None) -> str:
    """Return a record as JSON, half a surrogate pair included, which patches and models' words may have.

    Args:
        record: the record.
        over: the text that it is written in place of. What another version wrote there and this one cannot read stays.

    Raises:
        OtherVersionError: another version of Codepilot wrote that, and this one cannot read it.
    """
    written = _plain(record)
    if over is not None:
        written = _kept(json.loads(over), _plain(decode_record(over)), written)
    # The standard library's JSON spells those; UTF-8, and so pydantic's own JSON, cannot.
    return json.dumps(written)


def decode_record(text: str) -> JobRecord:
    """Return the record that `encode_record` wrote.

    Raises:
        OtherVersionError: another version of Codepilot wrote it, and this one cannot read it.
    """
    read = json.loads(text)
    if read.pop("version") != RECORD_VERSION:
        raise OtherVersionError("the record of a job was written by another version of Codepilot; run that version")
    try:
        return _RECORD.validate_python(read)
    except ValidationError as error:
        # One value that cannot be read must not keep the job, and its thread, from all else.
        unreadable = {each["loc"][0] for each in error.errors()}
        log.warning("a job's record has values that this version cannot read; they are ignored: %s", unreadable)
        return _RECORD.validate_python({key: value for key, value in read.items() if key not in unreadable})


def _plain(record: JobRecord) -> dict[str, Any]:
    return {"version": RECORD_VERSION, **_RECORD.dump_python(record, mode="json")}


def _kept(stored: Any, read: Any, written: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """Merge the fields to write into the stored JSON; fields that this version does not know stay.

    Args:
        stored: what stands there.
        read: what this version has made of that, as it would write it.
        written: the same after a change.
    """
    if written == read:
        return stored
    if isinstance(stored, dict) and isinstance(read, dict) and isinstance(written, dict):
        changed = {key: _kept(stored.get(key), read.get(key), value) for key, value in written.items()}
        return {key: value for key, value in stored.items() if key not in read} | changed
    if isinstance(stored, list) and isinstance(read, list) and written[: len(read)] == read:
        return stored + written[len(read) :]
    return written


_GROUPS = (JobRecord, CommentRecord, CheckRecord, ApprovalsRecord, PublishState)


def has_progress(before: JobRecord, after: JobRecord) -> bool:
    """Return whether a change records new progress of the job itself; actions of other people are none."""
    return not set(_done(after)) <= set(_done(before))


def _done(value: object, name: str = "") -> Iterator[str]:
    if isinstance(value, _GROUPS):
        for each in fields(value):
            if each.metadata.get("progress", True):
                yield from _done(getattr(value, each.name), f"{name}.{each.name}")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _done(each, f"{name}.{key}")
    elif value is not None and value is not False and value != 0:
        yield name
