from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.values import Usage
from agent_runtime.providers.catalog import CATALOG
from agent_runtime.providers.models import load_prices

MILLION = Usage(input_tokens=1_000_000)


def test_the_list_is_dated_and_knows_the_default_models() -> None:
    prices = load_prices()
    assert prices.as_of >= date(2026, 11, 1)
    for name in ("anthropic", "openai"):
        assert prices.price(CATALOG[name].default_model) is not None


def test_reading_from_the_cache_is_cheaper_and_writing_dearer_for_every_model() -> None:
    for price in load_prices().models.values():
        for rate in filter(None, [price.rate, price.long_rate]):
            assert 0 < rate.cache_read < rate.input < rate.cache_write < rate.output
        assert (price.long_rate is None) == (price.long_above == 0)


@pytest.mark.parametrize("model", ["claude-sonnet-5-5-20260928", "gpt-6.2-sol-2026-11-10"])
def test_a_dated_snapshot_costs_what_its_model_costs(model: str) -> None:
    assert load_prices().priced(model, Usage(output_tokens=1_000_000)).cost_usd == 10.0


@pytest.mark.parametrize("model", ["claude-sonnet-5-5-turbo", "gpt-6.2", "gpt-6.2-sol-mini", "claude", "", "llama3"])
def test_a_similar_name_has_no_known_cost(model: str) -> None:
    assert load_prices().priced(model, MILLION).cost_usd is None


def test_a_long_request_is_dearer_as_a_whole() -> None:
    short = Usage(input_tokens=1_000, cached_tokens=271_000, output_tokens=1_000)
    long = Usage(input_tokens=1_001, cached_tokens=271_000, output_tokens=1_000)
    prices = load_prices()
    assert prices.priced("gpt-6.2-sol", short).cost_usd == pytest.approx((1_000 * 2 + 271_000 * 0.1 + 1_000 * 10) / 1e6)
    assert prices.priced("gpt-6.2-sol", long).cost_usd == pytest.approx((1_001 * 4 + 271_000 * 0.2 + 1_000 * 15) / 1e6)


def test_an_operators_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        '{"as_of": "2026-12-01", "models": {"m": {"input": 3, "cache_read": 1, "cache_write": 2, "output": 4}}}',
        encoding="utf-8",
    )
    assert load_prices(path).priced("m", MILLION).cost_usd == 3.0


@pytest.mark.parametrize("text", ["", "[]", '{"as_of": "2026-12-01", "models": {"m": {"input": 3}}}', '{"models": {}}'])
def test_a_list_of_another_shape_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"broken\.json"):
        load_prices(path)


def test_a_missing_list_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.json"):
        load_prices(tmp_path / "nowhere.json")
