"""Titles and descriptions follow the repository: its history, its `commit` keys, its template for pull requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from tests.fakes.agent import Script, reply, write
from tests.fakes.github import forbidden
from tests.seam import Seam, open_seam
from tests.stage import FILES, FIXED_CALC

TEMPLATE = "<!-- Thanks! -->\n## Description\n\n## Checklist\n- [x] I ran the tests\n"
FILLED = """\
## Description

**What the agent says**

fix(calc): add two numbers

Fixes #{}

## Checklist
- [ ] I ran the tests

"""


def a_fix(completion: str = "fix(calc): add two numbers", expect: str = "") -> Script:
    return [reply(write("calc.py", FIXED_CALC), completion=completion, expect=(expect,) if expect else ())]


async def opened(stage: Seam) -> tuple[str, str, int]:
    """Return title and body of the pull request for a new issue, and the issue's number."""
    number = stage.issue().number
    end = await stage.ask(number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    [pull] = stage.pulls()
    return pull.title, pull.body or "", number


@pytest.mark.parametrize(
    ("subjects", "completion", "title"),
    [
        ("fix: a|feat: b|docs: c|chore: d|ci: e", "Fixed the sum.", "fix: the sum"),
        ("fix: a|feat: b|docs: c|Improve d|Add e", "Fixed the sum.", "Fix the sum"),
        ("Add a", "feat(calc)!: return floats", "feat(calc)!: return floats"),
    ],
)
async def test_a_clear_history_decides_about_titles(tmp_path: Path, subjects: str, completion: str, title: str) -> None:
    async with open_seam(tmp_path, a_fix(completion)) as stage:
        for subject in subjects.split("|"):
            stage.hub.commit(stage.repo, {"log.txt": subject}, message=subject, author="mona", branch="main")
        assert (await opened(stage))[0] == title


async def test_the_file_decides_before_the_history_and_the_agent_is_told(tmp_path: Path) -> None:
    keys = "commit: {title: '{type}: {summary} [#{number}]', trailers: ['Refs: #{number}'], sign_off: true}\n"
    script = a_fix("Fixed the sum.", expect="in the form of Conventional Commits")
    async with open_seam(tmp_path, script, files=FILES | {".github/codepilot.yml": keys}) as stage:
        title, _, number = await opened(stage)
        assert title == f"fix: the sum [#{number}]"
        [branch] = stage.bot_branches()
        message = stage.message(branch)
        assert message.startswith(f"{title}\n\nCodepilot job ")
        lines = message.strip().splitlines()[-3:]
        assert [line.partition(":")[0] for line in lines] == ["Co-authored-by", "Refs", "Signed-off-by"]
        assert "[bot]" in lines[2]


@pytest.mark.parametrize("path", [".github/pull_request_template.md", "docs/PULL_REQUEST_TEMPLATE/only.md"])
async def test_the_template_of_the_base_branch_is_filled_in(tmp_path: Path, path: str) -> None:
    async with open_seam(tmp_path, a_fix(), files=FILES | {path: TEMPLATE}) as stage:
        _, body, number = await opened(stage)
        assert body.startswith(FILLED.format(number))
        assert "**⚠️ Not verified.**" in body
        assert body.rstrip().endswith("-->")


async def test_a_template_of_the_owner_is_used_unless_the_repository_has_one(tmp_path: Path) -> None:
    async with open_seam(tmp_path, a_fix()) as stage:
        shared = stage.hub.add_repo("mona/.github", owner="mona", files={"docs/pull_request_template.md": TEMPLATE})
        stage.hub.install(stage.app, shared)
        _, body, number = await opened(stage)
        assert body.startswith(FILLED.format(number))


async def test_a_private_template_of_the_owner_is_published_in_no_public_repository(tmp_path: Path) -> None:
    async with open_seam(tmp_path, a_fix()) as stage:
        files = {"pull_request_template.md": TEMPLATE}
        shared = stage.hub.add_repo("mona/.github", owner="mona", files=files, private=True)
        stage.hub.install(stage.app, shared)
        assert not stage.repo.private
        _, body, _ = await opened(stage)
        assert body.startswith("**⚠️ Not verified.**")


async def test_of_several_templates_none_is_the_default(tmp_path: Path) -> None:
    files = {f".github/PULL_REQUEST_TEMPLATE/{name}.md": TEMPLATE for name in ("one", "two")}
    async with open_seam(tmp_path, a_fix(), files=FILES | files) as stage:
        _, body, _ = await opened(stage)
        assert body.startswith("**⚠️ Not verified.**")


async def test_the_description_needs_no_template_of_the_owner(tmp_path: Path) -> None:
    async with open_seam(tmp_path, a_fix()) as stage:
        stage.hub.fail("repos.list_entries", forbidden())
        _, body, _ = await opened(stage)
        assert stage.hub.take_fault("repos.list_entries") is None
        assert body.startswith("**⚠️ Not verified.**")
