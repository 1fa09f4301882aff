"""The decision about a job, and where it works."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime import Policy, RunLimits
from bot.domain.access import Bounds, LabelGrant, Role, Tally
from bot.domain.commands import Ask, BareCommand, Command, Fix, Options, Review, Undo
from bot.domain.job import Actor, Job, Origin, Thread
from bot.git.errors import BranchGoneError
from bot.github.types import LabelHistory, PullFacts
from bot.jobs import waiting
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import (
    base_source,
    branch_number,
    continue_pull,
    decide,
    head_source,
    move_to_base,
    pin_base,
    pin_format,
    refresh_pull,
    requested_base,
    resume_base,
)
from bot.jobs.context import JobContext
from bot.jobs.record import Request
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Conventions, Grant, Refusal
from bot.permissions.repo_config import CommitKeys, RepoConfig
from bot.publishing.commit_format import CONVENTIONAL
from bot.queue.memory import InMemoryEngine
from tests.builders import REPO, a_job
from tests.job_contexts import account, answering, context_of, snapshot

HEAD = "a" * 40
AUTO = RepoConfig().labels.auto


async def _decided(
    *,
    standing: tuple[str, ...] = (AUTO,),
    granted_labels: tuple[str, ...] = (AUTO,),
    role: Role = "write",
    allowed_users: frozenset[str] = frozenset(),
    earlier_runs: int = 0,
    again: bool = False,
) -> Grant | Refusal:
    """The grant of a fix in a pull request of the repository."""
    labels = [
        LabelGrant(repo_id=10, number=7, name=name, labeller=Actor(id=5, login="setter"), bound_to=HEAD, at=0.0)
        for name in granted_labels
    ]
    ledger = SimpleNamespace(labels=answering(tuple(labels)), tally=answering(Tally(thread=earlier_runs)))
    services = SimpleNamespace(bounds=Bounds(limits=RunLimits(), allowed_users=allowed_users))
    reader = SimpleNamespace(role_of=answering(role), label_history=answering(LabelHistory(settings=())))
    here = snapshot(labels=standing, reader=reader, head_sha=HEAD)
    context = context_of(InMemoryEngine(), a_job(kind="pull"), services=services, ledger=ledger)
    return await decide(context, here, RepoConfig(), is_resumed=again)


def _level(decided: Grant | Refusal) -> str:
    assert isinstance(decided, Grant)
    return decided.level


async def test_a_label_raises_the_level_when_it_is_set_and_who_set_it_may_write() -> None:
    assert _level(await _decided()) == "auto"
    assert _level(await _decided(standing=(AUTO.upper(),), granted_labels=(AUTO,))) == "auto"


@pytest.mark.parametrize(
    "facts",
    [
        {"standing": ()},
        {"granted_labels": ()},
        {"role": "read"},
        {"allowed_users": frozenset({"hubot-owner"})},
    ],
)
async def test_a_label_raises_nothing_otherwise(facts: dict[str, object]) -> None:
    assert _level(await _decided(**facts)) == "ask"  # type: ignore[arg-type]


async def test_work_over_the_cap_is_refused_unless_it_is_under_way_already() -> None:
    refused = await _decided(earlier_runs=10**6)
    assert isinstance(refused, Refusal)
    assert isinstance(await _decided(earlier_runs=10**6, again=True), Grant)


async def test_a_job_without_a_place_is_not_decided_about() -> None:
    refusal = Refusal(cause="gone", reason="It is gone.")
    context = context_of(InMemoryEngine(), a_job())
    assert await decide(context, refusal, RepoConfig()) is refusal


FIRST = Grant(policy=Policy(), publish="pull_branch", bound_to_sha="a" * 40, replay=True)
QUESTION = Request(kind="question", request_id="7f3a", reason="Which?", preview="", bound_to="", until=10.0**12)


async def _context(*, work: object = None) -> JobContext:
    engine, job = InMemoryEngine(), a_job()
    await engine.accept(job)
    services = SimpleNamespace(has_session=lambda _job: False, work=SimpleNamespace(find=answering(work)))
    return context_of(engine, job, services=services)


async def test_a_first_attempt_works_on_the_commit_of_its_grant() -> None:
    context = await _context()
    assert await pin_base(context, FIRST) == FIRST
    assert (await context.record.read()).base_sha == "a" * 40


async def test_an_attempt_that_left_nothing_pins_no_later_one() -> None:
    context = await _context()
    await pin_base(context, FIRST)
    assert await resume_base(context) is None
    assert (await pin_base(context, replace(FIRST, bound_to_sha="b" * 40))).bound_to_sha == "b" * 40


async def test_an_attempt_that_asked_or_finished_pins_the_later_ones() -> None:
    waiting_context, finished = await _context(), await _context(work=object())
    for context in (waiting_context, finished):
        await pin_base(context, FIRST)
    await waiting.store_request(waiting_context.record, QUESTION)
    for context in (waiting_context, finished):
        assert (await pin_base(context, replace(FIRST, bound_to_sha="b" * 40))).bound_to_sha == "a" * 40


async def test_what_a_label_allowed_for_one_commit_is_not_widened_by_a_later_grant() -> None:
    context = await _context(work=object())
    assert not (await pin_base(context, replace(FIRST, replay=False))).replay
    assert not (await pin_base(context, FIRST)).replay


async def test_a_new_start_under_another_grant_is_not_bound_by_the_earlier_one() -> None:
    context = await _context()
    await pin_base(context, replace(FIRST, replay=False))
    assert (await pin_base(context, FIRST)).replay


async def test_a_later_attempt_writes_the_message_of_the_first_though_the_history_has_changed() -> None:
    context, config = await _context(), RepoConfig()
    conventional = RepoSettings(config=config, base_sha="a" * 40, titles=("fix: a",) * 5)
    first = await pin_format(context, conventional)
    assert first.title == CONVENTIONAL
    assert await pin_format(context, replace(conventional, titles=("Improve a",) * 5)) == first
    other = config.model_copy(update={"commit": CommitKeys(title="plain", trailers=("A: b",))})
    assert await pin_format(context, replace(conventional, config=other)) == first


PULL_HEAD, THERE = "a" * 40, "b" * 40
ISSUE, PULL = a_job(), a_job(kind="pull")
ON_BRANCH = replace(ISSUE, thread=Thread.of_branch("release"))


def _source_context(job: Job, *, base: str = "", branch_head: str | None = THERE) -> JobContext:
    github = SimpleNamespace(
        tokens=SimpleNamespace(for_clone=answering("the-token")),
        repos=SimpleNamespace(branch_head=answering(branch_head)),
    )
    return context_of(
        InMemoryEngine(), job, github=github, services=SimpleNamespace(conventions=Conventions(base=base))
    )


def _pull_into_main(base_head: str | None) -> ThreadSnapshot:
    here = snapshot(head_sha=PULL_HEAD, base_ref="main")
    pull = PullFacts(
        number=7,
        state="open",
        merged=False,
        draft=False,
        locked=False,
        title="Mine",
        author=Actor(id=3, login="mona"),
        head_ref="mona/patch-1",
        head_sha=PULL_HEAD,
        head_repo="mona/calc",
        head_repo_id=11,
        base_ref="main",
        base_sha="c" * 40,
        from_fork=True,
        html_url="",
    )
    return replace(here, facts=here.facts.model_copy(update={"pull": pull, "base_head": base_head}))


@pytest.mark.parametrize(("job", "ref"), [(PULL, "refs/pull/7/head"), (ISSUE, "refs/heads/topic")])
async def test_a_pull_request_is_fetched_by_its_number_for_its_branch_may_be_in_a_fork(job: Job, ref: str) -> None:
    source = await head_source(_source_context(job), snapshot(head_ref="topic", head_sha=PULL_HEAD))
    assert (source.ref, source.sha, source.url, source.token) == (ref, PULL_HEAD, REPO.clone_url, "the-token")


async def test_what_is_no_pull_request_begins_at_the_base_itself() -> None:
    context, here = _source_context(ISSUE), snapshot(head_ref="main", head_sha=PULL_HEAD)
    source = await head_source(context, here)
    assert await base_source(context, here, source) == source


async def test_the_base_of_a_pull_request_is_where_its_branch_stands_now_and_not_where_it_was_opened() -> None:
    context, here = _source_context(PULL, branch_head=None), _pull_into_main(THERE)
    base = await base_source(context, here, await head_source(context, here))
    assert (base.ref, base.sha) == ("refs/heads/main", THERE)


async def test_a_base_branch_that_is_gone_is_said_by_its_name() -> None:
    context, here = _source_context(PULL), _pull_into_main(None)
    source = await head_source(context, here)
    with pytest.raises(BranchGoneError, match="`main`"):
        await base_source(context, here, source)


@pytest.mark.parametrize(
    ("command", "operator", "file", "base"),
    [
        (Fix(options=Options(base="named")), "operators", "files", "named"),
        (BareCommand(goal="Please", options=Options(base="named")), "operators", "files", "named"),
        (Fix(), "operators", "files", "operators"),
        (Fix(), "", "files", "files"),
        (Fix(), "", None, None),
        (Undo(), "", "files", "files"),
    ],
)
def test_the_command_goes_before_the_operator_and_the_operator_before_the_file(
    command: Command, operator: str, file: str | None, base: str | None
) -> None:
    repo_settings = RepoSettings(config=RepoConfig(base=file), base_sha=PULL_HEAD)
    assert requested_base(_source_context(replace(ISSUE, command=command), base=operator), repo_settings) == base


def test_work_on_a_branch_is_for_that_branch_whatever_the_file_wants_for_issues() -> None:
    assert (
        requested_base(
            _source_context(ON_BRANCH, base="operators"),
            RepoSettings(config=RepoConfig(base="files"), base_sha=PULL_HEAD),
        )
        is None
    )


async def test_an_issue_is_worked_on_at_the_branch_that_its_pull_request_is_for() -> None:
    thread = (await move_to_base(_source_context(ISSUE), snapshot(head_ref="main"), "release")).thread
    assert (thread.head_sha, thread.head_ref, thread.base_ref) == (THERE, "release", "release")


@pytest.mark.parametrize(
    ("job", "base"),
    [(ISSUE, None), (PULL, "release"), (ON_BRANCH, "release"), (replace(ISSUE, command=Undo()), "release")],
)
async def test_other_work_stays_where_it_is(job: Job, base: str | None) -> None:
    here = snapshot(head_ref="topic")
    assert await move_to_base(_source_context(job, branch_head=None), here, base) == here


async def test_a_wanted_branch_that_does_not_exist_is_said_by_its_name() -> None:
    with pytest.raises(BranchGoneError, match="`relaese`"):
        await move_to_base(_source_context(ISSUE, branch_head=None), snapshot(), "relaese")


def test_a_review_has_no_base_of_its_own() -> None:
    repo_settings = RepoSettings(config=RepoConfig(), base_sha=PULL_HEAD)
    assert requested_base(_source_context(replace(PULL, command=Review())), repo_settings) is None


BOT = 99
HERE = snapshot(head_sha="d" * 40, head_ref="main")


def _pull(number: int = 8, **changes: Any) -> PullFacts:  # noqa: ANN401 - whatever PullFacts takes
    """An open pull request of the bot's for issue 7."""
    usual: dict[str, Any] = {
        "state": "open",
        "merged": False,
        "draft": False,
        "locked": False,
        "title": "Theirs",
        "author": Actor(id=BOT, login="codepilot[bot]"),
        "head_ref": f"codepilot/issue-7-{number}",
        "head_sha": f"{number}" * 40,
        "head_repo": "octo/calc",
        "head_repo_id": 10,
        "base_ref": "main",
        "base_sha": "d" * 40,
        "from_fork": False,
        "html_url": f"https://github.com/octo/calc/pull/{number}",
    }
    return PullFacts(number=number, **{**usual, **changes})


async def _issue_context(*pulls: PullFacts, command: Command | None = None, genuine: bool = True) -> JobContext:
    engine, job = InMemoryEngine(), a_job(command=command or Fix())
    await engine.accept(job)

    async def open_from(_: str, branch: str) -> list[PullFacts]:
        return [each for each in pulls if each.head_ref == branch]

    async def get(_: str, number: int) -> PullFacts:
        return next(each for each in pulls if each.number == number)

    github = SimpleNamespace(
        accounts=account(BOT),
        repos=SimpleNamespace(list_branches=answering([each.head_ref for each in pulls])),
        pulls=SimpleNamespace(list_from=open_from, get=get),
    )
    services = SimpleNamespace(
        conventions=Conventions(),
        is_own=lambda _pull, _job: genuine,
        has_session=lambda _job: False,
        work=SimpleNamespace(find=answering(object())),
    )
    return context_of(engine, job, github=github, services=services)


async def _continued(*pulls: PullFacts, command: Command | None = None, genuine: bool = True) -> int:
    place = await continue_pull(await _issue_context(*pulls, command=command, genuine=genuine), HERE, RepoConfig())
    assert isinstance(place, ThreadSnapshot)
    return place.thread.continues


async def test_the_newest_open_one_is_continued_at_its_own_head() -> None:
    place = await continue_pull(await _issue_context(_pull(8), _pull(9)), HERE, RepoConfig())
    assert isinstance(place, ThreadSnapshot)
    thread = place.thread
    assert (thread.continues, thread.head_sha, thread.head_ref) == (9, "9" * 40, "codepilot/issue-7-9")


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "closed"},
        {"author": Actor(id=5, login="codepilot[bot]")},
        {"head_repo_id": 11},
        {"head_repo_id": None},
        {"head_ref": "codepilot/issue-77-8"},
    ],
)
async def test_what_is_closed_foreign_or_of_another_issue_is_left_alone(changes: dict[str, Any]) -> None:
    assert await _continued(_pull(**changes)) == 0


async def test_a_pull_request_without_the_bots_mark_is_left_alone() -> None:
    assert await _continued(_pull(), genuine=False) == 0


async def test_one_into_another_base_than_was_named_is_left_alone() -> None:
    into_release = Fix(options=Options(base="release"))
    assert await _continued(_pull(8, base_ref="release"), _pull(9), command=into_release) == 8
    assert await _continued(_pull(9), command=into_release) == 0


@pytest.mark.parametrize("command", [Fix(options=Options(new=True)), Ask(goal="Why?")])
async def test_a_fix_that_is_to_be_new_and_other_commands_continue_nothing(command: Command) -> None:
    assert await _continued(_pull(), command=command) == 0


async def test_a_later_attempt_continues_what_the_first_did_though_a_newer_one_is_open() -> None:
    context = await _issue_context(_pull(8), _pull(9))
    await context.record.update(lambda record: replace(record, continues=8, base_sha="8" * 40))
    place = await continue_pull(context, HERE, RepoConfig())
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.continues == 8


@pytest.mark.parametrize("changes", [{"state": "closed", "merged": True}, {"state": "closed"}, {"head_repo_id": 11}])
async def test_a_pull_request_that_was_closed_meanwhile_is_not_continued(changes: dict[str, Any]) -> None:
    refusal = await refresh_pull(await _issue_context(_pull(**changes)), HERE, 8)
    assert isinstance(refusal, Refusal)
    assert refusal.cause == "pull-closed"


RED_RUN = replace(a_job(thread=Thread.of_branch("main")), origin=Origin(kind="ci", id=501))


async def _number(*branches: str, job: Job = RED_RUN) -> int:
    engine = InMemoryEngine()
    await engine.accept(job)
    github = SimpleNamespace(repos=SimpleNamespace(list_branches=answering(branches)))
    services = SimpleNamespace(conventions=Conventions())
    number = await branch_number(context_of(engine, job, github=github, services=services), "octo/calc")
    github.repos.list_branches = answering(())
    assert await branch_number(context_of(engine, job, github=github, services=services), "octo/calc") == number
    return number


@pytest.mark.parametrize(
    ("branches", "number"),
    [
        ((), 1),
        (("codepilot/fix-ci-501",), 2),
        (("codepilot/fix-ci-501-wip",), 2),
        (("codepilot/fix-ci-501", "codepilot/fix-ci-501-2-wip"), 3),
        (("codepilot/fix-ci-501-2",), 1),
        (("codepilot/fix-ci-5011",), 1),
    ],
)
async def test_the_first_free_number_is_taken_and_stays(branches: tuple[str, ...], number: int) -> None:
    assert await _number(*branches) == number


async def test_a_branch_that_bears_the_jobs_own_id_needs_no_number() -> None:
    assert await _number("codepilot/issue-7-j1", job=a_job()) == 1
