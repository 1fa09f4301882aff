"""A container engine for tests where there is none."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_runtime.sandbox.container import Docker
from agent_runtime.sandbox.protocol import ContainerSettings, SandboxSettings
from tests.source_files import ROOT

IMAGE = "example/agent@sha256-of-it"
INFO = {
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "NCPU": 2,
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
}
_DIRECTORY = Path(__file__).parent / "container_engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A `docker` whose containers are bubblewrap's; see `tests/container_engine/docker.py`.

    Attributes:
        home: where it keeps its containers and images.
        program: the command.
    """

    home: Path
    program: Path

    @classmethod
    def at(cls, home: Path) -> StandIn:
        """One with the image `IMAGE`."""
        for directory in (home / "containers", home / "images" / "example"):
            directory.mkdir(parents=True)
        (home / "images" / IMAGE).touch()
        program = home / "docker"
        words = [sys.executable, str(_DIRECTORY / "docker.py"), str(home)]
        paths = ":".join(path for path in (str(ROOT), *sys.path) if path)
        program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(paths)} exec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
        made = cls(home=home, program=program)
        made.says(**INFO)
        return made

    def says(self, **info: Any) -> None:  # noqa: ANN401 - JSON
        """What it says of itself."""
        (self.home / "info.json").write_text(json.dumps(info))

    @property
    def settings(self) -> SandboxSettings:
        """Settings that name it."""
        return SandboxSettings(container=ContainerSettings(image=IMAGE, program=str(self.program)))

    def sandbox(self, settings: SandboxSettings | None = None) -> Docker:
        """The sandbox, as an ordinary user has it."""
        return Docker(settings or self.settings, user=(1000, 1000))

    @property
    def containers(self) -> list[str]:
        """Names of the containers that it has."""
        return [path.name for path in (self.home / "containers").iterdir()]

    @property
    def calls(self) -> list[list[str]]:
        """Every call so far."""
        return [json.loads(line) for line in (self.home / "calls").read_text().splitlines()]
