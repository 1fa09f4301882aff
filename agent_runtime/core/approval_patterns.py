"""Patterns that allow what a policy asks about in a call: exactly that, or others like it. Pure.

A pattern made here is shown to a person who approves it, so it must be no broader than it looks. It never stands for
another program, nor for further words at its end, and there is none for a program that runs what its words or its files
say: what `python x.py` does depends on who may write `x.py` by then.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent_runtime.core.outcome import PendingCall
from agent_runtime.core.policy import CallFacts, Permitted, Policy, Rule
from agent_runtime.core.rules.commands import RUNS_OTHERS, CommandPattern
from agent_runtime.core.rules.shell import ParsedCommand, commands_of

_RUNS_FILES = frozenset(
    {
        "Rscript", "ansible", "ant", "awk", "bazel", "bun", "bundle", "bunx", "clojure", "cmake", "conda", "crystal",
        "dart", "deno", "docker", "doit", "dotnet", "ed", "elixir", "emacs", "erl", "escript", "ex", "expect", "find",
        "flask", "gawk", "gdb", "ghc", "ghci", "git", "gmake", "gnuplot", "gradle", "groovy", "guile", "gunicorn",
        "hatch", "invoke", "ipython", "iex", "java", "julia", "jupyter", "just", "kotlin", "kubectl", "lldb", "lua",
        "luajit", "m4", "make", "mawk", "meson", "mise", "mono", "mvn", "mysql", "nawk", "ninja", "nix", "node",
        "nodejs", "nox", "ocaml", "octave", "osascript", "pdm", "perl", "php", "pipenv", "pipx", "podman", "poetry",
        "psql", "pwsh", "pypy", "python", "racket", "rake", "rsync", "ruby", "runghc", "runhaskell", "sbt", "scala",
        "scp", "sed", "sftp", "sqlite", "swift", "tar", "task", "tclsh", "tox", "ts-node", "tsx", "uvicorn", "vi",
        "vim", "wish",
    }
)  # fmt: skip
"""Programs that take code or commands from their words, or from files of the workspace that these name."""
_RUNS_SCRIPTS = frozenset(
    {
        "alias", "config", "create", "dlx", "env", "eval", "exec", "explore", "generate", "init", "rebuild", "restart",
        "run", "run-script", "script", "set", "shell", "start", "stop", "test", "tool", "x",
    }
)  # fmt: skip
"""First arguments by which package managers and the like run what somebody wrote, or settle what they run later."""

_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_-]*")
_OPERAND = re.compile(r"(?![-.@/])[A-Za-z0-9@_%+=:,./-]+")
_VERSION = re.compile(r"[0-9.]+\Z")
_READABLE = re.compile(r"[!-~]+(?: [!-~]+)*")
_MOST_CHARS = 200
_MOST_PATTERNS = 3


def exact_patterns(policy: Policy, call: PendingCall) -> tuple[str, ...]:
    """Patterns of the very commands in a call that a policy asks about; none where patterns cannot allow the call.

    Args:
        policy: what asked.
        call: the call, as it waits or was denied.
    """
    return _patterns(policy, call, lambda words: words)


def alike_patterns(policy: Policy, call: PendingCall) -> tuple[str, ...]:
    """The same, each for further commands of its kind: the words at the end that name things may be others.

    None where an approval of all of them would be broader than it looks.
    """
    return _patterns(policy, call, _varied)


def is_covered(policy: Policy, patterns: tuple[str, ...], call: PendingCall) -> bool:
    """Whether a policy would allow a call if commands that fit the patterns were allowed, too."""
    text = _command_of(call)
    if not text or not patterns:
        return False
    wider = replace(policy, rules=(Rule(decision="allow", tool="execute", commands=patterns), *policy.rules))
    return isinstance(wider.decide(CallFacts(tool="execute", command=text)), Permitted)


def _patterns(
    policy: Policy, call: PendingCall, shape: Callable[[Sequence[str]], Sequence[str] | None]
) -> tuple[str, ...]:
    text = _command_of(call)
    if not text:
        return ()
    found: dict[str, None] = {}
    for command in commands_of(text):
        pattern = _pattern(command, shape)
        if pattern is None:
            return ()
        written = shlex.join([word or "" for word in command.words or ()])
        if not isinstance(policy.decide(CallFacts(tool="execute", command=written)), Permitted):
            found[pattern] = None
    return tuple(found) if len(found) <= _MOST_PATTERNS else ()


def _command_of(call: PendingCall) -> str:
    """What a call gives to bash; empty where it gives nothing, or to another shell."""
    text = call.args.get("command")
    for_bash = call.tool == "execute" and call.args.get("shell") in {None, "bash"}
    return text if for_bash and isinstance(text, str) else ""


def _pattern(command: ParsedCommand, shape: Callable[[Sequence[str]], Sequence[str] | None]) -> str | None:
    """The pattern of one command; None where none can be made that covers it and can be read."""
    words = command.words
    if command.doubt or not words or any(word is None or "*" in word for word in words):
        return None
    shaped = shape([word or "" for word in words])
    if shaped is None:
        return None
    pattern = " ".join(word if word == "**" else shlex.quote(word) for word in shaped)
    readable = len(pattern) <= _MOST_CHARS and _READABLE.fullmatch(pattern) is not None and ";" not in pattern
    return pattern if readable and CommandPattern.parse(pattern).covers(command) else None


def _varied(words: Sequence[str]) -> Sequence[str] | None:
    """The words of a command with `**` for its last operands, and all others as they are."""
    program, *rest = words
    name = _VERSION.sub("", program)
    if "/" in program or name in RUNS_OTHERS or name in _RUNS_FILES or (rest and rest[0] in _RUNS_SCRIPTS):
        return None
    fixed = 1 if rest and _SUBCOMMAND.fullmatch(rest[0]) else 0
    start = len(rest)
    # What follows right on an option may be its value, which may decide what the option does.
    while start > fixed and _OPERAND.fullmatch(rest[start - 1]) and not (start > 1 and rest[start - 2].startswith("-")):
        start -= 1
    return [program, *rest[:start], *["**"] * (len(rest) - start)]
