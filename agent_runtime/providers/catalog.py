"""The catalog of providers: their names, defaults and environment variables, and `provider_for`, which makes one.

The providers that only lead another client elsewhere (Alibaba, Azure, Bedrock, Vertex AI) are here as well. A new
provider is one file, or one class here, and one entry of `CATALOG`.
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
from agent_runtime.providers.llm import LLMProvider
from agent_runtime.providers.models import ModelOptions, load_prices
from agent_runtime.providers.openai import OpenAIClient, OpenAIProvider
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.retry import ModelService
from agent_runtime.providers.scripted import MODEL, scripted_provider
from agent_runtime.providers.sdk import KeyedApi, checked_url, is_own_address

if TYPE_CHECKING:
    import ssl

    from anthropic import AsyncAnthropicBedrock, AsyncAnthropicVertex
    from openai import AsyncOpenAI


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudVariables:
    """The environment variables from which a cloud's SDK takes the access to its models.

    Attributes:
        provider: the provider's name in the catalog.
        address: the variable that names another address for the credentials; they go nowhere else.
        needed: each must be set, or one of several.
        further: may be set.
        secrets: those of all of these whose values are secrets.
    """

    provider: str
    address: str
    needed: tuple[tuple[str, ...], ...]
    further: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def read(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that are set; an empty one counts as not set."""
        names = (*(name for either in self.needed for name in either), *self.further)
        return {name: value for name in names if (value := environ.get(name, "").strip())}

    def missing(self, cloud: Mapping[str, str]) -> str:
        """Return the needed variables that are not set, for error texts; empty if there are none."""
        return ", ".join(" or ".join(either) for either in self.needed if not any(map(cloud.get, either)))

    def require(self, cloud: Mapping[str, str], *, base_url: str | None) -> None:
        """Refuse to ask without the variables, or at an address that says nothing of these credentials.

        Raises:
            SettingsError: a variable is not set, or another address is named.
        """
        if names := self.missing(cloud):
            raise SettingsError(
                f"The provider `{self.provider}` needs {names}, as its SDK does: set it, or pass cloud=."
            )
        if base_url:
            raise SettingsError(
                f"The provider `{self.provider}` takes no base_url: its credentials go to {self.address} only."
            )


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


class AlibabaProvider(OpenAIClient):
    """Models of Alibaba through DashScope, which speaks OpenAI's Chat Completions.

    Their prices are not known here, so their usage has tokens and no cost. Several calls in one reply are made only if
    they are asked for: https://www.alibabacloud.com/help/en/model-studio/qwen-function-calling. The service:
    https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope; its errors, which
    `retry.verdict` knows: https://www.alibabacloud.com/help/en/model-studio/error-code.
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
        """Get ready; nothing is sent yet.

        Args:
            api_key: a key of Model Studio; it is valid for the region it was made in only.
            model: the model's name.
            base_url: another region, e.g. `international_url`; the service in mainland China when not given.
            options: everything else; what only OpenAI knows (`api`, `cache_key`, `reasoning_effort`) is not sent.

        Raises:
            SettingsError: there is no usable key, or the address is none.
        """
        options = options or ModelOptions()
        service = self.keyed_api.service(options, api_key=api_key, model=model, base_url=base_url)
        known = replace(options, api=None, cache_key=None, reasoning_effort=None)
        super().__init__(
            replace(service, foreign=True),  # to the SDK, which is OpenAI's
            options=known,
            api="chat",
            compatible=True,
            parallel_on_request=True,
        )


class AzureProvider(OpenAIClient):
    """Models of OpenAI at Azure, through Chat Completions, or Responses if the options say so.

    A model is named by its deployment.
    """

    cloud = CloudVariables(
        provider="azure",
        address="AZURE_OPENAI_ENDPOINT",
        needed=(
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
        cloud = {**options.cloud, **({"AZURE_OPENAI_API_KEY": api_key} if api_key else {})}
        self.cloud.require(cloud, base_url=base_url)
        if not model:
            raise SettingsError("The provider `azure` needs the name of your deployment as its `model`.")
        # As the SDK does: a token goes before a key.
        self._token = "" if api_key else cloud.get("AZURE_OPENAI_AD_TOKEN", "")
        service = ModelService(
            name="Azure OpenAI",
            model=model,
            url=checked_url(cloud[self.cloud.address], default=""),
            key_variable="AZURE_OPENAI_AD_TOKEN" if self._token else "AZURE_OPENAI_API_KEY",
            secret=self._token or cloud["AZURE_OPENAI_API_KEY"],
        )
        super().__init__(service, options=options, api=options.api or "chat", compatible=False)

    @override
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> AsyncOpenAI:
        import openai  # noqa: PLC0415 - see SdkProvider._client

        secret = settings.pop("api_key")
        return openai.AsyncAzureOpenAI(
            http_client=openai.DefaultAsyncHttpxClient(verify=trusted),
            azure_endpoint=settings.pop("base_url"),
            api_version=self._options.cloud["OPENAI_API_VERSION"],
            **({"azure_ad_token": secret} if self._token else {"api_key": secret}),
            **settings,
        )


class BedrockProvider(AnthropicClient):
    """Models of Anthropic at Amazon Bedrock.

    Requests are signed with the credentials that are given, or else with those that boto3 finds: a profile, or the role
    of the machine. Names of models: https://docs.aws.amazon.com/bedrock/latest/userguide/models-supported.html.
    """

    default_model = "global.anthropic.claude-sonnet-5-5"
    cloud = CloudVariables(
        provider="bedrock",
        address="ANTHROPIC_BEDROCK_BASE_URL",
        needed=(("AWS_REGION", "AWS_DEFAULT_REGION"),),
        further=(
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
        self.cloud.require(cloud, base_url=base_url)
        self._region = cloud.get("AWS_REGION") or cloud["AWS_DEFAULT_REGION"]
        self._bearer = api_key or cloud.get("AWS_BEARER_TOKEN_BEDROCK")
        default = f"https://bedrock-runtime.{self._region}.amazonaws.com"
        service = ModelService(
            name="Amazon Bedrock",
            model=model or self.default_model,
            url=checked_url(cloud.get(self.cloud.address), default=default),
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
    def _credential_errors(self) -> tuple[type[Exception], ...]:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - see SdkProvider._client

        return (BotoCoreError, RuntimeError)


class VertexProvider(AnthropicClient):
    """Models of Anthropic at Google Cloud's Vertex AI.

    The credentials are Google's application default credentials: a file that GOOGLE_APPLICATION_CREDENTIALS names, a
    person's login, or the machine's service account. Names of models:
    https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude.
    """

    default_model = "claude-sonnet-5-5"
    cloud = CloudVariables(
        provider="vertex",
        address="ANTHROPIC_VERTEX_BASE_URL",
        needed=(("CLOUD_ML_REGION",), ("ANTHROPIC_VERTEX_PROJECT_ID",)),
        further=("ANTHROPIC_VERTEX_BASE_URL",),
    )

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
        self.cloud.require(options.cloud, base_url=base_url)
        service = ModelService(
            name="Vertex AI",
            model=model or self.default_model,
            url=checked_url(options.cloud.get(self.cloud.address), default="https://aiplatform.googleapis.com/v1"),
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
            **{**settings, "base_url": cloud.get(self.cloud.address)},
        )

    @override
    def _credential_errors(self) -> tuple[type[Exception], ...]:
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - see SdkProvider._client

        return (GoogleAuthError, RuntimeError, ValueError)


class Maker(Protocol):
    """The constructor of a provider; each fills in its own defaults."""

    def __call__(
        self, *, api_key: str | None, model: str | None, base_url: str | None, options: ModelOptions | None
    ) -> Provider:
        """Make it; nothing is sent yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A provider's facts, known without making one and without loading its SDK.

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
    default_model: str = ""
    key_variable: str | None = None
    address_variable: str | None = None
    hosts: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    cloud: CloudVariables | None = None

    @classmethod
    def keyed(
        cls, make: Maker, api: KeyedApi, *, families: tuple[str, ...], address_variable: str | None = None
    ) -> Self:
        """Return the entry of a provider of an API with one key."""
        return cls(
            make=make,
            default_model=api.default_model,
            key_variable=api.key_variable,
            address_variable=address_variable,
            hosts=api.hosts,
            families=families,
        )

    def is_own(self, base_url: str | None) -> bool:
        """Whether an address is the service's own, so that its key may be sent there."""
        return is_own_address(base_url, self.hosts)


CATALOG: Mapping[str, CatalogEntry] = MappingProxyType(
    {
        "alibaba": CatalogEntry.keyed(AlibabaProvider, AlibabaProvider.keyed_api, families=("qwen", "qvq-")),
        "anthropic": CatalogEntry.keyed(
            AnthropicProvider,
            AnthropicProvider.keyed_api,
            address_variable="ANTHROPIC_BASE_URL",
            families=("claude-",),
        ),
        "azure": CatalogEntry(make=AzureProvider, cloud=AzureProvider.cloud),
        "bedrock": CatalogEntry(
            make=BedrockProvider, default_model=BedrockProvider.default_model, cloud=BedrockProvider.cloud
        ),
        "llm": CatalogEntry(make=LLMProvider),
        "openai": CatalogEntry.keyed(
            OpenAIProvider,
            OpenAIProvider.keyed_api,
            address_variable="OPENAI_BASE_URL",
            families=("gpt-", "chatgpt-", "codex-", "o1", "o3", "o4"),
        ),
        "scripted": CatalogEntry(make=scripted_provider, default_model=MODEL),
        "vertex": CatalogEntry(
            make=VertexProvider, default_model=VertexProvider.default_model, cloud=VertexProvider.cloud
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
    """Make a provider. Nothing is read from the environment for it.

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
