"""Checks that the agent ran, and the verdict on a change derived from their exit codes.

`verdict_of` counts the checks that ran after the last edit; `parse_check` recognizes a check in a command line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from bot.publishing.markdown import code, duration, one_line

Standing = Literal["counts", "outdated", "superseded", "before"]
_MAX_COMPARED = 200


class Verdict(StrEnum):
    """Verdict on a finished run that was to change or test something (`StatusView.state` is `done`)."""

    VERIFIED = "verified"
    """A check passed after the last change, and the last run of every check passed."""
    UNVERIFIED = "unverified"
    """No check passed on the change in its final or published form, or one did not end."""
    RED = "red"
    UNCHANGED = "unchanged"
    SETUP_FAILED = "setup_failed"
    """A `setup` command of the repository failed before the agent started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A command whose exit code tells whether the code is right.

    Attributes:
        declared: whether the agent passed `check=True`.
        by_host: whether the bot reran it after the agent ended.
        failed_before: its failed tests, if all of them failed before the agent began, too, and others passed.
        standing: `outdated` by later edits, `superseded` by a later run, or `before` the first edit.
    """

    command: str
    exit_code: int | None
    seconds: float
    ended: float = 0.0
    declared: bool = True
    directory: str = ""
    by_host: bool = False
    failed_before: tuple[str, ...] = ()
    standing: Standing = "counts"

    @property
    def passed(self) -> bool:
        """Whether it succeeded, or nothing failed that did not fail before."""
        return self.exit_code == 0 or bool(self.failed_before)

    @property
    def failed(self) -> bool:
        return self.exit_code is not None and not self.passed

    @property
    def is_ad_hoc(self) -> bool:
        """Whether it runs no known test, build or lint tool, e.g. a script by the agent."""
        own = parse_check(self.command, declared=self.declared)
        return own is None or not own.is_tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """First and last known edit, in seconds since the epoch."""

    first: float
    last: float

    @classmethod
    def merge(cls, *edits: Edits | None) -> Edits | None:
        known = [span for span in edits if span is not None]
        if not known:
            return None
        return cls(first=min(span.first for span in known), last=max(span.last for span in known))


def judge_checks(checks: Sequence[Check], edits: Edits | None) -> tuple[Check, ...]:
    """Set the standing of each check, given in the order in which they ended."""
    later: set[ParsedCheck] = set()
    result: list[Check] = []
    for check in reversed(checks):
        own = parse_check(check.command, declared=check.declared)
        # Bounds the quadratic comparison.
        in_limit = len(later) <= _MAX_COMPARED
        standing: Standing = "counts"
        if own is not None and (own in later or (in_limit and any(other.supersedes(own) for other in later))):
            standing = "superseded"
        elif edits is not None and check.ended < edits.first:
            standing = "before"
        elif edits is not None and check.ended < edits.last:
            standing = "outdated"
        result.append(replace(check, standing=standing))
        if own is not None:
            later.add(own)
    return tuple(reversed(result))


def failing_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return the judged checks whose last run failed; an ad-hoc script does not count once files have changed."""
    return tuple(
        check
        for check in checks
        if check.failed and (check.standing == "counts" or (check.standing == "outdated" and not check.is_ad_hoc))
    )


def verdict_of(checks: Sequence[Check], *, changed: bool, setup_failed: bool = False, partial: bool = False) -> Verdict:
    """Derive the verdict on a run from its judged checks.

    `changed` is True for a run that is only to test; `partial` if the checks ran with files in place that are left out
    of the change.
    """
    counted = [check for check in checks if check.standing == "counts"]
    if setup_failed:
        return Verdict.SETUP_FAILED
    if not changed:
        return Verdict.UNCHANGED
    if failing_checks(checks):
        return Verdict.RED
    ended = all(check.exit_code is not None for check in counted)
    passed = ended and any(check.passed for check in counted)
    return Verdict.VERIFIED if passed and not partial else Verdict.UNVERIFIED


_COMMAND_CHARS = 300
_GLOB_OR_VARIABLE = re.compile(r"[*?\[{$]")
_MAX_NAME_CHARS, _MAX_NAMES = 100, 10
_NOT_FOUND_CODES = frozenset({126, 127})
_UNRELATED_NOTE = "No failed step runs this command; make sure that it checks the same thing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The bot's own run of the reproduced failure, after a change that should fix failed CI.

    Attributes:
        command: that failed before the first edit; empty if none did.
        is_unrelated: whether no failed workflow step runs this command.
        ignored_files: created by it, which are not part of the change.
    """

    command: str = ""
    before: int = 0
    after: int | None = None
    seconds: float = 0.0
    is_unrelated: bool = False
    passed_there: bool = False
    ignored_files: tuple[str, ...] = ()

    @property
    def is_proven(self) -> bool:
        return bool(self.command) and self.after == 0

    @property
    def sentence(self) -> str:
        if not self.command:
            return (
                "The failure was not reproduced: no check failed here before the files were changed, so nothing "
                "shows that this change fixes it."
            )
        command = code(one_line(self.command, _COMMAND_CHARS))
        beginning = f"{command} ended with exit code {self.before} before the change"
        again = "run again by the bot in a fresh sandbox"
        if self.is_proven:
            caveat = f" {_UNRELATED_NOTE}" if self.is_unrelated else ""
            names = ", ".join(code(one_line(path, _MAX_NAME_CHARS)) for path in self.ignored_files[:_MAX_NAMES])
            ignored_files = f" It ran with ignored files in place that are not in the commit: {names}." if names else ""
            return f"**Proof:** {beginning} and with exit code 0 after it, {again}.{caveat}{ignored_files}"
        ended = f"with exit code {self.after} after it"
        if self.after is None:
            ended = f"did not finish within {duration(self.seconds)} after it"
        text = f"{beginning} and {ended}, {again}."
        if self.after in _NOT_FOUND_CODES and self.after != self.before:
            return (
                f"{text} Anything the agent installed outside of the workspace is not available: install it in `setup`."
            )
        if self.passed_there:
            return (
                f"{text} It passed in the agent's terminal, whose variables, functions and commits are not used here."
            )
        return text


def find_reproduction(checks: Sequence[Check], edits: Edits | None, commands: Sequence[str] = ()) -> Check | None:
    """Return the check that reproduced the failure before the first edit.

    A check by the same tool as the failed workflow steps (`run:` commands) is preferred to the last failed one.
    """
    failed = [
        check
        for check in checks
        if check.failed and check.exit_code not in _NOT_FOUND_CODES and (edits is None or check.ended < edits.first)
    ]
    related = [check for check in failed if not is_unrelated(check, commands)]
    return next(reversed(related or failed), None)


def is_unrelated(check: Check, commands: Sequence[str]) -> bool:
    """Whether a check is unrelated to the failed steps; False if these run no known tool."""
    steps = [step for line in step_lines(commands) if (step := parse_check(line, declared=True)) and step.is_tool]
    own = parse_check(check.command, declared=check.declared)
    return bool(steps) and (own is None or not any(_is_same_check(own, step) for step in steps))


def _is_same_check(own: ParsedCheck, step: ParsedCheck) -> bool:
    if own.tool != step.tool:
        return False
    targets, words = _targets(step), _targets(own)
    return not (targets and words) or any(_is_within(word, target) for word in words for target in targets)


def _targets(check: ParsedCheck) -> list[str]:
    pairs = zip(("", *check.arguments), check.arguments, strict=False)
    return [word for previous, word in pairs if not word.startswith("-") and not previous.startswith("-")]


def _is_within(word: str, target: str) -> bool:
    word, target = word.removeprefix("./"), target.removeprefix("./")
    fixed = _GLOB_OR_VARIABLE.split(target, maxsplit=1)[0]
    if fixed != target or target in {"", "."}:
        return word.startswith(fixed.removesuffix("."))
    return word == target or word.startswith((f"{target.rstrip('/')}/", f"{target}::"))


def step_lines(commands: Sequence[str]) -> Iterator[str]:
    for command in commands:
        yield from (line.strip() for line in command.replace("\\\n", " ").splitlines() if line.strip())


def _split(words: str) -> frozenset[str]:
    return frozenset(name.strip() for name in words.replace("\n", " ").split(","))


CHECK_TOOLS = _split(
    """
    pytest, py.test, unittest, doctest, nose2, tox, nox, mypy, pyright, pyre, pytype, flake8, pylint, pyflakes,
    pycodestyle, pydocstyle, bandit, vulture, ruff check, coverage run, trial, hatch test, compileall, py_compile,
    pip check, pre-commit run, build, twine check, ty check, python manage.py test, codespell, jest, vitest, mocha,
    ava, tap, tsc, eslint, stylelint, biome check, biome lint, biome ci, node --test, node --check, deno test,
    deno lint, deno check, bun test, playwright test, cypress run, vue-tsc, svelte-check, oxlint, xo, standard,
    go test, go vet, go build, golangci-lint run, staticcheck, cargo test, cargo check, cargo build, cargo clippy,
    cargo nextest, cargo doc, rustc, gcc, g++, cc, c++, clang, clang++, ctest, cmake --build, meson test,
    meson compile, bazel test, bazel build, zig build, zig test, clang-tidy, cppcheck, javac, kotlinc, sbt test,
    sbt compile, dotnet test, dotnet build, rspec, rubocop, minitest, rails test, ruby -c, phpunit, pest, phpstan,
    psalm, php -l, composer test, composer validate, mix test, mix compile, swift test, swift build, cabal test,
    cabal build, stack test, stack build, dart analyze, dart test, flutter analyze, flutter test, prove, busted,
    luacheck, bats, bash -n, sh -n, shellcheck, actionlint, hadolint, yamllint, markdownlint, terraform validate,
    check-jsonschema, zizmor, sqlfluff lint
    """
)
"""Programs, or programs with a subcommand, that test, build or lint whatever their arguments."""

FORMATTERS = {
    "black": ("--check", "--diff"),
    "isort": ("--check", "--diff"),
    "ruff format": ("--check", "--diff"),
    "prettier": ("--check", "-c", "--list-different", "-l"),
    "cargo fmt": ("--check",),
    "rustfmt": ("--check",),
    "mix format": ("--check",),
    "dart format": ("--set-exit-if-changed",),
    "deno fmt": ("--check",),
    "dotnet format": ("--verify-no-changes",),
    "terraform fmt": ("-check",),
}
"""Formatters, with the arguments that make them check only."""

TARGET_RUNNERS = _split(
    """
    make, gmake, ninja, just, task, invoke, rake, mvn, mvnw, gradle, gradlew, ant
    """
)
"""Programs that run targets of a file in the repository; all of them without an argument."""

SCRIPT_RUNNERS = frozenset({"npm", "yarn", "pnpm", "bun"})
"""Programs that run a named script of the repository, optionally behind `run`."""

CHECK_TARGETS = re.compile(
    r"(?:.*[:_.-])?(?:t|tests?|specs?|checks?|lint|build|compile|verify|package|assemble|type-?checks?|types|all|ci|unit|"
    r"integration|e2e|validate)(?:[:_.-].*)?|\w+Tests?"
)
"""Names of targets and scripts that test, build or lint."""

INSPECTION_COMMANDS = _split(
    """
    !, ., :, [, [[, awk, basename, bat, cat, cd, cmp, column, comm, cut, date, df, diff, dirname, du, echo, egrep,
    env, exit, export, expr, false, fd, fgrep, file, find, fold, gawk, git, grep, head, hexdump, id, jobs, join, jq,
    kill, less, locale, ls, md5sum, more, nl, nm, nproc, objdump, od, paste, popd, printenv, printf, ps, pushd, pwd,
    read, readlink, realpath, rev, rg, seq, set, sha256sum, shopt, sleep, sort, source, stat, strings, tac, tail,
    test, top, tr, tree, true, type, ulimit, uname, uniq, unset, wait, wc, which, whoami, xxd, yes, yq
    """
)
"""Commands that only inspect. A match of `grep` is no check of the code."""

SETUP_COMMANDS = _split(
    """
    apk, apt, apt-get, autoreconf, bundle, chmod, chown, cmake, composer, conda, configure, cp, curl, dnf, docker,
    dpkg, ed, ensurepip, gem, go env, go generate, go get, go install, go list, go mod, go version, gofmt, gunzip,
    gzip, install, json.tool, ln, meson, mkdir, mktemp, mv, patch, perl -i, perl -pi, pip, pipx, poetry, pdm,
    rm, rmdir, rsync, rustup, sed, stack, sudo, tar, tee, touch, truncate, unzip, uv, venv, virtualenv, wget, xargs,
    yum, zip, cargo add, cargo fetch, cargo tree, cargo update, cargo metadata, dotnet restore, dotnet add,
    http.server, python setup.py, site, 2to3, pyupgrade, autopep8, yapf, ruff, coverage, mix deps.get
    """
)
"""Commands that install, fetch, move or change files."""

INTERPRETERS = frozenset({"python", "node", "ruby", "perl", "php", "bash", "sh", "deno", "bun", "lua", "irb"})

WRAPPERS = (
    ("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("hatch", "run"), ("rye", "run"), ("npx",),
    ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "exec"), ("bunx",), ("bundle", "exec"), ("python", "-m"),
    ("python", "-I", "-m"), ("python", "-X", "dev", "-m"), ("coverage", "run", "-m"), ("time",),
    ("env",), ("timeout",), ("nice",), ("nohup",), ("command",), ("exec",), ("xvfb-run",),
)  # fmt: skip
"""Prefixes that only start another program."""

NO_CHECK_ARGUMENTS = _split(
    """
    --version, -V, --help, -h, --collect-only, --co, --no-run, --list, --listTests, --fixtures, --dry-run
    """
)
"""Arguments that disable the actual check."""

SELECTORS = tuple(
    _split(
        """
    -k, -m, -t, -p, -run, --run, -test, --test, --tests, -Dtest, --filter, --grep, -g, --lib, --doc, --lf,
    --last-failed, --ff, --sw, --stepwise, --deselect, --only, --bin, --package, -e, -s
    """
    )
)
"""Prefixes of arguments that narrow a check; a later run without them supersedes it."""

VERBOSITY = re.compile(
    r"-[qvxsl]+|-r[aAfEsxXpPwN]+|--tb=\w+|--verbose|--quiet|--no-header|--no-summary|--colou?r(?:=\w+)?|--no-colou?r|--pretty|"
    r"--maxfail(?:=\d+)?|--durations(?:=\d+)?|--exitfirst|--bail|-W\w*|--silent|--show-capture=\w+|--capture=\w+|"
    r"-count=1|--nocapture|--full-trace|--showlocals|--fail-fast|-failfast|--failfast|-f|-b|-n|-j\d*|--no-cov"
)
"""Arguments that change only output, early exit or parallelism."""

_MAX_CHARS = 10_000
_PUNCTUATION = "();<>|&\n"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
# A here-document with its delimiters.
_HERE_DOCUMENT = re.compile(
    r"(?<!<)<<-?[ \t]*['\"\\]?(?P<end>\w+)['\"]?(?P<rest>[^\n]*)\n(?:.*?\n)?\t*(?P=end)(?=\n|\Z)", re.DOTALL
)
_VERSION = re.compile(r"(?<=[a-z])[0-9.]+\Z")
# Paths that name the same program as its base name: in a virtual environment or the system.
_BIN_PATH = re.compile(r"(?:^|/)(?:bin|\.bin)/[\w.+-]+\Z|/(?:mvnw|gradlew)\Z")
_PIPES = frozenset({"|", "|&"})
_OPENERS = frozenset({"", ";", "(", "&&", *_PIPES})

_Kind = Literal["check", "other", "ad_hoc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCheck:
    """A command line recognized as a check; its arguments exclude `VERBOSITY`."""

    is_tool: bool
    tool: tuple[str, ...]
    arguments: tuple[str, ...]

    def supersedes(self, earlier: ParsedCheck) -> bool:
        """Whether it supersedes an earlier run: the same check, or one that selects more."""
        if self.tool != earlier.tool or self.is_tool != earlier.is_tool:
            return False
        if self.arguments == earlier.arguments:
            return True
        removed = list(earlier.arguments)
        for word in self.arguments:
            if word not in removed:
                return False
            removed.remove(word)
        return self.is_tool and all(not word.startswith("-") or word.startswith(SELECTORS) for word in removed)


@lru_cache(maxsize=2_000)
def parse_check(command: str, *, declared: bool) -> ParsedCheck | None:
    """Recognize the check in a command line; None if its exit code proves nothing.

    No protection depends on this: code in the sandbox can forge exit codes (decision 15). A `declared` check ran with
    `check=True`, which requires every stage of a pipe to succeed.
    """
    if len(command) > _MAX_CHARS:
        return _ad_hoc_check(command) if declared else None
    command = command.strip()
    try:
        # A background command has no exit code.
        parts = [] if command.endswith("&") else list(_split_commands(command))
    except ValueError:  # a quote that is not closed
        parts = []
    kinds = [_command_kind(words) for _, words in parts]
    kind = "check" if "check" in kinds else "ad_hoc" if "ad_hoc" in kinds else "other"
    if kind == "other" or (kind == "ad_hoc" and not declared):
        return None
    # The exit code of the line must be that of its checks.
    first = next(index for index, kind in enumerate(kinds) if kind != "other")
    operators = {operator for operator, _ in parts[first + 1 :]}
    if parts[first][0] not in _OPENERS or not operators <= ({"&&", *_PIPES} if declared else {"&&"}):
        return None
    if kind == "ad_hoc":
        return _ad_hoc_check(command)
    if kinds.count("check") > 1:
        return ParsedCheck(is_tool=True, tool=tuple(word for _, words in parts for word in words), arguments=())
    directory = [word for _, words in parts if words[0] == "cd" for word in words]
    program = _strip_wrappers(parts[kinds.index("check")][1])
    # Split the program with its subcommand from the other arguments.
    tools = CHECK_TOOLS | FORMATTERS.keys()
    size = next((size for size in (3, 2) if " ".join(program[:size]) in tools), 1)
    if program[0] in TARGET_RUNNERS | SCRIPT_RUNNERS:
        size = len(program)
    arguments = tuple(word for word in program[size:] if not VERBOSITY.fullmatch(word))
    return ParsedCheck(is_tool=True, tool=(*directory, *program[:size]), arguments=arguments)


def _ad_hoc_check(command: str) -> ParsedCheck:
    return ParsedCheck(is_tool=False, tool=(" ".join(command.split()),), arguments=())


def _split_commands(command: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each simple command with the operator before it; the body of a here-document is dropped."""
    command = _HERE_DOCUMENT.sub(r"\g<rest>", command).replace("\\\n", " ")
    reader = shlex.shlex(command, posix=True, punctuation_chars=_PUNCTUATION)
    reader.whitespace, reader.commenters, reader.whitespace_split = " \t\r", "", True
    operator, words, skipping, comment = "", list[str](), False, False
    for token in reader:
        if not token or token.strip(_PUNCTUATION):
            comment = comment or token.startswith("#")
            if not (skipping or comment):
                words.append(token)
            skipping = False
        elif "<<" in token:
            break
        elif set(token) & set("<>"):
            if words and words[-1].isdigit():
                words.pop()
            skipping = True
        elif not comment or "\n" in token:
            if words:
                yield operator, words
            operator, words, comment = token.strip("\n"), [], False
    if words:
        yield operator, words


def _command_kind(words: Sequence[str]) -> _Kind:
    program = _strip_wrappers(words)
    # A line of assignments has no program.
    if not program or any(word in NO_CHECK_ARGUMENTS for word in program[1:]):
        return "other"
    if _runs_tool(program):
        return "check"
    names = {program[0], " ".join(program[:2])}
    if names & (INSPECTION_COMMANDS | SETUP_COMMANDS | TARGET_RUNNERS | SCRIPT_RUNNERS | FORMATTERS.keys()):
        return "other"
    return "other" if program[0] in INTERPRETERS and len(program) == 1 else "ad_hoc"


def _runs_tool(program: Sequence[str]) -> bool:
    beginnings = [" ".join(program[:size]) for size in (1, 2, 3)]
    if not CHECK_TOOLS.isdisjoint(beginnings):
        return True
    formatter = next((beginning for beginning in beginnings if beginning in FORMATTERS), None)
    if formatter is not None:
        return any(word.startswith(FORMATTERS[formatter]) for word in program)
    targets = [word for word in program[1:] if not word.startswith("-") and not _ASSIGNMENT.fullmatch(word)]
    if program[0] in SCRIPT_RUNNERS:
        runs = targets[:1] in (["run"], ["run-script"])
        targets = targets[1:2] if runs else [beginning for beginning in targets[:1] if beginning != "ci"]
        return any(map(CHECK_TARGETS.fullmatch, targets))
    return program[0] in TARGET_RUNNERS and (not targets or any(map(CHECK_TARGETS.fullmatch, targets)))


def _strip_wrappers(words: Sequence[str]) -> list[str]:
    program = list(words)
    while program:
        if _ASSIGNMENT.fullmatch(program[0]):
            program.pop(0)
            continue
        if "/" not in program[0] or _BIN_PATH.search(program[0]):
            name = program[0].rpartition("/")[2]
            program[0] = name if name in CHECK_TOOLS | SETUP_COMMANDS else _VERSION.sub("", name)
        wrapper = next((w for w in WRAPPERS if program[: len(w)] == list(w) and len(program) > len(w)), None)
        if wrapper is None:
            break
        program = program[len(wrapper) :]
        if wrapper in {("timeout",), ("nice",)}:
            while len(program) > 1 and (program[0].startswith("-") or program[0][:1].isdigit()):
                program.pop(0)
    return program
