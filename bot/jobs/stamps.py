"""The jobs of a thread as workflow runs know them: from the stamps of status comments.

A workflow run has no database. Each status comment carries its job and the job's progress, encrypted with a key that
all runs of the repository's workflows have; a later run restores the jobs of its thread from these stamps.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from pydantic import TypeAdapter

from bot.domain.commands import Fix, Work
from bot.domain.job import LIVE_STATES, Job, JobState
from bot.github.client import GitHub
from bot.github.types import CommentFacts, GitHubError, ReviewCommentFacts
from bot.jobs.record import (
    CommentRecord,
    GitHubPost,
    JobRecord,
    StoredRecord,
    decode_record,
    encode_record,
)
from bot.jobs.storage import SealError, decrypt, encrypt
from bot.publishing.outcome import Published
from bot.queue.memory import InMemoryEngine

log = logging.getLogger(__name__)
_STAMP = re.compile(r"<!-- codepilot:state=([A-Za-z0-9_=-]{1,65536}) -->")
_MAX_OPEN_BYTES = 1024 * 1024
_MAX_STAMPS = 100
_MAX_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The state of a job in a workflow run.

    Attributes:
        run_url: of the workflow run.
        since: when the job was stored, in seconds since the epoch.
        until: end of a wait for an answer, in seconds since the epoch; else 0.
        record: the part that later commands need, from `encode_record`.
        is_whole: whether the command has its words; very long ones have no room in a comment.
    """

    job: Job
    state: JobState
    run_id: int
    run_attempt: int = 1
    run_url: str
    since: float
    until: float
    record: str
    is_whole: bool = True

    def encode(self, key: bytes, redact: Callable[[str], str]) -> str:
        """Return the HTML comment with the encrypted stamp; empty if no encryption survives `redact`."""
        data = _ADAPTER.dump_json(self)
        for _ in range(_MAX_TRIES):
            text = f"\n<!-- codepilot:state={encrypt(data, key).decode()} -->"
            if redact(text) == text:  # by chance, a part of it may look like a secret
                return text
        return ""

    @property
    def rank(self) -> tuple[float, bool]:
        """Order among the stamps of one job: by the attempt, then by the state."""
        return self.since, self.state not in LIVE_STATES

    async def has_ended(self, github: GitHub) -> bool:
        """Whether the job has ended, perhaps without a report.

        Raises:
            GitHubError: its workflow run cannot be read now.
        """
        if self.state is not JobState.RUNNING:
            return self.state not in LIVE_STATES or self.until < time.time()
        try:
            return bool((await github.runs.get(self.job.repo.full_name, self.run_id)).conclusion)
        except GitHubError as error:
            if error.lacks_permission:
                return False
            if error.status == HTTPStatus.NOT_FOUND:
                return True
            raise


_ADAPTER = TypeAdapter(Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """The stamps of one repository's workflow runs.

    Attributes:
        key: the same in all runs, and unknown to forks.
        restored: the stamps of the thread's jobs, by the job's id.
        unread: stamps that another key has encrypted.
    """

    key: bytes = field(repr=False)
    run_id: int
    run_attempt: int = 1
    run_url: str
    engine: InMemoryEngine
    restored: dict[str, Stamp] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)

    async def make(self, job: Job, redact: Callable[[str], str], room: int) -> str:
        """Return the stamp of a job for its status comment; empty if it exceeds `room` characters."""
        record, stored = await StoredRecord(self.engine, job.id).read(), await self.engine.get(job.id)
        state = JobState.RUNNING if record.approvals.open_request is None else JobState.WAITING
        needed = JobRecord(
            base_sha=record.base_sha,
            continues=record.continues,
            branch_prefix=record.branch_prefix,
            branch_number=record.branch_number,
            published=Published(commit=record.published.commit, pull=record.published.pull),
            plan=record.plan,
            offer=record.offer,
            reversal=record.reversal,
        )
        stamp = Stamp(
            job=replace(job, thread=job.thread.without_text),
            state=state if record.ending is None else record.ending.state,
            run_id=self.run_id,
            run_attempt=self.run_attempt,
            run_url=self.run_url,
            since=stored.enqueued_at if stored is not None else 0.0,
            until=record.approvals.waiting.until if record.approvals.waiting is not None else 0.0,
            record=encode_record(needed),
        )
        command, plain = job.command, encode_record(replace(needed, plan="", reversal=None))
        if isinstance(command, Work):
            command = replace(command, goal="", plan="") if isinstance(command, Fix) else replace(command, goal="")
        origin = replace(job.origin, lines=None, values=())
        short = replace(stamp.job, command=command, origin=origin)
        for each in (stamp, replace(stamp, job=short, record=plain, is_whole=False)):
            if len(text := each.encode(self.key, redact)) <= room:
                return text
        return ""

    async def restore(self, github: GitHub, job: Job, threads: Collection[int]) -> None:
        """Put the jobs of earlier workflow runs into the queue, as their status comments have them.

        Args:
            job: the one that asks.
            threads: numbers of issues and pull requests.

        Raises:
            GitHubError: the comments or runs cannot be read.
        """
        name, me = job.repo.full_name, await github.accounts.me()
        newest: dict[str, tuple[Stamp, CommentRecord]] = {}
        for number in threads:
            comments: list[CommentFacts] = [*await github.comments.list_for_thread(name, number)]
            if (job.thread.kind, job.thread.number) == ("pull", number):
                comments += await github.reviews.list_line_comments(name, number)
            for comment in comments:
                stamp = self.read(comment.body, job.repo.id, number) if comment.author.id == me.id else None
                # A re-run has another comment for the same job; a copy of a stamp counts less than the original.
                if stamp is not None and (stamp.job.id not in newest or newest[stamp.job.id][0].rank < stamp.rank):
                    stamp = replace(stamp, job=replace(stamp.job, repo=job.repo))  # with its present name
                    post = GitHubPost(id=comment.id, url=comment.html_url)
                    below = stamp.job.origin.kind == "review_comment" and not isinstance(comment, ReviewCommentFacts)
                    newest[stamp.job.id] = (stamp, CommentRecord(requests=1, posted=post, below=below))
        for stamp, posted in sorted(newest.values(), key=lambda entry: entry[0].since)[-_MAX_STAMPS:]:
            is_repeated = stamp.run_id == self.run_id and stamp.run_attempt < self.run_attempt
            is_over = stamp.state is JobState.RUNNING and is_repeated
            is_lost = stamp.state in LIVE_STATES and (is_over or await stamp.has_ended(github))
            state = JobState.FAILED if is_lost else stamp.state
            if state in LIVE_STATES and job.lane == "work":
                continue  # work would wait for it
            record = encode_record(replace(decode_record(stamp.record), comment=posted))
            await self.engine.restore(stamp.job, record, state=state, since=stamp.since)
            self.restored.setdefault(stamp.job.id, stamp)

    def read_commits(
        self, comments: Iterable[CommentFacts], author_id: int, repo_id: int, number: int
    ) -> frozenset[str]:
        """Return the commits that earlier workflow runs published for a thread."""
        own = (comment for comment in comments if comment.author.id == author_id)
        stamps = (self.read(comment.body, repo_id, number) for comment in own)
        commits = (decode_record(stamp.record).published.commit for stamp in stamps if stamp is not None)
        return frozenset(commit.sha for commit in commits if commit is not None)

    def read(self, body: str, repo_id: int, number: int) -> Stamp | None:
        """Return the stamp of a comment; None if this thread's workflow runs did not make one."""
        match = _STAMP.search(body)
        if match is None:
            return None
        try:
            stamp = _ADAPTER.validate_json(decrypt(match[1].encode(), self.key, max_bytes=_MAX_OPEN_BYTES))
        except (SealError, ValueError) as error:
            log.warning("the stamp of a status comment is ignored: %s", error)
            self.unread.add(match[1])
            return None
        return stamp if (stamp.job.repo.id, stamp.job.thread.key) == (repo_id, number) else None


def with_unread(text: str, stamps: Stamps | None) -> str:
    """Add to a text about missing work that there may be more than this run can read."""
    if stamps is None or not stamps.unread:
        return text
    return (
        f"{text} I cannot read all of my comments here: they were made with another `session-key`, or another key of "
        "a model service."
    )
