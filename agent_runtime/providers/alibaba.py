"""Alibaba's models through DashScope, which speaks OpenAI's Chat Completions.

The service: https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope; its errors, which
`faults` knows: https://www.alibabacloud.com/help/en/model-studio/error-code; several calls in one reply, only if they
are asked for: https://www.alibabacloud.com/help/en/model-studio/qwen-function-calling.
"""

from __future__ import annotations

from dataclasses import replace

from agent_runtime.providers.faults import ModelService
from agent_runtime.providers.openai_client import OpenAIClient
from agent_runtime.providers.options import ModelOptions, checked_key, checked_url, is_own_address

DEFAULT_MODEL = "qwen3.7-max"
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
            model=model or DEFAULT_MODEL,
            url=checked_url(base_url, default=MAINLAND_URL),
            key_variable=variable,
            secret=checked_key(
                api_key, provider="alibaba", variable=variable, optional=not is_own_address(base_url, HOSTS)
            ),
            foreign=True,  # to the SDK, which is OpenAI's
        )
        known = replace(options, api=None, cache_key=None, reasoning_effort=None)
        super().__init__(service, options=known, api="chat", compatible=True, parallel_on_request=True)
