"""The options of a model besides its name, key and address, and the checks that all providers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from agent_runtime.core.did_you_mean import did_you_mean
from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.retry import RetryPolicy

OpenAIApi = Literal["responses", "chat"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_NO_KEY = "no-key"
"""Sent in place of a key to a server that may need none: the SDKs demand one."""
_LEAST_BUDGET = 1024
"""Anthropic's own floor, see `agent_runtime.providers.thinking`."""


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
        max_tokens: longest reply in tokens, reasoning included; less for a model that is known to write less
            (`agent_runtime.providers.reply_bounds`).
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
        key_variable: the environment variable that the key came from, for error texts; None for the usual one.
        cloud: for `bedrock`, `vertex` and `azure`: region, project and credentials, by the names of the environment
            variables that their SDKs read.
        images: whether the model sees; None for what is known of it by its name (`agent_runtime.providers.sight`). The
            models of `llm` say it themselves.
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


def checked_key(api_key: str | None, *, provider: str, variable: str, optional: bool = False) -> str:
    """The API key, fit to travel in a header.

    Args:
        api_key: as the caller gave it.
        provider: the provider, for error texts.
        variable: the environment variable that it comes from, for error texts.
        optional: whether the server may need none; it is sent `no-key` then.

    Raises:
        SettingsError: there is none, or it holds characters no key has. The text never quotes the key.
    """
    key = (api_key or "").strip() or (_NO_KEY if optional else "")
    if not key:
        raise SettingsError(f"The provider `{provider}` needs an API key: set {variable}, or pass api_key=.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsError(
            f"The API key for `{provider}` holds a space or another character no key has: check {variable}."
        )
    return key


def is_own_address(base_url: str | None, hosts: tuple[str, ...]) -> bool:
    """Whether an address is a service's own: none at all, or TLS to one of its hosts, or to a subdomain of one."""
    if not base_url:
        return True
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return False
    host = f".{parts.hostname or ''}"
    return parts.scheme == "https" and any(host.endswith(f".{own}") for own in hosts)


def is_foreign_address(base_url: str | None, hosts: tuple[str, ...], *, key_variable: str | None, usual: str) -> bool:
    """Whether an address is neither a service's own nor one that its usual key is named for.

    Args:
        base_url: the address; None for the service's own.
        hosts: where the service itself answers.
        key_variable: the variable that is named for the key; None where none is.
        usual: the one of the service itself.
    """
    return not is_own_address(base_url, hosts) and key_variable != usual


def checked_url(base_url: str | None, *, default: str) -> str:
    """The address of a service's API.

    Raises:
        SettingsError: it is not an http or https address.
    """
    url = base_url or default
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"base_url is {url!r}; it must be an address such as https://models.example.com/v1.")
    return url
