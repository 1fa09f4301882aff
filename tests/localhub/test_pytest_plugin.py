"""The hub in a test without an event loop, as other projects use it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from github import Auth, Github

from localhub import LocalHub
from tests.source_files import ROOT
from tests.waiting import until


def test_a_test_without_an_event_loop_has_a_hub(hub: LocalHub) -> None:
    mona = hub.add_user("mona")
    hub.add_repo("mona/widgets", owner="mona", files={"README.md": "# Widgets\n"})
    with Github(auth=Auth.Token(mona.token), base_url=hub.api_url) as github:
        issue = github.get_repo("mona/widgets").create_issue("It breaks")
    assert hub.issue(hub.repo("mona/widgets"), issue.number).title == "It breaks"


def test_a_delivery_can_be_repeated_from_any_thread(hub: LocalHub) -> None:
    hub.add_app("bot", webhook_url="http://127.0.0.1:9/hook")
    [ping] = hub.deliveries
    assert hub.redeliver(ping.guid).guid == ping.guid
    until(lambda: all(each.status.startswith("failed") for each in hub.deliveries))


def test_a_hub_that_cannot_start_leaves_no_thread(hub: LocalHub, tmp_path: Path) -> None:
    port = int(hub.url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"), LocalHub(tmp_path / "second", port=port):
        pass


@pytest.mark.slow
def test_the_examples_of_the_readme_work_in_another_project(tmp_path: Path) -> None:
    readme = (ROOT / "localhub" / "README.md").read_text(encoding="utf-8")
    conftest, test, script = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    project = tmp_path / "project"
    project.mkdir()
    (project / "conftest.py").write_text(conftest)
    (project / "test_bot.py").write_text(test)
    (project / "script.py").write_text(script)
    subprocess.run(["git", "init", "--quiet", tmp_path / "widgets"], check=True)
    for argv in (["-m", "pytest", "-p", "no:cacheprovider", "--rootdir=."], ["script.py"]):
        done = subprocess.run([sys.executable, *argv], cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
