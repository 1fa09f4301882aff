"""Recordings of a conversation with a model, and their replay, so that a run becomes a regression test.

A `RecordingProvider` writes a recording, a `ReplayProvider` answers from it. Timing is not kept: a replay gives the
same chunks as fast as they are read. A recording is a file of JSON lines, in the order in which things happened:

    {"recording": 1, "model": "…", "about": {…}}
    {"request": 1, "system": "…", "keep": 0, "messages": [["user", "…"]], "status": "…"}
    {"reply": 1, "chunks": [["start", 1], ["text", "…"], ["end", "stop", {…}, ""]], "error": null}
    {"note": "…", "value": …}

`keep` counts the messages that a request shares with the one before it; a `system` of null is the same as before. A
message with images has them as a third item: `["user", "…", [{"source": "…", "media_type": "image/png", "data":
"base64"}]]`. With native tool calls a request has the `tools` that are not the same as before, a message has
`{"requests": …, "answers": …, "reasoning": …}` as a fourth item, and there are chunks `["call", index, id, name,
arguments]`. The request of a child run has `"child": true`. `error` is the class and the text of a `ModelError` that
ended the reply. A note is a value beside the exchanges, e.g. an event of the run.
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

HIDDEN = "[secret]"

TIME = "time"
"""The kind of note that holds the time that a run was given."""

DIGITS = "digits"
"""The kind of note that holds random digits that a run was given."""

EVENT = "event"
"""The kind of note that an event of the session is."""

HISTORY = "history"
"""The kind of note that says how many events a session held when its recording began; they follow."""

_DIFF_LINES = 40

_LINE_CHARS = 300

_MOST_AHEAD = 40
"""How many requests a replay looks ahead for the one that is made."""

Mask = tuple[re.Pattern[str], str]
"""A pattern of text that is not compared, and the word that stands for it in a diff."""

VOLATILE: tuple[Mask, ...] = (
    (re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?(?: UTC)?"), "<time>"),
    (re.compile(r"(?<=\[quote )[0-9a-f]{8,64}(?= )|(?<=\[end of quote )[0-9a-f]{8,64}(?=\])"), "<nonce>"),
    (re.compile(r"(?<![\w.])\d+(?:\.\d+)? ?(?:ms|s|seconds?)\b"), "<duration>"),
    (re.compile(r"(?<=\bpid )\d+"), "<pid>"),
    (re.compile(r"[^\s'\"]*/codepilot-task-\w+/workspace"), "<copy>"),
)
"""Texts that differ between any two runs: clock, random frames of quotes, durations, numbers of processes."""


class RecordingProvider(WrappedProvider):
    """A provider that passes everything on and records it: each request, each reply chunk for chunk, and `note`s.

    The file is readable by its owner only, and no file is ever overwritten. It holds the whole conversation, but never
    the provider's key, which is no part of it.
    """

    def __init__(
        self,
        inner: Provider,
        path: Path | str,
        *,
        about: Mapping[str, Plain] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """Begin a recording.

        Args:
            inner: the provider that is asked; closed by `close`.
            path: the file to make.
            about: the circumstances to note at the file's head.
            secrets: texts that must not reach the file, should the conversation hold them.

        Raises:
            SettingsError: the file exists, or cannot be made.
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
        self._others: list[Provider] = []
        self._open = True
        self._write(self._tape.header(inner.model, about or {}))

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`.

        Raises:
            ModelError: as the inner provider raises it, or the recording cannot be written.
        """
        async with aclosing(self._recorded(self._inner, request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def beside(self, other: Provider) -> Provider:
        """Another provider, e.g. of child runs, whose exchanges are in the same recording; closed by `close`."""
        self._others.append(other)
        return _RecordedBeside(other, partial(self._recorded, other))

    async def _recorded(self, inner: Provider, request: Request) -> AsyncGenerator[Chunk]:
        number, line = self._tape.asked(request)
        self._write(line)
        given: list[Chunk] = []
        failed: ModelError | None = None
        try:
            async with aclosing(inner.reply(request)) as chunks:
                async for chunk in chunks:
                    given.append(chunk)
                    yield chunk
        except ModelError as error:
            failed = error
            raise
        finally:
            self._write(self._tape.answered(number, given, failed))

    def note(self, kind: str, value: Plain) -> None:
        """Write a note beside the exchanges, e.g. an event of the run.

        Raises:
            ModelError: the recording cannot be written.
        """
        self._write(self._tape.note(kind, value))

    async def close(self) -> None:
        """End the recording and close the inner provider; idempotent."""
        if self._open:
            self._open = False
            os.close(self._file)
        for each in (self._inner, *self._others):
            await each.close()

    def _write(self, line: str) -> None:
        """Append a line, unless the recording was closed."""
        if not self._open:
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


class _RecordedBeside(WrappedProvider):
    """A provider whose exchanges another one's recording holds."""

    def __init__(self, inner: Provider, reply: Callable[[Request], AsyncGenerator[Chunk]]) -> None:
        super().__init__(inner)
        self.reply = reply

    async def close(self) -> None:
        """Leave it to the recording."""


class ReplayProvider:
    """A provider that gives the recorded replies in order, and fails when the conversation leaves the recording.

    Attributes:
        tape: the recording.
        differences: where requests differed from the recorded ones, when that is no error.
        departure: how the conversation left the recording, when it did.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        strict: bool = True,
        masks: Iterable[Mask] = VOLATILE,
        secrets: Sequence[str] = (),
    ) -> None:
        """Get ready to replay.

        Args:
            path: the recording.
            strict: whether a request that differs from the recorded one is an error; else it is kept in `differences`.
            masks: texts that are not compared; `()` compares to the byte, which needs the clock and nonce of the run.
            secrets: the texts that were kept out of the recording, so that they are not taken for a difference.

        Raises:
            ScriptError: it cannot be read, or is no recording.
        """
        self._source = str(path)
        self._strict, self._masks, self._secrets = strict, tuple(masks), tuple(secrets)
        self.tape = load_tape(path)
        self._asked = [entry for entry in self.tape.entries if isinstance(entry, TapedRequest)]
        self._open = list(self._asked)
        self._answers = {entry.number: entry for entry in self.tape.entries if isinstance(entry, Answered)}
        self._given = 0
        self.differences: list[str] = []
        self.departure: str | None = None

    @property
    def model(self) -> str:
        """The recorded model."""
        return self.tape.model

    @property
    def sees_images(self) -> bool:
        """Whether the recorded model was shown images."""
        return shows_images(self.tape)

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred where the recorded model was offered tools."""
        return "preferred" if calls_tools(self.tape) else "supported"

    def children(self) -> Provider:
        """The same recording as the model of child runs, which may be another than their parent's."""
        return _ReplayOfChildren(self)

    @property
    def replayed(self) -> int:
        """Requests that were answered."""
        return self._given

    @property
    def remaining(self) -> int:
        """Recorded requests that were not made yet; a test may want none."""
        return len(self._open)

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Give the next recorded reply, chunk for chunk.

        Raises:
            ScriptError: there is none, or the request is not the recorded one; the text shows the first difference.
            ModelError: the recorded reply ended so.
        """
        try:
            answer = self._next(request)
        except ScriptError as error:
            self.departure = str(error)
            raise
        for chunk in answer.chunks:
            yield chunk
        if answer.error is not None:
            raise answer.error

    async def close(self) -> None:
        """Do nothing."""

    def _next(self, request: Request) -> Answered:
        if not self.remaining:
            raise ScriptError(
                f"The recording {self._source} has {len(self._asked)} requests, but the conversation makes one more. "
                f"Record the run again if this is intended."
            )
        hidden = hide_in_request(request, self._secrets)
        # Child runs ask at the same time as their parent, in any order.
        near = [each for each in self._open[:_MOST_AHEAD] if each.request.child == hidden.child]
        ahead = [each for each in near if len(each.request.messages) == len(hidden.messages)]
        same = (each for each in ahead if next(differences(each.request, hidden, masks=self._masks), None) is None)
        asked = next(same, (near or self._open)[0])
        difference = next(differences(asked.request, hidden, masks=self._masks), None)
        if difference is not None:
            text = (
                f"Request {asked.number} of {len(self._asked)} differs from the recording {self._source}:\n{difference}"
            )
            if self._strict:
                raise ScriptError(text)
            self.differences.append(text)
        answer = self._answers.get(asked.number)
        if answer is None:
            raise ScriptError(
                f"The recording {self._source} ends with request {asked.number}, whose reply is missing: the recording "
                f"process died before it arrived. Record the run again."
            )
        self._given += 1
        self._open.remove(asked)
        return answer


class _ReplayOfChildren(WrappedProvider):
    """A replay as child runs see it."""

    def __init__(self, replay: ReplayProvider) -> None:
        super().__init__(replay)
        self.reply = replay.reply
        self.close = replay.close
        self._tape = replay.tape

    @property
    @override
    def sees_images(self) -> bool:
        """Whether the model of the recorded child runs was shown images."""
        return shows_images(self._tape, child=True)

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        """Preferred where the model of the recorded child runs was offered tools."""
        return "preferred" if calls_tools(self._tape, child=True) else "supported"


def load_tape(path: Path | str) -> Tape:
    """Read a recording from a file.

    Raises:
        ScriptError: it cannot be read, or is no recording.
    """
    try:
        data = Path(path).read_bytes()
        whole = data.rfind(b"\n") + 1  # what follows was cut off, perhaps in the middle of a character
        text = data[:whole].decode("utf-8", "surrogatepass") + data[whole:].decode("utf-8", "replace")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"The recording {path} cannot be read: {error}.") from error
    return read_tape(text, source=str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class TapedRequest:
    """A request was sent."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A reply, chunk for chunk; without a `ReplyEnd` and an `error` if its reader left early."""

    number: int
    chunks: tuple[Chunk, ...]
    error: ModelError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note beside the exchanges."""

    kind: str
    value: Plain


Entry = TapedRequest | Answered | Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """A whole recording.

    Attributes:
        model: the model's name, as the service knows it.
        about: the circumstances, as the recorder noted them.
        entries: requests, replies and notes, in order.
        torn: whether the last line was cut off, as when the recording process died; it is left out.
    """

    model: str
    about: Mapping[str, Plain]
    entries: tuple[Entry, ...]
    torn: bool = False


def read_tape(text: str, *, source: str) -> Tape:
    """Read a recording.

    Args:
        text: the whole file.
        source: where it came from, for error texts.

    Raises:
        ScriptError: it is not a recording, of a newer format, or damaged in the middle; the text names the line.
    """
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
            entry = _entry(value, last)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ScriptError(f"{source}, line {number} is not an entry of a recording ({error!r}).") from error
        entries.append(entry)
        last = entry.request if isinstance(entry, TapedRequest) else last
    return Tape(model=str(head["model"]), about=head.get("about", {}), entries=tuple(entries), torn=bool(rest))


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


def _entry(value: Mapping[str, Any], last: Request) -> Entry:
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
        return Answered(number=int(value["reply"]), chunks=chunks, error=_error(value["error"]))
    return Note(kind=str(value["note"]), value=value["value"])


def _error(failure: Sequence[Any] | None) -> ModelError | None:
    if failure is None:
        return None
    name, text, *waits = failure
    kind = getattr(errors, name, ModelError)
    if kind is ModelOutageError:
        return ModelOutageError(text, retry_after=float(waits[0]) if waits else None)
    return kind(text) if isinstance(kind, type) and issubclass(kind, ModelError) else ModelError(text)


@dataclass(slots=True, kw_only=True)
class TapeWriter:
    """A writer of the lines of a recording.

    Attributes:
        secrets: texts that must not be in the recording; each is replaced by `HIDDEN`.
    """

    secrets: Sequence[str] = ()
    _last: Request = field(default_factory=lambda: Request(system="", messages=()))
    _number: int = 0

    def header(self, model: str, about: Mapping[str, Plain]) -> str:
        """Return the first line."""
        return self._line({"recording": FORMAT, "model": model, "about": dict(about)})

    def asked(self, request: Request) -> tuple[int, str]:
        """Return the number of a request, and its line."""
        self._number += 1
        same = self._number > 1 and request.system == self._last.system
        both = zip(self._last.messages, request.messages, strict=False)
        keep = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        tools = (
            [] if self._number > 1 and request.tools == self._last.tools else [asdict(each) for each in request.tools]
        )
        gone = not request.tools and bool(self._last.tools)
        self._last = request
        line = {
            "request": self._number,
            "system": None if same else request.system,
            "keep": keep,
            "messages": [encode_message(message) for message in request.messages[keep:]],
            "status": request.status,
            **({"tools": tools} if tools or gone else {}),
            **({"child": True} if request.child else {}),
        }
        return self._number, self._line(line)

    def answered(self, number: int, chunks: Sequence[Chunk], error: ModelError | None) -> str:
        """Return the line of a reply."""
        # With the time for which the service asked to be left alone, if it did.
        wait = error.retry_after if isinstance(error, ModelOutageError) else None
        waits = [] if wait is None else [wait]
        failure = None if error is None else [type(error).__name__, str(error), *waits]
        # Chunks as JSON; an attempt whose text holds a secret, perhaps over several chunks, loses its chunking.
        packed: list[list[object]] = []
        for attempt in _split_attempts(chunks):
            text = "".join(chunk.text for chunk in attempt if isinstance(chunk, TextChunk))
            calls = whole_calls(attempt)
            kept: Sequence[Chunk] = attempt
            if any(hide(each, self.secrets) != each for each in (text, *(call.arguments for call in calls))):
                starts = [chunk for chunk in attempt if isinstance(chunk, ReplyStart)]
                ends = [chunk for chunk in attempt if isinstance(chunk, ReplyFault | ReplyEnd)]
                kept = [*starts, *([TextChunk(text=text)] if text else []), *calls, *ends]
            packed += map(encode_chunk, kept)
        return self._line({"reply": number, "chunks": packed, "error": failure})

    def note(self, kind: str, value: Plain) -> str:
        """Return the line of a note."""
        return self._line({"note": kind, "value": value})

    def _line(self, value: object) -> str:
        return json.dumps(_hide_in(value, self.secrets), ensure_ascii=False) + "\n"


def _split_attempts(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    attempts: list[list[Chunk]] = [[]]
    for chunk in chunks:
        if isinstance(chunk, ReplyStart) and attempts[-1]:
            attempts.append([])
        attempts[-1].append(chunk)
    return attempts


def whole_calls(chunks: Sequence[Chunk]) -> list[CallChunk]:
    """Join the pieces of each call among chunks, in the order of the calls."""
    pieces: dict[int, list[CallChunk]] = {}
    for chunk in chunks:
        if isinstance(chunk, CallChunk):
            pieces.setdefault(chunk.index, []).append(chunk)
    return [
        CallChunk(
            index=index,
            id=next((each.id for each in found if each.id), ""),
            name=next((each.name for each in found if each.name), ""),
            arguments="".join(each.arguments for each in found),
        )
        for index, found in sorted(pieces.items())
    ]


def differences(recorded: Request, asked: Request, *, masks: Iterable[Mask] = ()) -> Iterator[str]:
    """Yield the differences between two requests, each as a small unified diff.

    The system prompt is compared first, then message by message, then how many there are, then the status.
    """
    masks = tuple(masks)
    parts = [("system", recorded.system, asked.system), ("tools", _tool_lines(recorded), _tool_lines(asked))]
    both = zip(recorded.messages, asked.messages, strict=False)
    parts += [
        (f"message {number}", _message_text(was), _message_text(now))
        for number, (was, now) in enumerate(both, start=1)
        if was != now
    ]
    parts.append(("messages", _role_lines(recorded), _role_lines(asked)))
    parts.append(("status", recorded.status, asked.status))
    for name, was, now in parts:
        before, after = mask_text(was, masks), mask_text(now, masks)
        if before == after:
            continue
        lines = list(
            unified_diff(before.splitlines(), after.splitlines(), f"recorded {name}", f"{name} now", n=2, lineterm="")
        )
        cut = [line if len(line) <= _LINE_CHARS else line[:_LINE_CHARS] + "…" for line in lines[:_DIFF_LINES]]
        more = [f"… {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
        yield "\n".join([*cut, *more]) if lines else f"{name}: the line endings differ"


def mask_text(text: str, masks: Iterable[Mask]) -> str:
    """Replace the texts that are not compared by a word for each."""
    for pattern, word in masks:
        text = pattern.sub(word, text)
    return text


def _message_text(message: Message) -> str:
    """A message as text; of an image, a digest stands for the bytes."""
    pictures = [
        f"[image {image.source}: {image.media_type}, sha256 {hashlib.sha256(image.data.encode()).hexdigest()}]"
        for image in message.images
    ]
    return "\n".join([*pictures, f"{message.role}: {message.worded}"])


def _tool_lines(request: Request) -> str:
    """The tools as text, one a line."""
    return "\n".join(json.dumps(asdict(each), ensure_ascii=False) for each in request.tools)


def _role_lines(request: Request) -> str:
    """One line a message, so that a diff tells which side has more."""
    return "\n".join(f"{number} {message.role}" for number, message in enumerate(request.messages, start=1))


def shows_images(tape: Tape, *, child: bool = False) -> bool:
    """Whether any request of the recorded run, or of its child runs, holds images."""
    return any(
        message.images or any(answer.images for answer in message.answers)
        for request in _requests(tape, child=child)
        for message in request.messages
    )


def calls_tools(tape: Tape, *, child: bool = False) -> bool:
    """Whether the model of the recorded run, or of its child runs, was offered native tool calls."""
    return any(request.tools for request in _requests(tape, child=child))


def _requests(tape: Tape, *, child: bool) -> Iterator[Request]:
    asked = (entry.request for entry in tape.entries if isinstance(entry, TapedRequest))
    return (request for request in asked if request.child == child)


def hide(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text, as they are and as JSON escapes them: the arguments of calls are JSON."""
    for secret in filter(None, secrets):
        for form in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            text = text.replace(form, HIDDEN)
    return text


def hide_in_request(request: Request, secrets: Sequence[str]) -> Request:
    """Return a request without secrets, as a recording keeps it."""
    messages = tuple(
        replace(
            message,
            text=hide(message.text, secrets),
            images=tuple(
                replace(image, source=hide(image.source, secrets), data=hide(image.data, secrets))
                for image in message.images
            ),
            requests=tuple(ToolRequest(**_hide_in(asdict(each), secrets)) for each in message.requests),
            answers=tuple(decode_answer(_hide_in(asdict(each), secrets)) for each in message.answers),
            reasoning=hide(message.reasoning, secrets),
        )
        for message in request.messages
    )
    return Request(
        system=hide(request.system, secrets),
        messages=messages,
        status=hide(request.status, secrets),
        tools=tuple(decode_tool(_hide_in(asdict(each), secrets)) for each in request.tools),
        child=request.child,
    )


def _hide_in(value: Any, secrets: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return hide(value, secrets)
    if isinstance(value, dict):
        return {hide(str(key), secrets): _hide_in(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hide_in(item, secrets) for item in value]
    return value


def encode_message(message: Message) -> list[object]:
    """Encode a message as JSON."""
    images = [asdict(image) for image in message.images]
    calls = {
        "requests": [asdict(each) for each in message.requests],
        "answers": [asdict(each) for each in message.answers],
        "reasoning": message.reasoning,
    }
    if any(calls.values()):
        return [message.role, message.text, images, calls]
    return [message.role, message.text, *([images] if images else [])]


def decode_message(
    role: str, text: str, images: Sequence[Mapping[str, Any]] = (), calls: Mapping[str, Any] | None = None
) -> Message:
    """Decode a message that `encode_message` gave.

    Raises:
        TypeError: it is none; or KeyError or ValueError.
    """
    parts: Mapping[str, Any] = {"requests": (), "answers": (), "reasoning": ""} if calls is None else calls
    return Message(
        role=_role(role),
        text=str(text),
        images=tuple(Image(**image) for image in images),
        requests=tuple(ToolRequest(**each) for each in parts["requests"]),
        answers=tuple(decode_answer(each) for each in parts["answers"]),
        reasoning=str(parts["reasoning"]),
    )


def decode_answer(answer: Mapping[str, Any]) -> ToolAnswer:
    """Decode the answer to a call that `asdict` gave."""
    return ToolAnswer(**{**answer, "images": tuple(Image(**image) for image in answer["images"])})


def decode_tool(tool: Mapping[str, Any]) -> ToolSchema:
    """Decode the declaration of a tool that `asdict` gave."""
    return ToolSchema(**tool)


def _role(role: str) -> Literal["user", "assistant"]:
    match role:
        case "user" | "assistant":
            return role
        case _:
            raise ValueError(f"unknown role {role!r}")


def encode_chunk(chunk: Chunk) -> list[object]:
    """Encode a chunk as JSON."""
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
    """Decode a chunk that `encode_chunk` gave.

    Raises:
        KeyError: there is no such chunk; or TypeError or ValueError.
    """
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
