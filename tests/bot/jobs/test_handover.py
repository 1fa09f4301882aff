"""An answer finds the job that an earlier workflow run left waiting, in an artifact that anybody may have packed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bot.domain.commands import Approve, Continue, Retry, ShowStatus, Steering
from bot.domain.job import Job, JobState, Origin, Repo
from bot.git.tree import CarriedChanges
from bot.github.client import GitHub
from bot.github.issues import Comments
from bot.github.types import CommentFacts, CommentTarget, GitHubError, Snapshot
from bot.jobs.access import ThreadSnapshot
from bot.jobs.context import JobContext, JobServices, WorkflowResume
from bot.jobs.handover import SESSION_FILE, handle_steering
from bot.jobs.record import ApprovalsRecord, CommentRecord, GitHubPost, JobRecord, Request, encode_record
from bot.jobs.stamps import Stamp, Stamps
from bot.jobs.storage import FileJobSessions, SavedJob, comment_digest, seal
from bot.publishing.outcome import JobOutcome
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from localhub import LocalHub
from tests.builders import a_job
from tests.github_world import World, opened_world
from tests.job_contexts import context_of, snapshot

KEY = b"the key of the repository's workflows"
FOREVER = 10.0**12
YES = Continue(message="Yes, by one.")


@dataclass(slots=True, kw_only=True)
class Waits:
    """A thread in which an earlier workflow run has asked a question."""

    world: World
    directory: Path
    comment: CommentFacts
    job: Job
    runs: int = 0
    has_stamps: bool = False
    patches: dict[str, bytes] = field(default_factory=dict)

    def sealed(self, *, comment: str | None = None, key: bytes = KEY, job: Job | None = None) -> bytes:
        """The job as that run has sealed it."""
        request = Request(kind="question", request_id="7f3a", reason="By one?", preview="", bound_to="", until=FOREVER)
        posted = GitHubPost(id=self.comment.id, url="")
        record = JobRecord(approvals=ApprovalsRecord(waiting=request), comment=CommentRecord(posted=posted))
        saved = SavedJob(
            job=job or self.job,
            request_id=request.request_id,
            until=request.until,
            record=encode_record(record),
            session={"session.jsonl": b"{}\n"},
            patch=b"the patch",
            work=CarriedChanges(),
            comment=comment_digest(self.comment.body if comment is None else comment),
        )
        return seal(saved, key)

    def keep(
        self, content: bytes | None = None, *, file: str = SESSION_FILE, days: int = 90, fork: bool = False
    ) -> None:
        """Have a run keep an artifact of the thread's name."""
        self.runs += 1
        name = f"codepilot-session-{self.job.thread.number}"
        files = {file: self.sealed() if content is None else content}
        hub, repo = self.world.hub, self.world.repo
        other = hub.add_repo("mona/fork-of-calc", owner="mona", files={"a.txt": "1\n"}) if fork else None
        hub.keep_artifact(repo, name, files, run_id=self.runs, days=days, fork=other)

    @property
    def status(self) -> str:
        """The status comment as it is now."""
        [comment] = self.world.hub.comments(self.world.repo, self.job.thread.number)
        return comment.body

    async def context(self, command: Steering) -> JobContext:
        """The run that an answer starts, with an empty engine and its own directory."""
        self.runs += 1
        engine, place = InMemoryEngine(), self.directory / f"run-{self.runs}"
        job = replace(self.job, id="answer", delivery_id="answer", command=command, origin=Origin(kind="button", id=1))
        await engine.accept(job)
        handover = WorkflowResume(
            key=KEY, engine=engine, folder=place / "sealed", sessions=FileJobSessions(place / "sessions"), plain=True
        )
        services = SimpleNamespace(
            handover=handover,
            stamps=Stamps(key=KEY, run_id=self.runs, run_url="", engine=engine) if self.has_stamps else None,
            ca_file=None,
            run_url="https://github.com/octo/calc/actions/runs/2",
            marker=lambda _job: "<!-- mark -->",
            work=SimpleNamespace(put=self.patches.__setitem__),
        )
        return context_of(engine, job, github=self.world.github, services=services, ledger=InMemoryLedger(engine))

    async def answered(self, context: JobContext) -> tuple[JobOutcome, JobState | None]:
        """Handle the answer; return its end and the state of its job."""
        command = context.job.command
        assert isinstance(command, Steering)
        facts = await self.world.github.repos.get(self.world.name)
        here = replace(snapshot(), facts=Snapshot(repo=facts, default_head=None))
        ending = await handle_steering(context, command, here)
        stored = await context.queue.get(self.job.id)
        return ending, None if stored is None else stored.state


@pytest.fixture
async def waits(hub: LocalHub, tmp_path: Path) -> AsyncIterator[Waits]:
    async with opened_world(hub) as world:
        comment = await world.github.comments.create(world.name, world.thread, "By one? Answer with `continue`.")
        job = a_job("asked", number=world.issue.number)
        job = replace(job, repo=Repo(id=world.repo.id, full_name=world.name, private=False))
        yield Waits(world=world, directory=tmp_path, comment=comment, job=job)


async def test_what_waits_is_resumed_with_all_that_was_kept_and_its_comment_says_so(waits: Waits) -> None:
    waits.keep()
    context = await waits.context(YES)
    ending, state = await waits.answered(context)
    assert (ending.state, state) == (JobState.DONE, JobState.QUEUED)
    assert context.services.run_url in waits.status
    assert "<!-- mark -->" in waits.status
    assert waits.patches == {"asked": b"the patch"}
    handover = context.services.handover
    assert handover is not None
    assert handover.sessions.files("asked", max_bytes=100) == {"session.jsonl": b"{}\n"}
    assert set(handover.saved) == handover.claimed == {"asked"}


async def test_a_resumed_job_is_found_as_one_of_the_run_that_resumes_it(waits: Waits) -> None:
    record = encode_record(JobRecord())
    stamp = Stamp(job=waits.job, state=JobState.WAITING, run_id=1, run_url="", since=1.0, until=FOREVER, record=record)
    body = f"{waits.comment.body}{stamp.encode(KEY, str)}"
    world = waits.world
    waits.comment = await world.github.comments.edit(world.name, world.thread, waits.comment.id, body)
    waits.keep()
    waits.has_stamps = True
    context = await waits.context(YES)
    assert (await waits.answered(context))[1] is JobState.QUEUED
    assert context.services.stamps is not None
    read = context.services.stamps.read(waits.status, world.repo.id, waits.job.thread.number)
    assert read is not None
    assert (read.state, read.run_id) == (JobState.RUNNING, waits.runs)
    assert (await waits.answered(context))[1] is JobState.QUEUED


async def test_an_answer_beside_a_running_job_is_to_be_repeated_and_leaves_the_request(waits: Waits) -> None:
    hub, world, waits.has_stamps = waits.world.hub, waits.world, True
    head = hub.branches(world.repo)["main"]
    run = hub.workflow_run(world.repo, head_sha=head, head_branch="main", conclusion="failure", actor="mona")
    hub.run_again(run, by="mona")
    job = replace(waits.job, id="other", delivery_id="other")
    record = encode_record(JobRecord())
    stamp = Stamp(job=job, state=JobState.RUNNING, run_id=run.id, run_url="", since=1.0, until=0.0, record=record)
    other = await world.github.comments.create(world.name, world.thread, f"Working.{stamp.encode(KEY, str)}")
    waits.keep()
    context = await waits.context(Approve())
    ending, state = await waits.answered(context)
    assert (ending.state, state) == (JobState.REFUSED, JobState.WAITING)
    assert "Answer when it has ended." in ending.reply
    assert [comment.body for comment in hub.comments(world.repo, world.issue.number)] == [
        waits.comment.body,
        other.body,
    ]


async def test_an_artifact_is_good_for_one_answer(waits: Waits) -> None:
    waits.keep()
    first, second = await waits.context(YES), await waits.context(YES)
    assert (await waits.answered(first))[1] is JobState.QUEUED
    before = waits.status
    ending, state = await waits.answered(second)
    assert (ending.state, state) == (JobState.REFUSED, None)
    assert waits.status == before


async def test_an_answer_whose_word_github_took_and_did_not_confirm_resumes_the_run(
    waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits.keep()
    context = await waits.context(YES)
    edit, calls = Comments.edit, 0

    async def unconfirmed(
        comments: Comments, repo: str, spot: CommentTarget, comment_id: int, body: str
    ) -> CommentFacts:
        nonlocal calls
        calls += 1
        facts = await edit(comments, repo, spot, comment_id, body)
        if calls == 1:
            raise GitHubError("edit a comment", 502, "Bad Gateway", "")
        return facts

    monkeypatch.setattr(Comments, "edit", unconfirmed)
    with pytest.raises(GitHubError):
        await waits.answered(context)
    ending, state = await waits.answered(context)
    assert (ending.state, state) == (JobState.DONE, JobState.QUEUED)
    assert context.services.handover is not None
    assert context.services.handover.claimed == {"asked"}


async def test_of_two_answers_at_once_the_later_one_does_no_work(waits: Waits) -> None:
    waits.keep()
    context = await waits.context(YES)
    github = context.github

    async def and_somebody_is_faster(*arguments: object) -> CommentFacts | None:
        comment = await github.comments.get(*arguments)  # type: ignore[arg-type] # what it was given
        await github.comments.edit(waits.world.name, waits.world.thread, waits.comment.id, "Answered elsewhere.")
        return comment

    racing = SimpleNamespace(get=and_somebody_is_faster, edit=github.comments.edit)
    client = SimpleNamespace(runs=github.runs, comments=racing, threads=github.threads)
    ending, state = await waits.answered(replace(context, github=cast("GitHub", client)))
    assert (ending.state, state) == (JobState.REFUSED, JobState.STOPPED)
    assert waits.status == "Answered elsewhere."


async def test_the_newest_artifact_counts_that_fits_what_the_comment_says_now(waits: Waits) -> None:
    waits.keep(waits.sealed(comment="What it asked before."))
    waits.keep()
    waits.keep(waits.sealed(comment="Somebody else's words."))
    assert (await waits.answered(await waits.context(YES)))[1] is JobState.QUEUED


@pytest.mark.parametrize("flaw", ["forged", "another thread's", "no zip's", "misnamed", "from a fork"])
async def test_what_this_repositorys_workflow_did_not_make_for_this_thread_is_not_used(waits: Waits, flaw: str) -> None:
    if flaw == "forged":
        waits.keep(waits.sealed(key=b"a stranger's"))
    elif flaw == "another thread's":
        waits.keep(waits.sealed(job=replace(waits.job, thread=replace(waits.job.thread, number=99))))
    elif flaw == "misnamed":
        waits.keep(file="session.other")
    elif flaw == "no zip's":
        waits.keep(b"no Fernet token")
    else:
        waits.keep(fork=True)
    ending, state = await waits.answered(await waits.context(YES))
    assert (ending.state, state, waits.patches) == (JobState.REFUSED, None, {})
    assert ending.reply
    assert waits.status == waits.comment.body


async def test_one_that_cannot_be_used_does_not_hide_one_that_can(waits: Waits) -> None:
    waits.keep()
    waits.keep(waits.sealed(key=b"a stranger's"))
    assert (await waits.answered(await waits.context(YES)))[1] is JobState.QUEUED


async def test_an_expired_one_and_none_at_all_are_told_apart(waits: Waits) -> None:
    none, _ = await waits.answered(await waits.context(YES))
    waits.keep(days=0)
    expired, _ = await waits.answered(await waits.context(YES))
    assert (none.state, expired.state) == (JobState.REFUSED, JobState.REFUSED)
    assert none.reason != expired.reason


async def test_a_deleted_comment_can_be_answered_no_more(waits: Waits) -> None:
    waits.keep()
    hub = waits.world.hub
    [comment] = hub.comments(waits.world.repo, waits.job.thread.number)
    hub.delete_comment(comment, by="mona")
    assert (await waits.answered(await waits.context(YES)))[1] is None


async def test_a_question_about_the_thread_is_answered_without_any_artifact(waits: Waits) -> None:
    ending, _ = await waits.answered(await waits.context(ShowStatus()))
    assert ending.state is JobState.DONE


@pytest.mark.parametrize(("command", "handed"), [(Retry(), True), (ShowStatus(), False)])
async def test_no_artifact_is_looked_for_where_none_can_help(waits: Waits, command: Steering, *, handed: bool) -> None:
    context = await waits.context(command)
    services = SimpleNamespace(handover=context.services.handover if handed else None, stamps=None)
    client = SimpleNamespace(threads=None)
    context = replace(context, github=cast("GitHub", client), services=cast("JobServices", services))
    await handle_steering(context, command, cast("ThreadSnapshot", None))


@pytest.mark.parametrize(
    ("status", "message", "passing"), [(403, "Resource not accessible by integration", False), (502, "Bad", True)]
)
async def test_a_missing_permission_is_named_and_an_outage_decides_nothing(
    waits: Waits, status: int, message: str, *, passing: bool
) -> None:
    async def fail(*_: object) -> object:
        raise GitHubError("read the artifacts", status, message, "Later.")

    context = await waits.context(YES)
    client = cast("GitHub", SimpleNamespace(runs=SimpleNamespace(artifacts=fail), repos=waits.world.github.repos))
    context = replace(context, github=client)
    if passing:
        with pytest.raises(GitHubError):
            await waits.answered(context)
        return
    ending, _ = await waits.answered(context)
    assert "`actions: read`" in ending.reason
