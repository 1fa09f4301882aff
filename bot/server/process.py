"""The bot as a process of its machine: its protection from other processes, its watchdog and its log.

It refuses to run as root, and its memory is closed to others (`guard`). A second process ends it when its event loop is
blocked, so that its supervisor restarts it (`Watchdog`). Its log has no secrets, and no text of strangers that looks
like its own lines or like commands (`SafeFormatter`).
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import json
import logging
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from structlog.contextvars import merge_contextvars
from structlog.processors import StackInfoRenderer, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict

from bot.domain.errors import ConfigError
from bot.publishing.markdown import clean
from bot.publishing.redact import Redactor
from bot.server.watchdog_process import BEAT, ENDING
from bot.settings.models import LogFormat

log = logging.getLogger(__name__)
_PR_SET_DUMPABLE = 4  # prctl(2), linux/prctl.h

ROOT = (
    "The bot refuses to run as root, because nothing on this machine is safe from root if the sandbox fails. Run it "
    "as a separate user (for example: sudo useradd --system codepilot; sudo -u codepilot codepilot serve). On a "
    "machine that is discarded after the job, set CODEPILOT_ALLOW_ROOT=yes"
)
"""The refusal to run as root, and the remedy."""


def guard(*, allow_root: bool) -> None:
    """Refuse root unless it is allowed, and close this process's memory to other processes of its user.

    Raises:
        ConfigError: this is root, and the operator has not allowed that.
    """
    if sys.platform == "win32":
        return
    if os.geteuid() == 0 and not allow_root:
        raise ConfigError((ROOT,))
    close_memory()


def close_memory() -> None:
    """Keep other processes of the same user from this one's memory, environment and descriptors; no core dumps either.

    Linux only (PR_SET_DUMPABLE in prctl(2), ptrace(2)); programs that are started get their own again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


STUCK_SECONDS = 10.0
ENDING_SECONDS = 30.0
_WATCHER = Path(__file__).with_name("watchdog_process.py")


class Watchdog:
    """A second process that this one's event loop has to write to.

    When it hears nothing for too long it ends this process by SIGABRT: `faulthandler` writes the stacks of all threads
    to standard error, which works while C code holds the interpreter's lock, and the signal ends the process, which
    tells its supervisor (`status=6/ABRT`, exit code 134 in a shell or container) that this was no ordinary end.

    Args:
        stuck_seconds: how long the loop may stand still.
        ending_seconds: how long the process may live after `ending`.
    """

    def __init__(self, *, stuck_seconds: float = STUCK_SECONDS, ending_seconds: float = ENDING_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds
        self._ending_seconds = ending_seconds
        self._watcher: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to watch the running loop; until then, in a start-up that may block it, nothing is watched."""
        if not faulthandler.is_enabled():
            faulthandler.enable(all_threads=True)
        numbers = (os.getpid(), self._stuck_seconds, self._ending_seconds)
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", _WATCHER, *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={},
        )
        self._beat(asyncio.get_running_loop())

    def ending(self) -> None:
        """Bound the time that the process may still live; for the code that tells it to stop."""
        self._write(ENDING)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._write(BEAT):
            loop.call_later(self._stuck_seconds / 10, self._beat, loop)

    def _write(self, said: bytes) -> bool:
        if self._watcher is None or self._watcher.stdin is None:
            return False
        try:
            # One byte into a pipe that is read all the time never blocks.
            os.write(self._watcher.stdin.fileno(), said)
        except BrokenPipeError:
            log.error("the watchdog has died; a blocked event loop will no longer be detected")  # noqa: TRY400 - no fault to trace
            self._watcher = None
            return False
        return True


_PLAIN = re.compile(r"[\w./:@+-]+")

_OWN_HANDLERS = ("dbos",)
"""Libraries that write to standard error by handlers of their own."""


def start_log(redactor: Redactor, style: LogFormat = "text", *, stream: TextIO | None = None) -> None:
    """Send the log of this process to `stream`, by default standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(SafeFormatter(redactor, style))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in _OWN_HANDLERS:
        library = logging.getLogger(name)
        # With one in place it adds none.
        library.handlers[:] = [logging.NullHandler()]
        library.propagate = True


class SafeFormatter(ProcessorFormatter):
    """Formats a record so that what strangers wrote in it stays what it is.

    Only a record's first line begins at the margin: GitHub's runner carries out lines that begin with `::`, and what
    stands behind `##[` anywhere, and people take a line that looks like ours for ours.
    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands

    What is bound with `structlog.contextvars` where the record is made is shown with it.
    """

    def __init__(self, redactor: Redactor, style: LogFormat = "text") -> None:
        """Prepare.

        Args:
            redactor: takes secrets out.
            style: `text` for people, or `json` for one JSON object a line.
        """
        super().__init__(
            foreign_pre_chain=[merge_contextvars, StackInfoRenderer(), format_exc_info],
            processors=[self._safe, self._json if style == "json" else self._text],
        )
        self._redactor = redactor

    def _safe(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        """Clean all texts of a record, tracebacks included, and take secrets out."""

        def safe(value: object) -> object:
            if isinstance(value, int | float):
                return value
            text = clean(str(value).replace("\r", "\n"))
            return self._redactor.redact(text).replace("##[", "# #[")

        record = event.pop("_record")
        del event["_from_structlog"]
        safe_event = {key: safe(value) for key, value in sorted(event.items())}
        return {"_record": record, "logger": safe(record.name), **safe_event}

    def _text(self, _logger: object, _method: str, event: EventDict) -> str:
        record, name = event.pop("_record"), event.pop("logger")
        texts = [event.pop("event"), *(event.pop(key) for key in ("exception", "stack") if key in event)]
        about = " ".join(f"{key}={_quoted(value)}" for key, value in event.items())
        head = f"{self.formatTime(record)} {record.levelname} {name} {about and f'[{about}] '}"
        return (head + "\n".join(texts)).replace("\n", "\n  | ")

    @staticmethod
    def _json(_logger: object, _method: str, event: EventDict) -> str:
        record = event.pop("_record")
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": moment, "level": record.levelname.lower(), "message": event.pop("event"), **event})


def _quoted(value: object) -> str:
    """Return a value as text that cannot be taken for two values."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
