"""Approval patterns are no broader than they look."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import PendingCall, Policy, Rule, alike_patterns, exact_patterns, is_covered

LISTED = Policy(
    rules=(
        Rule(decision="allow", tool="execute", commands=("pytest *", "cd *")),
        Rule(decision="ask", tool="execute"),
    )
)


def _call(command: str, *, tool: str = "execute", read_by: str | None = None) -> PendingCall:
    args: dict[str, Any] = {"session_id": "main", "command": command, "shell": read_by}
    return PendingCall(
        request_id="7f3a91c0", kind="permission", tool=tool, args=args, reason="", preview=command, workspace=""
    )


@pytest.mark.parametrize(
    ("command", "exact", "alike"),
    [
        ("npm install left-pad", "npm install left-pad", "npm install <name>"),
        (
            "pip download -d out requests flask==2.0",
            "pip download -d out requests flask==2.0",
            "pip download -d out <name> <name>",
        ),
        ("npm install", "npm install", "npm install"),
        ("cd src && npm view left-pad", "npm view left-pad", "npm view <name>"),
        ("npm view a; npm view b", "npm view a; npm view b", "npm view <name>"),
        (
            "npm install --omit=dev @types/node@20",
            "npm install --omit=dev @types/node@20",
            "npm install --omit=dev <name>",
        ),
        ("mkdir -p a/b c", "mkdir -p a/b c", "mkdir -p <path> <path>"),
        ("cargo +nightly add serde", "cargo +nightly add serde", "cargo +nightly add <name>"),
        ("yarn workspace web add x", "yarn workspace web add x", "yarn workspace web add <name>"),
        ("gh pr view 5", "gh pr view 5", "gh pr view <name>"),
        # A program or a command that the table does not know.
        ("curl https://example.org/a", "curl https://example.org/a", ""),
        ("aws s3 ls a", "aws s3 ls a", ""),
        ("npm run e2e", "npm run e2e", ""),
        ("npm config set registry x", "npm config set registry x", ""),
        ("gh pr merge 5", "gh pr merge 5", ""),
        ("python3 -c 'import calc'", "python3 -c 'import calc'", ""),
        ("timeout 5 pip install x", "timeout 5 pip install x", ""),
        ("./pip install x", "./pip install x", ""),
        # An option that it does not know, that has no value, or that stands where it may mean something else.
        ("pip install -r x", "pip install -r x", ""),
        ("pip install --index-url x y", "pip install --index-url x y", ""),
        ("pip install --quiet=x y", "pip install --quiet=x y", ""),
        ("pip install --target", "pip install --target", ""),
        ("pip install -- x", "pip install -- x", ""),
        ("npm --omit dev install x", "npm --omit dev install x", ""),
        # An operand that is no name.
        ("pip install ../other", "pip install ../other", ""),
        ("pip install x ./y", "pip install x ./y", ""),
        ("npm ci x", "npm ci x", ""),
        # What no pattern can mean to the letter.
        ("curl x > y", "", ""),
        ("curl $X", "", ""),
        ("npm view '<name>'", "", ""),
        ("pip install '*'", "", ""),
        ("pip install 'a;b'", "", ""),
        ("pip install 'a\nb'", "", ""),
    ],
)
def test_patterns_of_a_call(command: str, exact: str, alike: str) -> None:
    assert "; ".join(exact_patterns(LISTED, _call(command))) == exact
    assert "; ".join(alike_patterns(LISTED, _call(command))) == alike


def test_patterns_cover_only_unapproved_commands() -> None:
    assert alike_patterns(LISTED, _call("pytest -q")) == ()
    assert alike_patterns(LISTED, _call("pytest -q && pip install x")) == ("pip install <name>",)


def test_typed_input_and_other_shells_have_no_pattern() -> None:
    assert exact_patterns(LISTED, _call("pip install x", tool="send_input")) == ()
    assert exact_patterns(LISTED, _call("pip install x", read_by="pwsh")) == ()


@pytest.mark.parametrize(
    "command",
    ["npm install evil --script-shell=/workspace/x", "npm install ../../x", "npm exec x", "npm install a b", "npx x"],
)
def test_a_pattern_of_others_like_it_covers_nothing_of_another_shape(command: str) -> None:
    patterns = alike_patterns(LISTED, _call("npm install left-pad"))
    wider = Policy(rules=(Rule(decision="allow", tool="execute", commands=patterns), *LISTED.rules))
    assert exact_patterns(wider, _call("npm install right-pad")) == ()
    assert exact_patterns(wider, _call(command)) == (command,)


@pytest.mark.parametrize(
    ("command", "covered"),
    [
        ("npm install right-pad", True),
        ("cd src && npm install right-pad", True),
        ("pytest -q", True),
        ("npm install right-pad; curl x", False),
        ("npm install right-pad > out", False),
        ("npm install $X", False),
        ("npm install --global x", False),
    ],
)
def test_alike_patterns_cover_other_operands(command: str, *, covered: bool) -> None:
    assert is_covered(LISTED, ("npm install <name>",), _call(command)) is covered
    assert not is_covered(LISTED, ("npm install <name>",), _call(command, tool="send_input"))
    assert not is_covered(LISTED, (), _call(command))
