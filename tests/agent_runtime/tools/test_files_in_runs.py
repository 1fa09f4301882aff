"""The file tools in whole runs: scripted model, real parser, interpreter and sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_runtime import Agent, AsyncRuntime, Event, Observed, ScriptedProvider, Status, StepStarted
from agent_runtime.sandbox.protocol import Sandbox

DONE = "```completion\nDone.\n```\n"


async def observed(
    root: Path, sandbox: Sandbox, *replies: str, listeners: Sequence[Callable[[Event], None]] = ()
) -> list[str]:
    """Return the observations of a run."""
    provider = ScriptedProvider([*replies, DONE])
    agent = Agent(provider=provider, work_dir=root, sandbox=sandbox, chat=False)
    runtime = AsyncRuntime(agent, listeners=listeners)
    async with runtime:
        outcome = await runtime.run("Work")
        assert outcome.status is Status.FINISHED
        return [event.text for event in runtime.session.events if isinstance(event, Observed)]


async def test_a_step_shows_each_line_once_and_more_than_its_limit_only_where_it_is_asked_for(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    (tmp_path / "a.py").write_text("".join(f"def f{n}():\n    x = {n}\n    return x\n\n\n" for n in range(9)))
    (tmp_path / "b.txt").write_text("".join(f"{'x' * 90} {n}\n" for n in range(400)))
    once, wide, narrow = await observed(
        tmp_path,
        sandbox,
        '```codepilot\nx = read_file("a.py")\nread_file(["a.py::f1", "a.py::f3"])\nread_file("a.py", 1, 12)\n```\n',
        '```codepilot\nread_file("b.txt", max_chars=50_000)\n```\n',
        '```codepilot\nread_file("b.txt", 1, 400)\n```\n',
    )
    assert [once.count(f"x = {n}") for n in range(5)] == [1, 1, 1, 1, 0]
    assert "\n5 |\n[lines 6-8: above]\n9 |\n" in once
    assert f"400 | {'x' * 90} 399" in wide
    assert len(narrow) < 16_200
    assert re.search(r"since a step shows 16,000 characters: read_file\('b.txt', \d+, 400\)\]$", narrow)


async def test_a_patch_needs_no_path(tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+2\n*** Add File: b.txt\n+b\n*** End Patch\n"
    [told] = await observed(tmp_path, sandbox, f'```codepilot\nwrite_file(mode="patch")\n```\n```diff\n{patch}```\n')
    assert "'a.txt' updated" in told
    assert (tmp_path / "a.txt").read_text() == "one\n2\n"
    assert (tmp_path / "b.txt").read_text() == "b\n"


async def test_no_write_is_made_when_a_later_one_of_the_block_cannot_be(tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    wrong = '```codepilot\nwrite_file("new.txt")\nwrite_file("a.txt", 2, 2, mode="edit")\n```\n'
    wrong += "```\nnew\n```\n```\nuno\n```\n"
    right = '```codepilot\nwrite_file("new.txt", payload=1)\nwrite_file("a.txt", 1, 1, mode="edit", payload=2)\n```\n'
    first, _ = await observed(tmp_path, sandbox, wrong, right)
    assert " line 2" in first
    assert "payload=1 " in first
    assert "payload=2 for write_file('a.txt', 2, 2, mode='edit')]" in first
    assert (tmp_path / "new.txt").read_text() == "new\n"
    assert (tmp_path / "a.txt").read_text() == "uno\n"


async def test_changes_are_reported_by_their_author(tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    read = '```codepilot\nread_file("a.txt")\n```\n'
    own = '```codepilot\nexecute("main", "sed -i s/two/2/ a.txt", check=True)\n```\n'

    def meddle(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == 3:
            (tmp_path / "a.txt").write_text("1\n2\n")

    told = await observed(tmp_path, sandbox, read, own, read, listeners=[meddle])
    assert told[1].endswith(" your commands changed]\nModified: a.txt\nChanged lines: 2")
    assert told[2].startswith("[ENVIRONMENT CHANGE] 2")
    assert "\n\nModified: a.txt\nChanged lines: 1\n" in told[2]
    assert len(told) == 4


async def test_list_files_is_a_tool(tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "a.py").write_text("")
    [told] = await observed(tmp_path, sandbox, '```codepilot\nlist_files("*.py")\n```\n')
    assert told == "[list_files] 1 file(s), newest first:\na.py"


async def test_the_contents_of_a_block_that_did_not_run_need_not_be_sent_again(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    wrong = '```codepilot\nwrite_file("new.txt")\nexecute("main", checked=True)\n```\n```\nnew\n```\n'
    right = '```codepilot\nwrite_file("new.txt", payload=1)\n```\n'
    first, _ = await observed(tmp_path, sandbox, wrong, right)
    assert first.endswith("payload=1 for write_file('new.txt')]")
    assert (tmp_path / "new.txt").read_text() == "new\n"
