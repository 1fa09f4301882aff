"""A process that works through a run of many steps on a file session, to be killed at any moment.

usage: python -m tests.agent_runtime.crash_child WORK_DIR SESSION_DIR STEPS
It tells each recorded event on standard output and waits for a line before it goes on. It begins with what an earlier
process has left.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent_runtime import (
    Agent,
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

ID = "forty steps"


def reply(step: int, steps: int) -> str:
    """A step that appends its number to a file, twice over two tools; from the last one on each finishes."""
    block = (
        '```codepilot\nwrite_file("written.txt", mode="a")\n'
        f'execute("main", "echo {step} >> run.txt", check=True)\n```\n'
        f"```text\n{step}\n```\n"
    )
    return block + ("```completion\nAll done.\n```\n" if step >= steps else "")


def main() -> None:
    work_dir, session_dir, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    session = FileSession(ID, session_dir=session_dir)
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
            sys.stdout.write(f"{len(session.events)} {type(event).__name__}\n")
            sys.stdout.flush()
            sys.stdin.readline()

    with Runtime(agent, session, listeners=[tell], quiet=True) as runtime:
        if runtime.unfinished:
            runtime.resume()
        elif not session.events:
            runtime.run("Count to the end")
        [outcome] = [event.outcome for event in session.events if isinstance(event, Ended)]
    sys.stdout.write(f"ended {outcome.status}\n")


if __name__ == "__main__":
    main()
