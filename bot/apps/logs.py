"""The process's log: without secrets, and without text that looks like our own lines or commands."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

from structlog.contextvars import merge_contextvars
from structlog.processors import StackInfoRenderer, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict

from bot.publishing.redact import Redactor
from bot.publishing.text import clean
from bot.settings.model import LogFormat

_PLAIN = re.compile(r"[\w./:@+-]+")
_OWN_HANDLERS = ("dbos",)
"""Libraries that write to standard error by handlers of their own."""


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
        """All texts of a record, tracebacks included, cleaned and without secrets."""

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
        about = " ".join(f"{key}={_word(value)}" for key, value in event.items())
        head = f"{self.formatTime(record)} {record.levelname} {name} {about and f'[{about}] '}"
        return (head + "\n".join(texts)).replace("\n", "\n  | ")

    @staticmethod
    def _json(_logger: object, _method: str, event: EventDict) -> str:
        record = event.pop("_record")
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": moment, "level": record.levelname.lower(), "message": event.pop("event"), **event})


def _word(value: object) -> str:
    """A value that cannot be taken for two."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


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
