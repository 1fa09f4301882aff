"""Any model of the `llm` package, streamed: https://llm.datasette.io.

`llm` finds models by its plugins, and keys by its own means (`llm keys set`, an environment variable that the plugin
names); a key given to us goes before these.
"""

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
    arguments_of,
)
from agent_runtime.providers.retry import BrokenOffError, Failure, ModelService, verdict
from agent_runtime.providers.sdk import yield_regularly

if TYPE_CHECKING:
    import llm
    from llm.parts import Message as Part
    from llm.parts import StreamEvent

    _Model = llm.Model | llm.KeyModel | llm.AsyncModel | llm.AsyncKeyModel

_READ_TIMEOUTS = frozenset({"APITimeoutError", "ReadTimeout"})
"""Names of errors for a service that took a request and said nothing."""

_NETWORK = frozenset({"httpcore", "httpx", "httpx2", "requests", "urllib3"})
"""Packages whose errors, when they carry no HTTP status, mean that the connection failed."""


class LLMProvider:
    """A model of the `llm` package: its async form where it has one, else the plain one in a thread.

    The options of a model differ from plugin to plugin, so of `ModelOptions` only `temperature` and `max_tokens` are
    passed on, and only to models that name them among their own. `llm` tells neither cached tokens nor why a reply
    ended: all tokens sent count as uncached, and every reply as complete. It does tell which kinds of images a model
    takes; the model gets a note in place of one of another kind.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Get ready; nothing is sent yet.

        Args:
            api_key: goes before the key that `llm` would find; a name under which `llm` keeps one will do.
            model: a model's id or alias, as `llm models` lists them; None for the default that `llm` is set to.
            base_url: not for `llm`, whose plugins know where to ask.
            options: everything else.

        Raises:
            SettingsError: `llm` is not installed, or knows no such model; an address is given; or `images` is True and
                the model takes none.
        """
        if base_url:
            raise SettingsError(
                f"The provider `llm` does not support base_url ({base_url!r}): its plugins set the address. "
                f"For a compatible server use the provider `openai`."
            )
        self._options = options or ModelOptions()
        if find_spec("llm") is None:
            raise SettingsError("The provider `llm` needs the package llm: pip install codepilot-bot[llm]")
        import llm  # noqa: PLC0415 - an optional extra, and slow to load

        wanted = model or str(llm.get_default_model())  # type: ignore[no-untyped-call]  # llm leaves it untyped
        # Of each id or alias, the async form goes first.
        models: dict[str, _Model] = {**llm.get_model_aliases(), **llm.get_async_model_aliases()}
        if wanted not in models:
            close = get_close_matches(wanted, sorted(models), n=1, cutoff=0.5)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise SettingsError(
                f"The package llm knows no model {wanted!r}. {hint}"
                f"`llm models` lists what is known; `llm install` adds a plugin that brings more."
            )
        self._model = models[wanted]
        if self._options.images and not _image_kinds(self._model):
            raise SettingsError(
                f"The package llm says that {self._model.model_id!r} takes no images, so `images` cannot be true. "
                f"Leave it out, or choose another `model`."
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
        """The model's id, as `llm` knows it."""
        return self._model.model_id

    @property
    def sees_images(self) -> bool:
        """Whether the model takes images, unless the options say that it must get none."""
        return self._options.images is not False and bool(_image_kinds(self._model))

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred where the model's plugin says that it calls tools."""
        return "preferred" if self._model.supports_tools else "unsupported"

    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`."""
        return self._options.retry.run(lambda: self._attempt(request), self._service)

    async def close(self) -> None:
        """Do nothing: plugins keep their connections to themselves."""

    async def _attempt(self, request: Request) -> AsyncGenerator[Piece]:
        import llm  # noqa: PLC0415 - an optional extra, looked for when the provider was made

        joiner, calls, broken = BlockJoiner(), _Calls(), False
        with plugin_errors(self._service):
            known = self._model.Options.model_fields
            wanted = {"temperature": self._options.temperature, "max_tokens": self._options.max_tokens}
            options: dict[str, object] = {
                name: value for name, value in wanted.items() if value is not None and name in known
            }
            response = _prepare_response(self._model, request, key=self._key, options=options)
            events: AsyncGenerator[StreamEvent] = (
                response.astream_events()  # type: ignore[no-untyped-call]  # llm leaves it untyped
                if isinstance(response, llm.AsyncResponse)
                else events_in_thread(response)
            )
        async with aclosing(events):
            arriving = yield_regularly(events)
            while True:
                with plugin_errors(self._service):
                    try:
                        event = await anext(arriving, None)
                    except json.JSONDecodeError:  # plugins read the arguments, and what is wrong is for the model
                        if not calls.seen:
                            raise
                        broken, event = True, None
                if event is None:
                    break
                if event.type == "text" and event.chunk:
                    yield TextChunk(text=joiner.join((event.message_index, event.part_index), event.chunk))
                elif event.type in {"tool_call_name", "tool_call_args"} and not event.server_executed:
                    yield calls.take(event)
        if broken:
            yield ReplyEnd(stop="stop", usage=Usage(requests=1, cost_usd=None))
            return
        with plugin_errors(self._service):
            later = await response.tool_calls() if isinstance(response, llm.AsyncResponse) else response.tool_calls()
            used = await response.usage() if isinstance(response, llm.AsyncResponse) else response.usage()
        for index, call in enumerate(() if calls.seen else later):
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            yield CallChunk(index=index, id=call.tool_call_id or "", name=call.name, arguments=arguments)
        usage = Usage(requests=1, input_tokens=used.input or 0, output_tokens=used.output or 0)
        yield ReplyEnd(stop="stop", usage=load_prices().priced(self.model, usage))


def _prepare_response(
    model: _Model, request: Request, *, key: str | None, options: dict[str, object]
) -> llm.Response | llm.AsyncResponse:
    """Prepare the response to a request.

    The history is told in both ways that plugins read it: as messages, and as the earlier responses of a conversation.
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
    for number, (asked, replied) in enumerate(zip(earlier[::2], earlier[1::2], strict=True)):
        said = [each.to_dict() for each in _llm_messages(model, replied, None)]
        response = kind.from_dict({"model": model.model_id, "messages": said, "prompt": {}}, model=model)
        shown = _attachments(model, asked.images)
        results = _tool_results(model, asked, earlier[2 * number - 1] if number else None)
        response.prompt = llm.Prompt(_message_text(model, asked), model=model, attachments=shown, tool_results=results)  # type: ignore[no-untyped-call]  # the same
        response.attachments = shown
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


def _llm_messages(model: _Model, message: Message, before: Message | None) -> list[Part]:
    """Translate a message for `llm`: answers to calls are a message of their own."""
    from llm.parts import AttachmentPart, TextPart, ToolCallPart, ToolResultPart  # noqa: PLC0415 - the same
    from llm.parts import Message as Part  # noqa: PLC0415 - the same

    text = _message_text(model, message)
    parts: list[Any] = [TextPart(text=text)] if text or not (message.requests or message.answers) else []
    parts += [AttachmentPart(attachment=each) for each in _attachments(model, message.images)]
    parts += [
        ToolCallPart(name=each.name, arguments=arguments_of(each), tool_call_id=each.id) for each in message.requests
    ]
    results = [
        ToolResultPart(
            name=each.name, output=each.output, tool_call_id=each.tool_call_id, attachments=[*each.attachments]
        )
        for each in _tool_results(model, message, before)
    ]
    answers = [Part(role="tool", parts=[*results])] if results else []
    return [*answers, Part(role=message.role, parts=parts)] if parts else answers


def _tool_results(model: _Model, message: Message, before: Message | None) -> list[llm.ToolResult]:
    """Translate the answers of a message to the calls of the one before it."""
    import llm  # noqa: PLC0415 - see LLMProvider._attempt

    names = {each.id: each.name for each in before.requests} if before is not None else {}
    return [
        llm.ToolResult(
            name=names.get(each.id, ""),
            output=_with_notes(model, each.text, each.images),
            tool_call_id=each.id,
            attachments=_attachments(model, each.images),
        )
        for each in message.answers
    ]


@dataclass(slots=True)
class _Calls:
    """The calls of a reply, distinguished by their ids, or without ids by their order."""

    seen: dict[str, int] = field(default_factory=dict)
    unnamed: int = 0

    def take(self, event: StreamEvent) -> CallChunk:
        """The chunk for a piece of a call."""
        name = event.chunk if event.type == "tool_call_name" else ""
        self.unnamed += bool(name and not event.tool_call_id)
        key = event.tool_call_id or f" {self.unnamed}"
        index = self.seen.setdefault(key, len(self.seen))
        return CallChunk(index=index, id=event.tool_call_id or "", name=name, arguments="" if name else event.chunk)


def _image_kinds(model: _Model) -> frozenset[str]:
    """Return the kinds of images that a model takes."""
    return frozenset(get_args(MediaType)) & model.attachment_types


def _message_text(model: _Model, message: Message) -> str:
    """Return a message's text, with a note for each image that the model does not take."""
    return _with_notes(model, message.text, message.images)


def _with_notes(model: _Model, text: str, images: Sequence[Image]) -> str:
    notes = [
        f"[Image {number} is not shown: the model takes no {image.media_type}.]"
        for number, image in enumerate(images, start=1)
        if image.media_type not in model.attachment_types
    ]
    return "\n\n".join([*([text] if text or not notes else []), *notes])


def _attachments(model: _Model, images: Sequence[Image]) -> list[llm.Attachment]:
    """Return the images that the model takes."""
    import llm  # noqa: PLC0415 - see LLMProvider._attempt

    taken = [image for image in images if image.media_type in model.attachment_types]
    return [llm.Attachment(type=image.media_type, content=base64.b64decode(image.data)) for image in taken]


async def events_in_thread(response: llm.Response) -> AsyncGenerator[StreamEvent]:
    """Yield the events of a model without async, each awaited in one thread for this reply.

    A reader that leaves early does not wait: the thread ends when the model gives its next piece.
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
def plugin_errors(service: ModelService) -> Iterator[None]:
    """Turn the errors of a plugin into ours. Only its code runs in here, so that a bug of ours stays one."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a plugin is a stranger's code with errors of its own
        import llm  # noqa: PLC0415 - see LLMProvider._attempt

        # Most plugins let their client's errors through, which carry an HTTP status.
        said = f"{type(error).__name__}: {error}"
        status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int):
            code = getattr(error, "code", None)
            failure = Failure(status=status, code=code if isinstance(code, str) else "", message=str(error))
            raise verdict(failure, service) from None
        kinds = type(error).__mro__
        is_connection = isinstance(error, OSError) or any(
            kind.__module__.partition(".")[0] in _NETWORK or kind.__name__.endswith(("ConnectionError", "TimeoutError"))
            for kind in kinds
        )
        if not isinstance(error, llm.ModelError) and is_connection:
            silent = any(kind.__name__ in _READ_TIMEOUTS for kind in kinds)
            raise BrokenOffError(service.clean(said), silent=silent) from None
        raise ModelRejectedError(
            f"Model {service.model!r} of the package llm failed ({service.clean(said)}). "
            f"Check it with `llm -m {service.model} hello`; a missing key is set with `llm keys set`."
        ) from None
