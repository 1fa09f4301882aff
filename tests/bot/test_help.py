"""The help texts of the command line."""

from __future__ import annotations

import click
import pytest

from bot.__main__ import app, cli


@pytest.mark.parametrize("group", [cli, app], ids=["codepilot", "codepilot app"])
def test_the_list_of_commands_shows_each_description_whole_on_80_columns(group: click.Group) -> None:
    context = click.Context(group, terminal_width=80, max_content_width=80)
    listed = group.get_help(context).partition("Commands:")[2]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []
    assert len(listed.strip().splitlines()) == len(group.commands)
