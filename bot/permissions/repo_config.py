"""The configuration of a repository: the maintainers' file `.github/codepilot.yml`, and its recipes.

`FileKeys` has the keys of the file, `RecipeKeys` those of the front matter of a recipe in `.github/codepilot/`; their
docstrings are the reference that users read. `parse_config` and `parse_recipe` read a file's bytes and name every key
that does not fit. `merged` puts a repository's keys over those of its organisation. `file_kinds` is the table
`known_files.toml`: files that need an approval, or that the setup reads.
"""

from __future__ import annotations

import hashlib
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

PATH = ".github/codepilot.yml"
OTHER_SPELLING = ".github/codepilot.yaml"
ORGANISATION_PATH = "codepilot.yml"
"""Where the defaults of an organisation stand, in its repository `.github`."""
MAX_BYTES = 64 * 1024

MAX_RECIPE_BYTES = 16_000
"""Of a file; less than a goal may have, so that the words of who starts a recipe have room beside its text."""
MAX_RECIPES = 20
SPREAD_SECONDS = 600


class RepoConfigError(BotError):
    """The repository's file does not fit.

    Attributes:
        reason: all that is wrong, each with file, line and key.
        remedy: what to do about it.
    """

    def __init__(self, problems: str, *, source: str = PATH) -> None:
        listed = "\n".join(f"- {problem}" for problem in problems.splitlines())
        branch = "default" if ":" in source else "base"
        self.reason = f"This repository's configuration is not valid:\n\n{listed}"
        self.remedy = f"Fix `{source}` on the {branch} branch, then give the command again."
        super().__init__(f"{self.reason}\n\n{self.remedy}")


class RecipeError(BotError):
    """A recipe's file does not fit; the text names file, line and key of all that is wrong."""


BareVerb = Literal["fix", "review", "explain", "plan", "ask", "test"]
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

_MOST_COMMANDS, _MOST_PATHS, _MOST_HOSTS, _MOST_PATTERNS, _MOST_TRIGGERS, _MOST_SERVERS = 20, 20, 50, 100, 5, 20

_TRIGGER = re.compile(r"[/@][A-Za-z0-9][A-Za-z0-9_-]{0,38}")
_LANGUAGE = re.compile(r"[^\W\d_][\w ()-]{1,39}")

_DOES = frozenset({"write_file", "execute", "read_output", "send_input", "terminate_terminal", "ask_user"})
"""The tools that a run which only reads does not have."""
_HEAD = re.compile(r"---[ \t]*\n(?P<head>.*?)^---[ \t]*$(?P<text>.*)", re.DOTALL | re.MULTILINE)
_CHANCE = re.compile(r"(?<![a-z])[hr](?![a-z])", re.IGNORECASE)


def trigger_word(text: str) -> str:
    """A slash or an at sign, then a word.

    Raises:
        ValueError: it is none.
    """
    if not _TRIGGER.fullmatch(text):
        raise ValueError(f"must be / or @ and a word of letters, digits, - and _, not {text!r}")
    return text


def command_pattern(text: str) -> str:
    """A pattern of commands as the library's rules take it, e.g. `npm test *`.

    Raises:
        ValueError: it cannot be read, or is about every program.
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


def _one_or_more(value: object) -> object:
    """A lone text as a list of one; YAML 1.1 reads an unquoted `off` as false."""
    values = value if isinstance(value, list) else [value]
    texts = ["off" if each is False else each for each in values]
    return value if value is None or not all(isinstance(each, str) for each in texts) else texts


def _words(value: object) -> object:
    """One text with commas between as the list that it means."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


def _never(value: object) -> object:
    """`never` as the list that it means."""
    words = [] if value in ("never", ["never"]) else _words(value)
    if isinstance(words, list) and any(each not in get_args(Notify) for each in words):
        raise ValueError("must be `waiting`, `done` or both, or else `never` alone")
    return words


def _command(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which a shell cannot accept")
    return text


def _kept(text: str) -> str:
    path = text.removesuffix("/")
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or any(mark in path for mark in "*?[~$"):
        raise ValueError("must be a plain path, without wildcards, variables or `~`")
    if any(part in {"", ".", ".."} for part in parts):
        raise ValueError("must be a path below the repository's root, without `.` and `..`, e.g. `node_modules`")
    if any(part.casefold() == ".git" for part in parts):
        raise ValueError("must not be git's own")
    return path


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


_Command = Annotated[
    str, StringConstraints(min_length=1, max_length=4_000, strip_whitespace=True), AfterValidator(_command)
]
_Path = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_kept)]
_Server = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,29}$")]
_Hosts = Annotated[tuple[str, ...], Field(max_length=_MOST_HOSTS, strict=False)]
_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(command_pattern)]
_Glob = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_glob)]
_Trigger = Annotated[str, AfterValidator(trigger_word)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Dollars = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
Steps = Annotated[int, Field(ge=1, le=1_000)]
# GitHub's own bound for a label's name: https://docs.github.com/en/rest/issues/labels
Label = Annotated[str, StringConstraints(min_length=1, max_length=50), AfterValidator(_label)]


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class Overrides(_Keys):
    """Defaults for one verb, used unless the command sets them."""

    model: ModelName | None = None
    """One of the models that the operator offers."""
    budget_usd: Dollars | None = None
    """The maximum cost of a run in US dollars."""
    max_steps: Steps | None = None
    """The maximum number of steps in a run."""


class VerbsKeys(_Keys):
    """Defaults for each verb that starts an agent."""

    fix: Overrides = Field(default_factory=Overrides)
    review: Overrides = Field(default_factory=Overrides)
    explain: Overrides = Field(default_factory=Overrides)
    plan: Overrides = Field(default_factory=Overrides)
    ask: Overrides = Field(default_factory=Overrides)
    test: Overrides = Field(default_factory=Overrides)


class LabelNames(_Keys):
    """The names of the labels."""

    model_config = ConfigDict(validate_default=True)  # a name that is given may be the default of another label

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
    def _different(cls, name: str | None, info: ValidationInfo) -> str | None:
        # Those that stand before it in this class.
        if name is not None and name.casefold() in (before.casefold() for before in info.data.values() if before):
            raise ValueError(f"two labels have the same name, {name!r}; GitHub ignores case in label names")
        return name

    def is_start(self, name: str) -> bool:
        """Whether a label is the repository's own for starting work."""
        return self.start is not None and name.casefold() == self.start.casefold()

    def is_fix_ci(self, name: str) -> bool:
        """Whether a label has failing checks fixed."""
        return name.casefold() == self.fix_ci.casefold()

    def means_something(self, name: str) -> bool:
        """Whether a label starts work, has failing checks fixed, or stands for a level."""
        return self.is_start(name) or self.is_fix_ci(name) or self.level_of(name) is not None

    def key_of(self, name: str) -> str | None:
        """The key of a label that says how much work may do; None for one that starts work, or means nothing."""
        keys = ("read_only", "ask", "auto", "fix_ci")
        return next((key for key in keys if getattr(self, key).casefold() == name.casefold()), None)

    def level_of(self, name: str) -> Level | None:
        """What a label stands for, or None; GitHub does not tell upper from lower case in labels."""
        levels: dict[str, Level] = {self.read_only: "read-only", self.ask: "ask", self.auto: "auto"}
        return {label.casefold(): level for label, level in levels.items()}.get(name.casefold())


class FileKeys(_Keys):
    """A repository's configuration of Codepilot."""

    setup: Annotated[tuple[_Command, ...], Field(max_length=_MOST_COMMANDS, strict=False)] = ()
    """Bash commands that prepare the workspace before the agent starts."""
    cache: Annotated[tuple[_Path, ...], Field(max_length=_MOST_PATHS, strict=False)] = ()
    """Paths that these commands create and that are cached for later jobs."""
    network: Annotated[_Hosts | None, BeforeValidator(_one_or_more, json_schema_input_type=str | list[str])] = None
    """The hosts that commands may reach at most: `off`, `registries`, hosts."""
    mcp: Annotated[tuple[_Server, ...] | None, Field(max_length=_MOST_SERVERS, strict=False)] = None
    """The names of the operator's MCP servers to use; by default all of them."""
    instructions: Annotated[str, StringConstraints(max_length=8_000, strip_whitespace=True)] = ""
    """Instructions for the agent."""
    triggers: Annotated[tuple[_Trigger, ...], Field(min_length=1, max_length=_MOST_TRIGGERS, strict=False)] | None = (
        None
    )
    """The operator's trigger words that are accepted here; by default all of them."""
    bare_issue: Literal["fix", "explain", "plan", "ask", "test"] = "fix"
    """The command for text without a command word, in an issue."""
    bare_pull: BareVerb = "ask"
    """The command for text without a command word, in a pull request."""
    level: Level | None = None
    """The permission level: `read-only`, `ask` or `auto`; by default the operator's."""
    allow: Annotated[tuple[_Pattern, ...], Field(max_length=_MOST_PATTERNS, strict=False)] = ()
    """Patterns of commands that need no approval at the level `ask` with a network, in addition to the known ones."""
    protected: Annotated[tuple[_Glob, ...], Field(max_length=_MOST_PATTERNS, strict=False)] = ()
    """Files that are published only with approval, in addition to the built-in ones."""
    model: ModelName | None = None
    """One of the models that the operator offers."""
    budget_usd: Dollars | None = None
    """The maximum cost of a run in US dollars."""
    max_steps: Steps | None = None
    """The maximum number of steps in a run."""
    max_candidates: Annotated[int, Field(ge=1, le=8)] | None = None
    """The maximum of `--candidates`; cannot exceed the operator's."""
    verbs: VerbsKeys = Field(default_factory=VerbsKeys)
    labels: LabelNames = Field(default_factory=LabelNames)
    language: Annotated[str, AfterValidator(_language)] | None = None
    """The language of the agent's answers; by default that of the command."""
    review_on: Annotated[
        tuple[ReviewEvent, ...],
        Field(strict=False),
        BeforeValidator(_words, json_schema_input_type=list[ReviewEvent] | str),
    ] = ()
    """When to review a pull request of somebody with write access without a command: `opened`, `ready`, `push`."""
    fix_ci: Annotated[
        tuple[FixCi, ...], Field(strict=False), BeforeValidator(_words, json_schema_input_type=list[FixCi] | str)
    ] = ()
    """Where failing checks start a fix: `pull-requests`, `default-branch`."""
    notify: Annotated[
        tuple[Notify, ...], Field(strict=False), BeforeValidator(_never, json_schema_input_type=list[Notify] | str)
    ] = ("waiting", "done")
    """When to mention the person who gave the command in a separate short comment: `waiting` when a run begins to wait
    for somebody, `done` when it ends after more than two minutes; or `never`. Edited comments notify nobody."""
    rerun_failed_jobs: bool = False
    """Whether to run a workflow's failed jobs once more before a fix is started."""
    wip_branches: bool = True
    """Whether to push unfinished work to a separate branch."""
    base: Annotated[str, AfterValidator(_branch)] | None = None
    """The branch to open pull requests against; by default the default branch."""

    @field_validator("cache")
    @classmethod
    def _apart(cls, paths: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if paths and info.data.get("setup") == ():
            raise ValueError("caches what `setup` creates, but there is no `setup`")
        for one, other in permutations(paths, 2):
            if f"{one}/".startswith(f"{other}/"):
                raise ValueError(f"`{one}` is inside `{other}`, which is cached as a whole; leave it out")
        return paths

    @field_validator("network")
    @classmethod
    def _known(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if words is not None:
            Network.of(*words)
        return words


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


class RepoConfig(FileKeys):
    """The file's keys, with their defaults where it has none, and what is known beside them."""

    highest: Literal["ask", "auto"] = "auto"
    """The most that a label may raise the level to."""
    path: str = PATH
    """Where the file is."""
    recipes: Annotated[tuple[Recipe, ...], Field(strict=False)] = ()
    """The heads of the recipes; empty where nobody looked."""
    recipe_problems: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What is wrong with the files of other recipes."""

    def hears_label(self, name: str) -> bool:
        """Whether a label starts work, or says how much work may do."""
        return self.labels.means_something(name) or any(each.is_started_by(name) for each in self.recipes)

    def with_recipes(self, recipes: Sequence[Recipe], problems: Sequence[str]) -> RepoConfig:
        """The same with the recipes of the repository, but for those whose label says how much work may do.

        Such a label would start the recipe, and allow nothing.

        Args:
            recipes: their heads.
            problems: what is wrong with others.
        """
        kept, found = list[Recipe](), list(problems)
        for each in recipes:
            key = self.labels.key_of(each.on.label) if each.on.label else None
            if key is None:
                kept.append(each)
                continue
            unset = "" if key in self.labels.model_fields_set else ", by default"
            found.append(
                f"{recipe_path(each.name)}: `on.label`: {each.on.label!r} is `labels.{key}` of {self.path} "
                f"already{unset}; choose another label in one of the two files."
            )
        return self.model_copy(update={"recipes": tuple(kept), "recipe_problems": tuple(found)})

    @property
    def follows_runs(self) -> bool:
        """Whether workflow runs start recipes."""
        return any(each.on.workflow_run for each in self.recipes)

    def reviews(self, on: ReviewEvent, usual: frozenset[ReviewEvent] = frozenset()) -> bool:
        """Whether a pull request is reviewed when this happens; `usual` is the operator's, for a file without the key.

        A draft is new to its reviewers when it becomes ready.
        """
        events = self.review_on if "review_on" in self.model_fields_set else usual
        return on in events or (on == "ready" and "opened" in events)

    def overrides(self, verb: str) -> Overrides:
        """What a run of a verb is to use."""
        own: Overrides = getattr(self.verbs, verb) if verb in VERBS else Overrides()
        return _over(own, Overrides(model=self.model, budget_usd=self.budget_usd, max_steps=self.max_steps))


def parse_config(data: bytes, *, source: str = PATH) -> RepoConfig:
    """Read the file.

    Args:
        data: its content, as the base branch's commit has it.
        source: its name, for error texts.

    Raises:
        RepoConfigError: it is too large, no UTF-8, no YAML, or has keys or values that do not fit.
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


def defaults_when_broken() -> RepoConfig:
    """What holds in place of a file that does not fit: nothing is set up, nothing reached, little done unasked.

    Its author may have meant to forbid something. Merge it over the organisation's as the file would be.
    """
    strict = {"setup", "cache", "network", "mcp", "allow", "review_on", "fix_ci", "rerun_failed_jobs"}
    return RepoConfig.model_construct(strict, network=("off",), mcp=(), highest="ask")


def merged(organisation: RepoConfig, repository: RepoConfig) -> RepoConfig:
    """The organisation's defaults with the repository's own words over them, key by key; `protected` adds up."""
    own = repository.model_fields_set | ({"cache"} if "setup" in repository.model_fields_set else set())
    inherited = {name: getattr(organisation, name) for name in organisation.model_fields_set - own}
    labels = {name: getattr(repository.labels, name) for name in repository.labels.model_fields_set}
    verbs = {verb: _over(getattr(repository.verbs, verb), getattr(organisation.verbs, verb)) for verb in VERBS}
    return repository.model_copy(
        update=inherited
        | {
            "protected": tuple(dict.fromkeys((*organisation.protected, *repository.protected))),
            "verbs": VerbsKeys(**verbs),
            "labels": organisation.labels.model_copy(update=labels),
            "highest": "auto" if organisation.highest == repository.highest == "auto" else "ask",
        }
    )


def _over(first: Overrides, second: Overrides) -> Overrides:
    """The first, and the second where that says nothing."""
    return second.model_copy(update={name: value for name, value in first if value is not None})


def in_the_way(cache: Sequence[str], committed: Collection[str], *, path: str = PATH) -> str | None:
    """Why what is to be kept cannot be told from the repository's own files, or None when it can.

    Args:
        cache: see `RepoConfig`.
        committed: paths of all files in the commit that is worked on.
        path: where the file is that asks for it.
    """
    parts = {each: each.split("/") for each in cache}
    # Each path with all that leads to it.
    above = {each: {"/".join(own[:count]) for count in range(1, len(own) + 1)} for each, own in parts.items()}
    meant, below = set[str]().union(*above.values()), tuple(f"{each}/" for each in cache)
    found = min((file for file in committed if file in meant or file.startswith(below)), default=None)
    if found is None:
        return None
    kept = next(each for each in cache if found in above[each] or found.startswith(f"{each}/"))
    return (
        f"{path}: `cache`: `{kept}` cannot be cached, because `{found}` is committed there; name a path that only "
        "`setup` writes to."
    )


def parse_recipe(data: bytes, name: str) -> Recipe:
    """Read a recipe's file.

    Args:
        data: its content, as the default branch has it.
        name: the file's name without `.md`.

    Raises:
        RecipeError: it is too large, no UTF-8, has no head or no text, or a head with keys or values that do not fit.
    """
    source = recipe_path(name)
    if not is_recipe_name(name):
        raise RecipeError(
            f"{source}: the name of a recipe has at most 40 lower-case letters, digits and `-`, e.g. `weekly.md`."
        )
    if len(data) > MAX_RECIPE_BYTES:
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
    return RecipeError(f"{recipe_path(name)}: has {size:,} bytes; the limit is {MAX_RECIPE_BYTES:,}.")


def json_schema() -> dict[str, Any]:
    """The shape of the file as JSON schema, for editors."""
    return schema_of(FileKeys, "Codepilot repository configuration")


def recipe_schema() -> dict[str, Any]:
    """The shape of the head as JSON schema, for editors."""
    return schema_of(RecipeKeys, "Codepilot recipe")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """Files that matter for one reason.

    Attributes:
        name: what they are.
        why: why they matter.
        globs: which files they are, as the library's rules take them.
        approve: whether a change to them is published only when a person approved that very change.
        install: whether they say what a repository's setup installs.
        exempt: whether they need no approval, although a later kind covers them.
    """

    name: str
    why: str
    globs: tuple[str, ...]
    approve: bool
    install: bool
    exempt: bool


@cache
def file_kinds() -> tuple[FileKind, ...]:
    """The whole table, in its order."""
    table = tomllib.loads((files("bot.permissions") / "known_files.toml").read_text("utf-8"))
    return tuple(
        FileKind(
            name=name,
            why=kind["why"],
            globs=tuple(kind["files"]),
            approve=kind.get("approve", False),
            install=kind.get("install", False),
            exempt=kind.get("exempt", False),
        )
        for name, kind in table.items()
    )
