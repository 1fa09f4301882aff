"""A repository with Conventional Commits, a sign-off and a template, on real git."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import FILES, FIX, staged

TEMPLATE = """\
<!-- Please read CONTRIBUTING first -->
## Summary

## Type of change

- [ ] Bug fix
- [x] New feature
"""


async def test_a_fix_follows_the_conventions_of_its_repository(hub: LocalHub, tmp_path: Path) -> None:
    files = {
        ".github/PULL_REQUEST_TEMPLATE.md": TEMPLATE,
        ".github/codepilot.yml": "commit: {sign_off: true, trailers: ['Refs: #{number}']}\n",
    }
    async with staged(hub, tmp_path, [FIX], files=FILES | files) as stage:
        for subject in ("feat: count", "fix(log): flush", "docs: say it", "chore: tidy", "test: count"):
            hub.commit(stage.repo, {"log.txt": subject}, message=subject, author="mona", branch="main")
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        [pull] = stage.pulls()
        assert pull.title == "fix: add: it counted one too many"
        assert pull.body is not None
        assert pull.body.startswith(f"## Summary\n\nFixed `add`: it counted one too many.\n\nFixes #{issue.number}\n\n")
        assert (
            "## Type of change\n\n- [ ] Bug fix\n- [ ] New feature\n\n---\n\n**✅ Done, an ad-hoc check passed.**"
            in pull.body
        )
        [branch] = stage.bot_branches()
        subject, trailers = stage.git("log", "-1", "--format=%s%x00%(trailers)", branch).split("\0")
        assert subject == pull.title
        lines = trailers.strip().splitlines()
        assert [line.partition(":")[0] for line in lines] == ["Co-authored-by", "Refs", "Signed-off-by"]
        author = stage.git("log", "-1", "--format=%an <%ae>", branch).strip()
        assert lines[2] == f"Signed-off-by: {author}"
