"""The settings of each way to run the bot, as fields of models: a service, and a step of a workflow. Pure.

A field that is annotated with `Written` is a setting: its type and bounds check the value, and the docstring below it
is the help text that users read. `docs/settings.md` and the inputs of `action.yml` are generated from these fields;
after a change run `UPDATE_DOCS=1 .venv/bin/pytest tests/test_docs.py`. `settings_of` turns the fields into `Setting`s,
with which `load.py` reads variables and files.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from agent_runtime import CATALOG, ContainerSettings, Network, RunLimits, SandboxLimits
from bot.domain.access import Bounds, Caps, Level, TrustedBots
from bot.domain.commands import DEFAULT_TRIGGER
from bot.domain.errors import InputProblem
from bot.permissions.levels import OWN_PREFIX, Conventions
from bot.permissions.repo_config import PATH, BareVerb, Label
from bot.settings import parsing

PREFIX = "CODEPILOT_"
Provider = Literal["anthropic", "openai", "alibaba", "bedrock", "vertex", "azure", "llm", "scripted"]
LogFormat = Literal["text", "json"]
_SERVICES = ("anthropic", "openai", "alibaba", "bedrock", "vertex", "llm")
MODELS: Mapping[str, str] = {name: CATALOG[name].default_model for name in _SERVICES}
"""The model of each service when the operator names none; `llm` has a default of its own."""

_NO_NETWORK = Network()
_TRIGGERS = (DEFAULT_TRIGGER,)
_Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
_ON_GITHUB = "https://github.com"
_API = "https://api.github.com"
_CLOUD = ".ghe.com"
"""Enterprise Cloud with data residency: https://docs.github.com/enterprise-cloud@latest/admin/data-residency"""


@dataclass(frozen=True, slots=True)
class Written:
    """Marks a field of a model as a setting. Type, bounds and default are the field's; its docstring is the help text.

    Attributes:
        example: a value that works, as it would be written.
        name: the environment variable, where it is not `CODEPILOT_` and the field's name.
        input: the action's input, where the variable's name does not say it; None for a setting that is no input.
        between: separates the entries of a list.
        verbatim: whether space at the ends of its text is part of it.
    """

    example: str
    name: str = ""
    input: str | None = ""
    between: str = ","
    verbatim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How the agent works; the docstring below each field is what users read."""

    provider: Annotated[Provider, parsing.Lower, Written("anthropic")] = "anthropic"
    """The model service: `anthropic`, `openai` (or a compatible server), `alibaba`, `bedrock`, `vertex`, `azure`, `llm`
    (as the package of that name is configured) or `scripted`. The clouds take region and credentials from the variables
    of their SDKs."""
    model: Annotated[str, Written(MODELS["anthropic"])] = ""
    """The model. By default `claude-sonnet-5-5`, `gpt-6.2-sol`, `qwen3.7-max`, `global.anthropic.claude-sonnet-5-5` at
    Bedrock, or the default of `llm`. For `azure` it is the deployment's name, for `scripted` the path of the script;
    these must be set."""
    base_url: Annotated[parsing.Url | None, Written("https://models.example.com/v1")] = None
    """The model service's address, if it is not the provider's default. The only key that is sent to it is
    `CODEPILOT_API_KEY`, unless it is another address of the provider itself."""
    base_url_key: Annotated[SecretStr | None, Written("sk-…", name="CODEPILOT_API_KEY")] = None
    """The API key for `CODEPILOT_BASE_URL`, if that server needs one."""
    anthropic_api_key: Annotated[SecretStr | None, Written("sk-ant-…", name="ANTHROPIC_API_KEY")] = None
    """The API key; required for the provider `anthropic`."""
    openai_api_key: Annotated[SecretStr | None, Written("sk-…", name="OPENAI_API_KEY")] = None
    """The API key; required for the provider `openai`."""
    dashscope_api_key: Annotated[SecretStr | None, Written("sk-…", name="DASHSCOPE_API_KEY")] = None
    """The API key; required for the provider `alibaba`."""
    sandbox: Annotated[Literal["auto", "bubblewrap", "docker"], parsing.Lower, Written("bubblewrap")] = "auto"
    """The sandbox for commands: `bubblewrap`, `docker` (a container per job), or `auto` for the first that works."""
    docker_image: Annotated[str | None, Written("docker.io/library/python@sha256:…")] = None
    """The image for the sandbox `docker`, which must be on this machine; pin it by digest."""
    docker_program: Annotated[str, Written("podman")] = "docker"
    """The container engine's command line program for the sandbox `docker`."""
    allow_root: Annotated[bool, Written("yes")] = False
    """Whether the bot may run as root, `yes` or `no`; if not, it refuses to start as root. On GitHub-hosted runners it
    may unless set to `no`."""
    toolchains: Annotated[parsing.Directories, Written("/opt/python3.13:/opt/node", between=":")] = ()
    """Directories that the sandbox shows read-only in addition to the system's, separated by colons; the `bin` of each
    is on the `PATH`. A virtual environment includes its base Python."""
    network: Annotated[parsing.NetworkWords, Written("registries,internal-index.example.com:8443")] = _NO_NETWORK
    """The hosts that commands may reach over TLS, separated by commas: `off`, or hosts and `registries` (where packages
    are downloaded from)."""
    sandbox_limits: Annotated[parsing.Limits, Written("memory=4GiB,files=9000")] = field(default_factory=SandboxLimits)
    """Limits for all commands of a job together. Those that are not named stay memory=8GiB, processes=512,
    cpu-seconds=7200, disk=10GiB, files=150000, and free-disk=1GiB for the disk space that must stay free."""
    setup_network: Annotated[parsing.NetworkWords | None, Written("registries")] = None
    """The hosts that the `setup:` commands of repositories may reach; by default the same as `CODEPILOT_NETWORK`."""
    setup_seconds: Annotated[int, Field(ge=1, le=86_400), Written("600")] = 600
    """The time limit in seconds for all `setup:` commands of a repository together, before each run."""
    setup_cache_gb: Annotated[int, Field(ge=0, le=10_000), Written("10")] = 10
    """Gigabytes of `setup:` results to cache for later jobs on the same machine; 0 disables the cache."""
    fetch_mb: Annotated[int, Field(ge=1, le=1_000_000), Written("4096")] = 1024
    """The size limit in megabytes of one fetch of a repository."""
    pull_fetch_mb: Annotated[int, Field(ge=1, le=1_000_000), Written("512")] = 256
    """The size limit in megabytes of the commits that a pull request adds; anybody may open one."""
    mirrors_gb: Annotated[int, Field(ge=1, le=100_000), Written("100")] = 20
    """The size limit in gigabytes of all repository mirrors. The least recently used are removed first and fetched
    again when they are needed."""
    cache_days: Annotated[int, Field(ge=1, le=3650), Written("30", input=None)] = 90
    """Days without use after which repository mirrors and cached `setup:` results are removed."""
    mcp: Annotated[parsing.FilePath | None, Written("/etc/codepilot/mcp.yaml", input=None)] = None
    """A YAML file that defines MCP servers whose tools agents can use; repositories can only select some of them."""
    max_steps: Annotated[int, Field(ge=1, le=1000), Written("30")] = 30
    """The maximum number of steps in a run."""
    max_cost_usd: Annotated[parsing.Dollars, Written("5")] = 5
    """The maximum cost of a run in US dollars, or `none`."""
    max_seconds: Annotated[int, Field(ge=10, le=86_400), Written("1800")] = 1800
    """The time limit of a run in seconds."""
    max_candidates: Annotated[int, Field(ge=1, le=8), Written("3")] = 3
    """The maximum of `--candidates`: parallel attempts at one fix, each with its own copy of the files and its own
    sandbox."""
    model_patience: Annotated[int, Field(ge=0, le=604_800), Written("21600")] = 21_600
    """Seconds that a job waits for an unavailable model service before it fails and its work is kept; at most 900 in a
    workflow run."""
    model_silence: Annotated[int | None, Field(ge=1, le=7_200), Written("900")] = None
    """Seconds without data from the model service before a reply is considered broken off; by default 900 for a model
    that may think and 300 for others."""
    model_transport: Annotated[Literal["auto", "blocks", "tools"], parsing.Lower, Written("tools")] = "auto"
    """How the model calls tools: `blocks` (Python in its replies), `tools` (the model service's own tool calls), or
    `auto` for the default of the model."""
    ca_file: Annotated[parsing.CaFile | None, Written("/etc/ssl/certs/example-ca.pem")] = None
    """A file with the certificate authorities of your own GitHub server, in PEM. Its API and its git are then checked
    against these alone; other hosts that it refers to are checked against the system's as well."""
    data_dir: Annotated[parsing.FilePath, Written("/var/lib/codepilot", input=None)] = Path("codepilot-data")
    """The directory of the mirrors, the workspaces and, by default, the jobs; created if it is missing."""
    triggers: Annotated[parsing.Triggers, Written(f"{DEFAULT_TRIGGER},@codepilot", name="CODEPILOT_TRIGGER")] = (
        _TRIGGERS
    )
    """The word that starts a command, or several separated by commas; the bot itself uses the first."""
    start_label: Annotated[Label, Written("codepilot")] = "codepilot"
    """The label that starts a run, unless the repository names another."""
    level: Annotated[Level, parsing.Lower, Written("ask")] = "ask"
    """The permission level, unless the repository or a label sets another: `ask` (write files and run commands; with a
    network, only commands on the list), `auto` (anything in the sandbox), or `read-only`, which nothing raises."""
    allow_commands: Annotated[parsing.Patterns, Written("npm run e2e *; ./scripts/check", between=";")] = ()
    """Patterns of commands that need no approval at the level `ask` with a network, in addition to the built-in ones;
    separated by `;` or line breaks."""
    models: Annotated[parsing.Names, Written("claude-haiku-4-5,claude-opus-5")] = ()
    """Additional models that a command or a repository may choose, separated by commas."""
    caps: Annotated[parsing.CapsWords, Written("user=40,installation=500")] = field(default_factory=Caps)
    """Limits on the number of runs started per hour, and of runs in a thread that no person asked for (unattended).
    Those that are not named stay thread=10, user=20, repository=50, installation=200, unattended=3."""
    pictures: Annotated[Literal["auto", "on", "off"], parsing.Lower, Written("off")] = "auto"
    """Whether the model sees images attached to the thread: `auto` if it is known to support images, `on`, `off`."""
    approval_hours: Annotated[int, Field(ge=1, le=720), Written("72")] = 72
    """Hours that a run waits for an approval or an answer before it ends."""
    keep_days: Annotated[int, Field(ge=1, le=3650), Written("30")] = 30
    """Days that finished jobs and unpublished patches are kept."""
    patches_gb: Annotated[int, Field(ge=1, le=100_000), Written("20", input=None)] = 10
    """The size limit in gigabytes of all unpublished patches. The oldest are removed first, but not those of jobs
    that wait."""
    review_on: Annotated[parsing.ReviewEvents, Written("opened,push")] = frozenset()
    """When to review a pull request of somebody with write access without a command, unless the repository sets it:
    `opened`, `ready` (a draft became ready), `push`, separated by commas."""
    allowed_users: Annotated[parsing.Logins, Written("mona,octocat")] = frozenset()
    """Logins of the people who may give commands, separated by commas; by default everybody with write access. Nobody
    gets more permissions than on GitHub."""
    trusted_bots: Annotated[parsing.Bots, Written("dependabot[bot],29139614")] = field(default_factory=TrustedBots)
    """Bots that may give commands, separated by commas: names of Apps' accounts, which end in `[bot]`, or numeric user
    ids. All others are ignored."""
    cloud: Mapping[str, str] = field(default_factory=dict, repr=False)
    """No setting: the variables of the cloud that is used, which its SDK reads; some are secrets."""
    outage_seconds: float = RunLimits().outage_seconds
    """No setting: the most seconds for which a run itself waits for the model service. After that its job waits."""

    @property
    def trigger(self) -> str:
        """The word with which the bot itself shows commands."""
        return self.triggers[0]

    @property
    def api_key(self) -> SecretStr | None:
        """The key of the model service that is used; None where it needs none, or there is none.

        A provider's own key is never that of another address.
        """
        if self.base_url_key is not None or not CATALOG[self.provider].is_own(self.base_url):
            return self.base_url_key
        variable = CATALOG[self.provider].key_variable
        key: SecretStr | None = getattr(self, variable.lower()) if variable else None
        return key

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """The secrets with which the model service is asked."""
        variables = CATALOG[self.provider].cloud
        names = variables.secrets if variables else ()
        held = (SecretStr(self.cloud[name]) for name in names if name in self.cloud)
        return (*filter(None, [self.api_key]), *held)

    @property
    def key_variable(self) -> str | None:
        """The environment variable of that key; None where it is the provider's usual one."""
        foreign = self.base_url_key is not None or not CATALOG[self.provider].is_own(self.base_url)
        return "CODEPILOT_API_KEY" if foreign else None

    @property
    def limits(self) -> RunLimits:
        """The bounds of one run."""
        return RunLimits(
            max_steps=self.max_steps,
            max_cost_usd=self.max_cost_usd,
            max_seconds=self.max_seconds,
            outage_seconds=min(self.model_patience, self.outage_seconds),
        )

    @property
    def container(self) -> ContainerSettings | None:
        """How containers are made, where commands may run in some."""
        return ContainerSettings(image=self.docker_image, program=self.docker_program) if self.docker_image else None


def bounds_of(settings: AgentSettings) -> Bounds:
    """The part of the settings that permissions are decided by."""
    return Bounds(
        limits=settings.limits,
        level=settings.level,
        models=settings.models,
        model="scripted" if settings.provider == "scripted" else settings.model,
        commands=settings.allow_commands,
        caps=settings.caps,
        approval_seconds=settings.approval_hours * 3600.0,
        network=settings.network,
        trusted_bots=settings.trusted_bots,
        allowed_users=settings.allowed_users,
        review_on=settings.review_on,
        max_candidates=settings.max_candidates,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything `codepilot serve` and `codepilot work` need; the docstring below each field is what users read."""

    agent: AgentSettings
    webhook_secret: Annotated[SecretStr, Field(min_length=16), Written("$(openssl rand -hex 32)")]
    """The secret from the GitHub App's webhook settings; at least 16 characters."""
    app_id: Annotated[_Id, Written("123456")]
    """The GitHub App's id, from its settings page."""
    private_key: Annotated[parsing.KeyFile, Written("/etc/codepilot/app.pem", name="CODEPILOT_PRIVATE_KEY_FILE")]
    """The file with the GitHub App's private key; other users must not be able to read it."""
    api_url: Annotated[parsing.Url, Written("https://github.example.com/api/v3")] = _API
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
    log_format: Annotated[LogFormat, parsing.Lower, Written("json")] = "text"
    """The format of the log: `text`, or `json` for one JSON object per line."""
    metrics_port: Annotated[int | None, Field(ge=0, le=65_535), Written("9090")] = None
    """A separate port for `/healthz`, `/readyz` and `/metrics`, where programs on this machine need no token. A worker
    without a receiver serves them only there."""
    metrics_token: Annotated[SecretStr | None, Field(min_length=16), Written("$(openssl rand -hex 32)")] = None
    """The bearer token that `/metrics` requires, at least 16 characters."""
    dashboard_token: Annotated[SecretStr | None, Field(min_length=16), Written("$(openssl rand -hex 32)")] = None
    """The token with which an operator signs in at `/dashboard` and sees the runs of all repositories, at least 16
    characters. Without it, and without a client id and secret, there is no dashboard."""
    trusted_proxies: Annotated[parsing.Proxies, Written("127.0.0.1, 10.0.0.0/8")] = ()
    """The addresses and networks of your proxies, separated by commas. Only from these does `X-Forwarded-For` count, by
    which the dashboard limits sign-in attempts for each client; without it, all clients of a proxy share one limit."""
    client_id: Annotated[str | None, Written("Iv23lixxxxxxxxxxxxxx")] = None
    """The client id of the GitHub App, from its settings page; with the client secret, people sign in to the dashboard
    with GitHub and see the runs of the repositories that they can reach."""
    client_secret: Annotated[
        SecretStr | None, Field(min_length=16), Written("f1c05d27a4e98b36d0fa47c1e85b92630dab74e1")
    ] = None
    """A client secret of the GitHub App, from its settings page."""
    trace_url: Annotated[parsing.Url | None, Written("https://jaeger.example.com/trace")] = None
    """The address of your trace viewer; the dashboard adds `/` and the trace id of a run, and links to the result."""
    otlp_endpoint: Annotated[
        parsing.Url | None, Written("http://127.0.0.1:4318", name="OTEL_EXPORTER_OTLP_ENDPOINT", input=None)
    ] = None
    """The OpenTelemetry collector that gets traces, by OTLP over HTTP."""
    otlp_headers: Annotated[
        SecretStr | None, Written("authorization=Bearer%20…", name="OTEL_EXPORTER_OTLP_HEADERS", input=None)
    ] = None
    """Headers for the collector, separated by commas."""
    database_url: Annotated[
        parsing.DatabaseUrl | None, Written("postgresql://codepilot:…@db.example.com/codepilot")
    ] = None
    """The database of the jobs: `sqlite:///path`, or `postgresql://user:password@host/name` so that workers on several
    machines share it; by default an SQLite file in the data directory."""
    storage_url: Annotated[parsing.StorageUrl | None, Written("s3://my-bucket/codepilot")] = None
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
    aws_endpoint_url: Annotated[
        parsing.Url | None, Written("https://s3.example.com", name="AWS_ENDPOINT_URL", input=None)
    ] = None
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
class Sources:
    """Where further settings are."""

    config: Annotated[parsing.FilePath | None, Written("/etc/codepilot.yml", input=None)] = None
    """A YAML file with further settings, by the names below in lower case without `CODEPILOT_`; the environment takes
    precedence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInputs:
    """The inputs of the action that a server has no setting for; the docstring below each field is what users read."""

    prompt: Annotated[str | None, Written("Update dependencies that have fixes.", verbatim=True)] = None
    """The task for the agent, on any event, without a command in a comment. The text in the workflow file is the task;
    the values of most expressions are quoted to the agent."""
    command: Annotated[BareVerb | None, parsing.Lower, Written("review")] = None
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
    repo_config: Annotated[parsing.RepoFile, Written(".github/codepilot/maintenance.yml", input="config")] = PATH
    """The path of the repository's configuration file."""
    dry_run: Annotated[bool, Written("yes")] = False
    """Whether to publish nothing, `yes` or `no`; the comment and the summary then show what would be published."""
    approvals: Annotated[Literal["denied", "artifact"], parsing.Lower, Written("artifact")] = "denied"
    """What to do with a call that requires approval: `denied` (the agent is told and continues) or `artifact` (the run
    is stored in an artifact and resumes when somebody answers in a comment)."""
    session: Annotated[str | None, AfterValidator(parsing.artifact), Written("codepilot-session-12")] = None
    """The name of the artifact to resume from; by default `codepilot-session-` and the thread's number."""
    session_key: Annotated[SecretStr | None, Field(min_length=32), Written("8c5f1d0b9e7a4c63b2f0d6e1a9c84735")] = None
    """A secret of at least 32 characters that encrypts waiting runs; by default derived from the model service's
    key."""
    output_schema: Annotated[parsing.Schema | None, Written(".github/triage.schema.json")] = None
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
    event_path: Annotated[parsing.FilePath, Written("/github/workflow/event.json", name="GITHUB_EVENT_PATH")]
    """The file with the event's payload."""
    event_name: Annotated[str, Written("issue_comment", name="GITHUB_EVENT_NAME")]
    """The event's name."""
    repository: Annotated[parsing.RepoName, Written("octocat/hello-world", name="GITHUB_REPOSITORY")]
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
    workflow_ref: Annotated[
        str, Written("octocat/hello-world/.github/workflows/fix.yml@refs/heads/main", name="GITHUB_WORKFLOW_REF")
    ] = ""
    """The workflow file and its ref."""
    workflow_sha: Annotated[str, Written("ffac537e6cbbf934b08745a378932722df287a53", name="GITHUB_WORKFLOW_SHA")] = ""
    """The commit of the workflow file."""
    job: Annotated[str, Written("fix", name="GITHUB_JOB")] = ""
    """The job's id in the workflow file."""
    action: Annotated[str, Written("__octocat_codepilot", name="GITHUB_ACTION")] = ""
    """The step's id, or the name that GitHub gives it."""
    action_path: Annotated[str, Written("/work/_actions/octocat/codepilot/v1", name="GITHUB_ACTION_PATH")] = ""
    """The directory of this action."""
    workspace: Annotated[str, Written("/work/hello-world/hello-world", name="GITHUB_WORKSPACE")] = ""
    """The directory of the workflow's checkout."""
    api_url: Annotated[parsing.Url, Written(_API, name="GITHUB_API_URL")] = _API
    """The address of GitHub's REST API."""
    server_url: Annotated[ServerUrl, Written(_ON_GITHUB, name="GITHUB_SERVER_URL")] = _ON_GITHUB
    """GitHub's address for browsers and git."""
    output_path: Annotated[parsing.FilePath | None, Written("/github/output", name="GITHUB_OUTPUT")] = None
    """The file that takes the step's outputs."""
    summary_path: Annotated[parsing.FilePath | None, Written("/github/summary", name="GITHUB_STEP_SUMMARY")] = None
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


ServerUrl = Annotated[parsing.Url, AfterValidator(server_of)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """One setting; `settings_of` makes one of each.

    Attributes:
        model: the model that it belongs to.
        field: its field there.
        type: the annotation of that.
        name: the environment variable.
        example: a value that works, as it would be written.
        default: the default as it would be written; None when the setting must be set, empty for none.
        input_name: its name among the action's inputs; empty where it is none of them.
        secret: whether the value itself is a secret, rather than the name of a file with one.
        between: separates the entries of a list.
        verbatim: whether space at the ends of its text is part of it.
    """

    model: type
    field: str
    type: Any
    name: str
    example: str
    default: str | None
    input_name: str
    secret: bool
    between: str
    verbatim: bool

    @property
    def key(self) -> str:
        """Its name in the settings file."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def meaning(self) -> str:
        """The help text, in one line."""
        return _docstrings(self.model)[self.field]

    def parse(self, text: str) -> Any:  # noqa: ANN401 - each setting has its own type
        """The value of a written text.

        Raises:
            ValueError: it does not fit; the text says what the setting must be, and never a secret.
        """
        adapter = TypeAdapter[Any](self.type)
        try:
            return adapter.validate_python(text)
        except ValidationError as error:
            raise ValueError(_error_message(error.errors(include_url=False)[0], adapter)) from None


@cache
def settings_of(model: type) -> Mapping[str, Setting]:
    """The settings among the fields of a frozen dataclass, by field, in their order."""
    found: dict[str, Setting] = {}
    hints = get_type_hints(model, include_extras=True)
    for each_field in fields(model):
        hint = hints[each_field.name]
        for written in (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Written)):
            name = written.name or f"{PREFIX}{each_field.name.upper()}"
            derived = "" if name.startswith("GITHUB_") else name.removeprefix(PREFIX).lower().replace("_", "-")
            [kind, *_] = get_args(hint)
            # An alternative may be annotated in its turn, with how it is parsed.
            kinds = {getattr(each, "__origin__", each) for each in (kind, *get_args(kind))}
            found[each_field.name] = Setting(
                model=model,
                field=each_field.name,
                type=hint,
                name=name,
                example=written.example,
                default=_as_written(each_field.default, each_field.default_factory),
                input_name="" if written.input is None else written.input or derived,
                secret=SecretStr in kinds and not name.endswith("_FILE"),
                between=written.between,
                verbatim=written.verbatim,
            )
    return found


@cache
def _docstrings(model: type) -> Mapping[str, str]:
    """The docstring below each field, which the compiler does not keep."""
    return {
        ast.unparse(field.target): " ".join(str(ast.literal_eval(below.value)).split())
        for node in ast.parse(inspect.getsource(model)).body
        if isinstance(node, ast.ClassDef)
        for field, below in pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr)
    }


def _as_written(default: object, factory: object) -> str | None:
    if default is MISSING:
        return None if factory is MISSING else ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple | frozenset):
        return ",".join(default)
    return "" if default is None else str(default)


def _error_message(error: ErrorDetails, adapter: TypeAdapter[Any]) -> str:
    """The words for one of pydantic's errors, as a clause without the setting's name."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        known = context["expected"].replace(" or ", ", ").replace("'", "")
        return f"must be one of {known}, not {given!r}"
    if kind == "bool_parsing":
        return f"must be yes or no, not {given!r}"
    if kind in {"string_too_long", "too_short"}:
        bound = f"at most {context['max_length']:,}" if "max_length" in context else f"at least {context['min_length']}"
        return f"must have {bound} characters, but has {len(given):,}"
    if not kind.startswith(("int_", "greater_", "less_")):
        return error["msg"]
    schema = adapter.json_schema()
    whole = schema.get("anyOf", [schema])[0]
    return f"must be a whole number from {whole['minimum']} to {whole['maximum']}, not {given!r}"


CONFIG: Setting = settings_of(Sources)["config"]
SERVICE: Mapping[str, Setting] = settings_of(Settings)
AGENT: Mapping[str, Setting] = settings_of(AgentSettings)
INPUTS: Mapping[str, Setting] = settings_of(ActionInputs)
"""The inputs of the action that `codepilot serve` has no setting for."""
RUNNER: Mapping[str, Setting] = settings_of(ActionSettings)

SETTINGS: tuple[Setting, ...] = (CONFIG, *SERVICE.values(), *AGENT.values())
"""The settings of an operator, in the order of the documentation."""

PROVIDER_KEYS: Mapping[str, Setting] = {
    name: AGENT[variable.lower()] for name in MODELS if (variable := CATALOG[name].key_variable)
}
"""The setting that holds a model service's key, by the service."""

SECRETS: tuple[Setting, ...] = tuple(each for each in (*SETTINGS, *INPUTS.values(), *RUNNER.values()) if each.secret)
"""The settings that are secrets themselves, rather than name a file with one."""


def settings_table() -> str:
    """Every operator setting as a Markdown table, for the documentation."""
    rows = ["| variable | meaning | default | example |", "|---|---|---|---|"]
    for each in SETTINGS:
        default = "must be set" if each.default is None else each.default and f"`{each.default}`"
        rows.append(f"| `{each.name}` | {each.meaning} | {default} | `{each.example}` |")
    return "\n".join([*rows, ""])
