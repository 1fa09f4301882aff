"""The settings of the agent, the same on a server and in a workflow's step. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator, SecretStr

from agent_runtime import CATALOG, ContainerSettings, Network, RunLimits, SandboxLimits
from bot.domain.access import Bounds, Caps, Level
from bot.domain.commands import DEFAULT_TRIGGER, ReviewEvent
from bot.domain.listening import TrustedBots
from bot.settings import parsing
from bot.settings.parsing import FilePath, Lower, NetworkWords, Url
from bot.settings.setting import Written

Provider = Literal["anthropic", "openai", "alibaba", "llm", "scripted"]
SandboxChoice = Literal["auto", "bubblewrap", "docker"]
Pictures = Literal["auto", "on", "off"]

MODELS: Mapping[str, str] = {name: CATALOG[name].default_model for name in ("anthropic", "openai", "alibaba", "llm")}
"""The model of each service when the operator names none; `llm` has a default of its own."""

_NO_NETWORK = Network()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How the agent works; the docstring below each field is what users read."""

    provider: Annotated[Provider, Lower, Written("anthropic")] = "anthropic"
    """The model service: `anthropic`, `openai` (or anything that speaks its protocol), `alibaba`, `llm` (as the package
    of that name is set up), `scripted`."""
    model: Annotated[str, Written("claude-sonnet-5-5")] = ""
    """The model; when not set, `claude-sonnet-5-5`, `gpt-6.2-sol`, `qwen3.7-max`, or what `llm` is set to. For
    `scripted`: the path of the script, which must be set."""
    base_url: Annotated[Url | None, Written("https://models.example.com/v1")] = None
    """The model service's address, when it is not the provider's own."""
    sandbox: Annotated[SandboxChoice, Lower, Written("bubblewrap")] = "auto"
    """Where commands run: `bubblewrap`, `docker` (a container a job), or `auto` for the first that works."""
    docker_image: Annotated[str | None, Written("docker.io/library/python@sha256:…")] = None
    """The image for the sandbox `docker`, which must be on this machine; name it by its digest."""
    docker_program: Annotated[str, Written("podman")] = "docker"
    """The engine's command line for the sandbox `docker`."""
    allow_root: Annotated[bool, Written("yes")] = False
    """Whether the bot works as root, `yes` or `no`; where it must not, it refuses to start as root."""
    toolchains: Annotated[
        tuple[Path, ...], PlainValidator(parsing.directories), Written("/opt/python3.13:/opt/node", between=":")
    ] = ()
    """Directories outside the system's own that the sandbox shows read-only, with colons between; the `bin` of each
    goes on the `PATH`. A virtual environment brings the Python that it was made from."""
    network: Annotated[NetworkWords, Written("registries,internal-index.example.com:8443")] = _NO_NETWORK
    """What commands may reach, over TLS only: `off`, or `registries` (where packages are fetched from) and hosts, with
    commas between."""
    sandbox_limits: Annotated[
        SandboxLimits, PlainValidator(parsing.sandbox_limits), Written("memory=4GiB,processes=256")
    ] = field(default_factory=SandboxLimits)
    """What the commands of one job may use together, where it is to differ from memory=8GiB, processes=512,
    cpu-seconds=7200, disk=10GiB, files=150000; and what they must leave: free-disk=1GiB."""
    setup_network: Annotated[NetworkWords | None, Written("registries")] = None
    """What the `setup:` commands of repositories may reach, written as above; when not set, what `CODEPILOT_NETWORK`
    says."""
    setup_seconds: Annotated[int, Field(ge=1, le=86_400), Written("600")] = 600
    """Seconds the `setup:` commands of a repository may take together, before each run."""
    setup_cache_gb: Annotated[int, Field(ge=0, le=10_000), Written("10")] = 10
    """Gigabytes kept of what `setup:` commands made, for later jobs; 0 keeps nothing."""
    fetch_mb: Annotated[int, Field(ge=1, le=1_000_000), Written("4096")] = 1024
    """Megabytes that one fetch of a repository may bring."""
    pull_fetch_mb: Annotated[int, Field(ge=1, le=1_000_000), Written("512")] = 256
    """Megabytes that a pull request's commits may bring beyond what is there; anybody may open one."""
    mirrors_gb: Annotated[int, Field(ge=1, le=100_000), Written("100")] = 20
    """Gigabytes that all mirrors of repositories may have together; those used longest ago go first and are fetched
    again when they are needed."""
    max_steps: Annotated[int, Field(ge=1, le=1000), Written("30")] = 30
    """Steps a run may take."""
    max_cost_usd: Annotated[float | None, PlainValidator(parsing.dollars), Written("5")] = 5.0
    """US dollars a run may spend, or `none` for no bound."""
    max_seconds: Annotated[int, Field(ge=10, le=86_400), Written("1800")] = 1800
    """Seconds a run may take."""
    model_patience: Annotated[int, Field(ge=0, le=604_800), Written("21600")] = 21_600
    """Seconds for which a job waits for a model service that is down, before it fails and its work is kept; in a
    workflow's run 900 at most."""
    model_silence: Annotated[int | None, Field(ge=1, le=7_200), Written("900")] = None
    """Seconds without a byte from the model service after which a reply counts as broken off; when not set, 900 for a
    model that may think and 300 for others."""
    data_dir: Annotated[FilePath, Written("/var/lib/codepilot", input=None)] = Path("codepilot-data")
    """Where the queue, the mirrors and the workspaces live; made when it is missing."""
    triggers: Annotated[
        tuple[str, ...],
        PlainValidator(parsing.triggers),
        Written(f"{DEFAULT_TRIGGER},@codepilot", name="CODEPILOT_TRIGGER"),
    ] = (DEFAULT_TRIGGER,)
    """The word that starts a command; or several with commas between, of which the bot uses the first."""
    start_label: Annotated[str, AfterValidator(parsing.label), Written("codepilot")] = "codepilot"
    """The label that starts work, where a repository does not name another."""
    level: Annotated[Level, Lower, Written("ask")] = "ask"
    """What a run may do unasked, where neither repository nor label says otherwise: `ask` (write files, run commands;
    where these can reach a network, only those of the list), `auto` (anything in the sandbox), or `read-only`, which
    nothing raises."""
    allow_commands: Annotated[
        tuple[str, ...],
        PlainValidator(parsing.command_patterns),
        Written("npm run e2e *; ./scripts/check", between=";"),
    ] = ()
    """Patterns of commands that need no approval at the level `ask` with a network, beside the built-in ones; with `;`
    or line breaks between."""
    models: Annotated[tuple[str, ...], PlainValidator(parsing.names), Written("claude-haiku-4-5,claude-opus-5")] = ()
    """Further models that a command or a repository may ask for, with commas between."""
    caps: Annotated[Caps, PlainValidator(parsing.caps), Written("user=40,installation=500")] = field(
        default_factory=Caps
    )
    """The most pieces of work that are begun in an hour, where it is to differ from thread=10, user=20, repository=50,
    installation=200; and in a thread without a person asking: unattended=3."""
    pictures: Annotated[Pictures, Lower, Written("off")] = "auto"
    """Whether the model is shown the pictures that people attached to the thread: `auto` where it is known to see, `on`
    always, `off` never."""
    approval_hours: Annotated[int, Field(ge=1, le=720), Written("72")] = 72
    """Hours that a run waits for an approval or an answer, before it ends."""
    keep_days: Annotated[int, Field(ge=1, le=3650), Written("30")] = 30
    """Days for which ended jobs and patches that were not published are kept."""
    review_on: Annotated[frozenset[ReviewEvent], PlainValidator(parsing.review_events), Written("opened,push")] = (
        frozenset()
    )
    """When a pull request of somebody with write access is reviewed without a command, where its repository does not
    say: `opened`, `ready` (a draft became ready), `push`, with commas between."""
    allowed_users: Annotated[frozenset[str], PlainValidator(parsing.logins), Written("mona,octocat")] = frozenset()
    """Logins of the people who may command, with commas between, where not everybody with write access is to. It gives
    nobody more than GitHub does."""
    trusted_bots: Annotated[TrustedBots, PlainValidator(parsing.trusted_bots), Written("dependabot[bot],29139614")] = (
        field(default_factory=TrustedBots)
    )
    """Bots that may command, with commas between: names of Apps' accounts, which end in `[bot]`, or numeric user ids;
    all others are ignored."""
    anthropic_api_key: Annotated[SecretStr | None, Written("sk-ant-…", name="ANTHROPIC_API_KEY")] = None
    """The key of the model service; must be set for the provider `anthropic`."""
    openai_api_key: Annotated[SecretStr | None, Written("sk-…", name="OPENAI_API_KEY")] = None
    """The key of the model service; must be set for the provider `openai`."""
    dashscope_api_key: Annotated[SecretStr | None, Written("sk-…", name="DASHSCOPE_API_KEY")] = None
    """The key of the model service; must be set for the provider `alibaba`."""
    outage_seconds: float = RunLimits().outage_seconds
    """No setting: the most seconds for which a run itself waits for the model service. After that its job waits."""

    @property
    def trigger(self) -> str:
        """The word with which the bot itself shows commands."""
        return self.triggers[0]

    @property
    def api_key(self) -> SecretStr | None:
        """The key of the model service that is used; None where it needs none, or there is none."""
        variable = CATALOG[self.provider].key_variable
        key: SecretStr | None = getattr(self, variable.lower()) if variable else None
        return key

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
    )
