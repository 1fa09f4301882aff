"""Decide which calls a run may make and how much it may spend. Pure.

`Policy.decide` splits a call into parts (files, simple commands) and lets the first `Rule` about each part decide it.
`exact_patterns` and `alike_patterns` make the patterns by which a person who was asked about a command can allow it, or
others like it, for good. A pattern must be no broader than it looks: it never stands for another program or
subcommand, nor for further words at its end. Patterns of others like it exist only for the programs and subcommands of
`programs.toml`, whose grammar tells operands from all other words.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.values import PendingCall, Plain
from agent_runtime.policy.shell import (
    PLACEHOLDERS,
    CommandPattern,
    CommandPatterns,
    Fit,
    ParsedCommand,
    PathGlob,
    commands_of,
    excess,
)

Verdict = Literal["allow", "ask", "deny"]

TOKENS_PER_USD = 400_000
"""Tokens of a model whose price is not known, sent and received, that count as one US dollar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Bounds of one run.

    Attributes:
        max_steps: model replies that may act.
        max_format_errors: replies in a row that cannot be understood.
        max_cost_usd: US dollars; None for no bound. Without a known price, `TOKENS_PER_USD` tokens count as one.
        max_tokens: tokens sent and received, cached ones included; None for no bound.
        max_repeated_calls: steps in a row that make the very same calls with the same contents.
        max_seconds: wall time of the whole run, without the waits for a person or for a model service that is down.
        outage_seconds: for how long a model service that is down is waited for, before the run ends its leg as
            `model_unavailable`.
        max_calls_per_step: tool calls in one control block.
        max_output_chars_per_step: characters of results and prints that one step may show.
    """

    max_steps: int = 30
    max_format_errors: int = 3
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_repeated_calls: int = 5
    max_seconds: float = 1800.0
    outage_seconds: float = 300.0
    max_calls_per_step: int = 200
    max_output_chars_per_step: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """The facts about a tool call that are known without making it.

    Attributes:
        tool: the tool's name.
        args: by parameter name; plain data.
        paths: every file or directory that it would read or write, canonical: relative to the workspace, links
            followed; absolute for what lies outside.
        writes: whether it would change files.
        command: what it gives to a shell.
        typed: what it types into a program that runs.
        cwd: the directory that the command would run in; empty where that is not known.
        shell: what would read the command; only bash is understood, and an allow rule never covers another's.
        outside: whether it reaches past the workspace and its sandbox; such a call requires approval unless a rule
            allows it.
    """

    tool: str
    args: dict[str, Plain] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    writes: bool = False
    command: str | None = None
    typed: str | None = None
    cwd: str = ""
    shell: str = "bash"
    outside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Permitted:
    """The call may be made."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsApproval:
    """A person has to approve the call first; the reason is for them."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The call is not made; the reason is for the model."""

    reason: str


Decision = Permitted | NeedsApproval | Denied

_STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}

# What is typed into a running program may reach a shell: it passes the gate that commands pass.
# So does what is taken over from a copy of the workspace, where rules about files did not bind the shell.
_SAME_GATE = {"send_input": "execute", "collect": "write_file"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The decision on some calls.

    A rule with `paths` is about the files that a call names, one with `commands` about what it gives to a shell, one
    with neither about whole calls. An `allow` is read to the letter. An `ask` or a `deny` is read generously: paths
    whatever their case, and with all that lies beneath; commands also where they may be meant, which is asked about.

    Attributes:
        decision: the decision.
        tool: the tool's name, or a glob of names; a rule about `execute` is about `send_input`, too, and one about
            `write_file` about `collect`.
        paths: globs of files; see `PathGlob`.
        commands: patterns of commands; see `CommandPattern`. None of them ever allows what is typed by `send_input`.
        reason: for the person who is asked, or the model that is refused.
    """

    decision: Verdict
    tool: str = "*"
    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        """Check the rule.

        Raises:
            SettingsError: there is no such decision, or a glob or pattern cannot be read.
        """
        if self.decision not in _STRICTNESS:
            raise SettingsError(f"rule {self.decision!r}: decision must be 'allow', 'ask' or 'deny'")
        for name in ("paths", "commands"):
            if not isinstance(getattr(self, name), tuple):
                raise SettingsError(f"rule {self.decision!r} for {self.tool!r}: {name} must be a tuple of texts")
        for glob in self.paths:
            PathGlob.parse(glob)
        for pattern in self.commands:
            CommandPattern.parse(pattern)

    @property
    def is_sweeping(self) -> bool:
        """Whether it is about whole calls, whatever they name."""
        return not self.paths and not self.commands

    def is_about(self, tool: str) -> bool:
        """Whether it is about calls of a tool."""
        return any(fnmatchcase(name, self.tool) for name in {tool, _SAME_GATE.get(tool, tool)})


_HARMLESS_TOOLS = frozenset(
    {
        "ask_user",
        "read_output",
        "read_skill",
        "terminate_terminal",
        "archive_context",
        "reveal_context",
        "list_archived_context",
        "delegate",
        "task_status",
    }
)
"""Tools that reach no further than the conversation, what an allowed command started, and child runs, whose calls this
policy decides as well: no default is about them."""

_SIGNALS = frozenset("\x03\x04\x1c")
"""Ctrl+C, Ctrl+D and Ctrl+backslash: they end what runs, and say nothing to it."""

_REASONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules for the calls of a run, and its bounds.

    A call is decided part by part: each file that it names, each simple command that it gives to a shell. The first
    rule that is about a part decides it, `default` where there is none; the strictest of the parts decides the call.

    Rules about commands keep an agent to commands that a person has agreed to. They are no fence: files that the
    agent may write decide the behaviour of an allowed program. The sandbox is the fence.

    Attributes:
        rules: in order; the first that is about a part of a call decides it.
        floor: rules that `rules` cannot weaken, e.g. those of the user, if `rules` are from a repository's file. They
            are evaluated by themselves, and the stricter decision counts; an `allow` there makes exceptions to later
            rules of the floor only.
        default: for what no rule is about. Tools that reach no further than the conversation are never asked about.
        denied_tools: tool names to refuse, each with the reason the model is told; before all rules.
        limits: bounds of the run.
    """

    rules: tuple[Rule, ...] = ()
    floor: tuple[Rule, ...] = ()
    default: Verdict = "allow"
    denied_tools: dict[str, str] = field(default_factory=dict)
    limits: RunLimits = field(default_factory=RunLimits)

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingsError: there is no such default.
        """
        if self.default not in _STRICTNESS:
            raise SettingsError(f"policy: default={self.default!r}; it must be 'allow', 'ask' or 'deny'")

    def refusal(self, tool: str) -> str | None:
        """Return the reason why `tool` may never be called; None if it may, or may be asked for."""
        return self.denied_tools.get(tool) or self.denied_tools.get(_SAME_GATE.get(tool, ""))

    def always_allows(self, tool: str) -> bool:
        """Return whether every call of a tool may be made, so that no `CallFacts` are needed."""
        is_restricted = self.refusal(tool) or any(rule.is_about(tool) for rule in (*self.rules, *self.floor))
        return self.default == "allow" and not is_restricted

    def looks_into(self, tool: str) -> bool:
        """Whether a rule decides calls of a tool by the files or commands that they name."""
        return any(rule.is_about(tool) and not rule.is_sweeping for rule in (*self.rules, *self.floor))

    def withholds(self, tool: str, path: str) -> bool:
        """Whether a file is to be kept out of what a call shows that names only a directory above it, e.g. a search.

        That is so where a rule names it by `paths` and does not allow it: a call that names the file itself is refused
        then, or asked about.

        Args:
            tool: the tool's name.
            path: of the file, canonical; see `CallFacts`.
        """
        part = _PathPart(path)
        for rules in (self.rules, self.floor):
            rule = next((each for each in rules if each.is_about(tool) and part.fit(each) is Fit.YES), None)
            if rule is not None and not rule.is_sweeping and rule.decision != "allow":
                return True
        return False

    def decide(self, call: CallFacts) -> Decision:
        """Decide on a call."""
        if reason := self.refusal(call.tool):
            return Denied(reason=reason)
        rules, floor = ([each for each in rules if each.is_about(call.tool)] for rules in (self.rules, self.floor))
        default: Verdict = "allow" if call.tool in _HARMLESS_TOOLS else self.default
        if call.outside:
            default = max(default, "ask", key=_STRICTNESS.__getitem__)
        if call.typed is not None and _SIGNALS.issuperset(call.typed):
            # A person who let a program start need not be asked about ending it.
            rules, floor = ([x for x in each if x.decision == "deny" and x.is_sweeping] for each in (rules, floor))
            default = "allow"
        parts = tuple(_parts(call, [*rules, *floor]))
        decisions = [_decide_part(part, rules, default) for part in parts]
        decisions += [each for part in parts if (each := _decide_part(part, floor, "allow"))[0] != "allow"]
        verdict = max((verdict for verdict, _ in decisions), key=_STRICTNESS.__getitem__)
        reasons = list(dict.fromkeys(why for each, why in decisions if each == verdict))
        rest = len(reasons) - _REASONS
        reason = "; ".join([*reasons[:_REASONS], *([f"and {rest} more"] if rest > 0 else [])])
        match verdict:
            case "allow":
                return Permitted(reason=reason)
            case "ask" if limit := _excess(call, rules):
                return Denied(reason=f"its text is not read: {limit}. {_SMALLER}")
            case "ask":
                return NeedsApproval(reason=reason)
            case "deny":
                return Denied(reason=reason)


_SHOWN = 120

_SMALLER = "Divide it over several calls; write a file with write_file, and a long script to a file that a call runs."


def _shell_text(call: CallFacts, rules: Sequence[Rule]) -> str | None:
    """Return the text that rules about commands decide; None where there is no such text or rule."""
    text = call.typed if call.command is None else call.command
    return text if any(rule.commands for rule in rules) else None


def _excess(call: CallFacts, rules: Sequence[Rule]) -> str:
    """Return the limit beyond which a call's text for bash is not read; empty if it is within all."""
    text = _shell_text(call, rules)
    return excess(text) if text is not None and call.shell == "bash" else ""


def _parts(call: CallFacts, rules: Sequence[Rule]) -> Iterator[_Part]:
    yield from (_PathPart(path) for path in call.paths)
    text = _shell_text(call, rules)
    if text is not None:
        if call.shell == "bash":
            commands = commands_of(text)
        else:
            doubt = f"{call.shell} is not understood, only bash is"
            commands = (ParsedCommand(text=" ".join(text.split())[:_SHOWN], words=None, doubt=doubt),)
        yield from (_CommandPart(command, call.typed is not None) for command in commands)
    elif not call.paths:
        yield _WholeCall("this call, which an MCP server answers" if call.outside else "this call")


@dataclass(frozen=True, slots=True)
class _WholeCall:
    """A call that names neither a file nor a command, or one whose rules are about neither."""

    label: str = "this call"

    def fit(self, rule: Rule) -> Fit:
        return Fit.YES if rule.is_sweeping else Fit.NO


@dataclass(frozen=True, slots=True)
class _PathPart:
    """One file of a call."""

    path: str

    @property
    def label(self) -> str:
        return repr(self.path)

    def fit(self, rule: Rule) -> Fit:
        if rule.is_sweeping:
            return Fit.YES
        if rule.decision == "allow":
            return Fit.YES if any(PathGlob.parse(glob).covers(self.path) for glob in rule.paths) else Fit.NO
        return Fit.YES if rule.paths and PathGlob.loose_union(rule.paths).fullmatch(self.path) else Fit.NO


@dataclass(frozen=True, slots=True)
class _CommandPart:
    """One simple command of a call, or of what it types into a program, which may take it for anything."""

    command: ParsedCommand
    typed: bool

    @property
    def label(self) -> str:
        return f"`{self.command.text}`" + (f" ({self.command.doubt})" if self.command.doubt else "")

    def fit(self, rule: Rule) -> Fit:
        if rule.is_sweeping:
            return Fit.YES
        patterns = CommandPatterns.parse(rule.commands)
        if rule.decision == "allow":
            return Fit.YES if not self.typed and patterns.covers(self.command) else Fit.NO
        fit = patterns.touches(self.command)
        return Fit.MAYBE if fit is Fit.NO and self.typed and rule.commands else fit


_Part = _WholeCall | _PathPart | _CommandPart

_SAYS: dict[Verdict, str] = {"allow": "allows", "ask": "asks about", "deny": "denies"}


def _decide_part(part: _Part, rules: Sequence[Rule], default: Verdict) -> tuple[Verdict, str]:
    """Decide on one part; the reason is for people."""
    warning: Rule | None = None
    for rule in rules:
        fit = part.fit(rule)
        if fit is Fit.YES:
            verdict, reason = rule.decision, rule.reason or f"a rule {_SAYS[rule.decision]} {part.label}"
            break
        if fit is Fit.MAYBE:
            warning = warning or rule
    else:
        verdict, reason = default, f"no rule is about {part.label}"
    if warning is not None and verdict == "allow":
        about = f": {warning.reason}" if warning.reason else ""
        return "ask", f"{part.label} may be what a rule {_SAYS[warning.decision]}{about}"
    return verdict, reason


def exact_patterns(policy: Policy, call: PendingCall) -> tuple[str, ...]:
    """Return patterns of exactly the commands in a call that a policy asks about; none if patterns cannot allow it.

    Args:
        policy: what asked.
        call: the call, as it waits or was denied.
    """
    return _patterns(policy, call, lambda words: words)


def alike_patterns(policy: Policy, call: PendingCall) -> tuple[str, ...]:
    """Return the same, each for further commands of its kind: the operands, which name things, may be others.

    None for a program or subcommand that is not in `programs.toml`, and for operands that may be a path or a URL where
    a name is usual.
    """
    return _patterns(policy, call, _generalize)


def is_covered(policy: Policy, patterns: tuple[str, ...], call: PendingCall) -> bool:
    """Whether a policy would allow a call if commands that fit the patterns were allowed, too."""
    text = _bash_command(call)
    if not text or not patterns:
        return False
    wider = replace(policy, rules=(Rule(decision="allow", tool="execute", commands=patterns), *policy.rules))
    return isinstance(wider.decide(CallFacts(tool="execute", command=text)), Permitted)


_MOST_CHARS = 200

_MOST_PATTERNS = 3

_HAS_MEANING = re.compile(r"\*|<[a-z]+>")
"""Parts of a word that a pattern would not take to the letter."""

_READABLE = re.compile(r"[!-~]+(?: [!-~]+)*")


def _patterns(
    policy: Policy, call: PendingCall, shape: Callable[[Sequence[str]], Sequence[str] | None]
) -> tuple[str, ...]:
    text = _bash_command(call)
    if not text:
        return ()
    found: dict[str, None] = {}
    for command in commands_of(text):
        words = [word for word in command.words or () if word is not None]
        if command.doubt or not words or len(words) != len(command.words or ()):
            return ()
        if isinstance(policy.decide(CallFacts(tool="execute", command=shlex.join(words))), Permitted):
            continue
        shaped = None if any(map(_HAS_MEANING.search, words)) else shape(words)
        pattern = " ".join(word if word in PLACEHOLDERS else shlex.quote(word) for word in shaped or ())
        if not _is_readable(pattern) or not CommandPattern.parse(pattern).covers(command):
            return ()
        found[pattern] = None
    return tuple(found) if len(found) <= _MOST_PATTERNS else ()


def _bash_command(call: PendingCall) -> str:
    """Return the command that a call gives to bash; empty for any other call."""
    text = call.args.get("command")
    for_bash = call.tool == "execute" and call.args.get("shell") in {None, "bash"}
    return text if for_bash and isinstance(text, str) else ""


def _is_readable(pattern: str) -> bool:
    """Whether people can see the whole of a pattern, and settings can hold it in a list."""
    return len(pattern) <= _MOST_CHARS and ";" not in pattern and _READABLE.fullmatch(pattern) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramGrammar:
    """How the words of a program's commands are read.

    Attributes:
        commands: the placeholder for operands, by the words of the command; empty for a command without operands, so
            that it matches none.
        flags: options without a value.
        values: options with one.
        before: those of them that may precede the command.
    """

    commands: Mapping[tuple[str, ...], str]
    flags: frozenset[str]
    values: frozenset[str]
    before: frozenset[str]

    def generalize(self, words: Sequence[str]) -> Sequence[str] | None:
        """Return the words after the program's name with placeholders for operands; None if no command is found.

        An unknown option counts as an operand, which its placeholder does not match.
        """
        shaped: list[str] = []
        command: tuple[str, ...] = ()
        left = iter(words)
        for word in left:
            option = word.partition("=")[0] if word.startswith("--") else word
            if option in self.flags | self.values:
                if command not in self.commands and option not in self.before:
                    return None
                value = next(left, None) if word in self.values else ""
                if value is None or (option in self.flags and option != word):
                    return None
                shaped += [word, value] if word in self.values else [word]
            elif command in self.commands:
                shaped.append(self.commands[command])
            elif longer := self._extend(command, word):
                command = longer
                shaped.append(word)
            else:
                return None
        return shaped if command in self.commands else None

    def _extend(self, command: tuple[str, ...], word: str) -> tuple[str, ...]:
        """Return the beginning of a command with one more word; empty if there is no such command."""
        kinds = (word, "*") if PLACEHOLDERS["<name>"].fullmatch(word) else (word,)
        longer = ((*command, kind) for kind in kinds)
        return next((each for each in longer if any(full[: len(each)] == each for full in self.commands)), ())


@cache
def program_grammars() -> Mapping[str, ProgramGrammar]:
    """Return the grammar of each program of `programs.toml`."""
    table = tomllib.loads((files("agent_runtime.policy") / "programs.toml").read_text("utf-8"))
    placeholders = {"names": "<name>", "paths": "<path>", "alone": ""}
    grammars: dict[str, ProgramGrammar] = {}
    for program, row in table.items():
        grammar = ProgramGrammar(
            commands={tuple(each.split()): word for key, word in placeholders.items() for each in row.get(key, ())},
            flags=frozenset(row.get("flags", ())),
            values=frozenset(row.get("values", ())),
            before=frozenset(row.get("before", ())),
        )
        grammars |= dict.fromkeys((program, *row.get("also", ())), grammar)
    return grammars


def _generalize(words: Sequence[str]) -> Sequence[str] | None:
    """Return the words of a command with placeholders for its operands; None without a grammar that reads them all."""
    program, *rest = words
    grammar = program_grammars().get(program)
    shaped = grammar.generalize(rest) if grammar else None
    return None if shaped is None else [program, *shaped]
