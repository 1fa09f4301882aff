"""Models: the options of asking one, what each can do, and what it costs.

`FAMILIES` is the one table of what models can do: a model belongs to the first family whose pattern is its whole name,
and a model that no family names gets the careful defaults of `ModelFamily`. Prices are in `prices.json`, which has
their date; a model that is not listed there has no known cost. To add a model, add or widen a row, and add its price.
"""

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

_LEAST_BUDGET = 1024
"""Anthropic's own floor for a budget of thinking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Extended reasoning before the answer, for `anthropic`.

    Models up to Claude 4.5 think within a budget; later ones decide themselves how long (`reasoning_effort` guides
    them) and refuse a budget, which is then not sent.

    Attributes:
        enabled: whether to think; False switches thinking off in models that would think by themselves.
        budget_tokens: tokens to think with at most; they count towards `max_tokens`.
    """

    enabled: bool = True
    budget_tokens: int = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Settings that every provider takes; one that a service does not know is not sent to it.

    Attributes:
        max_tokens: longest reply in tokens, reasoning included; less for a model that is known to write less.
        temperature: sampling temperature; None leaves it to the service. Most reasoning models refuse any other.
            `anthropic` is not sent it where the model thinks.
        silence: seconds without a byte from the service after which an attempt counts as broken off; None for what
            suits the model (`agent_runtime.providers.sdk`): 15 minutes where it may think, else 5.
        retry: how often and how soon a failed attempt is tried again.
        api: for `openai`: which of its two APIs to speak. None means `responses` at OpenAI itself and `chat`
            wherever `base_url` points, because Chat Completions is what compatible servers speak.
        cache_key: for `openai`: sends requests that share a long beginning to the same cache, e.g. a session id.
        thinking: for `anthropic`: whether to reason before answering; None leaves it to the model's own default.
        reasoning_effort: how hard to reason, for models that can; None leaves it to the service. `none` and `minimal`
            are words of `openai` only.
        script: for `scripted`: the file to replay.
        script_text: its text, if it has been read already; it is not read again then.
        key_variable: the environment variable that the key came from, for error texts; None for the usual one.
        cloud: for `bedrock`, `vertex` and `azure`: region, project and credentials, by the names of the environment
            variables that their SDKs read.
        images: whether the model sees; None for what is known of it by its name. The models of `llm` say
            it themselves.
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
    cloud: Mapping[str, str] = field(default_factory=dict, repr=False)
    images: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what no service can do.

        Raises:
            SettingsError: a number is out of range; the text names it.
        """
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
            if not _LEAST_BUDGET <= budget < self.max_tokens:
                raise SettingsError(
                    f"thinking.budget_tokens is {budget}; it must be at least {_LEAST_BUDGET} and less than "
                    f"max_tokens, which is {self.max_tokens} and holds the thinking as well as the answer."
                )


ThinkingStyle = Literal["never", "budget", "adaptive", "default", "between_tools", "always", "unknown"]
"""A model's way of thinking, and the words in which a request speaks of it:

- `never`, and `budget`: only when the request names a budget;
- `adaptive`: only when the request says so, for as long as the model likes;
- `default`: unless the request disables it;
- `between_tools`: by default, and when it is disabled still between calls of tools;
- `always`;
- `unknown`, as on a compatible server: perhaps, and within a budget, which every such server knows.

See https://platform.claude.com/docs/en/build-with-claude/thinking and the migration guides of its models. Claude 4.6
to 4.8 would take a budget, too; later ones refuse it with HTTP 400.
"""

_THINKING_BY_DEFAULT = frozenset({"default", "between_tools", "always"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Models that can do the same.

    Attributes:
        names: the pattern of their names as `plain_name` returns them.
        images: whether they accept images.
        thinking: their way of thinking.
        max_tokens: the length of their longest reply, since a service refuses a request for more; None if not known.
        prefers_tools: whether they work better by native tool calls than by control blocks.
    """

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
"""What models can do, the first row that fits; looked up in October and November 2026."""

_UNKNOWN = ModelFamily()


@cache
def family_of(model: str) -> ModelFamily:
    """Return the family of a model; one with the defaults for an unknown name."""
    name = plain_name(model)
    return next((family for family in FAMILIES if re.fullmatch(family.names, name)), _UNKNOWN)


_BEDROCK_NAME = re.compile(r"(?:[a-z-]+\.)?anthropic\.(claude-.+?)(?:-v\d+(?::\d+)?)?")
"""Amazon puts a region and the maker before a name, and its own version behind it."""


def plain_name(model: str) -> str:
    """Return a model's name as its maker gives it, in lower case.

    A gateway puts the maker before it (`openai/gpt-4o`), Google a version behind it (`claude-opus-5@20260801`).
    """
    name = model.lower().rpartition("/")[2]
    match = _BEDROCK_NAME.fullmatch(name)
    return (match[1] if match else name).replace("@", "-")


def accepts_images(model: str, override: bool | None = None) -> bool:  # noqa: FBT001 - `ModelOptions.images`, unchanged
    """Return whether a model accepts images: `ModelOptions.images` if set, else the family's answer."""
    return family_of(model).images if override is None else override


def require_sight(provider: Provider, images: Collection[Image]) -> None:
    """Refuse to show images to a model that accepts none.

    Raises:
        SettingsError: it accepts none.
    """
    if images and not provider.sees_images:
        raise SettingsError(
            f"The task has {len(images)} image{'s' if len(images) > 1 else ''}, and the model {provider.model!r} is "
            "not known to support images. Choose another one, or, if it does support them, set `images: true` below "
            "`model` (and each `fallback`) in the agent file, ModelOptions(images=True) in code. Or omit the images."
        )


def may_think_unasked(model: str) -> bool:
    """Return whether a model may think when the request says nothing of it."""
    return family_of(model).thinking in {*_THINKING_BY_DEFAULT, "unknown"}


def limit_max_tokens(options: ModelOptions, model: str) -> ModelOptions:
    """Return the options with a `max_tokens` that the model takes.

    Raises:
        SettingsError: it cannot think for as long as the options say.
    """
    limit = family_of(model).max_tokens
    return options if limit is None or options.max_tokens <= limit else replace(options, max_tokens=limit)


def thinking_param(model: str, thinking: Thinking) -> ThinkingConfigParam | None:
    """Return Anthropic's parameter `thinking`; None to send nothing.

    Raises:
        SettingsError: thinking is to be off, and the model cannot do without.
    """
    style = family_of(model).thinking
    if thinking.enabled:
        if style == "adaptive" or style in _THINKING_BY_DEFAULT:
            return {"type": "adaptive"}
        return {"type": "enabled", "budget_tokens": thinking.budget_tokens}
    match style:
        case "always":
            raise SettingsError(
                f"Model {model!r} always thinks, so `thinking` cannot be disabled. Remove `thinking` and set "
                f"`reasoning_effort` to 'low', or choose another `model`."
            )
        case "between_tools":
            return {"type": "between_tools"}
        case "default":
            return {"type": "disabled"}
        case _:
            return None


def accepts_temperature(model: str, thinking: Thinking | None) -> bool:
    """Return whether a request may set `temperature`: Anthropic refuses it where the model thinks."""
    return not (thinking is not None and thinking.enabled) and family_of(model).thinking not in _THINKING_BY_DEFAULT


def effort_param(effort: ReasoningEffort) -> OutputConfigParam:
    """Return Anthropic's parameter `output_config`.

    Raises:
        SettingsError: a word that Anthropic does not know.
    """
    if effort == "none" or effort == "minimal":  # noqa: PLR1714 - mypy narrows by ==, not by a set
        raise SettingsError(
            f"reasoning_effort {effort!r} is unknown to Anthropic; use low, medium, high, xhigh or max there, "
            f"or disable `thinking`."
        )
    return {"effort": effort}


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


_MILLION = 1_000_000

_SNAPSHOT = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")
"""How both companies mark a dated snapshot of a model; it costs what the undated name costs."""


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


_PRICES_FILE = Path(__file__).with_name("prices.json")


@cache
def load_prices(path: Path = _PRICES_FILE) -> PriceList:
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
