from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.context.conversation import Candidate, Prospect, RequestForecast, plan
from agent_runtime.core.events import Recorded, Shrunk
from tests.agent_runtime.context.logs import replied, started


def prospect(
    total: int, cached: int, requests: int, *, read: float = 0.1, write: float = 1.25, growth: int = 0
) -> Prospect:
    return Prospect(total=total, cached=cached, requests=requests, read=read, write=write, growth=growth)


def output(position: int, *, before: int, saves: int, again: float = 0.0) -> Candidate:
    return Candidate(before=before, saves=saves, again=again, output=position)


@pytest.mark.parametrize(
    ("before", "saves", "at", "shrinks"),
    [
        # D removed with S behind them pay after S*(write - read)/(D*read) more requests:
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 14), False, id="10,000 behind: 14.4 requests are needed"),
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 15), True, id="10,000 behind: 15 are more than that"),
        pytest.param(2_000, 8_000, prospect(20_000, 0, 1), True, id="a cold cache loses nothing"),
        pytest.param(11_500, 8_000, prospect(20_000, 20_000, 1), True, id="little behind it"),
        pytest.param(2_000, 100, prospect(20_000, 20_000, 30), False, id="little to save"),
        pytest.param(12_000, 8_000, prospect(20_000, 12_000, 1), True, id="behind what is cached"),
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 14, read=0.05), False, id="reads cost next to nothing"),
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 1, read=1, write=1), True, id="no cache at all"),
        pytest.param(2_000, -10, prospect(20_000, 0, 30), False, id="longer than what it replaces"),
    ],
)
def test_one_candidate(before: int, saves: int, at: Prospect, *, shrinks: bool) -> None:
    assert (plan([output(7, before=before, saves=saves)], at) is not None) is shrinks


def test_what_will_be_asked_for_again_is_kept_for_longer() -> None:
    at = prospect(20_000, 20_000, 15)
    assert plan([output(7, before=2_000, saves=8_000, again=0.5)], at) is None
    assert plan([output(7, before=2_000, saves=8_000, again=0.5)], prospect(20_000, 20_000, 60)) is not None


@pytest.mark.parametrize(
    ("growth", "shrinks"),
    [(0, True), (100, True), (1_000, False), pytest.param(4_000, False, id="two steps later there is as much again")],
)
def test_it_foresees_that_as_much_piles_up_again(growth: int, *, shrinks: bool) -> None:
    shrunk = plan([output(7, before=2_000, saves=8_000)], prospect(20_000, 20_000, 60, growth=growth))
    assert (shrunk is not None) is shrinks


def test_a_cold_cache_lets_go_however_fast_it_piles_up_again() -> None:
    assert plan([output(7, before=2_000, saves=8_000)], prospect(20_000, 0, 60, growth=50_000)) is not None


def test_what_stands_behind_the_change_goes_with_it() -> None:
    small = output(9, before=15_000, saves=300)
    at = prospect(20_000, 20_000, 15)
    assert plan([small], at) is None
    shrunk = plan([small, output(7, before=2_000, saves=8_000)], at)
    assert shrunk is not None
    assert shrunk.outputs == (7, 9)
    assert "8,300 tokens less" in shrunk.reason


def test_what_stands_far_in_front_waits() -> None:
    early = Candidate(before=500, saves=300, task=1)
    shrunk = plan([early, output(9, before=100_000, saves=9_000)], prospect(112_000, 112_000, 10))
    assert shrunk is not None
    assert (shrunk.tasks, shrunk.outputs) == ((), (9,))


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Candidate], Prospect]:
    """A request made of stretches, some of which could go."""
    stretches = draw(st.lists(st.tuples(st.integers(1, 20_000), st.integers(-50, 20_000)), max_size=12))
    candidates, before = [], 1_000
    for number, (kept, saves) in enumerate(stretches):
        again = draw(st.floats(0, 1))
        candidates.append(Candidate(before=before, saves=saves, again=again, output=number))
        before += kept + max(0, saves)
    write = draw(st.floats(1, 2))
    at = prospect(
        before, draw(st.integers(0, before)), draw(st.integers(1, 60)), read=draw(st.floats(0.01, 1)), write=write
    )
    return draw(st.permutations(candidates)), at


def cost_of(chosen: list[Candidate], at: Prospect) -> float:
    """The cost by the model, written anew: tokens of this request by where they stand, then those to come."""
    first = min((each.before for each in chosen), default=at.total)
    removed = sum(each.saves for each in chosen)
    warm = min(at.cached, first)
    this = warm * at.read + (at.total - removed - warm) * at.write
    later = (at.requests - 1) * (at.total - removed) * at.read
    return this + later + sum(each.again * each.saves * at.write for each in chosen)


def chosen_by(shrunk: Shrunk, candidates: list[Candidate]) -> list[Candidate]:
    return [each for each in candidates if each.output in shrunk.outputs]


@given(situations())
def test_it_never_shrinks_when_that_costs_more(situation: tuple[list[Candidate], Prospect]) -> None:
    candidates, at = situation
    shrunk = plan(candidates, at)
    if shrunk is not None:
        assert shrunk.outputs
        assert cost_of(chosen_by(shrunk, candidates), at) < cost_of([], at) + 1e-6


@given(situations())
def test_no_single_change_and_no_other_batch_from_one_place_on_is_cheaper(
    situation: tuple[list[Candidate], Prospect],
) -> None:
    candidates, at = situation
    shrunk = plan(candidates, at)
    best = cost_of(chosen_by(shrunk, candidates) if shrunk else [], at)
    useful = [each for each in candidates if each.saves > 0]
    for place in useful:
        batch = [each for each in useful if each.before >= place.before]
        assert best <= cost_of([place], at) + 1e-6
        assert best <= cost_of(batch, at) + 1e-6


@given(situations())
def test_a_cold_cache_lets_everything_go_that_is_not_sure_to_come_back(
    situation: tuple[list[Candidate], Prospect],
) -> None:
    candidates, at = situation
    cold = prospect(at.total, 0, at.requests, read=at.read, write=at.write)
    shrunk = plan(candidates, cold)
    free = {each.output for each in candidates if each.saves > 0 and each.again == 0}
    assert free <= set(shrunk.outputs if shrunk else ())


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([], 8, id="nothing is known"),
        pytest.param([0], 8, id="a first run begins"),
        pytest.param([3], 5, id="a first run is under way"),
        pytest.param([12], 12, id="a run that is long is half way through"),
        pytest.param([28], 2, id="the limit is near"),
        pytest.param([40], 1, id="past it"),
        pytest.param([4, 6, 2], 3, id="like the runs before"),
    ],
)
def test_how_many_requests_are_expected(runs: list[int], expected: int) -> None:
    log: list[Recorded] = []
    for count in runs:
        log += [started(), *[replied()] * count]
    pace = RequestForecast()
    for end in range(len(log) + 1):
        pace.update(log[:end])
    assert pace.expected(30) == expected
