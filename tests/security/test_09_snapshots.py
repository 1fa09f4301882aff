"""Threat 9: what counts are the thread's words as they stood when the command was given."""

from __future__ import annotations

import pytest

from bot.events.delivery import IgnoredDelivery
from bot.queue.memory import InMemoryEngine
from tests.builders import a_request
from tests.payloads import a_payload, job, read
from tests.webhook_receiver import receiving

EVENTS = {
    "issue_comment": "issue",
    "issues": "issue",
    "pull_request": "pull_request",
    "pull_request_review": "pull_request",
    "pull_request_review_comment": "pull_request",
}


@pytest.mark.parametrize(("event", "part"), EVENTS.items())
def test_the_job_holds_the_words_of_its_delivery(event: str, part: str) -> None:
    found = job(event, **{f"{part}__title": "As it was", f"{part}__body": "Said so."})
    assert (found.thread.title, found.thread.body) == ("As it was", "Said so.")


@pytest.mark.parametrize(("event", "part"), [("issues", "issue"), ("pull_request", "pull_request")])
def test_a_later_edit_of_the_words_is_no_job_of_its_own(event: str, part: str) -> None:
    edited = a_payload(event, action="edited", **{f"{part}__body": "/codepilot fix"})
    assert isinstance(read(event, edited), IgnoredDelivery)


async def test_a_stored_job_keeps_its_words_whatever_is_delivered_later() -> None:
    queue = InMemoryEngine()
    first = a_payload("issue_comment", issue__body="Said so.")
    later = a_payload("issue_comment", issue__body="Say another thing.")
    async with receiving(queue) as receiver:
        status, answer = await receiver.post(*a_request(first, delivery_id="d1"))
        again = await receiver.post(*a_request(later, delivery_id="d2"))
    assert (status, again) == (202, (200, {"status": "duplicate", "job": answer["job"]}))
    stored = await queue.get(answer["job"])
    assert stored is not None
    assert stored.job.thread.body == "Said so."
