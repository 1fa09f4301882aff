"""Jobs in repositories whose base branch says what to do before the agent starts."""

from __future__ import annotations

from pathlib import Path

from agent_runtime import Started, ToolReturned
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import COMPLETION, FILES, FIXED_CALC, Stage, acting, staged

CONFIG = """\
setup:
  - mkdir -p kept
  - sh make.sh
  - touch left-behind
cache: [kept]
instructions: Always test with check.sh.
"""
MAKE = "head -c 16 /dev/urandom | od -An -tx1 > kept/stamp; cat payload.txt >> kept/stamp\n"
PROJECT = {**FILES, ".github/codepilot.yml": CONFIG, "make.sh": MAKE, "payload.txt": "good\n"}
FIX = acting(
    'execute("main", "cat kept/stamp", check=True)\nwrite_file("calc.py")\nexecute("main", "sh check.sh", check=True)',
    FIXED_CALC,
    completion=COMPLETION,
    fence="python",
)


def stamps(stage: Stage) -> list[str]:
    """Return the file of the setup as each run's agent read it."""
    ends = [each for each in stage.events if isinstance(each, ToolReturned)]
    values = [each.value for each in ends if "kept/stamp" in each.label]
    return [str(value["output"]) for value in values if isinstance(value, dict)]


def openings(stage: Stage) -> list[str]:
    """The first message of each run."""
    return [each.opening for each in stage.events if isinstance(each, Started)]


async def test_setup_runs_once_is_copied_later_and_is_no_part_of_the_change(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX], [FIX], files=PROJECT) as stage:
        first, second = [await stage.ask(stage.issue().number, "/codepilot fix") for _ in range(2)]
        files = [stage.git("diff", "--name-only", "main", sha).split() for sha in stage.bot_branches().values()]
        asked = openings(stage)[0]
    assert (first.state, second.state) == (JobState.DONE, JobState.DONE), (first, second)
    assert files == [["calc.py"], ["calc.py"]]
    one, two = stamps(stage)
    assert one == two
    assert "good" in one
    assert "setup: sh make.sh" in first.status
    assert "setup: copied what an earlier job made" in second.status
    assert "Always test with check.sh." in asked
    assert "Setup was run before you started, and succeeded: `mkdir -p kept`; `sh make.sh`" in asked
