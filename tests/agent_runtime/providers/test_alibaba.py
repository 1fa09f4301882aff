from __future__ import annotations

import pytest

from agent_runtime.core.errors import ContextOverflowError, ModelRefusedError, ModelRejectedError
from agent_runtime.providers.catalog import AlibabaProvider, provider_for
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import Provider
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.providers.conversations import KEY, Collected, Naps, collect, conversation
from tests.agent_runtime.providers.test_calls_on_the_wire import CALLS, requests_of
from tests.agent_runtime.providers.test_calls_on_the_wire import conversation as with_calls
from tests.model_server import Fails, ModelServer, Says, Tokens


def provider_on(server: ModelServer, **options: object) -> Provider:
    settings = ModelOptions(retry=Naps().retry(), **options)  # type: ignore[arg-type]  # each test names its own
    return provider_for("alibaba", api_key=KEY, base_url=server.url_openai, options=settings)


async def request(server: ModelServer, **options: object) -> Collected:
    provider = provider_on(server, **options)
    try:
        return await collect(provider.reply(conversation(2, status="Step 2.")))
    finally:
        await provider.close()


async def test_alibaba_uses_chat_completions_with_the_default_model_and_known_parameters() -> None:
    async with ModelServer(replies=["Ni hao."]) as server:
        reply = await request(server, api="responses", cache_key="session-1", reasoning_effort="high")
    assert reply.text == "Ni hao."
    received = server.requests[0]
    assert received.wire == "chat"
    assert set(received.json) == {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert received.json["model"] == AlibabaProvider.keyed_api.default_model
    assert received.headers["Authorization"] == f"Bearer {KEY}"


async def test_alibaba_requests_parallel_calls() -> None:
    async with ModelServer(replies=[Says("", calls=CALLS)]) as server:
        provider = provider_on(server)
        reply = await collect(provider.reply(with_calls(1)))
        await provider.close()
    assert [each.arguments for each in requests_of(reply)] == [arguments for _, _, arguments in CALLS]
    assert server.requests[0].json["parallel_tool_calls"] is True


async def test_tokens_are_counted_and_their_cost_is_unknown() -> None:
    async with ModelServer(replies=[Says("Hi.", tokens=Tokens(uncached=30, cached=70, output=5))]) as server:
        reply = await request(server)
    assert reply.end is not None
    usage = reply.end.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.cost_usd) == (30, 70, 5, None)


async def test_alibaba_uses_the_mainland_service_by_default() -> None:
    for url, place in (
        (None, AlibabaProvider.mainland_url),
        (AlibabaProvider.international_url, AlibabaProvider.international_url),
    ):
        provider = AlibabaProvider(api_key=KEY, base_url=url)
        assert provider._service.address == place
        await provider.close()


@pytest.mark.parametrize(
    ("fault", "error", "remedy"),
    [
        (
            Fails(400, "Arrearage", "Access denied, please make sure your account is in good standing."),
            ModelRejectedError,
            "no credit left. Top it up, or set the argument `api_key`",
        ),
        (
            Fails(400, "data_inspection_failed", "Input data may contain inappropriate content."),
            ModelRefusedError,
            "declined to answer",
        ),
        (
            Fails(400, "invalid_parameter_error", "Range of input length should be [1, 258048]"),
            ContextOverflowError,
            "no longer fits",
        ),
        (
            Fails(401, "invalid_api_key", "Incorrect API key provided."),
            ModelRejectedError,
            "Check the argument `api_key`",
        ),
        (Fails(404, "model_not_found", "The model `x` does not exist."), ModelRejectedError, "Set `model`"),
    ],
)
async def test_errors_of_dashscope_are_classified(fault: Fails, error: type[Exception], remedy: str) -> None:
    async with ModelServer(replies=[fault]) as server:
        with pytest.raises(error, match=remedy):
            await request(server)
    assert len(server.requests) == 1


async def test_a_throttled_request_is_tried_again() -> None:
    busy = Fails(429, "Throttling.RateQuota", "Requests rate limit exceeded")
    async with ModelServer(replies=[busy, "Hi."]) as server:
        assert (await request(server)).text == "Hi."


async def test_images_are_sent_as_all_compatible_servers_take_them() -> None:
    image = picture()
    async with ModelServer(replies=["Hao."]) as server:
        provider = provider_on(server, images=True)
        await collect(provider.reply(conversation(images=(image,))))
        await provider.close()
    assert provider.sees_images
    content = server.requests[0].json["messages"][1]["content"]
    assert content == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image.data}"}},
        {"type": "text", "text": "Fix the bug."},
    ]
