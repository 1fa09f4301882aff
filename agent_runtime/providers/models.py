"""Prices of tokens, from `prices.json`, which has their date; a model that is not listed has no known cost."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.values import Image, Usage
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.retry import ModelOptions, ReasoningEffort, Thinking

if TYPE_CHECKING:
    from anthropic.types import OutputConfigParam, ThinkingConfigParam


# ---- Recognise a model behind the names that gateways and clouds give it. Pure.


_BEDROCK = re.compile(r"(?:[a-z-]+\.)?anthropic\.(claude-.+?)(?:-v\d+(?::\d+)?)?")
"""Amazon puts a region and the maker before a name, and its own version behind it."""


def plain_name(model: str) -> str:
    """A model's name as its maker gives it, in lower case.

    A gateway puts the maker before it (`openai/gpt-4o`), Google a version behind it (`claude-opus-5@20260801`).
    """
    name = model.lower().rpartition("/")[2]
    found = _BEDROCK.fullmatch(name)
    return (found[1] if found else name).replace("@", "-")


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


# ---- List the models that accept images. An unknown model accepts none, unless `ModelOptions.images` says so.


_SEEING: tuple[tuple[str, str], ...] = (
    # Anthropic, all since Claude 3: https://platform.claude.com/docs/en/about-claude/models/overview
    ("claude-3-…", r"claude-3-.+"),
    ("claude-opus-4-8", r"claude-(?!instant)[a-z]+-\d.*"),
    # OpenAI, all newer ones unless they are made for less: https://developers.openai.com/api/docs/models
    ("gpt-4o, gpt-4.1", r"(?:chatgpt-|gpt-)4o(?!.*-(?:audio|realtime|search|transcribe|tts)).*|gpt-4(?:\.\d|-turbo).*"),
    ("gpt-5 and later", r"gpt-(?:[5-9]|\d\d)(?!.*-(?:spark|search)).*"),
    ("o1, o3, o4-mini", r"o1(?!-mini|-preview).*|o3(?!-mini).*|o4-mini.*"),
    # Alibaba, where the largest of a generation reads text only: https://www.alibabacloud.com/help/en/model-studio/vision
    ("qwen3-vl-plus", r"qwen[\d.]*-vl-.+|qvq-.+"),
    ("qwen3.7-plus", r"qwen3\.[56]-(?:plus|flash).*|qwen3\.7-plus.*"),
)
"""A name to recognise each family by, and the names of all its models; looked up in October and November 2026."""

_KNOWN = re.compile("|".join(names for _, names in _SEEING))


def sees(model: str, said: bool | None = None) -> bool:  # noqa: FBT001 - `ModelOptions.images`, unchanged
    """Whether a model sees.

    Args:
        model: its name; one that a gateway puts its maker before, e.g. `openai/gpt-6.2-sol`, is the same model.
        said: what the options say of it, which goes before what is known.
    """
    return _KNOWN.fullmatch(plain_name(model)) is not None if said is None else said


def require_sight(provider: Provider, images: Collection[Image]) -> None:
    """Refuse to show images to a model that does not see.

    Raises:
        SettingsError: it does not.
    """
    if images and not provider.sees_images:
        raise SettingsError(
            f"The task has {len(images)} image{'s' if len(images) > 1 else ''}, and the model {provider.model!r} is "
            "not known to support images. Choose another one, or, if it does support them, set `images: true` below "
            "`model` (and each `fallback`) in the agent file, ModelOptions(images=True) in code. Or omit the images."
        )


# ---- Turn the thinking of Anthropic's models on or off. Pure.


_MODEL = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?"
    r"|(?P<old_major>\d)(?:-(?P<old_minor>\d))?-[a-z]+)(?=-|$)"
)
_Version = tuple[int, int]
_ADAPTIVE: _Version = (4, 6)
_THINKS_BY_ITSELF: _Version = (5, 0)
_LATEST: _Version = (5, 5)
_ALWAYS_THINKS = frozenset({"fable", "mythos"})


def thinking_param(model: str, thinking: Thinking) -> ThinkingConfigParam | None:
    """What to send as `thinking`; None to send nothing.

    A name that tells no version, as on a compatible server, gets the budget, which every such server knows.

    Raises:
        SettingsError: thinking is to be off, and the model cannot do without.
    """
    family, version = _version(model)
    if thinking.enabled:
        if version >= _ADAPTIVE:
            return {"type": "adaptive"}
        return {"type": "enabled", "budget_tokens": thinking.budget_tokens}
    if version < _THINKS_BY_ITSELF:
        return None
    if family in _ALWAYS_THINKS or (family == "opus" and version >= _LATEST):
        raise SettingsError(
            f"Model {model!r} always thinks, so `thinking` cannot be disabled. Remove `thinking` and set "
            f"`reasoning_effort` to 'low', or choose another `model`."
        )
    if family == "sonnet" and version >= _LATEST:
        return {"type": "between_tools"}
    return {"type": "disabled"}


def thinks_by_itself(model: str) -> bool:
    """Whether an Anthropic model thinks by default; one whose name contains no version may."""
    _, version = _version(model)
    return version >= _THINKS_BY_ITSELF or version == (0, 0)


def takes_temperature(model: str, thinking: Thinking | None) -> bool:
    """Whether a request may have a `temperature`: not while the model thinks, and not for those that do by default."""
    return not (thinking is not None and thinking.enabled) and _version(model)[1] < _THINKS_BY_ITSELF


def effort_param(effort: ReasoningEffort) -> OutputConfigParam:
    """What to send as `output_config`.

    Raises:
        SettingsError: a word that Anthropic does not know.
    """
    if effort == "none" or effort == "minimal":  # noqa: PLR1714 - mypy narrows by ==, not by a set
        raise SettingsError(
            f"reasoning_effort {effort!r} is unknown to Anthropic; use low, medium, high, xhigh or max there, "
            f"or disable `thinking`."
        )
    return {"effort": effort}


def _version(model: str) -> tuple[str, _Version]:
    """Family and version by a model's name; (0, 0) where it tells none."""
    match = _MODEL.match(plain_name(model))
    if match is None:
        return "", (0, 0)
    major, minor = match["major"] or match["old_major"], match["minor"] or match["old_minor"]
    return match["family"] or "", (int(major), int(minor or 0))


# ---- Bound `max_tokens` by what a model can write: a service refuses a request that asks for more.


_BOUNDS = (
    # https://developers.openai.com/api/docs/models, one page a model
    (r"gpt-4-turbo.*|gpt-4-.*preview|gpt-3\.5-turbo.*|gpt-4o-2024-05-13", 4_096),
    (r"gpt-4(?:-0613)?", 8_192),
    (r"(?:chatgpt-|gpt-)4o.*", 16_384),
    (r"gpt-4\.1.*", 32_768),
    # https://platform.claude.com/docs/en/about-claude/models/overview and its older versions
    (r"claude-3-(?:opus|sonnet|haiku).*", 4_096),
    (r"claude-3-5-.*", 8_192),
    (r"claude-opus-4(?:-[01])?(?:-\d{8})?", 32_000),
    (r"claude-3-7-.*|claude-sonnet-4(?:-0)?(?:-\d{8})?|claude-(?:opus|sonnet|haiku)-4-5.*", 64_000),
    # https://www.alibabacloud.com/help/en/model-studio/models
    (r"qwen-max.*|qwen-vl-max.*", 8_192),
)
"""Names of models, and the tokens of their longest reply; looked up in November 2026. Only what is known is bounded."""


def bounded(options: ModelOptions, model: str) -> ModelOptions:
    """The options with a `max_tokens` that the model takes.

    Args:
        options: as the caller gave them.
        model: its name; one that a gateway puts its maker before, e.g. `openai/gpt-4o`, is the same model.

    Raises:
        SettingsError: it cannot think for as long as the options say.
    """
    name = plain_name(model)
    most = next((tokens for names, tokens in _BOUNDS if re.fullmatch(names, name)), options.max_tokens)
    return options if options.max_tokens <= most else replace(options, max_tokens=most)


# ---- List the models that are asked by native tool calls unless something else is said. All others get control
# blocks.


_PREFERRING = (
    # OpenAI's models for its own coding agent, which works by tool calls: https://developers.openai.com/api/docs/models
    r"gpt-[\d.]+-codex(?:-.+)?|codex-.+",
    # Alibaba's models for coding agents, likewise: https://www.alibabacloud.com/help/en/model-studio/qwen-coder
    r"qwen[\d.]*-coder-.+",
)
"""The names of each family's models; looked up in November 2026."""

_KNOWN_TOOL_PREFERENCE = re.compile("|".join(_PREFERRING))


def prefers_tools(model: str) -> bool:
    """Whether a model is asked by native tool calls unless something else is said.

    Args:
        model: its name; one that a gateway puts its maker before is the same model.
    """
    return _KNOWN_TOOL_PREFERENCE.fullmatch(plain_name(model)) is not None
