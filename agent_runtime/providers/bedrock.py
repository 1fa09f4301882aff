"""Anthropic's models at Amazon Bedrock, through the client of Anthropic's SDK.

Requests are signed with the credentials that are given, or else with those that boto3 finds: a profile, or the role of
the machine. Names of models: https://docs.aws.amazon.com/bedrock/latest/userguide/models-supported.html.
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

    from anthropic import AsyncAnthropicBedrock

DEFAULT_MODEL = "global.anthropic.claude-sonnet-5-5"
ADDRESS_VARIABLE = "ANTHROPIC_BEDROCK_BASE_URL"
VARIABLES = CloudVariables(
    needed=(("AWS_REGION", "AWS_DEFAULT_REGION"),),
    further=(
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        ADDRESS_VARIABLE,
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
        VARIABLES.require("bedrock", cloud, base_url=base_url, address=ADDRESS_VARIABLE)
        self._region = cloud.get("AWS_REGION") or cloud["AWS_DEFAULT_REGION"]
        self._bearer = api_key or cloud.get("AWS_BEARER_TOKEN_BEDROCK")
        default = f"https://bedrock-runtime.{self._region}.amazonaws.com"
        service = ModelService(
            name="Amazon Bedrock",
            model=model or DEFAULT_MODEL,
            url=checked_url(cloud.get(ADDRESS_VARIABLE), default=default),
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
