from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.action import MAX_SUMMARY_BYTES, delivery_from, write_outputs, write_summary
from bot.action.inputs import listening_of
from bot.domain.access import Listening
from bot.domain.errors import BotError, MalformedError
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


def _outputs(path: Path) -> dict[str, str]:
    """Read an output file by the runner's rules: `name<<delimiter`, lines, the delimiter alone on a line."""
    outputs, lines = {}, iter(path.read_bytes().decode().split("\n"))
    for line in lines:
        if line:
            name, delimiter = line.split("<<")
            value = []
            while (part := next(lines)) != delimiter:
                value.append(part)
            outputs[name] = "\n".join(value)
    return outputs


def test_the_event_file_becomes_the_same_job_as_the_webhook_would(event: Path) -> None:
    delivery = delivery_from(_settings(event))
    assert (delivery.id, delivery.event, delivery.installation) == ("action-41-1", "issue_comment", 30)
    job = job_from(delivery, Listening())
    assert isinstance(job, Job)
    assert job.repo.full_name == "octo/calc"


@pytest.mark.parametrize("number", [41898282, 7])  # on github.com, and on a server of one's own
def test_the_account_of_workflows_commands_nothing_though_bots_of_its_name_are_trusted(
    event: Path, number: int
) -> None:
    listening = listening_of(_settings(event, CODEPILOT_TRUSTED_BOTS="github-actions[bot]"))
    own = Sender(id=number, login="github-actions[bot]", type="Bot")
    assert reject_sender(own, listening) == IgnoredDelivery(
        reason="the sender is the bot's own account, whose text is never a command"
    )
    assert reject_sender(Sender(id=number, login="github-actions", type="User"), listening) is None


def test_a_rerun_is_another_delivery(event: Path) -> None:
    assert delivery_from(_settings(event)).id != delivery_from(_settings(event, attempt="2")).id


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


def test_outputs_are_added_to_what_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write_outputs(path, {"status": "finished"})
    write_outputs(path, {"summary": "two\nlines", "empty": ""})
    assert _outputs(path) == {"status": "finished", "summary": "two\nlines", "empty": ""}


def test_a_value_that_holds_the_delimiter_gets_another_one(tmp_path: Path) -> None:
    path = tmp_path / "out"
    delimiters = iter(["EOF", "END", "other"])
    write_outputs(path, {"summary": "x\nEOF\nadmin<<END\n1\nEND"}, new_delimiter=lambda: next(delimiters))
    assert _outputs(path) == {"summary": "x\nEOF\nadmin<<END\n1\nEND"}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_-]{0,8}", fullmatch=True), st.text()))
def test_any_value_comes_back_whole(tmp_path: Path, outputs: dict[str, str]) -> None:
    path = tmp_path / "out"
    path.unlink(missing_ok=True)
    write_outputs(path, outputs)
    assert _outputs(path) == {name: value.encode("utf-8", "replace").decode() for name, value in outputs.items()}


@pytest.mark.parametrize("name", ["", "a b", "a<<b", "a=b", "a\nb", "1a"])
def test_an_outputs_name_is_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid output name"):
        write_outputs(tmp_path / "out", {name: "x"})
    assert not (tmp_path / "out").exists()


def test_a_long_summary_is_cut_to_what_github_shows(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    write_summary(path, "ä" * MAX_SUMMARY_BYTES)
    text = path.read_text()
    assert len(text.encode()) <= MAX_SUMMARY_BYTES
    assert text.endswith("_Cut here: GitHub shows at most 1 MiB of a summary._\n")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BotError, match="GITHUB_OUTPUT"):
        write_outputs(tmp_path / "none" / "out", {"a": "b"})
    with pytest.raises(BotError, match="GITHUB_STEP_SUMMARY"):
        write_summary(tmp_path / "none" / "out", "x")
