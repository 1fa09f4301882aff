"""Programs whose exit code says whether code is right, and those whose exit code does not. Pure."""

from __future__ import annotations

import re


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
