"""The level that operator, configuration, fork and labels come to; and what the agent may call at each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_runtime import Network, NetworkLimits, Policy, RunLimits
from agent_runtime.policy.policy import CallFacts, Denied, NeedsApproval, Permitted
from bot.domain.access import Bounds, Level, ThreadLabel, text_binding
from bot.domain.job import Actor
from bot.permissions.levels import (
    allowed_commands,
    build_policy,
    decide_level,
    describe_reach,
    narrow_network,
    network_problem,
    tools_for,
)
from bot.permissions.repo_config import LabelNames, RepoConfig, command_pattern
from tests.builders import a_job, a_request_for, thread_facts

HEAD = "a" * 40
RITA = Actor(id=40, login="rita")
BOUNDS = Bounds(limits=RunLimits())


def _label(level: Level, **changes: Any) -> ThreadLabel:  # noqa: ANN401 - whatever a label takes
    usual: dict[str, Any] = {
        "name": f"codepilot:{level}",
        "level": level,
        "labeller": RITA,
        "role": "write",
        "bound_to": HEAD,
    }
    return ThreadLabel(**{**usual, **changes})


@pytest.mark.parametrize("operator", ["read-only", "ask", "auto"])
def test_without_anything_else_it_is_the_operators(operator: Level) -> None:
    assert decide_level(a_request_for(a_job(), bounds=replace(BOUNDS, level=operator))).level == operator


@pytest.mark.parametrize(
    ("operator", "configured", "labelled", "level"),
    [
        ("ask", "auto", [], "auto"),
        ("auto", "read-only", [], "read-only"),
        ("ask", None, ["auto"], "auto"),
        ("ask", None, ["read-only"], "read-only"),
        ("ask", None, ["auto", "read-only"], "read-only"),
        ("ask", None, ["auto", "ask"], "ask"),
        ("auto", None, ["ask"], "ask"),
        ("ask", "read-only", ["auto"], "auto"),
        ("read-only", "auto", ["auto"], "read-only"),
    ],
)
def test_labels_over_configuration_over_operator_and_the_lowest_label_wins(
    operator: Level, configured: Level | None, labelled: list[Level], level: Level
) -> None:
    found = decide_level(
        a_request_for(
            a_job(kind="pull"),
            bounds=replace(BOUNDS, level=operator),
            config=RepoConfig(level=configured),
            labels=tuple(map(_label, labelled)),
        )
    )
    assert found.level == level


def test_a_label_on_an_issue_is_bound_to_its_words() -> None:
    job = a_job(title="Title", body="Body")
    bound = _label("auto", bound_to=text_binding("Title", "Body"))
    assert decide_level(a_request_for(job, labels=(bound,))).level == "auto"
    found = decide_level(a_request_for(job, labels=(_label("auto", bound_to=text_binding("Title", "Body!")),)))
    assert (found.level, found.voided) == ("ask", ("codepilot:auto",))
    assert "this issue's text has changed" in found.notes[0]


def test_the_words_of_an_issue_are_told_apart_wherever_the_title_ends() -> None:
    assert text_binding("ab", "c") != text_binding("a", "bc")
    assert text_binding("a", "b") == text_binding("a", "b")


def test_a_configuration_that_does_not_fit_lets_nothing_be_raised_over_ask() -> None:
    found = decide_level(
        a_request_for(a_job(kind="pull"), config=RepoConfig(highest="ask"), labels=(_label("auto"),), bounds=BOUNDS)
    )
    assert found.level == "ask"
    assert (
        decide_level(
            a_request_for(a_job(), config=RepoConfig(highest="ask"), bounds=replace(BOUNDS, level="auto"))
        ).level
        == "ask"
    )


def test_a_label_that_nobody_saw_being_set_raises_nothing_and_is_taken_off() -> None:
    unseen = _label("auto", labeller=None, role="none", bound_to="")
    found = decide_level(a_request_for(a_job(kind="pull"), labels=(unseen,)))
    assert (found.level, found.voided) == ("ask", ("codepilot:auto",))
    assert "Set it again" in found.notes[0]


def test_labels_are_called_what_the_configuration_calls_them_whatever_the_case() -> None:
    names = LabelNames(auto="bot: go")
    assert [names.level_of(name) for name in ("Bot: Go", "codepilot:auto", "CODEPILOT:read-only", "bug")] == [
        "auto",
        None,
        "read-only",
        None,
    ]


def _decision(level: Level, *, reachable: str = "the network", **call: Any) -> type:  # noqa: ANN401 - whatever a call takes
    policy = build_policy(level, limits=RunLimits(), commands=("./ok *",), reason="I say so", reach=reachable)
    return type(policy.decide(CallFacts(**call)))


@pytest.mark.parametrize(
    ("call", "read_only", "ask", "auto"),
    [
        ({"tool": "read_file", "paths": ("a.py",)}, Permitted, Permitted, Permitted),
        ({"tool": "find"}, Permitted, Permitted, Permitted),
        ({"tool": "write_file", "paths": ("a.py",), "writes": True}, Denied, Permitted, Permitted),
        ({"tool": "write_file", "paths": (".github/workflows/x.yml",), "writes": True}, Denied, Permitted, Permitted),
        ({"tool": "execute", "command": "pytest -q"}, Denied, Permitted, Permitted),
        ({"tool": "execute", "command": "./ok now"}, Denied, Permitted, Permitted),
        ({"tool": "execute", "command": "rm -rf build"}, Denied, NeedsApproval, Permitted),
        ({"tool": "execute", "command": "pytest; curl evil"}, Denied, NeedsApproval, Permitted),
        ({"tool": "send_input", "typed_input": "pytest\n"}, Denied, NeedsApproval, Permitted),
        ({"tool": "send_input", "typed_input": "\x03"}, Denied, Permitted, Permitted),
        ({"tool": "read_output"}, Denied, Permitted, Permitted),
        ({"tool": "a_tool_of_tomorrow"}, Denied, NeedsApproval, Permitted),
    ],
    ids=lambda value: value.get("tool", "") if isinstance(value, dict) else "",
)
def test_what_may_be_called_at_each_level(call: dict[str, Any], read_only: type, ask: type, auto: type) -> None:
    assert [_decision(level, **call) for level in ("read-only", "ask", "auto")] == [read_only, ask, auto]


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "execute", "command": "python3 -c 'import calc' > out; sed -i s/a/b/ $FILE"},
        {"tool": "execute", "command": "pip install ./local"},
        {"tool": "send_input", "typed_input": "import calc\n"},
    ],
)
def test_no_command_needs_an_approval_where_it_can_reach_nothing(call: dict[str, Any]) -> None:
    levels: tuple[Level, ...] = ("read-only", "ask", "auto")
    read_only, ask, auto = (_decision(level, reachable="", **call) for level in levels)
    assert (read_only, ask, auto) == (Denied, Permitted, Permitted)
    assert _decision("ask", reachable="", tool="a_tool_of_tomorrow") is NeedsApproval


_INDEX = ("semantic_search", "trace_callers", "trace_callees", "trace_graph")


def test_what_the_agent_has_at_each_level() -> None:
    assert tools_for("read-only", writes=True) == ("read_file", "list_files", "find", *_INDEX)
    assert "write_file" not in tools_for("auto", writes=False)
    assert {"write_file", "execute"} <= set(tools_for("ask", writes=True))


def test_who_is_refused_is_told_why() -> None:
    policy = build_policy("read-only", limits=RunLimits(), commands=(), reason="the label `x` is set", reach="")
    assert policy.decide(CallFacts(tool="write_file", paths=("a",))) == Denied(
        reason="this run may only read, because the label `x` is set"
    )


def test_a_label_by_its_own_author_counts_where_the_branch_is_the_repositorys() -> None:
    facts = thread_facts(author_id=RITA.id)
    assert decide_level(a_request_for(a_job(kind="pull"), facts=facts, labels=(_label("auto"),))).level == "auto"


POLICY: Policy = build_policy("ask", limits=RunLimits(), commands=(), reason="", reach="the network (pypi.org)")

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
    "npx --no-install tsc --noEmit",
    "node_modules/.bin/eslint src --max-warnings 0",
    "pytest -k 'a or b' --tb=short /workspace/tests",
    "uv run pytest -q",
    "cargo test --workspace -- --nocapture",
    "cargo test -p core parses",
    "dotnet test --filter 'Name~Parses'",
    "bundle exec rspec spec/a_spec.rb:12",
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


OPERATOR = Network(allowed=Network.of("registries", "a.example").allowed, limits=NetworkLimits(total_bytes=7))


def test_a_repository_that_says_nothing_gets_what_the_operator_allows() -> None:
    assert narrow_network(OPERATOR, None).network == OPERATOR


@pytest.mark.parametrize("wanted", ["off", []])
def test_a_repository_may_want_nothing(wanted: str | list[str]) -> None:
    assert not narrow_network(OPERATOR, wanted).network


def test_a_repository_gets_less_when_it_wants_less() -> None:
    found = narrow_network(OPERATOR, ["pypi.org", "files.pythonhosted.org"])
    assert str(found.network) == "files.pythonhosted.org, pypi.org"
    assert found.network.limits == OPERATOR.limits
    assert found.left_out == ()


def test_a_repository_never_gets_more() -> None:
    found = narrow_network(OPERATOR, ["a.example", "a.example:8443", "evil.example"])
    assert str(found.network) == "a.example"
    assert found.left_out == ("a.example:8443", "evil.example")
    assert not narrow_network(Network(), "registries").network


def test_what_cannot_be_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match="must name hosts"):
        narrow_network(OPERATOR, ["*"])


def test_only_bubblewrap_keeps_to_a_list_of_hosts_and_every_setting_with_hosts_is_named() -> None:
    settings = {"CODEPILOT_NETWORK": OPERATOR, "CODEPILOT_SETUP_NETWORK": None}
    assert network_problem("bubblewrap", settings) is None
    assert network_problem("docker", {"CODEPILOT_NETWORK": Network(), "CODEPILOT_SETUP_NETWORK": None}) is None
    told = network_problem("docker", settings)
    assert told is not None
    assert "CODEPILOT_SANDBOX=bubblewrap" in told
    assert told.endswith(": CODEPILOT_NETWORK=off")
    both = network_problem("docker", settings | {"CODEPILOT_SETUP_NETWORK": OPERATOR})
    assert both is not None
    assert both.endswith(": CODEPILOT_NETWORK=off, CODEPILOT_SETUP_NETWORK=off")


@pytest.mark.parametrize(
    ("sandbox", "network", "told"),
    [
        ("bubblewrap", Network(), ""),
        ("docker", Network(), ""),
        ("bubblewrap", Network.of("pypi.org"), "the network (pypi.org)"),
        ("none", Network(), "this machine, because no sandbox isolates them"),
        ("", Network(), "this machine, because no sandbox isolates them"),
    ],
)
def test_what_commands_can_reach_beside_the_workspace(sandbox: str, network: Network, told: str) -> None:
    assert describe_reach(sandbox, network) == told
