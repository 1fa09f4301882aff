"""The settings of the agent, the same on a server and in a workflow's step. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from agent_runtime import CATALOG, ContainerSettings, Network, RunLimits, SandboxLimits
from bot.domain.access import Bounds, Caps, Level
from bot.domain.commands import DEFAULT_TRIGGER
from bot.domain.listening import TrustedBots
from bot.gate.repo_keys import Label
from bot.settings import parsing
from bot.settings.setting import Written

Provider = Literal["anthropic", "openai", "alibaba", "bedrock", "vertex", "azure", "llm", "scripted"]

_SERVICES = ("anthropic", "openai", "alibaba", "bedrock", "vertex", "llm")
MODELS: Mapping[str, str] = {name: CATALOG[name].default_model for name in _SERVICES}
"""The model of each service when the operator names none; `llm` has a default of its own."""

_NO_NETWORK = Network()
_TRIGGERS = (DEFAULT_TRIGGER,)


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
