"""Every example of GitHub's webhooks that `@octokit/webhooks-examples` holds, delivered to the webhook server."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.queue.memory import InMemoryEngine
from tests.builders import a_request
from tests.webhook_receiver import receiving

_TOLD = {"installation", "installation_repositories", "issues", "pull_request", "repository"}

# The first words of the examples' comments, so that they are commands.
_TALKATIVE = {"triggers": ("You", "Maybe")}


def _examples(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Event names and payloads, each once: github.com's and those of five releases of its server."""
    seen = set()
    for index in sorted(folder.glob("*/index.json")):
        for event in json.loads(index.read_text(encoding="utf-8")):
            for payload in event["examples"]:
                written = json.dumps([event["name"], payload], sort_keys=True)
                if written not in seen:
                    seen.add(written)
                    yield event["name"], payload


@pytest.mark.parametrize(
    ("listening", "asking"),
    [({}, _TOLD), (_TALKATIVE, {*_TOLD, "issue_comment", "pull_request_review_comment"})],
    ids=["usual", "talkative"],
)
async def test_every_example_is_answered_without_an_error(
    webhook_examples: Path | str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    listening: dict[str, Any],
    asking: set[str],
) -> None:
    if isinstance(webhook_examples, str):
        pytest.skip(webhook_examples)
    caplog.set_level(logging.DEBUG)
    examples = list(_examples(webhook_examples))
    accepted = set()
    async with receiving(InMemoryEngine(), **listening) as receiver:
        for number, (event, payload) in enumerate(examples):
            payload.setdefault("installation", {"id": 30})
            status, answer = await receiver.post(*a_request(payload, event=event, delivery_id=f"example-{number}"))
            assert status in {200, 202}, (event, payload.get("action"), answer)
            assert answer.get("job") or answer.get("reason")
            if answer["status"] == "accepted":
                accepted.add(event)
    assert len(examples) > 400
    assert accepted == asking
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
