"""The keys of `.github/codepilot.yml`: what each means, and what may stand there. Pure."""

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

_MOST_COMMANDS, _MOST_PATHS, _MOST_HOSTS, _MOST_PATTERNS, _MOST_TRIGGERS = 20, 20, 50, 100, 5

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
        raise ValueError(f"is no pattern of commands: {error}") from None
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


_NOW = {"fix_red_ci": "`fix_ci: [pull-requests]`", "review_when_ready": "`review_on: [ready]`"}


def _command(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which no shell can take")
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
        raise ValueError("must be a branch's name, e.g. `develop`")
    return text


def _language(text: str) -> str:
    if not _LANGUAGE.fullmatch(text):
        raise ValueError("must be the name of a language, e.g. `German` or `pt-BR`")
    return text


def _label(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("must be a label's name on one line, without space around it")
    return text


_Command = Annotated[
    str, StringConstraints(min_length=1, max_length=4_000, strip_whitespace=True), AfterValidator(_command)
]
_Path = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_kept)]
_Hosts = Annotated[list[str], Field(max_length=_MOST_HOSTS)]
_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(command_pattern)]
_Glob = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_glob)]
_Trigger = Annotated[str, AfterValidator(trigger_word)]
_Model = Annotated[str, StringConstraints(min_length=1, max_length=100)]
_Dollars = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
_Steps = Annotated[int, Field(ge=1, le=1_000)]
# GitHub's own bound for a label's name: https://docs.github.com/en/rest/issues/labels
Label = Annotated[str, StringConstraints(min_length=1, max_length=50), AfterValidator(_label)]


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class VerbKeys(_Keys):
    """What holds for one verb where its command says nothing else."""

    model: _Model | None = Field(default=None, description="One of the models that the operator offers.")
    budget_usd: _Dollars | None = Field(default=None, description="US dollars that a run may spend.")
    max_steps: _Steps | None = Field(default=None, description="Steps that a run may take.")


class VerbsKeys(_Keys):
    """Defaults for each verb that is an agent's work."""

    fix: VerbKeys = Field(default_factory=VerbKeys)
    review: VerbKeys = Field(default_factory=VerbKeys)
    explain: VerbKeys = Field(default_factory=VerbKeys)
    plan: VerbKeys = Field(default_factory=VerbKeys)
    ask: VerbKeys = Field(default_factory=VerbKeys)
    test: VerbKeys = Field(default_factory=VerbKeys)


class LabelKeys(_Keys):
    """What the labels are called."""

    start: Label | None = Field(default=None, description="Starts work, beside the operator's.")
    read_only: Label = Field(default="codepilot:read-only", description="Stands for the level `read-only`.")
    ask: Label = Field(default="codepilot:ask", description="Stands for the level `ask`.")
    auto: Label = Field(default="codepilot:auto", description="Stands for the level `auto`.")
    fix_ci: Label = Field(default="codepilot:fix-ci", description="Has the pull request's failing checks fixed.")

    @field_validator("auto", "fix_ci")
    @classmethod
    def _different(cls, last: str, info: ValidationInfo) -> str:
        # Those that stand before it in this class.
        names = [str(name).casefold() for name in (*info.data.values(), last) if name is not None]
        if len(set(names)) != len(names):
            raise ValueError("two labels have the same name, and GitHub does not tell upper from lower case")
        return last


class FileKeys(_Keys):
    """What a repository asks of Codepilot."""

    setup: Annotated[list[_Command], Field(max_length=_MOST_COMMANDS)] = Field(
        default=[], description="Commands for bash that make the workspace ready before the agent starts."
    )
    cache: Annotated[list[_Path], Field(max_length=_MOST_PATHS)] = Field(
        default=[], description="What they make that is kept for later jobs."
    )
    network: Annotated[_Hosts | None, BeforeValidator(_one_or_more, json_schema_input_type=str | list[str])] = Field(
        default=None, description="What commands may reach at most: `off`, `registries`, hosts."
    )
    instructions: Annotated[str, StringConstraints(max_length=8_000)] = Field(
        default="", description="Text for the agent."
    )
    triggers: Annotated[list[_Trigger], Field(min_length=1, max_length=_MOST_TRIGGERS)] | None = Field(
        default=None, description="Words that begin a command here, of those that the operator has."
    )
    bare_issue: Literal["fix", "explain", "plan", "ask", "test"] = Field(
        default="fix", description="What text without a verb means in an issue."
    )
    bare_pull: BareVerb = Field(default="ask", description="What text without a verb means in a pull request.")
    level: Level | None = Field(
        default=None, description="What a run may do unasked: `read-only`, `ask` or `auto`; else the operator's."
    )
    allow: Annotated[list[_Pattern], Field(max_length=_MOST_PATTERNS)] = Field(
        default=[],
        description="Patterns of commands that need no approval at the level `ask` with a network, beside known ones.",
    )
    protected: Annotated[list[_Glob], Field(max_length=_MOST_PATTERNS)] = Field(
        default=[], description="Files that are published only when a person approves it, beside the built-in ones."
    )
    model: _Model | None = Field(default=None, description="One of the models that the operator offers.")
    budget_usd: _Dollars | None = Field(default=None, description="US dollars that a run may spend.")
    max_steps: _Steps | None = Field(default=None, description="Steps that a run may take.")
    verbs: VerbsKeys = Field(default_factory=VerbsKeys)
    labels: LabelKeys = Field(default_factory=LabelKeys)
    language: Annotated[str, AfterValidator(_language)] | None = Field(
        default=None, description="The language that the agent answers in; else that of the command."
    )
    review_on: Annotated[list[ReviewEvent], BeforeValidator(_words, json_schema_input_type=list[ReviewEvent] | str)] = (
        Field(
            default=[],
            description="When a pull request of somebody with write access is reviewed without a command: `opened`, "
            "`ready`, `push`.",
        )
    )
    fix_ci: Annotated[list[FixCi], BeforeValidator(_words, json_schema_input_type=list[FixCi] | str)] = Field(
        default=[], description="Where failing checks start a fix: `pull-requests`, `default-branch`."
    )
    rerun_failed_jobs: bool = Field(
        default=False, description="Whether a workflow's failed jobs are run once more before a fix is begun."
    )
    wip_branches: bool = Field(default=True, description="Whether unfinished work is kept on a branch of its own.")
    base: Annotated[str, AfterValidator(_branch)] | None = Field(
        default=None, description="Where new pull requests are to be merged; else the default branch."
    )

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: object) -> object:
        """Refuse the key that there was before, with what to write instead."""
        if isinstance(data, dict) and "automatic" in data:
            before = data["automatic"] if isinstance(data["automatic"], list) else []
            meant = [now for name, now in _NOW.items() if name in before] or list(_NOW.values())
            raise ValueError(f"`automatic` is no key any more: write {' and '.join(meant)}")
        return data

    @field_validator("cache")
    @classmethod
    def _apart(cls, paths: list[str], info: ValidationInfo) -> list[str]:
        if paths and info.data.get("setup") == []:
            raise ValueError("keeps what `setup` makes, and there is no `setup`")
        for one, other in permutations(paths, 2):
            if f"{one}/".startswith(f"{other}/"):
                raise ValueError(f"`{one}` lies in `{other}`, which is kept whole; leave it out")
        return paths

    @field_validator("network")
    @classmethod
    def _known(cls, words: list[str] | None) -> list[str] | None:
        if words is not None:
            Network.of(*words)
        return words


VERBS: tuple[str, ...] = get_args(BareVerb)


def json_schema() -> dict[str, Any]:
    """The shape of the file as JSON schema, for editors."""
    return schema_of(FileKeys, "Codepilot repository configuration")
