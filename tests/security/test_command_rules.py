"""Command rules: `pytest *` never approves `pytest; anything`, nor anything else that bash would run.

A real bash runs the approved text, in which commands are only recorded.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime.policy.policy import CallFacts, NeedsApproval, Permitted, Policy, Rule
from agent_runtime.policy.shell import parse_commands
from tests.security.command_attacks import ALLOWED, ATTACKS, PATTERNS

POLICY = Policy(rules=(Rule(decision="allow", tool="execute", commands=PATTERNS),), default="ask")

_OBSERVED = r"""
command_not_found_handle() { printf '%s\0' "$@" > "$LOG/$BASHPID"; }
for name in $(compgen -b); do case $name in printf|enable|:) ;; *) enable -n "$name";; esac; done
enable -n : enable
"""
"""Without programs and builtins, every command reaches the handler and none runs."""


def decided(command: str) -> Permitted | NeedsApproval:
    decision = POLICY.decide(CallFacts(tool="execute", args={"command": command}, command=command))
    assert isinstance(decision, Permitted | NeedsApproval)
    return decision


def run_by_bash(text: str, directory: Path) -> list[list[str]]:
    """Return the commands that bash would run, as sorted lists of words."""
    log = directory / "log"
    log.mkdir(exist_ok=True)
    for old in log.iterdir():
        old.unlink()
    place = directory / "place"
    place.mkdir(exist_ok=True)
    script = directory / "script"
    script.write_bytes(_OBSERVED.encode() + text.encode() + b"\n")
    subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", script],
        cwd=place,
        env={"PATH": "/nowhere", "LOG": str(log)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert list(place.iterdir()) == [], f"{text!r} made a file"
    return sorted(each.read_bytes().decode().split("\0")[:-1] for each in log.iterdir())


def is_told_by(ran: list[str], words: tuple[str | None, ...] | None) -> bool:
    """Whether the executed commands match the words, except those known only at run time."""
    assert words is not None
    known = words[: words.index(None)] if None in words else words
    return tuple(ran[: len(known)]) == known and (None in words or len(ran) == len(known))


@pytest.mark.parametrize(
    ("aim", "command"), [(aim, each) for aim, commands in ATTACKS.items() for each in commands], ids=repr
)
def test_a_rule_never_approves_more_than_it_says(aim: str, command: str) -> None:
    decision = decided(command)
    assert isinstance(decision, NeedsApproval), aim
    assert decision.reason


def test_there_are_many_attacks() -> None:
    assert sum(map(len, ATTACKS.values())) >= 100
    assert len(ALLOWED) >= 40


@pytest.mark.parametrize("command", ALLOWED, ids=repr)
def test_plain_commands_are_approved_and_run_exactly(command: str, tmp_path: Path) -> None:
    assert isinstance(decided(command), Permitted)
    ran = run_by_bash(command, tmp_path)
    assert ran
    commands = parse_commands(command)
    for each in ran:
        assert any(is_told_by(each, command.words) for command in commands), each
    if "||" not in command:
        assert len(ran) == len(commands)


_SIMPLE_ALLOWED = st.sampled_from(["pytest", "pytest -q", "git status", "ls -l", "echo 'a; b'", "cat a b"])
_SIMPLE_OTHER = st.sampled_from(["rm x", "git push", "sh", "./pytest", "pytest $(rm)", "X=1 ls", "ls > x", "eval ls"])
_JOINTS = st.sampled_from([";", " ; ", "&&", " || ", "|", " |& ", "\n", " &&\n"])


@given(st.lists(st.tuples(st.one_of(_SIMPLE_ALLOWED, _SIMPLE_OTHER), _JOINTS, st.booleans()), min_size=1, max_size=6))
def test_a_list_is_approved_when_each_of_its_commands_is_and_only_then(parts: list[tuple[str, str, bool]]) -> None:
    text = ""
    for index, (simple, joint, nested) in enumerate(parts):
        text += (joint if index else "") + (f"({simple})" if nested else simple)
    wanted = all(isinstance(decided(simple), Permitted) for simple, _, _ in parts)
    assert isinstance(decided(text), Permitted) is wanted


_FRAGMENTS = st.sampled_from(
    [
        *["pytest", "git status", "git", "diff", "echo", "rm", "evil", "x", "-q", "1", "2", "=", "a=b", "cd", "true"],
        *[" "] * 8,
        *[";", "&&", "||", "|", "&", "\n", "(", ")", "((", "))", "{", "}", "!", "[", "]", "[[", "]]", "\t"],
        *["'", '"', "'a b'", '"a b"', "\\", "\\\n", " \\\n ", "\\ ", "`", "$", "$(", "${", "}", "#", " #", "~", "*"],
        *[">", "<", ">&", "2>&1", " 2>&1", ">/dev/null", " 2>/dev/null", "<<", "<<<", "&>", "/dev/null", "?", "{a,b}"],
        *["if", "then", "fi", "do", "done", "time", "function", "eval", ".", "exec", "%", "^", ",", ":", "@", "\u00e9"],
    ]
)


@pytest.mark.slow
@settings(
    max_examples=2500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.lists(_FRAGMENTS, min_size=1, max_size=9), st.sampled_from(["pytest ", "git status", "echo ", ""]))
def test_bash_runs_only_the_approved_commands(tmp_path: Path, fragments: list[str], beginning: str) -> None:
    text = beginning + "".join(fragments)
    if not isinstance(decided(text), Permitted):
        return
    commands = parse_commands(text)
    for ran in run_by_bash(text, tmp_path):
        assert any(is_told_by(ran, command.words) for command in commands), (text, ran)
