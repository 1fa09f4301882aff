"""Hardening, watchdog and log of the process."""

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

ROOT_REFUSAL = (
    "The bot refuses to run as root, because nothing on this machine is safe from root if the sandbox fails. Run it "
    "as a separate user (for example: sudo useradd --system codepilot; sudo -u codepilot codepilot serve). On a "
    "machine that is discarded after the job, set CODEPILOT_ALLOW_ROOT=yes"
)
"""Refusal to run as root."""


def protect_process(*, allow_root: bool) -> None:
    """Refuse root unless allowed, and protect the process's memory.

    Raises:
        ConfigError: this is root.
    """
    if sys.platform == "win32":
        return
    if os.geteuid() == 0 and not allow_root:
        raise ConfigError((ROOT_REFUSAL,))
    close_memory()


def close_memory() -> None:
    """Protect memory, environment and descriptors from other processes of the user, and disable core dumps.

    Linux only (PR_SET_DUMPABLE in prctl(2), ptrace(2)); child processes are not affected.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


STUCK_SECONDS = 10.0
ENDING_SECONDS = 30.0
_WATCHER = Path(__file__).with_name("watchdog_process.py")


class Watchdog:
    """A second process that ends this one by SIGABRT if its event loop blocks.

    `faulthandler` then writes all stacks, even if C code holds the GIL; supervisors see status 6/ABRT or exit code 134.

    Args:
        stuck_seconds: longest time without a beat.
        ending_seconds: longest time after `start_deadline`.
    """

    def __init__(self, *, stuck_seconds: float = STUCK_SECONDS, ending_seconds: float = ENDING_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds
        self._ending_seconds = ending_seconds
        self._watcher: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Watch the running loop. Call this after start-up, which may block."""
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

    def start_deadline(self) -> None:
        """Limit the remaining time of the process."""
        self._write(ENDING)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._write(BEAT):
            loop.call_later(self._stuck_seconds / 10, self._beat, loop)

    def _write(self, message: bytes) -> bool:
        if self._watcher is None or self._watcher.stdin is None:
            return False
        try:
            # Does not block: the watchdog reads the pipe continuously.
            os.write(self._watcher.stdin.fileno(), message)
        except BrokenPipeError:
            log.error("the watchdog has died; a blocked event loop will no longer be detected")  # noqa: TRY400 - no fault to trace
            self._watcher = None
            return False
        return True


_UNQUOTED = re.compile(r"[\w./:@+-]+")

_LIBRARIES_WITH_HANDLERS = ("dbos",)
"""Libraries with handlers for standard error."""


def start_log(redactor: Redactor, style: LogFormat = "text", *, stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(SafeFormatter(redactor, style))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in _LIBRARIES_WITH_HANDLERS:
        library = logging.getLogger(name)
        # The library adds its own only if there is none.
        library.handlers[:] = [logging.NullHandler()]
        library.propagate = True


class SafeFormatter(ProcessorFormatter):
    """Format log records safely: only a record's first line starts at the margin, and `::` and `##[` are defused.

    GitHub's runner executes lines that start with `::`, and text after `##[`.
    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
    """

    def __init__(self, redactor: Redactor, style: LogFormat = "text") -> None:
        super().__init__(
            foreign_pre_chain=[merge_contextvars, StackInfoRenderer(), format_exc_info],
            processors=[self._redact, self._json if style == "json" else self._render_text],
        )
        self._redactor = redactor

    def _redact(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        def safe(value: object) -> object:
            if isinstance(value, int | float):
                return value
            text = clean(str(value).replace("\r", "\n"))
            return self._redactor.redact(text).replace("##[", "# #[")

        record = event.pop("_record")
        del event["_from_structlog"]
        safe_event = {key: safe(value) for key, value in sorted(event.items())}
        return {"_record": record, "logger": safe(record.name), **safe_event}

    def _render_text(self, _logger: object, _method: str, event: EventDict) -> str:
        record, name = event.pop("_record"), event.pop("logger")
        texts = [event.pop("event"), *(event.pop(key) for key in ("exception", "stack") if key in event)]
        about = " ".join(f"{key}={_quote(value)}" for key, value in event.items())
        head = f"{self.formatTime(record)} {record.levelname} {name} {about and f'[{about}] '}"
        return (head + "\n".join(texts)).replace("\n", "\n  | ")

    @staticmethod
    def _json(_logger: object, _method: str, event: EventDict) -> str:
        record = event.pop("_record")
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": moment, "level": record.levelname.lower(), "message": event.pop("event"), **event})


def _quote(value: object) -> str:
    text = str(value)
    return text if _UNQUOTED.fullmatch(text) else json.dumps(text, ensure_ascii=False)
