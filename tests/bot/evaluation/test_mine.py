"""Tasks mined from a history: which changes, with which texts, and without the change's own marks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.evaluation.bundle import unpack_bundle
from bot.evaluation.mine import MineOptions, MineResult, mine
from bot.evaluation.suite import SuiteError, read_refusals, read_suite
from bot.git.errors import GitError
from localhub import LocalHub
from tests.odd_histories import follow, with_message
from tests.origin import Origin

SHOP = "def total(prices):\n    return sum(prices) // 1\n"
FIXED = "def total(prices):\n    return sum(prices)\n"
TEST = "from shop import total\n\n\ndef test_half():\n    assert total([0.5]) == 0.5\n"
CHANGE = {"shop.py": FIXED, "test_shop.py": TEST}
API = "https://api.github.invalid"


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "shop")
    origin.commit({"shop.py": SHOP, ".github/codepilot.yml": "setup:\n  - echo ready\n"}, "Begin")
    return origin


async def mined(origin: Origin, tmp_path: Path, options: MineOptions | None = None) -> MineResult:
    return await mine(origin.path, tmp_path / "suite", options or MineOptions(), name="mona/shop", api_url=API)


async def test_a_commit_with_tests_becomes_a_task_whose_bundle_has_no_history_and_no_solution(
    origin: Origin, tmp_path: Path
) -> None:
    base = origin.head()
    solution = origin.commit(CHANGE, "Totals lose their halves (#12)\n\nA price of 0.5 counts as nothing.\n")
    origin.git("tag", "v1")
    origin.commit({"shop.py": FIXED + "\n\ndef later():\n    pass\n"}, "Add a function")
    result = await mined(origin, tmp_path)
    assert (len(result.tasks), result.scanned, result.without_tests, result.refusals) == (1, 3, 2, ())
    suite = read_suite(tmp_path / "suite")
    [task] = suite.tasks
    assert suite.head.repository == "mona/shop"
    assert (task.id, task.title) == ("12-totals-lose-their-halves", "Totals lose their halves")
    assert (task.base_commit, task.solution_commit, task.setup) == (base, solution, ("echo ready",))
    assert suite.read_issue(task) == "A price of 0.5 counts as nothing.\n"
    assert (b"shop.py" in suite.read_reference(task), b"test_half" in suite.read_reference(task)) == (True, False)
    assert b"+    assert total([0.5]) == 0.5" in suite.read_hidden(task)
    store = await unpack_bundle(suite.path, tmp_path / "store.git")
    assert await store.text("rev-list", "--all", "--count") == "1"
    assert await store.text("for-each-ref", "--format=%(refname)") == task.ref
    assert await store.text("ls-tree", "-r", "--name-only", task.ref) == ".github/codepilot.yml\nshop.py"
    assert await store.text("show", f"{task.ref}:shop.py") == SHOP.strip()
    for secret in (solution, origin.git("rev-parse", f"{solution}:shop.py"), origin.git("rev-parse", "HEAD:shop.py")):
        with pytest.raises(GitError):
            await store.run("cat-file", "-e", secret)


async def test_merges_are_mined_as_one_change_and_a_second_mining_keeps_edited_tasks(
    origin: Origin, tmp_path: Path
) -> None:
    origin.git("checkout", "--quiet", "-b", "halves")
    origin.commit({"shop.py": FIXED}, "wip")
    origin.commit({"test_shop.py": TEST}, "tests")
    origin.git("checkout", "--quiet", "main")
    origin.git(
        "merge",
        "--quiet",
        "--no-ff",
        "-m",
        "Merge pull request #12 from mona/halves\n\nTotals lose their halves",
        "halves",
    )
    assert [task.title for task in (await mined(origin, tmp_path)).tasks] == ["Totals lose their halves"]
    issue = tmp_path / "suite/12-totals-lose-their-halves/issue.md"
    issue.write_text("Edited.\n")
    origin.commit(
        {"shop.py": "def total(prices):\n    return sum(prices) or None\n", "test_shop.py": TEST + "\n"},
        "No prices, no total at all",
    )
    assert len((await mined(origin, tmp_path)).tasks) == 1
    suite = read_suite(tmp_path / "suite")
    assert len(suite.tasks) == 2
    assert issue.read_text() == "Edited.\n"
    store = await unpack_bundle(suite.path, tmp_path / "store.git")
    assert await store.text("rev-list", "--all", "--count") == "2"


@pytest.mark.parametrize(
    ("files", "message", "reason"),
    [
        (CHANGE, "Should return `sum(prices)` as it is", "its title has code of the change: returnsum(prices)"),
        (
            {"shop.py": "def _round_up_all():\n    pass\n", "test_shop.py": TEST},
            "Use _round_up_all for totals",
            "_round_up_all",
        ),
        (CHANGE, "Fix", "too few words"),
        (CHANGE, "Merge branch 'main' into topic of ours", "merges another branch"),
        (CHANGE, 'Revert "Round totals of all shops"', "reverts a change"),
        ({**CHANGE, "image.bin": b"\0\1"}, "Totals lose their halves", "binary"),
        ({**CHANGE, "shop.py": "x = 1\n" * 500}, "Totals lose their halves", "502 lines beside its tests"),
        ({**CHANGE, **{f"f{n}.py": "x\n" for n in range(20)}}, "Totals lose their halves", "22 files"),
    ],
)
async def test_changes_that_are_no_task_are_reported_with_the_reason(
    origin: Origin, tmp_path: Path, files: dict[str, str | bytes | None], message: str, reason: str
) -> None:
    origin.commit(files, message)
    result = await mined(origin, tmp_path)
    assert result.tasks == ()
    [refusal] = result.refusals
    assert reason in refusal.reason
    assert read_refusals(tmp_path / "suite") == [refusal]
    assert read_suite(tmp_path / "suite").tasks == ()


async def test_documents_dependencies_and_odd_commits_are_no_tasks(origin: Origin, tmp_path: Path) -> None:
    origin.commit(
        {"test_shop.py": TEST, "README.md": "# Shop\n", "requirements.txt": "six\n"}, "Describe the shop better"
    )
    follow(origin, with_message(b"Odd \xff\nencoding\0\n")(origin))
    result = await mined(origin, tmp_path)
    assert (result.tasks, result.refusals) == ((), ())


async def test_commits_of_one_pull_request_become_tasks_of_their_own(origin: Origin, tmp_path: Path) -> None:
    for number in (1, 2):
        files = {"shop.py": f"{FIXED}\n# {number}\n", "test_shop.py": f"{TEST}\n# {number}\n"}
        origin.commit(files, "Totals lose their halves (#12)")
    [last, first] = (await mined(origin, tmp_path)).tasks
    assert last.id == "12-totals-lose-their-halves"
    assert first.id == f"{last.id}-{first.solution_commit[:10]}"


async def test_the_limit_and_the_date_bound_the_tasks(origin: Origin, tmp_path: Path) -> None:
    for number in range(3):
        files: dict[str, str | bytes | None] = {
            "shop.py": f"{FIXED}\n# {number}\n",
            "test_shop.py": f"{TEST}\n# {number}\n",
        }
        origin.commit(files, f"Totals lose part {number} of halves")
    assert [task.title[17] for task in (await mined(origin, tmp_path, MineOptions(limit=2))).tasks] == ["2", "1"]
    assert (await mined(origin, tmp_path, MineOptions(since="2024-01-01"))).scanned == 0


async def test_a_folder_that_is_no_repository_and_an_unknown_revision_are_named(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SuiteError, match="is not a git repository"):
        await mine(tmp_path / "empty", tmp_path / "suite", MineOptions(), api_url=API)
    for revision in ("nothing", "--output=/tmp/a3-x"):
        with pytest.raises(SuiteError, match=f"has no commit {revision}"):
            await mined(origin, tmp_path, MineOptions(revision=revision))


async def test_a_missing_gitpython_is_named_with_the_extra(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "git", None)
    with pytest.raises(SuiteError, match=r"install git and codepilot-bot\[demo\]"):
        await mined(origin, tmp_path)


async def test_the_clone_s_own_settings_run_no_programs(origin: Origin, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    origin.commit({".gitattributes": "*.py diff=x\n"}, "Add attributes")
    origin.commit(CHANGE, "Totals lose their halves")
    for setting in (
        "core.fsmonitor",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "core.pager",
        "core.sshCommand",
    ):
        origin.git("config", setting, str(program))
    assert len((await mined(origin, tmp_path)).tasks) == 1
    assert not (tmp_path / "ran").exists()


async def test_with_a_token_the_issue_that_a_pull_request_closes_is_the_text(
    origin: Origin, tmp_path: Path, hub: LocalHub
) -> None:
    mona = hub.add_user("mona")
    repo = hub.add_repo("mona/shop", owner="mona", files={"README.md": "# Shop\n"})
    hub.open_issue(
        repo, author="mona", title="Half prices are free", body="I paid nothing.\n\nSee `return sum(prices)`."
    )
    hub.commit(repo, {"a.txt": "a\n"}, message="a", author="mona", branch="topic")
    pull = hub.open_pull(repo, author="mona", head="topic", title="Use the sum", body="Fixes #1")
    origin.commit(CHANGE, f"Use the sum of all prices (#{pull.number})")
    place = {"name": "mona/shop", "token": mona.token, "api_url": hub.api_url}
    older = await mine(origin.path, tmp_path / "older", MineOptions(), **place)
    assert [task.title for task in older.tasks] == ["Use the sum"]  # an issue that is newer than the change may tell it
    amend = (
        "git",
        "-C",
        origin.path,
        "-c",
        "user.name=M",
        "-c",
        "user.email=m@x.example",
        "commit",
        "--amend",
        "--no-edit",
    )
    await asyncio.to_thread(
        subprocess.run, amend, check=True, env={**os.environ, "GIT_COMMITTER_DATE": "2037-01-01T00:00:00Z"}
    )
    [task] = (await mine(origin.path, tmp_path / "suite", MineOptions(), **place)).tasks
    assert (task.title, task.link) == ("Half prices are free", f"{hub.url}/mona/shop/issues/1")
    assert read_suite(tmp_path / "suite").read_issue(task) == "I paid nothing.\n\n[…]\n"
