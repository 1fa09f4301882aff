"""Threat 69, commands that need no approval: none takes code from its own words, or from outside the repository."""

from __future__ import annotations

import shlex

import pytest

from agent_runtime import RunLimits
from agent_runtime.policy.policy import CallFacts, Permitted
from bot.permissions.levels import allowed_commands, build_policy

POLICY = build_policy("ask", limits=RunLimits(), commands=(), reason="", reach="the network")

READ_AND_PRINT = frozenset(
    {
        "basename", "cat", "cd", "cmp", "column", "comm", "cut", "df", "diff", "dirname", "du", "echo", "egrep", "expr",
        "fgrep", "file", "find", "fold", "grep", "head", "join", "jq", "ls", "md5sum", "nl", "od", "paste", "readlink",
        "realpath", "rev", "seq", "sha256sum", "sleep", "sort", "stat", "strings", "tac", "tail", "tr", "tree", "type",
        "uname", "wc", "which", "date",
    }
)  # fmt: skip
"""Programs that run, fetch and write nothing, whatever their words are, apart from the options in `WRITES`."""

WRITES = (
    "sort -o x y", "sort --output=x y", "sort --compress-program=x y", "uniq x y", "tree -o x", "file -C -m x",
    "find . -delete", "find . -exec x", "find . -fprint x", "date -s x", "ls > x", "cat x > y", "tail x >> y",
)  # fmt: skip

VALUES = {"<path>": "thing", "<name>": "thing", "**": "thing"}

OUTSIDE = (
    "/dev/stdin", "/srv/x", "/etc/x", "../x", "a/../../x", "~/x", "https://e.example/x", "http://e.example:80/x",
    "file:///x", "file:x", "data:text/javascript,x", "npm:x", "npm:1", "jsr:@e/x", "git+ssh://e.example/x", "-", "@x",
    "+nightly", "X=1", "SHELL=x", "/p:X=y", "/logger:x",
)  # fmt: skip
"""Words that name standard input, a place outside the repository, a file of options, a toolchain or a variable."""

OPTIONS = (
    "-c", "-e", "-E=x", "-r", "-o", "-I", "-D", "-W", "-C", "-Z", "-exec", "-exec=x", "-toolexec=x", "-vettool=x",
    "-ldflags=x", "-overlay=x", "-modfile=x", "--eval=x", "--exec=x", "--config=x", "--config", "--configfile=x",
    "--rcfile=x", "--require=x", "--import=x", "--loader=x", "--plugin=x", "--plugins=x", "--load-plugins=x",
    "--resolve-plugins-relative-to=x", "--rulesdir=x", "--init-hook=x", "--python-executable=x", "--globalSetup=x",
    "--setupFiles=x", "--execArgv=x", "--script-shell=x", "--reporter=./x.js", "--rootdir=x", "--basetemp=x",
    "--pastebin=all", "--pdbcls=x:y", "--doctest-glob=x", "--cov-report=html:/x", "--cov-config=x", "--junitxml=x",
    "--log-file=x", "--output=x", "--output-file=x", "--tee", "--append-config=x", "--ext-diff", "--manifest-path=x",
    "--target-dir=x", "--target=x", "--logfile=x", "--allow-all", "--allow-net", "--unstable", "--settings-path=x",
    "--virtual-env=x", "--custom-typeshed-dir=x", "--init-script=x", "--index-url=x", "--registry=x", "--logger=x",
    "--test-adapter-path=x", "--settings=x",
)  # fmt: skip
"""Options by which some program takes code, a plugin, another configuration or a file to write."""


OTHER_MEANINGS = {"git branch -r", "uniq -c", "mvn -o test", "ninja -C test", "shellcheck -e", "shellcheck -o"}
"""Entries in which one of these options counts, lists, is offline, names a directory, or leaves out a check."""


def is_allowed(command: str) -> bool:
    return isinstance(POLICY.decide(CallFacts(tool="execute", command=command)), Permitted)


def example(pattern: str) -> list[str]:
    """The words of a harmless command that a pattern covers."""
    return [VALUES.get(word, word.replace("*", "1")) for word in shlex.split(pattern) if not is_open(word)]


def is_open(word: str) -> bool:
    """Whether a last word of a pattern stands for further words."""
    return word == "*" or word.endswith("}*")


CLOSED = [each for each in allowed_commands() if shlex.split(each)[0] not in READ_AND_PRINT]
OPEN = [each for each in allowed_commands() if shlex.split(each)[0] in READ_AND_PRINT]


@pytest.mark.parametrize("command", ["python3 -m doctest /dev/stdin", "deno test https://e.example/x.ts"])
def test_commands_that_ran_or_fetched_code_without_approval(command: str) -> None:
    assert not is_allowed(command)


def test_every_pattern_but_those_of_programs_that_read_lists_what_its_words_may_be() -> None:
    words = [(pattern, word) for pattern in CLOSED for word in shlex.split(pattern)[1:]]
    assert [pattern for pattern, word in words if word in {"*", "**"}] == []
    assert {shlex.split(pattern)[0] for pattern in OPEN} == READ_AND_PRINT


def test_no_entry_takes_words_from_outside_the_repository() -> None:
    tries = []
    for words in map(example, CLOSED):
        assert is_allowed(shlex.join(words))
        tries += [[*words, hostile] for hostile in OUTSIDE]
        tries += [[hostile if word == "thing" else word for word in words] for hostile in OUTSIDE if "thing" in words]
    allowed = [each for each in map(shlex.join, tries) if is_allowed(each)]
    # `pip show` takes it for a name, and finds no such package.
    assert sorted(set(allowed) - {"pip show X=1", "pip show SHELL=x"}) == []


def test_no_entry_takes_an_option_that_runs_or_fetches() -> None:
    tries = [[*words, option] for words in map(example, CLOSED) for option in OPTIONS]
    tries += [[words[0], option, *words[1:]] for words in map(example, CLOSED) for option in OPTIONS]
    allowed = [each for each in map(shlex.join, tries) if is_allowed(each)]
    assert sorted(set(allowed) - OTHER_MEANINGS) == []


def test_no_entry_is_allowed_with_a_variable_before_it_or_a_file_behind_it() -> None:
    written = [shlex.join(example(pattern)) for pattern in allowed_commands()]
    tries = [text for each in written for text in (f"X=1 {each}", f"env X=1 {each}", f"{each} > x", f"{each} $(x)")]
    assert [each for each in tries if is_allowed(each)] == []


def test_a_program_that_reads_writes_nothing() -> None:
    assert [each for each in WRITES if is_allowed(each)] == []


@pytest.mark.parametrize(
    "tool", ["jest", "vitest run", "mocha", "ava", "tsc", "eslint", "biome check", "prettier -c x"]
)
def test_npx_fetches_nothing(tool: str) -> None:
    """Without `--no-install` it fetches a package of that name if the repository has none."""
    assert not is_allowed(f"npx {tool}")
    assert is_allowed(f"npx --no-install {tool}")
