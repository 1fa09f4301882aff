"""The verbs that people may say, and the help that lists them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bot.domain.commands import (
    DEFAULT_TRIGGER,
    Approve,
    Ask,
    Command,
    Continue,
    Deny,
    Explain,
    Fix,
    Help,
    Malformed,
    Options,
    Plan,
    Retry,
    Review,
    ShowStatus,
    StartRecipe,
    Stop,
    Test,
    Undo,
)
from bot.domain.options import OPTIONS
from bot.domain.recipe import FOLDER, is_recipe_name

Group = Literal["work", "steering"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One word of the grammar.

    Attributes:
        name: the word, in lower case.
        group: whether it asks for work, or steers and asks about work.
        arguments: what may follow it, as the help shows it; empty for nothing.
        meaning: one sentence for the help.
        make: the free text after the verb and its options to the command.
        options: names of the options that it takes; None when the text after it is not searched for any.
    """

    name: str
    group: Group
    arguments: str
    meaning: str
    make: Callable[[str, Options], Command]
    options: tuple[str, ...] | None = None


_LIKE = "--like"
_REQUEST_ID = re.compile(r"[0-9A-Fa-f]{4,8}")

OPTIONS_OF_WORK = tuple(OPTIONS)
_WITHOUT_PUBLISHING = tuple(name for name in OPTIONS if name not in {"dry-run", "new", "candidates"})


def _continue(text: str, _: Options) -> Command:
    if not text:
        return Malformed(reason="`continue` requires a message for the running job. Write it after the command.")
    return Continue(message=text)


def _approve(text: str, _: Options) -> Command:
    words = text.split()
    like = _LIKE in words
    text = " ".join(word for word in words if word != _LIKE)
    if (text and not _REQUEST_ID.fullmatch(text)) or words.count(_LIKE) > 1:
        return Malformed(
            reason="`approve` accepts only the id of a request, 4 to 8 hexadecimal digits, and `--like`. Without an "
            "id it applies to the only request in the thread. To approve under a condition, deny and say why."
        )
    return Approve(request_id=text.lower(), like=like)


def _deny(text: str, _: Options) -> Command:
    first = text.split(maxsplit=1)[0] if text else ""
    if _REQUEST_ID.fullmatch(first):
        return Deny(request_id=first.lower(), why=text[len(first) :].strip())
    return Deny(why=text)


def _undo(text: str, _: Options) -> Command:
    if text:
        return Malformed(
            reason="`undo` takes no text: it reverts only the last commit I made for this thread. For anything else, "
            "use `fix` and describe the change."
        )
    return Undo()


def _retry(text: str, _: Options) -> Command:
    if text:
        return Malformed(
            reason="`retry` takes no text: it repeats the last job unchanged. For anything else, write a new "
            "command, such as `fix` and what to do."
        )
    return Retry()


def _run(text: str, options: Options) -> Command:
    name = next(iter(text.split(maxsplit=1)), "")
    if not is_recipe_name(name.lower()):
        return Malformed(
            reason=f"`run` starts a recipe of this repository: a file in `{FOLDER}/`, named without `.md`. For a task "
            "in your own words, use `fix`, `ask` or `test`."
        )
    return StartRecipe(name=name.lower(), words=text[len(name) :].strip(), options=options)


VERBS: tuple[Verb, ...] = (
    Verb(
        name="fix",
        group="work",
        arguments="[what to do]",
        meaning="Change the code and publish the change; without text, fix what the thread describes.",
        make=lambda goal, options: Fix(goal=goal, options=options),
        options=OPTIONS_OF_WORK,
    ),
    Verb(
        name="review",
        group="work",
        arguments="[what to look at]",
        meaning="Comment on the lines of a pull request, with suggestions to commit; I never approve one.",
        make=lambda goal, options: Review(goal=goal, options=options),
        options=tuple(name for name in OPTIONS if name not in {"base", "new", "candidates"}),
    ),
    Verb(
        name="explain",
        group="work",
        arguments="[what]",
        meaning="Explain the code that the thread or the commented lines are about.",
        make=lambda goal, options: Explain(goal=goal, options=options),
        options=_WITHOUT_PUBLISHING,
    ),
    Verb(
        name="plan",
        group="work",
        arguments="[what to do]",
        meaning="Describe what I would change and how; approving the plan starts the work.",
        make=lambda goal, options: Plan(goal=goal, options=options),
        options=(*_WITHOUT_PUBLISHING, "new"),
    ),
    Verb(
        name="ask",
        group="work",
        arguments="[question]",
        meaning="Answer a question about the code.",
        make=lambda goal, options: Ask(goal=goal, options=options),
        options=_WITHOUT_PUBLISHING,
    ),
    Verb(
        name="test",
        group="work",
        arguments="[what]",
        meaning="Run the tests and report the results; nothing is published.",
        make=lambda goal, options: Test(goal=goal, options=options),
        options=_WITHOUT_PUBLISHING,
    ),
    Verb(
        name="run",
        group="work",
        arguments="<recipe> [text]",
        meaning="Start a recipe of this repository.",
        make=_run,
        options=("model", "budget", "max-steps", "dry-run"),
    ),
    Verb(
        name="undo",
        group="work",
        arguments="",
        meaning="Revert the last commit I made for this thread, with a new commit.",
        make=_undo,
        options=(),
    ),
    Verb(
        name="continue",
        group="steering",
        arguments="<message>",
        meaning="Send a message to the running job, or answer its question.",
        make=_continue,
    ),
    Verb(
        name="approve",
        group="steering",
        arguments="[id] [--like]",
        meaning="Approve a request; without an id, the only one that waits. With `--like`, also approve similar "
        "commands in this run.",
        make=_approve,
    ),
    Verb(
        name="deny",
        group="steering",
        arguments="[id] [why]",
        meaning="Deny a request, with an optional reason.",
        make=_deny,
    ),
    Verb(
        name="stop",
        group="steering",
        arguments="",
        meaning="Stop the running job; its work so far is kept.",
        make=lambda *_: Stop(),
    ),
    Verb(
        name="retry",
        group="steering",
        arguments="",
        meaning="Run the last job again from the start.",
        make=_retry,
        options=(),
    ),
    Verb(
        name="status",
        group="steering",
        arguments="",
        meaning="Show which jobs are running or waiting in this thread.",
        make=lambda *_: ShowStatus(),
    ),
    Verb(name="help", group="steering", arguments="", meaning="Show this list.", make=lambda *_: Help()),
)
"""Every verb, in the order of the help; to add one, add it here and to `Command`."""

_BARE = (
    "`{trigger} [text]` without a command word means `fix` on an issue and `ask` on a pull request, unless the "
    "repository configures it otherwise."
)
_HEADINGS: dict[Group, str] = {"work": "Work", "steering": "Steering"}


def help_text(*, trigger: str = DEFAULT_TRIGGER) -> str:
    """Every verb and every option with its meaning, as Markdown."""
    parts = []
    for group, heading in _HEADINGS.items():
        usages = (
            (f"{trigger} {verb.name} {verb.arguments}".strip(), verb.meaning) for verb in VERBS if verb.group == group
        )
        parts.append("\n".join([f"**{heading}**\n", *(f"- `{usage}`: {meaning}" for usage, meaning in usages)]))
    lines = ["**Options**, on the command's own line\n"]
    for name, option in OPTIONS.items():
        takers = [f"`{verb.name}`" for verb in VERBS if name in (verb.options or ())]
        usage = f"--{name} {option.argument}".strip()
        named = " and ".join(filter(None, (", ".join(takers[:-1]), takers[-1])))
        lines.append(f"- `{usage}`: {option.meaning} For {named}.")
    return "\n\n".join([*parts, "\n".join(lines), _BARE.format(trigger=trigger)])
