"""Models of Pygent's protocol, and how the agent runtime speaks to them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol, runtime_checkable

from agent_runtime.compat.pygent.config import service_key
from agent_runtime.compat.pygent.errors import APIError
from agent_runtime.compat.pygent.growing import Growing
from agent_runtime.compat.pygent.history import events_of
from agent_runtime.compat.pygent.openai_compat import Message as ChatMessage
from agent_runtime.compat.pygent.openai_compat import ToolCall, ToolCallFunction, as_dict, parse_message
from agent_runtime.context.estimate import estimate_message
from agent_runtime.context.transcript import messages as conversation
from agent_runtime.core.errors import ModelError, SettingsError
from agent_runtime.core.outcome import Usage
from agent_runtime.processes.daemon_thread import run_in_daemon_thread
from agent_runtime.processes.loop_thread import LoopThread
from agent_runtime.providers.catalog import provider_for
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    Provider,
    ReplyEnd,
    ReplyStart,
    Request,
    TextChunk,
    ToolCalling,
    ToolSchema,
)


@runtime_checkable
class Model(Protocol):
    """A model: one call, one message."""

    def chat(self, messages: list[dict[str, Any]], model: str, tools: Any) -> Any:  # noqa: ANN401 - see below
        """Answer a conversation.

        Args:
            messages: in the form of OpenAI's chat API, the system message first.
            model: the model's name.
            tools: the tools, in the same form.

        Returns:
            A `Message`, the same as a dictionary, or what OpenAI's client gives.
        """
        ...


class OpenAIModel:
    """A model of OpenAI, or of a service with its API: `OPENAI_API_KEY` and `OPENAI_BASE_URL` say which."""

    def chat(self, messages: list[dict[str, Any]], model: str, tools: Any) -> ChatMessage:  # noqa: ANN401 - see `Model`
        """Answer a conversation; see `Model`.

        Raises:
            APIError: there is no key, or the service failed.
        """
        system = next((each["content"] for each in messages if as_dict(each)["role"] == "system"), "")
        request = Request(
            system=system,
            messages=conversation(events_of(messages, str)),
            tools=tuple(ToolSchema(**each["function"]) for each in tools or ()),
        )
        thread = LoopThread("OpenAIModel")
        try:
            return thread.see(partial(_answered, provider_of(self, model), request))
        except (ModelError, SettingsError) as error:
            raise APIError(str(error)) from error
        finally:
            thread.stop()


class _Chosen:
    """The model that was chosen for all agents."""

    model: Model | Provider | None = None


def set_custom_model(model: Model | Provider | None) -> None:
    """Choose the model of new agents that are given none; None for OpenAI's again."""
    _Chosen.model = model


def default_model() -> Model | Provider:
    """The model of an agent that is given none."""
    return _Chosen.model or OpenAIModel()


def provider_of(model: Model | Provider, name: str) -> Provider:
    """A model as the agent runtime speaks to it.

    Args:
        model: a model of Pygent's protocol, or a provider of this library.
        name: the model's name.

    Raises:
        SettingsError: it is OpenAI's, and there is no key.
        TypeError: it is no model.
    """
    if type(model) is OpenAIModel:  # one with a `chat` of its own is asked by that
        key, address = service_key()
        return provider_for("openai", model=name, api_key=key, base_url=address)
    if isinstance(model, Model):
        return _ChatProvider(model, name)
    if callable(getattr(model, "reply", None)):
        return model
    raise TypeError(f"{model!r} is no model: it has neither chat(messages, model, tools) nor reply(request).")


class _ChatProvider:
    """Asks a model of Pygent's protocol, in a thread that is not waited for when the run is stopped."""

    sees_images = False

    def __init__(self, model: Model, name: str) -> None:
        self._model, self.model = model, name
        self._as_dicts = Growing(_as_dicts)
        self._tokens = Growing(estimate_message)

    @property
    def tool_calling(self) -> ToolCalling:
        """Always by tool calls."""
        return "preferred"

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request. Whatever the model raises goes on to who called the agent."""
        yield ReplyStart(attempt=1)
        told = [{**each} for message in self._as_dicts(request.messages) for each in message]
        told = [{"role": "system", "content": request.system}, *told]
        tools = [{"type": "function", "function": asdict(each)} for each in request.tools]
        message = parse_message(await run_in_daemon_thread(partial(self._model.chat, told, self.model, tools)))
        if message.content:
            yield TextChunk(text=message.content)
        calls = message.tool_calls or ()
        for index, call in enumerate(calls):
            yield CallChunk(index=index, id=call.id, name=call.function.name, arguments=call.function.arguments)
        written = "".join([message.content or "", *(each.function.name + each.function.arguments for each in calls)])
        usage = Usage(
            requests=1,
            input_tokens=sum(self._tokens(request.messages)),
            output_tokens=estimate_message(Message(role="assistant", text=written)),
            cost_usd=None,
        )
        yield ReplyEnd(stop="stop", usage=usage)

    async def close(self) -> None:
        """Nothing to give back: the model is the caller's."""


def _as_dicts(message: Message) -> list[dict[str, Any]]:
    """A message in the form of OpenAI's chat API: answers to calls are messages of their own there."""
    told: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": each.id, "content": each.text} for each in message.answers
    ]
    if message.text or message.requests:
        told.append({"role": message.role, "content": message.text or None})
    if message.requests:
        told[-1]["tool_calls"] = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
            for each in message.requests
        ]
    return told


async def _answered(provider: Provider, request: Request) -> ChatMessage:
    """The whole reply to one request."""
    text, calls = "", dict[int, tuple[str, str, str]]()
    try:
        async with aclosing(provider.reply(request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case ReplyStart():
                        text, calls = "", {}
                    case TextChunk():
                        text += chunk.text
                    case CallChunk():
                        known = calls.get(chunk.index, ("", "", ""))
                        calls[chunk.index] = (known[0] + chunk.id, known[1] + chunk.name, known[2] + chunk.arguments)
                    case _:
                        pass
    finally:
        await provider.close()
    found = [ToolCall(id_, "function", ToolCallFunction(name, args)) for _, (id_, name, args) in sorted(calls.items())]
    return ChatMessage("assistant", text or None, found or None)
