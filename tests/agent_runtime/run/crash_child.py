"""A process that works on a run of many steps in one session, to be killed at any moment.

It prints `ready` and each recorded event, and waits for a line after each. It continues an earlier process's run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent_runtime import (
    Agent,
    DatabaseSession,
    Ended,
    Event,
    FileSession,
    Policy,
    Replied,
    RunLimits,
    Runtime,
    SandboxSettings,
    ScriptedProvider,
    pick_sandbox,
)
from agent_runtime.core.events import Recorded

ID = "many steps"


def reply(step: int, steps: int) -> str:
    """Return a step that appends its number to a file with two tools; from the last one on, each finishes."""
    block = (
        '```codepilot\nwrite_file("written.txt", mode="a")\n'
        f'execute("main", "echo {step} >> run.txt", check=True)\n```\n'
        f"```text\n{step}\n```\n"
    )
    return block + ("```completion\nAll done.\n```\n" if step >= steps else "")


def say(what: str) -> None:
    """Send a line to the parent and wait for its answer."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def count(work_dir: Path, sessions: str, steps: int) -> None:
    """Create the run; `sessions` is a directory or a database URL."""
    session: FileSession | DatabaseSession = FileSession(ID, session_dir=sessions)
    if "://" in sessions:
        session = DatabaseSession(ID, db_url=sessions, take_over=True, eager=True)
    say("ready")
    most = 2 * steps  # the last step, too, may be cut off and made again
    taken = sum(isinstance(event, Replied) for event in session.events)
    agent = Agent(
        provider=ScriptedProvider([reply(step, steps) for step in range(taken + 1, most + 1)]),
        work_dir=work_dir,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        policy=Policy(limits=RunLimits(max_steps=most)),
        chat=False,
    )

    def tell(event: Event) -> None:
        if isinstance(event, Recorded):
            say(f"{len(session.events)} {type(event).__name__}")

    with Runtime(agent, session, listeners=[tell], quiet=True) as runtime:
        if runtime.unfinished:
            runtime.resume()
        elif not session.events:
            runtime.run("Count to the end")
        [outcome] = [event.outcome for event in session.events if isinstance(event, Ended)]
    sys.stdout.write(f"ended {outcome.status}\n")
