"""What GitHub's runner tells an action, as a table of settings. Data only; `config.py` reads by it."""

from __future__ import annotations

from pydantic import SecretStr

from bot import values
from bot.setting import Setting

RUNNER: dict[str, Setting] = {
    "token": Setting(
        name="GITHUB_TOKEN",
        meaning="The workflow's token; the action passes it on.",
        example="${{ github.token }}",
        parse=SecretStr,
    ),
    "event_path": Setting(
        name="GITHUB_EVENT_PATH",
        meaning="The file with the event's payload.",
        example="/home/runner/work/_temp/_github_workflow/event.json",
        parse=values.path,
    ),
    "event_name": Setting(name="GITHUB_EVENT_NAME", meaning="The event's name.", example="issue_comment", parse=str),
    "repository": Setting(
        name="GITHUB_REPOSITORY", meaning="The repository.", example="octocat/hello-world", parse=values.repository
    ),
    "run_id": Setting(
        name="GITHUB_RUN_ID", meaning="The workflow run.", example="1658821493", parse=values.whole(1, 2**63 - 1)
    ),
    "run_attempt": Setting(
        name="GITHUB_RUN_ATTEMPT",
        meaning="Which attempt of that run.",
        example="1",
        parse=values.whole(1, 1_000_000),
        default="1",
    ),
    "api_url": Setting(
        name="GITHUB_API_URL",
        meaning="GitHub's REST address.",
        example="https://api.github.com",
        parse=values.url,
        default="https://api.github.com",
    ),
    "server_url": Setting(
        name="GITHUB_SERVER_URL",
        meaning="GitHub's address for people and git.",
        example="https://github.com",
        parse=values.url,
        default="https://github.com",
    ),
    "output_path": Setting(
        name="GITHUB_OUTPUT",
        meaning="The file that takes the step's outputs.",
        example="/home/runner/work/_temp/_runner_file_commands/set_output",
        parse=values.path,
        default="",
    ),
    "summary_path": Setting(
        name="GITHUB_STEP_SUMMARY",
        meaning="The file that takes the step's summary.",
        example="/home/runner/work/_temp/_runner_file_commands/step_summary",
        parse=values.path,
        default="",
    ),
}
"""What GitHub's runner sets for every step:
https://docs.github.com/en/actions/reference/workflows-and-actions/variables"""
