"""Provider names to providers. A new provider is one file, and one entry here."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRejectedError,
    ModelUnreachableError,
    SettingsError,
    did_you_mean,
)
from agent_runtime.providers import anthropic, llm, openai, scripted
from agent_runtime.providers.anthropic import AnthropicClient
from agent_runtime.providers.models import load_prices
from agent_runtime.providers.openai import OpenAIClient
from agent_runtime.providers.protocol import (
    Chunk,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    ToolCalling,
    tool_calling,
)
from agent_runtime.providers.retry import ModelOptions, ModelService, checked_key, checked_url, is_own_address

if TYPE_CHECKING:
    import ssl

    import openai as openai_openai
    from anthropic import AsyncAnthropicBedrock, AsyncAnthropicVertex


# ---- A chain of models: when one cannot answer, the next is asked.


STICKY_SECONDS = 600.0
"""How long a model that stood in is kept before the first one is tried again."""


class FallbackProvider:
    """Asks the next model when one cannot be reached or rejects the request: outage, overload, key, credit, name.

    It does not ask elsewhere when the conversation is too long (`ContextOverflowError`: the caller can make it
    shorter, and a chain would hide that) nor when the model declined (`ModelRefusedError`: an answer, not a fault;
    shopping around for a model that consents is for people to decide).

    When all of them failed and one may be back later, the chain's error is an outage: a caller that waits for outages
    asks the whole chain again.

    A model that stood in is kept for `sticky_seconds`: going back and forth would leave each time a warm cache behind.
    Each provider still makes its own retries first; give all but the last a `Retry` with few attempts.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        sticky_seconds: float = STICKY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Chain providers.

        Args:
            providers: the preferred one first; closed by `close`.
            sticky_seconds: how long a model that stood in is asked first; after that the preferred one is again.
            clock: seconds that only grow.

        Raises:
            SettingsError: no provider, or a negative time.
        """
        if not providers:
            raise SettingsError("A FallbackProvider needs at least one provider; the list is empty.")
        if sticky_seconds < 0:
            raise SettingsError(f"sticky_seconds is {sticky_seconds}; it must be at least 0 (600 is a good value).")
        self._providers = tuple(providers)
        self._sticky_seconds = sticky_seconds
        self._clock = clock
        self._current = 0
        self._until = 0.0

    @property
    def model(self) -> str:
        """The model that is asked first now; `ReplyEnd.model` says which one answered."""
        return self._providers[self._first()].model

    @property
    def sees_images(self) -> bool:
        """Whether every model of the chain sees: any of them may be asked in the middle of a conversation."""
        return all(provider.sees_images for provider in self._providers)

    @property
    def tool_calling(self) -> ToolCalling:
        """What the preferred model says; nothing where a model of the chain cannot, as any of them may be asked."""
        each = [tool_calling(provider) for provider in self._providers]
        return "unsupported" if "unsupported" in each else each[0]

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`. Attempts are counted on over the whole chain.

        Raises:
            ModelOutageError: none could answer, and at least one may be asked again later.
            ModelRejectedError: none could answer, and at least one rejected the request.
            ModelUnreachableError: no model of the chain could be reached.
            ContextOverflowError: the conversation is too long for the model that was asked.
            ModelRefusedError: the model that was asked declined.
        """
        first, attempts = self._first(), 0
        faults: list[tuple[str, ModelError]] = []
        for index in [*range(first, len(self._providers)), *range(first)]:
            provider, before = self._providers[index], attempts
            try:
                async with aclosing(provider.reply(request)) as chunks:
                    async for chunk in chunks:
                        match chunk:
                            case ReplyStart(attempt=attempt):
                                attempts = before + attempt
                                yield ReplyStart(attempt=attempts)
                            case ReplyFault():
                                yield replace(chunk, model=chunk.model or provider.model)
                            case ReplyEnd():
                                self._keep(index)
                                yield replace(chunk, model=chunk.model or provider.model)
                            case _:
                                yield chunk
            except ContextOverflowError:
                raise
            except (ModelUnreachableError, ModelRejectedError) as error:
                faults.append((provider.model, error))
            else:
                return
        raise _all_failed(faults)

    async def close(self) -> None:
        """Close every provider of the chain; idempotent."""
        for provider in self._providers:
            await provider.close()

    def _first(self) -> int:
        return self._current if self._current and self._clock() < self._until else 0

    def _keep(self, index: int) -> None:
        """Ask this model first for a while; the time runs from when it first stood in."""
        if index != self._first():
            self._current, self._until = index, self._clock() + self._sticky_seconds


def _all_failed(faults: Sequence[tuple[str, ModelError]]) -> ModelError:
    if len(faults) == 1:
        return faults[0][1]
    told = "\n".join(f"- {model}: {error}" for model, error in faults)
    text = f"None of the {len(faults)} models of the fallback chain could answer:\n{told}"
    outages = [error for _, error in faults if isinstance(error, ModelOutageError)]
    if outages:
        return ModelOutageError(text, retry_after=min(error.retry_after or 0.0 for error in outages) or None)
    rejected = any(isinstance(error, ModelRejectedError) for _, error in faults)
    return ModelRejectedError(text) if rejected else ModelUnreachableError(text)


# ---- Take the access to a cloud's models from the variables that its SDK reads.


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudVariables:
    """The variables of one cloud.

    Attributes:
        needed: each must be set, or one of several.
        further: may be set.
        secrets: those of all of these whose values are secrets.
    """

    needed: tuple[tuple[str, ...], ...]
    further: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def of(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Those that are set; one that is empty counts as not set."""
        names = (*(name for either in self.needed for name in either), *self.further)
        return {name: value for name in names if (value := environ.get(name, "").strip())}

    def lacking(self, cloud: Mapping[str, str]) -> str:
        """What must be set and is not, in words; empty where nothing is missing."""
        return ", ".join(" or ".join(either) for either in self.needed if not any(map(cloud.get, either)))

    def require(self, provider: str, cloud: Mapping[str, str], *, base_url: str | None, address: str) -> None:
        """Refuse what cannot work.

        Args:
            provider: its name, for error texts.
            cloud: what is set.
            base_url: another address that somebody named. It is refused: it says nothing of these credentials.
            address: the variable that names an address for these credentials.

        Raises:
            SettingsError: a variable is not set, or another address is named.
        """
        if lacking := self.lacking(cloud):
            raise SettingsError(f"The provider `{provider}` needs {lacking}, as its SDK does: set it, or pass cloud=.")
        if base_url:
            raise SettingsError(f"The provider `{provider}` takes no base_url: its credentials go to {address} only.")


def require_extra(module: str, extra: str) -> None:
    """Refuse a provider whose package is not installed.

    Raises:
        SettingsError: it is not; the text says how to install it.
    """
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:  # the package that holds it is missing, too
        found = False
    if not found:
        raise SettingsError(
            f"The provider `{extra}` needs a package that is not installed; install it with: "
            f"pip install 'codepilot-bot[{extra}]'"
        )


# ---- Alibaba's models through DashScope, which speaks OpenAI's Chat Completions.


DEFAULT_MODEL_ALIBABA = "qwen3.7-max"
KEY_VARIABLE = "DASHSCOPE_API_KEY"
MAINLAND_URL = "https://dashscope.aliyuncs.com/compatible-mode/v1"
INTERNATIONAL_URL = "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
HOSTS = ("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com")


class AlibabaProvider(OpenAIClient):
    """Models of Alibaba. Their prices are not known here, so their usage has tokens and no cost."""

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Get ready; nothing is sent yet.

        Args:
            api_key: a key of Model Studio; it is valid for the region it was made in only.
            model: the model's name.
            base_url: another region, e.g. `INTERNATIONAL_URL`; the service in mainland China when not given.
            options: everything else; what only OpenAI knows (`api`, `cache_key`, `reasoning_effort`) is not sent.

        Raises:
            SettingsError: there is no usable key, or the address is none.
        """
        options = options or ModelOptions()
        variable = options.key_variable or KEY_VARIABLE
        service = ModelService(
            name="Alibaba",
            model=model or DEFAULT_MODEL_ALIBABA,
            url=checked_url(base_url, default=MAINLAND_URL),
            key_variable=variable,
            secret=checked_key(
                api_key, provider="alibaba", variable=variable, optional=not is_own_address(base_url, HOSTS)
            ),
            foreign=True,  # to the SDK, which is OpenAI's
        )
        known = replace(options, api=None, cache_key=None, reasoning_effort=None)
        super().__init__(service, options=known, api="chat", compatible=True, parallel_on_request=True)


# ---- OpenAI's models at Azure, through the client of OpenAI's SDK. A model is named by its deployment.


ADDRESS_VARIABLE_AZURE = "AZURE_OPENAI_ENDPOINT"
KEY_VARIABLE_AZURE = "AZURE_OPENAI_API_KEY"
TOKEN_VARIABLE = "AZURE_OPENAI_AD_TOKEN"  # noqa: S105 - a variable's name
VERSION_VARIABLE = "OPENAI_API_VERSION"
VARIABLES_AZURE = CloudVariables(
    needed=((ADDRESS_VARIABLE_AZURE,), (VERSION_VARIABLE,), (TOKEN_VARIABLE, KEY_VARIABLE_AZURE)),
    secrets=(KEY_VARIABLE_AZURE, TOKEN_VARIABLE),
)


class AzureProvider(OpenAIClient):
    """Models of OpenAI at Azure, through Chat Completions, or Responses if the options say so."""

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Get ready; nothing is sent yet.

        Args:
            api_key: the resource's key, in place of the one in `cloud`.
            model: the name of the deployment.
            base_url: to be left out.
            options: everything else; `cloud` has the endpoint, the version of the API, and the key or an Entra token.

        Raises:
            SettingsError: one of these is not set.
        """
        options = options or ModelOptions()
        cloud = {**options.cloud, **({KEY_VARIABLE_AZURE: api_key} if api_key else {})}
        VARIABLES_AZURE.require("azure", cloud, base_url=base_url, address=ADDRESS_VARIABLE_AZURE)
        if not model:
            raise SettingsError("The provider `azure` needs the name of your deployment as its `model`.")
        # As the SDK does: a token goes before a key.
        self._token = "" if api_key else cloud.get(TOKEN_VARIABLE, "")
        service = ModelService(
            name="Azure OpenAI",
            model=model,
            url=checked_url(cloud[ADDRESS_VARIABLE_AZURE], default=""),
            key_variable=TOKEN_VARIABLE if self._token else KEY_VARIABLE_AZURE,
            secret=self._token or cloud[KEY_VARIABLE_AZURE],
        )
        super().__init__(service, options=options, api=options.api or "chat", compatible=False)

    @override
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> openai_openai.AsyncOpenAI:
        import openai  # noqa: PLC0415 - see SdkProvider._client

        secret = settings.pop("api_key")
        return openai.AsyncAzureOpenAI(
            http_client=openai.DefaultAsyncHttpxClient(verify=trusted),
            azure_endpoint=settings.pop("base_url"),
            api_version=self._options.cloud[VERSION_VARIABLE],
            **({"azure_ad_token": secret} if self._token else {"api_key": secret}),
            **settings,
        )


# ---- Anthropic's models at Amazon Bedrock, through the client of Anthropic's SDK.


DEFAULT_MODEL_BEDROCK = "global.anthropic.claude-sonnet-5-5"
ADDRESS_VARIABLE_BEDROCK = "ANTHROPIC_BEDROCK_BASE_URL"
VARIABLES_BEDROCK = CloudVariables(
    needed=(("AWS_REGION", "AWS_DEFAULT_REGION"),),
    further=(
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        ADDRESS_VARIABLE_BEDROCK,
    ),
    secrets=("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
)


class BedrockProvider(AnthropicClient):
    """Models of Anthropic at Amazon Bedrock."""

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Get ready; nothing is sent yet.

        Args:
            api_key: a Bedrock API key; without one, requests are signed with AWS credentials.
            model: the id of a model or of an inference profile, or the profile's ARN.
            base_url: to be left out.
            options: everything else; `cloud` has the region.

        Raises:
            SettingsError: boto3 is not installed, the region is not set, or the model cannot think as it should.
        """
        require_extra("boto3", "bedrock")
        options = options or ModelOptions()
        cloud = options.cloud
        VARIABLES_BEDROCK.require("bedrock", cloud, base_url=base_url, address=ADDRESS_VARIABLE_BEDROCK)
        self._region = cloud.get("AWS_REGION") or cloud["AWS_DEFAULT_REGION"]
        self._bearer = api_key or cloud.get("AWS_BEARER_TOKEN_BEDROCK")
        default = f"https://bedrock-runtime.{self._region}.amazonaws.com"
        service = ModelService(
            name="Amazon Bedrock",
            model=model or DEFAULT_MODEL_BEDROCK,
            url=checked_url(cloud.get(ADDRESS_VARIABLE_BEDROCK), default=default),
            key_variable="the AWS credentials and the model's access in this region",
            secret=self._bearer or cloud.get("AWS_SECRET_ACCESS_KEY", ""),
        )
        super().__init__(service, options)

    @override
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> AsyncAnthropicBedrock:
        import anthropic  # noqa: PLC0415 - see SdkProvider._client

        cloud = self._options.cloud
        signed: dict[str, Any] = {
            "aws_access_key": cloud.get("AWS_ACCESS_KEY_ID"),
            "aws_secret_key": cloud.get("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": cloud.get("AWS_SESSION_TOKEN"),
        }
        return anthropic.AsyncAnthropicBedrock(
            http_client=anthropic.DefaultAsyncHttpxClient(verify=trusted),
            aws_region=self._region,
            **{**settings, "api_key": self._bearer},
            **({} if self._bearer else signed),
        )

    @override
    def _without_credentials(self) -> tuple[type[Exception], ...]:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - see SdkProvider._client

        return (BotoCoreError, RuntimeError)


# ---- Anthropic's models at Google Cloud's Vertex AI, through the client of Anthropic's SDK.


DEFAULT_MODEL_VERTEX = "claude-sonnet-5-5"
ADDRESS_VARIABLE_VERTEX = "ANTHROPIC_VERTEX_BASE_URL"
VARIABLES_VERTEX = CloudVariables(
    needed=(("CLOUD_ML_REGION",), ("ANTHROPIC_VERTEX_PROJECT_ID",)), further=(ADDRESS_VARIABLE_VERTEX,)
)


class VertexProvider(AnthropicClient):
    """Models of Anthropic at Vertex AI."""

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Get ready; nothing is sent yet.

        Args:
            api_key: an access token that somebody has made; without one, Google's default credentials are used.
            model: its name, with `@` and its version where it has one.
            base_url: to be left out.
            options: everything else; `cloud` has the region and the project.

        Raises:
            SettingsError: google-auth is not installed, region or project is not set, or the model cannot think as it
                should.
        """
        require_extra("google.auth", "vertex")
        options = options or ModelOptions()
        VARIABLES_VERTEX.require("vertex", options.cloud, base_url=base_url, address=ADDRESS_VARIABLE_VERTEX)
        service = ModelService(
            name="Vertex AI",
            model=model or DEFAULT_MODEL_VERTEX,
            url=checked_url(options.cloud.get(ADDRESS_VARIABLE_VERTEX), default="https://aiplatform.googleapis.com/v1"),
            key_variable="Google's default credentials and the project's access to the model",
            secret=api_key or "",
        )
        super().__init__(service, options)

    @override
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> AsyncAnthropicVertex:
        import anthropic  # noqa: PLC0415 - see SdkProvider._client

        cloud = self._options.cloud
        del settings["api_key"]
        return anthropic.AsyncAnthropicVertex(
            http_client=anthropic.DefaultAsyncHttpxClient(verify=trusted),
            region=cloud["CLOUD_ML_REGION"],
            project_id=cloud["ANTHROPIC_VERTEX_PROJECT_ID"],
            access_token=self._service.secret or None,
            # Without an address of one's own it is that of the region, which the client knows.
            **{**settings, "base_url": cloud.get(ADDRESS_VARIABLE_VERTEX)},
        )

    @override
    def _without_credentials(self) -> tuple[type[Exception], ...]:
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - see SdkProvider._client

        return (GoogleAuthError, RuntimeError, ValueError)


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
            make=AlibabaProvider,
            default_model=DEFAULT_MODEL_ALIBABA,
            key_variable=KEY_VARIABLE,
            hosts=HOSTS,
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
        "azure": CatalogEntry(make=AzureProvider, default_model="", key_variable=None, cloud=VARIABLES_AZURE),
        "bedrock": CatalogEntry(
            make=BedrockProvider,
            default_model=DEFAULT_MODEL_BEDROCK,
            key_variable=None,
            cloud=VARIABLES_BEDROCK,
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
            make=VertexProvider,
            default_model=DEFAULT_MODEL_VERTEX,
            key_variable=None,
            cloud=VARIABLES_VERTEX,
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
