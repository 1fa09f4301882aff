"""The model and the bounds of one run: command, then configuration, then operator, and never over the operator's."""

from __future__ import annotations

import pytest

from agent_runtime import RunLimits
from bot.domain.access import Bounds
from bot.domain.commands import Options
from bot.permissions.levels import Refusal
from bot.permissions.permissions import EffectiveOptions, settled
from bot.permissions.repo_config import Overrides, RepoConfig, VerbsKeys

BOUNDS = Bounds(limits=RunLimits(max_steps=30, max_cost_usd=5, max_seconds=99), model="usual", models=("big", "small"))
CONFIG = RepoConfig(
    model="small", budget_usd=2, max_steps=20, verbs=VerbsKeys(plan=Overrides(model="big", max_steps=7))
)


def _settled(
    options: Options, *, verb: str = "fix", config: RepoConfig = CONFIG, bounds: Bounds = BOUNDS
) -> EffectiveOptions:
    made = settled(verb, options, config, bounds)
    assert isinstance(made, EffectiveOptions)
    return made


@pytest.mark.parametrize(
    ("verb", "options", "config", "model", "bounds"),
    [
        ("fix", Options(), RepoConfig(), "usual", (5, 30)),
        ("fix", Options(), CONFIG, "small", (2, 20)),
        ("plan", Options(), CONFIG, "big", (2, 7)),
        ("plan", Options(model="usual", budget_usd=4.5, max_steps=29), CONFIG, "usual", (4.5, 29)),
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
    refusal = settled("fix", Options(model="huge"), CONFIG, BOUNDS)
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
