from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.action.inputs import delivery_from, profile_from
from bot.domain.access import BotProfile
from bot.domain.errors import MalformedError
from bot.domain.job import Job
from bot.events.delivery import IgnoredDelivery, Sender, reject_sender
from bot.events.triggers import job_from
from bot.settings.load import load_action
from bot.settings.models import ActionSettings
from tests.builders import a_comment_event


@pytest.fixture
def event(tmp_path: Path) -> Path:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(a_comment_event()))
    return path


def _settings(event: Path, *, attempt: str = "1", repository: str = "octo/calc", **more: str) -> ActionSettings:
    return load_action(
        {
            "GITHUB_TOKEN": "t",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_EVENT_NAME": "issue_comment",
            "GITHUB_REPOSITORY": repository,
            "GITHUB_RUN_ID": "41",
            "GITHUB_RUN_ATTEMPT": attempt,
            "ANTHROPIC_API_KEY": "k",
            **more,
        }
    )


def test_the_event_file_becomes_the_same_job_as_the_webhook_would(event: Path) -> None:
    delivery = delivery_from(_settings(event))
    assert (delivery.delivery_id, delivery.event, delivery.installation) == ("action-41-1", "issue_comment", 30)
    job = job_from(delivery, BotProfile())
    assert isinstance(job, Job)
    assert job.repo.full_name == "octo/calc"


@pytest.mark.parametrize("number", [41898282, 7])  # on github.com, and on a server of one's own
def test_the_account_of_workflows_commands_nothing_though_bots_of_its_name_are_trusted(
    event: Path, number: int
) -> None:
    listening = profile_from(_settings(event, CODEPILOT_TRUSTED_BOTS="github-actions[bot]"))
    own = Sender(id=number, login="github-actions[bot]", type="Bot")
    assert reject_sender(own, listening) == IgnoredDelivery(
        reason="the sender is the bot's own account, whose text is never a command"
    )
    assert reject_sender(Sender(id=number, login="github-actions", type="User"), listening) is None


def test_a_rerun_is_another_delivery(event: Path) -> None:
    assert delivery_from(_settings(event)).delivery_id != delivery_from(_settings(event, attempt="2")).delivery_id


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not JSON"), (b"[]", "not a JSON object"), (b"\xff", "not JSON"), (b"[" * 99_999, "JSON")],
)
def test_a_wrong_event_file_is_named(event: Path, content: bytes, words: str) -> None:
    event.write_bytes(content)
    with pytest.raises(MalformedError, match=words):
        delivery_from(_settings(event))


def test_a_missing_event_file_is_named_with_its_variable(tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match=r"none\.json \(GITHUB_EVENT_PATH\)"):
        delivery_from(_settings(tmp_path / "none.json"))


def test_an_event_of_another_repository_is_no_job_of_this_run(event: Path) -> None:
    with pytest.raises(MalformedError, match=r"octo/calc.*octo/other"):
        delivery_from(_settings(event, repository="octo/other"))
