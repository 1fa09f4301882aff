from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from agent_runtime.core.events import Recorded
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
