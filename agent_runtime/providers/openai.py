"""OpenAI, and servers compatible with it."""

from __future__ import annotations

from typing_extensions import override

from agent_runtime.providers.faults import ModelService
from agent_runtime.providers.openai_client import OpenAIClient
from agent_runtime.providers.options import ModelOptions, checked_key, checked_url, is_foreign_address, is_own_address
from agent_runtime.providers.protocol import ToolCalling

DEFAULT_MODEL = "gpt-6.2-sol"
KEY_VARIABLE = "OPENAI_API_KEY"
HOSTS = ("api.openai.com",)
_URL = "https://api.openai.com/v1"


class OpenAIProvider(OpenAIClient):
    """Models of OpenAI, or of a server that speaks one of its APIs.

    OpenAI itself is asked through the Responses API, and any other `base_url` through Chat Completions, which is
    what compatible servers speak; `ModelOptions.api` overrides this.
    """

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
            SettingsError: there is no usable key, or the address is none.
        """
        options = options or ModelOptions()
        compatible = bool(base_url)
        variable = options.key_variable or KEY_VARIABLE
        service = ModelService(
            name="The OpenAI-compatible server" if compatible else "OpenAI",
            model=model or DEFAULT_MODEL,
            url=checked_url(base_url, default=_URL),
            key_variable=variable,
            secret=checked_key(
                api_key, provider="openai", variable=variable, optional=not is_own_address(base_url, HOSTS)
            ),
            foreign=is_foreign_address(base_url, HOSTS, key_variable=options.key_variable, usual=KEY_VARIABLE),
        )
        super().__init__(
            service,
            options=options,
            api=options.api or ("chat" if compatible else "responses"),
            compatible=compatible,
        )

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        """Never preferred on somebody else's server, which may have to be told to parse calls."""
        return "supported" if self._compatible else super().tool_calling
