"""Decide which calls a run may make, and its limits. Pure.

`Policy.decide` splits a call into files and simple commands; the first `Rule` about each part decides it.
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
    exceeded_limit,
    parse_commands,
)

Verdict = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits of one run.

    Attributes:
        max_steps: model replies with actions.
        max_tokens: sent and received, cached ones included.
        max_repeated_calls: steps in a row with identical calls.
        max_seconds: wall time without waits for a person or an unavailable service.
        outage_seconds: wait before the run ends as `model_unavailable`.
        offline_seconds: the same while the run has never reached it.
    """

    max_steps: int = 30
    max_format_errors: int = 3
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_repeated_calls: int = 5
    max_seconds: float = 1800.0
    outage_seconds: float = 300.0
    offline_seconds: float = 0.0
    max_calls_per_step: int = 200
    max_output_chars_per_step: int = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """Facts about a tool call before it is made.

    Attributes:
        paths: canonical, relative to the workspace or absolute outside.
        typed_input: for a running program.
        cwd: of the command; empty if unknown.
        shell: allow rules cover bash only.
        is_external: reaches past workspace and sandbox, which requires approval.
    """

    tool: str
    args: dict[str, Plain] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    writes: bool = False
    command: str | None = None
    typed_input: str | None = None
    cwd: str = ""
    shell: str = "bash"
    is_external: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Permitted:
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsApproval:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The call is denied; the reason is for the model."""

    reason: str


Decision = Permitted | NeedsApproval | Denied

_STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}

# What is typed into a running program may reach a shell: it passes the gate that commands pass.
# So does what is taken over from a copy of the workspace, where rules about files did not bind the shell.
_TOOL_ALIASES = {"send_input": "execute", "collect": "write_file"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A decision on calls, their files (`paths`) or their commands (`commands`).

    `allow` matches literally; `ask` and `deny` broadly: paths in any case and below a directory, and possible commands.
    `execute` includes `send_input`, `write_file` includes `collect`.
    """

    decision: Verdict
    tool: str = "*"
    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
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
    def is_general(self) -> bool:
        """Whether the rule decides whole calls."""
        return not self.paths and not self.commands

    def applies_to(self, tool: str) -> bool:
        return any(fnmatchcase(name, self.tool) for name in {tool, _TOOL_ALIASES.get(tool, tool)})


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
"""Tools exempt from the default: they reach the conversation, allowed commands' terminals, and child runs under this
policy.
"""

_SIGNALS = frozenset("\x03\x04\x1c")
"""Ctrl+C, Ctrl+D and Ctrl+backslash, which only end a program."""

_MAX_REASONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules for a run's calls, and its limits.

    The strictest part decides a call. Command rules are no security boundary, since writable files change the behaviour
    of allowed programs; the sandbox is.

    Attributes:
        floor: e.g. the user's rules over a repository's; the stricter decision counts.
        default: for parts without a rule; conversation tools are always allowed.
        denied_tools: reasons by tool, before all rules.
    """

    rules: tuple[Rule, ...] = ()
    floor: tuple[Rule, ...] = ()
    default: Verdict = "allow"
    denied_tools: dict[str, str] = field(default_factory=dict)
    limits: RunLimits = field(default_factory=RunLimits)

    def __post_init__(self) -> None:
        if self.default not in _STRICTNESS:
            raise SettingsError(f"policy: default={self.default!r}; it must be 'allow', 'ask' or 'deny'")

    def denial_reason(self, tool: str) -> str | None:
        """Return the reason that `tool` is always denied, or None."""
        return self.denied_tools.get(tool) or self.denied_tools.get(_TOOL_ALIASES.get(tool, ""))

    def always_allows(self, tool: str) -> bool:
        is_restricted = self.denial_reason(tool) or any(rule.applies_to(tool) for rule in (*self.rules, *self.floor))
        return self.default == "allow" and not is_restricted

    def has_detailed_rules(self, tool: str) -> bool:
        return any(rule.applies_to(tool) and not rule.is_general for rule in (*self.rules, *self.floor))

    def hides(self, tool: str, path: str) -> bool:
        """Return whether to hide a file from a call about its directory, e.g. a search."""
        part = _PathPart(path)
        for rules in (self.rules, self.floor):
            rule = next((item for item in rules if item.applies_to(tool) and part.fit(item) is Fit.YES), None)
            if rule is not None and not rule.is_general and rule.decision != "allow":
                return True
        return False

    def decide(self, call: CallFacts) -> Decision:
        if reason := self.denial_reason(call.tool):
            return Denied(reason=reason)
        rules, floor = ([item for item in rules if item.applies_to(call.tool)] for rules in (self.rules, self.floor))
        default: Verdict = "allow" if call.tool in _HARMLESS_TOOLS else self.default
        if call.is_external:
            default = max(default, "ask", key=_STRICTNESS.__getitem__)
        if call.typed_input is not None and _SIGNALS.issuperset(call.typed_input):
            # A person who let a program start need not be asked about ending it.
            rules, floor = ([x for x in item if x.decision == "deny" and x.is_general] for item in (rules, floor))
            default = "allow"
        parts = tuple(_split_call(call, [*rules, *floor]))
        decisions = [_decide_part(part, rules, default) for part in parts]
        decisions += [item for part in parts if (item := _decide_part(part, floor, "allow"))[0] != "allow"]
        verdict = max((verdict for verdict, _ in decisions), key=_STRICTNESS.__getitem__)
        reasons = list(dict.fromkeys(why for item, why in decisions if item == verdict))
        omitted = len(reasons) - _MAX_REASONS
        reason = "; ".join([*reasons[:_MAX_REASONS], *([f"and {omitted} more"] if omitted > 0 else [])])
        match verdict:
            case "allow":
                return Permitted(reason=reason)
            case "ask" if limit := _exceeded_limit(call, rules):
                return Denied(reason=f"its text is not read: {limit}. {_ADVICE}")
            case "ask":
                return NeedsApproval(reason=reason)
            case "deny":
                return Denied(reason=reason)


_MAX_LABEL_CHARS = 120

_ADVICE = "Divide it over several calls; write a file with write_file, and a long script to a file that a call runs."


def _shell_text(call: CallFacts, rules: Sequence[Rule]) -> str | None:
    text = call.typed_input if call.command is None else call.command
    return text if any(rule.commands for rule in rules) else None


def _exceeded_limit(call: CallFacts, rules: Sequence[Rule]) -> str:
    """Return the limit on bash text that the call exceeds, or an empty string."""
    text = _shell_text(call, rules)
    return exceeded_limit(text) if text is not None and call.shell == "bash" else ""


def _split_call(call: CallFacts, rules: Sequence[Rule]) -> Iterator[_Part]:
    yield from (_PathPart(path) for path in call.paths)
    text = _shell_text(call, rules)
    if text is not None:
        if call.shell == "bash":
            commands = parse_commands(text)
        else:
            doubt = f"{call.shell} is not understood, only bash is"
            commands = (ParsedCommand(text=" ".join(text.split())[:_MAX_LABEL_CHARS], words=None, doubt=doubt),)
        yield from (_CommandPart(command, call.typed_input is not None) for command in commands)
    elif not call.paths:
        yield _WholeCall("this call, which an MCP server answers" if call.is_external else "this call")


@dataclass(frozen=True, slots=True)
class _WholeCall:
    label: str = "this call"

    def fit(self, rule: Rule) -> Fit:
        return Fit.YES if rule.is_general else Fit.NO


@dataclass(frozen=True, slots=True)
class _PathPart:
    path: str

    @property
    def label(self) -> str:
        return repr(self.path)

    def fit(self, rule: Rule) -> Fit:
        if rule.is_general:
            return Fit.YES
        if rule.decision == "allow":
            return Fit.YES if any(PathGlob.parse(glob).covers(self.path) for glob in rule.paths) else Fit.NO
        return Fit.YES if rule.paths and PathGlob.loose_union(rule.paths).fullmatch(self.path) else Fit.NO


@dataclass(frozen=True, slots=True)
class _CommandPart:
    """A simple command or typed input."""

    command: ParsedCommand
    is_input: bool

    @property
    def label(self) -> str:
        return f"`{self.command.text}`" + (f" ({self.command.doubt})" if self.command.doubt else "")

    def fit(self, rule: Rule) -> Fit:
        if rule.is_general:
            return Fit.YES
        patterns = CommandPatterns.parse(rule.commands)
        if rule.decision == "allow":
            return Fit.YES if not self.is_input and patterns.covers(self.command) else Fit.NO
        fit = patterns.fit(self.command)
        return Fit.MAYBE if fit is Fit.NO and self.is_input and rule.commands else fit


_Part = _WholeCall | _PathPart | _CommandPart

_VERB: dict[Verdict, str] = {"allow": "allows", "ask": "asks about", "deny": "denies"}


def _decide_part(part: _Part, rules: Sequence[Rule], default: Verdict) -> tuple[Verdict, str]:
    warning: Rule | None = None
    for rule in rules:
        fit = part.fit(rule)
        if fit is Fit.YES:
            verdict, reason = rule.decision, rule.reason or f"a rule {_VERB[rule.decision]} {part.label}"
            break
        if fit is Fit.MAYBE:
            warning = warning or rule
    else:
        verdict, reason = default, f"no rule is about {part.label}"
    if warning is not None and verdict == "allow":
        suffix = f": {warning.reason}" if warning.reason else ""
        return "ask", f"{part.label} may be what a rule {_VERB[warning.decision]}{suffix}"
    return verdict, reason


def exact_patterns(policy: Policy, call: PendingCall) -> tuple[str, ...]:
    """Return patterns of exactly the unapproved commands of a call, or none."""
    return _patterns_of(policy, call, lambda words: words)


def alike_patterns(policy: Policy, call: PendingCall) -> tuple[str, ...]:
    """Return patterns that also match other operands, or none; `programs.toml` must list the program."""
    return _patterns_of(policy, call, _generalize)


def is_covered(policy: Policy, patterns: tuple[str, ...], call: PendingCall) -> bool:
    """Return whether the policy would allow a call with these patterns added."""
    text = _bash_command(call)
    if not text or not patterns:
        return False
    wider = replace(policy, rules=(Rule(decision="allow", tool="execute", commands=patterns), *policy.rules))
    return isinstance(wider.decide(CallFacts(tool="execute", command=text)), Permitted)


_MAX_PATTERN_CHARS = 200

_MAX_PATTERNS = 3

_SPECIAL = re.compile(r"\*|<[a-z]+>")
"""Parts of a word that are special in patterns."""

_READABLE = re.compile(r"[!-~]+(?: [!-~]+)*")


def _patterns_of(
    policy: Policy, call: PendingCall, shape: Callable[[Sequence[str]], Sequence[str] | None]
) -> tuple[str, ...]:
    text = _bash_command(call)
    if not text:
        return ()
    patterns: dict[str, None] = {}
    for command in parse_commands(text):
        words = [word for word in command.words or () if word is not None]
        if command.doubt or not words or len(words) != len(command.words or ()):
            return ()
        if isinstance(policy.decide(CallFacts(tool="execute", command=shlex.join(words))), Permitted):
            continue
        pattern_words = None if any(map(_SPECIAL.search, words)) else shape(words)
        pattern = " ".join(word if word in PLACEHOLDERS else shlex.quote(word) for word in pattern_words or ())
        if not _is_readable(pattern) or not CommandPattern.parse(pattern).covers(command):
            return ()
        patterns[pattern] = None
    return tuple(patterns) if len(patterns) <= _MAX_PATTERNS else ()


def _bash_command(call: PendingCall) -> str:
    text = call.args.get("command")
    for_bash = call.tool == "execute" and call.args.get("shell") in {None, "bash"}
    return text if for_bash and isinstance(text, str) else ""


def _is_readable(pattern: str) -> bool:
    """Whether a pattern is short, printable and without list separators."""
    return len(pattern) <= _MAX_PATTERN_CHARS and ";" not in pattern and _READABLE.fullmatch(pattern) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramGrammar:
    """The grammar of a program's commands.

    Attributes:
        commands: placeholder of the operands by command words; empty for none.
    """

    commands: Mapping[tuple[str, ...], str]
    flags: frozenset[str]
    values: frozenset[str]
    global_options: frozenset[str]

    def generalize(self, words: Sequence[str]) -> Sequence[str] | None:
        """Replace operands by placeholders in the arguments; return None for an unknown command."""
        generalized: list[str] = []
        command: tuple[str, ...] = ()
        remaining = iter(words)
        for word in remaining:
            option = word.partition("=")[0] if word.startswith("--") else word
            if option in self.flags | self.values:
                if command not in self.commands and option not in self.global_options:
                    return None
                value = next(remaining, None) if word in self.values else ""
                if value is None or (option in self.flags and option != word):
                    return None
                generalized += [word, value] if word in self.values else [word]
            elif command in self.commands:
                generalized.append(self.commands[command])
            elif longer := self._extend(command, word):
                command = longer
                generalized.append(word)
            else:
                return None
        return generalized if command in self.commands else None

    def _extend(self, command: tuple[str, ...], word: str) -> tuple[str, ...]:
        kinds = (word, "*") if PLACEHOLDERS["<name>"].fullmatch(word) else (word,)
        longer = ((*command, kind) for kind in kinds)
        return next((prefix for prefix in longer if any(full[: len(prefix)] == prefix for full in self.commands)), ())


@cache
def program_grammars() -> Mapping[str, ProgramGrammar]:
    table = tomllib.loads((files("agent_runtime.policy") / "programs.toml").read_text("utf-8"))
    placeholders = {"names": "<name>", "paths": "<path>", "alone": ""}
    grammars: dict[str, ProgramGrammar] = {}
    for program, row in table.items():
        grammar = ProgramGrammar(
            commands={tuple(text.split()): word for key, word in placeholders.items() for text in row.get(key, ())},
            flags=frozenset(row.get("flags", ())),
            values=frozenset(row.get("values", ())),
            global_options=frozenset(row.get("before", ())),
        )
        grammars |= dict.fromkeys((program, *row.get("also", ())), grammar)
    return grammars


def _generalize(words: Sequence[str]) -> Sequence[str] | None:
    program, *rest = words
    grammar = program_grammars().get(program)
    generalized = grammar.generalize(rest) if grammar else None
    return None if generalized is None else [program, *generalized]
