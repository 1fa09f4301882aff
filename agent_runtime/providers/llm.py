"""Models of the `llm` package: https://llm.datasette.io. Its plugins find models and keys."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, get_args

from agent_runtime.core.errors import ModelRejectedError, SettingsError
from agent_runtime.core.values import Image, MediaType, Usage
from agent_runtime.providers.faults import ModelService, classify, describe_error
from agent_runtime.providers.models import ModelOptions, load_prices
from agent_runtime.providers.protocol import (
    BlockJoiner,
    CallChunk,
    Chunk,
    Message,
    Piece,
    ReplyEnd,
    Request,
    TextChunk,
    ToolCalling,
    parse_arguments,
)
from agent_runtime.providers.sdk import yield_cooperatively

if TYPE_CHECKING:
    import llm
    from llm.parts import Message as Part
    from llm.parts import StreamEvent

    _Model = llm.Model | llm.KeyModel | llm.AsyncModel | llm.AsyncKeyModel


class LLMProvider:
    """A model of the `llm` package, async or in a thread.

    Only `temperature` and `max_tokens` are passed on. Every reply counts as complete, as `llm` has no stop reasons.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Validate the settings; send nothing.

        Args:
            api_key: overrides `llm`'s; may be a name of a stored key.
            model: id or alias; None for `llm`'s default.
        """
        if base_url:
            raise SettingsError(
                f"The provider `llm` does not support base_url ({base_url!r}): its plugins set the address. "
                f"For a compatible server use the provider `openai`."
            )
        self._options = options or ModelOptions()
        if find_spec("llm") is None:
            raise SettingsError("The provider `llm` needs the package llm: install codepilot-bot[llm]")
        import llm  # noqa: PLC0415 - an optional extra, and slow to load

        name = model or str(llm.get_default_model())  # type: ignore[no-untyped-call]  # llm leaves it untyped
        # Of each id or alias, the async form goes first.
        models: dict[str, _Model] = {**llm.get_model_aliases(), **llm.get_async_model_aliases()}
        if name not in models:
            matches = get_close_matches(name, sorted(models), n=1, cutoff=0.5)
            hint = f"Did you mean {matches[0]!r}? " if matches else ""
            raise SettingsError(
                f"The package llm knows no model {name!r}. {hint}"
                f"`llm models` lists what is known; `llm install` adds a plugin that brings more."
            )
        self._model = models[name]
        if self._options.images and not _supported_images(self._model):
            raise SettingsError(
                f"The package llm says that {self._model.model_id!r} takes no images, so `images` cannot be true. "
                f"Leave it out, or choose another model."
            )
        self._key = (api_key or "").strip() or None
        self._service = ModelService(
            name="llm",
            model=self._model.model_id,
            url="llm:",
            key_variable=self._model.key_env_var or "the model's key (`llm keys set`)",
            secret=self._key or "",
        )

    @property
    def model(self) -> str:
        return self._model.model_id

    @property
    def sees_images(self) -> bool:
        return self._options.images is not False and bool(_supported_images(self._model))

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred if the plugin supports tools."""
        return "preferred" if self._model.supports_tools else "unsupported"

    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        return self._options.retry.run(lambda: self._attempt(request), self._service)

    async def close(self) -> None: ...

    async def _attempt(self, request: Request) -> AsyncGenerator[Piece]:
        import llm  # noqa: PLC0415 - an optional extra, looked for when the provider was made

        joiner, calls, is_broken = BlockJoiner(), _CallIndex(), False
        with convert_plugin_errors(self._service):
            supported = self._model.Options.model_fields
            values = {"temperature": self._options.temperature, "max_tokens": self._options.max_tokens}
            options: dict[str, object] = {
                name: value for name, value in values.items() if value is not None and name in supported
            }
            response = _prepare_response(self._model, request, key=self._key, options=options)
            events: AsyncGenerator[StreamEvent] = (
                response.astream_events()  # type: ignore[no-untyped-call]  # llm leaves it untyped
                if isinstance(response, llm.AsyncResponse)
                else stream_in_thread(response)
            )
        async with aclosing(events):
            stream = yield_cooperatively(events)
            while True:
                with convert_plugin_errors(self._service):
                    try:
                        event = await anext(stream, None)
                    except json.JSONDecodeError:  # plugins read the arguments, and what is wrong is for the model
                        if not calls.indexes:
                            raise
                        is_broken, event = True, None
                if event is None:
                    break
                if event.type == "text" and event.chunk:
                    yield TextChunk(text=joiner.join((event.message_index, event.part_index), event.chunk))
                elif event.type in {"tool_call_name", "tool_call_args"} and not event.server_executed:
                    yield calls.to_chunk(event)
        if is_broken:
            yield ReplyEnd(stop="stop", usage=Usage(requests=1, cost_usd=None))
            return
        with convert_plugin_errors(self._service):
            final = await response.tool_calls() if isinstance(response, llm.AsyncResponse) else response.tool_calls()
            counts = await response.usage() if isinstance(response, llm.AsyncResponse) else response.usage()
        for index, call in enumerate(() if calls.indexes else final):
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            yield CallChunk(index=index, id=call.tool_call_id or "", name=call.name, arguments=arguments)
        usage = Usage(requests=1, input_tokens=counts.input or 0, output_tokens=counts.output or 0)
        yield ReplyEnd(stop="stop", usage=load_prices().with_cost(self.model, usage))


def _prepare_response(
    model: _Model, request: Request, *, key: str | None, options: dict[str, object]
) -> llm.Response | llm.AsyncResponse:
    """Prepare the response to a request.

    Plugins read the history either from messages or from earlier responses, so both are set.
    """
    import llm  # noqa: PLC0415 - see LLMProvider._attempt
    from llm.parts import Message as Part  # noqa: PLC0415 - the same
    from llm.parts import TextPart  # noqa: PLC0415 - see LLMProvider._attempt

    *earlier, last = request.messages
    history = [Part(role="system", parts=[TextPart(text=request.system)])] if request.system else []
    for before, message in zip([None, *earlier], earlier, strict=False):
        history += _llm_messages(model, message, before)
    conversation = model.conversation()
    # Earlier exchanges, as `llm` would have kept them: a message of the user's, then one of the model's.
    kind: Any = llm.AsyncResponse if isinstance(model, llm.AsyncModel | llm.AsyncKeyModel) else llm.Response
    for number, (user, reply) in enumerate(zip(earlier[::2], earlier[1::2], strict=True)):
        parts = [part.to_dict() for part in _llm_messages(model, reply, None)]
        response = kind.from_dict({"model": model.model_id, "messages": parts, "prompt": {}}, model=model)
        images = _attachments(model, user.images)
        results = _tool_results(model, user, earlier[2 * number - 1] if number else None)
        response.prompt = llm.Prompt(_message_text(model, user), model=model, attachments=images, tool_results=results)  # type: ignore[no-untyped-call]  # the same
        response.attachments = images
        conversation.responses.append(response)
    tools: list[Any] = [
        llm.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters))
        for tool in request.tools
    ]
    return conversation.prompt(
        "\n\n".join(filter(None, [_message_text(model, last), request.status])),
        attachments=_attachments(model, last.images),
        system=request.system or None,
        messages=history,
        tools=tools or None,
        tool_results=_tool_results(model, last, earlier[-1] if earlier else None) or None,
        stream=model.can_stream,
        key=key,
        options=options,
    )


def _llm_messages(model: _Model, message: Message, previous: Message | None) -> list[Part]:
    from llm.parts import AttachmentPart, TextPart, ToolCallPart, ToolResultPart  # noqa: PLC0415 - the same
    from llm.parts import Message as Part  # noqa: PLC0415 - the same

    text = _message_text(model, message)
    parts: list[Any] = [TextPart(text=text)] if text or not (message.requests or message.answers) else []
    parts += [AttachmentPart(attachment=item) for item in _attachments(model, message.images)]
    parts += [
        ToolCallPart(name=item.name, arguments=parse_arguments(item), tool_call_id=item.id) for item in message.requests
    ]
    results = [
        ToolResultPart(
            name=item.name, output=item.output, tool_call_id=item.tool_call_id, attachments=[*item.attachments]
        )
        for item in _tool_results(model, message, previous)
    ]
    answers = [Part(role="tool", parts=[*results])] if results else []
    return [*answers, Part(role=message.role, parts=parts)] if parts else answers


def _tool_results(model: _Model, message: Message, previous: Message | None) -> list[llm.ToolResult]:
    import llm  # noqa: PLC0415 - see LLMProvider._attempt

    names = {item.id: item.name for item in previous.requests} if previous is not None else {}
    return [
        llm.ToolResult(
            name=names.get(item.id, ""),
            output=_append_notes(model, item.text, item.images),
            tool_call_id=item.id,
            attachments=_attachments(model, item.images),
        )
        for item in message.answers
    ]


@dataclass(slots=True)
class _CallIndex:
    indexes: dict[str, int] = field(default_factory=dict)
    anonymous_count: int = 0

    def to_chunk(self, event: StreamEvent) -> CallChunk:
        name = event.chunk if event.type == "tool_call_name" else ""
        self.anonymous_count += bool(name and not event.tool_call_id)
        key = event.tool_call_id or f" {self.anonymous_count}"
        index = self.indexes.setdefault(key, len(self.indexes))
        return CallChunk(index=index, id=event.tool_call_id or "", name=name, arguments="" if name else event.chunk)


def _supported_images(model: _Model) -> frozenset[str]:
    return frozenset(get_args(MediaType)) & model.attachment_types


def _message_text(model: _Model, message: Message) -> str:
    return _append_notes(model, message.text, message.images)


def _append_notes(model: _Model, text: str, images: Sequence[Image]) -> str:
    notes = [
        f"[Image {number} is not shown: the model takes no {image.media_type}.]"
        for number, image in enumerate(images, start=1)
        if image.media_type not in model.attachment_types
    ]
    return "\n\n".join([*([text] if text or not notes else []), *notes])


def _attachments(model: _Model, images: Sequence[Image]) -> list[llm.Attachment]:
    import llm  # noqa: PLC0415 - see LLMProvider._attempt

    supported = [image for image in images if image.media_type in model.attachment_types]
    return [llm.Attachment(type=image.media_type, content=base64.b64decode(image.data)) for image in supported]


async def stream_in_thread(response: llm.Response) -> AsyncGenerator[StreamEvent]:
    """Yield the events of a synchronous model through one thread.

    After an early exit, the thread ends with the model's next event.
    """
    events: Iterator[StreamEvent] = response.stream_events()  # type: ignore[no-untyped-call]  # the same
    loop, context = asyncio.get_running_loop(), copy_context()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="llm")
    try:
        while (event := await loop.run_in_executor(thread, lambda: context.run(next, events, None))) is not None:
            yield event
    finally:
        thread.submit(getattr(events, "close", int))
        thread.shutdown(wait=False)


@contextmanager
def convert_plugin_errors(service: ModelService) -> Iterator[None]:
    """Convert a plugin's errors; only plugin code may run inside."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a plugin is a stranger's code with errors of its own
        import llm  # noqa: PLC0415 - see LLMProvider._attempt

        # Most plugins let their client's errors through.
        if not isinstance(error, llm.ModelError) and (failure := describe_error(error)) is not None:
            raise classify(failure, service) from None
        message = f"{type(error).__name__}: {error}"
        raise ModelRejectedError(
            f"Model {service.model!r} of the package llm failed ({service.sanitize(message)}). "
            f"Check it with `llm -m {service.model} hello`; a missing key is set with `llm keys set`."
        ) from None
