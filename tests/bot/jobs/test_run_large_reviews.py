"""Reviews of pull requests that no prompt can show: the agent learns of every file, and people what it did not read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs import material
from tests.fakes.agent import Reply, read, reply, write
from tests.fakes.github import outage, refused_review
from tests.seam import FIXED_CALC, Seam, open_seam
from tests.stage import FILES

LOCK = "".join(f'"dep{number}": "1.0.{number}",\n' for number in range(1_500))
APP = "const a = 1;\n"
CONFIG = ".github/codepilot.yml"


def reviewed(*comments: object, expect: tuple[str, ...] = ()) -> Reply:
    return reply(completion=f"Looks good.\n\n```json\n{json.dumps(comments)}\n```\n", expect=expect)


def open_pull(stage: Seam, files: Mapping[str, str]) -> int:
    stage.hub.commit(stage.repo, dict(files), message="Change", author="mona", branch="topic")
    return stage.hub.open_pull(stage.repo, author="mona", head="topic", title="Change", body="As discussed.").number


async def test_the_reviewer_learns_of_the_source_behind_a_lock_file(tmp_path: Path) -> None:
    comment = {"path": "src/app.js", "line": 1, "body": "Why 1?"}
    expected = ("+const a = 1;", "package-lock.json (lock file, new, +1,500)", "names the files whose changed lines")
    async with open_seam(tmp_path, [reviewed(comment, expect=expected)]) as stage:
        number = open_pull(stage, {"package-lock.json": LOCK, "src/app.js": APP})
        end = await stage.ask(number, "/codepilot review")
        assert end.state is JobState.DONE, end
        [review] = stage.hub.reviews(stage.repo, number)
        lock = "`package-lock.json` (lock file, new, +1,500)"
        assert review.body.startswith(
            f"Looks good.\n\n**Not reviewed** (1 of 2 changed files, or parts of them): {lock}.\n"
        )
        assert [comment.path for comment in stage.hub.review_comments(stage.repo, number)] == ["src/app.js"]
        headline = "Reviewed, except for lock, generated or binary files"
        assert end.status.startswith(f"### ✅ {headline} · ")
        assert f"Not reviewed: 1 of 2 changed files, or parts of them: {lock}." in end.status
        check = stage.check_of(end.job_id)
        assert (check.conclusion, check.title) == ("success", f"{headline}: /codepilot review")


@pytest.mark.parametrize("files", [{"vendor/dep.js": LOCK, "src/app.js": APP}, {"package-lock.json": LOCK * 3}])
async def test_a_review_without_source_or_of_nothing_is_one_in_part(tmp_path: Path, files: Mapping[str, str]) -> None:
    async with open_seam(tmp_path, [reviewed()]) as stage:
        end = await stage.ask(open_pull(stage, files), "/codepilot review")
        assert end.status.startswith("### ⚠️ Reviewed in part · ")
        check = stage.check_of(end.job_id)
        assert (check.conclusion, check.title) == ("neutral", "Reviewed in part: /codepilot review")


@pytest.mark.parametrize("services", [{}, {"sessions": None}], ids=["stored session", "as in a workflow step"])
async def test_a_review_that_read_everything_is_done(tmp_path: Path, services: Mapping[str, object]) -> None:
    async with open_seam(tmp_path, [reviewed()], services=services) as stage:
        number = open_pull(stage, {"src/app.js": APP, "yarn.lock": "x\n"})
        end = await stage.ask(number, "/codepilot review")
        assert end.status.startswith("### ✅ Done · ")
        assert stage.hub.reviews(stage.repo, number)[0].body.startswith("Looks good.\n\n<!--")
        assert stage.check_of(end.job_id).conclusion == "success"


async def test_lines_that_a_later_step_read_are_no_gap(tmp_path: Path) -> None:
    steps = [reply(read("package-lock.json", first, first + 499)) for first in (1, 501, 1_001)]
    async with open_seam(tmp_path, [*steps, reviewed()], [steps[0], reviewed()]) as stage:
        number = open_pull(stage, {"package-lock.json": LOCK, "src/app.js": APP})
        assert (await stage.ask(number, "/codepilot review")).status.startswith("### ✅ Done · ")
        assert (await stage.ask(number, "/codepilot review")).status.startswith("### ✅ Reviewed, except for lock, ")


async def test_files_that_the_repository_leaves_out_are_named_and_no_gap(tmp_path: Path) -> None:
    files = {**FILES, CONFIG: "review:\n  ignore: ['package-lock.json', 'docs/']\n"}
    ignored = "Left out of reviews by the repository: docs/a.md (new, +1), package-lock.json (lock file, new, +1,500)"
    async with open_seam(tmp_path, [reviewed(expect=(ignored,))], files=files) as stage:
        number = open_pull(stage, {"package-lock.json": LOCK, "docs/a.md": "# A\n", "src/app.js": APP})
        end = await stage.ask(number, "/codepilot review")
        assert end.status.startswith("### ✅ Done · ")
        body = stage.hub.reviews(stage.repo, number)[0].body
        assert "**Left out on request** (2 files, by `review.ignore`): `docs/a.md`, `package-lock.json`." in body
        assert "Not reviewed" not in body


@pytest.mark.parametrize("command", ["ask why?", "explain", "plan"])
async def test_answers_from_a_cut_difference_say_so_in_one_line(tmp_path: Path, command: str) -> None:
    async with open_seam(tmp_path, [reply(completion="Because.", expect="+const a = 1;")]) as stage:
        number = open_pull(stage, {"package-lock.json": LOCK, "src/app.js": APP})
        await stage.ask(number, f"/codepilot {command}") if command != "plan" else await stage.pause_of(
            stage.say(number, "/codepilot plan")
        )
        [status] = stage.bot_comments(number)
        line = "- Not read: 1 of 2 changed files, or parts of them: `package-lock.json` (lock file, new, +1,500)."
        assert line in status.splitlines()


@pytest.mark.parametrize("command", ["ask why?", "test"])
async def test_no_line_is_added_where_all_was_shown_or_nothing_depends_on_it(tmp_path: Path, command: str) -> None:
    async with open_seam(tmp_path, [reply(completion="Because.")]) as stage:
        files = {"src/app.js": APP} if command != "test" else {"package-lock.json": LOCK}
        end = await stage.ask(open_pull(stage, files), f"/codepilot {command}")
        assert end.state is JobState.DONE
        assert "Not read" not in end.status


async def test_a_fix_that_continues_in_a_large_pull_request_says_so(tmp_path: Path) -> None:
    first = [reply(write("calc.py", FIXED_CALC), write("vendor/dep.js", LOCK), completion="Fixed.")]
    second = [reply(write("calc.py", f"{FIXED_CALC}# 1\n"), completion="Done.", expect="+    return a + b\n")]
    async with open_seam(tmp_path, first, second) as stage:
        number = stage.issue().number
        assert "Not read" not in (await stage.ask(number, "/codepilot fix")).status
        status = (await stage.ask(number, "/codepilot fix")).status
        line = "- Not read: 1 of 2 changed files, or parts of them: `vendor/dep.js` (vendored, new, +1,500)."
        assert line in status.splitlines()


def match_forever(_paths: object, _globs: object) -> list[int]:
    while True:
        pass


async def test_globs_that_take_too_long_leave_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_IGNORE_SECONDS", 0.1)
    monkeypatch.setattr(material, "find_ignored", match_forever)
    files = {**FILES, CONFIG: "review:\n  ignore: ['src/']\n"}
    async with open_seam(tmp_path, [reviewed(expect=("+const a = 1;",))], files=files) as stage:
        end = await stage.ask(open_pull(stage, {"src/app.js": APP}), "/codepilot review")
        assert end.status.startswith("### ✅ Done · ")


async def test_unread_files_are_named_after_a_restart_between_the_run_and_its_review(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reviewed()]) as stage:
        number = open_pull(stage, {"package-lock.json": LOCK, "src/app.js": APP})
        stage.hub.fail("reviews.create", outage(), 1)
        end = await stage.ask(number, "/codepilot review")
        assert len(stage.providers) == 1
        assert end.status.startswith("### ✅ Reviewed, except for lock, ")
        assert "**Not reviewed** (1 of 2" in stage.hub.reviews(stage.repo, number)[0].body


async def test_a_dry_review_names_unread_files(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [reviewed()]) as stage:
        end = await stage.ask(open_pull(stage, {"package-lock.json": LOCK}), "/codepilot review --dry-run")
        assert end.status.startswith("### ✅ Done · ")  # alone, it was shown
        assert "Dry run" in end.status


async def test_a_review_of_450_files_names_fifty_and_counts_all(tmp_path: Path) -> None:
    files = {f"src/mod{n % 30}/file{n}.py": "x = 1\n" * 100 for n in range(450)}
    async with open_seam(
        tmp_path, [reviewed(expect=("file449.py (new, +100)", "450 files (+45,000) changed"))]
    ) as stage:
        number = open_pull(stage, files)
        end = await stage.ask(number, "/codepilot review")
        body = stage.hub.reviews(stage.repo, number)[0].body
        count = int(body.partition("**Not reviewed** (")[2].partition(" of 450 changed files, or parts of them): `")[0])
        assert 200 < count < 400
        listed = body.partition("<details><summary>More files</summary>\n\n")[2].partition("\n\n</details>")[0]
        assert listed.count("\n- `src/mod") == 50 - 3 - 1
        assert listed.endswith(f"\n- and {count - 50} more")
        assert f"Not reviewed: {count} of 450 changed files" in end.status
        assert len(end.status) < 5_000


async def test_comments_that_github_refuses_for_another_reason_are_in_the_text(tmp_path: Path) -> None:
    comment = {"path": "src/app.js", "line": 1, "body": "Why 1?", "suggestion": "const a = 2;"}
    async with open_seam(tmp_path, [reviewed(comment)]) as stage:
        number = open_pull(stage, {"src/app.js": APP})
        stage.hub.fail("reviews.create", refused_review())
        await stage.ask(number, "/codepilot review")
        assert stage.hub.review_comments(stage.repo, number) == []
        [review] = stage.hub.reviews(stage.repo, number)
        assert "`src/app.js:1`\n\nWhy 1?\n\n```\nconst a = 2;\n```" in review.body
