"""OpenAI's models at Azure, through the client of OpenAI's SDK. A model is named by its deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.cloud import CloudVariables
from agent_runtime.providers.faults import ModelService
from agent_runtime.providers.openai_client import OpenAIClient
from agent_runtime.providers.options import ModelOptions, checked_url

if TYPE_CHECKING:
    import ssl

    import openai

ADDRESS_VARIABLE = "AZURE_OPENAI_ENDPOINT"
KEY_VARIABLE = "AZURE_OPENAI_API_KEY"
TOKEN_VARIABLE = "AZURE_OPENAI_AD_TOKEN"  # noqa: S105 - a variable's name
VERSION_VARIABLE = "OPENAI_API_VERSION"
VARIABLES = CloudVariables(
    needed=((ADDRESS_VARIABLE,), (VERSION_VARIABLE,), (TOKEN_VARIABLE, KEY_VARIABLE)),
    secrets=(KEY_VARIABLE, TOKEN_VARIABLE),
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
        cloud = {**options.cloud, **({KEY_VARIABLE: api_key} if api_key else {})}
        VARIABLES.require("azure", cloud, base_url=base_url, address=ADDRESS_VARIABLE)
        if not model:
            raise SettingsError("The provider `azure` needs the name of your deployment as its `model`.")
        # As the SDK does: a token goes before a key.
        self._token = "" if api_key else cloud.get(TOKEN_VARIABLE, "")
        service = ModelService(
            name="Azure OpenAI",
            model=model,
            url=checked_url(cloud[ADDRESS_VARIABLE], default=""),
            key_variable=TOKEN_VARIABLE if self._token else KEY_VARIABLE,
            secret=self._token or cloud[KEY_VARIABLE],
        )
        super().__init__(service, options=options, api=options.api or "chat", compatible=False)

    @override
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> openai.AsyncOpenAI:
        import openai  # noqa: PLC0415 - see SdkProvider._client

        secret = settings.pop("api_key")
        return openai.AsyncAzureOpenAI(
            http_client=openai.DefaultAsyncHttpxClient(verify=trusted),
            azure_endpoint=settings.pop("base_url"),
            api_version=self._options.cloud[VERSION_VARIABLE],
            **({"azure_ad_token": secret} if self._token else {"api_key": secret}),
            **settings,
        )
