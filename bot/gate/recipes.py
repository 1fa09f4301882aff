"""Recipes: tasks as Markdown files with a YAML head, in `.github/codepilot/` on the default branch. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal, Self

from croniter import CroniterError, croniter
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from agent_runtime import SettingsError, read_settings, schema_of
from bot.domain.access import Level
from bot.domain.commands import Ask, Fix, Options, Test
from bot.domain.errors import BotError
from bot.domain.recipe import RecipeBounds, is_recipe_name, path_of
from bot.gate.repo_keys import Dollars, Label, ModelName, Steps

MAX_BYTES = 16_000
"""Of a file; less than a goal may have, so that the words of who starts a recipe have room beside its text."""
MAX_RECIPES = 20
SPREAD_SECONDS = 600

Publish = Literal["pull-request", "comment", "none"]
Conclusion = Literal["failure", "timed_out", "startup_failure"]
Tool = Literal[
    "read_file",
    "write_file",
    "list_files",
    "find",
    "semantic_search",
    "trace_callers",
    "trace_callees",
    "trace_graph",
    "execute",
    "read_output",
    "send_input",
    "terminate_terminal",
    "ask_user",
]

_DOES = frozenset({"write_file", "execute", "read_output", "send_input", "terminate_terminal", "ask_user"})
"""The tools that a run which only reads does not have."""
_HEAD = re.compile(r"---[ \t]*\n(?P<head>.*?)^---[ \t]*$(?P<text>.*)", re.DOTALL | re.MULTILINE)
_CHANCE = re.compile(r"(?<![a-z])[hr](?![a-z])", re.IGNORECASE)


def _cron(text: str) -> str:
    if _CHANCE.search(text):
        raise ValueError("must name its times: `H` (by hash) and `R` (random) are not supported")
    if len(text.split()) != 5:  # noqa: PLR2004 - croniter also takes one for seconds, and one for years
        raise ValueError("must be a cron expression with five fields, e.g. '17 6 * * 1'")
    try:
        minutes = croniter.expand(text)[0][0]
        croniter(text, 0.0).get_next(float)
    except (CroniterError, ValueError, KeyError) as error:
        raise ValueError(f"must be a cron expression with five fields, e.g. '17 6 * * 1' ({error})") from None
    if len(minutes) != 1 or minutes == ["*"]:
        raise ValueError("must name one minute, e.g. '17 6 * * 1': a recipe runs at most once an hour")
    return text


def _comment(value: object) -> object:
    """The word `comment` as the mapping that it means."""
    return {"comment": True} if value == "comment" else value


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class RunEvents(_Keys):
    """The workflow runs that start a recipe; only runs of the repository's own default branch do."""

    workflows: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...],
        Field(min_length=1, max_length=20, strict=False),
    ]
    """The names of the workflows."""
    conclusions: Annotated[tuple[Conclusion, ...], Field(min_length=1, strict=False)] = ("failure", "timed_out")
    """How they ended: `failure`, `timed_out`, `startup_failure`."""


class RecipeEvents(_Keys):
    """The events that start a recipe."""

    comment: bool = False
    """Whether people with write access start it with `/codepilot run NAME [text]`."""
    label: Label | None = None
    """The label that starts it, when somebody with write access sets it."""
    schedule: Annotated[str, StringConstraints(max_length=100), AfterValidator(_cron)] | None = None
    """A cron expression with five fields, in UTC; at most once an hour, and up to ten minutes late."""
    workflow_run: RunEvents | None = None
    """The workflow runs that start it."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self == RecipeEvents.model_construct():
            raise ValueError("names no event; write at least one of `comment`, `label`, `schedule`, `workflow_run`")
        return self


class RecipeKeys(_Keys):
    """The head of a recipe."""

    on: Annotated[RecipeEvents, BeforeValidator(_comment, json_schema_input_type=RecipeEvents | Literal["comment"])]
    """What starts it: a mapping, or the word `comment`."""
    description: Annotated[str, StringConstraints(max_length=200, strip_whitespace=True)] = ""
    """What it does, in one line, for `/codepilot help`."""
    publish: Publish = "comment"
    """How to publish the result: as a `pull-request`, as a `comment`, or not at all (`none`)."""
    level: Level | None = None
    """The highest permission level: `read-only`, `ask` or `auto`. Without it, a recipe that opens no pull request only
    reads."""
    tools: Annotated[tuple[Tool, ...], Field(min_length=1, strict=False)] | None = None
    """The only tools that the agent may use, out of those that the level allows; tools of MCP servers are excluded."""
    model: ModelName | None = None
    """One of the models that the operator offers."""
    budget_usd: Dollars | None = None
    """The maximum cost of a run in US dollars."""
    max_steps: Steps | None = None
    """The maximum number of steps in a run."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.publish == "pull-request" and self.level == "read-only":
            raise ValueError("`level: read-only` cannot change files; leave it out, or write `publish: comment`")
        only_reads = self.publish != "pull-request" and self.level in {None, "read-only"}
        if only_reads and self.tools and _DOES.issuperset(self.tools):
            raise ValueError("`tools` has none that reads, and this recipe only reads; add one, or write `level: ask`")
        if self.publish == "none" and (self.on.comment or self.on.label):
            raise ValueError("`publish: none` is for `schedule` and `workflow_run`; in a thread, write `comment`")
        return self


class Recipe(RecipeKeys):
    """A recipe of a repository."""

    name: str
    """The file's name without `.md`."""
    text: str = ""
    """The task; empty where only the head is kept."""

    @property
    def head(self) -> Recipe:
        """The same without its text."""
        return self.model_copy(update={"text": ""})

    def is_started_by(self, label: str) -> bool:
        """Whether a label starts it; GitHub does not tell upper from lower case in labels."""
        return self.on.label is not None and self.on.label.casefold() == label.casefold()

    @property
    def bounds(self) -> RecipeBounds:
        """What it takes away from the permissions of its job."""
        return RecipeBounds(name=self.name, level=self.level, tools=self.tools)

    def command(self, words: str = "", options: Options | None = None) -> Fix | Test | Ask:
        """What an agent does for it.

        Args:
            words: of who starts it.
            options: of who starts it; they can lower the recipe's bounds, and choose another model.
        """
        given = options or Options()
        made = Options(
            model=given.model or self.model,
            budget_usd=min(filter(None, (given.budget_usd, self.budget_usd)), default=None),
            max_steps=min(filter(None, (given.max_steps, self.max_steps)), default=None),
            dry_run=given.dry_run,
        )
        goal = f"{self.text}\n\nWho started this run adds:\n\n{words}" if words else self.text
        kind = Fix if self.publish == "pull-request" else Test if self.level in {"ask", "auto"} else Ask
        return kind(goal=goal, options=made)


class RecipeError(BotError):
    """A recipe's file does not fit; the text names file, line and key of all that is wrong."""


def parse_recipe(data: bytes, name: str) -> Recipe:
    """Read a recipe's file.

    Args:
        data: its content, as the default branch has it.
        name: the file's name without `.md`.

    Raises:
        RecipeError: it is too large, no UTF-8, has no head or no text, or a head with keys or values that do not fit.
    """
    source = path_of(name)
    if not is_recipe_name(name):
        raise RecipeError(
            f"{source}: the name of a recipe has at most 40 lower-case letters, digits and `-`, e.g. `weekly.md`."
        )
    if len(data) > MAX_BYTES:
        raise too_large(name, len(data))
    try:
        content = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8.") from error
    found = _HEAD.fullmatch(content)
    if found is None:
        raise RecipeError(
            f"{source}:1: must begin with front matter: a line `---`, keys such as `on: comment`, a line `---`."
        )
    try:
        # The line of the first `---` is kept, so that the numbers of lines are the file's.
        keys = read_settings(f"\n{found['head']}", RecipeKeys, source=source)
    except SettingsError as error:
        raise RecipeError(str(error)) from error
    if not (text := found["text"].strip()):
        raise RecipeError(f"{source}: has no text below the front matter; write there what the agent should do.")
    return Recipe.model_construct(**dict(keys), name=name, text=text)


def next_due(cron: str, after: float, *, spread_by: str) -> float:
    """When a schedule is due next, in seconds since the epoch.

    Args:
        cron: in UTC.
        after: seconds since the epoch.
        spread_by: names the schedule. Each is late by its own part of some minutes, so that all repositories that chose
            the same time do not start at once.
    """
    late = int.from_bytes(hashlib.sha256(spread_by.encode()).digest()[:4], "big") % SPREAD_SECONDS
    return float(croniter(cron, after - late).get_next(float)) + late


def too_large(name: str, size: int) -> RecipeError:
    """The error of a recipe's file that has too many bytes."""
    return RecipeError(f"{path_of(name)}: has {size:,} bytes; the limit is {MAX_BYTES:,}.")


def recipe_schema() -> dict[str, Any]:
    """The shape of the head as JSON schema, for editors."""
    return schema_of(RecipeKeys, "Codepilot recipe")
