"""The commands of the bot, and the events of a thread that it works in. Pure values.

Three kinds of people's words: work, which an agent does; steering, which changes what other jobs do; talk, which is
answered at once. And happenings, which nobody asks for: GitHub reports them, and they only ever narrow what the bot
may do. `grammar.py` reads people's words.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

DEFAULT_TRIGGER = "/codepilot"

ReviewEvent = Literal["opened", "ready", "push"]
"""What starts a review without a command: a pull request is opened, a draft becomes ready, commits are pushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one command may set for its own run; None leaves it to the configuration.

    Attributes:
        model: one of the models that the operator offers.
        budget_usd: US dollars the run may spend, at most the operator's bound.
        max_steps: steps it may take, at most the operator's bound.
        base: the branch that an issue's work begins at, and its pull request is for.
        dry_run: show what would be published, and publish nothing.
        new: open another pull request for an issue, where one of the bot's is open.
        candidates: how many attempts are made at the same time, of which the best is published.
    """

    model: str | None = None
    budget_usd: float | None = None
    max_steps: int | None = None
    base: str | None = None
    dry_run: bool = False
    new: bool = False
    candidates: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Change the code and publish the change.

    Attributes:
        goal: the free text after the verb; may be empty, as in all work.
        plan: the plan of an earlier `Plan` that somebody approved; an agent's words, so it is quoted to the next one.
    """

    goal: str = ""
    options: Options = field(default_factory=Options)
    plan: str = ""
    verb: Literal["fix"] = "fix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Comment on the lines of a pull request, with suggestions that can be committed; never approve.

    Attributes:
        on: what started it where nobody gave a command.
    """

    goal: str = ""
    options: Options = field(default_factory=Options)
    on: ReviewEvent | None = None
    verb: Literal["review"] = "review"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """Explain the code that the thread, or the commented lines, are about."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["explain"] = "explain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Say what would be changed and how; approving the plan starts the work."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["plan"] = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Answer a question about the code."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["ask"] = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """Run the tests and say what they show; nothing is published."""

    __test__ = False  # no test of ours: pytest collects classes of this name

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["test"] = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """Text without a verb; the repository's configuration says what it means in an issue and in a pull request."""

    goal: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["bare"] = "bare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Take the bot's own last commit of the thread back, by a new commit."""

    verb: Literal["undo"] = "undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """Tell the job that is under way something, for its next step; or answer the question it waits with."""

    message: str
    verb: Literal["continue"] = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approve:
    """Let the call, the publication or the plan that waits go on.

    Attributes:
        request_id: which; empty for the only one that waits.
        like: whether further calls of the same run are approved with it, those that fit the pattern which was shown.
    """

    request_id: str = ""
    like: bool = False
    verb: Literal["approve"] = "approve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Refuse what waits; `why` is told to the agent."""

    request_id: str = ""
    why: str = ""
    verb: Literal["deny"] = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the job that is under way, and keep what it did."""

    verb: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Do a piece of work again, from its start.

    Attributes:
        job_id: which, as a check run names it; empty for the thread's last.
    """

    job_id: str = ""
    verb: Literal["retry"] = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecipe:
    """Start a recipe of the repository, as a job of its own.

    Attributes:
        name: the recipe's.
        words: what the agent is told beside the recipe's text.
        options: for that run.
    """

    name: str
    words: str = ""
    options: Options = field(default_factory=Options)
    verb: Literal["run"] = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStatus:
    """Say what is under way in the thread, and what waits."""

    verb: Literal["status"] = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """Say what the bot can do."""

    verb: Literal["help"] = "help"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A verb that does not exist, but is close to one that does.

    Attributes:
        word: what was written, at most 40 characters of it.
        nearest: the closest known verb, or None when nothing is close.
    """

    word: str
    nearest: str | None
    verb: Literal["unknown"] = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A verb that exists, written as it cannot be meant; `reason` says what is wrong and how to write it."""

    reason: str
    verb: Literal["malformed"] = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Somebody set a label; the thread's words are not kept with it, for most labels mean nothing to the bot.

    Attributes:
        label: its name.
        bound_to: the pull request's head commit at that moment; for an issue `text:` and a hash of title and body.
        words: for a pull request: the hash of its title and body at that moment.
        at: when, as GitHub writes it; empty where it does not say.
    """

    label: str
    bound_to: str
    words: str = ""
    at: str = ""
    verb: Literal["labelled"] = "labelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Somebody assigned the issue to an App's account; an entry point does not know whether it is the bot's own."""

    assignee_id: int
    verb: Literal["assigned"] = "assigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The pull request's head moved to `head_sha`."""

    head_sha: str
    verb: Literal["pushed"] = "pushed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The thread came to an end; what is under way in it has no purpose any more.

    Attributes:
        how: `closed`, `deleted`, `transferred` or `locked`.
    """

    how: str = "closed"
    verb: Literal["closed"] = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLost:
    """The App was taken off the account or the repository, or suspended: it may do nothing there any more.

    Attributes:
        repo_ids: numeric ids of the repositories it lost; empty for all of the installation.
    """

    repo_ids: tuple[int, ...] = ()
    verb: Literal["departed"] = "departed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDue:
    """A recipe's schedule says that it is time; the default branch's file is asked whether that is still so."""

    name: str
    verb: Literal["due"] = "due"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksFailed:
    """A check failed on a commit. Whether anything follows is for the repository's configuration, or a label, to say.

    Attributes:
        run_id: the workflow run's; 0 for a check of another App than GitHub Actions.
        attempt: which attempt of the run, from 1.
        name: the workflow's or the check's; a stranger may have chosen it.
        conclusion: in GitHub's words, e.g. `failure`.
        url: its page; empty where GitHub does not say.
        head_sha: the commit.
        branch: the branch that it ran on.
        pull: the number of the pull request whose head the commit is; 0 for the default branch and for a fork.
        fork: `owner/name` of the fork that the commit is in; empty for the repository itself.
        fork_id: the fork's numeric id; 0 for the repository itself.
    """

    run_id: int
    name: str
    conclusion: str
    head_sha: str
    branch: str
    attempt: int = 1
    url: str = ""
    pull: int = 0
    fork: str = ""
    fork_id: int = 0
    verb: Literal["reddened"] = "reddened"


Work = Fix | Review | Explain | Plan | Ask | Test
"""What an agent does."""

WORK_VERBS: Mapping[str, type[Work]] = {kind().verb: kind for kind in get_args(Work)}
"""The kinds of work by their verbs."""

Steering = Continue | Approve | Deny | Stop | Retry | ShowStatus
"""What changes, or reports, other jobs of the thread; never waits behind them."""

Talk = Help | Unknown | Malformed
"""What is answered at once."""

RepoEvent = Labelled | Assigned | Pushed | Closed | AccessLost | ChecksFailed | RecipeDue
"""What GitHub reports, and what is due."""

Command = Work | Bare | Undo | StartRecipe | Steering | Talk | RepoEvent
"""Everything a job can be about; unhandled kinds fail type checking."""


# ---- Words with one typing error. Pure.


def is_transposition(word: str, meant: str) -> bool:
    """Whether two neighbouring letters changed places, and nothing else."""
    start = _same_start(word, meant)
    rest, other = word[start:], meant[start:]
    return len(rest) > 1 and rest[:2] == other[1::-1] and rest[2:] == other[2:]


def is_typo(word: str, meant: str) -> bool:
    """Whether one letter is missing, too many or another one, or two neighbours changed places."""
    if abs(len(word) - len(meant)) > 1:
        return False
    start = _same_start(word, meant)
    rest, other = word[start:], meant[start:]
    return (rest or other) != "" and (
        rest[1:] == other[1:] or rest == other[1:] or rest[1:] == other or is_transposition(word, meant)
    )


def _same_start(word: str, other: str) -> int:
    """How many letters are the same at the start of both."""
    return next(
        (n for n, pair in enumerate(zip(word, other, strict=False)) if pair[0] != pair[1]), min(len(word), len(other))
    )


# ---- The options of a command: `--model NAME`, `--dry-run` and their like. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        argument: what its value is, as the help shows it; empty for an option that takes none.
        meaning: one sentence for the help.
        field: which attribute of `Options` it sets.
        value: its text to its value, or None when the text cannot be one.
    """

    argument: str
    meaning: str
    field: str
    value: Callable[[str], object | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A command's line, read: its options, and the text without them."""

    options: Options
    text: str


_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}")
_DOLLARS = re.compile(r"\$?(?P<number>[0-9]{1,6}(?:\.[0-9]{1,6})?)")
_STEPS = re.compile(r"[0-9]{1,6}")
# What git-check-ref-format(1) allows, without a leading dash. No shell reads these names: they reach git as whole
# arguments after `refs/heads/`, GitHub as quoted parts of addresses, and people as code.
_BRANCH = re.compile(
    r"(?![-./]|@$)(?:(?!\.\.|//|@\{|/\.|\.lock(?:/|$))[^\x00-\x20~^:?*\[\\\x7f\ud800-\udfff])+(?<![./])"
)
_BRANCH_BYTES = 244
"""With `refs/heads/` before it, a name of a file that every file system takes."""


def is_safe_branch(name: str) -> bool:
    """Whether the bot handles branches of this name: those of every name that git takes."""
    return _BRANCH.fullmatch(name) is not None and len(name.encode()) <= _BRANCH_BYTES


def _model(text: str) -> str | None:
    return text if _MODEL.fullmatch(text) else None


def _dollars(text: str) -> float | None:
    found = _DOLLARS.fullmatch(text)
    return (float(found["number"]) or None) if found else None


def _branch(text: str) -> str | None:
    return text if is_safe_branch(text) else None


def _steps(text: str) -> int | None:
    return (int(text) or None) if _STEPS.fullmatch(text) else None


OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "model": Option(argument="NAME", meaning="One of the operator's models.", field="model", value=_model),
        "budget": Option(
            argument="USD",
            meaning="The run's cost limit in US dollars; cannot exceed the operator's.",
            field="budget_usd",
            value=_dollars,
        ),
        "max-steps": Option(
            argument="N",
            meaning="The run's step limit; cannot exceed the operator's.",
            field="max_steps",
            value=_steps,
        ),
        "candidates": Option(
            argument="N",
            meaning="The number of parallel attempts; the best is published. Cannot exceed the operator's limit.",
            field="candidates",
            value=_steps,
        ),
        "base": Option(
            argument="BRANCH",
            meaning="The branch to start from and to open a new pull request against; on issues only.",
            field="base",
            value=_branch,
        ),
        "dry-run": Option(
            argument="",
            meaning="Show what would be published without publishing it.",
            field="dry_run",
            value=lambda _: True,
        ),
        "new": Option(
            argument="",
            meaning="Open another pull request even if one of mine is already open for the issue.",
            field="new",
            value=lambda _: True,
        ),
    }
)
"""Every option, by its name without the hyphens, in the order of the help."""

_WORD = re.compile(r"\S+")
_TICKS = re.compile(r"`+")
# Keyboards of telephones make one dash of two hyphens.
_WRITTEN = re.compile(
    r"(?P<dashes>-{1,2}|[\u2010-\u2015\u2212])(?P<name>[A-Za-z][A-Za-z0-9_-]{0,39})(?:=(?P<value>.*))?"
)
_OTHERWISE = "To mention an option without using it, put it in backticks, or put `--` before the text."


def read_options(line: str, *, allowed: Collection[str], of: str) -> Read | Malformed:
    """Take the options out of a command's line.

    Args:
        line: what stands on it after the verb.
        allowed: names of the options that the command takes.
        of: the command, as a remedy names it.
    """
    words = list(_WORD.finditer(_with_code_hidden(line)))
    chosen: dict[str, Any] = {}
    kept: list[str] = []
    number, end = 0, 0
    while number < len(words):
        word = words[number][0]
        if word == "--" and not kept:
            kept.append(line[words[number].end() :])
            break
        name = _named(word, leading=not kept)
        if isinstance(name, Malformed):
            return name
        if name is None:
            kept.append(line[end : words[number].end()])
            width = 1
        else:
            following = words[number + 1][0] if number + 1 < len(words) else None
            taken = _taken(name, word, following, allowed=allowed, of=of)
            if isinstance(taken, Malformed):
                return taken
            value, width = taken
            if OPTIONS[name].field in chosen:
                return Malformed(reason=f"`--{name}` is given twice. Write it once.")
            chosen[OPTIONS[name].field] = value
        number += width
        end = words[number - 1].end()
    return Read(options=Options(**chosen), text="".join(kept).strip())


def _with_code_hidden(line: str) -> str:
    """The line with backticks all over its code, which makes one long word of each that is no option.

    As in Markdown, as many backticks as began the code end it, and where none do there is no code.
    """
    runs = list(_TICKS.finditer(line))
    closing: dict[int, re.Match[str] | None] = {}
    later: dict[int, re.Match[str]] = {}
    for run in reversed(runs):
        closing[run.start()] = later.get(len(run[0]))
        later[len(run[0])] = run
    pieces, at = [], 0
    for run in runs:
        end = closing[run.start()]
        if end is not None and run.start() >= at:
            pieces += [line[at : run.start()], "`" * (end.end() - run.start())]
            at = end.end()
    return "".join([*pieces, line[at:]])


def _named(word: str, *, leading: bool) -> str | Malformed | None:
    """The option that a word names, or what is wrong with it; None for a word of the text.

    After the start of the text, only a word close to an option is taken for one mistyped.
    """
    found = _WRITTEN.fullmatch(word)
    if found is None:
        unreadable = leading and word.startswith("--")
        return (
            Malformed(reason=f"An option is not valid. The options are {_all()}. {_OTHERWISE}") if unreadable else None
        )
    name, right = found["name"].lower(), found["dashes"] == "--"
    if name in OPTIONS and right:
        return name
    meant = [each for each in OPTIONS if name == each or is_typo(name, each)]
    if not meant and not (leading and right):
        return None
    nearest = meant or difflib.get_close_matches(name, OPTIONS, n=1)
    hint = f" Did you mean `--{nearest[0]}`?" if nearest else ""
    return Malformed(
        reason=f"There is no option `{found['dashes']}{found['name']}`.{hint} The options are {_all()}. {_OTHERWISE}"
    )


def _taken(
    name: str, word: str, following: str | None, *, allowed: Collection[str], of: str
) -> tuple[object, int] | Malformed:
    """An option's value, and how many words it took."""
    option = OPTIONS[name]
    if name not in allowed:
        takes = f"only {_listed(allowed)}" if allowed else "no options"
        return Malformed(reason=f"`--{name}` is not supported here: {of} takes {takes}. {_OTHERWISE}")
    _, joined, text = word.partition("=")
    if not option.argument:
        return Malformed(reason=f"`--{name}` takes no value. Write it without one.") if joined else (True, 1)
    value = option.value(text if joined else following or "")
    if value is None:
        example = {
            "NAME": "a model's name",
            "USD": "an amount, for example `2.50`",
            "N": "a whole number, for example `40`",
            "BRANCH": "a branch's name",
        }
        return Malformed(reason=f"`--{name}` requires {example[option.argument]}. {_OTHERWISE}")
    return value, 1 if joined else 2


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"`--{name}`" for name in names)


def _all() -> str:
    return _listed(OPTIONS)


# ---- The recipe of a job: its name, and how far it narrows what the job may do. Pure values.


FOLDER = ".github/codepilot"
"""Where the recipes of a repository are, on its default branch."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def is_recipe_name(text: str) -> bool:
    """Whether a recipe can have this name: at most 40 lower-case letters, digits and `-`."""
    return _NAME.fullmatch(text) is not None


def path_of(name: str) -> str:
    """The file of a recipe."""
    return f"{FOLDER}/{name}.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBounds:
    """What a recipe takes away from the permissions of its job; it adds none.

    Attributes:
        name: the recipe's.
        level: the highest level of the run; None leaves it to operator, repository and labels.
        tools: the tools that the agent may have; None for all that the level gives.
    """

    name: str
    level: Literal["read-only", "ask", "auto"] | None = None
    tools: tuple[str, ...] | None = None
