from __future__ import annotations

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import CallFacts, Decision, Denied, NeedsApproval, Permitted, Policy, Rule, Verdict
from agent_runtime.policy.shell import PathGlob


def of_command(policy: Policy, command: str) -> Decision:
    return policy.decide(CallFacts(tool="execute", command=command))


def of_paths(policy: Policy, *paths: str, tool: str = "write_file") -> Decision:
    return policy.decide(CallFacts(tool=tool, paths=paths, writes=True))


def of_typing(policy: Policy, text: str) -> Decision:
    return policy.decide(CallFacts(tool="send_input", typed_input=text))


def test_without_rules_everything_is_allowed_and_nothing_need_be_looked_at() -> None:
    assert isinstance(of_command(Policy(), "rm -rf /"), Permitted)
    assert Policy().always_allows("execute")
    assert not Policy(default="ask").always_allows("execute")
    assert not Policy(rules=(Rule(decision="deny", tool="execute"),)).always_allows("send_input")


@pytest.mark.parametrize(("default", "kind"), [("allow", Permitted), ("ask", NeedsApproval), ("deny", Denied)])
def test_a_call_without_a_rule_gets_the_default(default: Verdict, kind: type[Decision]) -> None:
    policy = Policy(rules=(Rule(decision="deny", tool="other"),), default=default)
    assert isinstance(of_paths(policy, "a"), kind)


def test_the_first_rule_that_is_about_it_decides() -> None:
    rules = (
        Rule(decision="allow", commands=("git status",)),
        Rule(decision="deny", commands=("git *",), reason="hands off"),
        Rule(decision="ask", tool="exec*"),
    )
    policy = Policy(rules=rules)
    assert isinstance(of_command(policy, "git status"), Permitted)
    assert of_command(policy, "git push") == Denied(reason="hands off")
    assert isinstance(of_command(policy, "ls"), NeedsApproval)


def test_the_strictest_part_decides_the_call() -> None:
    rules = (
        Rule(decision="allow", paths=("src/**",)),
        Rule(decision="deny", paths=("secret/**",), reason="no"),
    )
    policy = Policy(rules=rules, default="ask")
    assert isinstance(of_paths(policy, "src/a", "src/b"), Permitted)
    assert isinstance(of_paths(policy, "src/a", "b"), NeedsApproval)
    assert of_paths(policy, "src/a", "b", "secret/c") == Denied(reason="no")


def test_reasons_name_the_parts_that_matter() -> None:
    policy = Policy(rules=(Rule(decision="allow", commands=("ls",)),), default="ask")
    assert of_command(policy, "ls; rm a; rm b") == NeedsApproval(
        reason="no rule is about `rm a`; no rule is about `rm b`"
    )
    many = of_command(policy, "; ".join(f"rm {i}" for i in range(9)))
    assert many.reason.endswith("no rule is about `rm 4`; and 4 more")


def test_rules_of_paths_are_not_about_commands_nor_the_other_way_round() -> None:
    policy = Policy(rules=(Rule(decision="allow", paths=("**",)), Rule(decision="deny", commands=("*",))))
    assert isinstance(of_command(policy, "ls"), Denied)
    assert isinstance(of_paths(policy, "a"), Permitted)


def test_a_rule_with_neither_is_about_every_part() -> None:
    rules = (Rule(decision="allow", commands=("pytest *",)), Rule(decision="ask", tool="execute", reason="look"))
    assert isinstance(of_command(Policy(rules=rules), "pytest -q"), Permitted)
    assert of_command(Policy(rules=rules), "pytest -q; rm x") == NeedsApproval(reason="look")


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push --force origin",
        "/usr/bin/git push",
        "cd x && git push",
        "for i in 1; do git push; done",
        "echo $(git push)",
        "X=$(git push) ls",
        "ls > $(git push)",
        "f() { git push; }",
        "A=1 git push > x &",
        "if git push; then ls; fi",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(command: str) -> None:
    assert of_command(Policy(rules=(Rule(decision="deny", commands=("git push *",), reason="no"),)), command) == Denied(
        reason="no"
    )


@pytest.mark.parametrize(
    "command",
    [
        "$X push",
        "git $X",
        "env git push",
        "sh -c 'git push'",
        "g\\\nit push",
        "'",
        "\x1b",
        "{git,push}",
        "coproc git push",
        "flock lock git push",
        "find . -name x -exec git push \\;",
    ],
)
def test_a_possibly_denied_command_requires_approval(command: str) -> None:
    decision = of_command(
        Policy(rules=(Rule(decision="deny", commands=("git push *",), reason="no pushing"),)), command
    )
    assert isinstance(decision, NeedsApproval)


@pytest.mark.parametrize(
    "command", ["git status", "echo $HOME > x", "ls | while read x; do cat $x; done", "a=1", "find . -name x"]
)
def test_a_command_that_no_deny_rule_can_match_is_allowed(command: str) -> None:
    assert isinstance(of_command(Policy(rules=(Rule(decision="deny", commands=("git push *",)),)), command), Permitted)


def test_a_possibly_denied_command_is_denied_by_a_deny_default() -> None:
    policy = Policy(rules=(Rule(decision="deny", commands=("git push *",)),), default="deny")
    assert isinstance(of_command(policy, "$X"), Denied)


def test_commands_that_run_others_need_to_be_named() -> None:
    anything = Policy(rules=(Rule(decision="allow", commands=("*",)),), default="ask")
    assert isinstance(of_command(anything, "rm x"), Permitted)
    assert isinstance(of_command(anything, "sh -c 'rm x'"), NeedsApproval)
    assert isinstance(of_command(anything, "/bin/sh -c 'rm x'"), NeedsApproval)
    assert isinstance(of_command(anything, "find . -exec rm x"), NeedsApproval)
    assert isinstance(of_command(anything, "find . -name x"), Permitted)
    named = Policy(rules=(Rule(decision="allow", commands=("timeout 60 pytest *",)),), default="ask")
    assert isinstance(of_command(named, "timeout 60 pytest -q"), Permitted)
    assert isinstance(of_command(named, "timeout 60 rm -q"), NeedsApproval)


# What is typed.


@pytest.mark.parametrize("text", ["\x03", "\x04", "\x03\x03", "\x1c", ""])
def test_ending_a_program_never_requires_approval(text: str) -> None:
    assert isinstance(of_typing(Policy(default="ask"), text), Permitted)
    assert isinstance(of_typing(Policy(rules=(Rule(decision="ask", tool="execute"),), default="deny"), text), Permitted)


def test_typed_input_is_decided_by_command_rules() -> None:
    patterns = Policy(rules=(Rule(decision="allow", tool="execute", commands=("pytest *", "*")),), default="ask")
    assert isinstance(of_typing(patterns, "pytest\n"), NeedsApproval)
    assert isinstance(of_typing(patterns, "\x03pytest\n"), NeedsApproval)
    assert isinstance(
        of_typing(Policy(rules=(Rule(decision="allow", tool="execute"),), default="ask"), "y\n"), Permitted
    )
    assert isinstance(of_typing(Policy(rules=(Rule(decision="deny", tool="execute"),)), "y\n"), Denied)
    assert isinstance(of_typing(Policy(rules=(Rule(decision="deny", tool="execute"),)), "\x03"), Denied)
    assert isinstance(
        of_typing(Policy(rules=(Rule(decision="allow", tool="send_input"),), default="ask"), "y"), Permitted
    )


def test_typed_input_may_be_a_denied_command() -> None:
    policy = Policy(rules=(Rule(decision="deny", tool="execute", commands=("git push *",)),))
    assert isinstance(of_typing(policy, "git push\n"), Denied)
    assert isinstance(of_typing(policy, "y\n"), NeedsApproval)


# Paths.


@pytest.mark.parametrize(
    ("glob", "path", "allowed", "denied"),
    [
        ("src/**", "src/a/b.py", True, True),
        ("src/**", "src", False, True),
        ("src/**", "SRC/a", False, True),
        ("src/**", "srcs/a", False, False),
        ("src/**", "/src/a", False, False),
        ("*.py", "a/b/c.py", True, True),
        ("*.py", "c.pyc", False, False),
        ("*.py", "/home/x/c.py", False, True),
        ("*.py", "a.py/b", False, True),
        (".github/**", ".GitHub/workflows/x.yml", False, True),
        (".github/", ".github/x", True, True),
        ("./a/*", "a/b", True, True),
        ("a/*", "a/b/c", False, True),
        ("a/**/z", "a/z", True, True),
        ("a/**/z", "a/b/c/z", True, True),
        ("**/z", "z", True, True),
        ("**", "x/y", True, True),
        ("**", "/x/y", False, True),
        ("/**", "/x/y", True, True),
        ("/etc/*", "/etc/passwd", True, True),
        ("/etc/*", "etc/passwd", False, False),
        ("a?[bc].t", "axb.t", True, True),
        ("a?[!bc].t", "axb.t", False, False),
        ("a[!b]c", "a/c", False, False),
        ("a?c", "a/c", False, False),
        ("a.c", "abc", False, False),
        ("[", "[", True, True),
        ("a\nb", "a\nb", True, True),
    ],
)
def test_globs_allow_to_the_letter_and_deny_generously(glob: str, path: str, *, allowed: bool, denied: bool) -> None:
    allow = Policy(rules=(Rule(decision="allow", paths=(glob,)),), default="ask")
    deny = Policy(rules=(Rule(decision="deny", paths=(glob,)),))
    assert isinstance(of_paths(allow, path), Permitted) is allowed
    assert isinstance(of_paths(deny, path), Denied) is denied


def test_a_file_that_a_rule_names_is_withheld_from_calls_that_do_not_name_it() -> None:
    rules = (
        Rule(decision="allow", paths=("secrets/README",)),
        Rule(decision="deny", paths=("secrets/**",)),
        Rule(decision="ask", tool="find", paths=("*.log",)),
        Rule(decision="ask"),
    )
    policy = Policy(rules=rules)
    assert policy.hides("find", "secrets/key")
    assert policy.hides("find", "a.log")
    assert not policy.hides("list_files", "a.log")
    assert not policy.hides("find", "secrets/README")
    assert not policy.hides("find", "src/a")  # only rules about paths keep files back


# Tools.


@pytest.mark.parametrize("tool", ["ask_user", "read_output", "terminate_terminal", "archive_context"])
def test_harmless_tools_require_approval_only_by_a_rule(tool: str) -> None:
    assert isinstance(Policy(default="deny").decide(CallFacts(tool=tool)), Permitted)
    named = Policy(rules=(Rule(decision="ask", tool=tool),))
    assert isinstance(named.decide(CallFacts(tool=tool)), NeedsApproval)


def test_a_denied_tool_is_denied_before_all_rules() -> None:
    policy = Policy(rules=(Rule(decision="allow"),), denied_tools={"execute": "read-only"})
    assert of_command(policy, "ls") == Denied(reason="read-only")
    assert of_typing(policy, "ls") == Denied(reason="read-only")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rule(decision="perhaps"),  # type: ignore[arg-type] # a mistake on purpose
        lambda: Rule(decision="allow", commands="pytest *"),  # type: ignore[arg-type] # the same
        lambda: Rule(decision="allow", commands=("'a",)),
        lambda: Rule(decision="allow", commands=(" ",)),
        lambda: Rule(decision="allow", paths=("",)),
        lambda: Rule(decision="allow", paths=("../x",)),
        lambda: Policy(default="no"),  # type: ignore[arg-type] # the same
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(SettingsError):
        make()


@pytest.mark.parametrize("shell", ["powershell", "cmd"])
def test_no_pattern_covers_the_command_of_another_shell(shell: str) -> None:
    policy = Policy(rules=(Rule(decision="allow", tool="execute", commands=("pytest *",)),), default="ask")
    assert isinstance(policy.decide(CallFacts(tool="execute", command="pytest -q")), Permitted)
    decision = policy.decide(CallFacts(tool="execute", command="pytest -q", shell=shell))
    assert isinstance(decision, NeedsApproval)
    assert f"{shell} is not understood" in decision.reason


def test_globs_of_rules_do_not_backtrack() -> None:
    """A backtracking matcher would never finish."""
    for glob, path in [("*a" * 13 + "*b", "a" * 200), ("**/*a*/" * 13 + "b", "a/" * 2000 + "a")]:
        assert not PathGlob.parse(glob).covers(path)
        assert not PathGlob.loose_union((glob,)).fullmatch(path)
