"""Pygent's messages, models, history, settings and errors, and the provider by which the runtime speaks to such models.

Messages have the form of OpenAI's chat API. `history_of` and `events_of` translate between a session's events and a
history of messages. `SpeakingProvider` sends an agent's own system message and tools to its model.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from agent_runtime.compat.pygent.tools import ENDING, Tools, registered_name
from agent_runtime.context.transcript import estimate_message
from agent_runtime.context.transcript import render_messages as conversation
from agent_runtime.core.errors import AgentError, ModelError, SessionError, SettingsError, ToolError
from agent_runtime.core.events import Ended, Imported, MessageInjected, Observed, Recorded, Recovered, Replied, Started
from agent_runtime.core.values import Outcome, Status, Task, ToolAnswer, ToolRequest, Usage
from agent_runtime.processes.spawn import LoopThread, run_in_daemon_thread
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Provider,
    ReplyEnd,
    ReplyStart,
    Request,
    TextChunk,
    ToolCalling,
    ToolSchema,
)
from agent_runtime.providers.protocol import Message as MessageProtocol
from agent_runtime.providers.recording import join_calls
from agent_runtime.providers.retry import BRIEF_RETRY
from agent_runtime.workspace.files import Workspace

A = TypeVar("A")
B = TypeVar("B")
END_ID = "pygent_end"
"""The id of the call that is added to a reply that stops: the runtime's own, which is hidden from the model."""
_FINISH = "finish"
_MOST_BYTES = 256 * 1024**2
_DEFAULT_FILES = (Path("pygent.toml"), Path("~/.pygent.toml"))


class PygentError(AgentError):
    """Base of the errors that Pygent names."""


class APIError(PygentError):
    """The model service failed, and trying again did not help."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a model."""

    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asks for."""

    id: str
    type: str
    function: ToolCallFunction


@dataclass(frozen=True, slots=True)
class ToolCallFunction:
    """A function that is to be called, and the JSON text of its arguments."""

    name: str
    arguments: str


def parse_message(raw: object) -> Message:
    """A message from what a model gave: a `Message`, a mapping, or an object of OpenAI's client.

    Raises:
        TypeError: it is none of these, or a part of it has another form.
    """
    if isinstance(raw, Message):
        return raw
    if not isinstance(raw, Mapping):
        for name in ("model_dump", "to_dict"):
            if callable(dump := getattr(raw, name, None)):
                return parse_message(dump())
        raise TypeError(f"Unsupported message type: {type(raw)!r}; give a Message or a dictionary.")
    content = raw.get("content")
    if content is not None and not isinstance(content, str):
        raise TypeError(f"A message's content must be a text, not {type(content).__name__}.")
    calls = [_call(each) for each in raw.get("tool_calls") or ()]
    return Message(role=str(raw.get("role", "assistant")), content=content, tool_calls=calls or None)


def _call(raw: object) -> ToolCall:
    """One call.

    Raises:
        TypeError: it has another form.
    """
    function = raw.get("function") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise TypeError('A tool call must be {"id": …, "type": "function", "function": {"name": …, "arguments": …}}.')
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        raise TypeError(f"The arguments of the tool call {function['name']!r} must be JSON text.")
    named = ToolCallFunction(function["name"], arguments)
    return ToolCall(str(raw.get("id") or ""), str(raw.get("type") or "function"), named)


def as_dict(message: Message | Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is sent and kept."""
    if not isinstance(message, Message):
        return dict(message)
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        told["tool_calls"] = [
            {
                "id": each.id,
                "type": each.type,
                "function": {"name": each.function.name, "arguments": each.function.arguments},
            }
            for each in message.tool_calls
        ]
    return told


Entry = Message | dict[str, Any]
"""A message of the model, or another one as a dictionary."""


@dataclass(frozen=True, slots=True)
class Persona:
    """A name, and what stands behind it as one sentence."""

    name: str
    description: str = ""


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


class OpenAIModel:
    """A model of OpenAI, or of a service with its API: `OPENAI_API_KEY` and `OPENAI_BASE_URL` say which."""

    def chat(self, messages: list[dict[str, Any]], model: str, tools: Any) -> Message:  # noqa: ANN401 - see `Model`
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
            return thread.run(partial(_read_reply, provider_of(self, model), request))
        except (ModelError, SettingsError) as error:
            raise APIError(str(error)) from error
        finally:
            thread.stop()


def set_custom_model(model: Model | Provider | None) -> None:
    """Choose the model of new agents that are given none; None for OpenAI's again."""
    _Chosen.model = model


def default_model() -> Model | Provider:
    """The model of an agent that is given none."""
    return _Chosen.model or OpenAIModel()


class _Chosen:
    """The model that was chosen for all agents."""

    model: Model | Provider | None = None


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
        endpoint = CATALOG["openai"].endpoint(os.environ)
        options = ModelOptions(retry=BRIEF_RETRY, key_variable=endpoint.key_variable, url_setting="OPENAI_BASE_URL")
        key = os.environ.get(endpoint.key_variable or "")
        return provider_for("openai", model=name, api_key=key, base_url=endpoint.base_url, options=options)
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
            output_tokens=estimate_message(MessageProtocol(role="assistant", text=written)),
            cost_usd=None,
        )
        yield ReplyEnd(stop="stop", usage=usage)

    async def close(self) -> None:
        """Nothing to give back: the model is the caller's."""


def _as_dicts(message: MessageProtocol) -> list[dict[str, Any]]:
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


async def _read_reply(provider: Provider, request: Request) -> Message:
    """Read the whole reply to one request, and close the provider."""
    text, pieces = "", list[CallChunk]()
    try:
        async with aclosing(provider.reply(request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case ReplyStart():
                        text, pieces = "", []
                    case TextChunk():
                        text += chunk.text
                    case CallChunk():
                        pieces.append(chunk)
                    case _:
                        pass
    finally:
        await provider.close()
    calls = [ToolCall(each.id, "function", ToolCallFunction(each.name, each.arguments)) for each in join_calls(pieces)]
    return Message("assistant", text or None, calls or None)


class SpeakingProvider:
    """Asks an agent's model in the agent's own words."""

    def __init__(self, model: Callable[[], Provider], tools: Tools, system: Callable[[], str]) -> None:
        """Speak for an agent.

        Args:
            model: gives its model.
            tools: what it may call.
            system: gives its system message.
        """
        self._model, self._tools, self._system = model, tools, system
        self._as_told = Growing(self._outer_message)

    @property
    def model(self) -> str:
        return self._model().model

    @property
    def sees_images(self) -> bool:
        return self._model().sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        return "preferred"

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        messages = self._as_told(request.messages)
        asked = Request(system=self._system(), messages=tuple(messages), tools=self._tools.declared())
        said, calls, stops = list[str](), 0, False
        async with aclosing(self._model().reply(asked)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case TextChunk(text=text):
                        said.append(text)
                        yield chunk
                    case CallChunk(index=index, name=name):
                        calls = max(calls, index + 1)
                        stops = stops or (name in ENDING and name in self._tools.functions)
                        own_id = "" if chunk.id == END_ID else chunk.id  # the transport gives it another one
                        yield replace(chunk, id=own_id, name=registered_name(name)) if name else chunk
                    case ReplyEnd(stop=stop) if stops and stop == "stop":
                        summary = json.dumps({"summary": "".join(said).strip() or "Stopped."})
                        yield CallChunk(index=calls, id=END_ID, name=_FINISH, arguments=summary)
                        yield chunk
                    case ReplyStart():
                        said, calls, stops = [], 0, False
                        yield chunk
                    case _:
                        yield chunk

    async def close(self) -> None:
        """Leave the model open: the agent closes it."""

    def name_of(self, registered: str) -> str:
        return next((name for name in self._tools.functions if registered_name(name) == registered), registered)

    def _outer_message(self, message: MessageProtocol) -> MessageProtocol:
        """A message with the names that the model knows, and without the call that was added."""
        requests = (each for each in message.requests if each.id != END_ID)
        return replace(
            message,
            requests=tuple(replace(each, name=self.name_of(each.name)) for each in requests),
            answers=tuple(each for each in message.answers if each.id != END_ID),
        )


class Growing(Generic[A, B]):
    def __init__(self, function: Callable[[A], B]) -> None:
        self._function = function
        self._known: list[tuple[A, B]] = []

    def __call__(self, items: Sequence[A]) -> list[B]:
        """Map the items; an item that is the same object as last time keeps its result."""
        known = self._known
        same = next((at for at, (old, new) in enumerate(zip(known, items, strict=False)) if old[0] is not new), None)
        del known[min(len(items), len(known)) if same is None else same :]
        known += [(item, self._function(item)) for item in items[len(known) :]]
        return [made for _, made in known]


def history_of(events: Iterable[Recorded], name_of: Callable[[str], str]) -> list[Entry]:
    """The messages that a session's log tells, without the system message.

    Args:
        events: the log.
        name_of: gives a tool's own name for the one in the log.
    """
    told: list[Entry] = []
    for event in events:
        match event:
            case Started(task=task):
                told.append({"role": "user", "content": task.goal})
            case MessageInjected(text=text):
                told.append({"role": "user", "content": text})
            case Replied(text=text, requests=requests):
                calls = [
                    ToolCall(each.id, "function", ToolCallFunction(name_of(each.name), each.arguments))
                    for each in requests
                    if each.id != END_ID
                ]
                told.append(Message("assistant", text or None, calls or None))
            case Observed(answers=answers, text=text):
                told += [
                    {"role": "tool", "content": each.text, "tool_call_id": each.id}
                    for each in answers
                    if each.id != END_ID
                ]
                if text:
                    told.append({"role": "system", "content": text})
            case Imported(role=role, text=text):
                told.append({"role": "system", "content": text} if role == "user" else Message("assistant", text))
            case Recovered(text=text):
                told.append({"role": "system", "content": text})
            case _:
                pass
    return told


def events_of(history: Sequence[object], registered: Callable[[str], str]) -> list[Recorded]:
    """The log of a session that had this history.

    Args:
        history: messages; a system message that comes first is left out.
        registered: gives the name of a tool in the log for its own.

    Raises:
        SessionError: an entry is no message.
    """
    events: list[Recorded] = []
    answers: list[ToolAnswer] = []
    step = 0
    for number, entry in enumerate(history):
        role, text = _said(number, entry)
        if answers and role != "tool":
            events.append(Observed(step=step, text="", ok=True, answers=tuple(answers)))
            answers = []
        if role == "tool":
            id_ = entry.get("tool_call_id") if isinstance(entry, Mapping) else None
            answers.append(ToolAnswer(id=str(id_ or ""), text=text))
        elif role == "assistant":
            step += 1
            try:
                calls = parse_message(entry).tool_calls or ()
            except TypeError as error:
                raise SessionError(f"Entry {number} of the history is not a model's message: {error}") from error
            requests = tuple(
                ToolRequest(id=each.id, name=registered(each.function.name), arguments=each.function.arguments)
                for each in calls
            )
            events.append(Replied(step=step, text=text, usage=Usage(), requests=requests))
        elif role == "user":
            step = 0
            events.append(Started(task=Task(goal=text), opening=text))
        elif number:
            events.append(Imported(role="user", text=text))
    if answers:
        events.append(Observed(step=step, text="", ok=True, answers=tuple(answers)))
    if any(isinstance(each, Started) for each in events):
        events.append(Ended(outcome=Outcome(status=Status.FINISHED)))
    return events


def _said(number: int, entry: object) -> tuple[str, str]:
    told = as_dict(entry) if isinstance(entry, Message | Mapping) else {}
    role, text = told.get("role"), told.get("content")
    if role not in {"system", "user", "assistant", "tool"} or not isinstance(text, str | None):
        raise SessionError(
            f"Entry {number} of the history is not a chat message: it needs a `role` (system, user, assistant or "
            "tool), and a text as `content`."
        )
    return str(role), text or ""


class HistoryFile:
    """A JSON file with a history, replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self._texts = Growing[Entry, str](lambda entry: json.dumps(as_dict(entry)))

    def load(self) -> list[object]:
        """Return the history; empty without a file.

        Raises:
            SessionError: the file cannot be read, or is invalid. It is left as it is.
        """
        if not self.path.exists():
            return []
        try:
            with Workspace(self.path.parent) as place:
                history = json.loads(place.read_bytes(self.path.name, _MOST_BYTES))
        except (OSError, ToolError, ValueError, RecursionError) as error:
            raise SessionError(f"The history file {self.path} cannot be read: {error}") from error
        if not isinstance(history, list):
            raise SessionError(f"The history file {self.path} contains no list of messages; name another file.")
        return history

    def save(self, history: Sequence[Entry]) -> None:
        system = json.dumps(as_dict(history[0])) if history else ""
        data = f"[{', '.join([system, *self._texts(history[1:])])}]".encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with Workspace(self.path.parent) as place:
                place.write_bytes(self.path.name, data)
        except (OSError, ToolError) as error:
            raise SessionError(f"The history file {self.path} cannot be written: {error}") from error


def load_config(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Read settings from a TOML file, by default `pygent.toml` and `~/.pygent.toml`, and set the missing variables.

    `initial_files` of a `pygent.toml` that was not named, which a clone may have brought, must lie in its directory.

    Raises:
        SettingsError: a file is unreadable, no TOML, or names files outside the directory.
    """
    config: dict[str, Any] = {}
    files = [each.expanduser() for each in _DEFAULT_FILES] if path is None else [Path(path)]
    for file in files:
        if path is not None or file.is_file():
            if path is None and file == _DEFAULT_FILES[0]:
                _require_inside(str(file))
            try:
                settings = tomllib.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise SettingsError(f"{file} cannot be read as TOML: {error}") from error
            if path is None and file == _DEFAULT_FILES[0]:
                _require_inside(_joined(settings.get("initial_files")), key="initial_files: ")
            config |= settings
    personas, files_ = config.get("task_personas"), config.get("initial_files")
    values: dict[str, str | None] = {name.upper(): config.get(name) for name in ("persona", "persona_name")}
    if isinstance(personas, list) and personas and all(isinstance(each, Mapping) for each in personas):
        values["TASK_PERSONAS_JSON"] = json.dumps(personas)
        personas = [each.get("name", "") for each in personas]
    values |= {"TASK_PERSONAS": _joined(personas), "INIT_FILES": _joined(files_)}
    for name, value in values.items():
        if value is not None:
            os.environ.setdefault(f"PYGENT_{name}", str(value))
    return config


def _require_inside(files: str | None, *, key: str = "") -> None:
    here = Path.cwd().resolve()
    for name in filter(None, (each.strip() for each in (files or "").split(os.pathsep))):
        # As `Runtime.upload_file` reads a name; links in the directory itself could lead to its neighbours.
        if here not in Path(name).expanduser().resolve().parents:
            raise SettingsError(
                f"pygent.toml: {key}{name!r} is not below {here}. If the file is your own, read it with "
                'load_config("pygent.toml").'
            )


def _joined(value: object) -> str | None:
    return os.pathsep.join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else None


def variable(name: str) -> str | None:
    return os.environ.get(f"PYGENT_{name}") or None


def number(name: str) -> float | None:
    text = variable(name)
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise SettingsError(f"PYGENT_{name}={text!r} must be a number.") from error


def default_persona() -> Persona:
    return Persona(variable("PERSONA_NAME") or "Pygent", variable("PERSONA") or "a sandboxed coding assistant.")


def task_personas() -> list[Persona]:
    if (text := variable("TASK_PERSONAS_JSON")) is not None:
        try:
            return [Persona(each["name"], each.get("description", "")) for each in json.loads(text)]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            wanted = '[{"name": "tester", "description": "writes tests"}]'
            raise SettingsError(f"PYGENT_TASK_PERSONAS_JSON must be a list such as {wanted}: {error!r}") from error
    names = [name.strip() for name in (variable("TASK_PERSONAS") or "").split(os.pathsep)]
    return [Persona(name) for name in names if name] or [default_persona()]
