from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from agent_runtime.core.events import Recorded, Replied
from agent_runtime.core.outcome import Usage
from agent_runtime.sessions.codec import decode, encode
from agent_runtime.sessions.scrubbing import scrubbed
from tests.agent_runtime.sessions.samples import SAMPLES, any_event


@settings(suppress_health_check=[HealthCheck.too_slow])
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


def test_signed_reasoning_that_holds_a_secret_is_dropped_whole() -> None:
    event = Replied(step=1, text="", usage=Usage(), reasoning='{"kept": "s3cret"}')
    clean = scrubbed(event, lambda text: text.replace("s3cret", "[secret]"))
    assert clean == replace(event, reasoning="")
