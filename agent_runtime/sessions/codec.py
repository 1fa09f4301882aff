"""The format of a session's log, its messages and its names. Pure.

An event is a JSON object on a line of UTF-8: `kind` and the fields that differ from their defaults. A new kind or field
needs no new format number: an older reader refuses it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from types import NoneType
from typing import Any, Literal, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints

from agent_runtime.core.errors import SessionDamagedError, SessionError, SessionNewerError
from agent_runtime.core.events import (
    Imported,
    MessageInjected,
    Observed,
    Recorded,
    Recovered,
    Replied,
    Started,
)
from agent_runtime.core.values import Plain, Status, append_requests, join_answers

FORMAT = 1
"""The format that this version reads and writes."""

NEWER = "which a newer Codepilot wrote. Nothing was changed; update Codepilot, or use another session"
"""The end of each error about a log of a newer version."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a log."""

    session_id: str
    agent_name: str
    created_at: float
    is_imported: bool = False
    """From CodePilot 0.9."""


def encode(event: Recorded) -> bytes:
    """Encode an event as one line without its end. Tuples in plain data become lists.

    Defaults are left out: an event keeps its digest (`agent_runtime.run.checkpoint`) when a version adds a field.
    """
    return _encode_line(_encode_fields(event))


def decode(line: bytes) -> Recorded:
    """Decode an event; raise ValueError for an incomplete line, SessionError for a newer version's event."""
    try:
        return _parse_event(_parse_object(line))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def encode_header(header: Header) -> bytes:
    return _encode_line({"format": FORMAT, **_encode_fields(header)})


def decode_header(line: bytes) -> Header:
    data = _parse_object(line)
    check_format(data.get("format"))
    session_id, agent_name, created_at = (data.get(name) for name in ("session_id", "agent_name", "created_at"))
    if not (isinstance(session_id, str) and isinstance(agent_name, str) and isinstance(created_at, int | float)):
        raise ValueError("it does not start with the session's id")  # noqa: TRY004 - about the line's content
    is_imported = data.get("is_imported") is True
    return Header(session_id=session_id, agent_name=agent_name, created_at=created_at, is_imported=is_imported)


def check_format(number: object) -> None:
    if not isinstance(number, int) or number < 1:
        raise ValueError("it does not start with a format number")
    if number > FORMAT:
        raise SessionNewerError(f"it has format {number} and this version knows {FORMAT}, {NEWER}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The contents of a log up to byte `size`; `torn` is the fault of the bytes after it."""

    header: Header | None
    events: list[Recorded]
    size: int
    torn: str


def parse(data: bytes, name: str) -> Log:
    """Read a log. An incomplete event at its end is reported and skipped.

    Raises:
        SessionError: a newer version wrote the log, or it is damaged before its last whole event.
    """
    lines = data.split(b"\n")
    header, events, size = None, list[Recorded](), 0
    for number, line in enumerate(lines):
        try:
            if number == 0:
                header = decode_header(line) if data else None
            elif line or number < len(lines) - 1:
                events.append(decode(line))
        except ValueError as error:
            if _has_intact_event(lines[number + 1 :]):
                raise SessionDamagedError(
                    f"{name} is damaged in line {number + 1} ({error}), and whole events follow it. Nothing was "
                    "changed; restore it from a backup, or move it away to start again."
                ) from error
            return Log(header=header, events=events, size=size, torn=f"line {number + 1}: {error}")
        except SessionNewerError as error:
            raise SessionNewerError(f"{name}, line {number + 1}: {error}.") from error
        size += len(line) + 1
    return Log(header=header, events=events, size=len(data), torn="")


def parse_rest(data: bytes, name: str) -> list[Recorded]:
    """Return the whole events at the beginning of a log's later part."""
    events = list[Recorded]()
    for line in data.split(b"\n")[:-1]:
        try:
            events.append(decode(line))
        except ValueError:
            break  # the session reports and repairs this when it is opened
        except SessionNewerError as error:
            raise SessionNewerError(f"{name}: {error}.") from error
    return events


def _has_intact_event(lines: Sequence[bytes]) -> bool:
    for line in lines:
        try:
            decode(line)
        except ValueError:
            continue
        except SessionNewerError:
            return True  # whole, but from a newer version
        else:
            return True
    return False


def _encode_fields(value: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass instance; others raise TypeError
    name = type(value).__name__
    kind = {"kind": name} if _KINDS.get(name) is type(value) else {}
    items = ((field, getattr(value, field.name)) for field in fields(value))
    return {**kind, **{field.name: item for field, item in items if item != field.default}}


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_encode_fields)
_KINDS: dict[str, type[Recorded]] = {kind.__name__: kind for kind in get_args(Recorded)}


def _encode_line(data: dict[str, object]) -> bytes:
    # A lone surrogate, e.g. from a file name that is not UTF-8, has no encoding in strict UTF-8.
    return _ENCODER.encode(data).encode("utf-8", "surrogatepass")


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - about the line, not about a type in Python
    return data


def _parse_event(data: object) -> Recorded:
    fields_of_event = dict(data) if isinstance(data, dict) else {}
    name = fields_of_event.pop("kind", None)
    if not isinstance(name, str):
        raise ValueError("it is not an event")  # noqa: TRY004 - about the line, not about a type in Python
    kind = _KINDS.get(name)
    if kind is None:
        raise SessionNewerError(f"it holds an event of the kind {name!r}, {NEWER}")
    try:
        return _build_value(kind, fields_of_event)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"it is no whole {name}: {error}") from error


def _build_value(kind: type[_T], data: object) -> _T:
    """Build a value and validate its fields, except plain data: the log is untrusted."""
    if not isinstance(data, dict):
        raise TypeError(f"a {kind.__name__} in it is {type(data).__name__}")
    readers = _readers(cast("Any", kind))
    if unknown := data.keys() - readers.keys():
        raise SessionNewerError(f"a {kind.__name__} in it has the field {min(unknown)!r}, {NEWER}")
    return kind(**{name: readers[name](value) for name, value in data.items()})


@cache
def _readers(kind: type) -> Mapping[str, Callable[[Any], object]]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(hint: Any) -> Callable[[Any], object]:  # noqa: ANN401 - an annotation
    inner = get_args(hint)
    if hint in {Plain, Recorded}:
        return _parse_event if hint == Recorded else lambda value: value
    if is_dataclass(hint):
        return partial(_build_value, cast("type", hint))
    if hint is Status or get_origin(hint) is Literal:
        return partial(_choose, {str(choice): choice for choice in inner or Status})
    if get_origin(hint) is tuple:
        item = _reader(inner[0])
        return lambda value: tuple(item(choice) for choice in _require_type((list,), value))
    if NoneType in inner:
        some = _reader(next(choice for choice in inner if choice is not NoneType))
        return lambda value: None if value is None else some(value)
    kind = get_origin(hint) or hint
    return partial(_require_type, (float, int) if kind is float else (kind,))


def _choose(choices: Mapping[str, object], value: object) -> object:
    if not isinstance(value, str):
        raise TypeError(f"it has {type(value).__name__} where one of {', '.join(choices)} belongs")
    if value not in choices:
        raise SessionNewerError(f"it has {value!r} where this version knows {', '.join(choices)}, {NEWER}")
    return choices[value]


def _require_type(types: tuple[type, ...], value: Any) -> Any:  # noqa: ANN401 - as it comes from JSON
    if type(value) not in types:
        raise TypeError(f"it has {type(value).__name__} where {types[0].__name__} belongs")
    return value


ChatMessage = dict[str, str]


class Metadata(TypedDict):
    """The stored facts about a session; times are seconds since 1970."""

    session_id: str
    agent_name: str
    created_at: float
    updated_at: float
    messages: int


def messages_of(events: Iterable[Recorded]) -> list[ChatMessage]:
    """Return the whole conversation, including archived and summarised parts."""
    return [message for event in events if (message := message_of(event))]


def message_of(event: Recorded) -> ChatMessage | None:
    match event:
        case Started(opening=text) | MessageInjected(text=text) | Recovered(text=text):
            return {"role": "user", "content": text}
        case Observed():
            return {"role": "user", "content": join_answers(event.text, event.answers)}
        case Replied():
            return {"role": "assistant", "content": append_requests(event.text, event.requests)}
        case Imported(role=role, text=text):
            return {"role": role, "content": text}
        case _:
            return None


def imported_events(messages: Iterable[object]) -> list[Imported]:
    """Convert imported messages to events."""
    events: list[Imported] = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise SessionError(f"message {number} is a {kind}; it must have a `role` and a `content`.")
        role, content = message.get("role"), message.get("content")
        if role not in {"user", "assistant"}:
            raise SessionError(f"message {number} has the role {role!r}; it must be 'user' or 'assistant'.")
        if not isinstance(content, str):
            raise SessionError(f"the content of message {number} is a {type(content).__name__}; it must be text.")
        events.append(Imported(role=role, text=content))
    return events


def new_messages(stored: Iterable[Recorded], events: Sequence[Imported]) -> Sequence[Imported] | None:
    """Return the part of `events` after the stored messages; None if `events` does not continue them."""
    old_messages, messages = messages_of(stored), messages_of(events)
    return events[len(old_messages) :] if messages[: len(old_messages)] == old_messages else None


MAX_KEY = 600
"""Characters of an escaped key; every database can index it."""

_SLUG_CHARS = 40


def file_name(session_id: str) -> str:
    """Return a slug for people with a hash, unique on case-insensitive disks."""
    slug = re.sub(r"[^a-z0-9]+", "-", session_id.lower())[:_SLUG_CHARS].strip("-") or "session"
    return f"{slug}-{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def original_name(session_id: str) -> str:
    """Return the id under which CodePilot 0.9 stores a session in a file."""
    return "".join(char if char.isalnum() or char in "-_." else "_" for char in session_id)


_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")

_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def escape_key(text: str) -> str:
    """Escape a text as a database key: no control characters, no lone surrogates."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "backslashreplace").decode()


def unescape_key(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _CONTROLS.get(match[2], match[2]), text)
