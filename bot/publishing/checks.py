"""Checks that the agent ran, and the verdict on a change that follows from their exit codes.

`verdict_of` judges a change by the commands whose exit codes say whether something is right (`checking`), as far as
they ran after the last edit. `reproduced` tells whether a command is the one of a workflow's failed step.
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
_MOST_COMPARED = 200


class Verdict(StrEnum):
    """What is known of a run that was to change something and ended by itself (`StatusView.state` is `done`).

    Every other end has its state alone: failed, stopped, refused, waiting.
    """

    VERIFIED = "verified"
    """A check passed after the last change, and the last run of every check passed."""
    UNVERIFIED = "unverified"
    """Something changed, and no check passed on it as it is now or as far as it is published, or one did not end."""
    RED = "red"
    """The last run of some check failed."""
    UNCHANGED = "unchanged"
    """Nothing changed."""
    SETUP_FAILED = "setup_failed"
    """A `setup` command of the repository failed before the agent started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A command that the agent ran, and whose exit code says whether something is right.

    Attributes:
        command: as it was given to bash.
        exit_code: None when it was stopped before it ended.
        seconds: how long it took.
        ended: when, in seconds since the epoch.
        declared: whether it was run with `check=True`.
        directory: where, when the terminal had gone elsewhere; else empty.
        by_host: whether the host ran it once more after the agent had ended.
        standing: what it says of the result: `counts`; `outdated`, as files were changed later; `superseded` by a later
            run; `before` anything was changed, as where a failure is reproduced.
    """

    command: str
    exit_code: int | None
    seconds: float
    ended: float = 0.0
    declared: bool = True
    directory: str = ""
    by_host: bool = False
    standing: Standing = "counts"

    @property
    def passed(self) -> bool:
        """Whether it ended and succeeded."""
        return self.exit_code == 0

    @property
    def failed(self) -> bool:
        """Whether it ended and did not succeed."""
        return self.exit_code not in {None, 0}

    @property
    def ad_hoc(self) -> bool:
        """Whether it is no program that is known to test, build or lint, but e.g. a script that the agent wrote."""
        read = checking(self.command, declared=self.declared)
        return read is None or not read.known


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """When files were changed, in seconds since the epoch.

    Attributes:
        first: the first change that is known.
        last: the last one.
    """

    first: float
    last: float

    @classmethod
    def joined(cls, *edits: Edits | None) -> Edits | None:
        """All of them together."""
        some = [each for each in edits if each is not None]
        if not some:
            return None
        return cls(first=min(each.first for each in some), last=max(each.last for each in some))


def judged(checks: Sequence[Check], edits: Edits | None) -> tuple[Check, ...]:
    """The checks, each with what it says of the result.

    Args:
        checks: in the order in which they ended.
        edits: when files were changed; None where none was.
    """
    later: set[Checking] = set()
    told: list[Check] = []
    for check in reversed(checks):
        mine = checking(check.command, declared=check.declared)
        # Nobody looks through hundreds of checks; each is compared with so many others at most.
        narrower = len(later) <= _MOST_COMPARED
        standing: Standing = "counts"
        if mine is not None and (mine in later or (narrower and any(each.covers(mine) for each in later))):
            standing = "superseded"
        elif edits is not None and check.ended < edits.first:
            standing = "before"
        elif edits is not None and check.ended < edits.last:
            standing = "outdated"
        told.append(replace(check, standing=standing))
        if mine is not None:
            later.add(mine)
    return tuple(reversed(told))


def failing(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks whose last run failed, of those that `judged` gave.

    What the agent tried by a script of its own before it changed something else says nothing any more.
    """
    return tuple(
        each
        for each in checks
        if each.failed and (each.standing == "counts" or (each.standing == "outdated" and not each.ad_hoc))
    )


def verdict_of(checks: Sequence[Check], *, changed: bool, setup_failed: bool = False, partial: bool = False) -> Verdict:
    """What a run came to.

    Args:
        checks: what `judged` gave.
        changed: whether there is a change; of a run that is only to test, True.
        setup_failed: whether a `setup` command of the repository failed.
        partial: whether the checks ran with files in place that are left out of the change.
    """
    counted = [each for each in checks if each.standing == "counts"]
    if setup_failed:
        return Verdict.SETUP_FAILED
    if not changed:
        return Verdict.UNCHANGED
    if failing(checks):
        return Verdict.RED
    ended = all(each.exit_code is not None for each in counted)
    passed = ended and any(each.passed for each in counted)
    return Verdict.VERIFIED if passed and not partial else Verdict.UNVERIFIED


_COMMAND_CHARS = 300
_PATTERN = re.compile(r"[*?\[{$]")
_NAME_CHARS, _NAMES = 100, 10
_NOT_FOUND = frozenset({126, 127})
_OTHER = "No failed step runs this command; make sure that it checks the same thing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What the host saw before and after a change that is to make failed checks pass.

    Attributes:
        command: what the agent saw fail before it changed anything; empty when it saw nothing fail.
        before: the exit code then.
        after: the exit code when the host ran it once more on the files as they were left; None when it did not end.
        seconds: how long that took.
        other: whether it is no part of what the steps that failed run, where that is known.
        passed_there: whether the command passed when the agent ran it after the change.
        beside: what the run made that git ignores, and so is no part of the change.
    """

    command: str = ""
    before: int = 0
    after: int | None = None
    seconds: float = 0.0
    other: bool = False
    passed_there: bool = False
    beside: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether it failed before the change and passes after it."""
        return bool(self.command) and self.after == 0

    @property
    def sentence(self) -> str:
        """What it proves, or why nothing was committed, for the comment and the pull request."""
        if not self.command:
            return (
                "The failure was not reproduced: no check failed here before the files were changed, so nothing "
                "shows that this change fixes it."
            )
        shown = code(one_line(self.command, _COMMAND_CHARS))
        before = f"{shown} ended with exit code {self.before} before the change"
        again = "run again by the bot in a fresh sandbox"
        if self.proven:
            other = f" {_OTHER}" if self.other else ""
            names = ", ".join(code(one_line(each, _NAME_CHARS)) for each in self.beside[:_NAMES])
            beside = f" It ran with ignored files in place that are not in the commit: {names}." if names else ""
            return f"**Proof:** {before} and with exit code 0 after it, {again}.{other}{beside}"
        ended = f"with exit code {self.after} after it"
        if self.after is None:
            ended = f"did not finish within {duration(self.seconds)} after it"
        said = f"{before} and {ended}, {again}."
        if self.after in _NOT_FOUND and self.after != self.before:
            return (
                f"{said} Anything the agent installed outside of the workspace is not available: install it in `setup`."
            )
        if self.passed_there:
            return f"{said} It passed in the agent's terminal, whose variables and functions are not available here."
        return said


def reproduced(checks: Sequence[Check], edits: Edits | None, commands: Sequence[str] = ()) -> Check | None:
    """The check that showed the failure before anything was changed; None when none did.

    Args:
        checks: in the order in which they ended.
        edits: when files were changed; None where none was.
        commands: the `run:` of the workflow's steps that failed. A check by the same tool is the one that is meant;
            where there is none, it is the last one that failed.
    """
    red = [
        each
        for each in checks
        if each.failed and each.exit_code not in _NOT_FOUND and (edits is None or each.ended < edits.first)
    ]
    meant = [each for each in red if not is_other(each, commands)]
    return next(reversed(meant or red), None)


def is_other(check: Check, commands: Sequence[str]) -> bool:
    """Whether a check is no part of what the steps that failed run; False where these run nothing that is known."""
    steps = [read for line in step_lines(commands) if (read := checking(line, declared=True)) and read.known]
    own = checking(check.command, declared=check.declared)
    return bool(steps) and (own is None or not any(_is_part(own, step) for step in steps))


def _is_part(own: Checking, step: Checking) -> bool:
    """Whether it is the same tool on the same files, on some of them or on more."""
    if own.tool != step.tool:
        return False
    there, here = _targets(step), _targets(own)
    return not (there and here) or any(_is_within(word, target) for word in here for target in there)


def _targets(read: Checking) -> list[str]:
    """The words that are neither options nor what may be their values."""
    pairs = zip(("", *read.rest), read.rest, strict=False)
    return [word for before, word in pairs if not word.startswith("-") and not before.startswith("-")]


def _is_within(word: str, target: str) -> bool:
    """Whether a path, or a test in a file, is a target of the step, or below it. A pattern or a variable may be any."""
    word, target = word.removeprefix("./"), target.removeprefix("./")
    fixed = _PATTERN.split(target, maxsplit=1)[0]
    if fixed != target or target in {"", "."}:
        return word.startswith(fixed.removesuffix("."))
    return word == target or word.startswith((f"{target.rstrip('/')}/", f"{target}::"))


def step_lines(commands: Sequence[str]) -> Iterator[str]:
    """The commands in the `run:` of several steps, one a line."""
    for command in commands:
        yield from (line.strip() for line in command.replace("\\\n", " ").splitlines() if line.strip())


def _named(words: str) -> frozenset[str]:
    return frozenset(each.strip() for each in words.replace("\n", " ").split(","))


TOOLS = _named(
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
"""They test, build or lint, whatever their arguments: a program, or a program and the words that say what it does."""

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
"""They change files, but check them with one of these arguments."""

TARGETED = _named(
    """
    make, gmake, ninja, just, task, invoke, rake, mvn, mvnw, gradle, gradlew, ant
    """
)
"""They do what a file of the repository says, by the names of targets among their words; without one, all of it."""

SCRIPTED = frozenset({"npm", "yarn", "pnpm", "bun"})
"""They run a script of the repository by its name, which may stand behind `run`."""

TARGETS = re.compile(
    r"(?:.*[:_.-])?(?:t|tests?|specs?|checks?|lint|build|compile|verify|package|assemble|type-?checks?|types|all|ci|unit|"
    r"integration|e2e|validate)(?:[:_.-].*)?|\w+Tests?"
)
"""Names of targets and scripts that test, build or lint."""

LOOKS = _named(
    """
    !, ., :, [, [[, awk, basename, bat, cat, cd, cmp, column, comm, cut, date, df, diff, dirname, du, echo, egrep,
    env, exit, export, expr, false, fd, fgrep, file, find, fold, gawk, git, grep, head, hexdump, id, jobs, join, jq,
    kill, less, locale, ls, md5sum, more, nl, nm, nproc, objdump, od, paste, popd, printenv, printf, ps, pushd, pwd,
    read, readlink, realpath, rev, rg, seq, set, sha256sum, shopt, sleep, sort, source, stat, strings, tac, tail,
    test, top, tr, tree, true, type, ulimit, uname, uniq, unset, wait, wc, which, whoami, xxd, yes, yq
    """
)
"""They show something, or nothing. That `grep` found a text is no check of the code."""

PREPARE = _named(
    """
    apk, apt, apt-get, autoreconf, bundle, chmod, chown, cmake, composer, conda, configure, cp, curl, dnf, docker,
    dpkg, ed, ensurepip, gem, go env, go generate, go get, go install, go list, go mod, go version, gofmt, gunzip,
    gzip, install, json.tool, ln, meson, mkdir, mktemp, mv, patch, perl -i, perl -pi, pip, pipx, poetry, pdm,
    rm, rmdir, rsync, rustup, sed, stack, sudo, tar, tee, touch, truncate, unzip, uv, venv, virtualenv, wget, xargs,
    yum, zip, cargo add, cargo fetch, cargo tree, cargo update, cargo metadata, dotnet restore, dotnet add,
    http.server, python setup.py, site, 2to3, pyupgrade, autopep8, yapf, ruff, coverage, mix deps.get
    """
)
"""They install, fetch, move or change files."""

INTERPRETERS = frozenset({"python", "node", "ruby", "perl", "php", "bash", "sh", "deno", "bun", "lua", "irb"})

RUNNERS = (
    ("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("hatch", "run"), ("rye", "run"), ("npx",),
    ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "exec"), ("bunx",), ("bundle", "exec"), ("python", "-m"),
    ("python", "-I", "-m"), ("python", "-X", "dev", "-m"), ("coverage", "run", "-m"), ("time",),
    ("env",), ("timeout",), ("nice",), ("nohup",), ("command",), ("exec",), ("xvfb-run",),
)  # fmt: skip
"""What only starts the program that follows."""

AIMLESS = _named(
    """
    --version, -V, --help, -h, --collect-only, --co, --no-run, --list, --listTests, --fixtures, --dry-run
    """
)
"""Arguments with which nothing is checked."""

SELECTORS = tuple(
    _named(
        """
    -k, -m, -t, -p, -run, --run, -test, --test, --tests, -Dtest, --filter, --grep, -g, --lib, --doc, --lf,
    --last-failed, --ff, --sw, --stepwise, --deselect, --only, --bin, --package, -e, -s
    """
    )
)
"""Beginnings of arguments that narrow what is checked: a later run without them checks that, too."""

VERBOSITY = re.compile(
    r"-[qvxsl]+|-r[aAfEsxXpPwN]+|--tb=\w+|--verbose|--quiet|--no-header|--no-summary|--colou?r(?:=\w+)?|--no-colou?r|--pretty|"
    r"--maxfail(?:=\d+)?|--durations(?:=\d+)?|--exitfirst|--bail|-W\w*|--silent|--show-capture=\w+|--capture=\w+|"
    r"-count=1|--nocapture|--full-trace|--showlocals|--fail-fast|-failfast|--failfast|-f|-b|-n|-j\d*|--no-cov"
)
"""Arguments that change what is shown, how soon it ends, or how many run at a time."""

_MOST_CHARS = 10_000
_PUNCTUATION = "();<>|&\n"
_SETS = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
# The content of a here-document, with the lines around it that say where it begins and ends.
_HERE = re.compile(
    r"(?<!<)<<-?[ \t]*['\"\\]?(?P<end>\w+)['\"]?(?P<rest>[^\n]*)\n(?:.*?\n)?\t*(?P=end)(?=\n|\Z)", re.DOTALL
)
_VERSION = re.compile(r"(?<=[a-z])[0-9.]+\Z")
# Where a program that is called by its place is the same as by its name: in a virtual environment, in the system.
_ANY_PLACE = re.compile(r"(?:^|/)(?:bin|\.bin)/[\w.+-]+\Z|/(?:mvnw|gradlew)\Z")
_PIPES = frozenset({"|", "|&"})
_BEFORE = frozenset({"", ";", "(", "&&", *_PIPES})

_Kind = Literal["check", "other", "ad_hoc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checking:
    """A command line whose exit code says whether something is right.

    Attributes:
        known: whether it runs a program that is known to test, build or lint; else it is any other command, such as a
            script that the agent wrote.
        tool: what is run, without its arguments, in one spelling.
        rest: the arguments, without those that only change what is shown.
    """

    known: bool
    tool: tuple[str, ...]
    rest: tuple[str, ...]

    def covers(self, earlier: Checking) -> bool:
        """Whether its result supersedes that of an earlier run: the same check, or one that selects less narrowly."""
        if self.tool != earlier.tool or self.known != earlier.known:
            return False
        if self.rest == earlier.rest:
            return True
        left = list(earlier.rest)
        for word in self.rest:
            if word not in left:
                return False
            left.remove(word)
        return self.known and all(not word.startswith("-") or word.startswith(SELECTORS) for word in left)


@lru_cache(maxsize=2_000)
def checking(command: str, *, declared: bool) -> Checking | None:
    """Return the check that a command line makes; None where its exit code proves nothing.

    No protection depends on this: exit codes come from the sandbox, where hostile code can forge them (decision 15),
    and readers of the comment see every command.

    Args:
        command: as it was given to bash.
        declared: whether it was run with `check=True`, so that every stage of a pipe had to succeed.
    """
    if len(command) > _MOST_CHARS:
        return _any_other(command) if declared else None
    command = command.strip()
    try:
        # Nothing is known of what runs on unseen.
        parts = [] if command.endswith("&") else list(_simple_commands(command))
    except ValueError:  # a quote that is not closed
        parts = []
    kinds = [_kind(words) for _, words in parts]
    best = "check" if "check" in kinds else "ad_hoc" if "ad_hoc" in kinds else "other"
    if best == "other" or (best == "ad_hoc" and not declared):
        return None
    # The exit code of the whole has to be that of its checks.
    first = next(index for index, kind in enumerate(kinds) if kind != "other")
    after = [joint for joint, _ in parts[first + 1 :]]
    if parts[first][0] not in _BEFORE or any(joint != "&&" and not (joint in _PIPES and declared) for joint in after):
        return None
    if best == "ad_hoc":
        return _any_other(command)
    if kinds.count("check") > 1:
        return Checking(known=True, tool=tuple(word for _, words in parts for word in words), rest=())
    where = [word for _, words in parts if words[0] == "cd" for word in words]
    plain = _plain(parts[kinds.index("check")][1])
    # The program with what says which of its checks is meant, and the other arguments.
    known = TOOLS | FORMATTERS.keys()
    size = next((size for size in (3, 2) if " ".join(plain[:size]) in known), 1)
    if plain[0] in TARGETED | SCRIPTED:
        size = len(plain)
    rest = tuple(word for word in plain[size:] if not VERBOSITY.fullmatch(word))
    return Checking(known=True, tool=(*where, *plain[:size]), rest=rest)


def _any_other(command: str) -> Checking:
    return Checking(known=False, tool=(" ".join(command.split()),), rest=())


def _simple_commands(command: str) -> Iterator[tuple[str, list[str]]]:
    """Each simple command with what joins it to the one before; of a here-document, what it is given to."""
    command = _HERE.sub(r"\g<rest>", command).replace("\\\n", " ")
    reader = shlex.shlex(command, posix=True, punctuation_chars=_PUNCTUATION)
    reader.whitespace, reader.commenters, reader.whitespace_split = " \t\r", "", True
    joint, words, skipping, comment = "", list[str](), False, False
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
                yield joint, words
            joint, words, comment = token.strip("\n"), [], False
    if words:
        yield joint, words


def _kind(words: Sequence[str]) -> _Kind:
    plain = _plain(words)
    # What only sets variables has no program.
    if not plain or any(word in AIMLESS for word in plain[1:]):
        return "other"
    if _is_tool(plain):
        return "check"
    named = {plain[0], " ".join(plain[:2])}
    if named & (LOOKS | PREPARE | TARGETED | SCRIPTED | FORMATTERS.keys()):
        return "other"
    return "other" if plain[0] in INTERPRETERS and len(plain) == 1 else "ad_hoc"


def _is_tool(plain: Sequence[str]) -> bool:
    beginnings = [" ".join(plain[:size]) for size in (1, 2, 3)]
    if not TOOLS.isdisjoint(beginnings):
        return True
    formatter = next((each for each in beginnings if each in FORMATTERS), None)
    if formatter is not None:
        return any(word.startswith(FORMATTERS[formatter]) for word in plain)
    goals = [word for word in plain[1:] if not word.startswith("-") and not _SETS.fullmatch(word)]
    if plain[0] in SCRIPTED:
        runs = goals[:1] in (["run"], ["run-script"])
        goals = goals[1:2] if runs else [each for each in goals[:1] if each != "ci"]
        return any(map(TARGETS.fullmatch, goals))
    return plain[0] in TARGETED and (not goals or any(map(TARGETS.fullmatch, goals)))


def _plain(words: Sequence[str]) -> list[str]:
    """The words without variables and without what only starts another program; the program by its bare name."""
    left = list(words)
    while left:
        if _SETS.fullmatch(left[0]):
            left.pop(0)
            continue
        if "/" not in left[0] or _ANY_PLACE.search(left[0]):
            name = left[0].rpartition("/")[2]
            left[0] = name if name in TOOLS | PREPARE else _VERSION.sub("", name)
        runner = next((each for each in RUNNERS if left[: len(each)] == list(each) and len(left) > len(each)), None)
        if runner is None:
            break
        left = left[len(runner) :]
        if runner in {("timeout",), ("nice",)}:
            while len(left) > 1 and (left[0].startswith("-") or left[0][:1].isdigit()):
                left.pop(0)
    return left
