"""A finished run beside files that are not published: leftovers of tools, and files that exceed a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.git import diff
from bot.jobs.agent_run import is_named
from bot.publishing.checks import Verdict
from tests.fakes.agent import execute, reply, write
from tests.seam import COMPLETION, FIXED_CALC, open_seam
from tests.stage import FILES

CHECK = execute("sh check.sh", output="1 passed")
TOOLS = execute("npm test", writes={"core": "dump\n", ".coverage": "1", "node_modules/a.js": "1", "b.orig": "1"})
NOTE = "Left out, since build and test tools leave such files: "


async def test_leftovers_are_named_and_their_patch_is_kept(tmp_path: Path) -> None:
    script = [reply(write("calc.py", FIXED_CALC), TOOLS, CHECK, completion=COMPLETION)]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.status.startswith("### ✅ Done, checks passed")
        names = "`.coverage`, `b.orig`, `core`, `node_modules/`"
        assert f"{NOTE}{names}" in end.status
        [pull] = stage.pulls()
        assert NOTE in (pull.body or "")
        [sha] = stage.bot_branches().values()
        assert stage.repo.commits[sha].tree.keys() == FILES.keys()
        patch = stage.kept_patch(end.job_id)
        assert patch is not None
        assert "+dump" in patch
        assert "calc.py" not in patch
        assert "node_modules" not in patch
        assert "**Kept.**" in end.status
        assert "+dump" in (stage.check_of(end.job_id).text or "")


async def test_files_that_the_agent_wrote_or_names_are_published(tmp_path: Path) -> None:
    script = [
        reply(
            write("calc.py", FIXED_CALC),
            write("dist/node_modules/wanted.js", "1"),
            TOOLS,
            CHECK,
            completion="Added a sample of a dump, `core`, and core logic. See b.orig.",
        )
    ]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        [sha] = stage.bot_branches().values()
        new = stage.repo.commits[sha].tree.keys() - FILES.keys()
        assert new == {"b.orig", "core", "dist/node_modules/wanted.js"}
        assert f"{NOTE}`.coverage`, `node_modules/`" in end.status


@pytest.mark.parametrize(
    ("path", "completion", "named"),
    [
        ("core", "The core logic.", False),
        ("core", "See `core`.", True),
        ("b.orig", "See b.orig.", True),
        ("b.orig", "See a/b.orig and b.original.", False),
        ("node_modules/a.js", "I ran npm, which made node_modules.", False),
    ],
)
def test_a_plain_word_names_a_file_only_as_code(path: str, completion: str, *, named: bool) -> None:
    assert is_named(path, completion) is named


async def test_leftovers_are_named_after_an_approval(tmp_path: Path) -> None:
    script = [
        reply(write("calc.py", FIXED_CALC), write(".github/workflows/ci.yml", "on: push\n"), TOOLS, completion="CI.")
    ]
    async with open_seam(tmp_path, script) as stage:
        issue = stage.issue()
        command, pause = await stage.paused_fix(issue.number)
        stage.say(issue.number, f"/codepilot approve {pause.request_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        assert NOTE in end.status
        patch = stage.kept_patch(end.job_id)
        assert patch is not None
        assert "+dump" in patch


async def test_only_leftovers_are_no_change(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reply(TOOLS, completion="Nothing to do.")]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.status.startswith("### ⚪ Nothing changed")
        assert NOTE in end.status
        assert stage.nothing_published()


async def test_a_tracked_file_over_a_limit_makes_the_rest_a_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "MAX_FILE_BYTES", 1_000)
    grows = execute("sh grow.sh", writes={"check.sh": "#" * 2_000})
    script = [reply(write("calc.py", FIXED_CALC), grows, CHECK, completion=COMPLETION)]
    async with open_seam(tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.status.startswith("### ⚠️ Published in part; not verified")
        assert (
            "These files exceed a limit, so they are unchanged, and everything else is published: `check.sh`."
            in end.status
        )
        assert "1 changed file was left out, because a file may have 0 MiB at most: `check.sh`" in end.status
        assert (await stage.record(end.job_id)).verdict is Verdict.UNVERIFIED
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert pull.pull.draft
        assert "without the withheld files" in (pull.body or "")
