"""A run that needs a person in a workflow: an artifact keeps it, and the run that the answer starts goes on with it."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import LocalHub
from tests.handed_over import handed
from tests.origin import git
from tests.stage import COMPLETION, FIXED_CALC, acting

WORKS = acting('write_file("calc.py")\nwrite_file("new/notes.txt")', FIXED_CALC, "Notes.\n", fence="python")
ASKS = acting('done = execute("main", "sh check.sh > told; cat told")\nprint(done)')
DONE = {"expect": "1 passed", "reply": acting('execute("main", "cat told calc.py", check=True)', completion=COMPLETION)}


async def test_an_approval_goes_on_at_the_very_call_on_another_machine(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    assert await thread.say("/codepilot fix", WORKS, ASKS) is JobState.WAITING
    assert "### ✋ Waiting for you" in thread.status
    assert thread.outputs["conclusion"] == "waiting"
    assert thread.outputs["session-path"].startswith(f"{tmp_path}/run-1/data/session/")
    assert (thread.outputs["session-name"], thread.outputs["session-days"]) == (thread.name, "4")
    assert "/codepilot approve" in (tmp_path / "run-1" / "summary").read_text(encoding="utf-8")
    assert set(hub.branches(thread.repo)) == {"main"}

    assert await thread.say(f"/codepilot approve {thread.request_id()}", DONE) is JobState.DONE
    assert thread.outputs["session-path"] == ""
    assert "actions/runs/42" in thread.status
    assert COMPLETION in thread.status
    [branch] = set(hub.branches(thread.repo)) - {"main"}
    assert git(thread.repo.path, "show", f"{branch}:calc.py").strip() == FIXED_CALC.strip()
    assert git(thread.repo.path, "diff", "--name-only", "main", branch).split() == ["calc.py", "new/notes.txt", "told"]


async def test_a_question_is_answered_and_the_next_request_waits_again(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    question = acting('print(ask_user("Is one too many?"))')
    assert await thread.say("/codepilot fix", question) is JobState.WAITING
    assert "Is one too many?" in thread.status
    assert await thread.say("/codepilot continue Yes, by one.", {"expect": "by one", "reply": ASKS}) is JobState.WAITING
    denied = acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION)
    told = {"expect": "too noisy", "reply": denied}
    assert await thread.say(f"/codepilot deny {thread.request_id()} too noisy", told) is JobState.DONE
    assert COMPLETION in thread.status
    assert len(hub.artifacts(thread.repo)) == 2


async def test_a_change_to_protected_files_is_published_once_somebody_approves(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    writes = 'write_file("calc.py")\nwrite_file(".github/workflows/ci.yml")'
    assert await thread.say("/codepilot fix", acting(writes, FIXED_CALC, "on: push\n", completion=COMPLETION)) is (
        JobState.WAITING
    )
    assert await thread.say("/codepilot approve") is JobState.DONE
    [branch] = set(hub.branches(thread.repo)) - {"main"}
    assert git(thread.repo.path, "diff", "--name-only", "main", branch).split() == [
        ".github/workflows/ci.yml",
        "calc.py",
    ]


async def test_a_plan_is_carried_out_in_the_run_that_approves_it(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    assert await thread.say("/codepilot plan", "```completion\n1. Take the one out.\n```\n") is JobState.WAITING
    fix = {"expect": "Take the one out", "reply": acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION)}
    assert await thread.say("/codepilot approve", fix) is JobState.DONE
    assert len(set(hub.branches(thread.repo)) - {"main"}) == 1


async def test_set_up_is_made_again_and_stop_ends_what_waits(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    files = {".github/codepilot.yml": "setup: [mkdir tools, 'echo 7 > tools/made']\n", ".gitignore": "tools/\n"}
    hub.commit(thread.repo, files, message="Set up", author="mona", branch="main")
    assert await thread.say("/codepilot fix", WORKS, ASKS) is JobState.WAITING
    sees = acting('execute("main", "cat tools/made", check=True)', completion=COMPLETION)
    assert await thread.say("/codepilot approve", sees) is JobState.DONE
    assert "- [x] `` Running `cat tools/made` ``" in thread.status  # with `check=True` it fails without the file

    assert await thread.say("/codepilot fix", WORKS, ASKS) is JobState.WAITING
    assert await thread.say("/codepilot stop") is JobState.STOPPED
    assert any("Stopped by" in each.body for each in hub.comments(thread.repo, thread.number))


async def test_a_request_that_nobody_answered_in_time_says_so(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    assert await thread.say("/codepilot fix", ASKS, hours=0) is JobState.WAITING
    assert await thread.say(f"/codepilot approve {thread.request_id()}") is JobState.REFUSED
    assert "That request has expired. Give the command again." in thread.last
