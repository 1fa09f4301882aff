"""Threat 36: the App's private key and what is signed with it stand in no log and no traceback; its file is private."""

from __future__ import annotations

import io
import logging
import time
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bot.publishing.redact import Redactor
from bot.server.process import SafeFormatter
from bot.settings.models import LogFormat
from bot.settings.parsing import read_private_key


@pytest.fixture(scope="module")
def key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


def _logged(redactor: Redactor, text: str, style: LogFormat = "text") -> str:
    """Log output for an error with this text, including the traceback."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter(redactor, style))
    logger = logging.getLogger(f"test.{id(stream)}")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        _fail(text)
    except ValueError:
        logger.exception("could not sign with %s", text)
    return stream.getvalue()


def _fail(text: str) -> None:
    raise ValueError(text)


@pytest.mark.parametrize("known", [True, False], ids=["the bot's own", "any"])
@pytest.mark.parametrize("style", ["text", "json"])
def test_a_private_key_is_in_no_line_of_the_log(key: str, style: LogFormat, *, known: bool) -> None:
    shown = _logged(Redactor([key] if known else []), key, style)
    assert "ValueError: [redacted]" in shown
    assert not any(line in shown for line in key.splitlines()[1:-1])


@pytest.mark.parametrize("style", ["text", "json"])
def test_neither_is_a_token_that_is_signed_with_it(key: str, style: LogFormat) -> None:
    now = int(time.time())
    token = jwt.encode({"iat": now, "exp": now + 600, "iss": "41"}, key, algorithm="RS256")
    shown = _logged(Redactor(), f"Authorization: Bearer {token}", style)
    assert "Bearer [redacted]" in shown
    assert not any(part in shown for part in token.split("."))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601])
def test_a_key_that_others_may_open_is_refused_at_the_start(key: str, mode: int, tmp_path: Path) -> None:
    file = tmp_path / "app.pem"
    file.write_text(key)
    file.chmod(mode)
    with pytest.raises(ValueError, match="chmod 600"):
        read_private_key(str(file))
    file.chmod(0o600)
    assert read_private_key(str(file)).get_secret_value() == key
    assert key not in repr(read_private_key(str(file)))
