"""Record conversations with a model, and replay them as regression tests.

JSON lines, without timing:

    {"recording": 1, "model": "…", "about": {…}}
    {"request": 1, "system": "…", "keep": 0, "messages": [["user", "…"]], "status": "…"}
    {"reply": 1, "chunks": [["start", 1], ["text", "…"], ["end", "stop", {…}, ""]], "error": null}
    {"note": "…", "value": …}

`keep` counts the messages shared with the previous request; a null `system` is unchanged, as are missing `tools`. A
message may have `[images]` and `{"requests": …, "answers": …, "reasoning": …}`; `"child": true` marks child runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from difflib import unified_diff
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from agent_runtime.core import errors
from agent_runtime.core.errors import ModelError, ModelOutageError, ScriptError, SettingsError
from agent_runtime.core.values import Image, Plain, ToolAnswer, ToolRequest, Usage
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    TextChunk,
    ToolCalling,
    ToolSchema,
    WrappedProvider,
)

FORMAT = 1

REDACTED = "[secret]"

TIME = "time"
"""Kind of a note: the run's time."""

DIGITS = "digits"
"""Kind of a note: the run's random digits."""

EVENT = "event"
"""Kind of a note: a session event."""

HISTORY = "history"
"""Kind of a note: number of earlier session events, which follow."""

_DIFF_LINES = 40

_LINE_CHARS = 300

_LOOKAHEAD = 40
"""Requests that a replay searches for a match."""

Mask = tuple[re.Pattern[str], str]
"""Pattern to ignore in comparisons, and its placeholder in diffs."""

VOLATILE: tuple[Mask, ...] = (
    (re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?(?: UTC)?"), "<time>"),
    (re.compile(r"(?:(?<=\[quote )|(?<=\[instructions ))[0-9a-f]{8,64}(?= )"), "<nonce>"),
    (re.compile(r"(?:(?<=\[end of quote )|(?<=\[end of instructions ))[0-9a-f]{8,64}(?=\])"), "<nonce>"),
    (re.compile(r"(?<![\w.])\d+(?:\.\d+)? ?(?:ms|s|seconds?)\b"), "<duration>"),
    (re.compile(r"(?<=\bpid )\d+"), "<pid>"),
    (re.compile(r"[^\s'\"]*/codepilot-task-\w+/workspace"), "<copy>"),
)
"""Texts that differ in every run: clock, nonces, durations, process ids."""


class RecordingProvider(WrappedProvider):
    """Records each request and reply of a provider, chunk by chunk, and `note`s.

    The file is private, never overwritten, and without the provider's key.
    """

    def __init__(
        self,
        inner: Provider,
        path: Path | str,
        *,
        about: Mapping[str, Plain] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """Create the recording.

        Args:
            inner: provider to record; closed with this one.
            about: metadata.
            secrets: texts to redact.

        Raises:
            SettingsError: the file exists or cannot be created.
        """
        super().__init__(inner)
        self._path = Path(path)
        self._tape = TapeWriter(secrets=tuple(secrets))
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise SettingsError(
                f"The recording {path} already exists and is never overwritten; name another file."
            ) from None
        except OSError as error:
            raise SettingsError(f"The recording {path} cannot be made: {error.strerror}.") from error
        self._attached: list[Provider] = []
        self._is_open = True
        self._write(self._tape.header_line(inner.model, about or {}))

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        async with aclosing(self._record(self._inner, request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def attach(self, provider: Provider) -> Provider:
        """Record another provider, e.g. of child runs, in the same file; closed with this one."""
        self._attached.append(provider)
        return _AttachedProvider(provider, partial(self._record, provider))

    async def _record(self, inner: Provider, request: Request) -> AsyncGenerator[Chunk]:
        number, line = self._tape.request_line(request)
        self._write(line)
        received: list[Chunk] = []
        failure: ModelError | None = None
        try:
            async with aclosing(inner.reply(request)) as chunks:
                async for chunk in chunks:
                    received.append(chunk)
                    yield chunk
        except ModelError as error:
            failure = error
            raise
        finally:
            self._write(self._tape.reply_line(number, received, failure))

    def note(self, kind: str, value: Plain) -> None:
        """Write a note, e.g. a session event."""
        self._write(self._tape.note_line(kind, value))

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._file)
        for provider in (self._inner, *self._attached):
            await provider.close()

    def _write(self, line: str) -> None:
        if not self._is_open:
            return
        data = line.encode("utf-8", "surrogatepass")
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise ModelError(
                f"The recording {self._path} cannot be written: {error.strerror}. "
                "Free some space, or run without recording."
            ) from error


class _AttachedProvider(WrappedProvider):
    def __init__(self, inner: Provider, reply: Callable[[Request], AsyncGenerator[Chunk]]) -> None:
        super().__init__(inner)
        self.reply = reply

    async def close(self) -> None: ...


class ReplayProvider:
    """Replays recorded replies; fails if the conversation differs.

    Attributes:
        differences: from recorded requests, if not strict.
        departure: first mismatch as an error text.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        strict: bool = True,
        masks: Iterable[Mask] = VOLATILE,
        secrets: Sequence[str] = (),
    ) -> None:
        """Load the recording; fail on a different request if `strict`, apart from `masks`."""
        self._source = str(path)
        self._strict, self._masks, self._secrets = strict, tuple(masks), tuple(secrets)
        self.tape = load_tape(path)
        self._requests = [entry for entry in self.tape.entries if isinstance(entry, TapedRequest)]
        self._pending = list(self._requests)
        self._answers = {entry.number: entry for entry in self.tape.entries if isinstance(entry, TapedReply)}
        self._reply_count = 0
        self.differences: list[str] = []
        self.departure: str | None = None

    @property
    def model(self) -> str:
        return self.tape.model

    @property
    def sees_images(self) -> bool:
        return has_images(self.tape)

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred if the recording has tools."""
        return "preferred" if has_tools(self.tape) else "supported"

    def children(self) -> Provider:
        """Return the replay for child runs, whose model may differ."""
        return _ChildReplay(self)

    @property
    def replayed(self) -> int:
        return self._reply_count

    @property
    def remaining(self) -> int:
        return len(self._pending)

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Yield the next recorded reply.

        Raises:
            ScriptError: no reply left, or another request; shows the difference.
        """
        try:
            answer = self._next_reply(request)
        except ScriptError as error:
            self.departure = str(error)
            raise
        for chunk in answer.chunks:
            yield chunk
        if answer.error is not None:
            raise answer.error

    async def close(self) -> None: ...

    def _next_reply(self, request: Request) -> TapedReply:
        if not self.remaining:
            raise ScriptError(
                f"The recording {self._source} has {len(self._requests)} requests, but the conversation makes one "
                f"more. Record the run again if this is intended."
            )
        redacted = redact_request(request, self._secrets)
        # Child runs ask at the same time as their parent, in any order.
        near = [entry for entry in self._pending[:_LOOKAHEAD] if entry.request.child == redacted.child]
        same_length = (entry for entry in near if len(entry.request.messages) == len(redacted.messages))
        matches = (entry for entry in same_length if not any(diff_requests(entry.request, redacted, masks=self._masks)))
        taped = next(matches, (near or self._pending)[0])
        difference = next(diff_requests(taped.request, redacted, masks=self._masks), None)
        if difference is not None:
            head = f"Request {taped.number} of {len(self._requests)} differs from the recording {self._source}"
            text = f"{head}:\n{difference}"
            if self._strict:
                raise ScriptError(text)
            self.differences.append(text)
        answer = self._answers.get(taped.number)
        if answer is None:
            raise ScriptError(
                f"The recording {self._source} ends with request {taped.number}, whose reply is missing: the recording "
                f"process died before it arrived. Record the run again."
            )
        self._reply_count += 1
        self._pending.remove(taped)
        return answer


class _ChildReplay(WrappedProvider):
    def __init__(self, replay: ReplayProvider) -> None:
        super().__init__(replay)
        self.reply = replay.reply
        self.close = replay.close
        self._tape = replay.tape

    @property
    @override
    def sees_images(self) -> bool:
        return has_images(self._tape, child=True)

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        return "preferred" if has_tools(self._tape, child=True) else "supported"


def load_tape(path: Path | str) -> Tape:
    """Read a recording from a file."""
    try:
        data = Path(path).read_bytes()
        complete_bytes = data.rfind(b"\n") + 1  # what follows was cut off, perhaps in the middle of a character
        text = data[:complete_bytes].decode("utf-8", "surrogatepass") + data[complete_bytes:].decode("utf-8", "replace")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"The recording {path} cannot be read: {error}.") from error
    return parse_tape(text, source=str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class TapedRequest:
    number: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class TapedReply:
    """A recorded reply; incomplete if its reader left early."""

    number: int
    chunks: tuple[Chunk, ...]
    error: ModelError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    kind: str
    value: Plain


Entry = TapedRequest | TapedReply | Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """A complete recording; `torn` if a truncated last line was dropped."""

    model: str
    about: Mapping[str, Plain]
    entries: tuple[Entry, ...]
    is_truncated: bool = False


def parse_tape(text: str, *, source: str) -> Tape:
    """Parse a recording; `source` is for errors."""
    *lines, rest = text.split("\n")
    head = _parse_line(lines[0] if lines else rest, source, 1)
    if head.get("recording") != FORMAT:
        raise ScriptError(
            f"{source} is not a recording of format {FORMAT} (its first line says {head.get('recording')!r}). "
            f"Name a file made by `codepilot run --record` or `Recorder`, or update the package if the format is newer."
        )
    entries: list[Entry] = []
    last = Request(system="", messages=())
    for number, line in enumerate(lines[1:], start=2):
        value = _parse_line(line, source, number)
        try:
            entry = _decode_entry(value, last)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ScriptError(f"{source}, line {number} is not an entry of a recording ({error!r}).") from error
        entries.append(entry)
        last = entry.request if isinstance(entry, TapedRequest) else last
    return Tape(model=str(head["model"]), about=head.get("about", {}), entries=tuple(entries), is_truncated=bool(rest))


def _parse_line(line: str, source: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ScriptError(
            f"{source}, line {number} is not JSON ({error}); the file is not a recording, or is damaged."
        ) from None
    if not isinstance(value, dict):
        raise ScriptError(f"{source}, line {number} is not an object; the file is not a recording, or is damaged.")
    return value


def _decode_entry(value: Mapping[str, Any], last: Request) -> Entry:
    if "request" in value:
        new = [decode_message(*message) for message in value["messages"]]
        return TapedRequest(
            number=int(value["request"]),
            request=Request(
                system=last.system if value["system"] is None else str(value["system"]),
                messages=(*last.messages[: value["keep"]], *new),
                status=str(value["status"]),
                tools=tuple(map(decode_tool, value["tools"])) if "tools" in value else last.tools,
                child=bool(value.get("child")),
            ),
        )
    if "reply" in value:
        chunks = tuple(decode_chunk(kind, *rest) for kind, *rest in value["chunks"])
        return TapedReply(number=int(value["reply"]), chunks=chunks, error=_decode_error(value["error"]))
    return Note(kind=str(value["note"]), value=value["value"])


def _decode_error(failure: Sequence[Any] | None) -> ModelError | None:
    if failure is None:
        return None
    name, text, *waits = failure
    kind = getattr(errors, name, ModelError)
    if kind is ModelOutageError:
        return ModelOutageError(text, retry_after=float(waits[0]) if waits else None)
    return kind(text) if isinstance(kind, type) and issubclass(kind, ModelError) else ModelError(text)


@dataclass(slots=True, kw_only=True)
class TapeWriter:
    secrets: Sequence[str] = ()
    _last: Request = field(default_factory=lambda: Request(system="", messages=()))
    _number: int = 0

    def header_line(self, model: str, about: Mapping[str, Plain]) -> str:
        return self._format_line({"recording": FORMAT, "model": model, "about": dict(about)})

    def request_line(self, request: Request) -> tuple[int, str]:
        self._number += 1
        same_system = self._number > 1 and request.system == self._last.system
        pairs = zip(self._last.messages, request.messages, strict=False)
        keep = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        tools = (
            [] if self._number > 1 and request.tools == self._last.tools else [asdict(tool) for tool in request.tools]
        )
        tools_removed = not request.tools and bool(self._last.tools)
        self._last = request
        line = {
            "request": self._number,
            "system": None if same_system else request.system,
            "keep": keep,
            "messages": [encode_message(message) for message in request.messages[keep:]],
            "status": request.status,
            **({"tools": tools} if tools or tools_removed else {}),
            **({"child": True} if request.child else {}),
        }
        return self._number, self._format_line(line)

    def reply_line(self, number: int, chunks: Sequence[Chunk], error: ModelError | None) -> str:
        # With the time for which the service asked to be left alone, if it did.
        wait = error.retry_after if isinstance(error, ModelOutageError) else None
        waits = [] if wait is None else [wait]
        failure = None if error is None else [type(error).__name__, str(error), *waits]
        # Chunks as JSON; an attempt whose text holds a secret, perhaps over several chunks, loses its chunking.
        encoded: list[list[object]] = []
        for attempt in _split_attempts(chunks):
            text = "".join(chunk.text for chunk in attempt if isinstance(chunk, TextChunk))
            calls = join_calls(attempt)
            recorded: Sequence[Chunk] = attempt
            if any(redact(item, self.secrets) != item for item in (text, *(call.arguments for call in calls))):
                starts = [chunk for chunk in attempt if isinstance(chunk, ReplyStart)]
                ends = [chunk for chunk in attempt if isinstance(chunk, ReplyFault | ReplyEnd)]
                recorded = [*starts, *([TextChunk(text=text)] if text else []), *calls, *ends]
            encoded += map(encode_chunk, recorded)
        return self._format_line({"reply": number, "chunks": encoded, "error": failure})

    def note_line(self, kind: str, value: Plain) -> str:
        return self._format_line({"note": kind, "value": value})

    def _format_line(self, value: object) -> str:
        return json.dumps(_redact_values(value, self.secrets), ensure_ascii=False) + "\n"


def _split_attempts(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    attempts: list[list[Chunk]] = [[]]
    for chunk in chunks:
        if isinstance(chunk, ReplyStart) and attempts[-1]:
            attempts.append([])
        attempts[-1].append(chunk)
    return attempts


def join_calls(chunks: Sequence[Chunk]) -> list[CallChunk]:
    pieces: dict[int, list[CallChunk]] = {}
    for chunk in chunks:
        if isinstance(chunk, CallChunk):
            pieces.setdefault(chunk.index, []).append(chunk)
    return [
        CallChunk(
            index=index,
            id=next((piece.id for piece in parts if piece.id), ""),
            name=next((piece.name for piece in parts if piece.name), ""),
            arguments="".join(piece.arguments for piece in parts),
        )
        for index, parts in sorted(pieces.items())
    ]


def diff_requests(recorded: Request, request: Request, *, masks: Iterable[Mask] = ()) -> Iterator[str]:
    """Yield the differences of two requests as short unified diffs."""
    masks = tuple(masks)
    parts = [("system", recorded.system, request.system), ("tools", _tool_lines(recorded), _tool_lines(request))]
    pairs = zip(recorded.messages, request.messages, strict=False)
    parts += [
        (f"message {number}", _message_text(old), _message_text(new))
        for number, (old, new) in enumerate(pairs, start=1)
        if old != new
    ]
    parts.append(("messages", _role_lines(recorded), _role_lines(request)))
    parts.append(("status", recorded.status, request.status))
    for name, old, new in parts:
        before, after = mask_text(old, masks), mask_text(new, masks)
        if before == after:
            continue
        lines = list(
            unified_diff(before.splitlines(), after.splitlines(), f"recorded {name}", f"{name} now", n=2, lineterm="")
        )
        cut = [line if len(line) <= _LINE_CHARS else line[:_LINE_CHARS] + "…" for line in lines[:_DIFF_LINES]]
        more = [f"… {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
        yield "\n".join([*cut, *more]) if lines else f"{name}: the line endings differ"


def mask_text(text: str, masks: Iterable[Mask]) -> str:
    for pattern, word in masks:
        text = pattern.sub(word, text)
    return text


def _message_text(message: Message) -> str:
    pictures = [
        f"[image {image.source}: {image.media_type}, sha256 {hashlib.sha256(image.data.encode()).hexdigest()}]"
        for image in message.images
    ]
    return "\n".join([*pictures, f"{message.role}: {message.full_text}"])


def _tool_lines(request: Request) -> str:
    return "\n".join(json.dumps(asdict(tool), ensure_ascii=False) for tool in request.tools)


def _role_lines(request: Request) -> str:
    return "\n".join(f"{number} {message.role}" for number, message in enumerate(request.messages, start=1))


def has_images(tape: Tape, *, child: bool = False) -> bool:
    return any(
        message.images or any(answer.images for answer in message.answers)
        for request in _requests(tape, child=child)
        for message in request.messages
    )


def has_tools(tape: Tape, *, child: bool = False) -> bool:
    """Whether the recorded run, or its child runs, had tools."""
    return any(request.tools for request in _requests(tape, child=child))


def _requests(tape: Tape, *, child: bool) -> Iterator[Request]:
    requests = (entry.request for entry in tape.entries if isinstance(entry, TapedRequest))
    return (request for request in requests if request.child == child)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Redact secrets, also in their JSON form."""
    for secret in filter(None, secrets):
        for form in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            text = text.replace(form, REDACTED)
    return text


def redact_request(request: Request, secrets: Sequence[str]) -> Request:
    messages = tuple(
        replace(
            message,
            text=redact(message.text, secrets),
            images=tuple(
                replace(image, source=redact(image.source, secrets), data=redact(image.data, secrets))
                for image in message.images
            ),
            requests=tuple(ToolRequest(**_redact_values(asdict(item), secrets)) for item in message.requests),
            answers=tuple(decode_answer(_redact_values(asdict(item), secrets)) for item in message.answers),
            reasoning=redact(message.reasoning, secrets),
        )
        for message in request.messages
    )
    return Request(
        system=redact(request.system, secrets),
        messages=messages,
        status=redact(request.status, secrets),
        tools=tuple(decode_tool(_redact_values(asdict(item), secrets)) for item in request.tools),
        child=request.child,
    )


def _redact_values(value: Any, secrets: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {redact(str(key), secrets): _redact_values(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_values(item, secrets) for item in value]
    return value


def encode_message(message: Message) -> list[object]:
    images = [asdict(image) for image in message.images]
    calls = {
        "requests": [asdict(item) for item in message.requests],
        "answers": [asdict(item) for item in message.answers],
        "reasoning": message.reasoning,
    }
    if any(calls.values()):
        return [message.role, message.text, images, calls]
    return [message.role, message.text, *([images] if images else [])]


def decode_message(
    role: str, text: str, images: Sequence[Mapping[str, Any]] = (), calls: Mapping[str, Any] | None = None
) -> Message:
    parts: Mapping[str, Any] = {"requests": (), "answers": (), "reasoning": ""} if calls is None else calls
    return Message(
        role=_decode_role(role),
        text=str(text),
        images=tuple(Image(**image) for image in images),
        requests=tuple(ToolRequest(**item) for item in parts["requests"]),
        answers=tuple(decode_answer(item) for item in parts["answers"]),
        reasoning=str(parts["reasoning"]),
    )


def decode_answer(answer: Mapping[str, Any]) -> ToolAnswer:
    return ToolAnswer(**{**answer, "images": tuple(Image(**image) for image in answer["images"])})


def decode_tool(tool: Mapping[str, Any]) -> ToolSchema:
    return ToolSchema(**tool)


def _decode_role(role: str) -> Literal["user", "assistant"]:
    match role:
        case "user" | "assistant":
            return role
        case _:
            raise ValueError(f"unknown role {role!r}")


def encode_chunk(chunk: Chunk) -> list[object]:
    match chunk:
        case ReplyStart():
            return ["start", chunk.attempt]
        case TextChunk():
            return ["text", chunk.text]
        case CallChunk():
            return ["call", chunk.index, chunk.id, chunk.name, chunk.arguments]
        case ReplyFault():
            return ["fault", asdict(chunk)]
        case ReplyEnd():
            reasoning = [chunk.reasoning] if chunk.reasoning else []
            return ["end", chunk.stop, asdict(chunk.usage), chunk.model, *reasoning]


def decode_chunk(kind: str, *rest: Any) -> Chunk:  # noqa: ANN401 - JSON
    return _DECODERS[kind](*rest)


_DECODERS: Mapping[str, Callable[..., Chunk]] = {
    "start": lambda attempt: ReplyStart(attempt=attempt),
    "text": lambda text: TextChunk(text=text),
    "call": lambda index, id_, name, arguments: CallChunk(index=index, id=id_, name=name, arguments=arguments),
    "fault": lambda fault: ReplyFault(**fault),
    "end": lambda stop, usage, model, reasoning="": ReplyEnd(
        stop=stop, usage=Usage(**usage), model=model, reasoning=reasoning
    ),
}
