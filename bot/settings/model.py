"""The settings of each way to run the bot: as a service, and as a step of a workflow. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, SecretStr

from bot.domain.errors import InputProblem
from bot.gate.conventions import OWN_PREFIX, Conventions
from bot.gate.repo_config import PATH
from bot.gate.repo_keys import BareVerb
from bot.settings import parsing
from bot.settings.agent import AgentSettings
from bot.settings.parsing import FilePath, Lower, Url
from bot.settings.setting import Written

_Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
_ON_GITHUB = "https://github.com"
_API = "https://api.github.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where further settings are."""

    config: Annotated[FilePath | None, Written("/etc/codepilot.yml", input=None)] = None
    """A YAML file with further settings, by the names below in lower case without `CODEPILOT_`; the environment goes
    before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `codepilot serve` and `codepilot work` need; the docstring below each field is what users read."""

    agent: AgentSettings
    webhook_secret: Annotated[SecretStr, Field(min_length=16), Written("$(openssl rand -hex 32)")]
    """The secret that is also set in the GitHub App's webhook settings; at least 16 characters."""
    app_id: Annotated[_Id, Written("123456")]
    """The GitHub App's id, from its settings page."""
    private_key: Annotated[
        SecretStr,
        PlainValidator(parsing.private_key_in),
        Written("/etc/codepilot/app.pem", name="CODEPILOT_PRIVATE_KEY_FILE"),
    ]
    """The file with the GitHub App's private key, which other users must not be able to read."""
    api_url: Annotated[Url, Written("https://github.example.com/api/v3")] = _API
    """GitHub's REST address."""
    server_url: Annotated[Url, Written("https://github.example.com")] = _ON_GITHUB
    """GitHub's address for people and git."""
    jobs: Annotated[int, Field(ge=1, le=64), Written("4")] = 2
    """Jobs of different threads that one process works on side by side."""
    host: Annotated[str, Written("0.0.0.0")] = "127.0.0.1"  # noqa: S104 - shown as an example
    """The address to listen on; put a proxy that speaks TLS before it."""
    port: Annotated[int, Field(ge=0, le=65_535), Written("8080")] = 8080
    """The port to listen on; 0 takes a free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInputs:
    """The inputs of the action that a server has no setting for; the docstring below each field is what users read."""

    prompt: Annotated[
        str | None,
        AfterValidator(parsing.prompt),
        Written("Update the dependencies that have security fixes, and run the tests."),
    ] = None
    """What the agent is to do, on any event, without a command in a comment. Never put the words of an issue, a comment
    or a pull request into it: the agent is shown those as quotes."""
    command: Annotated[BareVerb | None, Lower, Written("review")] = None
    """What is done, with the prompt or without one: `fix` (the default for a prompt), `review`, `explain`, `plan`,
    `ask` or `test`."""
    base: Annotated[str | None, AfterValidator(parsing.branch), Written("develop")] = None
    """The branch that work begins at and new pull requests are for, where no command names another."""
    branch_prefix: Annotated[str, AfterValidator(parsing.branch_prefix), Written("bots/codepilot/")] = OWN_PREFIX
    """What the names of new branches begin with."""
    working_directory: Annotated[str | None, AfterValidator(parsing.subdirectory), Written("services/api")] = None
    """The directory of the repository in which the agent's and the `setup:` commands start."""
    repo_config: Annotated[
        str, AfterValidator(parsing.repository_file), Written(".github/codepilot/maintenance.yml", input="config")
    ] = PATH
    """The path of the repository's own file."""
    dry_run: Annotated[bool, Written("yes")] = False
    """Whether everything is made and nothing published: no commit, no branch, no pull request, no review."""
    approvals: Annotated[Literal["denied", "artifact"], Lower, Written("artifact")] = "denied"
    """What becomes of a call that needs a person: `denied` tells the agent so, and the run goes on; `artifact` keeps
    the run in an artifact, and whoever answers in a comment has it go on."""
    session: Annotated[str | None, AfterValidator(parsing.artifact), Written("codepilot-session-12")] = None
    """The name of the artifact that a run is gone on with from; when not set, `codepilot-session-` and the number of
    the thread."""
    session_key: Annotated[SecretStr | None, Field(min_length=32), Written("8c5f1d0b9e7a4c63b2f0d6e1a9c84735")] = None
    """A secret of at least 32 characters that seals runs which wait; when not set, one made from the model service's
    key."""
    output_schema: Annotated[
        dict[str, Any] | str | None, PlainValidator(parsing.output_schema), Written(".github/triage.schema.json")
    ] = None
    """What the run's result must fit: a JSON schema, or the path of one on the base branch. The output
    `structured-output` has the result."""

    @property
    def conventions(self) -> Conventions:
        """The part of it that holds for every job of the run."""
        return Conventions(
            branch_prefix=self.branch_prefix,
            repo_file=self.repo_config,
            working_directory=self.working_directory or "",
            base=self.base or "",
            output_schema=self.output_schema,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSettings:
    """Everything `codepilot act` needs. GitHub's runner sets these variables for every step.

    https://docs.github.com/en/actions/reference/workflows-and-actions/variables
    """

    agent: AgentSettings
    token: Annotated[SecretStr, Written("${{ github.token }}", name="GITHUB_TOKEN", input="github-token")]
    """The action passes the workflow's token on by itself; leave this input out, or give it a token."""
    event_path: Annotated[FilePath, Written("/github/workflow/event.json", name="GITHUB_EVENT_PATH")]
    """The file with the event's payload."""
    event_name: Annotated[str, Written("issue_comment", name="GITHUB_EVENT_NAME")]
    """The event's name."""
    repository: Annotated[
        str, AfterValidator(parsing.repository), Written("octocat/hello-world", name="GITHUB_REPOSITORY")
    ]
    """The repository, `owner/name`."""
    run_id: Annotated[_Id, Written("1658821493", name="GITHUB_RUN_ID")]
    """The workflow run."""
    run_attempt: Annotated[int, Field(ge=1, le=1_000_000), Written("1", name="GITHUB_RUN_ATTEMPT")] = 1
    """The attempt of that run."""
    repository_id: Annotated[_Id | None, Written("123456789", name="GITHUB_REPOSITORY_ID")] = None
    """The repository's numeric id."""
    actor: Annotated[str | None, Written("octocat", name="GITHUB_ACTOR")] = None
    """The login of the account that GitHub names for the run; for a schedule, of the one that changed it last."""
    actor_id: Annotated[_Id | None, Written("1234567", name="GITHUB_ACTOR_ID")] = None
    """The numeric id of that account."""
    ref: Annotated[str | None, Written("refs/heads/main", name="GITHUB_REF")] = None
    """The ref of the run."""
    workflow: Annotated[str | None, Written("Maintenance", name="GITHUB_WORKFLOW")] = None
    """The workflow's name."""
    api_url: Annotated[Url, Written(_API, name="GITHUB_API_URL")] = _API
    """GitHub's REST address."""
    server_url: Annotated[Url, Written(_ON_GITHUB, name="GITHUB_SERVER_URL")] = _ON_GITHUB
    """GitHub's address for people and git."""
    output_path: Annotated[FilePath | None, Written("/github/output", name="GITHUB_OUTPUT")] = None
    """The file that takes the step's outputs."""
    summary_path: Annotated[FilePath | None, Written("/github/summary", name="GITHUB_STEP_SUMMARY")] = None
    """The file that takes the step's summary."""
    inputs: ActionInputs = field(default_factory=ActionInputs)

    @property
    def sealing_secret(self) -> SecretStr | None:
        """The secret that seals runs which wait for people; None where none shall."""
        if self.inputs.approvals == "denied":
            return None
        return self.inputs.session_key or self.agent.api_key

    @property
    def run_page(self) -> str:
        """The page of the workflow run."""
        return f"{self.server_url.rstrip('/')}/{self.repository}/actions/runs/{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The settings of a server as far as they can be read, for `codepilot doctor`.

    Attributes:
        problems: one sentence for each setting that is missing, wrong or unknown.
        agent: with the default of each setting that is wrong or missing.
        webhook_secret: see `Settings`; None where it is wrong or missing, as all that follow.
        app_id: see `Settings`.
        private_key: see `Settings`.
        api_url: see `Settings`.
    """

    problems: tuple[str, ...]
    agent: AgentSettings
    webhook_secret: SecretStr | None
    app_id: int | None
    private_key: SecretStr | None
    api_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSurvey:
    """The settings of a step as far as they can be read.

    Attributes:
        problems: one for each input that is missing, wrong or unknown.
        settings: with the defaults of those; the token is empty where there is none. Good for telling problems only.
    """

    problems: tuple[InputProblem, ...]
    settings: ActionSettings
