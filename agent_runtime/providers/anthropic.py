"""Anthropic itself, and servers that speak its Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_runtime.providers.anthropic_client import AnthropicClient
from agent_runtime.providers.faults import ModelService
from agent_runtime.providers.options import ModelOptions, checked_key, checked_url, is_foreign_address, is_own_address

if TYPE_CHECKING:
    import ssl

    from anthropic import AsyncAnthropic

DEFAULT_MODEL = "claude-sonnet-5-5"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
HOSTS = ("api.anthropic.com",)
_URL = "https://api.anthropic.com"


class AnthropicProvider(AnthropicClient):
    """Models of Anthropic, or of a server that speaks its Messages API."""

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Get ready; nothing is sent yet. A server of one's own, named by `base_url`, may need no key.

        Raises:
            SettingsError: there is no usable key, the address is none, or the model cannot think as it should.
        """
        options = options or ModelOptions()
        variable, own = options.key_variable or KEY_VARIABLE, is_own_address(base_url, HOSTS)
        service = ModelService(
            name="Anthropic",
            model=model or DEFAULT_MODEL,
            url=checked_url(base_url, default=_URL),
            key_variable=variable,
            secret=checked_key(api_key, provider="anthropic", variable=variable, optional=not own),
            foreign=is_foreign_address(base_url, HOSTS, key_variable=options.key_variable, usual=KEY_VARIABLE),
        )
        super().__init__(service, options)

    @override
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> AsyncAnthropic:
        import anthropic  # noqa: PLC0415 - see SdkProvider._client

        return anthropic.AsyncAnthropic(http_client=anthropic.DefaultAsyncHttpxClient(verify=trusted), **settings)
