from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_runtime import ContainerSettings, Endpoint, Network, RunLimits, SandboxLimits
from bot.domain.access import Caps, TrustedBots
from bot.domain.errors import ConfigError, OutsideActionsError
from bot.domain.spend import SpendCaps
from bot.server.build import redactor_for
from bot.settings.load import load, load_action
from bot.settings.models import AGENT, MODELS, SETTINGS, Setting, bounds_of, render_settings_table
from tests.tls_hosts import authority

PEM = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "app.pem"
    path.write_text(PEM)
    path.chmod(0o600)
    return path


@pytest.fixture
def environ(key_file: Path) -> dict[str, str]:
    return {
        "CODEPILOT_WEBHOOK_SECRET": "s3cret-and-long-enough",
        "CODEPILOT_APP_ID": "123",
        "CODEPILOT_PRIVATE_KEY_FILE": str(key_file),
        "ANTHROPIC_API_KEY": "sk-ant-1",
        "HOME": "/root",
    }


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    return {
        "GITHUB_TOKEN": "ghs_token",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_EVENT_NAME": "issue_comment",
        "GITHUB_REPOSITORY": "octo/calc",
        "GITHUB_RUN_ID": "41",
        "ANTHROPIC_API_KEY": "sk-ant-1",
        "RUNNER_TEMP": "/runner/temp",
    }


def _problems(read: Callable[[dict[str, str]], object], environ: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as error:
        read(environ)
    return error.value.problems


def test_the_smallest_settings_get_their_defaults(environ: dict[str, str]) -> None:
    settings = load(environ)
    assert (settings.api_url, settings.server_url) == ("https://api.github.com", "https://github.com")
    assert (settings.host, settings.port, settings.app_id) == ("127.0.0.1", 8080, 123)
    assert settings.private_key.get_secret_value() == PEM
    agent = settings.agent
    assert (agent.provider, agent.model, agent.base_url) == ("anthropic", "claude-sonnet-5-5", None)
    assert (agent.sandbox, agent.trigger, agent.trusted_bots) == ("auto", "/codepilot", TrustedBots())
    assert agent.limits == RunLimits(max_steps=30, max_cost_usd=5, max_seconds=1800, offline_seconds=300)
    assert agent.data_dir == Path("codepilot-data")
    assert not agent.network


def test_every_setting_can_be_set(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "codepilot.yml").write_text("jobs: 3\n")
    environ |= {
        "CODEPILOT_API_URL": "https://ghe.example.com/api/v3/",
        "CODEPILOT_SERVER_URL": "http://127.0.0.1:3000",
        "CODEPILOT_HOST": "::1",
        "CODEPILOT_PORT": "0",
        "CODEPILOT_LOG_FORMAT": "JSON",
        "CODEPILOT_METRICS_PORT": "9090",
        "CODEPILOT_METRICS_TOKEN": "a-token-of-sixteen",
        "CODEPILOT_DASHBOARD_TOKEN": "another-token-of-sixteen",
        "CODEPILOT_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/8,::1",
        "CODEPILOT_CLIENT_ID": "Iv23li0123456789",
        "CODEPILOT_CLIENT_SECRET": "a-client-secret-of-the-app",
        "CODEPILOT_TRACE_URL": "https://traces.example.com/trace",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc",
        "CODEPILOT_STORAGE_URL": "s3://bucket/prefix",
        "CODEPILOT_DATABASE_URL": "postgresql://db.example.com/jobs",
        "AWS_ACCESS_KEY_ID": "AKIA1",
        "AWS_SECRET_ACCESS_KEY": "a-secret-key",
        "AWS_SESSION_TOKEN": "a-token",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000/",
        "CODEPILOT_PROVIDER": "OpenAI",
        "CODEPILOT_MODEL": "qwen-plus",
        "CODEPILOT_BASE_URL": "https://models.example.com/v1",
        "OPENAI_API_KEY": "sk-1",
        "CODEPILOT_API_KEY": "sk-2",
        "CODEPILOT_CA_FILE": str(authority(tmp_path, "ghe.example.com").pem),
        "CODEPILOT_SANDBOX": "bubblewrap",
        "CODEPILOT_TRIGGER": "@fixer, /codepilot",
        "CODEPILOT_MAX_STEPS": "7",
        "CODEPILOT_MAX_COST_USD": "none",
        "CODEPILOT_MAX_SECONDS": "60",
        "CODEPILOT_MAX_CANDIDATES": "5",
        "CODEPILOT_TRUSTED_BOTS": "1, Renovate[bot]",
        "CODEPILOT_ALLOWED_USERS": "Mona, octo-cat",
        "CODEPILOT_REVIEW_ON": "Opened, push",
        "CODEPILOT_ACTIONS": "Comment, add-labels",
        "CODEPILOT_DATA_DIR": "/var/lib/codepilot",
        "CODEPILOT_TOOLCHAINS": "/opt/node:/opt/python",
        "CODEPILOT_NETWORK": "registries, index.example.com:8443",
        "CODEPILOT_SETUP_NETWORK": "off",
        "CODEPILOT_SETUP_SECONDS": "90",
        "CODEPILOT_SETUP_CACHE_GB": "0",
        "CODEPILOT_JOBS": "9",
        "CODEPILOT_JOBS_PER_REPOSITORY": "3",
        "CODEPILOT_DRAIN_SECONDS": "45",
        "CODEPILOT_MENTIONS": "no",
        "CODEPILOT_SCHEDULES": "no",
        "CODEPILOT_DOCKER_IMAGE": "python@sha256:1",
        "CODEPILOT_DOCKER_PROGRAM": "podman",
        "CODEPILOT_ALLOW_ROOT": "Yes",
        "CODEPILOT_CONFIG": str(tmp_path / "codepilot.yml"),
        "DASHSCOPE_API_KEY": "sk-3",
        "CODEPILOT_LEVEL": "Auto",
        "CODEPILOT_START_LABEL": "bot, go",
        "CODEPILOT_ALLOW_COMMANDS": "npm run e2e *;./scripts/check\nmake e2e",
        "CODEPILOT_MODELS": "qwen-max, qwen-turbo",
        "CODEPILOT_CAPS": "user=5, unattended=0",
        "CODEPILOT_SPEND_CAPS": "repository-day=20, person-month=0.5",
        "CODEPILOT_APPROVAL_HOURS": "2",
        "CODEPILOT_KEEP_DAYS": "7",
        "CODEPILOT_BRANCH_PREFIX": "bots/codepilot-",
        "CODEPILOT_PICTURES": "off",
        "CODEPILOT_FETCH_MB": "4096",
        "CODEPILOT_PULL_FETCH_MB": "32",
        "CODEPILOT_MIRRORS_GB": "5",
        "CODEPILOT_PATCHES_GB": "6",
        "CODEPILOT_CACHE_DAYS": "8",
        "CODEPILOT_MODEL_PATIENCE": "120",
        "CODEPILOT_MODEL_SILENCE": "1200",
        "CODEPILOT_MODEL_TRANSPORT": "Tools",
        "CODEPILOT_MCP": "/etc/codepilot/mcp.yaml",
        "CODEPILOT_SANDBOX_LIMITS": "memory=4GiB, processes=99,cpu-seconds=60,disk=50MiB,files=7,free-disk=2GiB",
    }
    assert set(environ) >= {setting.name for setting in SETTINGS}, "a new setting belongs here"
    settings = load(environ)
    assert (settings.api_url, settings.server_url) == ("https://ghe.example.com/api/v3", "http://127.0.0.1:3000")
    assert (settings.host, settings.port, settings.jobs, settings.drain_seconds) == ("::1", 0, 9, 45)
    assert settings.jobs_per_repository == 3
    assert [str(each) for each in settings.trusted_proxies] == ["127.0.0.1/32", "10.0.0.0/8", "::1/128"]
    assert not settings.mentions
    assert not settings.schedules
    assert (settings.log_format, settings.metrics_port, settings.otlp_endpoint) == (
        "json",
        9090,
        "http://127.0.0.1:4318",
    )
    assert (settings.storage_url, settings.aws_region) == ("s3://bucket/prefix", "eu-central-1")
    assert settings.shared_database == "postgresql://db.example.com/jobs"
    assert (settings.aws_access_key_id, settings.aws_endpoint_url) == ("AKIA1", "http://127.0.0.1:9000")
    agent = settings.agent
    assert (agent.provider, agent.model, agent.base_url) == ("openai", "qwen-plus", "https://models.example.com/v1")
    assert agent.api_key is not None
    assert agent.api_key.get_secret_value() == "sk-2"
    assert (agent.sandbox, agent.trigger) == ("bubblewrap", "@fixer")
    assert agent.trusted_bots == TrustedBots(ids=frozenset({1}), logins=frozenset({"renovate[bot]"}))
    assert (agent.allowed_users, agent.review_on) == (frozenset({"mona", "octo-cat"}), frozenset({"opened", "push"}))
    assert (agent.actions, bounds_of(agent).actions) == (frozenset({"comment", "add-labels"}),) * 2
    assert agent.limits == RunLimits(
        max_steps=7, max_cost_usd=None, max_seconds=60, outage_seconds=120, offline_seconds=120
    )
    assert (agent.model_patience, agent.model_silence, agent.max_candidates) == (120, 1200, 5)
    assert agent.model_transport == "tools"
    assert (agent.triggers, agent.start_label, agent.level) == (("@fixer", "/codepilot"), "bot, go", "auto")
    assert agent.allow_commands == ("npm run e2e *", "./scripts/check", "make e2e")
    assert agent.models == ("qwen-max", "qwen-turbo")
    assert agent.caps == Caps(user=5, unattended=0)
    assert agent.spend_caps == SpendCaps(repository_day=20.0, person_month=0.5)
    assert (agent.approval_hours, agent.keep_days, agent.pictures) == (2, 7, "off")
    assert agent.mcp == Path("/etc/codepilot/mcp.yaml")
    assert agent.toolchains == (Path("/opt/node"), Path("/opt/python"))
    assert agent.container == ContainerSettings(image="python@sha256:1", program="podman")
    assert agent.allow_root
    assert agent.sandbox_limits == SandboxLimits(
        memory_bytes=4 << 30, processes=99, cpu_seconds=60, disk_bytes=50 << 20, files=7, free_bytes=2 << 30
    )
    assert str(agent.network) == "registries, index.example.com:8443"
    assert (agent.setup_network, agent.setup_seconds, agent.setup_cache_gb) == (Network(), 90, 0)
    assert (agent.fetch_mb, agent.pull_fetch_mb, agent.mirrors_gb, agent.cache_days) == (4096, 32, 5, 8)
    assert agent.patches_gb == 6
    assert agent.branch_prefix == "bots/codepilot-"


def test_every_missing_and_wrong_setting_is_named_at_once_with_an_example() -> None:
    problems = _problems(load, {"CODEPILOT_PORT": "http", "CODEPILOT_MAX_STEP": "3", "CODEPILOT_SANDBOX": "none"})
    names = ["WEBHOOK_SECRET", "APP_ID", "PRIVATE_KEY_FILE", "PORT", "SANDBOX", "ANTHROPIC_API_KEY", "MAX_STEP "]
    for name, problem in zip(names, problems, strict=True):
        assert name in problem
    assert all("Example: " in problem for problem in problems[:-1])
    assert problems[-1].startswith("CODEPILOT_MAX_STEP ")
    assert problems[-1].endswith(" CODEPILOT_MAX_STEPS?")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CODEPILOT_WEBHOOK_SECRET", "short", "at least 16"),
        ("CODEPILOT_APP_ID", "-1", "whole number"),
        ("CODEPILOT_APP_ID", "1" * 30, "whole number"),
        ("CODEPILOT_PORT", "65536", "65535"),
        ("CODEPILOT_SANDBOX_LIMITS", "memory=4", "'memory=4' is not valid"),
        ("CODEPILOT_SANDBOX_LIMITS", "files=4GiB", "'files=4GiB' is not valid"),
        ("CODEPILOT_SANDBOX_LIMITS", "memory=1GiB,cpu=3", "'cpu=3' is not valid"),
        ("CODEPILOT_SANDBOX_LIMITS", "processes=0", "'processes=0' is not valid"),
        ("CODEPILOT_NETWORK", "*.example.com", "name hosts as"),
        ("CODEPILOT_NETWORK", "off,registries", "not both"),
        ("CODEPILOT_NETWORK", "10.0.0.1", "no address"),
        ("CODEPILOT_API_URL", "http://api.example.com", "https://"),
        ("CODEPILOT_API_URL", "api.github.com", "https://"),
        ("CODEPILOT_API_URL", "https://user:pw@host", "without user"),
        ("CODEPILOT_API_URL", "https://[", "an address"),
        ("CODEPILOT_API_URL", "https://github.example.com:84430/api/v3", "https://host:port"),
        ("CODEPILOT_BASE_URL", "ftp://x", "https://"),
        ("CODEPILOT_PROVIDER", "bard", "one of anthropic, openai, alibaba, bedrock, vertex, azure, llm, scripted"),
        ("CODEPILOT_TRIGGER", "codepilot", "/ or @"),
        ("CODEPILOT_TRIGGER", "/a b", "/ or @"),
        ("CODEPILOT_TRIGGER", "/codepilot,,@x", "/ or @"),
        ("CODEPILOT_START_LABEL", "x" * 51, "at most 50"),
        ("CODEPILOT_LEVEL", "root", "one of read-only, ask, auto"),
        ("CODEPILOT_ALLOW_COMMANDS", "*", "must name the program"),
        ("CODEPILOT_ALLOW_COMMANDS", "say 'hi", "is not a"),
        ("CODEPILOT_CAPS", "users=4", "'users=4' is not valid"),
        ("CODEPILOT_CAPS", "user=-1", "'user=-1' is not valid"),
        ("CODEPILOT_SPEND_CAPS", "thread-day=4", "'thread-day=4' is not valid"),
        ("CODEPILOT_SPEND_CAPS", "person-day=0", "'person-day=0' is not valid"),
        ("CODEPILOT_SPEND_CAPS", "person-day=none", "'person-day=none' is not valid"),
        ("CODEPILOT_APPROVAL_HOURS", "0", "1 to 720"),
        ("CODEPILOT_KEEP_DAYS", "never", "whole number"),
        ("CODEPILOT_CONFIG", "~/codepilot.yml", "not expanded"),
        ("CODEPILOT_MAX_STEPS", "0", "1 to 1000"),
        ("CODEPILOT_MAX_COST_USD", "0", "above 0"),
        ("CODEPILOT_MAX_COST_USD", "inf", "above 0"),
        ("CODEPILOT_MAX_SECONDS", "1.5", "whole number"),
        ("CODEPILOT_TRUSTED_BOTS", "*", "not allowed"),
        ("CODEPILOT_TRUSTED_BOTS", "dependabot", "end in `[bot]`"),
        ("CODEPILOT_TRUSTED_BOTS", "1,,2", "numeric"),
        ("CODEPILOT_ALLOWED_USERS", "@mona", "logins"),
        ("CODEPILOT_ACTIONS", "add-label", "not 'add-label'. Did you mean `add-labels`?"),
        ("CODEPILOT_ACTIONS", "off, close", "not 'off'"),
        ("CODEPILOT_ALLOWED_USERS", "octo/team", "teams"),
        ("CODEPILOT_ALLOWED_USERS", "renovate[bot]", "CODEPILOT_TRUSTED_BOTS"),
        ("CODEPILOT_REVIEW_ON", "opened, always", "push, not 'always'"),
        ("CODEPILOT_DATA_DIR", "~/data", "not expanded"),
        ("CODEPILOT_TRUSTED_PROXIES", "proxy.example.com", "addresses or networks such as"),
        ("CODEPILOT_TRUSTED_PROXIES", "10.0.0.1/8", "has host bits set"),
        ("CODEPILOT_TRUSTED_PROXIES", "127.0.0.1, ::/0", "::/0 would let every client"),
        ("CODEPILOT_SPEED", "fast", "remove it"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_must_be(
    environ: dict[str, str], name: str, value: str, words: str
) -> None:
    (problem,) = _problems(load, {**environ, name: value})
    assert problem.startswith(name)
    assert words in problem


def test_an_empty_variable_counts_as_not_set(environ: dict[str, str]) -> None:
    assert load({**environ, "CODEPILOT_PORT": " ", "CODEPILOT_MODEL": ""}).port == 8080
    (problem,) = _problems(load, {**environ, "CODEPILOT_APP_ID": ""})
    assert "CODEPILOT_APP_ID" in problem


def test_the_key_of_the_chosen_provider_is_needed(environ: dict[str, str]) -> None:
    (problem,) = _problems(load, {**environ, "CODEPILOT_PROVIDER": "openai"})
    assert "OPENAI_API_KEY" in problem
    assert load({**environ, "CODEPILOT_PROVIDER": "openai", "OPENAI_API_KEY": "k"}).agent.model == "gpt-6.2-sol"


def test_a_scripted_provider_needs_its_script_and_no_key(environ: dict[str, str]) -> None:
    environ["CODEPILOT_PROVIDER"] = "scripted"
    (problem,) = _problems(load, environ)
    assert "CODEPILOT_MODEL" in problem
    agent = load({**environ, "CODEPILOT_MODEL": "demo.md"}).agent
    assert (agent.model, agent.api_key) == ("demo.md", None)


@pytest.mark.parametrize("mode", [0o604, 0o666, 0o644, 0o602])
def test_a_key_file_open_to_all_is_refused_with_the_command_that_fixes_it(
    environ: dict[str, str], key_file: Path, mode: int
) -> None:
    key_file.chmod(mode)
    (problem,) = _problems(load, environ)
    assert f"chmod 600 {key_file}" in problem


def test_a_key_file_of_a_group_is_accepted_for_service_managers_make_such(
    environ: dict[str, str], key_file: Path
) -> None:
    key_file.chmod(0o640)
    assert load(environ).private_key.get_secret_value() == PEM


@pytest.mark.parametrize("content", ["hello", "-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----"])
def test_a_key_file_must_hold_a_private_key(environ: dict[str, str], key_file: Path, content: str) -> None:
    key_file.write_text(content)
    (problem,) = _problems(load, environ)
    assert "no private key" in problem


def test_a_key_file_must_be_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    os_pipe = tmp_path / "pipe"
    os.mkfifo(os_pipe, 0o600)
    for path, words in [(tmp_path / "none", "No such file"), (tmp_path, "directory"), (os_pipe, "must name a file")]:
        (problem,) = _problems(load, {**environ, "CODEPILOT_PRIVATE_KEY_FILE": str(path)})
        assert words in problem


def test_what_is_kept_from_being_shown_counts_as_a_secret() -> None:
    hidden = {each.name for each in SETTINGS if each.name != "CODEPILOT_PRIVATE_KEY_FILE" and _is_hidden(each)}
    assert "CODEPILOT_DATABASE_URL" in hidden
    assert hidden == {each.name for each in SETTINGS if each.secret}


def _is_hidden(setting: Setting) -> bool:
    try:
        return isinstance(setting.parse(setting.example), SecretStr)
    except ValueError:  # it names a file
        return False


def test_a_cloud_is_asked_with_the_variables_of_its_sdk(environ: dict[str, str]) -> None:
    def problems(**variables: str) -> str:
        return " ".join(_problems(load, environ | {"CODEPILOT_PROVIDER": "azure", **variables}))

    del environ["ANTHROPIC_API_KEY"]
    said = problems()
    assert "AZURE_OPENAI_ENDPOINT, OPENAI_API_VERSION, AZURE_OPENAI_AD_TOKEN or AZURE_OPENAI_API_KEY" in said
    assert "name of your deployment" in said
    azure = {
        "CODEPILOT_PROVIDER": "azure",
        "CODEPILOT_MODEL": "coder",
        "AZURE_OPENAI_ENDPOINT": "https://acme.openai.azure.com",
        "OPENAI_API_VERSION": "2026-10-01",
        "AZURE_OPENAI_API_KEY": "a-key-of-azure",
    }
    assert "its credentials go there" in problems(**azure, CODEPILOT_BASE_URL="https://models.example.com")
    settings = load(environ | azure)
    assert redactor_for(settings).redact("it is a-key-of-azure") == "it is [redacted]"
    assert "a-key-of-azure" not in repr(settings)


@pytest.mark.parametrize(
    ("server", "api"),
    [
        ("https://github.com", "https://api.github.com"),
        ("https://github.example.com", "https://github.example.com/api/v3"),
        ("https://octocorp.ghe.com", "https://api.octocorp.ghe.com"),
    ],
)
def test_one_address_of_a_github_server_tells_the_other(environ: dict[str, str], server: str, api: str) -> None:
    for one in ({"CODEPILOT_SERVER_URL": server}, {"CODEPILOT_API_URL": api}):
        settings = load(environ | one)
        assert (settings.server_url, settings.api_url) == (server, api)


@pytest.mark.parametrize(
    ("url", "server", "api"),
    [
        ("https://GitHub.com/", "https://github.com", "https://api.github.com"),
        ("https://api.github.com", "https://github.com", "https://api.github.com"),
        ("https://GHE.Example.com:8443/api/v3/", "https://ghe.example.com:8443", "https://ghe.example.com:8443/api/v3"),
        ("https://OctoCorp.GHE.com", "https://octocorp.ghe.com", "https://api.octocorp.ghe.com"),
        ("https://api.octocorp.ghe.com", "https://octocorp.ghe.com", "https://api.octocorp.ghe.com"),
        (
            "https://proxy.example.com/GitHub",
            "https://proxy.example.com/GitHub",
            "https://proxy.example.com/GitHub/api/v3",
        ),
    ],
)
def test_the_address_of_a_server_may_be_written_in_other_ways(
    environ: dict[str, str], url: str, server: str, api: str
) -> None:
    settings = load(environ | {"CODEPILOT_SERVER_URL": url})
    assert (settings.server_url, settings.api_url) == (server, api)


def test_a_file_without_certificates_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    for name, content in (("missing.pem", None), ("empty.pem", ""), ("key.pem", "-----BEGIN KEY-----\n")):
        if content is not None:
            (tmp_path / name).write_text(content)
        (problem,) = _problems(load, environ | {"CODEPILOT_CA_FILE": str(tmp_path / name)})
        assert name in problem


def test_a_key_goes_only_to_the_address_that_it_was_meant_for(environ: dict[str, str]) -> None:
    elsewhere = environ | {"CODEPILOT_BASE_URL": "https://models.example.com"}
    (problem,) = _problems(load, elsewhere)
    assert problem.startswith(
        "CODEPILOT_API_KEY is not set, and ANTHROPIC_API_KEY is not sent to https://models.example"
    )
    del elsewhere["ANTHROPIC_API_KEY"]
    assert load(elsewhere).agent.api_key is None
    key = load(elsewhere | {"CODEPILOT_API_KEY": "k"}).agent.api_key
    assert key is not None
    assert key.get_secret_value() == "k"
    (problem,) = _problems(load, environ | {"CODEPILOT_API_KEY": "k"})
    assert problem.startswith("CODEPILOT_BASE_URL is not set.")
    own = load(environ | {"CODEPILOT_BASE_URL": "https://api.anthropic.com"}).agent.api_key
    assert own is not None
    assert own.get_secret_value() == "sk-ant-1"


def test_the_address_in_the_sdk_s_variable_is_used_with_the_key_beside_it(environ: dict[str, str]) -> None:
    environ |= {"ANTHROPIC_BASE_URL": "https://gateway.example.com/anthropic/", "OPENAI_BASE_URL": "http://no"}
    agent = load(environ).agent
    assert agent.endpoint == Endpoint(
        base_url="https://gateway.example.com/anthropic",
        key_variable="ANTHROPIC_API_KEY",
        needs_key=False,
        address_variable="ANTHROPIC_BASE_URL",
    )
    assert agent.api_key is not None
    assert agent.api_key.get_secret_value() == "sk-ant-1"
    named = environ | {"CODEPILOT_BASE_URL": "https://models.example.com", "CODEPILOT_API_KEY": "k"}
    assert load(named).agent.endpoint.base_url == "https://models.example.com"
    assert [each.get_secret_value() for each in load(named).agent.secrets] == ["k"]
    (problem,) = _problems(load, environ | {"ANTHROPIC_BASE_URL": "http://gateway.example.com"})
    assert problem.startswith("ANTHROPIC_BASE_URL must start with https://")
    del environ["ANTHROPIC_API_KEY"]
    assert load(environ).agent.api_key is None


def test_every_secret_can_be_read_from_a_file_of_its_own(environ: dict[str, str], tmp_path: Path) -> None:
    secrets = [each.name for each in SETTINGS if each.secret]
    for name in secrets:
        file = tmp_path / name
        value = "postgresql://me:secret@db/codepilot" if name == "CODEPILOT_DATABASE_URL" else f"the secret {name}"
        file.write_text(f"{value}\n")
        file.chmod(0o440)
        environ.pop(name, None)
        environ[f"{name}_FILE"] = str(file)
    environ |= {"CODEPILOT_BASE_URL": "https://models.example.com", "CODEPILOT_CLIENT_ID": "Iv23li"}
    settings = load(environ)
    assert settings.webhook_secret.get_secret_value() == "the secret CODEPILOT_WEBHOOK_SECRET"
    assert settings.agent.anthropic_api_key is not None
    assert settings.agent.anthropic_api_key.get_secret_value() == "the secret ANTHROPIC_API_KEY"
    assert settings.shared_database == "postgresql://me:secret@db/codepilot"


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [("", 0o600, "empty"), ("a secret that is long enough", 0o604, "chmod 600"), (None, 0, "No such file")],
)
def test_a_file_with_a_secret_that_cannot_be_used_is_named_and_nothing_else_is_missed(
    environ: dict[str, str], tmp_path: Path, content: str | None, mode: int, words: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    for name in ("CODEPILOT_WEBHOOK_SECRET", "ANTHROPIC_API_KEY"):
        del environ[name]
        environ[f"{name}_FILE"] = str(file)
    problems = _problems(load, environ)
    assert len(problems) == 2
    for problem in problems:
        assert words in problem
        assert "_FILE" in problem
        assert "long enough" not in problem


def test_a_secret_is_not_set_in_two_ways(environ: dict[str, str], key_file: Path) -> None:
    (problem,) = _problems(load, {**environ, "ANTHROPIC_API_KEY_FILE": str(key_file)})
    assert "remove one" in problem


def test_only_a_secret_can_be_read_from_a_file(environ: dict[str, str], key_file: Path) -> None:
    (problem,) = _problems(load, {**environ, "CODEPILOT_APP_ID_FILE": str(key_file)})
    assert "CODEPILOT_APP_ID_FILE is not a setting" in problem


def test_no_secret_shows_in_what_is_printed(environ: dict[str, str], runner: dict[str, str]) -> None:
    shown = repr(load(environ)) + repr(load_action(runner))
    for secret in ("s3cret", "AAAA", "sk-ant-1", "ghs_token"):
        assert secret not in shown


def test_no_secret_shows_in_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as error:
        load({**environ, "CODEPILOT_WEBHOOK_SECRET": "hunter2", "CODEPILOT_API_URL": "https://me:hunter2@x"})
    assert "hunter2" not in str(error.value)


def test_the_action_reads_what_the_runner_sets(runner: dict[str, str], tmp_path: Path) -> None:
    settings = load_action({**runner, "GITHUB_RUN_ATTEMPT": "2", "GITHUB_OUTPUT": str(tmp_path / "out")})
    assert (settings.run_id, settings.run_attempt, settings.repository) == (41, 2, "octo/calc")
    assert (settings.output_path, settings.summary_path) == (tmp_path / "out", None)
    assert settings.agent.data_dir == Path("/runner/temp/codepilot")
    assert settings.token.get_secret_value() == "ghs_token"


@pytest.mark.parametrize("name", ["CODEPILOT_MAX_STEPS", "INPUT_MAX-STEPS", "INPUT_MAX_STEPS"])
def test_the_action_takes_its_inputs_in_every_form(runner: dict[str, str], name: str) -> None:
    assert load_action({**runner, name: "9"}).agent.limits.max_steps == 9


@pytest.mark.parametrize(("patience", "seconds"), [("", 900), ("60", 60)])
def test_a_workflows_run_waits_for_the_model_itself(runner: dict[str, str], patience: str, seconds: int) -> None:
    assert load_action({**runner, "INPUT_MODEL-PATIENCE": patience}).agent.limits.outage_seconds == seconds


def test_the_service_takes_no_inputs(environ: dict[str, str]) -> None:
    assert load({**environ, "INPUT_PORT": "99"}).port == 8080


def test_an_action_outside_a_workflow_names_all_that_the_runner_sets() -> None:
    with pytest.raises(OutsideActionsError) as error:
        load_action({"GITHUB_RUN_ID": " "})
    for name in ("GITHUB_EVENT_PATH", "GITHUB_EVENT_NAME", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"):
        assert name in str(error.value)
    assert "GITHUB_SERVER_URL" not in str(error.value)


def test_the_table_for_the_documentation_has_a_row_for_every_setting() -> None:
    rows = render_settings_table().splitlines()[2:]
    assert len(rows) == len(SETTINGS)
    for setting, row in zip(SETTINGS, rows, strict=True):
        assert row.startswith(f"| `{setting.name}` | {setting.help_text} |")
        assert row.count(" | ") == 3


@pytest.mark.parametrize("setting", [s for s in SETTINGS if not s.name.endswith(("_FILE", "_KEY", "_SECRET"))])
def test_every_example_and_default_works(setting: Setting) -> None:
    for text in (setting.example, setting.default):
        if text:
            setting.parse(text)


def test_the_caps_that_the_table_names_are_those_that_hold() -> None:
    named = ",".join(re.findall(r"[a-z]+=\d+", AGENT["caps"].help_text))
    assert len(named.split(",")) == len(fields(Caps))
    assert AGENT["caps"].parse(named) == Caps()


@pytest.mark.parametrize("model", [name for name in MODELS.values() if name])
def test_the_models_that_the_table_names_are_the_defaults(model: str) -> None:
    assert f"`{model}`" in AGENT["model"].help_text


def test_permissions_are_decided_by_what_the_settings_say(environ: dict[str, str]) -> None:
    bounds = bounds_of(load({**environ, "CODEPILOT_MODELS": "a,b", "CODEPILOT_TRUSTED_BOTS": "5"}).agent)
    assert (bounds.model, bounds.models, bounds.level) == ("claude-sonnet-5-5", ("a", "b"), "ask")
    assert (bounds.limits.max_steps, bounds.approval_seconds) == (30, 72 * 3600)
    assert bounds.trusted_bots.ids == {5}


@pytest.mark.parametrize(
    ("provider", "key", "model"),
    [
        ("alibaba", {"DASHSCOPE_API_KEY": "k"}, "qwen3.7-max"),
        ("llm", {}, ""),
        ("openai", {"OPENAI_API_KEY": "k"}, "gpt-6.2-sol"),
    ],
)
def test_every_model_service_of_the_library_can_be_chosen(
    environ: dict[str, str], provider: str, key: dict[str, str], model: str
) -> None:
    agent = load({**environ, "CODEPILOT_PROVIDER": provider, **key}).agent
    assert (agent.provider, agent.model) == (provider, model)
    assert (agent.api_key is None) == (not key)


def test_the_limits_that_the_table_names_are_those_that_hold() -> None:
    meaning = AGENT["sandbox_limits"].help_text
    named = ",".join(re.findall(r"[a-z-]+=\w+", meaning))
    assert AGENT["sandbox_limits"].parse(named) == SandboxLimits()


def test_blobs_are_stored_where_the_operator_says(environ: dict[str, str]) -> None:
    assert load(environ).storage_url is None
    for url in ("s3://bucket", "s3://my.bucket-1/a/b", "file:///srv/blobs"):
        assert load(environ | {"CODEPILOT_STORAGE_URL": f"{url}/"}).storage_url == url


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hunter2@bucket/x", "s3://bucket?x=hunter2", "s3://B", "s3://bucket/../x", "s3://bucket/a//b",
        "file://host/x", "file:relative", "file:///", "file:///a/../b", "/srv/blobs", "https://bucket/x", "gs://b/x",
    ],
)  # fmt: skip
def test_another_address_for_blobs_is_refused_without_repeating_it(environ: dict[str, str], url: str) -> None:
    [problem] = _problems(load, environ | {"CODEPILOT_STORAGE_URL": url})
    assert "s3://bucket/prefix" in problem
    assert "hunter2" not in problem


def test_jobs_are_in_a_file_or_in_a_database_that_machines_share(environ: dict[str, str]) -> None:
    assert load(environ).shared_database is None
    assert load(environ | {"CODEPILOT_DATABASE_URL": "sqlite:///jobs.sqlite"}).shared_database is None
    for url in ("postgresql://me@[::1]:5432/jobs?sslmode=require", "postgresql:///jobs?host=/run/postgresql"):
        assert load(environ | {"CODEPILOT_DATABASE_URL": url}).shared_database == url


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:hunter2@host/jobs", "postgres://me:hunter2@host/jobs", "postgresql+psycopg://me:hunter2@host/jobs",
        "postgresql://me:hunter2@host", "postgresql://me:hunter2@host:x/jobs", "postgresql://me:hunter2@host/jobs#x",
        "postgresql:///hunter2", "sqlite://", "sqlite:///:memory:", "sqlite://hunter2/x", "sqlite:///x?y=hunter2",
        "hunter2", "/var/lib/jobs.sqlite", "postgresql://me:hunter2@host/a/b",
    ],
)  # fmt: skip
def test_another_address_for_the_jobs_is_refused_without_repeating_it(environ: dict[str, str], url: str) -> None:
    [problem] = _problems(load, environ | {"CODEPILOT_DATABASE_URL": url})
    assert problem.startswith("CODEPILOT_DATABASE_URL must be sqlite:///path or postgresql://user:password@host/name")
    assert "hunter2" not in problem


def test_the_password_in_the_databases_address_is_a_secret(environ: dict[str, str]) -> None:
    url = "postgresql://me:hunter2%2Fhunter2@db.example.com/jobs?sslpassword=hunter3-hunter3"
    settings = load(environ | {"CODEPILOT_DATABASE_URL": url})
    assert "hunter" not in repr(settings)
    redactor = redactor_for(settings)
    for secret in ("hunter2%2Fhunter2", "hunter2/hunter2", "hunter3-hunter3"):
        assert secret not in redactor.redact(f"cannot connect as me with {secret}")
    assert "db.example.com" in redactor.redact("no answer from db.example.com")


def test_the_key_to_the_bucket_is_a_secret(environ: dict[str, str]) -> None:
    environ |= {
        "AWS_ACCESS_KEY_ID": "AKIA1",
        "AWS_SECRET_ACCESS_KEY": "hunter2-hunter2",
        "AWS_SESSION_TOKEN": "token-token",
        "AWS_ENDPOINT_URL": "http://s3.example.com",
    }
    [problem] = _problems(load, environ)
    assert problem.startswith("AWS_ENDPOINT_URL must start with https://")
    settings = load(environ | {"AWS_ENDPOINT_URL": "https://s3.example.com/"})
    assert "hunter2" not in repr(settings)
    assert "token-token" not in repr(settings)
    redact = redactor_for(settings).redact
    assert "hunter2" not in redact("key hunter2-hunter2")
    assert "token-token" not in redact("key token-token")


def test_signing_people_in_needs_both_client_id_and_secret(environ: dict[str, str]) -> None:
    [problem] = _problems(load, environ | {"CODEPILOT_CLIENT_ID": "Iv23li"})
    assert problem.startswith("CODEPILOT_CLIENT_SECRET is not set.")
    assert "CODEPILOT_CLIENT_ID" in problem
    assert load(environ | {"CODEPILOT_CLIENT_ID": "Iv23li", "CODEPILOT_CLIENT_SECRET": "0" * 40}).has_github_sign_in
