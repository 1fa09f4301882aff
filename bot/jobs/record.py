"""The stored progress of each job: `JobRecord`, read and changed through `StoredRecord`.

The queue stores a record as text. Two versions of the bot may share a database: a record keeps fields that this version
does not know.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError, WrapValidator

from agent_runtime import Outcome
from bot.domain.errors import OtherVersionError
from bot.domain.job import Actor, JobState
from bot.git.change import Exclusions
from bot.github.types import CheckDraft
from bot.publishing.checks import Verdict
from bot.publishing.commit_format import CommitFormat
from bot.publishing.outcome import CommitRef, Published
from bot.publishing.status_view import DeniedCall, Progress, RecordPart
from bot.queue.protocols import JobRecords

WaitKind = Literal["permission", "question", "publication", "plan", "actions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a user's approval or answer.

    Attributes:
        kind: `publication`: of protected files; `plan`: to be carried out; `actions`: the list of proposals.
        bound_to: a commit; another head invalidates the request.
        tree_sha: for a publication: the approved git tree.
        like: command patterns that approval can extend to for the rest of the run.
        numbers: of the proposals in the list.
    """

    kind: WaitKind
    request_id: str
    reason: str
    preview: str
    bound_to: str
    until: float
    tree_sha: str = ""
    like: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()

    def has_id(self, request_id: str) -> bool:
        return self.request_id.startswith(request_id.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """A person's answer to a request.

    Attributes:
        approved: for a question: whether it is answered.
    """

    request_id: str
    approved: bool
    note: str
    by: Actor
    like: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request that the job's comment displays.

    Attributes:
        at: display time by GitHub's clock (ISO 8601, UTC, whole seconds).
        since: the same by ours, in seconds since the epoch.
    """

    request_id: str
    kind: WaitKind
    at: str
    since: float

    def is_visible_at(self, *, written_at: str, arrived: float) -> bool:
        """Whether an answer was written after the request was displayed.

        Args:
            written_at: by GitHub's clock; empty if unknown.
            arrived: by our clock.
        """
        return written_at >= self.at and arrived >= self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubPost:
    id: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentRecord:
    """A comment of a job.

    Attributes:
        requests: attempts to create it; after more than one there may be two.
        below: whether it was posted on the pull request because its review thread is gone.
        closed: whether a notice says that its request no longer waits.
    """

    requests: int = 0
    posted: GitHubPost | None = None
    below: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """A job's check run."""

    head_sha: str | None = None
    requests: int = 0
    posted: GitHubPost | None = None


def _validate_or_none(value: object, read: Callable[[object], Any]) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEnding:
    """The final report of a job.

    Attributes:
        check: None for none, or if another version wrote it.
        proven: whether the user's access is known; otherwise it is checked before posting.
        is_quiet: whether it creates no comment.
        cause: of the outcome, for notices about requests.
    """

    state: JobState
    body: str
    check: Annotated[CheckDraft | None, WrapValidator(_validate_or_none)] = None
    proven: bool = True
    notice: str = ""
    is_quiet: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsRecord:
    """A job's requests and their answers.

    Attributes:
        request_views: displayed requests by id.
        alike_void: whether a push ended approvals of similar commands.
    """

    waiting: Request | None = None
    request_views: Mapping[str, RequestView] = field(default_factory=dict, metadata={"progress": False})
    answers: Mapping[str, ApprovalAnswer] = field(default_factory=dict, metadata={"progress": False})
    alike_void: bool = False

    @property
    def is_answered(self) -> bool:
        return self.waiting is not None and self.waiting.request_id in self.answers

    @property
    def open_request(self) -> Request | None:
        return None if self.is_answered else self.waiting

    @property
    def approved_patterns(self) -> tuple[str, ...]:
        """The command patterns that are approved for the rest of the run."""
        answers = () if self.alike_void else self.answers.values()
        return tuple(dict.fromkeys(pattern for answer in answers if answer.approved for pattern in answer.like))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The result of a proposal; `requested` is stored before a request whose answer may be lost.

    Attributes:
        at: of the first request, in seconds since the epoch.
        created: the number of the issue that it created.
    """

    state: Literal["requested", "applied", "refused", "failed"]
    note: str = ""
    url: str = ""
    at: float = 0.0
    created: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsRecord:
    """Answers to a run's proposals, and their results by number.

    Attributes:
        struck: the numbers that a person denied one by one.
        listed: digests of the entries in the list that was answered, by number.
        denial: the reason that the rest was denied; empty if a person approved it, None without an answer.
    """

    struck: tuple[int, ...] = field(default=(), metadata={"progress": False})
    listed: Mapping[int, str] = field(default_factory=dict, metadata={"progress": False})
    denial: str | None = field(default=None, metadata={"progress": False})
    results: Mapping[int, ActionResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished run.

    Attributes:
        tree_sha: the git tree that the patch must reproduce.
        messages: ids of the people's messages that the agent received.
    """

    outcome: Outcome
    progress: Progress
    base_sha: str
    tree_sha: str
    messages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exclusions: Exclusions = field(default_factory=Exclusions)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedCommits:
    """The commits that a job merges; `branch` is the base branch."""

    head: str
    base: str
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of the model service during a job.

    Attributes:
        steps: the run's steps at the failure; further steps end the outage.
    """

    since: float
    tries: int
    steps: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOutage:
    """An outage of GitHub, its git, the blob store or the machine during a job.

    Attributes:
        reason: public.
        retry_at: the next attempt.
        until: the end of the patience.
        doubtful_since: start of the present series of doubtful answers.
        steps: of the agent until the first failure; more of them begin another outage.
        is_over: whether the job has its files since.
    """

    service: str
    reason: str
    since: float
    retry_at: float
    until: float
    doubtful_since: float | None = None
    steps: int = 0
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """The bot's own commit that a user had reverted.

    Attributes:
        by: the user's login.
        why: empty if the user gave no reason.
        patch: that reverted it.
        closed: number of the pull request that was closed, since nothing was left in it; else 0.
    """

    sha: str
    by: str
    why: str = ""
    patch: str = ""
    closed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """The progress of a job.

    Attributes:
        is_acknowledged: whether the command has its reaction.
        is_edit_read: whether later edits of the command change nothing.
        greeted_at: when the comment was first posted, in seconds since the epoch.
        parts: further comments by name, for content too long for the status comment.
        generation: identifies the current files among stored ones.
        bound: whether the permission is for `base_sha` only.
        branch_prefix: of its branches, if not the configured one.
        branch_number: its number among the branches that fix one workflow run.
        commit_format: of the first attempt to publish.
        progress: as of the start of the agent; the session log has the rest.
        reversal: for a job whose commit was undone, and for the one that undid it.
        plan: finished in a run that nobody could approve it in; `continue` starts the work on it.
        offer: the rule that its comment offers to keep.
        answering: the request that an `approve`, `deny` or `continue` addresses; empty after a `stop` with live jobs.
    """

    is_acknowledged: bool = False
    is_edit_read: bool = False
    greeted_at: float | None = None
    comment: CommentRecord = CommentRecord()
    parts: Mapping[str, CommentRecord] = field(default_factory=dict)
    check: CheckRecord = CheckRecord()
    base_sha: str | None = None
    generation: str | None = field(default=None, metadata={"progress": False})
    bound: bool = False
    continues: int | None = None
    merging: MergedCommits | None = None
    branch_number: int | None = None
    branch_prefix: str = ""
    commit_format: CommitFormat | None = field(default=None, metadata={"progress": False})
    steps: int = 0
    progress: Progress | None = None
    denied: tuple[DeniedCall, ...] | None = None
    approvals: ApprovalsRecord = ApprovalsRecord()
    outage: Outage | None = None
    service_outage: ServiceOutage | None = None
    result: RunResult | None = None
    verdict: Verdict | None = None
    published: Published = field(default_factory=Published)
    actions: ActionsRecord = ActionsRecord()
    plan: str = ""
    offer: str = ""
    answering: str | None = None
    undoing: CommitRef | None = None
    reversal: Reversal | None = None
    leads_to: str | None = None
    ending: RecordedEnding | None = None

    @property
    def is_shown(self) -> bool:
        """Whether people can see that the job started, so that its end must be shown too."""
        return self.comment.requests > 0 or self.check.requests > 0

    @property
    def has_worked(self) -> bool:
        """Whether the job may have files, a result or commits."""
        return bool(self.generation or self.result or self.steps or self.published != Published())

    def is_waiting_for_model(self, until: float | None) -> bool:
        """Whether a wait with this end is for the model service."""
        return self.outage is not None and self.outage.until == until


T = TypeVar("T")


class StoredPart(Generic[T]):
    def __init__(
        self,
        records: JobRecords,
        job_id: str,
        get: Callable[[JobRecord], T],
        put: Callable[[JobRecord, T], JobRecord],
    ) -> None:
        self._records, self._job_id, self._get, self._put = records, job_id, get, put

    async def read(self) -> T:
        return self._get(decode_record(await self._records.record(self._job_id)))

    async def update(self, change: Callable[[T], T]) -> T:
        """Replace the value by `change(value)` in one transaction.

        Args:
            change: pure, since it may be called several times.
        """
        after = JobRecord()

        def update(text: str | None) -> str:
            nonlocal after
            before = decode_record(text)
            after = self._put(before, change(self._get(before)))
            return text if text is not None and after == before else encode_record(after, over=text)

        await self._records.update(self._job_id, update)
        return self._get(after)


class StoredRecord(StoredPart[JobRecord]):
    def __init__(self, records: JobRecords, job_id: str) -> None:
        super().__init__(records, job_id, lambda record: record, lambda _, record: record)

    @property
    def comment(self) -> RecordPart[CommentRecord]:
        return self._part(lambda record: record.comment, lambda record, comment: replace(record, comment=comment))

    @property
    def check(self) -> RecordPart[CheckRecord]:
        return self._part(lambda record: record.check, lambda record, check: replace(record, check=check))

    @property
    def actions(self) -> RecordPart[ActionsRecord]:
        return self._part(lambda record: record.actions, lambda record, value: replace(record, actions=value))

    @property
    def published(self) -> RecordPart[Published]:
        return self._part(lambda record: record.published, lambda record, value: replace(record, published=value))

    def part(self, name: str) -> RecordPart[CommentRecord]:
        return self._part(
            lambda record: record.parts.get(name, CommentRecord()),
            lambda record, part: replace(record, parts={**record.parts, name: part}),
        )

    def _part(self, get: Callable[[JobRecord], T], put: Callable[[JobRecord, T], JobRecord]) -> RecordPart[T]:
        return StoredPart(self._records, self._job_id, get, put)


@asynccontextmanager
async def stored_steps(record: StoredRecord, steps: Callable[[], int]) -> AsyncIterator[None]:
    """Store the agent's number of steps during the body; new steps clear a job of its workers' deaths."""
    stored = 0

    async def store() -> None:
        nonlocal stored
        if (current := steps()) > stored:
            await record.update(lambda before: replace(before, steps=max(before.steps, current)))
            stored = current

    async def store_often() -> None:
        while True:
            await asyncio.sleep(_STEPS_SECONDS)
            await store()

    try:
        async with asyncio.TaskGroup() as group:
            storing = group.create_task(store_often())
            yield
            storing.cancel()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed.exceptions[0].__cause__
    await store()


_STEPS_SECONDS = 0.5
log = logging.getLogger(__name__)

RECORD_VERSION = 1
"""Increase it for an incompatible change, and add a migration to `decode_record`."""

_RECORD = TypeAdapter(JobRecord)
OUTAGE_TEXT = '"service_outage": {'
"""Contained in the stored record of a job that has waited for a service."""


def encode_record(record: JobRecord, *, over: str | None = None) -> str:
    """Serialize a record, including lone surrogates, which patches and model output may contain.

    Args:
        over: the text that it replaces; its fields unknown to this version are kept.

    Raises:
        OtherVersionError: cannot read `over`.
    """
    values = _to_json(record)
    if over is not None:
        values = _merge(json.loads(over), _to_json(decode_record(over)), values)
    # json escapes lone surrogates; pydantic's UTF-8 cannot encode them.
    return json.dumps(values)


def decode_record(text: str | None) -> JobRecord:
    """Parse a record; None is of a job without progress.

    Raises:
        OtherVersionError: another version wrote it.
    """
    if text is None:
        return JobRecord()
    values = json.loads(text)
    if values.pop("version") != RECORD_VERSION:
        raise OtherVersionError("another version of Codepilot wrote the job's record; run that version")
    try:
        return _RECORD.validate_python(values)
    except ValidationError as error:
        # One unreadable value must not block the job and its thread.
        unreadable = {problem["loc"][0] for problem in error.errors()}
        log.warning("this version ignores unreadable values of a job's record: %s", unreadable)
        return _RECORD.validate_python({key: value for key, value in values.items() if key not in unreadable})


def _to_json(record: JobRecord) -> dict[str, Any]:
    return {"version": RECORD_VERSION, **_RECORD.dump_python(record, mode="json")}


def _merge(stored: Any, read: Any, written: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """Merge into the stored JSON; keep fields that this version does not know.

    Args:
        read: `stored` as decoded and encoded by this version.
    """
    if written == read:
        return stored
    if isinstance(stored, dict) and isinstance(read, dict) and isinstance(written, dict):
        changed = {key: _merge(stored.get(key), read.get(key), value) for key, value in written.items()}
        return {key: value for key, value in stored.items() if key not in read} | changed
    if isinstance(stored, list) and isinstance(read, list) and written[: len(read)] == read:
        return stored + written[len(read) :]
    return written


_GROUPS = (JobRecord, CommentRecord, CheckRecord, ApprovalsRecord, ActionsRecord, Published)


def has_progress(before: str | None, after: str) -> bool:
    """Return whether a stored record has new progress of the job itself."""
    old, new = decode_record(before), decode_record(after)
    return new.steps > old.steps or not set(_progress_fields(new)) <= set(_progress_fields(old))


def with_ending(ending: RecordedEnding | None, *, unless_worked: bool = False) -> Callable[[str | None], str | None]:
    """Return a change for `JobEngine.cancel` that records the ending; it returns None for a job that has one.

    Args:
        unless_worked: also return None if the job may have work to keep.
    """

    def change(text: str | None) -> str | None:
        record = decode_record(text)
        if record.ending is not None or (unless_worked and record.has_worked):
            return None
        return encode_record(replace(record, ending=ending), over=text)

    return change


def has_answer(request_id: str) -> Callable[[str | None], bool]:
    """Return a predicate of a stored record: whether the request is answered."""
    return lambda text: request_id in decode_record(text).approvals.answers


def _progress_fields(value: object, name: str = "") -> Iterator[str]:
    if isinstance(value, _GROUPS):
        for item in fields(value):
            if item.metadata.get("progress", True):
                yield from _progress_fields(getattr(value, item.name), f"{name}.{item.name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _progress_fields(item, f"{name}.{key}")
    elif value is not None and value is not False and value != 0:
        yield name
