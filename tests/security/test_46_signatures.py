"""Threat 46: what is not proven to come from GitHub is answered 401, with nothing of it parsed."""

from __future__ import annotations

import hashlib
import hmac
import inspect

import pytest
from gidgethub.sansio import validate_event
from pydantic import SecretStr

from bot.domain.errors import ConfigError, UnauthenticatedError
from bot.domain.job import JobState
from bot.events.delivery import from_webhook, verify_signature
from bot.queue.memory import InMemoryEngine
from bot.settings.load import load
from tests.builders import SECRET, a_comment_event, a_request, signature
from tests.webhook_receiver import receiving, webhook_options

_, BODY = a_request(a_comment_event())
SHA1 = "sha1=" + hmac.new(SECRET.encode(), BODY, hashlib.sha1).hexdigest()

FORGERIES = {
    "none": {},
    "empty": {"X-Hub-Signature-256": ""},
    "sha1 only": {"X-Hub-Signature": SHA1},
    "sha1 in the new header": {"X-Hub-Signature-256": SHA1},
    "another secret": {"X-Hub-Signature-256": signature(BODY, "other")},
    "empty secret": {"X-Hub-Signature-256": signature(BODY, "")},
    "another body": {"X-Hub-Signature-256": signature(BODY + b" ")},
    "no prefix": {"X-Hub-Signature-256": signature(BODY).removeprefix("sha256=")},
    "upper case": {"X-Hub-Signature-256": signature(BODY).upper()},
    "cut": {"X-Hub-Signature-256": signature(BODY)[:-1]},
    "two": {"X-Hub-Signature-256": f"{signature(BODY, 'x')}, {signature(BODY)}"},
    "not ascii": {"X-Hub-Signature-256": "sha256=" + "\u00e4" * 64},
}


def _headers(forgery: dict[str, str]) -> dict[str, str]:
    headers, _ = a_request({})
    del headers["X-Hub-Signature-256"]
    return {**headers, **forgery}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_delivery_is_not_authenticated(forgery: dict[str, str]) -> None:
    with pytest.raises(UnauthenticatedError):
        from_webhook(_headers(forgery), BODY, SECRET)


async def test_the_door_answers_401_and_stores_nothing() -> None:
    queue = InMemoryEngine()
    async with receiving(queue) as receiver:
        for forgery in FORGERIES.values():
            status, answer = await receiver.post(_headers(forgery), BODY)
            assert (status, answer["status"]) == (401, "refused")
    assert (await queue.counts())[JobState.QUEUED] == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff\xfe"])
def test_the_body_is_not_parsed_first(body: bytes) -> None:
    with pytest.raises(UnauthenticatedError):
        from_webhook(_headers(FORGERIES["another secret"]), body, SECRET)


@pytest.mark.parametrize("change", [b" ", b"\n", b"\r\n", b"\xef\xbb\xbf"])
def test_the_signature_is_over_the_raw_bytes(change: bytes) -> None:
    headers, body = a_request(a_comment_event())
    with pytest.raises(UnauthenticatedError):
        from_webhook(headers, body + change, SECRET)
    with pytest.raises(UnauthenticatedError):
        from_webhook(headers, change + body, SECRET)


def test_without_a_secret_nothing_is_genuine_not_even_what_is_signed_with_none() -> None:
    with pytest.raises(UnauthenticatedError, match="no webhook secret"):
        from_webhook({**_headers({}), "X-Hub-Signature-256": signature(BODY, "")}, BODY, "")


def test_without_a_secret_the_service_does_not_start() -> None:
    with pytest.raises(ConfigError, match="CODEPILOT_WEBHOOK_SECRET"):
        load({})
    with pytest.raises(ConfigError):
        webhook_options(secret=SecretStr(""))


def test_signatures_are_compared_in_constant_time() -> None:
    assert "validate_event" in inspect.getsource(verify_signature)
    assert "hmac.compare_digest" in inspect.getsource(validate_event)
