from __future__ import annotations

import csv
import os
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, AsyncRuntime, Network, ScriptedProvider, SettingsError, Task
from agent_runtime.core.errors import SandboxError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.sandbox import container
from agent_runtime.sandbox.container import ContainerJob, Docker, Engine, is_dead, parse_engine, process_owner
from agent_runtime.sandbox.protocol import ContainerSettings, SandboxLimits, SandboxSettings
from agent_runtime.sandbox.select import find_encloser, pick_sandbox
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


def test_a_container_without_isolation_is_refused_despite_the_engines_claims(engine: StandIn) -> None:
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
    boot, namespace, *_ = process_owner().split(".")
    others = {
        "mine": process_owner(),
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
    assert not is_dead(process_owner())
    assert is_dead(f"{process_owner()}0")


async def _answer(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
    return "answer"


async def test_control_code_runs_in_a_container_without_a_workspace(engine: StandIn) -> None:
    said: list[object] = []
    enclose = find_encloser(engine.sandbox())
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
def test_a_real_engine_isolates_as_required(tmp_path: Path) -> None:
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


DOCKER = Engine(maps_users=False, cpus=2, missing=())
CONTAINER = ContainerSettings(image="example/agent@sha256:0", cpus=8)
JOB = ContainerJob(name="codepilot-1", owner="boot.ns.1.2", user=(1001, 1002), workspace=Path("/srv/job"), readable={})


def words(
    settings: SandboxSettings | None = None, *, by: Engine = DOCKER, job: ContainerJob = JOB, path: str = "/bin"
) -> list[str]:
    return container.run_args(settings or SandboxSettings(), CONTAINER, by, job, path)


def after(option: str, said: list[str]) -> list[str]:
    return [value for name, value in pairwise(said) if name == option]


def test_a_container_is_closed() -> None:
    said = words()
    assert after("--network", said) == ["none"]
    assert after("--cap-drop", said) == ["ALL"]
    assert after("--security-opt", said) == ["no-new-privileges"]
    assert after("--user", said) == ["1001:1002"]
    assert after("--pull", said) == ["never"]
    assert {"--read-only", "--rm", "--init", "--no-healthcheck"} <= set(said)
    assert not [word for word in said if "docker.sock" in word or "privileged" in word.replace("no-new-privileges", "")]


def test_only_the_workspace_is_of_the_host_and_writable() -> None:
    settings = SandboxSettings(read_only=(Path("/opt/node"),), readable={"/run/place": Path("/srv/store")})
    said = words(
        settings,
        job=ContainerJob(
            name="a", owner="b", user=(1, 1), workspace=Path("/srv/job"), readable={"/logs": Path("/srv/logs")}
        ),
    )
    assert after("--mount", said) == [
        "type=bind,source=/srv/job,target=/workspace",
        "type=bind,source=/opt/node,target=/opt/node,readonly",
        "type=bind,source=/srv/store,target=/run/place,readonly",
        "type=bind,source=/srv/logs,target=/logs,readonly",
    ]
    assert after("--workdir", said) == ["/workspace"]


@pytest.mark.parametrize("name", ['a,readonly"', 'b",source=/etc,target=/x', "c\nd", "e=f"])
def test_the_name_of_a_directory_cannot_say_anything_else(name: str) -> None:
    job = ContainerJob(name="a", owner="b", user=(1, 1), workspace=Path("/srv", name), readable={})
    [mount] = after("--mount", words(job=job))
    [fields] = (
        csv.reader([mount], strict=True) if "\n" not in mount else csv.reader(iter(mount.splitlines(keepends=True)))
    )
    assert fields == ["type=bind", f"source=/srv/{name}", "target=/workspace"]


def test_everything_is_bounded() -> None:
    limits = SandboxLimits(memory_bytes=100, processes=7, file_bytes=9, tmp_bytes=11, open_files=13)
    said = words(SandboxSettings(limits=limits))
    assert (after("--memory", said), after("--memory-swap", said)) == (["100"], ["100"])
    assert after("--pids-limit", said) == ["7"]
    assert after("--cpus", said) == ["2"], "no more than there are"
    assert after("--ulimit", said) == ["fsize=9:9", "core=0:0", "nofile=13:13"]
    assert [place.rpartition("size=")[2] for place in after("--tmpfs", said)] == ["11", "11"]
    assert after("--shm-size", said) == ["11"]
    assert after("--oom-score-adj", said) == ["1000"]


def test_the_images_path_comes_after_the_toolchains() -> None:
    settings = SandboxSettings(path=(Path("/opt/node/bin"),), environment={"COLOUR": "blue"})
    said = after("--env", words(settings, path="/image/bin:/bin"))
    assert {"PATH=/opt/node/bin:/image/bin:/bin", "COLOUR=blue", "HOME=/home/agent"} <= set(said)


def test_podman_of_an_ordinary_user_keeps_that_user() -> None:
    assert after("--userns", words(by=Engine(maps_users=True, cpus=1, missing=()))) == ["keep-id"]
    assert after("--userns", words()) == []


def test_the_images_own_program_is_not_started() -> None:
    assert container.program_args("image", ["bash", "-c", "true"]) == [
        "--entrypoint",
        "bash",
        "image",
        "-c",
        "true",
    ]


def test_keys_that_people_type_do_not_detach_a_terminal() -> None:
    [keys] = after("--detach-keys", container.exec_args("name", ["bash"], environment={}, tty=True))
    assert "ctrl-p" not in keys
    assert container.exec_args("name", ["a"], environment={"B": "c"}, tty=False) == [
        "exec", "--interactive", "--env", "B=c", "name", "a",
    ]  # fmt: skip


PODMAN = {
    "host": {
        "cpus": 4,
        "cgroupControllers": ["cpu", "memory", "pids"],
        "security": {"rootless": True, "seccompEnabled": True},
    }
}


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (INFO, DOCKER),
        ({**INFO, "SecurityOptions": ["name=seccomp,profile=unconfined"]}, "a seccomp filter"),
        ({**INFO, "SecurityOptions": None}, "a seccomp filter"),
        ({**INFO, "MemoryLimit": False}, "a bound on memory"),
        ({**INFO, "PidsLimit": False}, "a bound on processes"),
        ({**INFO, "CpuCfsQuota": False}, "a bound on processors"),
        (PODMAN, Engine(maps_users=True, cpus=4, missing=())),
        ({"host": {**PODMAN["host"], "cgroupControllers": ["cpu", "pids"]}}, "a bound on memory"),
        ({"host": {**PODMAN["host"], "security": {}}}, "a seccomp filter"),
    ],
)
def test_an_engine_that_lacks_a_protection_is_known(info: dict[str, Any], expected: Engine | str) -> None:
    found = parse_engine(info)
    assert found == expected if isinstance(expected, Engine) else found.missing == (expected,)


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command line")
def test_the_real_command_line_knows_every_option() -> None:
    run = [*words(), *container.program_args("image", ["true"])]
    for said in (run, container.exec_args("name", ["bash"], environment={"A": "b"}, tty=True)):
        # A host that nobody listens on: options are read before the engine is asked.
        done = subprocess.run(
            ["docker", "--host", "tcp://127.0.0.1:9", *said], capture_output=True, text=True, timeout=30, check=False
        )
        assert "unknown" not in done.stderr
        assert "invalid" not in done.stderr
        assert "daemon" in done.stderr or "TTY" in done.stderr, done.stderr


REPLY = """\
```codepilot
write_file("greeting.txt")
write_file("/tmp/greeting.txt")
result = execute("main", "pwd; cmp greeting.txt /tmp/greeting.txt", check=True)
print(find("hel+o")[0]["file"], result["exit_code"])
```
```text filename=greeting.txt
hello
```
```
hello
```
```completion
Done.
```
"""


@pytest.mark.slow
async def test_a_run_works_in_a_container_and_leaves_none(tmp_path: Path) -> None:
    engine, work = StandIn.at(tmp_path / "engine"), tmp_path / "work"
    work.mkdir()
    agent = Agent(provider=ScriptedProvider([REPLY]), work_dir=work, sandbox=engine.sandbox())
    async with AsyncRuntime(agent) as runtime:
        outcome = await runtime.run(Task(goal="Greet."))
    assert outcome.summary == "Done."
    assert (work / "greeting.txt").read_text() == "hello\n"
    assert engine.containers == []
    kinds = [call[0] for call in engine.calls if call[0] in {"run", "exec"}]
    assert kinds.count("exec") >= 1


async def test_a_container_gets_no_network_by_asking(tmp_path: Path) -> None:
    engine = StandIn.at(tmp_path / "engine")
    agent = Agent(
        provider=ScriptedProvider([]), work_dir=tmp_path, sandbox=engine.sandbox(), network=Network.of("registries")
    )
    with pytest.raises(SettingsError, match="'docker' cannot enforce a list of hosts"):
        AsyncRuntime(agent)
