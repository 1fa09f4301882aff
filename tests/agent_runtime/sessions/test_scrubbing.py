from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from agent_runtime.core.events import Recorded, Replied
from agent_runtime.core.values import ToolRequest, Usage
from agent_runtime.sessions.codec import decode, encode
from agent_runtime.sessions.protocol import scrubbed
from tests.agent_runtime.sessions.samples import SAMPLES, any_event


@given(any_event())
def test_what_holds_no_secret_comes_back_as_it_is(event: Recorded) -> None:
    assert scrubbed(event, lambda text: text) == event


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_every_text_is_scrubbed_and_what_is_left_can_be_kept(event: Recorded) -> None:
    clean = scrubbed(event, lambda _text: "x")
    assert decode(encode(clean)) == clean
    kept = encode(clean).decode("utf-8", "surrogatepass")
    for word in ("mend it", "half a character", "found", "hurry", "look at it", "HEAD: 1234", "rm -r build"):
        assert word not in kept


@pytest.mark.parametrize("secret", ['pa"ss\\word', "pässword", "two\nlines", "a\ttab"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_that_json_escapes_is_taken_out_of_arguments_and_reasoning(secret: str, *, ascii_only: bool) -> None:
    def scrub(text: str) -> str:
        return text.replace(secret, "[secret]")

    written = json.dumps({"code": f"login({secret})", secret: [1.5]}, ensure_ascii=ascii_only)
    request = ToolRequest(id="1", name="script", arguments=written)
    clean = scrubbed(Replied(step=1, text="", usage=Usage(), requests=(request,), reasoning=written), scrub)
    assert json.loads(clean.requests[0].arguments) == {"code": "login([secret])", "[secret]": [1.5]}
    assert clean.reasoning == ""
    for untouched in ('{"a":  NaN}', '{"a":', "[" * 5_000, '{"a": 1, "a": 2}'):
        assert scrubbed(replace(request, arguments=untouched), scrub).arguments == untouched


def test_signed_reasoning_that_holds_a_secret_is_dropped_whole() -> None:
    event = Replied(step=1, text="", usage=Usage(), reasoning='{"kept": "s3cret"}')
    clean = scrubbed(event, lambda text: text.replace("s3cret", "[secret]"))
    assert clean == replace(event, reasoning="")
