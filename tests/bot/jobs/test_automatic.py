"""Automatic work that is left alone, and work that is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds
from bot.domain.commands import Command, Explain, Fix, Review, ReviewEvent
from bot.domain.job import Job, JobState, Origin, Thread
from bot.github.types import (
    Annotation,
    CheckFacts,
    CommitFacts,
    GitHubError,
    JobFacts,
    ReviewFacts,
    RunFacts,
    StepFacts,
)
from bot.jobs.access import PhaseReader
from bot.jobs.automatic import ci_skip_outcome, early_skip_reason, is_automatic_review, review_skip_reason
from bot.jobs.context import ConfigCache, JobContext
from bot.jobs.record import JobRecord, StoredRecord, encode_record
from bot.permissions.levels import Conventions
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import Allowlist
from bot.publishing.markers import sign_marker
from bot.publishing.outcome import CommitRef, JobOutcome, Published
from bot.publishing.plan import commit_body
from bot.publishing.render import render_reply, settings_to_inputs
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from tests.builders import a_comment, a_failed_check, a_job, in_a_review
from tests.job_contexts import RED_RUN, account, answering, context_of, snapshot

BOT, KEY = 99, b"k"
ALLOWED = Allowlist(login="", number=7, server="https://github.com", repo="octo/calc")
HEAD, BEFORE, FIRST = "a" * 40, "b" * 40, "c" * 40
DENIED = GitHubError("read it", 403, "Resource not accessible by integration", "Grant it.")
DOWN = GitHubError("read it", 502, "Bad gateway", "Later.")
TESTS = StepFacts(number=2, name="Run pytest", conclusion="failure", started_at="", completed_at="")
RED = JobFacts(id=1, name="test", conclusion="failure", steps=(TESTS,), labels=(), check_id=11, html_url="")
LOST = Annotation(
    path=".github",
    start_line=1,
    end_line=1,
    level="failure",
    title="",
    message="The runner has received a shutdown signal.",
)
PASSED, NOTHING = answering(value=True), answering("")


def _ci_job(
    job_id: str = "now",
    head: str = HEAD,
    *,
    run: int = 501,
    command: Command | None = None,
    thread: Thread | None = None,
) -> Job:
    """The fix of pull request 7 that a failed workflow, or with no run the failed check of an App, has begun."""
    job = a_job(job_id, kind="pull", command=command or Fix(), thread=thread)
    return replace(job, origin=Origin(kind="ci", id=run, name="CI", conclusion="failure"), head_sha=head)


def _failing(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def fail(*_: object) -> Any:  # noqa: ANN401 - never given back
        raise error

    return fail


def _commit(sha: str, *parents: str, by_ci: bool = False) -> CommitFacts:
    message = commit_body(_ci_job()) if by_ci else "Change"
    return CommitFacts(sha=sha, tree_sha="", parents=parents, message=f"Fix it\n\n{message}", html_url="")


def _github(**parts: Callable[..., Awaitable[Any]]) -> SimpleNamespace:
    """A GitHub on which nothing is red on the base branch, and nothing was done before."""
    usual: dict[str, Any] = {
        "commit": answering(_commit(HEAD)),
        "list_own_into": answering(()),
        "get": answering(RED_RUN),
        "jobs": answering((RED,)),
        "has_passed_before": NOTHING,
        "find_failure_on_base": answering(None),
        "annotations": answering(()),
        "list_failing": answering(()),
        "list_for_thread": answering(()),
    }
    every = SimpleNamespace(**{**usual, **parts})
    return SimpleNamespace(
        accounts=account(BOT), repos=every, pulls=every, runs=every, checks=every, comments=every, redact_text=str
    )


async def _context(
    github: SimpleNamespace,
    *,
    job: Job | None = None,
    engine: InMemoryEngine | None = None,
    ledger: InMemoryLedger | None = None,
    config: RepoConfig | None = None,
    **services: object,
) -> JobContext:
    engine, job = engine or InMemoryEngine(), job or _ci_job()
    await engine.accept(job)
    usual: dict[str, object] = {
        "conventions": Conventions(),
        "configs": ConfigCache(),
        "is_long_running": True,
        "marker_key": KEY,
        "allowed": lambda _job: ALLOWED,
        "rename_settings_to_inputs": settings_to_inputs,
        "has_session": lambda _job: False,
        "work": SimpleNamespace(find=answering(None)),
    }
    common = SimpleNamespace(**{**usual, **services})
    common.configs.put(10, config or RepoConfig())
    return context_of(engine, job, github=github, services=common, ledger=ledger or InMemoryLedger(engine))


async def _ending(context: JobContext, now: str = HEAD, **thread: Any) -> JobOutcome | None:  # noqa: ANN401 - see `snapshot`
    reader = PhaseReader(context.github)
    return await ci_skip_outcome(context, snapshot(reader=reader, head_sha=now, **thread))


async def _skipped(github: SimpleNamespace, job: Job | None = None, now: str = HEAD, **thread: Any) -> bool:  # noqa: ANN401 - see `snapshot`
    ending = await _ending(await _context(github, job=job), now, **thread)
    assert ending is None or ending.state is JobState.REFUSED
    return ending is not None


async def test_a_failure_of_the_projects_own_step_is_worked_on() -> None:
    assert not await _skipped(_github())


async def test_work_that_has_begun_is_not_questioned_again() -> None:
    context = await _context(_github(), work=SimpleNamespace(find=answering(object())))
    await context.record.update(lambda record: replace(record, base_sha=HEAD))
    assert await _ending(context, now=BEFORE) is None


@pytest.mark.parametrize(
    "parts",
    [
        {"has_passed_before": PASSED},
        {"find_failure_on_base": answering(RED_RUN)},
        {"annotations": answering((LOST,)), "jobs": answering((RED.model_copy(update={"steps": ()}),))},
        {"jobs": answering((RED.model_copy(update={"conclusion": "cancelled", "steps": ()}),))},
    ],
    ids=["flaky", "red on the base branch", "lost runner", "cancelled"],
)
async def test_what_the_change_did_not_cause_is_left_alone(parts: dict[str, Any]) -> None:
    assert await _skipped(_github(**parts))


async def test_jobs_of_which_some_pass_on_the_base_branch_are_worked_on() -> None:
    async def jobs(_: str, run_id: int) -> tuple[JobFacts, ...]:
        return (RED, RED.model_copy(update={"id": 2, "name": "lint"})) if run_id == RED_RUN.id else (RED,)

    assert not await _skipped(
        _github(find_failure_on_base=answering(RED_RUN.model_copy(update={"id": 400})), jobs=jobs)
    )


async def test_a_commit_that_the_branch_has_left_behind_is_left_alone() -> None:
    assert await _skipped(_github(), now=BEFORE)


@pytest.mark.parametrize("parents", [(BEFORE,), ()])
async def test_the_bots_own_fixes_of_failed_checks_are_counted_back_to_the_first(parents: tuple[str, ...]) -> None:
    fixes = {HEAD: _commit(HEAD, BEFORE, by_ci=True), BEFORE: _commit(BEFORE, FIRST, by_ci=bool(parents))}
    fixes[FIRST] = _commit(FIRST)

    async def commit(_: str, sha: str) -> CommitFacts:
        return fixes[sha]

    assert await _skipped(_github(commit=commit)) is bool(parents)


async def test_a_history_of_nothing_but_fixes_costs_a_few_requests() -> None:
    asked: list[str] = []

    async def commit(_: str, sha: str) -> CommitFacts:
        asked.append(sha)
        return _commit(sha, f"{len(asked):040}", by_ci=True)

    assert await _skipped(_github(commit=commit))
    assert len(asked) <= 10


async def _earlier(engine: InMemoryEngine, job: Job, commit_sha: str, state: JobState = JobState.DONE) -> None:
    """A job of the thread that has made a commit."""
    await engine.restore(job, encode_record(JobRecord()), until=1.0)
    published = Published(commit=CommitRef(sha=commit_sha, branch="topic"))
    await StoredRecord(engine, job.id).update(lambda record: replace(record, published=published))
    if state is JobState.STOPPED:
        await engine.cancel(job.id, state, "Stopped.")


@pytest.mark.parametrize(("kind", "skipped"), [("ci", True), ("comment", False)])
async def test_tries_at_this_commit_and_at_those_that_it_was_made_from_are_counted(kind: Any, *, skipped: bool) -> None:  # noqa: ANN401 - an OriginKind
    engine = InMemoryEngine()
    for job_id, head, made in (("one", FIRST, BEFORE), ("two", BEFORE, HEAD)):
        job = _ci_job(job_id, head)
        await _earlier(engine, replace(job, origin=replace(job.origin, kind=kind)), made)
    await _earlier(engine, _ci_job("elsewhere", "d" * 40), "e" * 40)
    ending = await _ending(await _context(_github(), engine=engine))
    assert (ending is not None) is skipped


async def test_tries_at_other_commits_do_not_count() -> None:
    engine = InMemoryEngine()
    for number in range(3):
        await _earlier(engine, _ci_job(f"try{number}", f"{number}" * 40), f"{number + 4}" * 40)
    assert await _ending(await _context(_github(), engine=engine)) is None


async def test_a_commit_that_was_made_from_itself_is_counted_with_an_end() -> None:
    engine = InMemoryEngine()
    await _earlier(engine, _ci_job("loop"), HEAD)
    assert await _ending(await _context(_github(), engine=engine)) is not None


async def test_why_is_told_once_for_each_commit() -> None:
    engine = InMemoryEngine()
    ledger, flaky = InMemoryLedger(engine), _github(has_passed_before=PASSED)
    told = []
    for job in (_ci_job("one"), _ci_job("two"), _ci_job("three", BEFORE)):
        ending = await _ending(await _context(flaky, job=job, engine=engine, ledger=ledger), job.head_sha)
        assert ending is not None
        told.append(bool(ending.reply))
    assert told == [True, False, True]


@pytest.mark.parametrize(("author", "again"), [(BOT, False), (5, True)])
@pytest.mark.parametrize("failed", ["CI", "a `b` [c](https://x.example) @mona #3 <!-- d -->"])
async def test_a_workflow_knows_by_its_own_comments_what_was_told(author: int, failed: str, *, again: bool) -> None:
    job = _ci_job()
    job = replace(job, origin=replace(job.origin, name=failed))
    refused = {"get": _failing(GitHubError("read it", 403, "Look at https://github.com/x", "Check CODEPILOT_API_URL."))}
    first = await _ending(await _context(_github(**refused), job=job, is_long_running=False))
    assert first is not None
    body = render_reply(settings_to_inputs(first.reply), ALLOWED, job_id="first")
    said = a_comment(1, body, author_id=author)
    second = await _ending(
        await _context(_github(**refused, list_for_thread=answering((said,))), job=job, is_long_running=False)
    )
    assert second is not None
    assert bool(second.reply) is again


async def test_github_that_is_silent_for_a_moment_decides_nothing() -> None:
    for asked in ("commit", "get", "jobs", "annotations", "has_passed_before", "find_failure_on_base"):
        with pytest.raises(GitHubError):
            await _skipped(_github(**{asked: _failing(DOWN)}))


async def test_what_may_not_be_read_stops_the_work_and_names_the_permission() -> None:
    ending = await _ending(await _context(_github(get=_failing(DENIED))))
    assert ending is not None
    assert "*Actions: read-only*" in ending.reason
    of_app = await _ending(await _context(_github(list_failing=_failing(DENIED)), job=_ci_job(run=0)))
    assert of_app is None, "without a base commit its checks are not asked for"


async def test_annotations_that_may_not_be_read_leave_the_steps_to_decide() -> None:
    assert not await _skipped(_github(annotations=_failing(DENIED)))


def _red(*names: str) -> tuple[CheckFacts, ...]:
    return tuple(a_failed_check(each) for each in names)


@pytest.mark.parametrize(
    ("on_base", "on_head", "skipped"),
    [
        (_red("CI"), _red("CI", "lint"), True),
        (_red("lint"), _red("CI", "lint"), False),
        (_red("build", "lint"), _red("build"), True),
        (_red("build"), _red("build", "lint"), False),
        ((), _red("CI"), False),
        (_red("CI"), (), False),
    ],
    ids=["the same", "another", "all of a suite", "not all of a suite", "green base", "green by now"],
)
async def test_the_check_of_an_app_that_fails_on_the_base_branch_too_is_left_alone(
    on_base: tuple[CheckFacts, ...], on_head: tuple[CheckFacts, ...], *, skipped: bool
) -> None:
    async def failing(_: str, sha: str) -> tuple[CheckFacts, ...]:
        return on_head if sha == HEAD else on_base

    context = await _context(_github(list_failing=failing), job=_ci_job(run=0))
    here = snapshot(reader=PhaseReader(context.github), head_sha=HEAD)
    here = replace(here, facts=here.facts.model_copy(update={"base_head": BEFORE}))
    assert (await ci_skip_outcome(context, here) is not None) is skipped


@pytest.mark.parametrize(
    ("attempt", "answer", "skipped", "reruns"),
    [
        (1, None, True, 1),
        (2, None, False, 0),
        (1, DENIED, False, 1),
    ],
    ids=["first attempt", "second attempt", "no permission"],
)
async def test_failed_jobs_run_once_more_where_the_repository_wants_that(
    attempt: int, answer: GitHubError | None, *, skipped: bool, reruns: int
) -> None:
    calls: list[int] = []

    async def rerun(_: str, run_id: int) -> None:
        calls.append(run_id)
        if answer is not None:
            raise answer

    github = _github(get=answering(RED_RUN.model_copy(update={"attempt": attempt})), rerun_failed_jobs=rerun)
    ending = await _ending(await _context(github, config=RepoConfig(rerun_failed_jobs=True)))
    assert ((ending is not None), len(calls)) == (skipped, reruns)


async def test_failed_jobs_that_run_again_are_left_to_that_though_the_answer_to_the_request_was_lost() -> None:
    runs = [RED_RUN]

    async def get(*_: object) -> RunFacts:
        return runs[-1]

    async def rerun(*_: object) -> None:
        runs.append(RED_RUN.model_copy(update={"attempt": 2, "conclusion": ""}))
        raise DOWN

    context = await _context(_github(get=get, rerun_failed_jobs=rerun), config=RepoConfig(rerun_failed_jobs=True))
    with pytest.raises(GitHubError):
        await _ending(context)
    ending = await _ending(context)
    assert ending is not None
    assert "I re-ran its failed jobs once" in ending.reason


@pytest.mark.parametrize("genuine", [True, False])
async def test_a_forks_runs_are_explained_so_often_in_a_workflow_as_its_own_marks_say(*, genuine: bool) -> None:
    ci = sign_marker("one", 10, 7, key=KEY, kind="ci")
    said = [a_comment(n, ci, author_id=BOT if genuine else 5) for n in range(2)]
    context = await _context(
        _github(list_for_thread=answering(tuple(said))), job=_ci_job(command=Explain()), is_long_running=False
    )
    ending = await _ending(context, head_repo_id=77)
    assert (ending is not None) is genuine
    assert ending is None or not ending.reply, "strangers could make it talk for ever"


REVIEWER, HEAD = 99, "a" * 40
MARK = sign_marker("j1", 10, 7, key=b"k")


def _job(command: Command | None = None, *, head: str = HEAD) -> Job:
    """The review of pull request 7 that a push has begun."""
    job = a_job(kind="pull", command=command or Review(on="push"))
    return replace(job, origin=Origin(kind="event", id=0), head_sha=head)


def _review_context(job: Job, *reviews: ReviewFacts, is_long_running: bool = True, **services: Any) -> JobContext:  # noqa: ANN401 - of `JobServices`
    github = SimpleNamespace(accounts=account(REVIEWER), reviews=SimpleNamespace(list_for_pull=answering(reviews)))
    begun = {"work": SimpleNamespace(find=answering(None)), "has_session": lambda _job: False}
    common = SimpleNamespace(is_long_running=is_long_running, **begun, **services)
    return context_of(InMemoryEngine(), job, github=github, services=common)


async def _wants_review(job: Job, config: RepoConfig, *operator: ReviewEvent) -> bool:
    configs = ConfigCache()
    configs.put(10, config)
    bounds = Bounds(limits=RunLimits(), review_on=frozenset(operator))
    return not await early_skip_reason(_review_context(job, configs=configs, bounds=bounds))


def _review(author_id: int = REVIEWER, sha: str = HEAD, body: str = f"Good.\n\n{MARK}") -> ReviewFacts:
    return in_a_review(a_comment(1, body, author_id=author_id), commit_sha=sha)


async def _reviewed(context: JobContext, *, draft: bool = False, now: str = HEAD) -> bool:
    here = snapshot(reader=PhaseReader(context.github), head_sha=now)
    seen = here.facts.model_copy(update={"pull": SimpleNamespace(draft=draft)})
    return not await review_skip_reason(context, replace(here, facts=seen))


async def test_the_repository_decides_and_where_it_does_not_the_operator() -> None:
    pushes, none = RepoConfig(review_on=("push",)), RepoConfig(review_on=())
    assert await _wants_review(_job(), pushes)
    assert not await _wants_review(_job(), RepoConfig(review_on=("opened",)), "push")
    assert not await _wants_review(_job(), none, "push")
    assert await _wants_review(_job(), RepoConfig(), "push")
    assert not await _wants_review(_job(), RepoConfig(), "opened")


@pytest.mark.parametrize("job", [a_job(kind="pull", command=Review()), _job(Fix()), a_job(command=Review(on="push"))])
async def test_what_somebody_asked_for_needs_nobodys_leave(job: Job) -> None:
    assert not is_automatic_review(job)
    assert await early_skip_reason(_review_context(job)) == ""


async def test_a_commit_is_reviewed_once() -> None:
    assert not await _reviewed(_review_context(_job(), _review()))


@pytest.mark.parametrize(
    "review",
    [_review(author_id=5), _review(sha="b" * 40), _review(body="Good.")],
    ids=["somebody else's with a mark", "of another commit", "without a mark"],
)
async def test_other_reviews_keep_none_back(review: ReviewFacts) -> None:
    assert await _reviewed(_review_context(_job(), review))


async def test_what_became_a_draft_again_is_left_alone() -> None:
    assert not await _reviewed(_review_context(_job()), draft=True)


@pytest.mark.parametrize("is_long_running", [True, False])
async def test_a_push_that_came_meanwhile_has_a_workflow_run_of_its_own_and_elsewhere_is_reviewed_here(
    *, is_long_running: bool
) -> None:
    assert await _reviewed(_review_context(_job(), is_long_running=is_long_running), now="b" * 40) is is_long_running
