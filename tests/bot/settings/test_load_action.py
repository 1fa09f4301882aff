"""The action's own inputs: what may stand in them, and what a wrong one is told."""

from __future__ import annotations

import pytest

from bot.settings.load import survey_action
from bot.settings.models import INPUTS, ActionInputs, Setting

RUNNER = {
    "GITHUB_TOKEN": "t",
    "GITHUB_EVENT_PATH": "/event.json",
    "GITHUB_EVENT_NAME": "schedule",
    "GITHUB_REPOSITORY": "octo/calc",
    "GITHUB_RUN_ID": "41",
    "ANTHROPIC_API_KEY": "k" * 32,
}


def read(**variables: str) -> ActionInputs:
    survey = survey_action(RUNNER | variables)
    assert survey.problems == ()
    return survey.settings.inputs


def wrong(**variables: str) -> tuple[str, str, str]:
    [problem] = survey_action(RUNNER | variables).problems
    return problem.text, problem.input, problem.line


def test_all_may_be_empty() -> None:
    assert read() == read(CODEPILOT_REPO_CONFIG="", CODEPILOT_PROMPT=" ") == ActionInputs()


def test_a_key_that_could_be_guessed_encrypts_nothing() -> None:
    assert wrong(ANTHROPIC_API_KEY="k" * 31, CODEPILOT_APPROVALS="artifact")[1] == "session-key"


@pytest.mark.parametrize("setting", INPUTS.values(), ids=lambda setting: setting.input_name)
def test_every_example_works(setting: Setting) -> None:
    assert read(**{setting.name: setting.example}) != ActionInputs()


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("working_directory", "./services/api/", "services/api"),
        ("base", "release/2.x", "release/2.x"),
        ("recipe", "weekly-update", "weekly-update"),
        ("command", "Review", "review"),
        ("dry_run", "true", True),
        ("dry_run", "FALSE", False),
        ("prompt", "Two lines\nof it.", "Two lines\nof it."),
    ],
)
def test_what_is_written_becomes_the_value(name: str, written: str, value: object) -> None:
    assert getattr(read(**{INPUTS[name].name: written}), name) == value


@pytest.mark.parametrize(
    ("name", "written"),
    [
        *(
            ("working_directory", each)
            for each in ("/etc", "..", "a/../..", "a//b", ".git", "a/.git/x", "a\\b", ".", "a\nb")
        ),
        *(
            ("repo_config", each)
            for each in ("/etc/bot.yml", "../bot.yml", "bot.txt", "*.yml", "[a].yml", ".git/x.yml")
        ),
        *(("recipe", each) for each in ("../x", "Weekly", "weekly.md", "-x", "a b")),
        *(("base", each) for each in ("-f", "a..b", "refs/heads/main", "a b", "a:b")),
        ("command", "merge"),
        ("command", "fix --now"),
        ("dry_run", "maybe"),
    ],
)
def test_a_wrong_one_is_named_as_the_workflow_calls_it_with_what_to_write(name: str, written: str) -> None:
    setting = INPUTS[name]
    text, named, line = wrong(**{setting.name: written})
    assert named == setting.input_name
    assert text.startswith(f"The input `{named}` m")  # must be …, may have …
    assert line.startswith(f"{named}: ")


def test_the_prompt_keeps_the_space_at_its_ends() -> None:
    assert read(CODEPILOT_PROMPT=" Two lines\nof it.\n").prompt == " Two lines\nof it.\n"
    assert read(CODEPILOT_BASE=" main ").base == "main"


def test_config_is_the_repositorys_file_and_not_the_operators() -> None:
    assert read(INPUT_CONFIG="ci/bot.yml").repo_config == "ci/bot.yml"


def test_a_misspelt_one_is_told_its_name() -> None:
    text, *_ = wrong(CODEPILOT_PROMT="Do it.")
    assert "CODEPILOT_PROMPT" in text
