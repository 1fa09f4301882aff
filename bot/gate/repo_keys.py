"""The keys of `.github/codepilot.yml`, with their meanings and bounds. Pure."""

from __future__ import annotations

import re
from itertools import permutations
from typing import Annotated, Any, Literal, get_args

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

from agent_runtime import Network, Rule, SettingsError, schema_of
from bot.domain.access import Level
from bot.domain.commands import ReviewEvent
from bot.domain.options import is_safe_branch

BareVerb = Literal["fix", "review", "explain", "plan", "ask", "test"]
FixCi = Literal["pull-requests", "default-branch"]
Notify = Literal["waiting", "done"]

_MOST_COMMANDS, _MOST_PATHS, _MOST_HOSTS, _MOST_PATTERNS, _MOST_TRIGGERS = 20, 20, 50, 100, 5
_MOST_SERVERS = 20

_TRIGGER = re.compile(r"[/@][A-Za-z0-9][A-Za-z0-9_-]{0,38}")
_LANGUAGE = re.compile(r"[^\W\d_][\w ()-]{1,39}")


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


_NOW = {"fix_red_ci": "`fix_ci: [pull-requests]`", "review_when_ready": "`review_on: [ready]`"}


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

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: object) -> object:
        """Refuse the key that there was before, with what to write instead."""
        if isinstance(data, dict) and "automatic" in data:
            before = data["automatic"] if isinstance(data["automatic"], list) else []
            meant = [now for name, now in _NOW.items() if name in before] or list(_NOW.values())
            raise ValueError(f"`automatic` is no longer supported: write {' and '.join(meant)}")
        return data

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


VERBS: tuple[str, ...] = get_args(BareVerb)


def json_schema() -> dict[str, Any]:
    """The shape of the file as JSON schema, for editors."""
    return schema_of(FileKeys, "Codepilot repository configuration")
