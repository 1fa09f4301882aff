from __future__ import annotations

import pytest
from openai.types.responses import ResponseErrorEvent

from agent_runtime.core.errors import ContextOverflowError, ModelRefusedError, ModelRejectedError
from agent_runtime.providers.faults import AttemptFailedError, ModelService
from agent_runtime.providers.openai import ResponsesReader
from agent_runtime.providers.protocol import ReplyParts

SERVICE = ModelService(name="OpenAI", model="m", url="https://example.org", key_variable="OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("server_error", AttemptFailedError),
        ("rate_limit_exceeded", AttemptFailedError),
        (None, AttemptFailedError),
        ("context_length_exceeded", ContextOverflowError),
        ("insufficient_quota", ModelRejectedError),
        ("invalid_prompt", ModelRejectedError),
        ("bio_policy", ModelRefusedError),
        ("misalignment_policy_violation", ModelRefusedError),
    ],
)
def test_an_error_inside_a_stream_is_classified_by_its_code(code: str | None, error: type[Exception]) -> None:
    event = ResponseErrorEvent(type="error", code=code, message="words", sequence_number=1)
    with pytest.raises(error):
        ResponsesReader(service=SERVICE, parts=ReplyParts("m")).read(event)
