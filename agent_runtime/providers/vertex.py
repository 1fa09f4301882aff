"""Anthropic's models at Google Cloud's Vertex AI, through the client of Anthropic's SDK.

The credentials are Google's application default credentials: a file that GOOGLE_APPLICATION_CREDENTIALS names, a
person's login, or the machine's service account. Names of models:
https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_runtime.providers.anthropic_client import AnthropicClient
from agent_runtime.providers.cloud import CloudVariables, require_extra
from agent_runtime.providers.faults import ModelService
from agent_runtime.providers.options import ModelOptions, checked_url

if TYPE_CHECKING:
    import ssl

    from anthropic import AsyncAnthropicVertex

DEFAULT_MODEL = "claude-sonnet-5-5"
ADDRESS_VARIABLE = "ANTHROPIC_VERTEX_BASE_URL"
VARIABLES = CloudVariables(needed=(("CLOUD_ML_REGION",), ("ANTHROPIC_VERTEX_PROJECT_ID",)), further=(ADDRESS_VARIABLE,))


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
        VARIABLES.require("vertex", options.cloud, base_url=base_url, address=ADDRESS_VARIABLE)
        service = ModelService(
            name="Vertex AI",
            model=model or DEFAULT_MODEL,
            url=checked_url(options.cloud.get(ADDRESS_VARIABLE), default="https://aiplatform.googleapis.com/v1"),
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
            **{**settings, "base_url": cloud.get(ADDRESS_VARIABLE)},
        )

    @override
    def _without_credentials(self) -> tuple[type[Exception], ...]:
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - see SdkProvider._client

        return (GoogleAuthError, RuntimeError, ValueError)
