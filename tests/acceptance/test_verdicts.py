"""The verdict on a run, from the real ends of its commands and the real times of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from localhub import LocalHub
from tests.stage import COMPLETION, FILES, FIXED_CALC, acting, staged

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
    ("control", "head", "draft"),
    [
        (f"{run(PROVE)}\n{WRITE}\n{run(PROVE)}", "✅ Done, checks passed", False),
        (f"{WRITE}\n{run(PROVE)}\n{run('echo >> calc.py')}", "⚠️ Not verified", True),
    ],
    ids=["verified", "edited by a command afterwards"],
)
async def test_a_claim_of_the_model_is_shown_with_the_ends_of_its_checks(
    hub: LocalHub, tmp_path: Path, control: str, head: str, *, draft: bool
) -> None:
    reply = acting(control, FIXED_CALC, completion=COMPLETION, fence="python")
    async with staged(hub, tmp_path, [reply], files=PROJECT) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        [pull] = stage.pulls()
        assert end.status.startswith(f"### {head} · "), end.status
        assert pull.pull is not None
        assert pull.pull.draft == draft
        assert f"| `{PROVE}` |" in (pull.body or "")


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
