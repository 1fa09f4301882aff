"""The help texts of the command line, and what it says of wrong arguments."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from bot.__main__ import app, cli
from bot.evaluation.commands import evaluate


@pytest.mark.parametrize("group", [cli, app, evaluate], ids=["codepilot", "codepilot app", "codepilot eval"])
def test_the_list_of_commands_shows_each_description_whole_on_80_columns(group: click.Group) -> None:
    context = click.Context(group, terminal_width=80, max_content_width=80)
    listed = group.get_help(context).partition("Commands:")[2]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []
    assert len(listed.strip().splitlines()) == len(group.commands)


@pytest.mark.parametrize("given", ["eve", ":read", "eve:owner"])
def test_a_person_of_the_hub_that_is_not_valid_is_named_with_what_to_write(given: str) -> None:
    done = CliRunner().invoke(cli, ["hub", "--person", given])
    assert done.exit_code == 2
    assert f"must be LOGIN:ROLE, not {given!r}; the roles are read, triage, write, maintain, admin" in done.output
