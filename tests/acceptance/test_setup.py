"""Jobs in repositories whose base branch says what to do before the agent starts."""

from __future__ import annotations

from pathlib import Path

from agent_runtime import Network, Started, ToolReturned
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


def with_config(text: str) -> dict[str, str]:
    return {**PROJECT, ".github/codepilot.yml": text}


def stamps(stage: Stage) -> list[str]:
    """What each run's agent read of what the setup made."""
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


async def test_a_file_that_does_not_fit_is_told_with_line_and_remedy_and_little_is_done_unasked(
    hub: LocalHub, tmp_path: Path
) -> None:
    fix = acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION)
    broken, operator = with_config("setup:\n  - touch set-up\ncahce: [kept]\n"), Network.of("a.example")
    async with staged(hub, tmp_path, [fix], files=broken, network=operator) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        [sha] = stage.bot_branches().values()
        assert stage.git("diff", "--name-only", "main", sha).split() == ["calc.py"]
        [opening] = openings(stage)
    assert end.state is JobState.DONE
    assert ".github/codepilot.yml:3" in end.status
    assert "`cahce`" in end.status
    assert "Did you mean 'cache'?" in end.status
    assert "Fix `.github/codepilot.yml` on the base branch" in end.status
    assert "permission: `ask` · sandbox: `bubblewrap, no network`" in end.status
    assert "setup:" not in end.status
    assert "set-up" not in opening


async def test_a_file_that_does_not_fit_lets_no_label_raise_the_level(hub: LocalHub, tmp_path: Path) -> None:
    fix = acting('write_file("calc.py")\nexecute("main", "sh check.sh", check=True)', FIXED_CALC, completion=COMPLETION)
    async with staged(hub, tmp_path, [fix], files=with_config("cahce: [kept]\n")) as stage:
        issue = stage.issue()
        hub.add_label(stage.repo, issue.number, "codepilot:auto", by="mona")
        end = await stage.ask(issue.number, "/codepilot fix")
        assert "permission: `ask`" in end.status


async def test_a_setup_that_fails_is_told_to_both_and_the_agent_goes_on(hub: LocalHub, tmp_path: Path) -> None:
    failing = "setup:\n  - echo Ask @octocat; exit 9\n"
    fix = acting('write_file("calc.py")\nexecute("main", "sh check.sh", check=True)', FIXED_CALC, completion=COMPLETION)
    async with staged(hub, tmp_path, [fix], files=with_config(failing)) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert len(stage.pulls()) == 1
        asked = openings(stage)[0]
    assert end.state is JobState.DONE, end
    assert "**Setup failed**, and the agent worked without it" in end.status
    assert "ended with exit code 9" in end.status
    assert "> Ask @octocat\n> ```" in end.status
    assert "Setup FAILED before you started" in asked


async def test_the_file_takes_from_the_network_and_never_adds_to_it(hub: LocalHub, tmp_path: Path) -> None:
    fix = acting('write_file("calc.py")\nexecute("main", "sh check.sh", check=True)', FIXED_CALC, completion=COMPLETION)
    operator = Network.of("a.example", "b.example")
    async with staged(
        hub, tmp_path, [fix], files=with_config("network: [b.example, c.example]\n"), network=operator
    ) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    assert "bubblewrap, network: b.example`" in end.status
