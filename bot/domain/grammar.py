"""The grammar in which people ask for commands: triggers, verbs, options, and the help that lists them. Pure.

A comment, or the description of a new thread, is a command when the first line that a reader sees as the author's own
words begins with a trigger: `/codepilot <verb> …`. Quotes, fenced and indented code and HTML comments are not the
author's words and are passed over; any other line before the command means that there is none. A line right below a
quote still belongs to the quote, as Markdown draws it, until a blank line ends it. Where Markdown is in doubt, there is
no command.

After the trigger come the verb, its options and free text. To add a verb, add it to `VERBS`; an option, to `OPTIONS`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.domain.commands import (
    DEFAULT_TRIGGER,
    FOLDER,
    Approve,
    Ask,
    Bare,
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
    Unknown,
    Work,
    is_recipe_name,
    is_safe_branch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a comment asks for.

    Attributes:
        command: what was asked.
        trigger: the trigger it was asked with, as it is configured.
        above: what is written above the command: quotes, code and HTML comments.
    """

    command: Command
    trigger: str
    above: str = ""


_QUOTE = re.compile(r" {0,3}>")
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*$)|~{3,})")
_COMMENT = re.compile(r" {0,3}<!--")
_INDENTED = re.compile(r" {0,3}\t| {4}")
_STARTS_A_BLOCK = re.compile(r" {0,3}(?:[-+*#<=_|]|\d{1,9}[.)])")
"""Lines that end a quote above them without a blank line."""

_CALL = re.compile(r" {0,3}(?P<trigger>\S+)(?P<rest>(?:\s.*)?)")
_FIRST_WORD = re.compile(r"\s*(?P<word>\S+)(?P<rest>.*)")
_MAX_WORD = 40


def parse_command(comment_body: str, *, triggers: Sequence[str]) -> Parsed | None:
    """Find the command in a comment, or None when it holds none.

    Trigger and verb are whole words in any case, of ASCII letters where they are configured so: a letter that only
    looks alike is another one. A trigger alone is `Help`. A first word that is no verb makes the text `Bare`, save when
    it is a verb mistyped, which is `Unknown`. The free text is what stands on the command's line and below, without its
    options and the white space around it, and nothing else changed.
    """
    lines = re.split(r"\r\n|\r|\n", comment_body)
    start = _first_own_line(lines)
    call = None if start is None else _CALL.fullmatch(lines[start])
    if start is None or call is None:
        return None
    word = call["trigger"]
    # Some letters outside ASCII become ASCII ones in lower case, such as the Kelvin sign; they are no match.
    same = (each for each in triggers if word == each or (word.isascii() and word.lower() == each.lower()))
    trigger = next(same, None)
    if trigger is None:
        return None
    above = "\n".join(lines[:start])
    return Parsed(command=_command(call["rest"], lines[start + 1 :]), trigger=trigger, above=above)


def _command(line: str, below: list[str]) -> Command:
    """Read the text after the trigger, on its line and below."""
    first = _FIRST_WORD.fullmatch(line)
    if first is None or first["word"] == "--help":
        return Help()
    word, rest = first["word"], first["rest"]
    verb = _verb(word)
    if verb is None:
        meant = _mistyped(word)
        return _bare(line, below) if meant is None else Unknown(word=word[:_MAX_WORD], nearest=meant)
    if verb.options is None:
        return verb.make(_text(rest, below), Options())
    read = read_options(rest, allowed=verb.options, of=f"`{verb.name}`")
    return read if isinstance(read, Malformed) else verb.make(_text(read.text, below), read.options)


def _bare(line: str, below: list[str]) -> Command:
    read = read_options(line, allowed=OPTIONS_OF_WORK, of="a command without a verb")
    if isinstance(read, Malformed):
        return read
    text = _text(read.text, below)
    first = text.split(maxsplit=1)[:1]
    verb = _verb(first[0]) if first else None
    if verb is not None and line.lstrip().startswith("-"):
        return Malformed(reason=f"Options follow the command: write `{verb.name}` first.")
    if not text:
        return Malformed(reason="There are options, but no command word and no text. Add what to do.")
    return Bare(goal=text, options=read.options)


def _text(line: str, below: list[str]) -> str:
    return "\n".join([line, *below]).strip()


def _first_own_line(lines: list[str]) -> int | None:
    """The first line in the author's own words, by number; None when there is none or Markdown is in doubt."""
    number, below_quote = 0, False
    while number < len(lines):
        line = lines[number]
        if not line.strip():
            below_quote = False
        elif _QUOTE.match(line):
            below_quote = True
        elif fence := _FENCE.match(line):
            number = _fence_end(lines, number, fence["mark"])
        elif _COMMENT.match(line):
            end = _comment_end(lines, number)
            if end is None:
                return None
            number = end
        elif _INDENTED.match(line):
            pass
        elif not below_quote:
            return number
        elif _STARTS_A_BLOCK.match(line):
            return None
        number += 1
    return None


def _fence_end(lines: list[str], start: int, mark: str) -> int:
    """The line that closes the fence opened at `start`, or the last line when none does."""
    closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
    ends = (number for number in range(start + 1, len(lines)) if closing.match(lines[number]))
    return next(ends, len(lines) - 1)


def _comment_end(lines: list[str], start: int) -> int | None:
    """The line that closes the HTML comment opened at `start`; None when it is not clear where the comment ends.

    That is so when nothing closes it, when text follows on the closing line, and for `<!-->` and `<!--->`, which are
    whole comments to some and the start of one to others.
    """
    rest = lines[start].partition("<!--")[2]
    if rest.startswith((">", "->")):
        return None
    if "-->" in rest:
        return None if rest.partition("-->")[2].strip() else start
    for number in range(start + 1, len(lines)):
        _, end, after = lines[number].partition("-->")
        if end:
            return None if after.strip() else number
    return None


@dataclass(frozen=True, slots=True)
class Argument:
    """The value that an option takes.

    Attributes:
        name: as the help shows it.
        example: as a remedy names it.
        pattern: the texts that it can be; its only group, or the whole match, is the value.
        type: converts the value; a result that is zero or empty is refused.
    """

    name: str
    example: str
    pattern: re.Pattern[str]
    type: Callable[[str], str | float]

    def read(self, text: str) -> str | float | None:
        """Return the value of a text, or None when the text cannot be one."""
        found = self.pattern.fullmatch(text)
        return (self.type(found[self.pattern.groups]) or None) if found else None


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command.

    Attributes:
        field: the attribute of `Options` that it sets.
        meaning: one sentence for the help.
        argument: its value, or None for an option that takes none.
    """

    field: str
    meaning: str
    argument: Argument | None = None


_MODEL = Argument("NAME", "a model's name", re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}"), str)
_DOLLARS = Argument("USD", "an amount, for example `2.50`", re.compile(r"\$?([0-9]{1,6}(?:\.[0-9]{1,6})?)"), float)
_COUNT = Argument("N", "a whole number, for example `40`", re.compile(r"[0-9]{1,6}"), int)
_BRANCH_NAME = Argument(
    "BRANCH", "a branch's name", re.compile(".*"), lambda text: text if is_safe_branch(text) else ""
)

OPTIONS: Mapping[str, Option] = {
    "model": Option("model", "One of the operator's models.", _MODEL),
    "budget": Option("budget_usd", "The run's cost limit in US dollars; cannot exceed the operator's.", _DOLLARS),
    "max-steps": Option("max_steps", "The run's step limit; cannot exceed the operator's.", _COUNT),
    "candidates": Option(
        "candidates",
        "The number of parallel attempts; the best is published. Cannot exceed the operator's limit.",
        _COUNT,
    ),
    "base": Option(
        "base", "The branch to start from and to open a new pull request against; on issues only.", _BRANCH_NAME
    ),
    "dry-run": Option("dry_run", "Show what would be published without publishing it."),
    "new": Option("new", "Open another pull request even if one of mine is already open for the issue."),
}
"""Every option, by its name without the hyphens, in the order of the help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A command's line, read: its options, and the text without them."""

    options: Options
    text: str


_WORD = re.compile(r"\S+")
_TICKS = re.compile(r"`+")
# Keyboards of telephones make one dash of two hyphens.
_WRITTEN = re.compile(
    r"(?P<dashes>-{1,2}|[\u2010-\u2015\u2212])(?P<name>[A-Za-z][A-Za-z0-9_-]{0,39})(?:=(?P<value>.*))?"
)
_OTHERWISE = "To mention an option without using it, put it in backticks, or put `--` before the text."


def read_options(line: str, *, allowed: Collection[str], of: str) -> Read | Malformed:
    """Take the options out of a command's line.

    An option counts wherever it stands on the line: a `--dry-run` that was taken for text would publish.

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
    found, known = _WRITTEN.fullmatch(word), _listed(OPTIONS)
    if found is None:
        unreadable = leading and word.startswith("--")
        return (
            Malformed(reason=f"An option is not valid. The options are {known}. {_OTHERWISE}") if unreadable else None
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
        reason=f"There is no option `{found['dashes']}{found['name']}`.{hint} The options are {known}. {_OTHERWISE}"
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
    if option.argument is None:
        return Malformed(reason=f"`--{name}` takes no value. Write it without one.") if joined else (True, 1)
    value = option.argument.read(text if joined else following or "")
    if value is None:
        return Malformed(reason=f"`--{name}` requires {option.argument.example}. {_OTHERWISE}")
    return value, 1 if joined else 2


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"`--{name}`" for name in names)


Group = Literal["work", "steering"]


@dataclass(frozen=True, slots=True)
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


def _work(kind: type[Work]) -> Callable[[str, Options], Command]:
    return lambda goal, options: kind(goal=goal, options=options)


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


def _without_text(command: Command, remedy: str) -> Callable[[str, Options], Command]:
    return lambda text, _: Malformed(reason=remedy) if text else command


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
        "fix",
        "work",
        "[what to do]",
        "Change the code and publish the change; without text, fix what the thread describes.",
        _work(Fix),
        OPTIONS_OF_WORK,
    ),
    Verb(
        "review",
        "work",
        "[what to look at]",
        "Comment on the lines of a pull request, with suggestions to commit; I never approve one.",
        _work(Review),
        tuple(name for name in OPTIONS if name not in {"base", "new", "candidates"}),
    ),
    Verb(
        "explain",
        "work",
        "[what]",
        "Explain the code that the thread or the commented lines are about.",
        _work(Explain),
        _WITHOUT_PUBLISHING,
    ),
    Verb(
        "plan",
        "work",
        "[what to do]",
        "Describe what I would change and how; approving the plan starts the work.",
        _work(Plan),
        (*_WITHOUT_PUBLISHING, "new"),
    ),
    Verb("ask", "work", "[question]", "Answer a question about the code.", _work(Ask), _WITHOUT_PUBLISHING),
    Verb(
        "test",
        "work",
        "[what]",
        "Run the tests and report the results; nothing is published.",
        _work(Test),
        _WITHOUT_PUBLISHING,
    ),
    Verb(
        "run",
        "work",
        "<recipe> [text]",
        "Start a recipe of this repository.",
        _run,
        ("model", "budget", "max-steps", "dry-run"),
    ),
    Verb(
        "undo",
        "work",
        "",
        "Revert the last commit I made for this thread, with a new commit.",
        _without_text(
            Undo(),
            "`undo` takes no text: it reverts only the last commit I made for this thread. For anything else, use "
            "`fix` and describe the change.",
        ),
        (),
    ),
    Verb("continue", "steering", "<message>", "Send a message to the running job, or answer its question.", _continue),
    Verb(
        "approve",
        "steering",
        "[id] [--like]",
        "Approve a request; without an id, the only one that waits. With `--like`, also approve similar "
        "commands in this run.",
        _approve,
    ),
    Verb("deny", "steering", "[id] [why]", "Deny a request, with an optional reason.", _deny),
    Verb("stop", "steering", "", "Stop the running job; its work so far is kept.", lambda *_: Stop()),
    Verb(
        "retry",
        "steering",
        "",
        "Run the last job again from the start.",
        _without_text(
            Retry(),
            "`retry` takes no text: it repeats the last job unchanged. For anything else, write a new command, such "
            "as `fix` and what to do.",
        ),
        (),
    ),
    Verb("status", "steering", "", "Show which jobs are running or waiting in this thread.", lambda *_: ShowStatus()),
    Verb("help", "steering", "", "Show this list.", lambda *_: Help()),
)
"""Every verb, in the order of the help; to add one, add it here and to `Command`."""

_BY_NAME = {verb.name: verb for verb in VERBS}
_SHORT = 4


def _verb(word: str) -> Verb | None:
    return _BY_NAME.get(word.lower()) if word.isascii() else None


def _mistyped(word: str) -> str | None:
    """The verb that was meant, when it is plain that one was.

    A word of the language may be one letter away from a short verb (`tests`, `task`, `as`), so that only two letters
    swapped, a letter doubled, or a stop after it make a short one mistyped.
    """
    word = word.lower()
    plain = word.rstrip(",.:;!?")
    for name in _BY_NAME:
        close = is_typo(plain, name) if len(name) > _SHORT else is_transposition(plain, name) or _doubled(plain, name)
        if close or plain == name:
            return name
    return None


def _doubled(word: str, name: str) -> bool:
    return len(word) == len(name) + 1 and any(name[:n] + name[n - 1 :] == word for n in range(1, len(name) + 1))


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


_HEADINGS: dict[Group, str] = {"work": "Work", "steering": "Steering"}
_BARE = (
    "`{trigger} [text]` without a command word means `fix` on an issue and `ask` on a pull request, unless the "
    "repository configures it otherwise."
)


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
        usage = f"--{name} {option.argument.name}" if option.argument else f"--{name}"
        named = " and ".join(filter(None, (", ".join(takers[:-1]), takers[-1])))
        lines.append(f"- `{usage}`: {option.meaning} For {named}.")
    return "\n\n".join([*parts, "\n".join(lines), _BARE.format(trigger=trigger)])
