"""The format of a session's log, its messages and its names. Pure.

An event is one JSON object on one line, in UTF-8: `kind` names the event's class, the other keys are its fields; one
that has its default is left out. A new kind of event, or a new field with a default, needs no new format, because a
reader that does not know it notices. The format's number changes when lines that look the same mean something else.

`encode` and `decode` translate one event, `parse` reads a whole log and finds damage, `messages_of` shows a log as role
and content, `file_name` and `escape_key` turn any session id into a file's name or a database's key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache, partial
from types import NoneType
from typing import Any, Literal, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints

from agent_runtime.core.errors import SessionDamagedError, SessionError, SessionNewerError
from agent_runtime.core.events import (
    MessageInjected,
    Observed,
    Recorded,
    Recovered,
    Replied,
    Started,
    Told,
)
from agent_runtime.core.values import Plain, Status, append_requests, join_answers

FORMAT = 1
"""The format that this version reads and writes."""

NEWER = "which a newer Codepilot wrote. Nothing was changed; update Codepilot, or use another session"
"""The end of every sentence about a log from the future."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a log: its session.

    Attributes:
        session_id: names the conversation; any text.
        agent_name: the agent that it was begun with.
        created_at: when, in seconds since 1970.
    """

    session_id: str
    agent_name: str
    created_at: float


def encode(event: Recorded) -> bytes:
    """Encode an event as one line, without the line's end.

    A field that has its default is left out: older versions can read an event that does not use a newer field, and an
    event keeps its digest (`agent_runtime.run.checkpoint`) when a version adds one.

    A tuple in plain data comes back as a list; everything else comes back as it was.

    Raises:
        TypeError: an argument or a value in the event is not plain data.
    """
    return _line(_plain(event))


def decode(line: bytes) -> Recorded:
    """Decode an event that `encode` wrote.

    Raises:
        SessionError: it is of a kind, or has a field, that only a newer version knows.
        ValueError: it is no whole event.
    """
    try:
        return _event(_object(line))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def encode_header(header: Header) -> bytes:
    """Encode a log's first line, without the line's end."""
    return _line({"format": FORMAT, **asdict(header)})


def decode_header(line: bytes) -> Header:
    """Decode a header that `encode_header` wrote.

    Raises:
        SessionError: the log has a newer format.
        ValueError: it is no header.
    """
    data = _object(line)
    check_format(data.get("format"))
    session_id, agent_name, created_at = (data.get(name) for name in ("session_id", "agent_name", "created_at"))
    if not (isinstance(session_id, str) and isinstance(agent_name, str) and isinstance(created_at, int | float)):
        raise ValueError("it does not start with the session's id")  # noqa: TRY004 - about the line's content
    return Header(session_id=session_id, agent_name=agent_name, created_at=created_at)


def check_format(number: object) -> None:
    """Refuse a format that this version cannot read.

    Raises:
        SessionError: it is newer.
        ValueError: it is no format's number.
    """
    if not isinstance(number, int) or number < 1:
        raise ValueError("it does not start with a format number")
    if number > FORMAT:
        raise SessionNewerError(f"it has format {number} and this version knows {FORMAT}, {NEWER}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The contents of a log.

    Attributes:
        header: its session; None for an empty log.
        events: oldest first.
        size: bytes up to the end of the last whole event.
        torn: the fault of the bytes after it, e.g. because the machine went down while they were written; empty
            if there are none.
    """

    header: Header | None
    events: list[Recorded]
    size: int
    torn: str


def parse(data: bytes, name: str) -> Log:
    """Read a log. An incomplete event at the end is reported and skipped.

    Args:
        data: the whole log.
        name: its name in an error.

    Raises:
        SessionError: a newer version wrote it, or something before its last whole event is damaged.
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
            if _has_whole_event(lines[number + 1 :]):
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
    """Return the whole events at the beginning of a later part of a log, up to one that is not whole.

    Raises:
        SessionError: a newer version wrote one.
    """
    events = list[Recorded]()
    for line in data.split(b"\n")[:-1]:
        try:
            events.append(decode(line))
        except ValueError:
            break  # the session reports and repairs this when it is opened
        except SessionNewerError as error:
            raise SessionNewerError(f"{name}: {error}.") from error
    return events


def _has_whole_event(lines: Sequence[bytes]) -> bool:
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


def _plain(value: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass instance; others raise TypeError
    """Return the fields of a value, and the kind of an event, which may be part of another one."""
    name = type(value).__name__
    kind = {"kind": name} if _KINDS.get(name) is type(value) else {}
    items = ((field, getattr(value, field.name)) for field in fields(value))
    return {**kind, **{field.name: item for field, item in items if item != field.default}}


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)
_KINDS: dict[str, type[Recorded]] = {kind.__name__: kind for kind in get_args(Recorded)}


def _line(data: dict[str, object]) -> bytes:
    # A surrogate without its other half, e.g. from a file name that is no UTF-8, cannot be written as UTF-8 proper.
    return _ENCODER.encode(data).encode("utf-8", "surrogatepass")


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - about the line, not about a type in Python
    return data


def _event(data: object) -> Recorded:
    """Build an event from an object of JSON."""
    given = dict(data) if isinstance(data, dict) else {}
    name = given.pop("kind", None)
    if not isinstance(name, str):
        raise ValueError("it is not an event")  # noqa: TRY004 - about the line, not about a type in Python
    kind = _KINDS.get(name)
    if kind is None:
        raise SessionNewerError(f"it holds an event of the kind {name!r}, {NEWER}")
    try:
        return _build(kind, given)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"it is no whole {name}: {error}") from error


def _build(kind: type[_T], data: object) -> _T:
    """Build a value, checking all that is in it but plain data: a log may have been written by anybody."""
    if not isinstance(data, dict):
        raise TypeError(f"a {kind.__name__} in it is {type(data).__name__}")
    readers = _readers(cast("Any", kind))
    if unknown := data.keys() - readers.keys():
        raise SessionNewerError(f"a {kind.__name__} in it has the field {min(unknown)!r}, {NEWER}")
    return kind(**{name: readers[name](value) for name, value in data.items()})


@cache
def _readers(kind: type) -> Mapping[str, Callable[[Any], object]]:
    """Return the functions that check and build each field of a dataclass."""
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(hint: Any) -> Callable[[Any], object]:  # noqa: ANN401 - an annotation
    inner = get_args(hint)
    if hint in {Plain, Recorded}:
        return _event if hint == Recorded else lambda value: value
    if is_dataclass(hint):
        return partial(_build, cast("type", hint))
    if hint is Status or get_origin(hint) is Literal:
        return partial(_choose, {str(each): each for each in inner or Status})
    if get_origin(hint) is tuple:
        item = _reader(inner[0])
        return lambda value: tuple(item(each) for each in _exactly((list,), value))
    if NoneType in inner:
        some = _reader(next(each for each in inner if each is not NoneType))
        return lambda value: None if value is None else some(value)
    kind = get_origin(hint) or hint
    return partial(_exactly, (float, int) if kind is float else (kind,))


def _choose(choices: Mapping[str, object], value: object) -> object:
    if not isinstance(value, str):
        raise TypeError(f"it has {type(value).__name__} where one of {', '.join(choices)} belongs")
    if value not in choices:
        raise SessionNewerError(f"it has {value!r} where this version knows {', '.join(choices)}, {NEWER}")
    return choices[value]


def _exactly(types: tuple[type, ...], value: Any) -> Any:  # noqa: ANN401 - as it comes from JSON
    """Return a value that is exactly of one of the types: a bool is no number."""
    if type(value) not in types:
        raise TypeError(f"it has {type(value).__name__} where {types[0].__name__} belongs")
    return value


ChatMessage = dict[str, str]
"""`role` (`user` or `assistant`) and `content`."""


class Metadata(TypedDict):
    """The facts about a session that are known without reading it.

    `created_at` and `updated_at` are seconds since 1970, `messages` is the length of what `load` would give.
    """

    session_id: str
    agent_name: str
    created_at: float
    updated_at: float
    messages: int


def messages_of(events: Iterable[Recorded]) -> list[ChatMessage]:
    """Return the whole conversation, one message an event; archived and summarised parts are whole."""
    return [message for event in events if (message := message_of(event))]


def message_of(event: Recorded) -> ChatMessage | None:
    """Return the message that an event added to the conversation, or None."""
    match event:
        case Started(opening=text) | MessageInjected(text=text) | Recovered(text=text):
            return {"role": "user", "content": text}
        case Observed():
            return {"role": "user", "content": join_answers(event.text, event.answers)}
        case Replied():
            return {"role": "assistant", "content": append_requests(event.text, event.requests)}
        case Told(role=role, text=text):
            return {"role": role, "content": text}
        case _:
            return None


def imported_events(messages: Iterable[object]) -> list[Told]:
    """Turn imported messages into events.

    Raises:
        SessionError: one is no mapping with `role` (`user` or `assistant`) and `content` (text); the text says which.
    """
    events: list[Told] = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise SessionError(f"message {number} is a {kind}; it must have a `role` and a `content`.")
        role, content = message.get("role"), message.get("content")
        if role not in {"user", "assistant"}:
            raise SessionError(f"message {number} has the role {role!r}; it must be 'user' or 'assistant'.")
        if not isinstance(content, str):
            raise SessionError(f"the content of message {number} is a {type(content).__name__}; it must be text.")
        events.append(Told(role=role, text=content))
    return events


def extension(known: Iterable[Recorded], events: Sequence[Told]) -> Sequence[Told] | None:
    """Return the part of `events` behind the `known` messages; None if they do not begin with these."""
    old, new = messages_of(known), messages_of(events)
    return events[len(old) :] if new[: len(old)] == old else None


MAX_KEY = 600
"""Characters of an escaped text that every database can put an index on."""

_SLUG_CHARS = 40


def file_name(session_id: str) -> str:
    """Return a file's name, without an ending, for a session; the same on disks that keep `A` and `a` apart and others.

    Its beginning is for people, its end keeps ids apart.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", session_id.lower())[:_SLUG_CHARS].strip("-") or "session"
    return f"{slug}-{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")

_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def escape_key(text: str) -> str:
    r"""Escape a text so that every database takes it as a key: no control characters, no lone surrogates; `\` escapes.

    Most ids are left as they are.
    """
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "backslashreplace").decode()


def unescape_key(text: str) -> str:
    """Undo `escape_key`."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _CONTROLS.get(found[2], found[2]), text)
