from __future__ import annotations

import json

import pytest

from agent_runtime.core.values import Outcome, PendingCall, Status, Usage

PENDING = PendingCall(
    request_id="1", kind="permission", tool="execute", args={"command": "ls"}, reason="", preview="$ ls", workspace=""
)


def test_it_is_plain_data_for_json() -> None:
    outcome = Outcome(status=Status.PAUSED, pending=PENDING, usage=Usage(requests=2))
    data = json.loads(json.dumps(outcome.to_dict()))
    assert (data["status"], data["summary"]) == ("paused", None)
    assert data["pending"]["args"] == {"command": "ls"}
    assert data["usage"]["requests"] == 2


def test_it_equals_what_ended_the_same_way() -> None:
    assert Outcome(status=Status.FINISHED, summary="Done.") == Outcome(status=Status.FINISHED, summary="Done.")
    assert Outcome(status=Status.FINISHED, summary="Done.") != Outcome(status=Status.FINISHED, summary="Done")
    assert Outcome(status=Status.FINISHED) != 3


def test_who_compares_it_with_a_text_is_told_what_to_compare() -> None:
    outcome: object = Outcome(status=Status.FINISHED, summary="Done.")
    with pytest.warns(UserWarning, match="compare its `summary`"):
        assert outcome != "Done."
