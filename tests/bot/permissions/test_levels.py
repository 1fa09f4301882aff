"""The level that operator, configuration, fork and labels come to; and what the agent may call at each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_runtime import RunLimits
from agent_runtime.policy.policy import CallFacts, Denied, NeedsApproval, Permitted
from bot.domain.access import Bounds, Level, SetLabel, text_binding
from bot.domain.job import Actor
from bot.permissions.levels import level_for, policy_for, tools_for
from bot.permissions.repo_config import LabelNames, RepoConfig
from tests.builders import a_job, a_request_for, thread_facts

HEAD = "a" * 40
RITA = Actor(id=40, login="rita")
BOUNDS = Bounds(limits=RunLimits())


def _label(level: Level, **changes: Any) -> SetLabel:  # noqa: ANN401 - whatever a label takes
    usual: dict[str, Any] = {
        "name": f"codepilot:{level}",
        "level": level,
        "labeller": RITA,
        "role": "write",
        "bound_to": HEAD,
    }
    return SetLabel(**{**usual, **changes})


@pytest.mark.parametrize("operator", ["read-only", "ask", "auto"])
def test_without_anything_else_it_is_the_operators(operator: Level) -> None:
    assert level_for(a_request_for(a_job(), bounds=replace(BOUNDS, level=operator))).level == operator


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
    found = level_for(
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
    assert level_for(a_request_for(job, labels=(bound,))).level == "auto"
    found = level_for(a_request_for(job, labels=(_label("auto", bound_to=text_binding("Title", "Body!")),)))
    assert (found.level, found.voided) == ("ask", ("codepilot:auto",))
    assert "this issue's text has changed" in found.notes[0]


def test_the_words_of_an_issue_are_told_apart_wherever_the_title_ends() -> None:
    assert text_binding("ab", "c") != text_binding("a", "bc")
    assert text_binding("a", "b") == text_binding("a", "b")


def test_a_configuration_that_does_not_fit_lets_nothing_be_raised_over_ask() -> None:
    found = level_for(
        a_request_for(a_job(kind="pull"), config=RepoConfig(highest="ask"), labels=(_label("auto"),), bounds=BOUNDS)
    )
    assert found.level == "ask"
    assert (
        level_for(a_request_for(a_job(), config=RepoConfig(highest="ask"), bounds=replace(BOUNDS, level="auto"))).level
        == "ask"
    )


def test_a_label_that_nobody_saw_being_set_raises_nothing_and_is_taken_off() -> None:
    unseen = _label("auto", labeller=None, role="none", bound_to="")
    found = level_for(a_request_for(a_job(kind="pull"), labels=(unseen,)))
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
    policy = policy_for(level, limits=RunLimits(), commands=("./ok *",), because="I say so", reachable=reachable)
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
        ({"tool": "send_input", "typed": "pytest\n"}, Denied, NeedsApproval, Permitted),
        ({"tool": "send_input", "typed": "\x03"}, Denied, Permitted, Permitted),
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
        {"tool": "send_input", "typed": "import calc\n"},
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
    policy = policy_for("read-only", limits=RunLimits(), commands=(), because="the label `x` is set", reachable="")
    assert policy.decide(CallFacts(tool="write_file", paths=("a",))) == Denied(
        reason="this run may only read, because the label `x` is set"
    )


def test_a_label_by_its_own_author_counts_where_the_branch_is_the_repositorys() -> None:
    facts = thread_facts(author_id=RITA.id)
    assert level_for(a_request_for(a_job(kind="pull"), facts=facts, labels=(_label("auto"),))).level == "auto"
