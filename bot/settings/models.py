"""The settings of a service and of a workflow step, as fields of models. Pure.

A field annotated with `Spec` is a setting; the docstring below it is its help. `docs/settings.md` and `action.yml`
are generated: run `UPDATE_DOCS=1 .venv/bin/pytest tests/test_docs.py` after a change.
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

from agent_runtime import CATALOG, ContainerSettings, Endpoint, Network, RunLimits, SandboxLimits
from bot.domain.access import Bounds, Caps, Level, TrustedBots
from bot.domain.commands import DEFAULT_TRIGGER, CommentMode
from bot.domain.errors import InputProblem
from bot.domain.spend import SpendCaps
from bot.permissions.levels import BRANCH_PREFIX, Conventions
from bot.permissions.repo_config import PATH, BareVerb, Label, parse_branch_prefix
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
_GITHUB_COM = "https://github.com"
_API = "https://api.github.com"
_BASE_URL_KEY = "CODEPILOT_API_KEY"
_CLOUD_DOMAIN = ".ghe.com"
"""Enterprise Cloud with data residency: https://docs.github.com/enterprise-cloud@latest/admin/data-residency"""


@dataclass(frozen=True, slots=True)
class Spec:
    """Marks a field as a setting.

    Attributes:
        name: the variable; empty for `CODEPILOT_` and the field's name.
        input: the Action's input; empty to derive it from the variable, None for no input.
        between: separator of a list.
        verbatim: whether to keep surrounding space.
    """

    example: str
    name: str = ""
    input: str | None = ""
    separator: str = ","
    verbatim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of the agent."""

    provider: Annotated[Provider, parsing.Lower, Spec("anthropic")] = "anthropic"
    """The model service: `anthropic`, `openai` (or a compatible server), `alibaba`, `bedrock`, `vertex`, `azure`, `llm`
    (as the package of that name is configured) or `scripted`. The clouds take region and credentials from the variables
    of their SDKs."""
    model: Annotated[str, Spec(MODELS["anthropic"])] = ""
    """The model. By default `claude-sonnet-5-5`, `gpt-6.2-sol`, `qwen3.7-max`, `global.anthropic.claude-sonnet-5-5` at
    Bedrock, or the default of `llm`. For `azure` it is the deployment's name, for `scripted` the path of the script;
    these must be set."""
    base_url: Annotated[parsing.Url | None, Spec("https://models.example.com/v1")] = None
    """The model service's address; by default the one in `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL`, or else the
    provider's own. The only key that is sent to it is `CODEPILOT_API_KEY`, unless it is another address of the provider
    itself."""
    base_url_key: Annotated[SecretStr | None, Spec("sk-…", name=_BASE_URL_KEY)] = None
    """The API key for `CODEPILOT_BASE_URL`, if that server needs one."""
    anthropic_api_key: Annotated[SecretStr | None, Spec("sk-ant-…", name="ANTHROPIC_API_KEY")] = None
    """The API key; required for the provider `anthropic`."""
    openai_api_key: Annotated[SecretStr | None, Spec("sk-…", name="OPENAI_API_KEY")] = None
    """The API key; required for the provider `openai`."""
    dashscope_api_key: Annotated[SecretStr | None, Spec("sk-…", name="DASHSCOPE_API_KEY")] = None
    """The API key; required for the provider `alibaba`."""
    sandbox: Annotated[Literal["auto", "bubblewrap", "docker"], parsing.Lower, Spec("bubblewrap")] = "auto"
    """The sandbox for commands: `bubblewrap`, `docker` (a container per job), or `auto` for the first that works."""
    docker_image: Annotated[str | None, Spec("docker.io/library/python@sha256:…")] = None
    """The image for the sandbox `docker`, which must be on this machine; pin it by digest."""
    docker_program: Annotated[str, Spec("podman")] = "docker"
    """The container engine's command line program for the sandbox `docker`."""
    allow_root: Annotated[bool, Spec("yes")] = False
    """Whether the bot may run as root, `yes` or `no`; if not, it refuses to start as root. On GitHub-hosted runners it
    may unless set to `no`."""
    toolchains: Annotated[parsing.Directories, Spec("/opt/python3.13:/opt/node", separator=":")] = ()
    """Directories that the sandbox shows read-only in addition to the system's, separated by colons; the `bin` of each
    is on the `PATH`. A virtual environment includes its base Python."""
    network: Annotated[parsing.NetworkWords, Spec("registries,internal-index.example.com:8443")] = _NO_NETWORK
    """The hosts that commands may reach over TLS, separated by commas: `off`, or hosts and `registries` (where packages
    are downloaded from)."""
    sandbox_limits: Annotated[parsing.Limits, Spec("memory=4GiB,files=9000")] = field(default_factory=SandboxLimits)
    """Limits for all commands of a job together. Those that are not named stay memory=8GiB, processes=512,
    cpu-seconds=7200, disk=10GiB, files=150000, and free-disk=1GiB for the disk space that must stay free."""
    setup_network: Annotated[parsing.NetworkWords | None, Spec("registries")] = None
    """The hosts that the `setup:` commands of repositories may reach; by default the same as `CODEPILOT_NETWORK`."""
    setup_seconds: Annotated[int, Field(ge=1, le=86_400), Spec("600")] = 600
    """The time limit in seconds for all `setup:` commands of a repository together, before each run."""
    setup_cache_gb: Annotated[int, Field(ge=0, le=10_000), Spec("10")] = 10
    """Gigabytes of `setup:` results to cache for later jobs on the same machine; 0 disables the cache."""
    fetch_mb: Annotated[int, Field(ge=1, le=1_000_000), Spec("4096")] = 1024
    """The size limit in megabytes of a fetch of a repository; of a larger history, the last 50 commits are fetched."""
    pull_fetch_mb: Annotated[int, Field(ge=1, le=1_000_000), Spec("512")] = 256
    """The size limit in megabytes of the commits that a pull request adds; anybody may open one."""
    mirrors_gb: Annotated[int, Field(ge=1, le=100_000), Spec("100")] = 20
    """The size limit in gigabytes of all repository mirrors. The least recently used are removed first and fetched
    again when they are needed."""
    cache_days: Annotated[int, Field(ge=1, le=3650), Spec("30", input=None)] = 90
    """Days without use after which repository mirrors and cached `setup:` results are removed."""
    mcp: Annotated[parsing.FilePath | None, Spec("/etc/codepilot/mcp.yaml", input=None)] = None
    """A YAML file that defines MCP servers whose tools agents can use; repositories can only select some of them."""
    max_steps: Annotated[int, Field(ge=1, le=1000), Spec("30")] = 30
    """The maximum number of steps in a run."""
    max_cost_usd: Annotated[parsing.Dollars, Spec("5")] = 5
    """The maximum cost of a run in US dollars, or `none`."""
    max_seconds: Annotated[int, Field(ge=10, le=86_400), Spec("1800")] = 1800
    """The time limit of a run in seconds."""
    max_candidates: Annotated[int, Field(ge=1, le=8), Spec("3")] = 3
    """The maximum of `--candidates`: parallel attempts at one fix, each with its own copy of the files and its own
    sandbox."""
    model_patience: Annotated[int, Field(ge=0, le=604_800), Spec("21600")] = 21_600
    """Seconds that a job waits for an unavailable model service before it fails and its work is kept; at most 900 in a
    workflow run."""
    model_silence: Annotated[int | None, Field(ge=1, le=7_200), Spec("900")] = None
    """Seconds without data from the model service before a reply is considered broken off; by default 900 for a model
    that may think and 300 for others."""
    model_transport: Annotated[Literal["auto", "blocks", "tools"], parsing.Lower, Spec("tools")] = "auto"
    """How the model calls tools: `blocks` (Python in its replies), `tools` (the model service's own tool calls), or
    `auto` for the default of the model."""
    ca_file: Annotated[parsing.CaFile | None, Spec("/etc/ssl/certs/example-ca.pem")] = None
    """A file with the certificate authorities of your own GitHub server, in PEM. Its API and its git are then checked
    against these alone; other hosts that it refers to are checked against the system's as well."""
    data_dir: Annotated[parsing.FilePath, Spec("/var/lib/codepilot", input=None)] = Path("codepilot-data")
    """The directory of the mirrors, the workspaces and, by default, the jobs; created if it is missing."""
    triggers: Annotated[parsing.Triggers, Spec(f"{DEFAULT_TRIGGER},@codepilot", name="CODEPILOT_TRIGGER")] = _TRIGGERS
    """The word that starts a command, or several separated by commas; the bot itself uses the first."""
    start_label: Annotated[Label, Spec("codepilot")] = "codepilot"
    """The label that starts a run, unless the repository names another."""
    level: Annotated[Level, parsing.Lower, Spec("ask")] = "ask"
    """The permission level, unless the repository or a label sets another: `ask` (write files and run commands; with a
    network, only commands on the list), `auto` (anything in the sandbox), or `read-only`, which nothing raises."""
    allow_commands: Annotated[parsing.Patterns, Spec("npm run e2e *; ./scripts/check", separator=";")] = ()
    """Patterns of commands that need no approval at the level `ask` with a network, in addition to the built-in ones;
    separated by `;` or line breaks."""
    models: Annotated[parsing.Names, Spec("claude-haiku-4-5,claude-opus-5")] = ()
    """Additional models that a command or a repository may choose, separated by commas."""
    branch_prefix: Annotated[str, AfterValidator(parse_branch_prefix), Spec("bots/codepilot/")] = BRANCH_PREFIX
    """The beginning of the names of the bot's branches, ending in `/` or `-`, unless the repository sets another."""
    caps: Annotated[parsing.CapsWords, Spec("user=40,installation=500")] = field(default_factory=Caps)
    """Limits on the number of runs started per hour, and of runs in a thread that no person asked for (unattended).
    Those that are not named stay thread=10, user=20, repository=50, installation=200, unattended=3."""
    spend_caps: Annotated[parsing.SpendCapsWords, Spec("repository-day=20,person-month=100", input=None)] = field(
        default_factory=SpendCaps
    )
    """Limits of spending in US dollars, in a UTC day and month: `repository-day`, `repository-month`, `person-day` and
    `person-month`, separated by commas; by default unlimited. Each applies to every repository or person alike."""
    pictures: Annotated[Literal["auto", "on", "off"], parsing.Lower, Spec("off")] = "auto"
    """Whether the model sees images attached to the thread: `auto` if it is known to support images, `on`, `off`."""
    approval_hours: Annotated[int, Field(ge=1, le=720), Spec("72")] = 72
    """Hours that a run waits for an approval or an answer before it ends."""
    keep_days: Annotated[int, Field(ge=1, le=3650), Spec("30")] = 30
    """Days that finished jobs and unpublished patches are kept."""
    patches_gb: Annotated[int, Field(ge=1, le=100_000), Spec("20", input=None)] = 10
    """The size limit in gigabytes of all unpublished patches. The oldest are removed first, but not those of jobs
    that wait."""
    review_on: Annotated[parsing.ReviewEvents, Spec("opened,push")] = frozenset()
    """When to review a pull request of somebody with write access without a command, unless the repository sets it:
    `opened`, `ready` (a draft became ready), `push`, separated by commas."""
    actions: Annotated[parsing.ActionKinds, Spec("add-labels,comment")] = None
    """The kinds of actions that repositories may declare for the agent to propose, separated by commas; `all` or `off`.
    By default all."""
    allowed_users: Annotated[parsing.Logins, Spec("mona,octocat")] = frozenset()
    """Logins of the people who may give commands, separated by commas; by default everybody with write access. Nobody
    gets more permissions than on GitHub."""
    trusted_bots: Annotated[parsing.Bots, Spec("dependabot[bot],29139614")] = field(default_factory=TrustedBots)
    """Bots that may give commands, separated by commas: names of Apps' accounts, which end in `[bot]`, or numeric user
    ids. All others are ignored."""
    cloud: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Not a setting: the variables for the cloud's SDK; some are secret."""
    sdk_address: Mapping[str, str] = field(default_factory=dict)
    """Not a setting: the SDK's variable with an address, if set."""
    outage_seconds: float = RunLimits().outage_seconds
    """Not a setting: how long a run waits for the model service; then its job waits."""

    @property
    def trigger(self) -> str:
        """The trigger that the bot displays."""
        return self.triggers[0]

    @property
    def endpoint(self) -> Endpoint:
        """The model service's address, and its key's environment variable."""
        named = {} if self.base_url_key is None else {_BASE_URL_KEY: self.base_url_key.get_secret_value()}
        environ = {**self.sdk_address, **named}
        return CATALOG[self.provider].endpoint(environ, base_url=self.base_url, key_variable=_BASE_URL_KEY)

    @property
    def api_key(self) -> SecretStr | None:
        """The key for the model service, if any. A provider's own key is never sent to another address."""
        variable = self.endpoint.key_variable
        if variable == _BASE_URL_KEY:
            return self.base_url_key
        secret: SecretStr | None = getattr(self, variable.lower()) if variable else None
        return secret

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """Secrets for the model service."""
        variables = CATALOG[self.provider].cloud
        names = variables.secrets if variables else ()
        cloud_secrets = (SecretStr(self.cloud[name]) for name in names if name in self.cloud)
        return (*filter(None, [self.api_key]), *cloud_secrets)

    @property
    def limits(self) -> RunLimits:
        """Limits of one run."""
        patience = min(self.model_patience, self.outage_seconds)
        return RunLimits(
            max_steps=self.max_steps,
            max_cost_usd=self.max_cost_usd,
            max_seconds=self.max_seconds,
            outage_seconds=patience,
            offline_seconds=patience,
        )

    @property
    def container(self) -> ContainerSettings | None:
        """Container settings, if an image is set."""
        return ContainerSettings(image=self.docker_image, program=self.docker_program) if self.docker_image else None


def bounds_of(settings: AgentSettings) -> Bounds:
    """Return the settings that permissions depend on."""
    return Bounds(
        limits=settings.limits,
        level=settings.level,
        models=settings.models,
        model="scripted" if settings.provider == "scripted" else settings.model,
        commands=settings.allow_commands,
        caps=settings.caps,
        spend_caps=settings.spend_caps,
        approval_seconds=settings.approval_hours * 3600.0,
        network=settings.network,
        trusted_bots=settings.trusted_bots,
        allowed_users=settings.allowed_users,
        review_on=settings.review_on,
        max_candidates=settings.max_candidates,
        actions=settings.actions,
        start_label=settings.start_label,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `codepilot serve` and `codepilot work`."""

    agent: AgentSettings
    webhook_secret: Annotated[SecretStr, Field(min_length=16), Spec("$(openssl rand -hex 32)")]
    """The secret from the GitHub App's webhook settings; at least 16 characters."""
    app_id: Annotated[_Id, Spec("123456")]
    """The GitHub App's id, from its settings page."""
    private_key: Annotated[parsing.KeyFile, Spec("/etc/codepilot/app.pem", name="CODEPILOT_PRIVATE_KEY_FILE")]
    """The file with the GitHub App's private key; other users must not be able to read it."""
    api_url: Annotated[parsing.Url, Spec("https://github.example.com/api/v3")] = _API
    """The address of GitHub's REST API; by default that of the server in `CODEPILOT_SERVER_URL`."""
    server_url: Annotated[ServerUrl, Spec("https://github.example.com")] = _GITHUB_COM
    """GitHub's address for browsers and git; by default that of the server in `CODEPILOT_API_URL`."""
    jobs: Annotated[int, Field(ge=1, le=64), Spec("4")] = 2
    """The number of jobs of one installation that one process runs in parallel, each in a different thread. Other
    installations have additional places: a quarter of this number, at least one."""
    jobs_per_repository: Annotated[int | None, Field(ge=1, le=10_000), Spec("3")] = None
    """The number of jobs of one repository that all processes together run in parallel; by default unlimited. Further
    jobs wait, in order. Set the same value for receivers and workers."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600), Spec("300")] = 20
    """Seconds that running jobs may continue after SIGTERM; then they return to the queue and are resumed by another
    worker or after the restart."""
    mentions: Annotated[bool, Spec("no")] = True
    """Whether a command may also begin with the App's own name, such as `@my-codepilot`, `yes` or `no`."""
    schedules: Annotated[bool, Spec("no")] = True
    """Whether recipes of repositories run on their schedules, `yes` or `no`."""
    host: Annotated[str, Spec("0.0.0.0")] = "127.0.0.1"  # noqa: S104 - shown as an example
    """The address to listen on; put a proxy with TLS in front of it."""
    port: Annotated[int, Field(ge=0, le=65_535), Spec("8080")] = 8080
    """The port to listen on; 0 picks a free one."""
    log_format: Annotated[LogFormat, parsing.Lower, Spec("json")] = "text"
    """The format of the log: `text`, or `json` for one JSON object per line."""
    metrics_port: Annotated[int | None, Field(ge=0, le=65_535), Spec("9090")] = None
    """A separate port for `/healthz`, `/readyz` and `/metrics`, where programs on this machine need no token. A worker
    without a receiver serves them only there."""
    metrics_token: Annotated[SecretStr | None, Field(min_length=16), Spec("$(openssl rand -hex 32)")] = None
    """The bearer token that `/metrics` requires, at least 16 characters."""
    dashboard_token: Annotated[SecretStr | None, Field(min_length=16), Spec("$(openssl rand -hex 32)")] = None
    """The token with which an operator signs in at `/dashboard` and sees the runs of all repositories, at least 16
    characters. Without it, and without a client id and secret, there is no dashboard."""
    trusted_proxies: Annotated[parsing.Proxies, Spec("127.0.0.1, 10.0.0.0/8")] = ()
    """The addresses and networks of your proxies, separated by commas. Only from these does `X-Forwarded-For` count, by
    which the dashboard limits sign-in attempts for each client; without it, all clients of a proxy share one limit."""
    client_id: Annotated[str | None, Spec("Iv23lixxxxxxxxxxxxxx")] = None
    """The client id of the GitHub App, from its settings page; with the client secret, people sign in to the dashboard
    with GitHub and see the runs of the repositories that they can reach."""
    client_secret: Annotated[
        SecretStr | None, Field(min_length=16), Spec("f1c05d27a4e98b36d0fa47c1e85b92630dab74e1")
    ] = None
    """A client secret of the GitHub App, from its settings page."""
    trace_url: Annotated[parsing.Url | None, Spec("https://jaeger.example.com/trace")] = None
    """The address of your trace viewer; the dashboard adds `/` and the trace id of a run, and links to the result."""
    otlp_endpoint: Annotated[
        parsing.Url | None, Spec("http://127.0.0.1:4318", name="OTEL_EXPORTER_OTLP_ENDPOINT", input=None)
    ] = None
    """The OpenTelemetry collector that gets traces, by OTLP over HTTP."""
    otlp_headers: Annotated[
        SecretStr | None, Spec("authorization=Bearer%20…", name="OTEL_EXPORTER_OTLP_HEADERS", input=None)
    ] = None
    """Headers for the collector, separated by commas."""
    database_url: Annotated[parsing.DatabaseUrl | None, Spec("postgresql://codepilot:…@db.example.com/codepilot")] = (
        None
    )
    """The database of the jobs: `sqlite:///path`, or `postgresql://user:password@host/name` so that workers on several
    machines share it; by default an SQLite file in the data directory."""
    storage_url: Annotated[parsing.StorageUrl | None, Spec("s3://my-bucket/codepilot")] = None
    """Where patches and the files of waiting jobs are stored, so that any worker can continue any job:
    `s3://bucket/prefix`, or `file:///directory` on a disk that all machines share. By default they are only in the
    data directory."""
    aws_access_key_id: Annotated[str | None, Spec("AKIA…", name="AWS_ACCESS_KEY_ID", input=None)] = None
    """The name of the key for `s3://`; without it, the role of the machine or of the pod is used."""
    aws_secret_access_key: Annotated[SecretStr | None, Spec("wJalr…", name="AWS_SECRET_ACCESS_KEY", input=None)] = None
    """The key for `s3://`."""
    aws_session_token: Annotated[SecretStr | None, Spec("IQoJ…", name="AWS_SESSION_TOKEN", input=None)] = None
    """The token of a temporary key for `s3://`."""
    aws_region: Annotated[str | None, Spec("eu-central-1", name="AWS_REGION", input=None)] = None
    """The region of the bucket."""
    aws_endpoint_url: Annotated[
        parsing.Url | None, Spec("https://s3.example.com", name="AWS_ENDPOINT_URL", input=None)
    ] = None
    """The address of an S3-compatible service, if it is not Amazon's."""

    @property
    def has_dashboard(self) -> bool:
        """Whether anyone can sign in to the dashboard."""
        return self.dashboard_token is not None or self.has_github_sign_in

    @property
    def has_github_sign_in(self) -> bool:
        """Whether people can sign in with GitHub."""
        return self.client_id is not None and self.client_secret is not None

    @property
    def jobs_url(self) -> str:
        """The job database's address, with its password."""
        own_file = f"sqlite:///{self.agent.data_dir / 'jobs.sqlite'}"
        return self.database_url.get_secret_value() if self.database_url else own_file

    @property
    def shared_database(self) -> str | None:
        """The address of a database server; None for a local file."""
        return self.jobs_url if self.jobs_url.startswith("postgresql:") else None

    @property
    def database_passwords(self) -> tuple[SecretStr, ...]:
        """Passwords in the database's address, encoded and decoded."""
        if self.shared_database is None:
            return ()
        parts = urlsplit(self.shared_database)
        query = (value for name, value in parse_qsl(parts.query) if "password" in name)
        encoded = (*([parts.password] if parts.password else []), *query)
        return tuple(SecretStr(password) for password in dict.fromkeys((*encoded, *map(unquote, encoded))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The location of further settings."""

    config: Annotated[parsing.FilePath | None, Spec("/etc/codepilot.yml", input=None)] = None
    """A YAML file with further settings, by the names below in lower case without `CODEPILOT_`; the environment takes
    precedence."""


LEAST_KEY = 32
"""The least length of a key that encrypts: what it encrypts is public, so a short one could be found by trying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInputs:
    """Inputs of the Action without a corresponding operator setting."""

    prompt: Annotated[str | None, Spec("Update dependencies that have fixes.", verbatim=True)] = None
    """The task for the agent, on any event, without a command in a comment. The text in the workflow file is the task;
    the values of most expressions are quoted to the agent."""
    command: Annotated[BareVerb | None, parsing.Lower, Spec("review")] = None
    """The command to run, with or without a prompt: `fix` (the default with a prompt), `resolve`, `review`, `describe`,
    `explain`, `plan`, `ask` or `test`."""
    recipe: Annotated[str | None, AfterValidator(parsing.recipe), Spec("weekly-update")] = None
    """The recipe of the repository to run, on any event: the name of a file in `.github/codepilot/` without `.md`, or
    `triage` or `split`. A prompt is added to its text."""
    base: Annotated[str | None, AfterValidator(parsing.branch), Spec("develop")] = None
    """The branch to start from and to open pull requests against, unless a command names another; pull requests keep
    their own base."""
    working_directory: Annotated[str | None, AfterValidator(parsing.subdirectory), Spec("services/api")] = None
    """The directory of the repository in which the agent's commands and the `setup:` commands start."""
    repo_config: Annotated[parsing.RepoFile, Spec(".github/codepilot/maintenance.yml", input="config")] = PATH
    """The path of the repository's configuration file."""
    dry_run: Annotated[bool, Spec("yes")] = False
    """Whether to publish nothing, `yes` or `no`; the comment and the summary then show what would be published."""
    approvals: Annotated[Literal["denied", "artifact"], parsing.Lower, Spec("artifact")] = "denied"
    """What to do with a call that requires approval: `denied` (the agent is told and continues) or `artifact` (the run
    is stored in an artifact and resumes when somebody answers in a comment)."""
    session: Annotated[str | None, AfterValidator(parsing.artifact), Spec("codepilot-session-12")] = None
    """The name of the artifact to resume from; by default `codepilot-session-` and the thread's number."""
    session_key: Annotated[SecretStr | None, Field(min_length=LEAST_KEY), Spec("8c5f1d0b9e7a4c63b2f0d6e1a9c84735")] = (
        None
    )
    """A secret of at least 32 characters that encrypts jobs for later workflow runs; by default derived from the model
    service's key, if that is as long."""
    output_schema: Annotated[parsing.Schema | None, Spec(".github/triage.schema.json")] = None
    """A JSON schema for the run's result, or the path of one on the base branch; see the output `structured-output`."""

    mcp: Annotated[
        str | None,
        Spec("- {name: docs, url: 'https://mcp.example.com/mcp'}", name="CODEPILOT_MCP_SERVERS", input="mcp"),
    ] = None
    """MCP servers whose tools the agent can use: a YAML list as in docs/mcp.md, written in the workflow file. `${NAME}`
    in it stands for a variable in `env:` of the job or step."""
    comment: Annotated[CommentMode | None, parsing.Lower, Spec("on-change")] = None
    """What the thread is told: `always`; `on-change`, a comment only if something was published, or the job failed or
    waits for a person; `never`, no comment and no reaction, so that nobody can be asked. The summary and the outputs
    have everything; commits, pull requests and reviews are published. By default that of the recipe, else `always`."""

    @property
    def conventions(self) -> Conventions:
        """Conventions for all jobs of the run."""
        return Conventions(
            repo_file=self.repo_config,
            working_directory=self.working_directory or "",
            base=self.base or "",
            output_schema=self.output_schema,
            comment=self.comment,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSettings:
    """Settings of `codepilot act`; GitHub's runner sets the variables.

    https://docs.github.com/en/actions/reference/workflows-and-actions/variables
    """

    agent: AgentSettings
    token: Annotated[SecretStr, Spec("${{ github.token }}", name="GITHUB_TOKEN", input="github-token")]
    """The token that reads the thread and publishes the result; without this input, the workflow's own."""
    event_path: Annotated[parsing.FilePath, Spec("/github/workflow/event.json", name="GITHUB_EVENT_PATH")]
    """The file with the event's payload."""
    event_name: Annotated[str, Spec("issue_comment", name="GITHUB_EVENT_NAME")]
    """The event's name."""
    repository: Annotated[parsing.RepoName, Spec("octocat/hello-world", name="GITHUB_REPOSITORY")]
    """The repository, `owner/name`."""
    run_id: Annotated[_Id, Spec("1658821493", name="GITHUB_RUN_ID")]
    """The workflow run."""
    run_attempt: Annotated[int, Field(ge=1, le=1_000_000), Spec("1", name="GITHUB_RUN_ATTEMPT")] = 1
    """The attempt of that run."""
    repository_id: Annotated[_Id | None, Spec("123456789", name="GITHUB_REPOSITORY_ID")] = None
    """The repository's numeric id."""
    actor: Annotated[str | None, Spec("octocat", name="GITHUB_ACTOR")] = None
    """The login of the account that GitHub names for the run; for a schedule, of the one that changed it last."""
    actor_id: Annotated[_Id | None, Spec("1234567", name="GITHUB_ACTOR_ID")] = None
    """The numeric id of that account."""
    ref: Annotated[str | None, Spec("refs/heads/main", name="GITHUB_REF")] = None
    """The ref of the run."""
    workflow: Annotated[str | None, Spec("Maintenance", name="GITHUB_WORKFLOW")] = None
    """The workflow's name."""
    workflow_ref: Annotated[
        str, Spec("octocat/hello-world/.github/workflows/fix.yml@refs/heads/main", name="GITHUB_WORKFLOW_REF")
    ] = ""
    """The workflow file and its ref."""
    workflow_sha: Annotated[str, Spec("ffac537e6cbbf934b08745a378932722df287a53", name="GITHUB_WORKFLOW_SHA")] = ""
    """The commit of the workflow file."""
    job: Annotated[str, Spec("fix", name="GITHUB_JOB")] = ""
    """The job's id in the workflow file."""
    action: Annotated[str, Spec("__octocat_codepilot", name="GITHUB_ACTION")] = ""
    """The step's id, or the name that GitHub gives it."""
    action_path: Annotated[str, Spec("/work/_actions/octocat/codepilot/v1", name="GITHUB_ACTION_PATH")] = ""
    """The directory of this action."""
    workspace: Annotated[str, Spec("/work/hello-world/hello-world", name="GITHUB_WORKSPACE")] = ""
    """The directory of the workflow's checkout."""
    api_url: Annotated[parsing.Url, Spec(_API, name="GITHUB_API_URL")] = _API
    """The address of GitHub's REST API."""
    server_url: Annotated[ServerUrl, Spec(_GITHUB_COM, name="GITHUB_SERVER_URL")] = _GITHUB_COM
    """GitHub's address for browsers and git."""
    output_path: Annotated[parsing.FilePath | None, Spec("/github/output", name="GITHUB_OUTPUT")] = None
    """The file that takes the step's outputs."""
    summary_path: Annotated[parsing.FilePath | None, Spec("/github/summary", name="GITHUB_STEP_SUMMARY")] = None
    """The file that takes the step's summary."""
    inputs: ActionInputs = field(default_factory=ActionInputs)

    @property
    def lasting_secret(self) -> SecretStr | None:
        """A secret that later workflow runs also have, if any, and that nobody can guess from what it encrypts."""
        return self.inputs.session_key or lasting_key(self.agent)

    @property
    def run_page(self) -> str:
        """The URL of the workflow run."""
        return f"{self.server_url.rstrip('/')}/{self.repository}/actions/runs/{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A service's settings, for `codepilot doctor`.

    Attributes:
        problems: one sentence a setting.
        settings: defaults, empty or 0 where missing or invalid.
        wrong: missing or invalid fields.
    """

    problems: tuple[str, ...]
    settings: Settings
    invalid_fields: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSurvey:
    """A step's settings, for reporting problems only."""

    problems: tuple[InputProblem, ...]
    settings: ActionSettings


def lasting_key(agent: AgentSettings) -> SecretStr | None:
    """Return the model service's key if it is long enough to encrypt with; keys of local servers often are not."""
    key = agent.api_key
    return key if key is not None and len(key.get_secret_value()) >= LEAST_KEY else None


def api_of(server_url: str) -> str:
    """Return the REST API's address of a GitHub server."""
    if server_url == _GITHUB_COM:
        return _API
    scheme, _, host = server_url.partition("://")
    return f"{scheme}://api.{host}" if host.endswith(_CLOUD_DOMAIN) else f"{server_url}/api/v3"


def server_of(api_url: str) -> str:
    """Return the GitHub server's address for a REST API's; inverse of `api_of`."""
    if api_url == _API:
        return _GITHUB_COM
    return api_url.replace("://api.", "://", 1) if api_url.endswith(_CLOUD_DOMAIN) else api_url.removesuffix("/api/v3")


ServerUrl = Annotated[parsing.Url, AfterValidator(server_of)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """A setting, built by `settings_of`.

    Attributes:
        default: as text; None if required.
        input_name: empty for no input.
        secret: whether the value, not a file that it names, is secret.
    """

    model: type
    field: str
    type: Any
    name: str
    example: str
    default: str | None
    input_name: str
    secret: bool
    separator: str
    verbatim: bool

    @property
    def key(self) -> str:
        """Key in the settings file."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def help_text(self) -> str:
        """Help text."""
        return _docstrings(self.model)[self.field]

    def parse(self, text: str) -> Any:  # noqa: ANN401 - each setting has its own type
        """Parse text into a value.

        Raises:
            ValueError: invalid; never contains a secret.
        """
        adapter = TypeAdapter[Any](self.type)
        try:
            return adapter.validate_python(text)
        except ValidationError as error:
            raise ValueError(_error_message(error.errors(include_url=False)[0], adapter)) from None


@cache
def settings_of(model: type) -> Mapping[str, Setting]:
    """Return the settings of a model by field."""
    settings: dict[str, Setting] = {}
    hints = get_type_hints(model, include_extras=True)
    for model_field in fields(model):
        hint = hints[model_field.name]
        for marker in (item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Spec)):
            name = marker.name or f"{PREFIX}{model_field.name.upper()}"
            input_name = "" if name.startswith("GITHUB_") else name.removeprefix(PREFIX).lower().replace("_", "-")
            [base, *_] = get_args(hint)
            # A member of a union may be annotated with its parser.
            types = {getattr(item, "__origin__", item) for item in (base, *get_args(base))}
            settings[model_field.name] = Setting(
                model=model,
                field=model_field.name,
                type=hint,
                name=name,
                example=marker.example,
                default=_default_text(model_field.default, model_field.default_factory),
                input_name="" if marker.input is None else marker.input or input_name,
                secret=SecretStr in types and not name.endswith("_FILE"),
                separator=marker.separator,
                verbatim=marker.verbatim,
            )
    return settings


@cache
def _docstrings(model: type) -> Mapping[str, str]:
    """Read the strings below fields from the source; they are not kept at runtime."""
    return {
        ast.unparse(field.target): " ".join(str(ast.literal_eval(docstring.value)).split())
        for node in ast.parse(inspect.getsource(model)).body
        if isinstance(node, ast.ClassDef)
        for field, docstring in pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(docstring, ast.Expr)
    }


def _default_text(default: object, factory: object) -> str | None:
    if default is MISSING:
        return None if factory is MISSING else ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple | frozenset):
        return ",".join(default)
    return "" if default is None else str(default)


def _error_message(error: ErrorDetails, adapter: TypeAdapter[Any]) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        choices = context["expected"].replace(" or ", ", ").replace("'", "")
        return f"must be one of {choices}, not {value!r}"
    if kind == "bool_parsing":
        return f"must be yes or no, not {value!r}"
    if kind in {"string_too_long", "too_short"}:
        bound = f"at most {context['max_length']:,}" if "max_length" in context else f"at least {context['min_length']}"
        return f"must have {bound} characters, but has {len(value):,}"
    if not kind.startswith(("int_", "greater_", "less_")):
        return error["msg"]
    schema = adapter.json_schema()
    integer = schema.get("anyOf", [schema])[0]
    return f"must be a whole number from {integer['minimum']} to {integer['maximum']}, not {value!r}"


CONFIG: Setting = settings_of(Sources)["config"]
SERVICE: Mapping[str, Setting] = settings_of(Settings)
AGENT: Mapping[str, Setting] = settings_of(AgentSettings)
INPUTS: Mapping[str, Setting] = settings_of(ActionInputs)
"""Inputs of the Action without a corresponding operator setting."""
RUNNER: Mapping[str, Setting] = settings_of(ActionSettings)

SETTINGS: tuple[Setting, ...] = (CONFIG, *SERVICE.values(), *AGENT.values())
"""Operator settings in the order of the documentation."""

PROVIDER_KEYS: Mapping[str, Setting] = {
    name: AGENT[variable.lower()] for name in MODELS if (variable := CATALOG[name].key_variable)
}
"""Key settings by provider."""

SECRETS: tuple[Setting, ...] = tuple(each for each in (*SETTINGS, *INPUTS.values(), *RUNNER.values()) if each.secret)
"""Settings with secret values."""


def render_settings_table() -> str:
    """Render the operator settings as a Markdown table."""
    rows = ["| variable | meaning | default | example |", "|---|---|---|---|"]
    for setting in SETTINGS:
        default = "must be set" if setting.default is None else setting.default and f"`{setting.default}`"
        rows.append(f"| `{setting.name}` | {setting.help_text} | {default} | `{setting.example}` |")
    return "\n".join([*rows, ""])
