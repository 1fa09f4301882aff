"""Rules of branches, names that leave no room, and descriptions, with real git and a real service."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import COMPLETION, FIX, FIXED_CALC, acting, staged

MODE = acting(
    'write_file("calc.py")\nexecute("main", "chmod +x check.sh && sh check.sh", check=True)',
    FIXED_CALC,
    completion=COMPLETION,
    fence="python",
)


async def test_githubs_refusal_of_an_unsigned_push_has_its_remedy(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [MODE]) as stage:
        hub.add_rules(stage.repo, "required_signatures")
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert "### ⚠️ Not published" in end.status
        assert "The repository's rules refuse the push to `codepilot/" in end.status
        assert (
            "Commits must have verified signatures. GitHub signs only what is committed through its API" in end.status
        )
        assert "The patch is attached to the check run" in end.status
        assert not stage.bot_branches()


async def test_a_name_without_room_and_classic_protection_are_known_before_the_run(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        hub.commit(stage.repo, {"x.txt": "x\n"}, message="Take the name", author="mona", branch="codepilot")
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "mine are `codepilot-bot/…`" in end.status
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert pull.pull.head_ref.startswith("codepilot-bot/issue-")
        hub.add_rules(stage.repo, "update", branches=pull.pull.head_ref)
        refused = await stage.ask(pull.number, "/codepilot fix")
        assert refused.state is JobState.REFUSED
        assert "Cannot update this protected ref" in refused.status
        assert len(stage.providers) == 1


async def test_a_pull_request_is_described(hub: LocalHub, tmp_path: Path) -> None:
    reply = "```completion\nAdd a topic for readers\n\nIt adds a topic.\n```\n"
    async with staged(hub, tmp_path, [reply]) as stage:
        pull = stage.pull()
        end = await stage.ask(pull.number, "/codepilot describe")
        assert end.state is JobState.DONE, end
        described = hub.issue(stage.repo, pull.number)
        assert (described.title, described.body) == ("Add a topic for readers", "It adds a topic.")
        assert "The title was `Add a topic`" in end.status
