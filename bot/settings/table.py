"""The table of settings: what each is called, means, looks like and becomes. Data only; `load.py` reads by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import SecretStr

from agent_runtime import CATALOG
from bot.settings import parsing
from bot.settings.mirror_table import MIRRORS
from bot.settings.permissions_table import GATE
from bot.settings.setting import Setting

Provider = Literal["anthropic", "openai", "alibaba", "llm", "scripted"]
SandboxChoice = Literal["auto", "bubblewrap", "docker"]
Pictures = Literal["auto", "on", "off"]


_SERVICES = ("anthropic", "openai", "alibaba", "llm")
MODELS: Mapping[str, str] = {name: CATALOG[name].default_model for name in _SERVICES}
"""What each model service is asked for when the operator names nothing; `llm` has a default of its own."""

AGENT: dict[str, Setting] = {
    "provider": Setting(
        name="CODEPILOT_PROVIDER",
        meaning="The model service: `anthropic`, `openai` (or anything that speaks its protocol), `alibaba`, `llm` (as "
        "the package of that name is set up), `scripted`.",
        example="anthropic",
        parse=parsing.one_of(*_SERVICES, "scripted"),
        default="anthropic",
    ),
    "model": Setting(
        name="CODEPILOT_MODEL",
        meaning=f"The model; when not set, `{MODELS['anthropic']}`, `{MODELS['openai']}`, `{MODELS['alibaba']}`, or "
        "what `llm` is set to. For `scripted`: the path of the script, which must be set.",
        example=MODELS["anthropic"],
        parse=str,
        default="",
    ),
    "base_url": Setting(
        name="CODEPILOT_BASE_URL",
        meaning="The model service's address, when it is not the provider's own.",
        example="https://models.example.com/v1",
        parse=parsing.url,
        default="",
    ),
    "sandbox": Setting(
        name="CODEPILOT_SANDBOX",
        meaning="Where commands run: `bubblewrap`, `docker` (a container a job), or `auto` for the first that works.",
        example="bubblewrap",
        parse=parsing.one_of("auto", "bubblewrap", "docker"),
        default="auto",
    ),
    "docker_image": Setting(
        name="CODEPILOT_DOCKER_IMAGE",
        meaning="The image for the sandbox `docker`, which must be on this machine; name it by its digest.",
        example="docker.io/library/python@sha256:…",
        parse=str,
        default="",
    ),
    "docker_program": Setting(
        name="CODEPILOT_DOCKER_PROGRAM",
        meaning="The engine's command line for the sandbox `docker`.",
        example="podman",
        parse=str,
        default="docker",
    ),
    "allow_root": Setting(
        name="CODEPILOT_ALLOW_ROOT",
        meaning="Whether the bot works as root, `yes` or `no`; where it must not, it refuses to start as root.",
        example="yes",
        parse=parsing.yes_or_no,
        default="no",
    ),
    "toolchains": Setting(
        name="CODEPILOT_TOOLCHAINS",
        meaning="Directories outside the system's own that the sandbox shows read-only, with colons between; "
        "the `bin` of each goes on the `PATH`. A virtual environment brings the Python that it was made from.",
        example="/opt/python3.13:/opt/node",
        parse=parsing.directories,
        default="",
        between=":",
    ),
    "network": Setting(
        name="CODEPILOT_NETWORK",
        meaning="What commands may reach, over TLS only: `off`, or `registries` (where packages are fetched from) and "
        "hosts, with commas between.",
        example="registries,internal-index.example.com:8443",
        parse=parsing.network,
        default="off",
    ),
    "sandbox_limits": Setting(
        name="CODEPILOT_SANDBOX_LIMITS",
        meaning="What the commands of one job may use together, where it is to differ from memory=8GiB, processes=512, "
        "cpu-seconds=7200, disk=10GiB, files=150000; and what they must leave: free-disk=1GiB.",
        example="memory=4GiB,processes=256",
        parse=parsing.sandbox_limits,
        default="",
    ),
    "setup_network": Setting(
        name="CODEPILOT_SETUP_NETWORK",
        meaning="What the `setup:` commands of repositories may reach, written as above; when not set, what "
        "`CODEPILOT_NETWORK` says.",
        example="registries",
        parse=parsing.network,
        default="",
    ),
    "setup_seconds": Setting(
        name="CODEPILOT_SETUP_SECONDS",
        meaning="Seconds the `setup:` commands of a repository may take together, before each run.",
        example="600",
        parse=parsing.whole(1, 86_400),
        default="600",
    ),
    "setup_cache_gb": Setting(
        name="CODEPILOT_SETUP_CACHE_GB",
        meaning="Gigabytes kept of what `setup:` commands made, for later jobs; 0 keeps nothing.",
        example="10",
        parse=parsing.whole(0, 10_000),
        default="10",
    ),
    **MIRRORS,
    "max_steps": Setting(
        name="CODEPILOT_MAX_STEPS",
        meaning="Steps a run may take.",
        example="30",
        parse=parsing.whole(1, 1000),
        default="30",
    ),
    "max_cost_usd": Setting(
        name="CODEPILOT_MAX_COST_USD",
        meaning="US dollars a run may spend, or `none` for no bound.",
        example="5",
        parse=parsing.dollars,
        default="5",
    ),
    "max_seconds": Setting(
        name="CODEPILOT_MAX_SECONDS",
        meaning="Seconds a run may take.",
        example="1800",
        parse=parsing.whole(10, 86_400),
        default="1800",
    ),
    "model_patience": Setting(
        name="CODEPILOT_MODEL_PATIENCE",
        meaning="Seconds for which a job waits for a model service that is down, before it fails and its work is kept; "
        "in a workflow's run 900 at most.",
        example="21600",
        parse=parsing.whole(0, 604_800),
        default="21600",
    ),
    "model_silence": Setting(
        name="CODEPILOT_MODEL_SILENCE",
        meaning="Seconds without a byte from the model service after which a reply counts as broken off; when not set, "
        "900 for a model that may think and 300 for others.",
        example="900",
        parse=parsing.whole(1, 7_200),
        default="",
    ),
    "data_dir": Setting(
        name="CODEPILOT_DATA_DIR",
        meaning="Where the queue, the mirrors and the workspaces live; made when it is missing.",
        example="/var/lib/codepilot",
        parse=parsing.path,
        default="codepilot-data",
    ),
    **GATE,
}

PROVIDER_KEYS: dict[str, Setting] = {
    provider: Setting(
        name=name,
        meaning=f"The key of the model service; must be set for the provider `{provider}`.",
        example="sk-ant-…" if provider == "anthropic" else "sk-…",
        parse=SecretStr,
        default="",
    )
    for provider in _SERVICES
    if (name := CATALOG[provider].key_variable) is not None
}

CONFIG = Setting(
    name="CODEPILOT_CONFIG",
    meaning="A YAML file with further settings, by the names below in lower case without `CODEPILOT_`; the environment "
    "goes before it.",
    example="/etc/codepilot.yml",
    parse=parsing.path,
    default="",
)

SERVICE: dict[str, Setting] = {
    "webhook_secret": Setting(
        name="CODEPILOT_WEBHOOK_SECRET",
        meaning="The secret that is also set in the GitHub App's webhook settings; at least 16 characters.",
        example="$(openssl rand -hex 32)",
        parse=parsing.secret,
    ),
    "app_id": Setting(
        name="CODEPILOT_APP_ID",
        meaning="The GitHub App's id, from its settings page.",
        example="123456",
        parse=parsing.whole(1, 2**63 - 1),
    ),
    "private_key": Setting(
        name="CODEPILOT_PRIVATE_KEY_FILE",
        meaning="The file with the GitHub App's private key, which other users must not be able to read.",
        example="/etc/codepilot/app.pem",
        parse=parsing.private_key_in,
    ),
    "api_url": Setting(
        name="CODEPILOT_API_URL",
        meaning="GitHub's REST address.",
        example="https://github.example.com/api/v3",
        parse=parsing.url,
        default="https://api.github.com",
    ),
    "server_url": Setting(
        name="CODEPILOT_SERVER_URL",
        meaning="GitHub's address for people and git.",
        example="https://github.example.com",
        parse=parsing.url,
        default="https://github.com",
    ),
    "jobs": Setting(
        name="CODEPILOT_JOBS",
        meaning="Jobs of different threads that one process works on side by side.",
        example="4",
        parse=parsing.whole(1, 64),
        default="2",
    ),
    "host": Setting(
        name="CODEPILOT_HOST",
        meaning="The address to listen on; put a proxy that speaks TLS before it.",
        example="0.0.0.0",  # noqa: S104 - shown as an example; the default is loopback
        parse=str,
        default="127.0.0.1",
    ),
    "port": Setting(
        name="CODEPILOT_PORT",
        meaning="The port to listen on; 0 takes a free one.",
        example="8080",
        parse=parsing.whole(0, 65_535),
        default="8080",
    ),
}

SETTINGS: tuple[Setting, ...] = (CONFIG, *SERVICE.values(), *AGENT.values(), *PROVIDER_KEYS.values())
"""What an operator may set, in the order of the documentation."""


def settings_table() -> str:
    """Every operator setting as a Markdown table, for the documentation."""
    rows = [f"| `{s.name}` | {s.meaning} | {_default(s)} | `{s.example.strip('`')}` |" for s in SETTINGS]
    return "\n".join(["| variable | meaning | default | example |", "|---|---|---|---|", *rows, ""])


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "must be set"
    return f"`{setting.default}`" if setting.default else ""
