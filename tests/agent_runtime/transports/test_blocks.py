"""The transport of control blocks: payloads, and a reply as plain words."""

from __future__ import annotations

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.transports.blocks import BlockTransport, Payloads
from agent_runtime.transports.blocks_parser import Payload


def test_payloads_are_taken_in_order() -> None:
    payloads = Payloads([Payload(text="one", filename=None), Payload(text="two", filename="b")])
    assert payloads.unused() == 2
    assert payloads.take("a") == "one"
    assert payloads.take("./b") == "two"
    assert payloads.unused() == 0


def test_a_missing_payload_is_named() -> None:
    payloads = Payloads([Payload(text="one", filename=None)])
    payloads.take("a")
    with pytest.raises(ToolError, match=r"write_file\('b'\) needs payload 2, but the reply has 1"):
        payloads.take("b")


def test_a_payload_for_another_file_is_refused_and_not_taken() -> None:
    payloads = Payloads([Payload(text="one", filename="x.py")])
    with pytest.raises(ToolError, match=r"payload 1 says filename=x.py, but its turn came with write_file\('y.py'\)"):
        payloads.take("y.py")
    assert payloads.unused() == 1


WORDS = "Alpha was done, all tests pass."


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        pytest.param(WORDS, WORDS, id="plain"),
        pytest.param(f"```completion\n{WORDS}\n```\n", WORDS, id="in a fence"),
        pytest.param(f'{WORDS}\n```codepilot\nexecute("main", "ls")\n```\n', WORDS, id="and then it acts"),
        pytest.param('```codepilot\nexecute("main", "ls for all that is there")\n```\n', "", id="it only acts"),
    ],
)
def test_of_a_reply_that_was_to_be_plain_text_its_words_are_taken(reply: str, words: str) -> None:
    assert BlockTransport().extract_prose(reply).strip() == words
