from __future__ import annotations

import pytest

from agent_runtime.core.text import without_binary


def test_a_stretch_of_binary_data_is_replaced_by_its_length() -> None:
    assert without_binary("pin" + "\ufffda" * 60 + "\n") == "pin[119 characters of binary data]a\n"


@pytest.mark.parametrize(
    "text", ["", "plain", "caf\ufffd und gr\ufffd\ufffd er", "\ufffd" * 11, "\ufffd123456789" * 50]
)
def test_a_text_of_another_encoding_stays_as_far_as_it_can_be_read(text: str) -> None:
    assert without_binary(text) == text
