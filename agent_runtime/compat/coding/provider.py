"""The provider of a `CodingAgent`: a model of the `llm` package, speaking in one of that package's conversations.

`Turn` matches the calls of the model's replies with their results, in the classes of `llm`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import llm
from llm.models import _trailing_pending_tool_calls
from llm.parts import Message as Said
from llm.parts import TextPart, ToolCallPart, ToolResultPart

from agent_runtime.core.events import Event, Observed, Replied, ToolReturned
from agent_runtime.core.values import ToolRequest, Usage
from agent_runtime.providers.faults import AttemptFailedError, ModelService
from agent_runtime.providers.llm import convert_plugin_errors, stream_in_thread
from agent_runtime.providers.models import load_prices
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
)
from agent_runtime.providers.retry import BRIEF_RETRY
from agent_runtime.providers.sdk import yield_cooperatively
from agent_runtime.run.loop import clip_value

Made = tuple[llm.ToolCall, llm.ToolResult]
_NOT_MADE = "Cancelled: the session ended before this call was made"


class ConversationProvider:
    """A provider that answers with a conversation's current model; each reply becomes a response of the conversation.

    System prompt and tools are the caller's; a request's own `system`, `tools` and `status` are not sent.

    Attributes:
        prompts: the user's prompt, sent in place of the runtime's first message; `llm logs` shows all that is sent.
    """

    sees_images = False

    def __init__(
        self,
        conversation: llm.Conversation,
        tools: Mapping[str, llm.Tool],
        *,
        system: Callable[[], str],
        done: Callable[[llm.Response], Awaitable[None]],
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Continue a conversation; nothing is sent yet.

        Args:
            done: called with each complete response.
            key: takes precedence over the key that `llm` would find.
        """
        self._conversation = conversation
        self._tools = tools
        self._system = system
        self._done = done
        self._key = key
        self._options = dict(options or {})
        # What was said so far, without the system prompt; calls that were left open are answered.
        chain = conversation._build_full_chain(None, None, None, None)  # noqa: SLF001 - llm has no other way
        self._before = [message for message in chain if message.role != "system"]
        if left := _trailing_pending_tool_calls(self._before):
            answers = [ToolResultPart(name=c.name, output=_NOT_MADE, tool_call_id=c.tool_call_id) for c in left]
            self._before.append(Said(role="tool", parts=[*answers]))
        self._responses: dict[str, llm.Response] = {}
        self._said: dict[tuple[Message, Message | None], list[Said]] = {}
        self._first: list[Said] = []
        self.prompts: dict[str, str] = {}

    @property
    def model(self) -> str:
        return self._conversation.model.model_id

    @property
    def tool_calling(self) -> ToolCalling:
        return "preferred"

    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        model = self._conversation.model
        service = ModelService(
            name="llm",
            model=model.model_id,
            url="llm:",
            key_variable=model.key_env_var or "the model's key (`llm keys set`)",
            secret=(self._key or "").strip(),
        )
        return BRIEF_RETRY.run(lambda: self._attempt(request, service), service)

    async def close(self) -> None: ...

    async def _attempt(self, request: Request, service: ModelService) -> AsyncGenerator[Piece]:
        joiner, broken = BlockJoiner(), ""
        with convert_plugin_errors(service):
            response = self._asked(request)
            events = stream_in_thread(response)
        async with aclosing(events):
            arriving = yield_cooperatively(events)
            while True:
                with convert_plugin_errors(service):
                    try:
                        event = await anext(arriving, None)
                    except json.JSONDecodeError as error:  # plugins read the arguments of calls
                        broken, event = str(error), None
                if event is None:
                    break
                if event.type == "text" and event.chunk:
                    yield TextChunk(text=joiner.join((event.message_index, event.part_index), event.chunk))
        if broken:
            text = f"the model wrote a call whose arguments are no JSON: {broken}"
            raise AttemptFailedError(text, billed=True, unreadable=True)
        self._responses[response.id] = response
        await self._done(response)
        with convert_plugin_errors(service):
            used, calls = response.usage(), response.tool_calls()
        for index, call in enumerate(calls):
            yield CallChunk(
                index=index, id=call.tool_call_id or "", name=call.name, arguments=json.dumps(call.arguments or {})
            )
        usage = Usage(requests=1, input_tokens=used.input or 0, output_tokens=used.output or 0)
        yield ReplyEnd(stop="stop", usage=load_prices().with_cost(self.model, usage), reasoning=response.id)

    def _asked(self, request: Request) -> llm.Response:
        """Return the response to a request, before its start."""
        *earlier, last = request.messages
        system = self._system()
        if not self._first or self._first[0].parts != [TextPart(text=system)]:
            self._first = [Said(role="system", parts=[TextPart(text=system)])]
        history = [*self._first, *self._before]
        previous: Message | None = None
        for message in earlier:
            history += self._told(message, previous)
            previous = message
        results, text = self._told_last(last, previous)
        model = self._conversation.model
        return self._conversation.prompt(
            text,
            system=None if self._before else system,
            messages=history,
            tools=[*self._tools.values()],
            tool_results=results,
            stream=model.can_stream,
            key=self._key,
            options=self._options,
        )

    def _told(self, message: Message, previous: Message | None) -> list[Said]:
        """Return a message in the form of `llm`; the same object each time, so that it is hashed once."""
        key = (message, previous)
        if key not in self._said:
            given = self._responses.get(message.reasoning)
            if message.role == "assistant" and given is not None:
                # Given here: the model's own words, with the provider's data on them.
                self._said[key] = given.messages()
            elif message.role == "assistant":
                calls = [
                    ToolCallPart(name=each.name, arguments=each.arguments, tool_call_id=each.tool_call_id)
                    for each in map(call_of, message.requests)
                ]
                words = [TextPart(text=message.text)] if message.text else []
                self._said[key] = [Said(role="assistant", parts=[*words, *calls])]
            else:
                results, text = self._told_last(message, previous)
                parts = [
                    ToolResultPart(name=each.name, output=each.output, tool_call_id=each.tool_call_id)
                    for each in results
                ]
                said = [Said(role="tool", parts=[*parts])] if parts else []
                self._said[key] = [*said, *([Said(role="user", parts=[TextPart(text=text)])] if text else [])]
        return self._said[key]

    def _told_last(self, message: Message, previous: Message | None) -> tuple[list[llm.ToolResult], str | None]:
        asked: dict[str, llm.ToolCall] = {}
        if previous:
            # With the ids that the model gave them, where it was asked here.
            given = self._responses.get(previous.reasoning)
            calls = [call_of(each) for each in previous.requests] if given is None else given.tool_calls()
            asked = dict(zip((each.id for each in previous.requests), calls, strict=True))
        results: list[llm.ToolResult] = []
        for answer in message.answers:
            call = asked[answer.id]
            tool = self._tools.get(call.name)
            results.append(
                llm.ToolResult(
                    name=call.name,
                    output=answer.text if answer.ok else f"Error: {answer.text}",
                    tool_call_id=call.tool_call_id,
                    instance=getattr(tool.implementation, "__self__", None) if tool else None,
                )
            )
        return results, self.prompts.get(message.text, message.text) or None


class Turn:
    """The calls of a run, matched with their results.

    Attributes:
        texts: the model's text beside its calls.
        made: finished or declined calls of one leg.
        declined: whether the next returning call was declined.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.made: list[Made] = []
        self.declined = False
        self._open: list[llm.ToolCall] = []
        self._earlier = 0

    @property
    def pending(self) -> list[llm.ToolCall]:
        """The newest reply's calls without a result."""
        return [*self._open]

    def begin(self) -> None:
        self.texts, self.made, self._earlier = [], [], 0

    def asked(self, tool: str, args: Mapping[str, object]) -> llm.ToolCall | None:
        """Return the open call with these arguments, maybe shortened, else the tool's next one."""
        calls = [each for each in self._open if each.name == tool]
        alike = (each for each in calls if args in (each.arguments, clip_value(each.arguments)))
        return next(alike, calls[0] if calls else None)

    def take(self, event: Event) -> Made | None:
        """Handle an event; return the call that it completes."""
        match event:
            case Replied(text=text, requests=requests):
                if text.strip():
                    self.texts.append(text)
                self._open, self._earlier = [call_of(each) for each in requests], len(self.made)
            case ToolReturned(tool=tool, args=args, text=text, ok=ok):
                call = self.asked(tool, args)
                if call is not None:
                    self._open.remove(call)
                declined, self.declined = self.declined, False
                call = call or llm.ToolCall(name=tool, arguments={**args})
                told = text if ok else f"Cancelled: {text}" if declined else f"Error: {text}"
                error = llm.CancelToolCall(text) if declined else None
                made = llm.ToolResult(name=call.name, output=told, tool_call_id=call.tool_call_id, exception=error)
                self.made.append((call, made))
                return None if declined else self.made[-1]
            case Observed(answers=answers):
                texts = {each.id: each.text if each.ok else f"Error: {each.text}" for each in answers}
                for call, result in self.made[self._earlier :]:
                    if result.exception is None:  # the record of a call leaves the middle of a long text out
                        result.output = texts.get(call.tool_call_id or "", result.output)
                for call in self._open:  # could not be made at all, e.g. of a tool that there is not
                    told = texts.get(call.tool_call_id or "", "")
                    self.made.append((call, llm.ToolResult(call.name, told, tool_call_id=call.tool_call_id)))
                self._open = []
                places = {each.id: number for number, each in enumerate(answers)}
                leg = self.made[self._earlier :]
                self.made[self._earlier :] = sorted(leg, key=lambda each: places.get(each[0].tool_call_id or "", 0))
            case _:
                pass
        return None


def call_of(request: ToolRequest) -> llm.ToolCall:
    """Return a call in the form of `llm`; invalid arguments are left out."""
    arguments: Any = {}
    with suppress(ValueError):  # the model is told so, as the answer
        arguments = json.loads(request.arguments or "{}")
    return llm.ToolCall(request.name, arguments if isinstance(arguments, dict) else {}, request.id)
