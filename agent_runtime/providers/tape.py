"""The format of a recording, and what makes two requests differ. Pure.

A recording is a file of JSON lines, in the order in which things happened:

    {"recording": 1, "model": "…", "about": {…}}
    {"request": 1, "system": "…", "keep": 0, "messages": [["user", "…"]], "status": "…"}
    {"reply": 1, "chunks": [["start", 1], ["text", "…"], ["end", "stop", {…}, ""]], "error": null}
    {"note": "…", "value": …}

`keep` counts the messages that a request shares with the one before it, which stand there; a `system` of null says that
it is the same as before. A message with images has them as a third item: `["user", "…", [{"source": "…", "media_type":
"image/png", "data": "base64"}]]`. With native tool calls a request has the `tools` that are not the same as before, a
message has `{"requests": …, "answers": …, "reasoning": …}` as a fourth item, and there are chunks `["call", index, id,
name, arguments]`. The request of a child run has `"child": true`. `error` is the class and the text of a `ModelError`
that ended the reply. A note is whatever was put beside the exchanges, e.g. an event of the run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import unified_diff
from itertools import takewhile
from typing import Any

from agent_runtime.core import errors
from agent_runtime.core.calls import Plain, ToolRequest
from agent_runtime.core.errors import ModelError, ModelOutageError, ScriptError
from agent_runtime.providers.protocol import Chunk, Message, ReplyEnd, ReplyFault, ReplyStart, Request, TextChunk
from agent_runtime.providers.taped_values import (
    packed_chunk,
    packed_message,
    unpacked_answer,
    unpacked_chunk,
    unpacked_message,
    unpacked_tool,
    whole_calls,
)

FORMAT = 1
HIDDEN = "[secret]"
TIME = "time"
"""A note of the time that the run was told."""
DIGITS = "digits"
"""A note of random digits that the run was given."""
EVENT = "event"
"""The kind of note that an event of the session is."""

HISTORY = "history"
"""The kind of note that says how many events a session held when its recording began; they follow."""

_DIFF_LINES = 40
_LINE_CHARS = 300

Mask = tuple[re.Pattern[str], str]
"""What is not compared, and the word that stands for it in a diff."""

VOLATILE: tuple[Mask, ...] = (
    (re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?(?: UTC)?"), "<time>"),
    (re.compile(r"(?<=\[quote )[0-9a-f]{8,64}(?= )|(?<=\[end of quote )[0-9a-f]{8,64}(?=\])"), "<nonce>"),
    (re.compile(r"(?<![\w.])\d+(?:\.\d+)? ?(?:ms|s|seconds?)\b"), "<duration>"),
    (re.compile(r"(?<=\bpid )\d+"), "<pid>"),
    (re.compile(r"[^\s'\"]*/codepilot-task-\w+/workspace"), "<copy>"),
)
"""What differs between any two runs by its nature: clock, random frames of quotes, durations, numbers of processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TapedRequest:
    """A request was sent."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came back, chunk for chunk; without a `ReplyEnd` and an `error` when nobody read on."""

    number: int
    chunks: tuple[Chunk, ...]
    error: ModelError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something put beside the exchanges."""

    kind: str
    value: Plain


Entry = TapedRequest | Answered | Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """A whole recording.

    Attributes:
        model: the model's name, as the service knows it.
        about: what the recorder wanted kept of the circumstances.
        entries: what happened, in order.
        torn: whether the last line was cut off, as when the recording process died; it is left out.
    """

    model: str
    about: Mapping[str, Plain]
    entries: tuple[Entry, ...]
    torn: bool = False


@dataclass(slots=True, kw_only=True)
class TapeWriter:
    """Turns what happens into lines.

    Attributes:
        secrets: texts that must not be in the recording; each is replaced by `HIDDEN`.
    """

    secrets: Sequence[str] = ()
    _last: Request = field(default_factory=lambda: Request(system="", messages=()))
    _number: int = 0

    def header(self, model: str, about: Mapping[str, Plain]) -> str:
        """The first line."""
        return self._line({"recording": FORMAT, "model": model, "about": dict(about)})

    def asked(self, request: Request) -> tuple[int, str]:
        """The number of a request, and its line."""
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
            "messages": [packed_message(message) for message in request.messages[keep:]],
            "status": request.status,
            **({"tools": tools} if tools or gone else {}),
            **({"child": True} if request.child else {}),
        }
        return self._number, self._line(line)

    def answered(self, number: int, chunks: Sequence[Chunk], error: ModelError | None) -> str:
        """The line of a reply."""
        # With the time for which the service asked to be left alone, if it did.
        wait = error.retry_after if isinstance(error, ModelOutageError) else None
        waits = [] if wait is None else [wait]
        told = None if error is None else [type(error).__name__, str(error), *waits]
        # Chunks as JSON; an attempt whose text holds a secret, perhaps over several chunks, loses its chunking.
        packed: list[list[object]] = []
        for attempt in _attempts(chunks):
            text = "".join(chunk.text for chunk in attempt if isinstance(chunk, TextChunk))
            calls = whole_calls(attempt)
            kept: Sequence[Chunk] = attempt
            if any(hide(told, self.secrets) != told for told in (text, *(call.arguments for call in calls))):
                starts = [chunk for chunk in attempt if isinstance(chunk, ReplyStart)]
                ends = [chunk for chunk in attempt if isinstance(chunk, ReplyFault | ReplyEnd)]
                kept = [*starts, *([TextChunk(text=text)] if text else []), *calls, *ends]
            packed += map(packed_chunk, kept)
        return self._line({"reply": number, "chunks": packed, "error": told})

    def note(self, kind: str, value: Plain) -> str:
        """The line of a note."""
        return self._line({"note": kind, "value": value})

    def _line(self, value: object) -> str:
        return json.dumps(_hidden(value, self.secrets), ensure_ascii=False) + "\n"


def read_tape(text: str, *, source: str) -> Tape:
    """Read a recording.

    Args:
        text: the whole file.
        source: where it came from, for error texts.

    Raises:
        ScriptError: it is not a recording, of a newer format, or damaged in the middle; the text names the line.
    """
    *lines, rest = text.split("\n")
    head = _parsed(lines[0] if lines else rest, source, 1)
    if head.get("recording") != FORMAT:
        raise ScriptError(
            f"{source} is not a recording of format {FORMAT} (its first line says {head.get('recording')!r}). "
            f"Name a file made by `codepilot run --record` or `Recorder`, or update the package if the format is newer."
        )
    entries: list[Entry] = []
    last = Request(system="", messages=())
    for number, line in enumerate(lines[1:], start=2):
        value = _parsed(line, source, number)
        try:
            entry = _entry(value, last)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ScriptError(f"{source}, line {number} is not an entry of a recording ({error!r}).") from error
        entries.append(entry)
        last = entry.request if isinstance(entry, TapedRequest) else last
    return Tape(model=str(head["model"]), about=head.get("about", {}), entries=tuple(entries), torn=bool(rest))


def differences(recorded: Request, asked: Request, *, masks: Iterable[Mask] = ()) -> Iterator[str]:
    """Where two requests differ, each place as a small unified diff.

    The system prompt is compared first, then message by message, then how many there are, then the status.
    """
    masks = tuple(masks)
    parts = [("system", recorded.system, asked.system), ("tools", _declared(recorded), _declared(asked))]
    both = zip(recorded.messages, asked.messages, strict=False)
    parts += [
        (f"message {number}", _worded(was), _worded(now))
        for number, (was, now) in enumerate(both, start=1)
        if was != now
    ]
    parts.append(("messages", _roles(recorded), _roles(asked)))
    parts.append(("status", recorded.status, asked.status))
    for name, was, now in parts:
        before, after = masked(was, masks), masked(now, masks)
        if before == after:
            continue
        lines = list(
            unified_diff(before.splitlines(), after.splitlines(), f"recorded {name}", f"{name} now", n=2, lineterm="")
        )
        cut = [line if len(line) <= _LINE_CHARS else line[:_LINE_CHARS] + "…" for line in lines[:_DIFF_LINES]]
        more = [f"… {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
        yield "\n".join([*cut, *more]) if lines else f"{name}: the line endings differ"


def masked(text: str, masks: Iterable[Mask]) -> str:
    """A text with whatever is not compared replaced by a word for it."""
    for pattern, word in masks:
        text = pattern.sub(word, text)
    return text


def hide(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets, as they are and as JSON escapes them: the arguments of calls are JSON."""
    for secret in filter(None, secrets):
        for form in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            text = text.replace(form, HIDDEN)
    return text


def hidden_request(request: Request, secrets: Sequence[str]) -> Request:
    """A request as a recording keeps it."""
    messages = tuple(
        replace(
            message,
            text=hide(message.text, secrets),
            images=tuple(
                replace(image, source=hide(image.source, secrets), data=hide(image.data, secrets))
                for image in message.images
            ),
            requests=tuple(ToolRequest(**_hidden(asdict(each), secrets)) for each in message.requests),
            answers=tuple(unpacked_answer(_hidden(asdict(each), secrets)) for each in message.answers),
            reasoning=hide(message.reasoning, secrets),
        )
        for message in request.messages
    )
    return Request(
        system=hide(request.system, secrets),
        messages=messages,
        status=hide(request.status, secrets),
        tools=tuple(unpacked_tool(_hidden(asdict(each), secrets)) for each in request.tools),
        child=request.child,
    )


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


def _worded(message: Message) -> str:
    """A message as text; of an image, a digest stands for the bytes."""
    pictures = [
        f"[image {image.source}: {image.media_type}, sha256 {hashlib.sha256(image.data.encode()).hexdigest()}]"
        for image in message.images
    ]
    return "\n".join([*pictures, f"{message.role}: {message.worded}"])


def _declared(request: Request) -> str:
    """The tools as text, one a line."""
    return "\n".join(json.dumps(asdict(each), ensure_ascii=False) for each in request.tools)


def _roles(request: Request) -> str:
    """One line a message, so that a diff tells which side has more."""
    return "\n".join(f"{number} {message.role}" for number, message in enumerate(request.messages, start=1))


def _attempts(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    attempts: list[list[Chunk]] = [[]]
    for chunk in chunks:
        if isinstance(chunk, ReplyStart) and attempts[-1]:
            attempts.append([])
        attempts[-1].append(chunk)
    return attempts


def _hidden(value: Any, secrets: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return hide(value, secrets)
    if isinstance(value, dict):
        return {hide(str(key), secrets): _hidden(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item, secrets) for item in value]
    return value


def _parsed(line: str, source: str, number: int) -> dict[str, Any]:
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
        new = [unpacked_message(*message) for message in value["messages"]]
        return TapedRequest(
            number=int(value["request"]),
            request=Request(
                system=last.system if value["system"] is None else str(value["system"]),
                messages=(*last.messages[: value["keep"]], *new),
                status=str(value["status"]),
                tools=tuple(map(unpacked_tool, value["tools"])) if "tools" in value else last.tools,
                child=bool(value.get("child")),
            ),
        )
    if "reply" in value:
        chunks = tuple(unpacked_chunk(kind, *rest) for kind, *rest in value["chunks"])
        return Answered(number=int(value["reply"]), chunks=chunks, error=_error(value["error"]))
    return Note(kind=str(value["note"]), value=value["value"])


def _error(told: Sequence[Any] | None) -> ModelError | None:
    if told is None:
        return None
    name, text, *waits = told
    kind = getattr(errors, name, ModelError)
    if kind is ModelOutageError:
        return ModelOutageError(text, retry_after=float(waits[0]) if waits else None)
    return kind(text) if isinstance(kind, type) and issubclass(kind, ModelError) else ModelError(text)
