from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.core.errors import SessionNewerError
from agent_runtime.core.events import Observed, Recorded, Started, ToolReturned
from agent_runtime.core.values import Task
from agent_runtime.sessions.codec import (
    FORMAT,
    Header,
    decode,
    decode_header,
    encode,
    encode_header,
    escape_key,
    file_name,
    parse,
    unescape_key,
)
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.sessions.samples import SAMPLES, any_event

HEADER = Header(session_id="a/b", agent_name="agent", created_at=1.5)


@settings(deadline=None, max_examples=400)
@given(event=any_event())
def test_any_event_comes_back_as_it_was(event: Recorded) -> None:
    line = encode(event)
    assert b"\n" not in line
    assert decode(line) == event


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_each_kind_of_event_comes_back_as_it_was(event: Recorded) -> None:
    assert decode(encode(event)) == event


def test_there_is_a_sample_of_each_kind_of_event() -> None:
    assert {type(event) for event in SAMPLES} == set(get_args(Recorded))


def test_a_log_that_was_written_with_format_1_is_read() -> None:
    log = parse((Path(__file__).parent / "format_1.jsonl").read_bytes(), "the log")
    assert log.header == HEADER
    assert tuple(log.events) == SAMPLES
    assert not log.torn


def test_two_halves_of_a_character_stay_two() -> None:
    event = Observed(step=1, text="\ud83d\ude00", ok=True)
    assert decode(encode(event)) == event


def test_a_tuple_in_plain_data_comes_back_as_a_list() -> None:
    event = ToolReturned(number=1, tool="t", args={}, value=(1, (2,)), text="", ok=True, seconds=0, label="")
    read = decode(encode(event))
    assert isinstance(read, ToolReturned)
    assert read.value == [1, [2]]


def test_what_is_no_plain_data_is_refused_when_it_is_recorded() -> None:
    event = ToolReturned(
        number=1, tool="t", args={"a": {1, 2}}, value=None, text="", ok=True, seconds=0, label=""  # type: ignore[dict-item] # what no tool may give
    )  # fmt: skip
    with pytest.raises(TypeError):
        encode(event)


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "Dreamt", "text": "x"},
        {"kind": "Observed", "step": 1, "text": "x", "ok": True, "mood": "good"},
        {"kind": "Replied", "step": 1, "text": "x", "usage": {"electricity": 3}},
        {
            "kind": "Started",
            "task": {"goal": "g", "images": [{"source": "s", "media_type": "image/avif", "data": ""}]},
            "opening": "",
        },
        {"kind": "Ended", "outcome": {"status": "ascended", "usage": {}, "pending": None}},
        {"kind": "Imported", "role": "narrator", "text": "x"},
    ],
)
def test_what_only_a_newer_version_knows_is_said_to_be_newer(line: object) -> None:
    with pytest.raises(SessionNewerError):
        decode(json.dumps(line).encode())


def test_an_image_comes_back_to_the_byte() -> None:
    event = Started(task=Task(goal="look", images=(picture(), picture("b", shade=3))), opening="look")
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    "image", ["x", 3, {"source": "s", "media_type": "image/png"}, {"source": 1, "media_type": "image/png", "data": ""}]
)
def test_what_is_no_image_is_a_value_error(image: object) -> None:
    line = {"kind": "Started", "task": {"goal": "g", "images": [image]}, "opening": ""}
    with pytest.raises(ValueError, match="Started"):
        decode(json.dumps(line).encode())


def test_a_field_with_a_default_may_be_left_out() -> None:
    assert decode(b'{"kind":"Resumed","request_id":"x","approved":true}') == decode(
        b'{"kind":"Resumed","request_id":"x","approved":true,"note":""}'
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\0\0\0",
        b'{"kind":"Observed","step":1',
        b'{"kind":"Observed","step":1}',
        b'{"kind":"Ended","outcome":3}',
        b'{"kind":"Imported","role":7,"text":"x"}',
        b'{"kind":"Parked","reason":"x","files":["x"]}',
        b'{"kind":"Shrunk","tasks":[true]}',
        b'{"kind":7}',
        b"[]",
        b"3",
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_whole_event_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)


def test_a_header_comes_back_as_it_was() -> None:
    header = Header(session_id="\0\ud800 'A'", agent_name="", created_at=1795313184.25)
    assert decode_header(encode_header(header)) == header


def test_a_newer_format_is_refused() -> None:
    line = json.dumps({"format": FORMAT + 1, "owner": "s"}).encode()
    with pytest.raises(SessionNewerError, match=f"format {FORMAT + 1} "):
        decode_header(line)


@pytest.mark.parametrize("line", [b"{}", b'{"format":true}', b'{"format":1}', b'{"format":0,"session_id":"s"}'])
def test_what_is_no_header_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="does not start"):
        decode_header(line)


IDS = [
    "a/b",
    "a_b",
    "a-b",
    "A",
    "a",
    "",
    ".",
    "..",
    "../x",
    "x" * 300,
    "x" * 301,
    "a\0b",
    "ß",
    "\ud83d\ude00",
    "😀",
    "CON",
]


def test_ids_never_share_a_file_not_even_where_case_does_not_count() -> None:
    assert len({file_name(session_id).lower() for session_id in IDS}) == len(IDS)


@given(st.text(st.characters(exclude_categories=())))
def test_a_file_name_is_short_and_plain_whatever_the_id(session_id: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", file_name(session_id))


def test_people_find_an_id_in_its_file_name() -> None:
    assert file_name("Ecommerce API/v2").startswith("ecommerce-api-v2-")


@given(st.text(st.characters(exclude_categories=())))
def test_an_escaped_text_is_text_for_a_database_and_comes_back(text: str) -> None:
    assert "\0" not in escape_key(text)
    escape_key(text).encode("utf-8")
    assert unescape_key(escape_key(text)) == text


@pytest.mark.parametrize("session_id", ["ecommerce-api", "user 42", "é/☃", "octo/calc#7"])
def test_an_ordinary_id_is_its_own_key(session_id: str) -> None:
    assert escape_key(session_id) == session_id
