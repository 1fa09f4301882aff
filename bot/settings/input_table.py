"""What a workflow's author asks for with the action's own inputs, as a table. Data only; `load.py` reads by it."""

from __future__ import annotations

from bot.domain.commands import WORK_VERBS
from bot.settings import input_parsing, parsing
from bot.settings.setting import Setting

INPUTS: dict[str, Setting] = {
    "prompt": Setting(
        name="CODEPILOT_PROMPT",
        meaning="What the agent is to do, on any event, without a command in a comment. Never put the words of an "
        "issue, a comment or a pull request into it: the agent is shown those as quotes.",
        example="Update the dependencies that have security fixes, and run the tests.",
        parse=input_parsing.prompt,
        default="",
    ),
    "command": Setting(
        name="CODEPILOT_COMMAND",
        meaning="What is done, with the prompt or without one: `fix` (the default for a prompt), `review`, `explain`, "
        "`plan`, `ask` or `test`.",
        example="review",
        parse=parsing.one_of(*WORK_VERBS),
        default="",
    ),
    "base": Setting(
        name="CODEPILOT_BASE",
        meaning="The branch that work begins at and new pull requests are for, where no command names another.",
        example="develop",
        parse=input_parsing.branch,
        default="",
    ),
    "branch_prefix": Setting(
        name="CODEPILOT_BRANCH_PREFIX",
        meaning="What the names of new branches begin with.",
        example="bots/codepilot/",
        parse=input_parsing.branch_prefix,
        default="codepilot/",
    ),
    "working_directory": Setting(
        name="CODEPILOT_WORKING_DIRECTORY",
        meaning="The directory of the repository in which the agent's and the `setup:` commands start.",
        example="services/api",
        parse=input_parsing.subdirectory,
        default="",
    ),
    "repo_config": Setting(
        name="CODEPILOT_REPO_CONFIG",
        meaning="The path of the repository's own file.",
        example=".github/codepilot/maintenance.yml",
        parse=input_parsing.repository_file,
        default=".github/codepilot.yml",
        input="config",
    ),
    "dry_run": Setting(
        name="CODEPILOT_DRY_RUN",
        meaning="Whether everything is made and nothing published: no commit, no branch, no pull request, no review.",
        example="yes",
        parse=parsing.yes_or_no,
        default="no",
    ),
    "approvals": Setting(
        name="CODEPILOT_APPROVALS",
        meaning="What becomes of a call that needs a person: `denied` tells the agent so, and the run goes on; "
        "`artifact` keeps the run in an artifact, and whoever answers in a comment has it go on.",
        example="artifact",
        parse=parsing.one_of("denied", "artifact"),
        default="denied",
    ),
    "session": Setting(
        name="CODEPILOT_SESSION",
        meaning="The name of the artifact that a run is gone on with from; when not set, `codepilot-session-` and the "
        "number of the thread.",
        example="codepilot-session-12",
        parse=input_parsing.artifact,
        default="",
    ),
    "session_key": Setting(
        name="CODEPILOT_SESSION_KEY",
        meaning="A secret of at least 32 characters that seals runs which wait; when not set, one made from the model "
        "service's key.",
        example="8c5f1d0b9e7a4c63b2f0d6e1a9c84735",
        parse=input_parsing.session_key,
        default="",
    ),
    "output_schema": Setting(
        name="CODEPILOT_OUTPUT_SCHEMA",
        meaning="What the run's result must fit: a JSON schema, or the path of one on the base branch. The output "
        "`structured-output` has the result.",
        example=".github/triage.schema.json",
        parse=input_parsing.output_schema,
        default="",
    ),
}
"""The inputs of the action that `codepilot serve` has no setting for."""
