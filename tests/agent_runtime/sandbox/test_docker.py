from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.core.errors import SandboxError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter import Interpreter
from agent_runtime.sandbox.container import Docker, is_dead, owner
from agent_runtime.sandbox.protocol import ContainerSettings, SandboxSettings
from agent_runtime.sandbox.select import enclosing, pick_sandbox
from tests.containers import IMAGE, INFO, StandIn


@pytest.fixture
def engine(tmp_path: Path) -> StandIn:
    return StandIn.at(tmp_path / "engine")


def test_a_program_runs_in_a_container_of_its_own_and_nothing_is_left(engine: StandIn, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    launch = engine.sandbox().launch(["bash", "-c", "pwd; echo made >here; cat /etc/shadow"], workspace=work)
    done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=False)
    assert done.stdout == "/workspace\n"
    assert (work / "here").read_text() == "made\n"
    assert "No such file" in done.stderr
    assert engine.containers == []


def test_the_engines_command_line_gets_none_of_our_environment(
    engine: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s3cret@proxy")
    launch = engine.sandbox().launch(["true"], workspace=tmp_path)
    assert set(launch.env) <= {"PATH", "HOME", "DOCKER_CONFIG", "XDG_RUNTIME_DIR"}
    assert not Path(launch.env["DOCKER_CONFIG"]).exists(), "else its proxies are set inside, with their passwords"


def test_the_probe_looks_from_inside_once_and_asks_for_no_image(engine: StandIn) -> None:
    sandbox = engine.sandbox()
    sandbox.probe()
    calls = len(engine.calls)
    sandbox.probe()
    assert len(engine.calls) == calls
    assert not [call for call in engine.calls if "pull" in call]


def test_a_missing_image_is_named_with_the_command_that_fetches_it(engine: StandIn) -> None:
    (engine.home / "images" / IMAGE).unlink()
    with pytest.raises(SandboxError, match=f"docker pull {IMAGE}"):
        engine.sandbox().probe()
    assert not [call for call in engine.calls if call[0] in {"run", "pull"}]


def test_an_engine_without_a_protection_is_refused(engine: StandIn) -> None:
    engine.says(**{**INFO, "MemoryLimit": False, "SecurityOptions": ["name=seccomp,profile=unconfined"]})
    with pytest.raises(SandboxError, match="without a seccomp filter, a bound on memory"):
        engine.sandbox().probe()


def test_a_container_that_is_not_closed_is_refused_whatever_the_engine_says(engine: StandIn) -> None:
    # An engine that ignores what it is told, as some do.
    real = engine.program.read_text().partition("\n")[2]
    engine.program.write_text('#!/bin/bash\nif [[ $1 == run ]]; then exec bash -c "${@: -1}"; fi\n' + real)
    with pytest.raises(SandboxError, match="cannot read and write the workspace"):
        engine.sandbox().probe()
    loose = 'if [[ $* =~ source=([^,]*) ]]; then cd "${BASH_REMATCH[1]}"; fi; exec bash -c "${@: -1}"'
    engine.program.write_text(f"#!/bin/bash\nif [[ $1 == run ]]; then {loose}; fi\n{real}")
    with pytest.raises(SandboxError, match="not isolated as required"):
        engine.sandbox().probe()


@pytest.mark.parametrize(
    ("program", "words"),
    [("no-such-engine", "is missing"), ("/bin/false", "cannot reach its engine"), ("/bin/echo", "other than JSON")],
)
def test_an_engine_that_is_not_there_is_said(program: str, words: str) -> None:
    settings = SandboxSettings(container=ContainerSettings(image=IMAGE, program=program))
    with pytest.raises(SandboxError, match=words):
        Docker(settings, user=(1000, 1000)).probe()


def test_containers_of_the_dead_are_swept_and_those_of_the_living_stay(engine: StandIn) -> None:
    boot, namespace, *_ = owner().split(".")
    others = {
        "mine": owner(),
        "dead": f"{boot}.{namespace}.{os.getpid()}.1",
        "elsewhere": f"{boot}.1.{os.getpid()}.1",
        "rebooted": f"other.{namespace}.1.1",
        "odd": "",
    }
    for name, label in others.items():
        note = engine.home / "containers" / name
        note.mkdir()
        (note / "label").write_text(label)
    engine.sandbox().probe()
    assert set(engine.containers) == {"mine", "elsewhere", "odd"}


def test_a_process_that_has_our_number_only_is_another_one() -> None:
    assert not is_dead(owner())
    assert is_dead(f"{owner()}0")


async def _answer(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool) -> Plain:
    return "answer"


async def test_control_code_runs_in_a_container_without_a_workspace(engine: StandIn) -> None:
    said: list[object] = []
    enclose = enclosing(engine.sandbox())
    assert enclose is not None
    interpreter = Interpreter(tools=["ask"], stubs="def ask(question: str) -> str: ...", enclose=enclose)
    try:
        await interpreter.run("print(6 * 7, ask('x'))", call=_answer, show=said.append)
    finally:
        await interpreter.close()
    assert "".join(map(str, said)).strip() == "42 answer"
    [run] = [call for call in engine.calls if call[0] == "run"]
    assert not [word for word in run if "/workspace" in word]
    assert run[run.index("--network") + 1] == "none"


def test_without_an_image_there_is_no_docker() -> None:
    with pytest.raises(SandboxError, match="CODEPILOT_DOCKER_IMAGE"):
        pick_sandbox("docker", SandboxSettings())


@pytest.mark.skipif(os.getuid() != 0, reason="not root")
def test_root_gets_no_container(engine: StandIn) -> None:
    with pytest.raises(SandboxError, match="you are root"):
        Docker(engine.settings)


def test_nothing_of_the_host_is_shown_by_a_wrong_setting(engine: StandIn, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="read_only"):
        engine.sandbox(replace(engine.settings, read_only=(Path("/"),))).launch(["true"], workspace=tmp_path)
    with pytest.raises(SandboxError, match="not a directory"):
        engine.sandbox().launch(["true"], workspace=tmp_path / "none")


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0,
    reason="no Docker engine",
)
def test_a_real_engine_gives_what_it_promises(tmp_path: Path) -> None:
    images = subprocess.run(
        ["docker", "images", "--quiet", "bash"], capture_output=True, text=True, check=True
    ).stdout.split()
    if not images:
        pytest.skip("no image `bash`; fetch one with: docker pull bash")
    sandbox = Docker(SandboxSettings(container=ContainerSettings(image=images[0])), user=(1000, 1000))
    sandbox.probe()
    launch = sandbox.launch(["bash", "-c", "ls /sys/class/net; echo x >/x"], workspace=tmp_path)
    done = subprocess.run(launch.argv, env=dict(launch.env), capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["lo"]
    assert "Read-only" in done.stderr
