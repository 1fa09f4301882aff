"""Parse commands from comments and descriptions. Pure. Add verbs to `VERBS`, options to `OPTIONS`.

A text is a command if its first line in the author's own words begins with a trigger: `/codepilot <verb> …`. Quotes,
code blocks and HTML comments before it are skipped. A line below a quote belongs to it until a blank line, as Markdown
renders it. Where Markdown is ambiguous there is no command. The old mail and the signature below a reply by e-mail are
not part of the text (`mail_reply.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.domain.commands import (
    DEFAULT_TRIGGER,
    RECIPE_DIR,
    WORK_VERBS,
    Approve,
    Ask,
    BadUsage,
    BareCommand,
    Command,
    Continue,
    Deny,
    Describe,
    Explain,
    Fix,
    Help,
    Options,
    Plan,
    Remember,
    Resolve,
    Retry,
    Review,
    ShowStatus,
    StartRecipe,
    Stop,
    Test,
    Unclear,
    Undo,
    UnknownVerb,
    Work,
    is_recipe_name,
    is_safe_branch,
)
from bot.domain.mail_reply import LINE_END, split_reply
from bot.domain.short_words import (
    POLITE,
    PUNCTUATION,
    SHORT_WORDS,
    Meaning,
    find_meaning,
    find_opening,
    has_doubled_letter,
    is_transposition,
    is_typo,
    split_words,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """A command in a comment.

    Attributes:
        text_above: quotes, code and HTML comments above the command.
        left_out: the first line of a second command, which ends the first one's text; else empty.
    """

    command: Command
    trigger: str
    text_above: str = ""
    left_out: str = ""


_QUOTE = re.compile(r" {0,3}>")
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*$)|~{3,})")
_COMMENT = re.compile(r" {0,3}<!--")
_INDENTED = re.compile(r" {0,3}\t| {4}")
_IS_SPECIAL = re.compile(r" {0,3}[\t>`~<]| {4}|\s*$")
"""Lines that may be blank, indented or the start of a quote, a fence or a comment: a quick test for long texts."""
_STARTS_A_BLOCK = re.compile(r" {0,3}(?:[-+*#<=_|]|\d{1,9}[.)])")
"""Lines that end a quote above them without a blank line."""

_CALL = re.compile(r" {0,3}(?P<trigger>\S+)(?P<rest>(?:\s.*)?)")
_CALLS_AGAIN = re.compile(r" {0,3}[/@]")
_FIRST_WORD = re.compile(r"\s*(?P<word>\S+)(?P<rest>.*)")
_MAX_WORD = 40
_MAX_LINE = 100


def parse_command(comment_body: str, *, triggers: Sequence[str]) -> ParsedCommand | None:
    """Return the first command in a comment, or None.

    Triggers and verbs are whole words, matched without case and punctuation after them. A trigger alone is `Help`; an
    unknown first word makes the text `BareCommand`, or `UnknownVerb` if it is a mistyped verb.
    """
    lines, _ = split_reply(LINE_END.split(comment_body))
    own_lines = _find_own_lines(lines)
    start = next(own_lines, None)
    call = None if start is None else _match_call(lines[start], triggers)
    if start is None or call is None:
        return None
    # A line that begins with the trigger and has no verb is text, as in a sentence about the bot.
    calls = (number for number in own_lines if _CALLS_AGAIN.match(lines[number]))
    second = next((number for number in calls if _begins_command(lines[number], triggers)), len(lines))
    return ParsedCommand(
        command=_parse_verb(call[1], lines[start + 1 : second]),
        trigger=call[0],
        text_above="\n".join(lines[:start]),
        left_out="".join(lines[second : second + 1]).strip()[:_MAX_LINE],
    )


def _match_call(line: str, triggers: Sequence[str]) -> tuple[str, str] | None:
    """Return the trigger that a line begins with, and the rest of the line."""
    match = _CALL.fullmatch(line)
    if match is None:
        return None
    for word in (match["trigger"], match["trigger"].rstrip(",:!")):
        # Some non-ASCII letters, such as the Kelvin sign, become ASCII in lower case; they do not match.
        matching = (text for text in triggers if word == text or (word.isascii() and word.lower() == text.lower()))
        if (trigger := next(matching, None)) is not None:
            return trigger, match["rest"]
    return None


def _begins_command(line: str, triggers: Sequence[str]) -> bool:
    call = _match_call(line, triggers)
    first = None if call is None else _FIRST_WORD.fullmatch(call[1])
    if call is None or first is None:
        return False
    return _find_verb(first["word"]) is not None or find_meaning(call[1]) in _VERB_OF


def _parse_verb(line: str, below: list[str]) -> Command:
    text = _join_text(line, below)
    first = _FIRST_WORD.fullmatch(line)
    if first is None or first["word"] == "--help":
        return Help()
    own_text, verb = _without_quotes(text), _find_verb(first["word"])
    meaning = None if verb is not None and verb.group == "work" else find_meaning(own_text)
    if meaning is not None:
        return _answer_in_words(meaning, own_text)
    words, (word, rest) = split_words(text), first.group("word", "rest")
    if word.rstrip(PUNCTUATION).lower() in POLITE and len(words) == 1 and _find_verb(words[0]):
        word, rest, below = words[0], "", []
    verb = _find_verb(word)
    if verb is not None:
        return _parse_text(verb, rest, below)
    nearest = _find_similar_verb(word, alone=text == word)
    return _parse_bare(line, below) if nearest is None else UnknownVerb(word=word[:_MAX_WORD], nearest=nearest)


def _parse_text(verb: Verb, line: str, below: list[str]) -> Command:
    if verb.options is None:
        return verb.make(_join_text(line, below), Options())
    parsed = parse_options(line, allowed=verb.options, of=f"`{verb.name}`")
    if isinstance(parsed, BadUsage):
        return parsed
    goal = _join_text(parsed.text, below)
    if verb.name in WORK_VERBS and "--" not in line.split() and find_meaning(goal) in {"stop", "no", "unclear"}:
        return Unclear(words=f"{verb.name} {goal}"[:_MAX_WORD])
    return verb.make(goal, parsed.options)


def _answer_in_words(meaning: Meaning, text: str) -> Command:
    """Return the command that short words mean; those that begin with a verb are the verb.

    A yes or no answers a question word for word, so a longer text is none.
    """
    words = split_words(text)[:1]
    word = "" if words and words[0] in _VERBS_BY_NAME else " ".join(text.split())
    match meaning:
        case "stop":
            return Stop(word=word[:_MAX_WORD])
        case "yes":
            return Approve(word=word)
        case "no" if find_meaning(text):
            return Deny(word=word)
        case _:
            return Unclear(words=" ".join(text.split())[:_MAX_WORD])


def _parse_bare(line: str, below: list[str]) -> Command:
    parsed = parse_options(line, allowed=OPTIONS_OF_WORK, of="a command without a verb")
    if isinstance(parsed, BadUsage):
        return parsed
    text = _join_text(parsed.text, below)
    first = text.split(maxsplit=1)[:1]
    verb = _find_verb(first[0]) if first else None
    if verb is not None and line.lstrip().startswith("-"):
        return BadUsage(reason=f"Options follow the command: write `{verb.name}` first.")
    if not text:
        return BadUsage(reason="There are options, but no command word and no text. Add what to do.")
    meaning = None if "--" in line.split() else find_meaning(text) or find_opening(text)
    if meaning is not None:
        return _answer_in_words(meaning, text)
    return BareCommand(goal=text, options=parsed.options)


def _without_quotes(text: str) -> str:
    """Return a text without the quotes below it, such as one of the request."""
    return "\n".join(line for line in text.split("\n") if not _QUOTE.match(line)).strip()


def _join_text(line: str, below: list[str]) -> str:
    return "\n".join([line, *below]).strip()


def _find_own_lines(lines: list[str]) -> Iterator[int]:
    """Yield the indices of the author's own lines until one where Markdown is ambiguous."""
    number, below_quote = 0, False
    while number < len(lines):
        line = lines[number]
        if not below_quote and not _IS_SPECIAL.match(line):
            yield number
        elif not line.strip() or _QUOTE.match(line):
            below_quote = bool(line.strip())
        elif fence := _FENCE.match(line):
            number = _find_fence_end(lines, number, fence["mark"])
        elif _COMMENT.match(line):
            end = _find_comment_end(lines, number)
            if end is None:
                return
            number = end
        elif _INDENTED.match(line):
            pass
        elif not below_quote:
            yield number
        elif _STARTS_A_BLOCK.match(line):
            return
        number += 1


def _find_fence_end(lines: list[str], start: int, mark: str) -> int:
    closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
    ends = (number for number in range(start + 1, len(lines)) if closing.match(lines[number]))
    return next(ends, len(lines) - 1)


def _find_comment_end(lines: list[str], start: int) -> int | None:
    """Return the index of the line that closes an HTML comment, or None if its end is ambiguous.

    It is ambiguous without an end, with text after the end, and for `<!-->` and `<!--->`, which parsers disagree about.
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
    """The value of an option.

    Attributes:
        pattern: its only group, or the whole match, is the value.
    """

    name: str
    example: str
    pattern: re.Pattern[str]
    type: Callable[[str], str | float]

    def parse(self, text: str) -> str | float | None:
        match = self.pattern.fullmatch(text)
        return (self.type(match[self.pattern.groups]) or None) if match else None


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command."""

    field: str
    meaning: str
    argument: Argument | None = None


_MODEL = Argument("NAME", "a model's name", re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}"), str)
_DOLLARS = Argument("USD", "an amount, for example `2.50`", re.compile(r"\$?([0-9]{1,6}(?:\.[0-9]{1,6})?)"), float)
_COUNT = Argument("N", "a whole number, for example `40`", re.compile(r"[0-9]{1,6}"), int)
_BRANCH_NAME = Argument(
    "BRANCH", "a branch's name", re.compile(".*"), lambda text: text if is_safe_branch(text) else ""
)
_AGENT = Argument("NAME", "an agent's name", re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"), str)

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
    "agent": Option("agent", "One of the repository's agents in `.github/agents`; it only restricts the run.", _AGENT),
}
"""Options by name without hyphens, in the order of the help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    options: Options
    text: str


_WORD = re.compile(r"\S+")
_TICKS = re.compile(r"`+")
# Phone keyboards replace two hyphens by one dash.
_OPTION = re.compile(
    r"(?P<dashes>-{1,2}|[\u2010-\u2015\u2212])(?P<name>[A-Za-z][A-Za-z0-9_-]{0,39})(?:=(?P<value>.*))?"
)
_LITERAL_HINT = "To mention an option without using it, put it in backticks, or put `--` before the text."


def parse_options(line: str, *, allowed: Collection[str], of: str) -> ParsedLine | BadUsage:
    """Parse the options of a command line, at any position: a `--dry-run` mistaken for text would publish."""
    words = list(_WORD.finditer(_mask_code(line)))
    chosen: dict[str, Any] = {}
    text_parts: list[str] = []
    number, end = 0, 0
    while number < len(words):
        word = words[number][0]
        if word == "--" and not text_parts:
            text_parts.append(line[words[number].end() :])
            break
        name = _parse_option_name(word, leading=not text_parts)
        if isinstance(name, BadUsage):
            return name
        if name is None:
            text_parts.append(line[end : words[number].end()])
            width = 1
        else:
            following = words[number + 1][0] if number + 1 < len(words) else None
            result = _parse_option_value(name, word, following, allowed=allowed, of=of)
            if isinstance(result, BadUsage):
                return result
            value, width = result
            if OPTIONS[name].field in chosen:
                return BadUsage(reason=f"`--{name}` is given twice. Write it once.")
            chosen[OPTIONS[name].field] = value
        number += width
        end = words[number - 1].end()
    return ParsedLine(options=Options(**chosen), text="".join(text_parts).strip())


def _mask_code(line: str) -> str:
    """Replace code spans with backticks, so that they contain no options."""
    runs = list(_TICKS.finditer(line))
    closing: dict[int, re.Match[str] | None] = {}
    later: dict[int, re.Match[str]] = {}
    for run in reversed(runs):
        closing[run.start()] = later.get(len(run[0]))
        later[len(run[0])] = run
    parts, at = [], 0
    for run in runs:
        end = closing[run.start()]
        if end is not None and run.start() >= at:
            parts += [line[at : run.start()], "`" * (end.end() - run.start())]
            at = end.end()
    return "".join([*parts, line[at:]])


def _parse_option_name(word: str, *, leading: bool) -> str | BadUsage | None:
    """Return the option's name, or the error; None for a word of the text.

    After the start of the text, only a word close to an option's name counts as mistyped.
    """
    match, valid = _OPTION.fullmatch(word), _list_options(OPTIONS)
    if match is None:
        is_invalid = leading and word.startswith("--")
        return (
            BadUsage(reason=f"An option is not valid. The options are {valid}. {_LITERAL_HINT}") if is_invalid else None
        )
    name, has_two_hyphens = match["name"].lower(), match["dashes"] == "--"
    if name in OPTIONS and has_two_hyphens:
        return name
    similar = [option for option in OPTIONS if name == option or is_typo(name, option)]
    if not similar and not (leading and has_two_hyphens):
        return None
    nearest = similar or difflib.get_close_matches(name, OPTIONS, n=1)
    hint = f" Did you mean `--{nearest[0]}`?" if nearest else ""
    return BadUsage(
        reason=f"There is no option `{match['dashes']}{match['name']}`.{hint} The options are {valid}. {_LITERAL_HINT}"
    )


def _parse_option_value(
    name: str, word: str, following: str | None, *, allowed: Collection[str], of: str
) -> tuple[object, int] | BadUsage:
    option = OPTIONS[name]
    if name not in allowed:
        takes = f"only {_list_options(allowed)}" if allowed else "no options"
        return BadUsage(reason=f"`--{name}` is not supported here: {of} takes {takes}. {_LITERAL_HINT}")
    _, has_equals, text = word.partition("=")
    if option.argument is None:
        return BadUsage(reason=f"`--{name}` takes no value. Write it without one.") if has_equals else (True, 1)
    value = option.argument.parse(text if has_equals else following or "")
    if value is None:
        return BadUsage(reason=f"`--{name}` requires {option.argument.example}. {_LITERAL_HINT}")
    return value, 1 if has_equals else 2


def _list_options(names: Collection[str]) -> str:
    return ", ".join(f"`--{name}`" for name in names)


Group = Literal["work", "steering"]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb and its parser.

    Attributes:
        options: None if the text after the verb is not searched for options.
    """

    name: str
    group: Group
    arguments: str
    meaning: str
    make: Callable[[str, Options], Command]
    options: tuple[str, ...] | None = None


_LIKE = "--like"
_REQUEST_ID = re.compile(r"[0-9A-Fa-f]{4,8}")
_ANOTHER_COMMIT = re.compile(
    r"(?i)(?:(?:the|my|your|these|those) )?"
    r"(?:(?:last|previous|first|second|other|earlier|both|all|everything|commits?|[0-9a-f]{7,40})\b|#?\d)"
)
"""The beginning of a text that says which commit is meant, and not why."""

OPTIONS_OF_WORK = tuple(OPTIONS)
_OF_RECIPES = ("model", "budget", "max-steps", "dry-run")
_ON_PULL_REQUESTS = tuple(name for name in OPTIONS if name not in {"base", "new", "candidates"})
_WITHOUT_PUBLISHING = tuple(name for name in OPTIONS if name not in {"dry-run", "new", "candidates"})


def _work_parser(kind: type[Work]) -> Callable[[str, Options], Command]:
    return lambda goal, options: kind(goal=goal, options=options)


def _approve(text: str, _: Options) -> Command:
    words = _without_quotes(text).split()
    words = [word.rstrip(PUNCTUATION) for word in words if word.strip(PUNCTUATION).lower() not in POLITE]
    like = _LIKE in words
    text = " ".join(word for word in words if word != _LIKE)
    if (text and not _REQUEST_ID.fullmatch(text)) or words.count(_LIKE) > 1:
        return BadUsage(
            reason="`approve` accepts only the id of a request, 4 to 8 hexadecimal digits, and `--like`. Without an "
            "id it applies to the only request in the thread. To approve under a condition, deny and say why."
        )
    return Approve(request_id=text.lower(), like=like)


def _deny(text: str, _: Options) -> Command:
    first = text.split(maxsplit=1)[0] if text else ""
    if _REQUEST_ID.fullmatch(request_id := first.rstrip(PUNCTUATION)):
        return Deny(request_id=request_id.lower(), why=text[len(first) :].strip())
    return Deny(why=text)


def _retry(text: str, _: Options) -> Command:
    remedy = "For anything else, write a new command, such as `fix` and what to do."
    return BadUsage(reason=f"`retry` takes no text: it repeats the last work unchanged. {remedy}") if text else Retry()


def _undo(text: str, _: Options) -> Command:
    if _ANOTHER_COMMIT.match(text):
        return BadUsage(
            reason="`undo` reverts only the last commit I made for this thread; text after it says why, as in `undo "
            "because the tests fail`. For anything else, use `fix` and describe the change."
        )
    return Undo(why=text)


def _run(text: str, options: Options) -> Command:
    name = next(iter(text.split(maxsplit=1)), "")
    if not is_recipe_name(name.lower()):
        return BadUsage(
            reason=f"`run` starts a recipe of this repository: a file in `{RECIPE_DIR}/`, named without `.md`. For "
            "a task in your own words, use `fix`, `ask` or `test`."
        )
    return StartRecipe(name=name.lower(), words=text[len(name) :].strip(), options=options)


VERBS: tuple[Verb, ...] = (
    Verb(
        "fix",
        "work",
        "[what to do]",
        "Change the code and publish the change; without text, fix what the thread describes.",
        _work_parser(Fix),
        OPTIONS_OF_WORK,
    ),
    Verb(
        "resolve",
        "work",
        "[how]",
        "Merge the base branch into a pull request, and resolve the conflicts.",
        _work_parser(Resolve),
        (*_OF_RECIPES, "agent"),
    ),
    Verb(
        "review",
        "work",
        "[what to look at]",
        "Comment on the lines of a pull request, with suggestions to commit; I never approve one.",
        _work_parser(Review),
        _ON_PULL_REQUESTS,
    ),
    Verb(
        "describe",
        "work",
        "[what matters]",
        "Write the title and the description of a pull request, after an approval at the level `ask`.",
        _work_parser(Describe),
        _ON_PULL_REQUESTS,
    ),
    Verb(
        "explain",
        "work",
        "[what]",
        "Explain the code that the thread or the commented lines are about.",
        _work_parser(Explain),
        _WITHOUT_PUBLISHING,
    ),
    Verb(
        "plan",
        "work",
        "[what to do]",
        "Describe what I would change and how; approving the plan starts the work.",
        _work_parser(Plan),
        (*_WITHOUT_PUBLISHING, "new"),
    ),
    Verb("ask", "work", "[question]", "Answer a question about the code.", _work_parser(Ask), _WITHOUT_PUBLISHING),
    Verb(
        "test",
        "work",
        "[what]",
        "Run the tests and report the results; nothing is published.",
        _work_parser(Test),
        _WITHOUT_PUBLISHING,
    ),
    Verb(
        "run",
        "work",
        "<recipe> [text]",
        "Start a recipe of this repository.",
        _run,
        _OF_RECIPES,
    ),
    Verb(
        "triage",
        "work",
        "[what matters]",
        "Label an issue, set its type, link a duplicate, and ask for missing information.",
        lambda text, options: _run(f"triage {text}", options),
        _OF_RECIPES,
    ),
    Verb(
        "split",
        "work",
        "[how]",
        "Split an issue into sub-issues; approving the list creates them.",
        lambda text, options: _run(f"split {text}", options),
        _OF_RECIPES,
    ),
    Verb(
        "undo",
        "work",
        "[why]",
        "Revert the last commit I made for this thread, with a new commit; the next run here is told why.",
        _undo,
        (),
    ),
    Verb(
        "remember",
        "work",
        "[rule]",
        "Add a rule for later runs to a pull request, which you merge; without text, the rule that I offered.",
        lambda text, _: Remember(rule=_without_quotes(text)),
    ),
    Verb(
        "continue",
        "steering",
        "[message]",
        "Send a message to the running job, or answer its question.",
        lambda text, _: Continue(message=text),
    ),
    Verb(
        "approve",
        "steering",
        "[id] [--like]",
        "Approve a request; without an id, the only one that waits. With `--like`, also approve similar "
        "commands in this run.",
        _approve,
    ),
    Verb(
        "deny",
        "steering",
        "[id] [why]",
        "Deny a request, with an optional reason. With numbers after the id, deny only these of a list of actions.",
        _deny,
    ),
    Verb("stop", "steering", "", "Stop the running job; its work so far is kept.", lambda *_: Stop()),
    Verb(
        "retry",
        "steering",
        "",
        "Run the last work again from the start; what was undone since is told to it.",
        _retry,
        (),
    ),
    Verb("status", "steering", "", "Show which jobs are running or waiting in this thread.", lambda *_: ShowStatus()),
    Verb("help", "steering", "", "Show this list.", lambda *_: Help()),
)
"""All verbs, in the order of the help. Add a new one here and to `Command`."""

_VERBS_BY_NAME = {verb.name: verb for verb in VERBS}

_VERB_OF: Mapping[Meaning | None, str] = {"stop": "stop", "yes": "approve", "no": "deny"}

Place = Literal["app", "workflow", "workflow with approvals", "workflow without a key"]
"""A place of commands. A workflow without a key has neither `session-key` nor the key of a model service, so no run can
read what an earlier one has stored."""
_PLAN = "Describe what I would change and how"
_IN_WORKFLOWS: Mapping[str, Mapping[Place, str]] = {
    "describe": dict.fromkeys(
        ("workflow", "workflow without a key"),
        "Write the title and the description of a pull request; at the level `ask`, only show them.",
    ),
    "split": dict.fromkeys(("workflow", "workflow without a key"), "Show the sub-issues of an issue; none is created."),
    "plan": {"workflow": f"{_PLAN}; `continue` starts the work.", "workflow without a key": f"{_PLAN}."},
    "continue": {
        "workflow": "Start the work on a finished plan.",
        "workflow with approvals": "Answer the question of a waiting run.",
        "workflow without a key": "",
    },
    "stop": {
        "workflow": "Cancel the workflow run of the running job; its work so far is kept.",
        "workflow with approvals": "Cancel the run of the running job, or end a waiting one; its work so far is kept.",
        "workflow without a key": "",
    },
    **{verb: {"workflow": "", "workflow without a key": ""} for verb in ("approve", "deny")},
    **{verb: {"workflow without a key": ""} for verb in ("undo", "retry", "status")},
    "remember": {"workflow without a key": "Add a rule for later runs to a pull request, which you merge."},
}
"""The meanings of verbs that differ in workflows; empty where a verb cannot work."""


def describe_verb(verb: Verb, place: Place) -> str:
    """Return the verb's meaning in a place; empty if it cannot work there."""
    return _IN_WORKFLOWS.get(verb.name, {}).get(place, verb.meaning)


def find_missing_input(verb: str, place: Place) -> str:
    """Return the input of the action without which a verb cannot work in a place; empty if it can."""
    if _IN_WORKFLOWS.get(verb, {}).get(place, verb):
        return ""
    return "approvals: artifact" if place == "workflow" else "session-key"


_PLACE = r"(?:this|the|my|our) (?:branch|pr|pull request)"
_BASE = r"(?:(?:the )?base(?: branch)?|(?:the )?`?(?P<branch>[^\s`,;:]{0,254}?[^\s`,;:.!])`?(?: branch)?)"
_USUAL_BASES = frozenset({"main", "master", "trunk", "develop", "dev"})
_CONFLICTS = r"(?:(?:all|any) )?(?:(?:the|these|those|its|our|my) )?(?:(?:remaining|git) )?(?:merge )?conflicts?"
_MERGE_END = r"(?:[.!]*+|(?:[.!,;:]++\s++|[.!]*+[^\S\n]*+\n\s*+)(?P<how>.*))"
_MERGES = tuple(
    re.compile(rf"(?is)(?:please )?{words}(?: please)?{_MERGE_END}")
    for words in (
        rf"(?:resolve|fix|solve) {_CONFLICTS}(?: (?:here|in {_PLACE}|of {_PLACE}))?(?: (?:with|from|against) {_BASE})?",
        rf"merge {_BASE} (?:in|into) {_PLACE}(?: and (?:resolve|fix|solve) {_CONFLICTS})?",
        rf"update {_PLACE} (?:with|from) {_BASE}(?: and (?:resolve|fix|solve) {_CONFLICTS})?",
    )
)


def parse_merge_request(goal: str) -> Resolve | None:
    """Return the command that a request to `fix` means if it begins by asking for a merge of the base branch.

    A sentence that mentions a conflict and is about more than a merge is none.
    """
    match = next(filter(None, (words.fullmatch(goal.strip()) for words in _MERGES)), None)
    if match is None:
        return None
    branch = (match["branch"] or "").removeprefix("origin/")
    # Something else than a branch, such as a package, may be in conflict, too.
    is_clear = "merge" in goal.lower() or "update" in goal.lower() or "/" in branch or f"`{branch}`" in goal
    if branch and not is_clear and branch not in _USUAL_BASES:
        return None
    return Resolve(goal=(match["how"] or "").strip(), branch=branch)


_SHORT_VERB_LENGTH = 4


def _find_verb(word: str) -> Verb | None:
    return _VERBS_BY_NAME.get(word.rstrip(PUNCTUATION).lower()) if word.isascii() else None


def _find_similar_verb(word: str, *, alone: bool) -> str | None:
    """Return the verb that the word probably means; a word `alone` may be a mistyped one for stop or no.

    Short verbs are one letter away from ordinary words (`tests`, `task`): for them only a transposition, a doubled
    letter or a question mark counts.
    """
    stripped = word.lower().rstrip(f"?{PUNCTUATION}")
    others = {text: _VERB_OF[meaning] for text, meaning in SHORT_WORDS.items() if meaning in {"stop", "no"}}
    for text, name in {**dict(zip(_VERBS_BY_NAME, _VERBS_BY_NAME, strict=True)), **(others if alone else {})}.items():
        is_similar = is_transposition(stripped, text) or has_doubled_letter(stripped, text)
        if stripped == text or is_similar or (len(text) > _SHORT_VERB_LENGTH and is_typo(stripped, text)):
            return name
    return None


_HEADINGS: dict[Group, str] = {"work": "Work", "steering": "Steering"}
_BARE = (
    "`{trigger} [text]` without a command word means `fix` on an issue and `ask` on a pull request, unless the "
    "repository configures it otherwise."
)


def render_help(*, trigger: str = DEFAULT_TRIGGER, place: Place = "app") -> str:
    parts, offered = [], [(verb, meaning) for verb in VERBS if (meaning := describe_verb(verb, place))]
    for group, heading in _HEADINGS.items():
        usages = (
            (f"{trigger} {verb.name} {verb.arguments}".strip(), meaning)
            for verb, meaning in offered
            if verb.group == group
        )
        parts.append("\n".join([f"**{heading}**\n", *(f"- `{usage}`: {meaning}" for usage, meaning in usages)]))
    lines = ["**Options**, on the command's own line\n"]
    for name, option in OPTIONS.items():
        verbs = [f"`{verb.name}`" for verb in VERBS if name in (verb.options or ())]
        usage = f"--{name} {option.argument.name}" if option.argument else f"--{name}"
        verb_list = " and ".join(filter(None, (", ".join(verbs[:-1]), verbs[-1])))
        lines.append(f"- `{usage}`: {option.meaning} For {verb_list}.")
    return "\n\n".join([*parts, "\n".join(lines), _BARE.format(trigger=trigger)])
