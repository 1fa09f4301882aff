from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from bot.domain.errors import MalformedError, UnauthenticatedError
from bot.events.delivery import from_action, from_webhook
from tests.builders import SECRET, a_comment_event, a_request, signature


def _signed(body: bytes, **changes: str) -> dict[str, str]:
    headers, _ = a_request({})
    return {**headers, "X-Hub-Signature-256": signature(body), **changes}


def test_a_signed_delivery_becomes_a_value() -> None:
    headers, body = a_request(a_comment_event())
    delivery = from_webhook(headers, body, SECRET)
    assert delivery.delivery_id == "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    assert (delivery.event, delivery.action, delivery.installation) == ("issue_comment", "created", 30)
    assert delivery.data == a_comment_event()


def test_githubs_own_example_of_a_signature_is_accepted() -> None:
    # From "Testing the webhook payload validation" in GitHub's documentation; the body is no JSON.
    headers, _ = a_request({})
    headers["X-Hub-Signature-256"] = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    with pytest.raises(MalformedError, match="not JSON"):
        from_webhook(headers, b"Hello, World!", SECRET)


def test_header_names_may_come_in_any_case() -> None:
    headers, body = a_request(a_comment_event())
    assert from_webhook({name.upper(): value for name, value in headers.items()}, body, SECRET).event == "issue_comment"


@pytest.mark.parametrize(
    "payload",
    [
        {"action": 3, "installation": "x"},
        {"installation": {"id": "30"}},
        {"installation": {"id": True}},
        {"installation": {"id": 2**63}},
        {},
    ],
)
def test_odd_optional_parts_are_as_good_as_absent(payload: dict[str, Any]) -> None:
    headers, body = a_request(payload)
    delivery = from_webhook(headers, body, SECRET)
    assert (delivery.action, delivery.installation) == ("", None)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "not JSON|not a JSON object"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"a": "\xff"}', "not JSON"),
        ('{"a": 1}'.encode("utf-16"), "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[" * 200_000 + b"]" * 200_000, "too deeply"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "too deeply"),
    ],
)
def test_a_genuine_body_of_another_shape_is_malformed(body: bytes, complaint: str) -> None:
    with pytest.raises(MalformedError, match=complaint):
        from_webhook(_signed(body), body, SECRET)


@pytest.mark.parametrize(
    ("header", "value", "complaint"),
    [
        ("Content-Type", "application/x-www-form-urlencoded", "set its content type to application/json"),
        ("Content-Type", "", "no content type"),
        ("Content-Type", "text/plain; application/json", "text/plain"),
        ("X-GitHub-Event", "", "X-GitHub-Event"),
        ("X-GitHub-Event", "push\nforged", "X-GitHub-Event"),
        ("X-GitHub-Delivery", "", "X-GitHub-Delivery"),
        ("X-GitHub-Delivery", "../../etc", "X-GitHub-Delivery"),
        ("X-GitHub-Delivery", "a" * 101, "X-GitHub-Delivery"),
    ],
)
def test_a_wrong_header_is_named_with_its_remedy(header: str, value: str, complaint: str) -> None:
    body = b"{}"
    with pytest.raises(MalformedError, match=complaint):
        from_webhook(_signed(body, **{header: value}), body, SECRET)


def test_an_events_name_may_hold_a_digit() -> None:
    headers, body = a_request({"action": "edited"}, event="projects_v2_item")
    assert from_webhook(headers, body, SECRET).event == "projects_v2_item"


@pytest.mark.parametrize("charset", ["utf-8", "no-such-codec", "utf-16", "rot13"])
def test_the_charset_cannot_choose_a_decoder(charset: str) -> None:
    headers, body = a_request({"title": "ä"})
    headers["Content-Type"] = f"Application/JSON; charset={charset}"
    assert from_webhook(headers, body, SECRET).data == {"title": "ä"}


def test_nothing_is_parsed_before_the_signature_is_checked() -> None:
    body = b"{ not json"
    with pytest.raises(UnauthenticatedError):
        from_webhook(_signed(body, **{"X-Hub-Signature-256": signature(b"other")}), body, SECRET)


def test_an_action_event_has_an_id_from_its_run_and_attempt() -> None:
    first = from_action(event="issue_comment", payload=a_comment_event(), run_id="41", run_attempt="1")
    again = from_action(event="issue_comment", payload=a_comment_event(), run_id="41", run_attempt="1")
    rerun = from_action(event="issue_comment", payload=a_comment_event(), run_id="41", run_attempt="2")
    assert first.delivery_id == again.delivery_id != rerun.delivery_id
    assert first.action == "created"


@pytest.mark.parametrize("payload", [None, [], "x", 3])
def test_an_action_payload_must_be_an_object(payload: object) -> None:
    with pytest.raises(MalformedError):
        from_action(event="issue_comment", payload=payload, run_id="41", run_attempt="1")


def test_a_sha1_signature_alone_proves_nothing() -> None:
    body = json.dumps(a_comment_event()).encode()
    sha1 = "sha1=" + hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()
    headers = _signed(body, **{"X-Hub-Signature": sha1})
    del headers["X-Hub-Signature-256"]
    with pytest.raises(UnauthenticatedError):
        from_webhook(headers, body, SECRET)
