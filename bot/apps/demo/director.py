"""Prepare the demo from its options: the project, the model, the directory."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console

from agent_runtime import Network, SandboxSettings, pick_sandbox
from bot.apps.demo.model import KEYS, scripted
from bot.apps.demo.project import Scenario, boltons, local
from bot.apps.demo.scene import Stage, play
from bot.apps.demo.screen import DemoScreen
from bot.apps.demo.tour import read_tour
from bot.domain.job import JobState
from bot.settings.load import leave_out_of_proxies, load_demo
from bot.workspace.removal import discard

_READING = (4, 0.012)
"""Characters of a chunk of a scripted reply, and seconds between chunks, so that a person can read along."""
_FAST = (16, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of `codepilot demo`; see its help."""

    repo: Path | None
    issue: str | None
    script: Path | None
    base_url: str
    model: str
    keep: bool
    port: int
    fast: bool


async def direct(options: DemoOptions) -> JobState:
    """Set the stage, play, and clean up.

    Returns:
        How the job ended.

    Raises:
        DemoError: something is missing; the text says what to do.
        SandboxError: agents could not run safely here.
        ConfigError: the environment's settings are wrong.
    """
    screen = DemoScreen(Console())
    leave_out_of_proxies("127.0.0.1")  # where the hub is
    # The Python that runs the demo, shown to the agent so that it can run tests; the system's own is there anyway.
    prefixes = dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix)))
    own_python = tuple(path for path in prefixes if path not in {Path("/usr"), Path("/")})
    directory = Path(tempfile.mkdtemp(prefix="codepilot-demo-"))
    try:
        with as_file(files("bot.apps.demo").joinpath("script.yaml")) as own_script:
            script = options.script or (own_script if options.repo is None else None)
            agent = load_demo(
                script,
                data_dir=directory / "bot",
                toolchains=own_python,
                base_url=options.base_url,
                model=options.model,
            )
            is_scripted = agent.provider == "scripted"
            if is_scripted:
                who = (
                    "The model is scripted: its replies are prepared, everything else is real. "
                    f"Set {KEYS} to use a real model."
                )
            elif agent.base_url:
                who = f"Using the model {agent.model} at {agent.base_url}."
            else:
                most = f"at most ${agent.limits.max_cost_usd:.2f}" if agent.limits.max_cost_usd else "without a bound"
                who = f"Using the real model {agent.model}, which costs real money ({most})."
            screen.say(who, style="bold yellow")
            if os.geteuid() == 0:
                screen.say("You are root. The server would refuse to run; the demo allows it for its own project.")
            chunk_chars, delay = _FAST if options.fast else _READING
            tour = read_tour() if options.keep and options.repo is None and options.script is None else ()
            if tour and is_scripted and pick_sandbox(agent.sandbox, SandboxSettings()).level == "bubblewrap":
                # Without a network no command needs an approval; other sandboxes could not limit it to these hosts.
                agent = replace(agent, network=agent.network or Network.of("registries"))
            tour = tuple(each for each in tour if agent.network or not each.needs_network)
            known = [each for entry in tour for each in entry.conversations]
            stage = Stage(
                scenario=await _scenario(options, directory, screen),
                agent=agent,
                directory=directory,
                keep=options.keep,
                port=options.port,
                provider=scripted(agent.model, known, chunk_chars=chunk_chars, delay=delay) if is_scripted else None,
                tour=tour,
            )
            return await play(stage, screen)
    finally:
        discard(directory)


async def _scenario(options: DemoOptions, directory: Path, screen: DemoScreen) -> Scenario:
    if options.repo is not None:
        scenario, note = await local(options.repo, options.issue or "", directory)
        if note:
            screen.say(note, style="yellow")
        return scenario
    screen.say("Fetching a small open-source project, boltons 26.2.0, and restoring one of its old bugs.")
    return await boltons(directory)
