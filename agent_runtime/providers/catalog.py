"""Catalog of providers, and `provider_for`, which creates one.

Also the providers that adapt another client: Alibaba, Azure, Bedrock, Vertex AI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from typing_extensions import override

from agent_runtime.core.errors import SettingsError, did_you_mean
from agent_runtime.providers.anthropic import AnthropicClient, AnthropicProvider
from agent_runtime.providers.faults import ModelService
from agent_runtime.providers.llm import LLMProvider
from agent_runtime.providers.models import ModelOptions, load_prices
from agent_runtime.providers.openai import OpenAIClient, OpenAIProvider
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.scripted import MODEL, scripted_provider
from agent_runtime.providers.sdk import KEY_ARGUMENT, KeyedApi, is_own_address, validate_url

if TYPE_CHECKING:
    import ssl

    from anthropic import AsyncAnthropicBedrock, AsyncAnthropicVertex
    from openai import AsyncOpenAI


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudVariables:
    """Environment variables of a cloud's SDK; `required` groups alternatives."""

    provider: str
    address: str
    required: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def read(self, environ: Mapping[str, str]) -> dict[str, str]:
        names = (*(name for alternatives in self.required for name in alternatives), *self.optional)
        return {name: value for name in names if (value := environ.get(name, "").strip())}

    def missing(self, cloud: Mapping[str, str]) -> str:
        return ", ".join(
            " or ".join(alternatives) for alternatives in self.required if not any(map(cloud.get, alternatives))
        )

    def require(self, cloud: Mapping[str, str], *, base_url: str | None) -> None:
        """Require the variables, and no `base_url`."""
        if names := self.missing(cloud):
            raise SettingsError(
                f"The provider `{self.provider}` needs {names}, as its SDK does: set it, or pass cloud=."
            )
        if base_url:
            raise SettingsError(
                f"The provider `{self.provider}` takes no base_url: its credentials go to {self.address} only."
            )


def require_extra(module: str, extra: str) -> None:
    try:
        is_installed = find_spec(module) is not None
    except ModuleNotFoundError:  # the package that holds it is missing, too
        is_installed = False
    if not is_installed:
        raise SettingsError(
            f"The provider `{extra}` needs a package that is not installed; install codepilot-bot[{extra}]"
        )


class AlibabaProvider(OpenAIClient):
    """Models of Alibaba through DashScope's Chat Completions; prices are unknown.

    https://www.alibabacloud.com/help/en/model-studio/qwen-function-calling: parallel calls must be requested.
    """

    mainland_url = "https://dashscope.aliyuncs.com/compatible-mode/v1"
    international_url = "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
    keyed_api = KeyedApi(
        provider="alibaba",
        name="Alibaba",
        url=mainland_url,
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
        default_model="qwen3.7-max",
        key_variable="DASHSCOPE_API_KEY",
    )

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Validate the settings; send nothing. `base_url` selects a region, default mainland China."""
        options = options or ModelOptions()
        service = self.keyed_api.create_service(options, api_key=api_key, model=model, base_url=base_url)
        options_sent = replace(options, api=None, cache_key=None, reasoning_effort=None)
        super().__init__(
            replace(service, is_foreign=True),  # to the SDK, which is OpenAI's
            options=options_sent,
            api="chat",
            compatible=True,
            parallel_on_request=True,
        )


class AzureProvider(OpenAIClient):
    """Models of OpenAI at Azure, named by deployment."""

    cloud = CloudVariables(
        provider="azure",
        address="AZURE_OPENAI_ENDPOINT",
        required=(
            ("AZURE_OPENAI_ENDPOINT",),
            ("OPENAI_API_VERSION",),
            ("AZURE_OPENAI_AD_TOKEN", "AZURE_OPENAI_API_KEY"),
        ),
        secrets=("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
    )

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Validate the settings; send nothing. `options.cloud` has endpoint, API version, and key or Entra token."""
        options = options or ModelOptions()
        cloud = {**options.cloud, **({"AZURE_OPENAI_API_KEY": api_key} if api_key else {})}
        self.cloud.require(cloud, base_url=base_url)
        if not model:
            raise SettingsError("The provider `azure` needs the name of your deployment as its `model`.")
        # As the SDK does: a token goes before a key.
        self._token = "" if api_key else cloud.get("AZURE_OPENAI_AD_TOKEN", "")
        service = ModelService(
            name="Azure OpenAI",
            model=model,
            url=validate_url(cloud[self.cloud.address], default=""),
            key_variable=KEY_ARGUMENT if api_key else f"AZURE_OPENAI_{'AD_TOKEN' if self._token else 'API_KEY'}",
            secret=self._token or cloud["AZURE_OPENAI_API_KEY"],
        )
        super().__init__(service, options=options, api=options.api or "chat", compatible=False)

    @override
    def _connect(self, ssl_context: ssl.SSLContext, **settings: Any) -> AsyncOpenAI:
        import openai  # noqa: PLC0415 - see SdkProvider._client

        secret = settings.pop("api_key")
        return openai.AsyncAzureOpenAI(
            http_client=openai.DefaultAsyncHttpxClient(verify=ssl_context),
            azure_endpoint=settings.pop("base_url"),
            api_version=self._options.cloud["OPENAI_API_VERSION"],
            **({"azure_ad_token": secret} if self._token else {"api_key": secret}),
            **settings,
        )


class BedrockProvider(AnthropicClient):
    """Models of Anthropic at Amazon Bedrock, with given credentials or boto3's.

    https://docs.aws.amazon.com/bedrock/latest/userguide/models-supported.html
    """

    default_model = "global.anthropic.claude-sonnet-5-5"
    cloud = CloudVariables(
        provider="bedrock",
        address="ANTHROPIC_BEDROCK_BASE_URL",
        required=(("AWS_REGION", "AWS_DEFAULT_REGION"),),
        optional=(
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_BEARER_TOKEN_BEDROCK",
            "ANTHROPIC_BEDROCK_BASE_URL",
        ),
        secrets=("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
    )

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Validate the settings; send nothing. Without `api_key`, AWS credentials sign requests."""
        require_extra("boto3", "bedrock")
        options = options or ModelOptions()
        cloud = options.cloud
        self.cloud.require(cloud, base_url=base_url)
        self._region = cloud.get("AWS_REGION") or cloud["AWS_DEFAULT_REGION"]
        self._bearer = api_key or cloud.get("AWS_BEARER_TOKEN_BEDROCK")
        default = f"https://bedrock-runtime.{self._region}.amazonaws.com"
        service = ModelService(
            name="Amazon Bedrock",
            model=model or self.default_model,
            url=validate_url(cloud.get(self.cloud.address), default=default),
            key_variable="the AWS credentials and the model's access in this region",
            secret=self._bearer or cloud.get("AWS_SECRET_ACCESS_KEY", ""),
        )
        super().__init__(service, options)

    @override
    def _connect(self, ssl_context: ssl.SSLContext, **settings: Any) -> AsyncAnthropicBedrock:
        import anthropic  # noqa: PLC0415 - see SdkProvider._client

        cloud = self._options.cloud
        signed: dict[str, Any] = {
            "aws_access_key": cloud.get("AWS_ACCESS_KEY_ID"),
            "aws_secret_key": cloud.get("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": cloud.get("AWS_SESSION_TOKEN"),
        }
        return anthropic.AsyncAnthropicBedrock(
            http_client=anthropic.DefaultAsyncHttpxClient(verify=ssl_context),
            aws_region=self._region,
            **{**settings, "api_key": self._bearer},
            **({} if self._bearer else signed),
        )

    @override
    def _credential_errors(self) -> tuple[type[Exception], ...]:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - see SdkProvider._client

        return (BotoCoreError, RuntimeError)


class VertexProvider(AnthropicClient):
    """Models of Anthropic at Google Cloud's Vertex AI, with application default credentials.

    https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude
    """

    default_model = "claude-sonnet-5-5"
    cloud = CloudVariables(
        provider="vertex",
        address="ANTHROPIC_VERTEX_BASE_URL",
        required=(("CLOUD_ML_REGION",), ("ANTHROPIC_VERTEX_PROJECT_ID",)),
        optional=("ANTHROPIC_VERTEX_BASE_URL",),
    )

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Validate the settings; send nothing. `api_key` is an access token, by default Google's credentials."""
        require_extra("google.auth", "vertex")
        options = options or ModelOptions()
        self.cloud.require(options.cloud, base_url=base_url)
        service = ModelService(
            name="Vertex AI",
            model=model or self.default_model,
            url=validate_url(options.cloud.get(self.cloud.address), default="https://aiplatform.googleapis.com/v1"),
            key_variable="Google's default credentials and the project's access to the model",
            secret=api_key or "",
        )
        super().__init__(service, options)

    @override
    def _connect(self, ssl_context: ssl.SSLContext, **settings: Any) -> AsyncAnthropicVertex:
        import anthropic  # noqa: PLC0415 - see SdkProvider._client

        cloud = self._options.cloud
        del settings["api_key"]
        return anthropic.AsyncAnthropicVertex(
            http_client=anthropic.DefaultAsyncHttpxClient(verify=ssl_context),
            region=cloud["CLOUD_ML_REGION"],
            project_id=cloud["ANTHROPIC_VERTEX_PROJECT_ID"],
            access_token=self._service.secret or None,
            # Without an address of one's own it is that of the region, which the client knows.
            **{**settings, "base_url": cloud.get(self.cloud.address)},
        )

    @override
    def _credential_errors(self) -> tuple[type[Exception], ...]:
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - see SdkProvider._client

        return (GoogleAuthError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model service's address, None for its own, and the variable of its key.

    Attributes:
        address_variable: the SDK's variable, if it has the address.
    """

    base_url: str | None
    key_variable: str | None
    needs_key: bool
    address_variable: str | None = None


class ProviderFactory(Protocol):
    def __call__(
        self, *, api_key: str | None, model: str | None, base_url: str | None, options: ModelOptions | None
    ) -> Provider: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """Static facts of a provider, available without its SDK.

    Attributes:
        address_variable: alternative address of the SDK.
        families: prefixes of model names.
    """

    factory: ProviderFactory
    default_model: str = ""
    key_variable: str | None = None
    address_variable: str | None = None
    hosts: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    cloud: CloudVariables | None = None

    @classmethod
    def for_api(cls, factory: ProviderFactory, api: KeyedApi, *, families: tuple[str, ...]) -> Self:
        return cls(
            factory=factory,
            default_model=api.default_model,
            key_variable=api.key_variable,
            address_variable=api.address_variable,
            hosts=api.hosts,
            families=families,
        )

    def is_own(self, base_url: str | None) -> bool:
        """Return whether the service's key may be sent to an address."""
        return is_own_address(base_url, self.hosts)

    def endpoint(
        self,
        environ: Mapping[str, str],
        *,
        base_url: str | None = None,
        key_variable: str | None = None,
        own_key_variable: str | None = None,
    ) -> Endpoint:
        """Return the address of requests and its key, by the rule of decision 84.

        Args:
            environ: has the SDK's variable.
            base_url: address in a setting.
            key_variable: of the key for `base_url`.
            own_key_variable: of the service's key; None for the usual one.
        """
        own_key = own_key_variable or self.key_variable
        if base_url:
            takes_own = self.is_own(base_url) and not environ.get(key_variable or "", "").strip()
            return Endpoint(base_url=base_url, key_variable=own_key if takes_own else key_variable, needs_key=takes_own)
        address = environ.get(self.address_variable or "", "").strip() or None
        return Endpoint(
            base_url=address,
            key_variable=own_key,
            needs_key=self.is_own(address) or own_key != self.key_variable,
            address_variable=self.address_variable if address else None,
        )


CATALOG: Mapping[str, CatalogEntry] = MappingProxyType(
    {
        "alibaba": CatalogEntry.for_api(AlibabaProvider, AlibabaProvider.keyed_api, families=("qwen", "qvq-")),
        "anthropic": CatalogEntry.for_api(AnthropicProvider, AnthropicProvider.keyed_api, families=("claude-",)),
        "azure": CatalogEntry(factory=AzureProvider, cloud=AzureProvider.cloud),
        "bedrock": CatalogEntry(
            factory=BedrockProvider, default_model=BedrockProvider.default_model, cloud=BedrockProvider.cloud
        ),
        "llm": CatalogEntry(factory=LLMProvider),
        "openai": CatalogEntry.for_api(
            OpenAIProvider,
            OpenAIProvider.keyed_api,
            families=("gpt-", "chatgpt-", "codex-", "o1", "o3", "o4"),
        ),
        "scripted": CatalogEntry(factory=scripted_provider, default_model=MODEL),
        "vertex": CatalogEntry(
            factory=VertexProvider, default_model=VertexProvider.default_model, cloud=VertexProvider.cloud
        ),
    }
)


def known_models(provider: str) -> tuple[str, ...]:
    """Return a service's models with known prices, default first."""
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
    """Create a provider, without reading the environment.

    Args:
        name: key of `CATALOG`.
        model: None for the default.
        api_key: optional for `scripted`, `llm` and with `base_url`.
        base_url: of a compatible server.

    Raises:
        SettingsError: unknown name or unusable settings.
        ScriptError: unusable script.
    """
    entry = CATALOG.get(name)
    if entry is None:
        raise SettingsError(f"There is no provider {name!r}. {did_you_mean(name, CATALOG)}")
    return entry.factory(api_key=api_key, model=model, base_url=base_url, options=options)
