"""What a maintainer is told of a run whose model says that all is well."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.jobs.record import StoredRecord
from bot.publishing.checks import Verdict
from localhub import LocalHub
from tests.stage import BUG, COMPLETION, FILES, FIXED_CALC, acting, staged

PROVE = "python3 -m unittest -q"
TESTS = """\
import unittest, calc

class T(unittest.TestCase):
    def test(self):
        self.assertEqual(2, calc.add(1, 1))
"""
PROJECT = {**FILES, "test_calc.py": TESTS}
WRITE = 'write_file("calc.py")'


def run(command: str) -> str:
    return f'print(execute("main", {command!r})["exit_code"])'


@pytest.mark.parametrize(
    ("control", "text", "head", "draft"),
    [
        (f"{run(PROVE)}\n{WRITE}\n{run(PROVE)}", FIXED_CALC, "✅ Done, checks passed", False),
        (f"{WRITE}\n{run(PROVE)}", BUG + "# fixed\n", "❌ Checks fail", True),
        (f"{run(PROVE)}\n{WRITE}", FIXED_CALC, "⚠️ Not verified", True),
        (f"{run(PROVE)}\n{run('echo >> calc.py')}", "", "⚠️ Not verified", True),
        (f"{WRITE}\n{run(PROVE)}\n{run('echo >> calc.py')}", FIXED_CALC, "⚠️ Not verified", True),
        (run(PROVE), "", "⚪ Nothing changed", None),
    ],
    ids=["verified", "red", "unverified", "edited by a command", "edited by a command afterwards", "unchanged"],
)
async def test_a_claim_is_told_with_what_the_host_saw(
    hub: LocalHub, tmp_path: Path, control: str, text: str, head: str, *, draft: bool | None
) -> None:
    reply = acting(control, *filter(None, [text]), completion=COMPLETION, fence="python")
    async with staged(hub, tmp_path, [reply], files=PROJECT) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        pulls = [each.pull for each in stage.pulls()]
        bodies = [each.body or "" for each in stage.pulls()]
        record = await StoredRecord(stage.queue, end.job_id).read()
        [check] = hub.check_runs(stage.repo)
    assert end.status.startswith(f"### {head} · "), end.status
    assert [each.draft for each in pulls if each] == ([] if draft is None else [draft])
    assert record.verdict in set(Verdict)
    assert check.title == f"{head.partition(' ')[2]}: /codepilot fix"
    if draft is not None:
        assert bodies[0].startswith(f"**{head}.**")
        assert f"| `{PROVE}` |" in bodies[0]


async def test_a_setup_that_failed_for_want_of_a_network_names_the_setting(hub: LocalHub, tmp_path: Path) -> None:
    config = "setup:\n  - python3 -c 'import socket; socket.getaddrinfo(\"pypi.org\", 443)'\nnetwork: [registries]\n"
    files = {**PROJECT, ".github/codepilot.yml": config}
    reply = acting(f"{WRITE}\n{run(PROVE)}", FIXED_CALC, completion=COMPLETION, fence="python")
    async with staged(hub, tmp_path, [reply], files=files) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        [pull] = stage.pulls()
    assert end.status.startswith("### ⚠️ Setup failed · ")
    assert "The operator allows it with `CODEPILOT_SETUP_NETWORK=registries`." in end.status
    assert "crates" not in end.status
    assert pull.pull is not None
    assert pull.pull.draft
