"""Large deliveries: only what a trigger uses is parsed, within a bound on memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.events.delivery import parse_delivery
from bot.events.triggers import job_from
from bot.queue.deliveries import read_in_worker, select_members
from bot.queue.records import decode_job
from tests.builders import a_comment_event, a_request
from tests.payloads import LISTENING
from tests.source_files import ROOT

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["action", "issue", "other", "more"]), VALUES), st.sampled_from([None, 2]))
def test_the_members_are_those_of_the_whole_object(document: dict[str, object], indent: int | None) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=bool(indent)).encode()
    members = {name: value for name, value in document.items() if name in {"action", "issue"}}
    assert json.loads(select_members(body, {"action", "issue"})) == members


def test_the_last_of_equal_names_counts_however_it_is_written() -> None:
    body = rb'{"a": 1, "a": 2, "b": 3, "\u0061": 4, "\"a": 5}'
    assert json.loads(select_members(body, {"a"}))["a"] == json.loads(body)["a"]


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[]", b'[{"a": 1}]', b"{", b'{"a"', b'{"a":', b'{"a": 1', b'{"b": "x', b'{"b": [[]', b'{"a": 1} x'],
)
def test_a_text_that_is_no_object_is_left_as_it_is(body: bytes) -> None:
    assert select_members(body, {"a"}) == body


def test_a_delivery_is_read_as_a_small_one_is(tmp_path: Path) -> None:
    event = a_comment_event("/codepilot fix \u2028 it")
    headers, body = a_request({**event, "extra": [{"id": number} for number in range(1_000)]})
    (tmp_path / "delivery").write_bytes(body)
    kind, _, text = read_in_worker(str(tmp_path / "delivery"), headers, LISTENING).partition(":")
    assert kind == "job"
    assert decode_job(text) == job_from(parse_delivery(headers, body), LISTENING)


MEGABYTE = 1_000_000
SHAPES: dict[str, Callable[[], dict[str, object]]] = {
    "text": lambda: a_comment_event("/codepilot fix", issue__body="x" * 20 * MEGABYTE),
    "command": lambda: a_comment_event("/codepilot fix " + "x" * 20 * MEGABYTE),
    "repositories": lambda: {
        **a_comment_event("/codepilot fix"),
        "extra": [{"id": n, "name": f"name-{n}", "full_name": f"octo/name-{n}"} for n in range(340_000)],
    },
}
_MEASURE = """
import resource, sys
from bot.queue.deliveries import read_in_worker
from tests.payloads import LISTENING
grown = -resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
answer = read_in_worker(sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2])), LISTENING)
grown += resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(grown * 1024, len(answer), answer[:4])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere `ru_maxrss` is not in kilobytes")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_delivery_of_20_mb_takes_little_memory_and_makes_a_small_job(shape: str, tmp_path: Path) -> None:
    headers, body = a_request(SHAPES[shape]())
    assert len(body) > 19 * MEGABYTE
    (tmp_path / "delivery").write_bytes(body)
    arguments = [text for header in headers.items() for text in header]
    command = [sys.executable, "-c", _MEASURE, str(tmp_path / "delivery"), *arguments]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert printed[2] == "job:"
    assert int(printed[0]) < 90 * MEGABYTE
    assert int(printed[1]) < MEGABYTE
