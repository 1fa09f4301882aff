"""The toolchains in the sandbox, and the storage for the data of jobs."""

from __future__ import annotations

import logging
import pwd
import subprocess
import sys
import venv
from collections.abc import Mapping
from os import geteuid
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_runtime import (
    ModelRejectedError,
    Network,
    Policy,
    SandboxSettings,
    ScriptedProvider,
    SessionError,
    pick_sandbox,
)
from bot.__main__ import cli
from bot.domain.errors import ConfigError, QueueError
from bot.jobs.context import AgentSpec
from bot.jobs.storage import DatabaseJobSessions, FileJobSessions, PatchBlobs, PatchFiles
from bot.publishing.render import settings_to_inputs
from bot.server import build
from bot.server.build import agent_factory, build_model, open_storage, visible_directories
from bot.server.serve import build_service
from bot.settings.load import load
from bot.settings.models import AgentSettings
from tests.agent_runtime.providers.conversations import collect, conversation
from tests.model_server import Fails, ModelServer
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


def _environment(directory: Path, *, home: Path, python: Path) -> Path:
    (directory / "bin").mkdir(parents=True)
    (directory / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.13.0\n", encoding="utf-8")
    (directory / "bin" / "python3").symlink_to(python)
    (directory / "bin" / "python").symlink_to("python3")
    return directory


def _python(prefix: Path) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / "python3.13").mkdir(parents=True)
    (prefix / "lib" / "python3.13" / "os.py").touch()
    (prefix / "bin" / "python3.13").touch()
    return prefix


def test_the_python_of_a_virtual_environment_runs_in_the_sandbox(tmp_path: Path) -> None:
    environment, workspace = tmp_path / "venv", tmp_path / "workspace"
    venv.create(environment, with_pip=False)
    workspace.mkdir()
    settings = SandboxSettings(read_only=visible_directories([environment]), path=(environment / "bin",))
    launch = pick_sandbox("auto", settings).launch(
        ["python", "-c", "import sys; print(sys.prefix)"], workspace=workspace
    )
    done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(environment), done.stderr


def test_the_whole_of_the_python_is_shown_before_the_environment(tmp_path: Path) -> None:
    python = _python(tmp_path / "python")
    environment = _environment(tmp_path / "venv", home=python / "bin", python=python / "bin" / "python3.13")
    assert visible_directories([environment]) == (python, environment)


def test_every_directory_on_the_way_to_the_python_is_shown(tmp_path: Path) -> None:
    python = _python(tmp_path / "versions" / "3.13.0")
    (tmp_path / "versions" / "3.13").symlink_to("3.13.0")
    programs = tmp_path / "local" / "bin"
    programs.mkdir(parents=True)
    (programs / "python3.13").symlink_to(tmp_path / "versions" / "3.13" / "bin" / "python3.13")
    environment = _environment(tmp_path / "venv", home=programs, python=programs / "python3.13")
    # Of the directory around the link, nothing but the programs beside it.
    assert visible_directories([environment]) == (programs, python.parent / "3.13", environment)


def test_what_is_shown_anyway_is_not_named_again(tmp_path: Path) -> None:
    system = _environment(tmp_path / "venv", home=Path("/usr/bin"), python=Path("/usr/bin/python3"))
    python = _python(tmp_path / "python")
    inside = _environment(python / "venvs" / "one", home=python / "bin", python=python / "bin" / "python3.13")
    assert visible_directories([system]) == (system,)
    assert visible_directories([python, inside]) == (python,)


def test_a_directory_that_is_no_environment_is_shown_alone(tmp_path: Path) -> None:
    assert visible_directories([tmp_path]) == (tmp_path,)


def test_an_environment_whose_python_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone" / "bin"
    environment = _environment(tmp_path / "venv", home=gone, python=gone / "python3.13")
    with pytest.raises(ConfigError) as refused:
        visible_directories([environment])
    (problem,) = refused.value.problems
    assert problem.startswith(f"CODEPILOT_TOOLCHAINS: {environment} ")
    assert f" {gone}, " in problem


@pytest.mark.parametrize("private", ["home", "data"])
def test_no_environment_makes_a_private_directory_visible(tmp_path: Path, private: str) -> None:
    own = Path(pwd.getpwuid(geteuid()).pw_dir) if private == "home" else tmp_path / "around" / "data"
    (tmp_path / "around").mkdir()
    around = own if private == "home" else tmp_path / "around"
    environment = _environment(tmp_path / "venv", home=around, python=Path(sys.executable))
    with pytest.raises(ConfigError, match="also contains"):
        visible_directories([environment], private=[tmp_path / "around" / "data"])


def test_a_user_that_a_container_does_not_know_has_no_home_to_keep_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "geteuid", lambda: 1_000_700_000)  # as OpenShift gives them
    assert visible_directories([tmp_path]) == (tmp_path,)


PATCH = b"--- a/x\n+++ b/x\n\xff\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    key = tmp_path / "app.pem"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    key.chmod(0o600)
    return {
        "CODEPILOT_WEBHOOK_SECRET": "s3cret-and-long-enough",
        "CODEPILOT_APP_ID": "123",
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "CODEPILOT_DATA_DIR": str(tmp_path / "data"),
        "ANTHROPIC_API_KEY": "sk-ant-1",
    }


def test_by_default_everything_is_in_files_of_the_data_directory(environ: dict[str, str]) -> None:
    storage = open_storage(load(environ))
    assert isinstance(storage.sessions, FileJobSessions)
    assert isinstance(storage.patches, PatchFiles)


def test_what_machines_share_is_in_the_database_and_in_the_blob_store(
    environ: dict[str, str], tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shared = {"CODEPILOT_DATABASE_URL": postgres_url, "CODEPILOT_STORAGE_URL": (tmp_path / "store").as_uri()}
    storage = open_storage(load(environ | shared))
    assert isinstance(storage.sessions, DatabaseJobSessions)
    assert isinstance(storage.patches, PatchBlobs)
    assert not caplog.records


def test_a_shared_database_without_a_shared_blob_store_is_warned_of(
    environ: dict[str, str], postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_storage(load(environ | {"CODEPILOT_DATABASE_URL": postgres_url}))
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    assert "CODEPILOT_STORAGE_URL" in warning.getMessage()
    assert postgres_url not in warning.getMessage()


def test_a_shared_database_that_cannot_be_reached_is_named_with_what_to_check(environ: dict[str, str]) -> None:
    url = "postgresql://bot:hunter2-hunter2@127.0.0.1:1/jobs"
    with pytest.raises(SessionError) as told:
        open_storage(load(environ | {"CODEPILOT_DATABASE_URL": url}))
    assert str(told.value).startswith("The database named by CODEPILOT_DATABASE_URL cannot be used.")
    assert "postgresql://127.0.0.1:1/jobs cannot be used" in str(told.value)
    assert "Check its address and credentials" in str(told.value)
    assert "hunter2" not in str(told.value)


async def test_a_database_file_that_cannot_be_made_is_named_with_its_setting(
    environ: dict[str, str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'nowhere' / 'jobs.sqlite'}"
    with pytest.raises(QueueError, match=f"{url} failed: .* or name another in CODEPILOT_DATABASE_URL"):
        async with build_service(load(environ | {"CODEPILOT_DATABASE_URL": url}), works=False):
            pass


@pytest.mark.parametrize("shared", [False, True])
def test_the_operator_prints_a_patch_by_the_id_of_its_job(
    environ: dict[str, str], tmp_path: Path, *, shared: bool
) -> None:
    environ |= {"CODEPILOT_STORAGE_URL": (tmp_path / "store").as_uri()} if shared else {}
    patches = open_storage(load(environ)).patches
    (tmp_path / "file").write_bytes(PATCH)
    with (tmp_path / "file").open("rb") as file:
        patches.put("j1", file)
    assert _printed(environ, "j1").stdout_bytes == PATCH
    missing = _printed(environ, "../j1x")
    assert missing.exit_code == 1
    assert "no patch of job ../j1x" in missing.output


def _printed(environ: Mapping[str, str], job_id: str) -> Result:
    return CliRunner().invoke(cli, ["patch", job_id], env=dict(environ))


@pytest.mark.parametrize("attended", [True, False])
def test_an_agent_is_offered_questions_where_a_user_can_answer(tmp_path: Path, *, attended: bool) -> None:
    make = agent_factory(
        AgentSettings(),
        lambda: ScriptedProvider([]),
        pick_sandbox("local", SandboxSettings()),
        servers={},
        state_key=bytes(32),
        scrub=str,
    )
    spec = AgentSpec(
        work_dir=tmp_path,
        policy=Policy(),
        tools=("find", "ask_user"),
        model="",
        network=Network(),
        instructions={},
        session=None,
        attended=attended,
    )
    assert ("ask_user" in make(spec, ())._toolbox.system_prompt) is attended


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_service_asks_the_gateway_in_the_sdk_s_variable(provider: str, environ: dict[str, str]) -> None:
    name = provider.upper()
    async with ModelServer(replies=["Yes."]) as gateway:
        url = gateway.url_anthropic if provider == "anthropic" else gateway.url_openai
        environ |= {"CODEPILOT_PROVIDER": provider, f"{name}_API_KEY": "sk-made-up", f"{name}_BASE_URL": url}
        model = build_model(load(environ).agent)
        await collect(model.reply(conversation()))
        await model.close()
    assert "sk-made-up" in str(gateway.requests[0].headers)


@pytest.mark.parametrize(
    ("status", "server", "workflow"),
    [
        (401, "Check CODEPILOT_API_KEY.", "Check the input `api-key`."),
        (404, "Set CODEPILOT_MODEL to", "Set the input `model` to"),
        (404, "check CODEPILOT_BASE_URL if", "check the input `base-url` if"),
    ],
)
async def test_an_error_of_the_model_calls_each_setting_as_its_user_does(
    status: int, server: str, workflow: str
) -> None:
    async with ModelServer(replies=[Fails(status, "x", "no")]) as service:
        model = build_model(AgentSettings(provider="openai", model="m", base_url=service.url_openai))
        with pytest.raises(ModelRejectedError) as caught:
            await collect(model.reply(conversation()))
        await model.close()
    assert server in str(caught.value)
    assert workflow in settings_to_inputs(str(caught.value))
