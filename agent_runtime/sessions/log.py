"""Read the bytes of a session's log, and find where they are damaged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.core.errors import SessionDamagedError, SessionNewerError
from agent_runtime.core.events import Recorded
from agent_runtime.sessions.codec import Header, decode, decode_header


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a log holds.

    Attributes:
        header: whose it is; None for a log that was not begun.
        events: oldest first.
        size: bytes up to the end of the last whole event.
        torn: what is wrong with the bytes after it, e.g. because the machine went down while they were written; empty
            when there are none.
    """

    header: Header | None
    events: list[Recorded]
    size: int
    torn: str


def parse(data: bytes, name: str) -> Log:
    """Read a log. An incomplete event at the end is reported and skipped.

    Args:
        data: the whole log.
        name: what to call it in an error.

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
            if _anything_whole(lines[number + 1 :]):
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
    """The whole events at the beginning of a later part of a log, up to one that is not whole.

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


def _anything_whole(lines: Sequence[bytes]) -> bool:
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
