"""Provider names to providers. A new provider is one file, and one entry here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from agent_runtime.core.did_you_mean import did_you_mean
from agent_runtime.core.errors import SettingsError
from agent_runtime.providers import alibaba, anthropic, azure, bedrock, llm, openai, scripted, vertex
from agent_runtime.providers.cloud import CloudVariables
from agent_runtime.providers.options import ModelOptions, is_own_address
from agent_runtime.providers.prices import load_prices
from agent_runtime.providers.protocol import Provider


class Maker(Protocol):
    """Makes a provider from what a caller may say; each fills in its own defaults."""

    def __call__(
        self, *, api_key: str | None, model: str | None, base_url: str | None, options: ModelOptions | None
    ) -> Provider:
        """Make it; nothing is sent yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """What is known of a provider without making one, and without loading its SDK.

    Attributes:
        make: makes it.
        default_model: the model asked for when none is named; empty where the user's own set-up says it (`llm`).
        key_variable: the environment variable that usually holds its key; None when it needs no key.
        address_variable: the one from which its SDK reads another address, so that a person may have set it already.
        hosts: where the service itself answers, subdomains included.
        families: the beginnings of its models' names.
        cloud: the variables that hold region and credentials of a cloud; None for a service with one key.
    """

    make: Maker
    default_model: str
    key_variable: str | None
    address_variable: str | None = None
    hosts: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    cloud: CloudVariables | None = None

    def is_own(self, base_url: str | None) -> bool:
        """Whether an address is the service's own, so that its key may be sent there."""
        return is_own_address(base_url, self.hosts)


CATALOG: Mapping[str, CatalogEntry] = MappingProxyType(
    {
        "alibaba": CatalogEntry(
            make=alibaba.AlibabaProvider,
            default_model=alibaba.DEFAULT_MODEL,
            key_variable=alibaba.KEY_VARIABLE,
            hosts=alibaba.HOSTS,
            families=("qwen", "qvq-"),
        ),
        "anthropic": CatalogEntry(
            make=anthropic.AnthropicProvider,
            default_model=anthropic.DEFAULT_MODEL,
            key_variable=anthropic.KEY_VARIABLE,
            address_variable="ANTHROPIC_BASE_URL",
            hosts=anthropic.HOSTS,
            families=("claude-",),
        ),
        "azure": CatalogEntry(make=azure.AzureProvider, default_model="", key_variable=None, cloud=azure.VARIABLES),
        "bedrock": CatalogEntry(
            make=bedrock.BedrockProvider,
            default_model=bedrock.DEFAULT_MODEL,
            key_variable=None,
            cloud=bedrock.VARIABLES,
        ),
        "llm": CatalogEntry(make=llm.LLMProvider, default_model="", key_variable=None),
        "openai": CatalogEntry(
            make=openai.OpenAIProvider,
            default_model=openai.DEFAULT_MODEL,
            key_variable=openai.KEY_VARIABLE,
            address_variable="OPENAI_BASE_URL",
            hosts=openai.HOSTS,
            families=("gpt-", "chatgpt-", "codex-", "o1", "o3", "o4"),
        ),
        "scripted": CatalogEntry(make=scripted.from_settings, default_model=scripted.MODEL, key_variable=None),
        "vertex": CatalogEntry(
            make=vertex.VertexProvider,
            default_model=vertex.DEFAULT_MODEL,
            key_variable=None,
            cloud=vertex.VARIABLES,
        ),
    }
)


def known_models(provider: str) -> tuple[str, ...]:
    """The models of a service whose names and prices are known here, its default first; it may have others."""
    entry = CATALOG[provider]
    priced = (name for name in load_prices().models if entry.families and name.startswith(entry.families))
    return tuple(dict.fromkeys([*filter(None, [entry.default_model]), *priced]))


def provider_for(
    name: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    options: ModelOptions | None = None,
) -> Provider:
    """The provider of that name, ready to be asked. Nothing is read from the environment for it.

    Args:
        name: a key of `CATALOG`.
        model: the model's name as the service knows it; None for the provider's default.
        api_key: the key; not needed for `scripted`, for `llm` where that knows one, nor with a `base_url` of one's own.
        base_url: the address of a compatible server; None for the service itself.
        options: everything else; `scripted` needs `ModelOptions(script=…)`.

    Raises:
        SettingsError: an unknown name, or settings that the provider cannot work with.
        ScriptError: the script cannot be used.
    """
    entry = CATALOG.get(name)
    if entry is None:
        raise SettingsError(f"There is no provider {name!r}. {did_you_mean(name, CATALOG)}")
    return entry.make(api_key=api_key, model=model, base_url=base_url, options=options)
