"""Options, abilities and prices of models: `FAMILIES` and `prices.json`. For a new model, extend both."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from agent_runtime.core.errors import SettingsError, did_you_mean
from agent_runtime.core.values import Image, Usage
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.retry import RetryPolicy

if TYPE_CHECKING:
    from anthropic.types import OutputConfigParam, ThinkingConfigParam


OpenAIApi = Literal["responses", "chat"]

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_MIN_BUDGET = 1024
"""Anthropic's minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Extended reasoning for `anthropic`; `budget_tokens` is part of `max_tokens`, and ignored after Claude 4.5."""

    enabled: bool = True
    budget_tokens: int = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Settings of all providers; a service gets only those it supports.

    Attributes:
        max_tokens: per reply with reasoning.
        temperature: None for the service's default; most reasoning models accept no other.
        silence: read timeout in seconds; None for 15 minutes if the model may think, else 5.
        api: of `openai`; by default `responses`, or `chat` with `base_url`.
        cache_key: of `openai`; routes requests with a common prefix to one cache.
        reasoning_effort: `none` and `minimal` for `openai` only.
        key_variable, model_setting, url_setting: names for errors.
        cloud: of `bedrock`, `vertex` and `azure`, by their SDKs' variables.
        images: None to decide by the model's name.
    """

    max_tokens: int = 16_000
    temperature: float | None = None
    silence: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    api: OpenAIApi | None = None
    cache_key: str | None = None
    thinking: Thinking | None = None
    reasoning_effort: ReasoningEffort | None = None
    script: Path | None = None
    script_text: str | None = field(default=None, repr=False)
    key_variable: str | None = None
    model_setting: str = "`model`"
    url_setting: str = "`base_url`"
    cloud: Mapping[str, str] = field(default_factory=dict, repr=False)
    images: bool | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise SettingsError(f"max_tokens is {self.max_tokens}; it must be at least 1 (16000 is a good value).")
        if self.temperature is not None and not 0 <= self.temperature <= 2:  # noqa: PLR2004 - the APIs' own range
            raise SettingsError(f"temperature is {self.temperature}; it must be between 0 and 2, or not set.")
        if self.silence is not None and self.silence <= 0:
            raise SettingsError(f"silence is {self.silence}; it must be a positive number of seconds.")
        if self.reasoning_effort is not None and self.reasoning_effort not in get_args(ReasoningEffort):
            hint = did_you_mean(str(self.reasoning_effort), get_args(ReasoningEffort))
            raise SettingsError(f"There is no reasoning_effort {self.reasoning_effort!r}. {hint}")
        if self.thinking is not None and self.thinking.enabled:
            budget = self.thinking.budget_tokens
            if not _MIN_BUDGET <= budget < self.max_tokens:
                raise SettingsError(
                    f"thinking.budget_tokens is {budget}; it must be at least {_MIN_BUDGET} and less than "
                    f"max_tokens, which is {self.max_tokens} and holds the thinking as well as the answer."
                )


ThinkingStyle = Literal["never", "budget", "adaptive", "default", "between_tools", "always", "unknown"]
"""Thinking behaviour of a model and its request parameter:

- `never`
- `budget`: only with a budget in the request
- `adaptive`: only on request, of any length
- `default`: unless disabled
- `between_tools`: by default; if disabled, still between tool calls
- `always`
- `unknown`, e.g. a compatible server: possibly, within a budget

https://platform.claude.com/docs/en/build-with-claude/thinking. Claude 4.6 to 4.8 accept a budget; later ones refuse it.
"""

_THINKING_BY_DEFAULT = frozenset({"default", "between_tools", "always"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Models with the same abilities; `names` is a pattern for `normalize_name`."""

    names: str = ""
    images: bool = False
    thinking: ThinkingStyle = "unknown"
    max_tokens: int | None = None
    prefers_tools: bool = False


FAMILIES = (
    # Anthropic: https://platform.claude.com/docs/en/about-claude/models/overview and its older versions.
    ModelFamily(names=r"claude-3-(?:opus|sonnet|haiku).*", images=True, thinking="budget", max_tokens=4_096),
    ModelFamily(names=r"claude-3-5-.*", images=True, thinking="budget", max_tokens=8_192),
    ModelFamily(names=r"claude-3-7-.*", images=True, thinking="budget", max_tokens=64_000),
    ModelFamily(names=r"claude-opus-4(?:-[01])?(?:-\d{8})?", images=True, thinking="budget", max_tokens=32_000),
    ModelFamily(names=r"claude-sonnet-4(?:-0)?(?:-\d{8})?", images=True, thinking="budget", max_tokens=64_000),
    ModelFamily(names=r"claude-(?:opus|sonnet|haiku)-4-5(?:-.*)?", images=True, thinking="budget", max_tokens=64_000),
    ModelFamily(names=r"claude-[a-z]+-4-(?:[6-9]|\d\d)(?:-.*)?", images=True, thinking="adaptive"),
    ModelFamily(names=r"claude-instant-.*"),
    ModelFamily(names=r"claude-3-.*|claude-[a-z]+-[1-4](?:-.*)?", images=True, thinking="budget"),
    ModelFamily(names=r"claude-(?:fable|mythos)-\d.*", images=True, thinking="always"),
    ModelFamily(names=r"claude-opus-(?:5-(?:[5-9]|\d\d)(?:-.*)?|[6-9].*|\d\d.*)", images=True, thinking="always"),
    ModelFamily(
        names=r"claude-sonnet-(?:5-(?:[5-9]|\d\d)(?:-.*)?|[6-9].*|\d\d.*)", images=True, thinking="between_tools"
    ),
    ModelFamily(names=r"claude-[a-z]+-\d.*", images=True, thinking="default"),
    # OpenAI: https://developers.openai.com/api/docs/models. Codex is made for an agent with tool calls.
    ModelFamily(names=r"gpt-4-turbo.*|gpt-4o-2024-05-13", images=True, thinking="never", max_tokens=4_096),
    ModelFamily(names=r"gpt-4-.*preview|gpt-3\.5-turbo.*", thinking="never", max_tokens=4_096),
    ModelFamily(names=r"gpt-4(?:-0613)?", thinking="never", max_tokens=8_192),
    ModelFamily(
        names=r"(?:chat)?gpt-4o.*-(?:audio|realtime|search|transcribe|tts).*", thinking="never", max_tokens=16_384
    ),
    ModelFamily(names=r"(?:chat)?gpt-4o.*", images=True, thinking="never", max_tokens=16_384),
    ModelFamily(names=r"gpt-4\.1.*", images=True, thinking="never", max_tokens=32_768),
    ModelFamily(names=r"gpt-4\.\d.*", images=True, thinking="never"),
    ModelFamily(names=r"gpt-[34].*", thinking="never"),
    ModelFamily(names=r"gpt-[\d.]+-codex-(?:spark|search).*|codex-.+", prefers_tools=True),
    ModelFamily(names=r"gpt-[\d.]+-codex(?:-.+)?", images=True, prefers_tools=True),
    ModelFamily(names=r"gpt-(?:[5-9]|\d\d)(?!.*-(?:spark|search)).*", images=True),
    ModelFamily(names=r"o1(?!-mini|-preview).*|o3(?!-mini).*|o4-mini.*", images=True),
    # Alibaba, where the largest of a generation reads text only: https://www.alibabacloud.com/help/en/model-studio/models,
    # …/vision and …/qwen-coder.
    ModelFamily(names=r"qwen-vl-max.*", images=True, max_tokens=8_192),
    ModelFamily(names=r"qwen-max.*", thinking="never", max_tokens=8_192),
    ModelFamily(names=r"qwen2[\d.]*-coder-.+", thinking="never", prefers_tools=True),
    ModelFamily(names=r"qwen2[\d.]*-vl-.+", images=True, thinking="never"),
    ModelFamily(names=r"qwen2.*|qwen-(?:turbo|plus|long).*", thinking="never"),
    ModelFamily(names=r"qwen[\d.]*-coder-.+", prefers_tools=True),
    ModelFamily(names=r"qwen[\d.]*-vl-.+|qvq-.+|qwen3\.[56]-(?:plus|flash).*|qwen3\.7-plus.*", images=True),
)
"""Abilities of models, first match wins; collected in October and November 2026."""

_UNKNOWN = ModelFamily()


@cache
def find_family(model: str) -> ModelFamily:
    name = normalize_name(model)
    return next((family for family in FAMILIES if re.fullmatch(family.names, name)), _UNKNOWN)


_BEDROCK_NAME = re.compile(r"(?:[a-z-]+\.)?anthropic\.(claude-.+?)(?:-v\d+(?::\d+)?)?")
"""Amazon adds region, maker and version."""


def normalize_name(model: str) -> str:
    """Return the maker's name of a model in lower case, without a gateway's prefix or Google's `@version`."""
    name = model.lower().rpartition("/")[2]
    match = _BEDROCK_NAME.fullmatch(name)
    return (match[1] if match else name).replace("@", "-")


def accepts_images(model: str, override: bool | None = None) -> bool:  # noqa: FBT001 - `ModelOptions.images`, unchanged
    return find_family(model).images if override is None else override


def require_image_support(provider: Provider, images: Collection[Image]) -> None:
    if images and not provider.sees_images:
        raise SettingsError(
            f"The task has {len(images)} image{'s' if len(images) > 1 else ''}, and the model {provider.model!r} is "
            "not known to support images. Choose another one, or, if it does support them, set `images: true` below "
            "`model` (and each `fallback`) in the agent file, ModelOptions(images=True) in code. Or omit the images."
        )


def thinks_by_default(model: str) -> bool:
    """Return whether a model may think without a parameter."""
    return find_family(model).thinking in {*_THINKING_BY_DEFAULT, "unknown"}


def cap_max_tokens(options: ModelOptions, model: str) -> ModelOptions:
    """Cap `max_tokens` to the model's limit.

    Raises:
        SettingsError: the thinking budget no longer fits.
    """
    limit = find_family(model).max_tokens
    return options if limit is None or options.max_tokens <= limit else replace(options, max_tokens=limit)


def thinking_param(model: str, thinking: Thinking) -> ThinkingConfigParam | None:
    """Return Anthropic's parameter `thinking`, or None."""
    style = find_family(model).thinking
    if thinking.enabled:
        if style == "adaptive" or style in _THINKING_BY_DEFAULT:
            return {"type": "adaptive"}
        return {"type": "enabled", "budget_tokens": thinking.budget_tokens}
    match style:
        case "always":
            raise SettingsError(
                f"Model {model!r} always thinks, so `thinking` cannot be disabled. Remove `thinking` and set "
                f"`reasoning_effort` to 'low', or choose another model."
            )
        case "between_tools":
            return {"type": "between_tools"}
        case "default":
            return {"type": "disabled"}
        case _:
            return None


def accepts_temperature(model: str, thinking: Thinking | None) -> bool:
    """Return whether `temperature` may be sent; Anthropic refuses it with thinking."""
    return not (thinking is not None and thinking.enabled) and find_family(model).thinking not in _THINKING_BY_DEFAULT


def effort_param(effort: ReasoningEffort) -> OutputConfigParam:
    """Return Anthropic's parameter `output_config`."""
    if effort == "none" or effort == "minimal":  # noqa: PLR1714 - mypy narrows by ==, not by a set
        raise SettingsError(
            f"reasoning_effort {effort!r} is unknown to Anthropic; use low, medium, high, xhigh or max there, "
            f"or disable `thinking`."
        )
    return {"effort": effort}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """US dollars per million tokens."""

    input: float
    cache_read: float
    cache_write: float
    output: float

    def cost(self, usage: Usage) -> float:
        return (
            self.input * usage.input_tokens
            + self.cache_read * usage.cached_tokens
            + self.cache_write * usage.cache_write_tokens
            + self.output * usage.output_tokens
        ) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A model's price; `long_rate` applies to a request above `long_above` sent tokens, cached ones included."""

    rate: Rate
    long_above: int = 0
    long_rate: Rate | None = None

    def cost(self, usage: Usage) -> float:
        """Return the cost of a single request; sums would select the wrong rate."""
        input_tokens = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
        rate = self.rate if self.long_rate is None or input_tokens <= self.long_above else self.long_rate
        return rate.cost(usage)


_MILLION = 1_000_000

_SNAPSHOT_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""Date suffix of a snapshot, which costs the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    as_of: date
    models: Mapping[str, Price]

    def find_price(self, model: str) -> Price | None:
        """Return the price of a model or of its dated snapshot."""
        return self.models.get(model) or self.models.get(_SNAPSHOT_DATE.sub("", normalize_name(model)))

    def with_cost(self, model: str, usage: Usage) -> Usage:
        price = self.find_price(model)
        return replace(usage, cost_usd=None if price is None else price.cost(usage))


_PRICES_FILE = Path(__file__).with_name("prices.json")


@cache
def load_prices(path: Path = _PRICES_FILE) -> PriceList:
    """Read a price list, by default the library's."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        models = {name: _parse_price(entry) for name, entry in data["models"].items()}
        return PriceList(as_of=date.fromisoformat(data["as_of"]), models=models)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"The price list {path} cannot be used ({error!r}); compare it with prices.json."
        ) from error


def _parse_price(entry: dict[str, Any]) -> Price:
    long = entry.get("long")
    if long is None:
        return Price(rate=_parse_rate(entry))
    return Price(rate=_parse_rate(entry), long_above=int(long["above"]), long_rate=_parse_rate(long))


def _parse_rate(entry: dict[str, Any]) -> Rate:
    return Rate(
        input=float(entry["input"]),
        cache_read=float(entry["cache_read"]),
        cache_write=float(entry["cache_write"]),
        output=float(entry["output"]),
    )
