"""A session's index: a few lines beside the log that can always be made again."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_runtime.core.errors import SessionError
from agent_runtime.sessions.codec import Header, check_format
from agent_runtime.sessions.log import parse, parse_rest
from agent_runtime.sessions.messages import Metadata, messages_of
from agent_runtime.sessions.regular import opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What the first `size` bytes of a log hold.

    Attributes:
        format: the log's format.
        header: whose it is.
        messages: how many messages its events make.
        updated_at: when the last of them was written, in seconds since 1970.
        size: bytes.
    """

    format: int
    header: Header
    messages: int
    updated_at: float
    size: int


def write(path: Path, index: Index) -> None:
    """Put the index in the place of an older one, at once; only the holder of the session's lock may.

    Raises:
        OSError: it cannot be written.
    """
    new = path.with_suffix(".index-new")
    new.unlink(missing_ok=True)
    fd = opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(asdict(index), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    new.replace(path)


def read(path: Path) -> Index | None:
    """The index; None when there is none that can be used: it can be made again from the log."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError, SessionError):
        with os.fdopen(opened(path, os.O_RDONLY), "rb") as file:
            data: dict[str, Any] = json.loads(file.read().decode("utf-8", "surrogatepass"))
        check_format(data["format"])
        return Index(**{**data, "header": Header(**data["header"])})
    return None


def metadata(log: Path) -> Metadata | None:
    """What is known of a session from its log and the index beside it; None when there is no such log.

    Only what the index does not cover yet is read.

    Raises:
        SessionError: the log is damaged, or a newer version wrote it.
        OSError: it cannot be read.
    """
    name = f"The session file {log}"
    try:
        with os.fdopen(opened(log, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            index = read(index_of(log))
            if index is None or index.size > status.st_size:
                content = parse(file.read(), name)
                header, messages, updated_at = content.header, len(messages_of(content.events)), status.st_mtime
            else:
                file.seek(index.size)
                rest = messages_of(parse_rest(file.read(), name))
                header, messages = index.header, index.messages + len(rest)
                updated_at = index.updated_at if index.size == status.st_size else status.st_mtime
    except FileNotFoundError:
        return None
    if header is None:
        return None
    return Metadata(
        session_id=header.session_id,
        agent_name=header.agent_name,
        created_at=header.created_at,
        updated_at=max(updated_at, header.created_at),  # a file system's clock ticks less often than ours
        messages=messages,
    )


def index_of(log: Path) -> Path:
    """Where the index of a log lies."""
    return log.with_suffix(".index")
