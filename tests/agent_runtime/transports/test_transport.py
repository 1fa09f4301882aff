from __future__ import annotations

import pytest

from agent_runtime.transports.blocks import BlockTransport

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
    assert BlockTransport().words(reply).strip() == words
