"""§20: the guide's command-line tool with sessions, as its user meets it; its simpler sibling runs with the guide."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agent_runtime import FileSession
from tests.agent_runtime.seed.parts import reply
from tests.doc_pages import ENTRY, Page

ASKS = [{"ask": "execute"}]


@pytest.fixture
def tool(tmp_path: Path) -> Page:
    page = Page.read(ENTRY.parent / "guide" / "command-line-tool.md")
    page.lay_out(tmp_path)
    agent = yaml.safe_load((tmp_path / "agent.yaml").read_text())
    agent["agent"]["permissions"] = ASKS
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    return page


def say(folder: Path, *replies: str) -> None:
    """What the model says in the program that is run next."""
    (folder / "script.yaml").write_text(yaml.safe_dump([{"reply": text} for text in replies or ("unused",)]))


def test_a_named_session_goes_on_the_next_time_and_is_listed(tool: Page, tmp_path: Path) -> None:
    say(tmp_path, reply(done="There are products."))
    first = tool.ran("cli.py", tmp_path, "--session", "shop", typed="Make products\nquit\n")
    assert "Session shop, 0 messages so far." in first
    assert "There are products." in first
    say(tmp_path, reply(done="There are orders."))
    second = tool.ran("cli.py", tmp_path, "--session", "shop", typed="Make orders\n")
    assert "Session shop, 2 messages so far." in second
    assert "The session is stored." in second
    say(tmp_path)
    assert tool.ran("cli.py", tmp_path, "--list").split() == ["shop", "4", "messages"]


def test_a_session_can_be_forgotten(tool: Page, tmp_path: Path) -> None:
    say(tmp_path, reply(done="Done."))
    assert "Forgotten." in tool.ran("cli.py", tmp_path, typed="Do it\nreset\nquit\n")
    assert not FileSession("default", session_dir=tmp_path / ".codepilot" / "sessions").exists()


def test_a_command_is_made_when_it_is_approved(tool: Page, tmp_path: Path) -> None:
    say(tmp_path, reply('execute("main", "touch made", check=True)', done="Made."))
    printed = tool.ran("cli.py", tmp_path, typed="Make it\ny\nquit\n")
    assert "$ touch made" in printed
    assert "Made." in printed
    assert (tmp_path / "workspace" / "made").exists()


def test_a_command_that_waits_when_the_tool_is_left_waits_the_next_time(tool: Page, tmp_path: Path) -> None:
    say(tmp_path, reply('execute("main", "touch made")'))
    tool.ran("cli.py", tmp_path, typed="Make it\n")
    assert not (tmp_path / "workspace" / "made").exists()
    say(tmp_path, reply(done="I leave it."))
    printed = tool.ran("cli.py", tmp_path, typed="n\nquit\n")
    assert "$ touch made" in printed
    assert "I leave it." in printed
    assert not (tmp_path / "workspace" / "made").exists()
