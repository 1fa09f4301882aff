from __future__ import annotations

from contextlib import closing

from agent_runtime.mcp.client import MAX_PIECES, Budget, LastWords
from tests.waiting import eventually

SAID = bytes(4 * 1024**2)


def test_bytes_and_pieces_are_counted_together() -> None:
    large, many = Budget(), Budget()
    assert all(large.takes(SAID) for _ in range(64))
    assert not large.takes(b"x")
    assert large.spent
    assert many.takes(b"", MAX_PIECES)
    assert not many.takes(b"")
    assert "268,435,456 bytes, or 100,000 messages" in many.refusal


async def test_no_end_of_a_secret_is_among_the_last_words_of_a_server() -> None:
    with closing(LastWords(Budget(), ("the-secret",))) as words:
        for said in (b"ready\nkey: the-", b"secret", b"." * 1_995):  # all that is kept begins in its middle
            words.theirs.send(said)
        await eventually(lambda: words.text.endswith("." * 1_995))
        assert "ecret" not in words.told
