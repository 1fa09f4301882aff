"""The process's log: without secrets, and without text that its readers would take for lines or commands of ours."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from typing_extensions import override

from bot.publishing.redact import Redactor
from bot.publishing.text import clean

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class SafeFormatter(logging.Formatter):
    """Formats a record so that what strangers wrote in it stays what it is.

    Only a record's first line begins at the margin: GitHub's runner carries out lines that begin with `::`, and what
    stands behind `##[` anywhere, and people take a line that looks like ours for ours.
    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
    """

    def __init__(self, redactor: Redactor) -> None:
        """Prepare.

        Args:
            redactor: takes secrets out.
        """
        super().__init__(_FORMAT)
        self._redactor = redactor

    @override
    def format(self, record: logging.LogRecord) -> str:
        """The record's text, tracebacks included."""
        text = clean(super().format(record).replace("\r", "\n"))
        return self._redactor.redact(text).replace("##[", "# #[").replace("\n", "\n  | ")


def start_log(redactor: Redactor, *, stream: TextIO | None = None) -> None:
    """Send the log of this process to `stream`, by default standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(SafeFormatter(redactor))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
