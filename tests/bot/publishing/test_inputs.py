from __future__ import annotations

import pytest

from bot.publishing.render import in_inputs


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ask the operator to raise `CODEPILOT_MAX_STEPS`.", "ask the operator to raise the input `max-steps`."),
        ("can raise the limit (`CODEPILOT_CAPS=user=…`).", "can raise the limit (`caps: user=…`)."),
        ("set CODEPILOT_SANDBOX=bubblewrap, or", "set `sandbox: bubblewrap`, or"),
        ("raise CODEPILOT_FETCH_MB", "raise the input `fetch-mb`"),
        ("`CODEPILOT_` begins their names", "`CODEPILOT_` begins their names"),
    ],
)
def test_a_setting_is_called_as_the_input_is(text: str, told: str) -> None:
    assert in_inputs(text) == told
