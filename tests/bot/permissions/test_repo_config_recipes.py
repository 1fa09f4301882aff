"""Recipes: what their files may say, how it is told what they may not, and what a job of one may do."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from pydantic import TypeAdapter

from agent_runtime import RunLimits
from bot.domain.access import Bounds, Level
from bot.domain.commands import Ask, Command, Fix, Options, RecipeBounds, Test
from bot.permissions.levels import Grant
from bot.permissions.permissions import grant_for
from bot.permissions.repo_config import (
    MAX_RECIPE_BYTES,
    Recipe,
    RecipeError,
    RecipeEvents,
    RepoConfig,
    RunEvents,
    parse_recipe,
)
from bot.prompt.brief import goal_for
from bot.queue.ledger import MAX_DELAY_SECONDS, next_due
from tests.builders import a_job, a_request_for
from tests.source_files import ROOT

WHOLE = b"""\
---
on:
  comment: true
  label: needs-triage
  schedule: "17 6 * * 1"
  workflow_run:
    workflows: [CI]
description: Update what is old.
publish: pull-request
level: ask
tools: [read_file, write_file, execute]
model: small
budget_usd: 0.5
max_steps: 12
---

Update the dependencies.

---
One at a time.
"""


def recipe(head: str, text: str = "Do it.") -> Recipe:
    return parse_recipe(f"---\n{head}\n---\n{text}\n".encode(), "tidy")


@pytest.mark.parametrize("data", [WHOLE, b"\xef\xbb\xbf" + WHOLE, WHOLE.replace(b"\n", b"\r\n")])
def test_every_key_and_the_text_are_read(data: bytes) -> None:
    found = parse_recipe(data, "weekly")
    assert found == Recipe(
        name="weekly",
        text="Update the dependencies.\n\n---\nOne at a time.",
        on=RecipeEvents(
            comment=True, label="needs-triage", schedule="17 6 * * 1", workflow_run=RunEvents(workflows=("CI",))
        ),
        description="Update what is old.",
        publish="pull-request",
        level="ask",
        tools=("read_file", "write_file", "execute"),
        model="small",
        budget_usd=0.5,
        max_steps=12,
    )


def test_the_heads_of_recipes_are_stored_with_what_a_repository_asks_for() -> None:
    config = RepoConfig(recipes=(parse_recipe(WHOLE, "weekly").head,), recipe_problems=("tidy.md: is broken.",))
    stored = TypeAdapter(RepoConfig)
    assert stored.validate_json(stored.dump_json(config)) == config
    assert config.handles_label("Needs-Triage")
    assert not config.handles_label("bug")


def test_the_word_comment_is_enough_to_start_a_recipe_by_a_comment() -> None:
    assert recipe("on: comment").on == RecipeEvents(comment=True)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("Do it.", "tidy.md:1: must begin with front matter"),
        ("---\non: comment\nDo it.", "tidy.md:1: must begin with front matter"),
        ("---\non: comment\n---\n \n", "tidy.md: has no text below the front matter"),
        ("---\npublish: comment\n---\nx", "tidy.md:2: `on`: must be set."),
        ("---\non: {}\n---\nx", "tidy.md:2: `on`: names no event"),
        (
            "---\non:\n  shedule: '17 6 * * 1'\n---\nx",
            "tidy.md:3: `on.shedule`: unknown key. Did you mean 'schedule'? ",
        ),
        ("---\non: comment\nbudget: 2\n---\nx", "tidy.md:3: `budget`: unknown key. Did you mean 'budget_usd'? "),
        ("---\non: {schedule: '* * * * *'}\n---\nx", "`on.schedule`: must name one minute"),
        ("---\non: {schedule: '0,30 * * * *'}\n---\nx", "`on.schedule`: must name one minute"),
        ("---\non: {schedule: '@hourly'}\n---\nx", "`on.schedule`: must be a cron expression with five fields"),
        ("---\non: {schedule: '0 0 * * * 5'}\n---\nx", "five fields, e.g. '17 6 * * 1'."),
        ("---\non: {schedule: '0 0 30 2 *'}\n---\nx", "`on.schedule`: must be a cron expression with five fields"),
        ("---\non: {schedule: 'R * * * *'}\n---\nx", "`on.schedule`: must name its times"),
        ("---\non: {schedule: '0 h(2-5) * mar fri'}\n---\nx", "`on.schedule`: must name its times"),
        ("---\non: comment\ntools: [rm]\n---\nx", "tidy.md:3: `tools[0]`: must be one of 'read_file', "),
        ("---\non: comment\npublish: pull-request\nlevel: read-only\n---\nx", "`level: read-only` cannot change files"),
        ("---\non: comment\ntools: [execute]\n---\nx", "`tools` has none that reads, and this recipe only reads"),
        ("---\non: comment\npublish: none\n---\nx", "`publish: none` is for `schedule` and `workflow_run`"),
        ("---\non: {schedule: '0 4 * * 1'}\ncomment: never\n---\nx", "write `publish: none`"),
        ("---\non: comment\ncomment: sometimes\n---\nx", "comment"),
        ("---\non: {workflow_run: {workflows: []}}\n---\nx", "`on.workflow_run.workflows`: must not be empty"),
        ("---\non: comment\n---\n" + "x" * MAX_RECIPE_BYTES, "the limit is 16,000"),
        ("---\n" * MAX_RECIPE_BYTES, "the limit is 16,000"),
    ],
)
def test_what_does_not_fit_is_told_with_file_line_and_key(data: str, problem: str) -> None:
    with pytest.raises(RecipeError) as error:
        parse_recipe(data.encode(), "tidy")
    assert problem in str(error.value)
    assert str(error.value).startswith(".github/codepilot/tidy.md")


def test_of_very_many_problems_the_first_are_told_and_the_others_counted() -> None:
    keys = "".join(f"k{number}:\n" for number in range(1_000))
    with pytest.raises(RecipeError) as caught:
        parse_recipe(f"---\non: comment\n{keys}---\nText.".encode(), "many")
    first, *_, last = lines = str(caught.value).splitlines()
    assert len(lines) < 50
    assert first.startswith(".github/codepilot/many.md:3: `k0`: unknown key.")
    assert last == f".github/codepilot/many.md: {1_001 - len(lines):,} more."


@pytest.mark.parametrize("name", ["Tidy", "../tidy", "a b", "", "a" * 41, "-a"])
def test_a_name_that_no_command_can_hold_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="the name of a recipe has at most 40"):
        parse_recipe(WHOLE, name)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("on: comment", Ask),
        ("on: comment\nlevel: read-only", Ask),
        ("on: comment\nlevel: ask", Test),
        ("on: comment\npublish: pull-request", Fix),
    ],
)
def test_what_is_published_and_the_level_say_what_kind_of_work_a_recipe_is(head: str, kind: type[Command]) -> None:
    assert isinstance(recipe(head).command(), kind)


def test_options_of_who_starts_a_recipe_only_lower_its_bounds() -> None:
    bounded = recipe("on: comment\nbudget_usd: 0.5\nmax_steps: 10")
    assert bounded.command("", Options(budget_usd=2, max_steps=40)).options == Options(budget_usd=0.5, max_steps=10)
    lower = Options(budget_usd=0.1, max_steps=4, model="small", dry_run=True)
    assert bounded.command("", lower).options == lower


@pytest.mark.parametrize("head", ["on: comment", "on: comment\nlevel: ask", "on: comment\npublish: pull-request"])
def test_the_goal_is_the_recipes_text_and_the_words_of_who_started_it(head: str) -> None:
    tidy = recipe(head, "Look at the labels.")
    goal = goal_for(replace(a_job(), recipe=tidy.bounds), tidy.command("Only the last ten."))
    assert "Look at the labels.\n\n" in goal
    assert goal.endswith("Only the last ten.")
    assert "question" not in goal
    assert "Run this project's tests" not in goal


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2026-11-23T06:16:59+00:00", "2026-11-23T06:17:00+00:00"),
        ("2026-11-23T06:30:00+00:00", "2026-11-30T06:17:00+00:00"),
        ("2026-10-24T12:00:00+00:00", "2026-10-26T06:17:00+00:00"),
    ],
)
def test_a_schedule_is_in_utc_and_late_by_a_part_of_some_minutes_of_its_own(now: str, due: str) -> None:
    after = datetime.fromisoformat(now).timestamp()
    found = {next_due("17 6 * * 1", after - MAX_DELAY_SECONDS, delay_key=str(number)) for number in range(50)}
    earliest = datetime.fromisoformat(due).timestamp()
    exact = next_due("17 6 * * 1", after, delay_key="7")
    assert exact > after
    assert exact == next_due("17 6 * * 1", exact - 1, delay_key="7")
    assert next_due("17 6 * * 1", exact, delay_key="7") == exact + 7 * 86_400
    assert len(found) > 40
    assert all((each - earliest) % (7 * 86_400) < MAX_DELAY_SECONDS for each in found)


def _granted(command: Command, recipe_bounds: RecipeBounds, **changes: Any) -> Grant:  # noqa: ANN401 - of a request
    job = replace(a_job(command=command), recipe=recipe_bounds)
    granted = grant_for(a_request_for(job, **changes))
    assert isinstance(granted, Grant)
    return granted


@pytest.mark.parametrize(
    ("operator", "asked", "level"),
    [("auto", "ask", "ask"), ("ask", "auto", "ask"), ("auto", None, "auto"), ("ask", None, "ask")],
)
def test_a_recipe_only_lowers_the_level(operator: Level, asked: Level | None, level: Level) -> None:
    bounds = Bounds(limits=RunLimits(), model="the-model", level=operator)
    assert _granted(Fix(), RecipeBounds(name="tidy", level=asked), bounds=bounds).level == level


def test_a_recipe_only_takes_tools_away() -> None:
    asked = RecipeBounds(name="tidy", tools=("read_file", "execute"))
    assert _granted(Fix(), asked).tools == ("read_file", "execute")
    bounds = Bounds(limits=RunLimits(), model="the-model", level="ask", servers=("docs",))
    assert _granted(Fix(), asked, bounds=bounds).servers == ()
    assert _granted(Fix(), RecipeBounds(name="tidy"), bounds=bounds).servers == ("docs",)
    looking = _granted(Ask(), asked)
    assert looking.tools == ("read_file",)
    assert not looking.can_execute


def test_the_examples_in_the_documentation_are_recipes() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    triage, weekly = (parse_recipe(each.partition("```")[0].encode(), "x") for each in page.split("```markdown\n")[1:])
    assert isinstance(triage.command(), Ask)
    assert triage.is_started_by("needs-triage")
    assert isinstance(weekly.command(), Fix)
    assert weekly.on.schedule == "17 5 * * 1"
