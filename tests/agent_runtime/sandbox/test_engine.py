from __future__ import annotations

import csv
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.sandbox import container
from agent_runtime.sandbox.container import ContainerJob, Engine, engine_of
from agent_runtime.sandbox.protocol import ContainerSettings, SandboxLimits, SandboxSettings
from tests.containers import INFO

DOCKER = Engine(maps_users=False, cpus=2, lacks=())
CONTAINER = ContainerSettings(image="example/agent@sha256:0", cpus=8)
JOB = ContainerJob(name="codepilot-1", owner="boot.ns.1.2", user=(1001, 1002), workspace=Path("/srv/job"), readable={})


def words(
    settings: SandboxSettings | None = None, *, by: Engine = DOCKER, job: ContainerJob = JOB, path: str = "/bin"
) -> list[str]:
    return container.run_words(settings or SandboxSettings(), CONTAINER, by, job, path)


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
    settings = SandboxSettings(read_only=(Path("/opt/node"),))
    said = words(
        settings,
        job=ContainerJob(
            name="a", owner="b", user=(1, 1), workspace=Path("/srv/job"), readable={"/logs": Path("/srv/logs")}
        ),
    )
    assert after("--mount", said) == [
        "type=bind,source=/srv/job,target=/workspace",
        "type=bind,source=/opt/node,target=/opt/node,readonly",
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
    assert after("--userns", words(by=Engine(maps_users=True, cpus=1, lacks=()))) == ["keep-id"]
    assert after("--userns", words()) == []


def test_the_images_own_program_is_not_started() -> None:
    assert container.program("image", ["bash", "-c", "true"]) == ["--entrypoint", "bash", "image", "-c", "true"]


def test_keys_that_people_type_do_not_detach_a_terminal() -> None:
    [keys] = after("--detach-keys", container.execute("name", ["bash"], environment={}, tty=True))
    assert "ctrl-p" not in keys
    assert container.execute("name", ["a"], environment={"B": "c"}, tty=False) == [
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
        (PODMAN, Engine(maps_users=True, cpus=4, lacks=())),
        ({"host": {**PODMAN["host"], "cgroupControllers": ["cpu", "pids"]}}, "a bound on memory"),
        ({"host": {**PODMAN["host"], "security": {}}}, "a seccomp filter"),
    ],
)
def test_an_engine_that_lacks_a_protection_is_known(info: dict[str, Any], expected: Engine | str) -> None:
    found = engine_of(info)
    assert found == expected if isinstance(expected, Engine) else found.lacks == (expected,)


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command line")
def test_the_real_command_line_knows_every_option() -> None:
    run = [*words(), *container.program("image", ["true"])]
    for said in (run, container.execute("name", ["bash"], environment={"A": "b"}, tty=True)):
        # A host that nobody listens on: options are read before the engine is asked.
        done = subprocess.run(
            ["docker", "--host", "tcp://127.0.0.1:9", *said], capture_output=True, text=True, timeout=30, check=False
        )
        assert "unknown" not in done.stderr
        assert "invalid" not in done.stderr
        assert "daemon" in done.stderr or "TTY" in done.stderr, done.stderr
