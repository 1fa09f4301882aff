from __future__ import annotations

import logging

import pytest

from bot.apps.logs import SafeFormatter
from bot.publishing.redact import Redactor

SECRET = "webhook-secret-of-the-test"


def _logged(message: str, *args: object, error: BaseException | None = None) -> str:
    trace = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("bot", logging.INFO, __file__, 1, message, args, trace)
    return SafeFormatter(Redactor([SECRET])).format(record)


def test_a_secret_in_an_argument_or_a_traceback_is_redacted() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - any error with a traceback will do
        int(SECRET)
    shown = _logged("asked with %s", SECRET, error=caught.value)
    assert SECRET not in shown
    assert "asked with [redacted]" in shown
    assert "base 10: '[redacted]'" in shown


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_strangers_line_neither_passes_for_ours_nor_commands_a_runner(end: str) -> None:
    shown = _logged("job j1: %s", f"it failed{end}::add-mask::a{end}##[add-mask]b\x1b[2J")
    first, *rest = shown.split("\n")
    assert first.endswith("INFO bot job j1: it failed")
    assert rest
    assert all(line.startswith("  | ") for line in rest)
    assert "##[" not in shown
    assert "\x1b" not in shown
    assert "\r" not in shown
