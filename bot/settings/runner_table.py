"""What GitHub's runner tells an action, as a table of settings. Data only; `load.py` reads by it."""

from __future__ import annotations

from pydantic import SecretStr

from bot.settings import parsing
from bot.settings.setting import Setting

RUNNER: dict[str, Setting] = {
    "token": Setting(
        name="GITHUB_TOKEN",
        meaning="The action passes the workflow's token on by itself; leave this input out, or give it a token.",
        example="${{ github.token }}",
        parse=SecretStr,
    ),
    "event_path": Setting(
        name="GITHUB_EVENT_PATH",
        meaning="The file with the event's payload.",
        example="/home/runner/work/_temp/_github_workflow/event.json",
        parse=parsing.path,
    ),
    "event_name": Setting(name="GITHUB_EVENT_NAME", meaning="The event's name.", example="issue_comment", parse=str),
    "repository": Setting(
        name="GITHUB_REPOSITORY", meaning="The repository.", example="octocat/hello-world", parse=parsing.repository
    ),
    "run_id": Setting(
        name="GITHUB_RUN_ID", meaning="The workflow run.", example="1658821493", parse=parsing.whole(1, 2**63 - 1)
    ),
    "run_attempt": Setting(
        name="GITHUB_RUN_ATTEMPT",
        meaning="Which attempt of that run.",
        example="1",
        parse=parsing.whole(1, 1_000_000),
        default="1",
    ),
    "repository_id": Setting(
        name="GITHUB_REPOSITORY_ID",
        meaning="The repository's numeric id.",
        example="123456789",
        parse=parsing.whole(1, 2**63 - 1),
        default="",
    ),
    "actor": Setting(
        name="GITHUB_ACTOR", meaning="Whom GitHub names for the run.", example="octocat", parse=str, default=""
    ),
    "actor_id": Setting(
        name="GITHUB_ACTOR_ID",
        meaning="The numeric id of that account.",
        example="1234567",
        parse=parsing.whole(1, 2**63 - 1),
        default="",
    ),
    "ref": Setting(name="GITHUB_REF", meaning="The ref of the run.", example="refs/heads/main", parse=str, default=""),
    "workflow": Setting(
        name="GITHUB_WORKFLOW", meaning="The workflow's name.", example="Maintenance", parse=str, default=""
    ),
    "api_url": Setting(
        name="GITHUB_API_URL",
        meaning="GitHub's REST address.",
        example="https://api.github.com",
        parse=parsing.url,
        default="https://api.github.com",
    ),
    "server_url": Setting(
        name="GITHUB_SERVER_URL",
        meaning="GitHub's address for people and git.",
        example="https://github.com",
        parse=parsing.url,
        default="https://github.com",
    ),
    "output_path": Setting(
        name="GITHUB_OUTPUT",
        meaning="The file that takes the step's outputs.",
        example="/home/runner/work/_temp/_runner_file_commands/set_output",
        parse=parsing.path,
        default="",
    ),
    "summary_path": Setting(
        name="GITHUB_STEP_SUMMARY",
        meaning="The file that takes the step's summary.",
        example="/home/runner/work/_temp/_runner_file_commands/step_summary",
        parse=parsing.path,
        default="",
    ),
}
"""What GitHub's runner sets for every step:
https://docs.github.com/en/actions/reference/workflows-and-actions/variables"""
