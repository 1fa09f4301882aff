"""The typed record of one job's progress, which a restart reads so that nothing is done twice."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError, WrapValidator

from agent_runtime import Outcome
from bot.domain.errors import OtherVersionError
from bot.domain.job import JobState
from bot.engine.approvals import ApprovalAnswer, ShownRequest, Waiting
from bot.github import CheckDraft
from bot.publishing.progress import Progress
from bot.publishing.published import CommitRef, Published, RecordPart
from bot.publishing.verdict import Verdict
from bot.publishing.view import DeniedCall

T = TypeVar("T")

log = logging.getLogger(__name__)

RECORD_VERSION = 1
"""Written with each record. A change that an older record does not fit raises it and adds a step to `decode_record`."""


def _if_readable(value: object, read: Callable[[object], Any]) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What GitHub made for a job: a comment or a check run."""

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
    """What a job has asked people, and what they answered.

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
    """Since when GitHub does not do what it is asked, and when it was asked last, in seconds since the epoch."""

    since: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """All that is recorded of one job.

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
    published: Published = field(default_factory=Published)
    answering: str | None = None
    undoing: CommitRef | None = None
    leads_to: str | None = None
    ending: RecordedEnding | None = None

    @property
    def is_shown(self) -> bool:
        """Whether people may see that the job has begun, and so have to see that it ends."""
        return self.comment.requests > 0 or self.check.requests > 0


_RECORD = TypeAdapter(JobRecord)
_GROUPS = (JobRecord, CommentRecord, CheckRecord, ApprovalsRecord, Published)


def encode_record(record: JobRecord, *, over: str | None = None) -> str:
    """A record as text, half a surrogate pair included, which patches and models' words may have.

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


def _plain(record: JobRecord) -> dict[str, Any]:
    return {"version": RECORD_VERSION, **_RECORD.dump_python(record, mode="json")}


def _kept(stored: Any, read: Any, written: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """What is written, with all of what is stored that was not read.

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


def decode_record(text: str) -> JobRecord:
    """What `encode_record` made text of.

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


def got_on(before: JobRecord, after: JobRecord) -> bool:
    """Whether a change records something that was not there before; what other people did is none of it."""
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
        """What is recorded now."""
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
    def published(self) -> RecordPart[Published]:
        """What it has sent."""
        return self._part(lambda record: record.published, lambda record, done: replace(record, published=done))

    def part(self, name: str) -> RecordPart[CommentRecord]:
        """A further comment."""
        return self._part(
            lambda record: record.parts.get(name, CommentRecord()),
            lambda record, part: replace(record, parts={**record.parts, name: part}),
        )

    def _part(self, get: Callable[[JobRecord], T], put: Callable[[JobRecord, T], JobRecord]) -> RecordPart[T]:
        return StoredPart(self._records, self._job_id, get, put)
