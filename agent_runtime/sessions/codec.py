"""Events to lines of text and back: how the log of a session is written. Pure.

An event is one JSON object on one line, in UTF-8: `kind` names the event's class, the other keys are its fields. A new
kind of event, or a new field with a default, needs no new format, because a reader that does not know it notices. A new
field is left out while it holds nothing: so older versions read what they can understand, and what was written before
keeps its digest (`agent_runtime.run.checkpoint`). The format's number changes when lines that look the same mean
something else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from types import NoneType
from typing import Any, TypeVar, cast, get_args

from agent_runtime.core.errors import SessionError
from agent_runtime.core.events import (
    Ended,
    Observed,
    Parked,
    Paused,
    Recorded,
    Replied,
    ReplyBroken,
    Role,
    Shrunk,
    Started,
    Summarised,
    Told,
)
from agent_runtime.core.images import Image, MediaType
from agent_runtime.core.outcome import Outcome, PendingCall, Status, Usage
from agent_runtime.core.task import Quote, Task

FORMAT = 1
"""The newest format that this version reads, and the one that it writes."""

NEWER = "which a newer Codepilot wrote. Nothing was changed; update this one, or use another session"
"""The end of every sentence about a log from the future."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a log: whose it is.

    Attributes:
        session_id: names the conversation; any text.
        agent_name: the agent that it was begun with.
        created_at: when, in seconds since 1970.
    """

    session_id: str
    agent_name: str
    created_at: float


def encode(event: Recorded) -> bytes:
    """One event as one line, without the line's end.

    A tuple in plain data comes back as a list; everything else comes back as it was.

    Raises:
        TypeError: an argument or a value in the event is not plain data.
    """
    return _line({"kind": type(event).__name__, **_fields_of(event)})


def decode(line: bytes) -> Recorded:
    """The event that `encode` wrote.

    Raises:
        SessionError: it is of a kind, or has a field, that only a newer version knows.
        ValueError: it is no whole event.
    """
    data = _object(line)
    name = data.pop("kind", None)
    if not isinstance(name, str):
        raise ValueError("it is no event")  # noqa: TRY004 - about the line, not about a type in Python
    kind = _KINDS.get(name)
    if kind is None:
        raise SessionError(f"it holds an event of the kind {name!r}, {NEWER}")
    try:
        return _made(kind, data)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"it is no whole {name}: {error}") from error


def encode_header(header: Header) -> bytes:
    """A log's first line, without the line's end."""
    return _line({"format": FORMAT, **asdict(header)})


def decode_header(line: bytes) -> Header:
    """What `encode_header` wrote.

    Raises:
        SessionError: the log has a newer format.
        ValueError: it is no header.
    """
    data = _object(line)
    check_format(data.get("format"))
    session_id, agent_name, created_at = (data.get(name) for name in ("session_id", "agent_name", "created_at"))
    if not (isinstance(session_id, str) and isinstance(agent_name, str) and isinstance(created_at, int | float)):
        raise ValueError("it does not begin with whose session it is")  # noqa: TRY004 - about the line's content
    return Header(session_id=session_id, agent_name=agent_name, created_at=created_at)


def check_format(number: object) -> None:
    """Refuse a format that this version cannot read.

    Raises:
        SessionError: it is newer.
        ValueError: it is no format's number.
    """
    if not isinstance(number, int) or number < 1:
        raise ValueError("it does not begin with the number of a format")
    if number > FORMAT:
        raise SessionError(f"it has format {number} and this version knows {FORMAT}, {NEWER}")


def _fields_of(value: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass instance; others raise TypeError
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    # An output schema without a word in it is one all the same.
    return {name: item for name, item in given.items() if item or item == {} or (type(value), name) not in _ADDED}


_ADDED: frozenset[tuple[type, str]] = frozenset(
    {
        (Task, "images"),
        (Task, "output_schema"),
        (Started, "facts"),
        (Observed, "unfit"),
        (Outcome, "output_json"),
    }
)
"""Fields that format 1 did not begin with."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_fields_of)


def _line(data: dict[str, object]) -> bytes:
    # A surrogate without its other half, e.g. from a file name that is no UTF-8, cannot be written as UTF-8 proper.
    return _ENCODER.encode(data).encode("utf-8", "surrogatepass")


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - about the line, not about a type in Python
    return data


def _made(kind: type[_T], data: dict[str, Any]) -> _T:
    """Build a value, checking what is plain in it: a log may have been written by anybody."""
    if not _NAMES[kind].issuperset(data):
        unknown = min(data.keys() - _NAMES[kind])
        raise SessionError(f"a {kind.__name__} in it has the field {unknown!r}, {NEWER}")
    for field, build in _BUILDERS.get(kind, {}).items():
        if field in data:
            data[field] = build(data[field])
    for field, types in _TYPES[kind].items():
        if field in data and type(data[field]) not in types:
            raise TypeError(f"its {field} is {type(data[field]).__name__}")
    return kind(**data)


def _status(value: object) -> Status:
    if not isinstance(value, str):
        raise TypeError("its status is no text")
    try:
        return Status(value)
    except ValueError:
        raise SessionError(f"a run in it ended {value!r}, {NEWER}") from None


def _role(value: object) -> Role:
    for role in get_args(Role):
        if value == role:
            return cast("Role", role)
    raise TypeError("its role is neither user nor assistant")


def _media_type(value: object) -> MediaType:
    for kind in get_args(MediaType):
        if value == kind:
            return cast("MediaType", kind)
    raise SessionError(f"an image in it is of the kind {value!r}, {NEWER}")


def _numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(item) is not int for item in value):
        raise TypeError("it has something else where a list of numbers belongs")
    return tuple(value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or any(type(item) is not str for item in value):
        raise TypeError("it has something else where a list of texts belongs")
    return tuple(value)


_usage = partial(_made, Usage)
_pending = partial(_made, PendingCall)

_KINDS: dict[str, type[Recorded]] = {kind.__name__: kind for kind in get_args(Recorded)}
_NAMES: dict[type[Any], frozenset[str]] = {
    kind: frozenset(field.name for field in fields(kind))
    for kind in (*_KINDS.values(), Task, Quote, Image, Usage, PendingCall, Outcome)
}
_BUILDERS: dict[type[Any], dict[str, Callable[[Any], object]]] = {
    Started: {"task": partial(_made, Task), "facts": _texts},
    Task: {
        "quotes": lambda quotes: tuple(_made(Quote, quote) for quote in quotes),
        "images": lambda images: tuple(_made(Image, image) for image in images),
    },
    Image: {"media_type": _media_type},
    Replied: {"usage": _usage},
    ReplyBroken: {"usage": _usage},
    Paused: {"pending": _pending},
    Parked: {"terminals": _texts},
    Told: {"role": _role},
    Shrunk: {"tasks": _numbers, "outputs": _numbers},
    Summarised: {"usage": _usage},
    Ended: {"outcome": partial(_made, Outcome)},
    Outcome: {
        "status": _status,
        "pending": lambda pending: None if pending is None else _pending(pending),
        "usage": _usage,
    },
}
"""How the fields are made that are not plain data themselves."""

_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (float, int),
    "str | None": (str, NoneType),
    "float | None": (float, int, NoneType),
    "dict[str, Plain]": (dict,),
    "dict[str, Plain] | None": (dict, NoneType),
    "PendingKind": (str,),
}
_TYPES: dict[type[Any], dict[str, tuple[type, ...]]] = {
    kind: {field.name: _PLAIN[field.type] for field in fields(kind) if field.type in _PLAIN} for kind in _NAMES
}
"""What the fields may be that are plain data, by their annotations, which are text here. A bool is no number."""
