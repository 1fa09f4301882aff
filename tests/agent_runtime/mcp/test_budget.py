from __future__ import annotations

from agent_runtime.mcp.budget import MAX_PIECES, Budget

SAID = bytes(4 * 1024**2)


def test_bytes_and_pieces_are_counted_together() -> None:
    large, many = Budget(), Budget()
    assert all(large.takes(SAID) for _ in range(64))
    assert not large.takes(b"x")
    assert large.spent
    assert many.takes(b"", MAX_PIECES)
    assert not many.takes(b"")
    assert "268,435,456 bytes, or 100,000 messages" in many.refusal
