"""Prices of tokens, from `prices.json`, which has their date; a model that is not listed has no known cost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.model_names import plain_name

_MILLION = 1_000_000
_SNAPSHOT = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""How both companies mark a dated snapshot of a model; it costs what the undated name costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """US dollars per million tokens of each kind."""

    input: float
    cache_read: float
    cache_write: float
    output: float

    def cost(self, usage: Usage) -> float:
        """US dollars for `usage`."""
        return (
            self.input * usage.input_tokens
            + self.cache_read * usage.cached_tokens
            + self.cache_write * usage.cache_write_tokens
            + self.output * usage.output_tokens
        ) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A model's price.

    Attributes:
        rate: for ordinary requests.
        long_above: tokens sent, cached ones included, above which `long_rate` holds for the whole request.
        long_rate: for long requests; None when length makes no difference.
    """

    rate: Rate
    long_above: int = 0
    long_rate: Rate | None = None

    def cost(self, usage: Usage) -> float:
        """US dollars for one request; a sum of requests would be judged by the wrong length."""
        sent = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
        rate = self.rate if self.long_rate is None or sent <= self.long_above else self.long_rate
        return rate.cost(usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices by model name, and the day on which they were read."""

    as_of: date
    models: Mapping[str, Price]

    def price(self, model: str) -> Price | None:
        """The price of a model or of its dated snapshot; never that of one with a merely similar name."""
        return self.models.get(model) or self.models.get(_SNAPSHOT.sub("", plain_name(model)))

    def priced(self, model: str, usage: Usage) -> Usage:
        """One request's usage with its cost; None for a model whose price is not known."""
        price = self.price(model)
        return replace(usage, cost_usd=None if price is None else price.cost(usage))


_SHIPPED = Path(__file__).with_name("prices.json")


@cache
def load_prices(path: Path = _SHIPPED) -> PriceList:
    """Read a price list; the one that ships with the library unless another is named.

    Raises:
        SettingsError: the file cannot be read or does not have the shape of `prices.json`.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        models = {name: _price(entry) for name, entry in data["models"].items()}
        return PriceList(as_of=date.fromisoformat(data["as_of"]), models=models)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"The price list {path} cannot be used ({error!r}); compare it with prices.json."
        ) from error


def _price(entry: dict[str, Any]) -> Price:
    long = entry.get("long")
    if long is None:
        return Price(rate=_rate(entry))
    return Price(rate=_rate(entry), long_above=int(long["above"]), long_rate=_rate(long))


def _rate(entry: dict[str, Any]) -> Rate:
    return Rate(
        input=float(entry["input"]),
        cache_read=float(entry["cache_read"]),
        cache_write=float(entry["cache_write"]),
        output=float(entry["output"]),
    )
