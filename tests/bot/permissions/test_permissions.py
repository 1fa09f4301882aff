"""The choke point: who may do what where, for each verb."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from agent_runtime import Network, RunLimits
from agent_runtime.policy.policy import CallFacts, NeedsApproval, Permitted
from bot.domain.access import Bounds, Caps, Role, Tally, TrustedBots, is_unattended
from bot.domain.commands import (
    Approve,
    Ask,
    BareCommand,
    Command,
    Explain,
    Fix,
    Help,
    Options,
    Plan,
    Resolve,
    Review,
    ShowStatus,
    Test,
    Undo,
    UnknownVerb,
)
from bot.domain.job import Actor, Job, OriginKind, Thread
from bot.github.types import RepoFacts
from bot.permissions.levels import Grant, Refusal, ThreadState
from bot.permissions.permissions import (
    EffectiveOptions,
    approver_refusal,
    cap_refusal,
    grant_for,
    resolve_command,
    resolve_options,
)
from bot.permissions.repo_config import Overrides, RepoConfig, VerbsKeys
from tests.builders import REPO, a_job, a_request_for, thread_facts

LIMITS = RunLimits(max_steps=3)


def with_default(branch: str) -> RepoFacts:
    return REPO.model_copy(update={"default_branch": branch})


ARCHIVED = REPO.model_copy(update={"archived": True})
ISSUE = thread_facts(head_ref="main")
PULL = thread_facts()
FORK = thread_facts(head_repo_id=11)
COMMANDS: list[Command] = [
    Fix(goal="x"),
    Help(),
    UnknownVerb(word="fxi", nearest="fix"),
    ShowStatus(),
    Undo(),
    BareCommand(goal="x"),
]


def _decided(
    kind: str,
    facts: ThreadState,
    *,
    role: Role = "write",
    **changes: Any,  # noqa: ANN401 - whatever a request takes
) -> Grant | Refusal:
    job = a_job(kind=kind, command=changes.get("command"))
    bounds = Bounds(limits=LIMITS, model="m")
    return grant_for(a_request_for(job, facts=facts, roles=(role,), **{"bounds": bounds, **changes}))


def _grant(kind: str, facts: ThreadState, **changes: Any) -> Grant:  # noqa: ANN401 - as above
    decided = _decided(kind, facts, **changes)
    assert isinstance(decided, Grant), decided
    return decided


def _refusal(kind: str, facts: ThreadState, **changes: Any) -> Refusal:  # noqa: ANN401 - as above
    decided = _decided(kind, facts, **changes)
    assert isinstance(decided, Refusal), decided
    return decided


@pytest.mark.parametrize("role", ["admin", "maintain", "write"])
def test_who_may_write_may_have_an_issue_fixed_on_a_new_branch(role: Role) -> None:
    grant = _grant("issue", ISSUE, role=role)
    assert (grant.publish, grant.bound_to_sha, grant.policy.limits) == ("new_branch", "a" * 40, LIMITS)


def test_a_pull_request_of_the_same_repository_is_fixed_on_its_own_branch() -> None:
    grant = _grant("pull", PULL)
    assert (grant.publish, grant.replay) == ("pull_branch", True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
@pytest.mark.parametrize("kind", ["issue", "pull"])
@pytest.mark.parametrize("role", ["triage", "read", "none"])
def test_without_write_access_there_is_no_answer_to_any_verb(role: Role, kind: str, command: Command) -> None:
    assert _refusal(kind, PULL, role=role, command=command).silent


@pytest.mark.parametrize(
    ("kind", "facts", "word", "cause"),
    [
        ("issue", replace(ISSUE, is_open=False), "issue is closed", "closed"),
        ("pull", replace(PULL, is_open=False), "pull request is closed", "closed"),
        ("issue", replace(ISSUE, locked=True), "locked", "locked"),
        ("issue", replace(ISSUE, repo=ARCHIVED), "archived", "archived"),
        ("issue", replace(ISSUE, head_sha=""), "no commit", "no-commit"),
        ("pull", replace(PULL, head_repo_id=11), "fork", "read-only"),
        ("pull", replace(PULL, head_repo_id=None), "deleted", "branch-gone"),
        ("pull", replace(PULL, head_ref="main"), "default branch", "default-branch"),
        ("pull", replace(PULL, head_ref="--upload-pack=x"), "Rename", "branch-name"),
        ("pull", replace(PULL, head_ref="a..b"), "Rename", "branch-name"),
        ("pull", replace(PULL, head_ref="a~1"), "Rename", "branch-name"),
        ("pull", replace(PULL, head_ref="a\n"), "Rename", "branch-name"),
        ("pull", replace(PULL, base_ref="${{ x }}"), "Rename", "branch-name"),
        ("issue", replace(ISSUE, repo=with_default("ä.lock"), head_ref="ä.lock"), "Rename", "branch-name"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(kind: str, facts: ThreadState, word: str, cause: str) -> None:
    refusal = _refusal(kind, facts)
    assert word in refusal.reason
    assert (refusal.cause, refusal.silent) == (cause, False)


def test_what_was_private_when_asked_is_not_told_in_public() -> None:
    job = a_job()
    job = replace(job, repo=replace(job.repo, private=True))
    decided = grant_for(a_request_for(job, facts=ISSUE))
    assert isinstance(decided, Refusal)
    assert decided.cause == "made-public"


@pytest.mark.parametrize(
    "ref", ["main", "mona/patch-1", "dependabot/npm_and_yarn/x-1.2", "release@2", "fix#12", "a+b=c,d"]
)
def test_ordinary_branch_names_are_taken(ref: str) -> None:
    _grant("pull", replace(PULL, head_ref=ref, repo=with_default("trunk")))


@pytest.mark.parametrize(
    "command",
    [Help(), UnknownVerb(word="x", nearest=None), ShowStatus(), Approve(request_id="7f3a")],
    ids=lambda command: command.verb,
)
@pytest.mark.parametrize("facts", [PULL, FORK, replace(PULL, is_open=False, locked=True)])
def test_what_needs_no_agent_is_done_anywhere_and_gives_an_agent_nothing(facts: ThreadState, command: Command) -> None:
    grant = _grant("pull", facts, command=command)
    assert (grant.publish, grant.tools, grant.level) == ("nothing", (), "read-only")


@pytest.mark.parametrize(
    ("command", "publish", "acts"),
    [
        (Fix(), "pull_branch", {"write_file", "execute"}),
        (Test(), "nothing", {"execute"}),
        (Review(), "review", set()),
        (Explain(), "nothing", set()),
        (Plan(), "nothing", set()),
        (Ask(), "nothing", set()),
    ],
    ids=lambda value: getattr(value, "verb", None),
)
@pytest.mark.parametrize("level", ["ask", "auto"])
def test_what_each_verb_may_in_a_pull_request(
    level: Literal["ask", "auto"], command: Command, publish: str, acts: set[str]
) -> None:
    grant = _grant("pull", PULL, command=command, config=RepoConfig(level=level))
    assert (grant.publish, acts) == (publish, {"write_file", "execute"} & set(grant.tools))
    assert (grant.level, grant.can_execute) == (level if acts else "read-only", bool(acts))


def test_what_is_taken_back_needs_no_agent() -> None:
    grant = _grant("pull", PULL, command=Undo())
    assert (grant.publish, grant.tools) == ("pull_branch", ())


@pytest.mark.parametrize("command", [Review(), Explain(), Plan(), Ask()], ids=lambda command: command.verb)
def test_what_only_looks_is_done_for_a_fork_too(command: Command) -> None:
    grant = _grant("pull", FORK, command=command)
    assert grant.tools[:3] == ("read_file", "list_files", "find")
    assert not {"write_file", "execute", "send_input"} & set(grant.tools)


@pytest.mark.parametrize(
    ("command", "facts", "cause"),
    [
        (Review(), ISSUE, "no-pull"),
        (Fix(options=Options(model="other")), ISSUE, "model"),
    ],
    ids=["review of an issue", "a model that is not offered"],
)
def test_what_cannot_be_done_in_an_issue(command: Command, facts: ThreadState, cause: str) -> None:
    assert _refusal("issue", facts, command=command).cause == cause


def test_a_merge_into_a_forks_branch_is_refused() -> None:
    assert _refusal("pull", FORK, command=Resolve()).cause == "fork"


def test_nothing_is_taken_back_on_a_fork() -> None:
    assert _refusal("pull", FORK, command=Undo()).cause == "fork"


@pytest.mark.parametrize("command", [Explain(), Ask()], ids=lambda command: command.verb)
def test_a_closed_thread_can_still_be_asked_about(command: Command) -> None:
    _grant("pull", replace(PULL, is_open=False), command=command)
    assert _refusal("pull", replace(PULL, locked=True), command=command).cause == "locked"


@pytest.mark.parametrize(
    ("kind", "config", "verb"),
    [
        ("issue", RepoConfig(), "fix"),
        ("pull", RepoConfig(), "ask"),
        ("issue", RepoConfig(bare_issue="plan"), "plan"),
        ("pull", RepoConfig(bare_pull="review"), "review"),
    ],
)
def test_text_without_a_verb_means_what_the_repository_says(
    kind: Literal["issue", "pull"], config: RepoConfig, verb: str
) -> None:
    bare = BareCommand(goal="look here", options=Options(max_steps=2))
    command = resolve_command(bare, kind=kind, config=config)
    assert (command.verb, getattr(command, "goal", ""), getattr(command, "options", None)) == (
        verb,
        "look here",
        bare.options,
    )
    granted = _grant(kind, ISSUE if kind == "issue" else PULL, command=bare, config=config)
    assert granted == _grant(kind, ISSUE if kind == "issue" else PULL, command=command, config=config)


def test_a_command_with_a_verb_stays_what_it_is() -> None:
    command = Undo()
    assert resolve_command(command, kind="pull", config=RepoConfig()) is command


def test_a_word_that_the_repository_does_not_take_is_passed_over() -> None:
    config = RepoConfig(triggers=("@helper",))
    refusal = _refusal("issue", ISSUE, config=config)
    assert (refusal.cause, refusal.silent) == ("trigger", True)
    job = replace(a_job(), trigger="@Helper")
    assert isinstance(grant_for(a_request_for(job, facts=ISSUE, config=config)), Grant)


def test_what_the_configuration_protects_reaches_who_publishes() -> None:
    assert _grant("issue", ISSUE, config=RepoConfig(protected=("infra/**",))).protected == ("infra/**",)


def test_a_dry_run_is_told_to_who_publishes() -> None:
    assert _grant("issue", ISSUE, command=Fix(options=Options(dry_run=True))).dry_run
    assert not _grant("issue", ISSUE).dry_run


def test_the_caps_hold_for_work_and_not_for_words() -> None:
    busy = Tally(thread=10)
    assert _refusal("issue", ISSUE, tally=busy).cause == "cap-thread"
    assert _refusal("pull", PULL, tally=busy, command=Undo()).cause == "cap-thread"
    _grant("issue", ISSUE, tally=busy, command=Help())


def _approval(job: Job, **changes: Any) -> Refusal | None:  # noqa: ANN401 - as above
    usual: dict[str, Any] = {
        "approver": Actor(id=40, login="rita"),
        "role": "write",
        "facts": PULL,
        "author_id": 3,
        "bound_to_sha": PULL.head_sha,
    }
    return approver_refusal(job, **{**usual, **changes})


def test_who_may_write_approves() -> None:
    assert _approval(a_job(kind="pull")) is None
    assert _approval(a_job(kind="pull"), approver=Actor(id=20, login="hubot-owner")) is None, (
        "one's own wish, in one's own repo"
    )


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"role": "triage"}, "no-write-access"),
        ({"approver": Actor(id=9, login="helper[bot]")}, "bot-approval"),
        ({"trusted_bots": TrustedBots(ids=frozenset({40}))}, "bot-approval"),
        ({"facts": FORK, "author_id": 40}, "own-fork"),
        ({"facts": FORK, "author_id": None}, "own-fork"),
        ({"bound_to_sha": "b" * 40}, "moved-head"),
        ({"facts": replace(PULL, locked=True)}, "locked"),
        ({"facts": replace(PULL, repo=ARCHIVED)}, "archived"),
        ({"facts": replace(PULL, is_open=False)}, "closed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_approval_does_not_count(changes: dict[str, Any], cause: str) -> None:
    refusal = _approval(a_job(kind="pull"), **changes)
    assert refusal is not None
    assert refusal.cause == cause


@pytest.mark.parametrize(
    ("sandbox", "network", "wanted", "decided"),
    [
        ("bubblewrap", Network(), None, Permitted),
        ("bubblewrap", Network.of("pypi.org"), None, NeedsApproval),
        ("bubblewrap", Network.of("pypi.org"), ("off",), Permitted),
        ("bubblewrap", Network(), ("pypi.org",), Permitted),
        ("none", Network(), None, NeedsApproval),
    ],
)
def test_a_command_is_asked_about_by_what_the_run_can_reach(
    sandbox: str, network: Network, wanted: tuple[str, ...] | None, decided: type
) -> None:
    bounds = Bounds(limits=LIMITS, sandbox=sandbox, network=network)
    grant = _grant("issue", ISSUE, bounds=bounds, config=RepoConfig(network=wanted))
    assert type(grant.policy.decide(CallFacts(tool="execute", command="python3 -c 'import calc'"))) is decided


CAPS = Caps(thread=2, user=3, repository=4, installation=5, unattended=1)
CAPPED = Bounds(limits=RunLimits(), caps=CAPS, trusted_bots=TrustedBots(ids=frozenset({77})))


def _from(kind: OriginKind) -> Job:
    job = a_job()
    return replace(job, origin=replace(job.origin, kind=kind))


@pytest.mark.parametrize("scope", ["thread", "user", "repository", "installation"])
def test_the_last_one_under_a_cap_is_done_and_the_next_is_refused(scope: str) -> None:
    most = getattr(CAPS, scope)
    assert cap_refusal(a_request_for(a_job(), bounds=CAPPED, tally=replace(Tally(), **{scope: most - 1}))) is None
    refusal = cap_refusal(a_request_for(a_job(), bounds=CAPPED, tally=replace(Tally(), **{scope: most})))
    assert refusal is not None
    assert refusal.cause == f"cap-{scope}"
    assert f"the limit is {most}" in refusal.reason
    assert f"`CODEPILOT_CAPS={scope}=…`" in refusal.reason


def test_a_person_is_worked_for_however_often_machines_asked() -> None:
    assert cap_refusal(a_request_for(a_job(), bounds=CAPPED, tally=Tally(unattended=9))) is None


@pytest.mark.parametrize(
    "job",
    [
        _from("ci"),
        replace(a_job(), actor=Actor(id=77, login="dependabot[bot]")),
        replace(a_job(), actor=Actor(id=77, login="plain-name")),
        replace(a_job(), actor=Actor(id=1, login="stranger[bot]")),
    ],
    ids=["ci", "trusted bot", "trusted account", "any bot"],
)
def test_after_so_many_runs_without_a_person_machines_are_refused(job: Job) -> None:
    assert is_unattended(job, CAPPED.trusted_bots)
    assert cap_refusal(a_request_for(job, bounds=CAPPED)) is None
    refusal = cap_refusal(a_request_for(job, bounds=CAPPED, tally=Tally(unattended=1)))
    assert refusal is not None
    assert refusal.cause == "breaker"
    assert "A person with write access" in refusal.reason


@pytest.mark.parametrize("kind", ["comment", "review_comment", "review", "label", "assignment", "button"])
def test_what_a_person_does_is_attended(kind: OriginKind) -> None:
    assert not is_unattended(_from(kind), CAPPED.trusted_bots)


def test_when_checks_fail_nobody_asks_and_no_users_hour_is_counted() -> None:
    assert cap_refusal(a_request_for(_from("ci"), bounds=CAPPED, tally=Tally(user=9))) is None


def test_on_a_branch_alone_machines_are_counted_by_the_hour_only() -> None:
    job = replace(_from("ci"), thread=Thread.of_branch("main"))
    assert cap_refusal(a_request_for(job, bounds=CAPPED, tally=Tally(unattended=9))) is None
    refusal = cap_refusal(a_request_for(job, bounds=CAPPED, tally=Tally(thread=2)))
    assert refusal is not None
    assert refusal.cause == "cap-thread"


OPERATORS = Bounds(
    limits=RunLimits(max_steps=30, max_cost_usd=5, max_seconds=99), model="usual", models=("big", "small")
)
REPOSITORYS = RepoConfig(
    model="small", budget_usd=2, max_steps=20, verbs=VerbsKeys(plan=Overrides(model="big", max_steps=7))
)


def _settled(
    options: Options, *, verb: str = "fix", config: RepoConfig = REPOSITORYS, bounds: Bounds = OPERATORS
) -> EffectiveOptions:
    made = resolve_options(verb, options, config, bounds)
    assert isinstance(made, EffectiveOptions)
    return made


@pytest.mark.parametrize(
    ("verb", "options", "config", "model", "bounds"),
    [
        ("fix", Options(), RepoConfig(), "usual", (5, 30)),
        ("fix", Options(), REPOSITORYS, "small", (2, 20)),
        ("plan", Options(), REPOSITORYS, "big", (2, 7)),
        ("plan", Options(model="usual", budget_usd=4.5, max_steps=29), REPOSITORYS, "usual", (4.5, 29)),
    ],
)
def test_the_nearest_word_counts(
    verb: str, options: Options, config: RepoConfig, model: str, bounds: tuple[float, int]
) -> None:
    made = _settled(options, verb=verb, config=config)
    assert (made.model, (made.limits.max_cost_usd, made.limits.max_steps)) == (model, bounds)
    assert made.limits.max_seconds == 99
    assert made.notes == ()


@pytest.mark.parametrize(
    ("options", "config"),
    [(Options(budget_usd=50, max_steps=500), RepoConfig()), (Options(), RepoConfig(budget_usd=50, max_steps=500))],
    ids=["command", "configuration"],
)
def test_nothing_goes_over_the_operators_bounds_and_the_cut_is_told(options: Options, config: RepoConfig) -> None:
    made = _settled(options, config=config)
    assert (made.limits.max_cost_usd, made.limits.max_steps) == (5, 30)
    assert made.notes == (
        "A budget of 50.00 USD exceeds the operator's limit; it was reduced to 5.00 USD.",
        "500 steps exceed the operator's limit; they were reduced to 30.",
    )


def test_where_the_operator_sets_no_bound_a_budget_still_holds() -> None:
    unbound = Bounds(limits=RunLimits(max_cost_usd=None), model="usual")
    assert _settled(Options(budget_usd=50), config=RepoConfig(), bounds=unbound).limits.max_cost_usd == 50
    assert _settled(Options(), config=RepoConfig(), bounds=unbound).limits.max_cost_usd is None


def test_a_model_that_is_not_offered_is_refused_with_those_that_are() -> None:
    refusal = resolve_options("fix", Options(model="huge"), REPOSITORYS, OPERATORS)
    assert isinstance(refusal, Refusal)
    assert refusal.cause == "model"
    assert all(f"`{name}`" in refusal.reason for name in ("huge", "usual", "big", "small"))


def test_a_model_that_the_configuration_may_not_name_is_left_out_and_told() -> None:
    made = _settled(Options(), config=RepoConfig(model="huge"))
    assert made.model == "usual"
    assert "names the model `huge`, which is not offered here; I used `usual`." in made.notes[0]


def test_candidates_are_bounded_by_the_operator_and_the_repository_and_are_for_fixes_only() -> None:
    assert _settled(Options()).candidates == 1
    assert _settled(Options(candidates=3)).candidates == 3
    made = _settled(Options(candidates=4), config=RepoConfig(max_candidates=2))
    assert (made.candidates, made.notes) == (2, ("4 candidates exceed the limit here; they were reduced to 2.",))
    assert _settled(Options(candidates=4), config=RepoConfig(max_candidates=8)).candidates == 3
    made = _settled(Options(candidates=2), verb="ask")
    assert (made.candidates, made.notes) == (1, ("`--candidates` has no effect on `ask`.",))
