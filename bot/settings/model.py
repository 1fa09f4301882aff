"""The settings of each way to run the bot: as a service, and as a step of a workflow. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from bot.domain.errors import InputProblem
from bot.gate.conventions import OWN_PREFIX, Conventions
from bot.gate.goals import MOST_GOAL_CHARS
from bot.gate.repo_config import PATH
from bot.gate.repo_keys import BareVerb
from bot.settings import parsing
from bot.settings.agent import AgentSettings
from bot.settings.parsing import DatabaseUrl, FilePath, KeyFile, Lower, RepoFile, RepoName, Schema, StorageUrl, Url
from bot.settings.setting import Written

_Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
_ON_GITHUB = "https://github.com"
_API = "https://api.github.com"
_CLOUD = ".ghe.com"
"""Enterprise Cloud with data residency: https://docs.github.com/enterprise-cloud@latest/admin/data-residency"""
LogFormat = Literal["text", "json"]


def api_of(server_url: str) -> str:
    """The address of a GitHub server's REST API."""
    if server_url == _ON_GITHUB:
        return _API
    scheme, _, host = server_url.partition("://")
    return f"{scheme}://api.{host}" if host.endswith(_CLOUD) else f"{server_url}/api/v3"


def server_of(api_url: str) -> str:
    """The address for browsers and git of the GitHub server with that REST API; such an address stays as it is."""
    if api_url == _API:
        return _ON_GITHUB
    return api_url.replace("://api.", "://", 1) if api_url.endswith(_CLOUD) else api_url.removesuffix("/api/v3")


ServerUrl = Annotated[Url, AfterValidator(server_of)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where further settings are."""

    config: Annotated[FilePath | None, Written("/etc/codepilot.yml", input=None)] = None
    """A YAML file with further settings, by the names below in lower case without `CODEPILOT_`; the environment takes
    precedence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `codepilot serve` and `codepilot work` need; the docstring below each field is what users read."""

    agent: AgentSettings
    webhook_secret: Annotated[SecretStr, Field(min_length=16), Written("$(openssl rand -hex 32)")]
    """The secret from the GitHub App's webhook settings; at least 16 characters."""
    app_id: Annotated[_Id, Written("123456")]
    """The GitHub App's id, from its settings page."""
    private_key: Annotated[KeyFile, Written("/etc/codepilot/app.pem", name="CODEPILOT_PRIVATE_KEY_FILE")]
    """The file with the GitHub App's private key; other users must not be able to read it."""
    api_url: Annotated[Url, Written("https://github.example.com/api/v3")] = _API
    """The address of GitHub's REST API; by default that of the server in `CODEPILOT_SERVER_URL`."""
    server_url: Annotated[ServerUrl, Written("https://github.example.com")] = _ON_GITHUB
    """GitHub's address for browsers and git; by default that of the server in `CODEPILOT_API_URL`."""
    jobs: Annotated[int, Field(ge=1, le=64), Written("4")] = 2
    """The number of jobs of one installation that one process runs in parallel, each in a different thread. Other
    installations have additional places: a quarter of this number, at least one."""
    jobs_per_repository: Annotated[int | None, Field(ge=1, le=10_000), Written("3")] = None
    """The number of jobs of one repository that all processes together run in parallel; by default unlimited. Further
    jobs wait, in order. Set the same value for receivers and workers."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600), Written("300")] = 20
    """Seconds that running jobs may continue after SIGTERM; then they return to the queue and are resumed by another
    worker or after the restart."""
    schedules: Annotated[bool, Written("no")] = True
    """Whether recipes of repositories run on their schedules, `yes` or `no`."""
    host: Annotated[str, Written("0.0.0.0")] = "127.0.0.1"  # noqa: S104 - shown as an example
    """The address to listen on; put a proxy with TLS in front of it."""
    port: Annotated[int, Field(ge=0, le=65_535), Written("8080")] = 8080
    """The port to listen on; 0 picks a free one."""
    log_format: Annotated[LogFormat, Lower, Written("json")] = "text"
    """The format of the log: `text`, or `json` for one JSON object per line."""
    metrics_port: Annotated[int | None, Field(ge=0, le=65_535), Written("9090")] = None
    """A separate port for `/healthz`, `/readyz` and `/metrics`, where programs on this machine need no token. A worker
    without a receiver serves them only there."""
    metrics_token: Annotated[SecretStr | None, Field(min_length=16), Written("$(openssl rand -hex 32)")] = None
    """The bearer token that `/metrics` requires, at least 16 characters."""
    dashboard_token: Annotated[SecretStr | None, Field(min_length=16), Written("$(openssl rand -hex 32)")] = None
    """The token with which an operator signs in at `/dashboard` and sees the runs of all repositories, at least 16
    characters. Without it, and without a client id and secret, there is no dashboard."""
    client_id: Annotated[str | None, Written("Iv23lixxxxxxxxxxxxxx")] = None
    """The client id of the GitHub App, from its settings page; with the client secret, people sign in to the dashboard
    with GitHub and see the runs of the repositories that they can reach."""
    client_secret: Annotated[
        SecretStr | None, Field(min_length=16), Written("f1c05d27a4e98b36d0fa47c1e85b92630dab74e1")
    ] = None
    """A client secret of the GitHub App, from its settings page."""
    trace_url: Annotated[Url | None, Written("https://jaeger.example.com/trace")] = None
    """The address of your trace viewer; the dashboard adds `/` and the trace id of a run, and links to the result."""
    otlp_endpoint: Annotated[
        Url | None, Written("http://127.0.0.1:4318", name="OTEL_EXPORTER_OTLP_ENDPOINT", input=None)
    ] = None
    """The OpenTelemetry collector that gets traces, by OTLP over HTTP."""
    otlp_headers: Annotated[
        SecretStr | None, Written("authorization=Bearer%20…", name="OTEL_EXPORTER_OTLP_HEADERS", input=None)
    ] = None
    """Headers for the collector, separated by commas."""
    database_url: Annotated[DatabaseUrl | None, Written("postgresql://codepilot:…@db.example.com/codepilot")] = None
    """The database of the jobs: `sqlite:///path`, or `postgresql://user:password@host/name` so that workers on several
    machines share it; by default an SQLite file in the data directory."""
    storage_url: Annotated[StorageUrl | None, Written("s3://my-bucket/codepilot")] = None
    """Where patches and the files of waiting jobs are stored, so that any worker can continue any job:
    `s3://bucket/prefix`, or `file:///directory` on a disk that all machines share. By default they are only in the
    data directory."""
    aws_access_key_id: Annotated[str | None, Written("AKIA…", name="AWS_ACCESS_KEY_ID", input=None)] = None
    """The name of the key for `s3://`; without it, the role of the machine or of the pod is used."""
    aws_secret_access_key: Annotated[SecretStr | None, Written("wJalr…", name="AWS_SECRET_ACCESS_KEY", input=None)] = (
        None
    )
    """The key for `s3://`."""
    aws_session_token: Annotated[SecretStr | None, Written("IQoJ…", name="AWS_SESSION_TOKEN", input=None)] = None
    """The token of a temporary key for `s3://`."""
    aws_region: Annotated[str | None, Written("eu-central-1", name="AWS_REGION", input=None)] = None
    """The region of the bucket."""
    aws_endpoint_url: Annotated[Url | None, Written("https://s3.example.com", name="AWS_ENDPOINT_URL", input=None)] = (
        None
    )
    """The address of an S3-compatible service, if it is not Amazon's."""

    @property
    def has_dashboard(self) -> bool:
        """Whether there is a way to sign in to the dashboard; without one there is none."""
        return self.dashboard_token is not None or self.signs_people_in

    @property
    def signs_people_in(self) -> bool:
        """Whether people sign in to the dashboard with GitHub."""
        return self.client_id is not None and self.client_secret is not None

    @property
    def jobs_url(self) -> str:
        """The address of the database of the jobs, with its password."""
        own_file = f"sqlite:///{self.agent.data_dir / 'jobs.sqlite'}"
        return self.database_url.get_secret_value() if self.database_url else own_file

    @property
    def shared_database(self) -> str | None:
        """The address of the database that other machines' workers may share; None for a file of this one's."""
        return self.jobs_url if self.jobs_url.startswith("postgresql:") else None

    @property
    def database_passwords(self) -> tuple[SecretStr, ...]:
        """The secrets in the database's address, as they are written there and as they are."""
        if self.shared_database is None:
            return ()
        parts = urlsplit(self.shared_database)
        query = (value for name, value in parse_qsl(parts.query) if "password" in name)
        written = (*([parts.password] if parts.password else []), *query)
        return tuple(SecretStr(each) for each in dict.fromkeys((*written, *map(unquote, written))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInputs:
    """The inputs of the action that a server has no setting for; the docstring below each field is what users read."""

    prompt: Annotated[
        str | None, Field(max_length=MOST_GOAL_CHARS), Written("Update dependencies that have fixes.")
    ] = None
    """The task for the agent, on any event, without a command in a comment. Never insert text from an issue, a comment
    or a pull request; the agent sees that text as quotes anyway."""
    command: Annotated[BareVerb | None, Lower, Written("review")] = None
    """The command to run, with or without a prompt: `fix` (the default with a prompt), `review`, `explain`, `plan`,
    `ask` or `test`."""
    recipe: Annotated[str | None, AfterValidator(parsing.recipe), Written("weekly-update")] = None
    """The recipe of the repository to run, on any event: the name of a file in `.github/codepilot/` without `.md`. A
    prompt is added to its text."""
    base: Annotated[str | None, AfterValidator(parsing.branch), Written("develop")] = None
    """The branch to start from and to open pull requests against, unless a command names another; pull requests keep
    their own base."""
    branch_prefix: Annotated[str, AfterValidator(parsing.branch_prefix), Written("bots/codepilot/")] = OWN_PREFIX
    """The prefix of new branch names, ending in `/` or `-`."""
    working_directory: Annotated[str | None, AfterValidator(parsing.subdirectory), Written("services/api")] = None
    """The directory of the repository in which the agent's commands and the `setup:` commands start."""
    repo_config: Annotated[RepoFile, Written(".github/codepilot/maintenance.yml", input="config")] = PATH
    """The path of the repository's configuration file."""
    dry_run: Annotated[bool, Written("yes")] = False
    """Whether to publish nothing, `yes` or `no`; the comment and the summary then show what would be published."""
    approvals: Annotated[Literal["denied", "artifact"], Lower, Written("artifact")] = "denied"
    """What to do with a call that requires approval: `denied` (the agent is told and continues) or `artifact` (the run
    is stored in an artifact and resumes when somebody answers in a comment)."""
    session: Annotated[str | None, AfterValidator(parsing.artifact), Written("codepilot-session-12")] = None
    """The name of the artifact to resume from; by default `codepilot-session-` and the thread's number."""
    session_key: Annotated[SecretStr | None, Field(min_length=32), Written("8c5f1d0b9e7a4c63b2f0d6e1a9c84735")] = None
    """A secret of at least 32 characters that encrypts waiting runs; by default derived from the model service's
    key."""
    output_schema: Annotated[Schema | None, Written(".github/triage.schema.json")] = None
    """A JSON schema for the run's result, or the path of one on the base branch; see the output `structured-output`."""

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
    """The token that reads the thread and publishes the result; without this input, the workflow's own."""
    event_path: Annotated[FilePath, Written("/github/workflow/event.json", name="GITHUB_EVENT_PATH")]
    """The file with the event's payload."""
    event_name: Annotated[str, Written("issue_comment", name="GITHUB_EVENT_NAME")]
    """The event's name."""
    repository: Annotated[RepoName, Written("octocat/hello-world", name="GITHUB_REPOSITORY")]
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
    """The address of GitHub's REST API."""
    server_url: Annotated[ServerUrl, Written(_ON_GITHUB, name="GITHUB_SERVER_URL")] = _ON_GITHUB
    """GitHub's address for browsers and git."""
    output_path: Annotated[FilePath | None, Written("/github/output", name="GITHUB_OUTPUT")] = None
    """The file that takes the step's outputs."""
    summary_path: Annotated[FilePath | None, Written("/github/summary", name="GITHUB_STEP_SUMMARY")] = None
    """The file that takes the step's summary."""
    inputs: ActionInputs = field(default_factory=ActionInputs)

    @property
    def sealing_secret(self) -> SecretStr | None:
        """The secret that seals runs which wait for people; None where none shall."""
        return None if self.inputs.approvals == "denied" else self.lasting_secret

    @property
    def lasting_secret(self) -> SecretStr | None:
        """A secret that the repository's next workflow run has, too; None where there is none."""
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
        settings: with the default of each setting that is missing or wrong; empty, or 0, where there is none.
        wrong: the fields of those.
    """

    problems: tuple[str, ...]
    settings: Settings
    wrong: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSurvey:
    """The settings of a step as far as they can be read.

    Attributes:
        problems: one for each input that is missing, wrong or unknown.
        settings: with the defaults of those; the token is empty where there is none. Good for telling problems only.
    """

    problems: tuple[InputProblem, ...]
    settings: ActionSettings
