"""The configuration of a repository: `.github/codepilot.yml` and recipes.

Start with `parse_config` and `FileKeys`. The docstrings of `FileKeys` and `RecipeKeys` are the reference for users.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import permutations
from typing import Annotated, Any, Literal, Self, get_args

from croniter import CroniterError, croniter
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from agent_runtime import Network, Rule, SettingsError, read_settings, schema_of
from bot.domain.access import Level
from bot.domain.commands import (
    Ask,
    CommentMode,
    Fix,
    Options,
    RecipeBounds,
    ReviewEvent,
    Test,
    is_recipe_name,
    is_safe_branch,
    recipe_path,
)
from bot.domain.errors import BotError
from bot.permissions.actions import ActionsKeys
from bot.permissions.personas import Persona

PATH = ".github/codepilot.yml"
OTHER_SPELLING = ".github/codepilot.yaml"
ORGANISATION_PATH = "codepilot.yml"
"""Defaults of an organisation, in its repository `.github`."""
MAX_BYTES = 64 * 1024

MAX_RECIPE_BYTES = 16_000
"""Less than a goal may have, to leave room for the user's text."""
MAX_RECIPES = 20


class RepoConfigError(BotError):
    """The configuration is not valid; `reason` has file, line and key of each problem."""

    def __init__(self, problems: str, *, source: str = PATH) -> None:
        listed = "\n".join(f"- {problem}" for problem in problems.splitlines())
        branch = "default" if ":" in source else "base"
        self.reason = f"This repository's configuration is not valid:\n\n{listed}"
        self.remedy = f"Fix `{source}` on the {branch} branch, then give the command again."
        super().__init__(f"{self.reason}\n\n{self.remedy}")


class RecipeError(BotError):
    pass


BareVerb = Literal["fix", "resolve", "review", "describe", "explain", "plan", "ask", "test"]
FixCi = Literal["pull-requests", "default-branch"]
Notify = Literal["waiting", "done"]

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

VERBS: tuple[str, ...] = get_args(BareVerb)

_MAX_COMMANDS, _MAX_PATHS, _MAX_HOSTS, _MAX_PATTERNS, _MAX_TRIGGERS, _MAX_SERVERS = 20, 20, 50, 100, 5, 20
_MAX_TRAILERS = 5

_TRIGGER = re.compile(r"[/@][A-Za-z0-9][A-Za-z0-9_-]{0,38}")
_BRANCH_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,58}[/-]")
_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,39}): \S")
_OWN_NUMBER = re.compile(r"(#|\bGH-)\{number\}")
_ACTIVE = re.compile(r"@|/[\w.-]+#|#\d|\bGH-\d|://|\bwww\.", re.IGNORECASE)
_LANGUAGE = re.compile(r"[^\W\d_][\w ()-]{1,39}")

_ACTING_TOOLS = frozenset({"write_file", "execute", "read_output", "send_input", "terminate_terminal", "ask_user"})
"""Tools that a read-only run does not have."""
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?P<head>.*?)^---[ \t]*$(?P<text>.*)", re.DOTALL | re.MULTILINE)
_RANDOM_FIELD = re.compile(r"(?<![a-z])[hr](?![a-z])", re.IGNORECASE)


def trigger_word(text: str) -> str:
    """Validate a trigger word.

    Raises:
        ValueError: it has another form.
    """
    if not _TRIGGER.fullmatch(text):
        raise ValueError(f"must be / or @ and a word of letters, digits, - and _, not {text!r}")
    return text


def command_pattern(text: str) -> str:
    """Validate a pattern of commands.

    Raises:
        ValueError: it is not valid, or matches any program.
    """
    try:
        Rule(decision="allow", tool="execute", commands=(text,))
    except SettingsError as error:
        raise ValueError(f"is not a valid command pattern: {error}") from None
    if "*" in text.split(maxsplit=1)[0]:
        raise ValueError(f"must name the program, e.g. 'npm test *', not {text!r}; the level `auto` allows any command")
    return text


def _glob(text: str) -> str:
    try:
        Rule(decision="ask", tool="write_file", paths=(text,))
    except SettingsError as error:
        raise ValueError(str(error)) from None
    if text.startswith("/"):
        raise ValueError(f"is relative to the repository's root; write '{text.lstrip('/')}'")
    return text


def _as_list(value: object) -> object:
    """Convert a scalar to a list. YAML 1.1 reads an unquoted `off` as false."""
    values = value if isinstance(value, list) else [value]
    texts = ["off" if item is False else item for item in values]
    return value if value is None or not all(isinstance(item, str) for item in texts) else texts


def _split_commas(value: object) -> object:
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


def _notify_words(value: object) -> object:
    words = [] if value in ("never", ["never"]) else _split_commas(value)
    if isinstance(words, list) and any(word not in get_args(Notify) for word in words):
        raise ValueError("must be `waiting`, `done` or both, or else `never` alone")
    return words


def _command(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which a shell cannot accept")
    return text


def _cache_path(text: str) -> str:
    path = text.removesuffix("/")
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or any(mark in path for mark in "*?[~$"):
        raise ValueError("must be a plain path, without wildcards, variables or `~`")
    if any(part in {"", ".", ".."} for part in parts):
        raise ValueError("must be a path below the repository's root, without `.` and `..`, e.g. `node_modules`")
    if any(part.casefold() == ".git" for part in parts):
        raise ValueError("must not be git's own")
    return path


def parse_branch_prefix(text: str) -> str:
    """Validate the beginning of the names of branches.

    Raises:
        ValueError: it has another form.
    """
    if not _BRANCH_PREFIX.fullmatch(text) or not is_safe_branch(f"{text}x") or text.startswith("refs/"):
        raise ValueError(
            f"must be at most 60 letters, digits and ./_- with / or - at its end, such as bots/codepilot/, not {text!r}"
        )
    return text


def _branch(text: str) -> str:
    if not is_safe_branch(text):
        raise ValueError("must be a branch name, e.g. `develop`")
    return text


def _language(text: str) -> str:
    if not _LANGUAGE.fullmatch(text):
        raise ValueError("must be the name of a language, e.g. `German` or `pt-BR`")
    return text


def _label(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("must be a label name on one line, without surrounding spaces")
    return text


def _title(text: str) -> str:
    if text in {"auto", "plain", "conventional"}:
        return text
    if "{summary}" not in text:
        raise ValueError("must be `auto`, `plain`, `conventional`, or a template with `{summary}`")
    return _message_line(text, ("{summary}", "{type}", "{number}"))


def _trailer(text: str) -> str:
    key = _TRAILER.match(text)
    if key is None:
        raise ValueError("must be a key and a value, e.g. `Refs: #{number}`")
    if key[1].casefold().endswith("-by"):
        raise ValueError(f"cannot be `{key[1]}`, which only a person can state; see `co_author` and `sign_off`")
    return _message_line(text, ("{number}",))


def _message_line(text: str, fields: tuple[str, ...]) -> str:
    rest = _OWN_NUMBER.sub(r"\1", text)
    for field in fields:
        rest = rest.replace(field, "1")
    if set(rest) & set("{}"):
        raise ValueError(f"has a field that does not exist; the fields are {', '.join(fields)}")
    if not text.isprintable() or text != text.strip() or _ACTIVE.search(rest):
        raise ValueError("must be one line without mentions, addresses, and numbers of other issues")
    return text


def _cron(text: str) -> str:
    if _RANDOM_FIELD.search(text):
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
    return {"comment": True} if value == "comment" else value


_Trailer = Annotated[str, StringConstraints(max_length=200), AfterValidator(_trailer)]
_Command = Annotated[
    str, StringConstraints(min_length=1, max_length=4_000, strip_whitespace=True), AfterValidator(_command)
]
_Path = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_cache_path)]
_Server = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,29}$")]
_Hosts = Annotated[tuple[str, ...], Field(max_length=_MAX_HOSTS, strict=False)]
_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(command_pattern)]
_Glob = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_glob)]
_Trigger = Annotated[str, AfterValidator(trigger_word)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Dollars = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
Steps = Annotated[int, Field(ge=1, le=1_000)]
# GitHub's own bound for a label's name: https://docs.github.com/en/rest/issues/labels
Label = Annotated[str, StringConstraints(min_length=1, max_length=50), AfterValidator(_label)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class Overrides(_Model):
    """Defaults for one verb, used unless the command sets them."""

    model: ModelName | None = None
    """One of the models that the operator offers."""
    budget_usd: Dollars | None = None
    """The maximum cost of a run in US dollars."""
    max_steps: Steps | None = None
    """The maximum number of steps in a run."""


class VerbsKeys(_Model):
    """Defaults for each verb that starts an agent."""

    fix: Overrides = Field(default_factory=Overrides)
    resolve: Overrides = Field(default_factory=Overrides)
    review: Overrides = Field(default_factory=Overrides)
    describe: Overrides = Field(default_factory=Overrides)
    explain: Overrides = Field(default_factory=Overrides)
    plan: Overrides = Field(default_factory=Overrides)
    ask: Overrides = Field(default_factory=Overrides)
    test: Overrides = Field(default_factory=Overrides)


class LabelNames(_Model):
    """The names of the labels."""

    model_config = ConfigDict(validate_default=True)  # a name may equal the default of another label

    start: Label | None = None
    """Starts a run, in addition to the operator's."""
    read_only: Label = "codepilot:read-only"
    """Sets the level `read-only`."""
    ask: Label = "codepilot:ask"
    """Sets the level `ask`."""
    auto: Label = "codepilot:auto"
    """Sets the level `auto`."""
    fix_ci: Label = "codepilot:fix-ci"
    """Starts a fix when checks of the pull request fail."""

    @field_validator("*")
    @classmethod
    def _check_distinct(cls, name: str | None, info: ValidationInfo) -> str | None:
        # `info.data` has the fields that precede this one.
        if name is not None and name.casefold() in (earlier.casefold() for earlier in info.data.values() if earlier):
            raise ValueError(f"two labels have the same name, {name!r}; GitHub ignores case in label names")
        return name

    def is_start(self, name: str) -> bool:
        return self.start is not None and name.casefold() == self.start.casefold()

    def is_fix_ci(self, name: str) -> bool:
        return name.casefold() == self.fix_ci.casefold()

    def is_known(self, name: str) -> bool:
        return self.is_start(name) or self.is_fix_ci(name) or self.level_of(name) is not None

    def key_of(self, name: str) -> str | None:
        keys = ("read_only", "ask", "auto", "fix_ci")
        return next((key for key in keys if getattr(self, key).casefold() == name.casefold()), None)

    @property
    def level_labels(self) -> frozenset[str]:
        """The labels that set a level, in lower case."""
        return frozenset(name.casefold() for name in (self.read_only, self.ask, self.auto))

    def level_of(self, name: str) -> Level | None:
        """Return the level of a label, ignoring case as GitHub does."""
        levels: dict[str, Level] = {self.read_only: "read-only", self.ask: "ask", self.auto: "auto"}
        return {label.casefold(): level for label, level in levels.items()}.get(name.casefold())


class ReviewKeys(_Model):
    """Reviews of pull requests."""

    ignore: Annotated[tuple[_Glob, ...], Field(max_length=_MAX_PATTERNS, strict=False)] = ()
    """Files to leave out, e.g. `package-lock.json` or `docs/`; the review names them."""


class CommitKeys(_Model):
    """Titles and trailers of commits."""

    title: Annotated[str, StringConstraints(min_length=1, max_length=60), AfterValidator(_title)] = "auto"
    """The titles of commits and pull requests: `plain`, `conventional` (`fix(api): …`), a template with `{summary}`,
    and perhaps `{type}` and the thread's `{number}`, or `auto`: as most of the last 50 commits on the base branch."""
    trailers: Annotated[tuple[_Trailer, ...], Field(max_length=_MAX_TRAILERS, strict=False)] = ()
    """Lines at the end of commit messages, such as `Refs: #{number}`."""
    co_author: bool = True
    """Whether the person who gave the command is a co-author."""
    sign_off: bool = False
    """Whether to add `Signed-off-by` with the bot's own account."""


class SpendKeys(_Model):
    """Caps of the repository's spending."""

    day_usd: Dollars | None = None
    """The cap of the repository's spending in a UTC day, in US dollars; cannot exceed the operator's."""
    month_usd: Dollars | None = None
    """The same in a UTC month."""


class FileKeys(_Model):
    """A repository's configuration of Codepilot."""

    setup: Annotated[tuple[_Command, ...], Field(max_length=_MAX_COMMANDS, strict=False)] = ()
    """Bash commands that prepare the workspace before the agent starts."""
    cache: Annotated[tuple[_Path, ...], Field(max_length=_MAX_PATHS, strict=False)] = ()
    """Paths that these commands create and that are cached for later jobs."""
    network: Annotated[_Hosts | None, BeforeValidator(_as_list, json_schema_input_type=str | list[str])] = None
    """The hosts that commands may reach at most: `off`, `registries`, hosts."""
    mcp: Annotated[tuple[_Server, ...] | None, Field(max_length=_MAX_SERVERS, strict=False)] = None
    """The names of the operator's MCP servers to use; by default all of them."""
    instructions: Annotated[str, StringConstraints(max_length=8_000, strip_whitespace=True)] = ""
    """Instructions for the agent."""
    triggers: Annotated[tuple[_Trigger, ...], Field(min_length=1, max_length=_MAX_TRIGGERS, strict=False)] | None = None
    """The operator's trigger words that are accepted here; by default all of them."""
    bare_issue: Literal["fix", "explain", "plan", "ask", "test"] = "fix"
    """The command for text without a command word, in an issue."""
    bare_pull: BareVerb = "ask"
    """The command for text without a command word, in a pull request."""
    level: Level | None = None
    """The permission level: `read-only`, `ask` or `auto`; by default the operator's."""
    allow: Annotated[tuple[_Pattern, ...], Field(max_length=_MAX_PATTERNS, strict=False)] = ()
    """Patterns of commands that need no approval at the level `ask` with a network, in addition to the known ones."""
    protected: Annotated[tuple[_Glob, ...], Field(max_length=_MAX_PATTERNS, strict=False)] = ()
    """Files that are published only with approval, in addition to the built-in ones."""
    model: ModelName | None = None
    """One of the models that the operator offers."""
    budget_usd: Dollars | None = None
    """The maximum cost of a run in US dollars."""
    max_steps: Steps | None = None
    """The maximum number of steps in a run."""
    spend: SpendKeys = Field(default_factory=SpendKeys)
    max_candidates: Annotated[int, Field(ge=1, le=8)] | None = None
    """The maximum of `--candidates`; cannot exceed the operator's."""
    verbs: VerbsKeys = Field(default_factory=VerbsKeys)
    labels: LabelNames = Field(default_factory=LabelNames)
    commit: CommitKeys = Field(default_factory=CommitKeys)
    language: Annotated[str, AfterValidator(_language)] | None = None
    """The language of the agent's answers; by default that of the command."""
    review_on: Annotated[
        tuple[ReviewEvent, ...],
        Field(strict=False),
        BeforeValidator(_split_commas, json_schema_input_type=list[ReviewEvent] | str),
    ] = ()
    """When to review a pull request of somebody with write access without a command: `opened`, `ready`, `push`."""
    review: ReviewKeys = Field(default_factory=ReviewKeys)
    """Reviews of pull requests: `ignore` has globs of files to leave out."""
    fix_ci: Annotated[
        tuple[FixCi, ...], Field(strict=False), BeforeValidator(_split_commas, json_schema_input_type=list[FixCi] | str)
    ] = ()
    """Where failing checks start a fix: `pull-requests`, `default-branch`."""
    notify: Annotated[
        tuple[Notify, ...],
        Field(strict=False),
        BeforeValidator(_notify_words, json_schema_input_type=list[Notify] | str),
    ] = ("waiting", "done")
    """When to mention the person who gave the command in a separate short comment: `waiting` when a run begins to wait
    for somebody, `done` when it ends after more than two minutes; or `never`. Edited comments notify nobody."""
    resolve_own_conflicts: bool = False
    """Whether to `resolve` the bot's own pull requests that conflict with their base branch after another pull request
    was merged."""
    rerun_failed_jobs: bool = False
    """Whether to run a workflow's failed jobs once more before a fix is started."""
    wip_branches: bool = True
    """Whether to push unfinished work to a separate branch."""
    branch_prefix: Annotated[str, AfterValidator(parse_branch_prefix)] | None = None
    """The beginning of the names of the bot's branches, ending in `/` or `-`; by default the operator's."""
    base: Annotated[str, AfterValidator(_branch)] | None = None
    """The branch to open pull requests against; by default the default branch."""
    actions: ActionsKeys = Field(default_factory=ActionsKeys)
    """The actions on GitHub that the agent may propose in all runs but those of recipes, by kind."""

    @field_validator("cache")
    @classmethod
    def _check_cache(cls, paths: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if paths and info.data.get("setup") == ():
            raise ValueError("caches what `setup` creates, but there is no `setup`")
        for path, parent in permutations(paths, 2):
            if f"{path}/".startswith(f"{parent}/"):
                raise ValueError(f"`{path}` is inside `{parent}`, which is cached as a whole; leave it out")
        return paths

    @field_validator("network")
    @classmethod
    def _check_network(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if words is not None:
            Network.of(*words)
        return words


class RunEvents(_Model):
    """The workflow runs that start a recipe; only runs of the repository's own default branch do."""

    workflows: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...],
        Field(min_length=1, max_length=20, strict=False),
    ]
    """The names of the workflows."""
    conclusions: Annotated[tuple[Conclusion, ...], Field(min_length=1, strict=False)] = ("failure", "timed_out")
    """How they ended: `failure`, `timed_out`, `startup_failure`."""


class RecipeEvents(_Model):
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
    def _check_not_empty(self) -> Self:
        if self == RecipeEvents.model_construct():
            raise ValueError("names no event; write at least one of `comment`, `label`, `schedule`, `workflow_run`")
        return self


class RecipeKeys(_Model):
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
    comment: CommentMode | None = None
    """What the thread is told: `always`; `on-change`, a comment only if something was published, or the job failed or
    waits for a person; `never`, no comment and no reaction. By default `always`."""
    actions: ActionsKeys = Field(default_factory=ActionsKeys)
    """The actions on GitHub that the agent may propose, by kind; those of the repository's file do not apply."""

    @model_validator(mode="after")
    def _check_level(self) -> Self:
        if self.publish == "pull-request" and self.level == "read-only":
            raise ValueError("`level: read-only` cannot change files; leave it out, or write `publish: comment`")
        only_reads = self.publish != "pull-request" and self.level in {None, "read-only"}
        if only_reads and self.tools and _ACTING_TOOLS.issuperset(self.tools):
            raise ValueError("`tools` has none that reads, and this recipe only reads; add one, or write `level: ask`")
        if self.publish == "none" and (self.on.comment or self.on.label):
            remedy = "in a thread, write `publish: comment`, and `comment: never` if nothing is to be said there"
            raise ValueError(f"`publish: none` is for `schedule` and `workflow_run`; {remedy}")
        if self.publish == "comment" and self.comment == "never" and (self.on.schedule or self.on.workflow_run):
            raise ValueError("`comment: never` leaves nothing of a report without a thread; write `publish: none`")
        return self


class Recipe(RecipeKeys):
    name: str
    """The file's name without `.md`."""
    text: str = ""
    """The task; empty where only the head is kept."""

    @property
    def head(self) -> Recipe:
        """The recipe without its text."""
        return self.model_copy(update={"text": ""})

    def is_started_by(self, label: str) -> bool:
        return self.on.label is not None and self.on.label.casefold() == label.casefold()

    @property
    def bounds(self) -> RecipeBounds:
        """Restrictions of the job's permissions."""
        return RecipeBounds(
            name=self.name,
            level=self.level,
            tools=self.tools,
            comment=self.comment,
            actions=self.actions.declarations,
        )

    def command(self, words: str = "", options: Options | None = None) -> Fix | Test | Ask:
        """Return the agent's command. The user's options lower the recipe's bounds or choose another model."""
        requested = options or Options()
        merged = Options(
            model=requested.model or self.model,
            budget_usd=min(filter(None, (requested.budget_usd, self.budget_usd)), default=None),
            max_steps=min(filter(None, (requested.max_steps, self.max_steps)), default=None),
            dry_run=requested.dry_run,
        )
        goal = f"{self.text}\n\nWho started this run adds:\n\n{words}" if words else self.text
        kind = Fix if self.publish == "pull-request" else Test if self.level in {"ask", "auto"} else Ask
        return kind(goal=goal, options=merged)


class RepoConfig(FileKeys):
    """The file's keys with defaults, and the repository's recipes."""

    highest: Literal["ask", "auto"] = "auto"
    """Upper bound for labels."""
    path: str = PATH
    recipes: Annotated[tuple[Recipe, ...], Field(strict=False)] = ()
    """Recipes without texts; empty if not loaded."""
    persona: Persona | None = None
    """The one that the command names."""
    recipe_problems: Annotated[tuple[str, ...], Field(strict=False)] = ()

    def handles_label(self, name: str) -> bool:
        return self.labels.is_known(name) or any(recipe.is_started_by(name) for recipe in self.recipes)

    def with_recipes(self, recipes: Sequence[Recipe], problems: Sequence[str]) -> RepoConfig:
        """Add recipes and report labels with two meanings."""
        kept, conflicts = list[Recipe](), list(problems)
        for recipe in recipes:
            key = self.labels.key_of(recipe.on.label) if recipe.on.label else None
            if key is None:
                kept.append(recipe)
                continue
            unset = "" if key in self.labels.model_fields_set else ", by default"
            conflicts.append(
                f"{recipe_path(recipe.name)}: `on.label`: {recipe.on.label!r} is `labels.{key}` of {self.path} "
                f"already"
                f"{unset}; choose another label in one of the two files."
            )
        return self.model_copy(update={"recipes": tuple(kept), "recipe_problems": tuple(conflicts)})

    def start_labels(self, operators: str) -> frozenset[str]:
        """Return the labels that start a run, in lower case; the operator's does so besides the file's."""
        names = (operators, self.labels.start, self.labels.fix_ci, *(recipe.on.label for recipe in self.recipes))
        return frozenset(name.casefold() for name in names if name)

    @property
    def follows_runs(self) -> bool:
        return any(recipe.on.workflow_run for recipe in self.recipes)

    def is_review_enabled(self, on: ReviewEvent, default: frozenset[ReviewEvent] = frozenset()) -> bool:
        """Whether an event starts a review. A draft is new to its reviewers when it becomes ready."""
        events = self.review_on if "review_on" in self.model_fields_set else default
        return on in events or (on == "ready" and "opened" in events)

    def overrides(self, verb: str) -> Overrides:
        of_verb: Overrides = getattr(self.verbs, verb) if verb in VERBS else Overrides()
        return _overlay(of_verb, Overrides(model=self.model, budget_usd=self.budget_usd, max_steps=self.max_steps))


def parse_config(data: bytes, *, source: str = PATH) -> RepoConfig:
    """Parse the configuration file.

    Raises:
        RepoConfigError: it is too large, not UTF-8 or YAML, or has unknown keys or wrong values.
    """
    if len(data) > MAX_BYTES:
        raise RepoConfigError(f"{source}: has {len(data):,} bytes; the limit is {MAX_BYTES:,}.", source=source)
    try:
        file = read_settings(data.decode("utf-8-sig"), FileKeys, source=source)
    except UnicodeDecodeError as error:
        raise RepoConfigError(
            f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8.", source=source
        ) from error
    except SettingsError as error:
        raise RepoConfigError(str(error), source=source) from error
    return RepoConfig.model_construct(set(file.model_fields_set), **dict(file))


def fallback_config() -> RepoConfig:
    """Return strict settings in place of an invalid file."""
    strict = {"setup", "cache", "network", "mcp", "allow", "review_on", "fix_ci", "rerun_failed_jobs", "actions"}
    return RepoConfig.model_construct(strict, network=("off",), mcp=(), highest="ask")


def merge_configs(organisation: RepoConfig, repository: RepoConfig) -> RepoConfig:
    """Merge a repository's keys over its organisation's; `protected` adds up."""
    overridden = repository.model_fields_set | ({"cache"} if "setup" in repository.model_fields_set else set())
    inherited = {name: getattr(organisation, name) for name in organisation.model_fields_set - overridden}
    labels = {name: getattr(repository.labels, name) for name in repository.labels.model_fields_set}
    commit = {name: getattr(repository.commit, name) for name in repository.commit.model_fields_set}
    spend = {name: getattr(repository.spend, name) for name in repository.spend.model_fields_set}
    verbs = {verb: _overlay(getattr(repository.verbs, verb), getattr(organisation.verbs, verb)) for verb in VERBS}
    return repository.model_copy(
        update=inherited
        | {
            "protected": tuple(dict.fromkeys((*organisation.protected, *repository.protected))),
            "verbs": VerbsKeys(**verbs),
            "labels": organisation.labels.model_copy(update=labels),
            "commit": organisation.commit.model_copy(update=commit),
            "spend": organisation.spend.model_copy(update=spend),
            "highest": "auto" if organisation.highest == repository.highest == "auto" else "ask",
        }
    )


def _overlay(first: Overrides, second: Overrides) -> Overrides:
    return second.model_copy(update={name: value for name, value in first if value is not None})


def cache_conflict(cache: Sequence[str], committed: Collection[str], *, config_path: str = PATH) -> str | None:
    """Return an error if a `cache` path overlaps committed files."""
    parts = {path: path.split("/") for path in cache}
    # Each path and its parents.
    prefixes = {path: {"/".join(names[:count]) for count in range(1, len(names) + 1)} for path, names in parts.items()}
    cached, directories = set[str]().union(*prefixes.values()), tuple(f"{path}/" for path in cache)
    conflict = min((file for file in committed if file in cached or file.startswith(directories)), default=None)
    if conflict is None:
        return None
    blocked = next(path for path in cache if conflict in prefixes[path] or conflict.startswith(f"{path}/"))
    return (
        f"{config_path}: `cache`: `{blocked}` cannot be cached, because `{conflict}` is committed there; name a path "
        "that only `setup` writes to."
    )


def parse_recipe(data: bytes, name: str) -> Recipe:
    """Parse a recipe; `name` has no `.md`.

    Raises:
        RecipeError: it is too large, not UTF-8, or has no valid front matter or no text.
    """
    source = recipe_path(name)
    if not is_recipe_name(name):
        raise RecipeError(
            f"{source}: the name of a recipe has at most 40 lower-case letters, digits and `-`, e.g. `weekly.md`."
        )
    if len(data) > MAX_RECIPE_BYTES:
        raise recipe_too_large(name, len(data))
    try:
        content = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8.") from error
    match = _FRONT_MATTER.fullmatch(content)
    if match is None:
        raise RecipeError(
            f"{source}:1: must begin with front matter: a line `---`, keys such as `on: comment`, a line `---`."
        )
    try:
        # Keep the line of the first `---`, so that line numbers are the file's.
        keys = read_settings(f"\n{match['head']}", RecipeKeys, source=source)
    except SettingsError as error:
        raise RecipeError(str(error)) from error
    if not (text := match["text"].strip()):
        raise RecipeError(f"{source}: has no text below the front matter; write there what the agent should do.")
    return Recipe.model_construct(**dict(keys), name=name, text=text)


BUILT_IN_RECIPES = ("split", "triage")
"""Recipes of verbs, which a repository's file of the name replaces."""


@cache
def built_in_recipe(name: str) -> Recipe | None:
    if name not in BUILT_IN_RECIPES:
        return None
    return parse_recipe((files("bot.permissions") / "recipes" / f"{name}.md").read_bytes(), name)


def recipe_too_large(name: str, size: int) -> RecipeError:
    return RecipeError(f"{recipe_path(name)}: has {size:,} bytes; the limit is {MAX_RECIPE_BYTES:,}.")


def json_schema() -> dict[str, Any]:
    return schema_of(FileKeys, "Codepilot repository configuration")


def recipe_schema() -> dict[str, Any]:
    return schema_of(RecipeKeys, "Codepilot recipe")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of files that needs approval, or that the setup reads.

    Attributes:
        install: whether they list packages.
        exempt: whether they need no approval, although a later kind matches.
    """

    name: str
    reason: str
    globs: tuple[str, ...]
    approve: bool
    install: bool
    exempt: bool


@cache
def file_kinds() -> tuple[FileKind, ...]:
    table = tomllib.loads((files("bot.permissions") / "known_files.toml").read_text("utf-8"))
    return tuple(
        FileKind(
            name=name,
            reason=kind["why"],
            globs=tuple(kind["files"]),
            approve=kind.get("approve", False),
            install=kind.get("install", False),
            exempt=kind.get("exempt", False),
        )
        for name, kind in table.items()
    )
