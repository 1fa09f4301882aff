"""Threat 69: an approved pattern cannot be stretched to another subcommand, a local path or a URL."""

from __future__ import annotations

import shlex

import pytest

from agent_runtime import PendingCall, Policy, Rule, alike_patterns, is_covered
from agent_runtime.policy.policy import program_grammars

ASKS = Policy(rules=(Rule(decision="ask", tool="execute"),))

STRETCHES = {
    "npm --prefix web install x": ("npm --prefix web run x", "npm --prefix web exec x", "npm --prefix web publish x"),
    "yarn workspace a add x": ("yarn workspace a run x", "yarn workspace a exec x", "yarn workspace a node x"),
    "cargo +nightly install x": ("cargo +nightly run x", "cargo +nightly publish x", "cargo +evil install x"),
    "mamba -n e install x": ("mamba -n e run x", "mamba -n e create x"),
    "conda install -n e x": ("conda run -n e x", "conda install -n base x"),
    "gh pr view 5": ("gh pr merge 5", "gh pr close 5", "gh pr checkout 5", "gh repo delete 5"),
    "gh issue list": ("gh issue delete", "gh issue list --web"),
    "aws s3 ls a": ("aws s3 rm a", "aws ec2 ls a", "aws s3 ls b"),
    "kubectl get pods": ("kubectl delete pods", "kubectl exec pods"),
    "docker image ls": ("docker image rm", "docker container ls"),
    "pip install x": ("pip install ./evil", "pip install evil.whl", "pip uninstall x", "pip install -e x"),
    "pip install a==1 b": ("pip install https://e.example/a b", "pip install a git+https://e.example/b"),
    "npm install x": ("npm install user/repo", "npm install ../x", "npm install x@file:evil", "npm exec x"),
    "uv pip install x": ("uv pip install ./x", "uv pip uninstall x", "uv run install x", "uv tool install x"),
    "poetry add x": ("poetry run x", "poetry add ./x", "poetry add git+https://e.example/x"),
    "curl https://a.example/x": ("curl https://e.example/x", "curl file:///etc/passwd", "curl @x"),
    "wget https://a.example/x": ("wget https://e.example/x",),
    "apt-get install jq": ("apt-get install ./jq.deb", "apt-get remove jq", "apt-get install jq-"),
    "dnf install jq": ("dnf install jq.rpm", "dnf install https://e.example/jq.rpm"),
    "touch a": ("touch /etc/x", "touch ../x", "touch ~/x"),
    "git fetch origin": ("git fetch https://e.example/x", "git push origin"),
    "docker pull x": ("docker run x", "docker pull e.example/x"),
    "gem install x": ("gem install evil.gem", "gem install y"),
    "terraform workspace show": ("terraform workspace delete",),
    "brew install x": ("brew install ./x.rb", "brew uninstall x"),
}

NOT_PATHS = (
    "../x", "/x", "~/x", "..", "a/../../x", "file:x", "file:///x", "git+https://e.example/x", "e.example:x",
    "https://e.example/x", "http://e.example", "git@e.example:x", "x@https://e.example/x", "x@file:y", "@x", "+x",
    "-e", "--index-url=https://e.example", "--registry=https://e.example", "-", "--",
)  # fmt: skip
NOT_NAMES = (
    *NOT_PATHS, ".", "./x", "user/repo", "x@user/repo", "x@npm:y", "x.whl", "x.TGZ", "x.tar.gz", "x.deb", "x.rpm",
    "requirements.txt",
)  # fmt: skip
HOSTILE = {"<name>": NOT_NAMES, "<path>": (*NOT_PATHS, "X=1"), "": (*NOT_NAMES, "x")}
OTHER_COMMANDS = ("run", "exec", "publish", "merge", "delete", "x", "dlx", "config", "login", "create", "init")


def call(command: str) -> PendingCall:
    return PendingCall(
        request_id="7f3a91c0",
        kind="permission",
        tool="execute",
        args={"session_id": "main", "command": command},
        reason="",
        preview=command,
        workspace="",
    )


@pytest.mark.parametrize(("approved", "stretched"), STRETCHES.items())
def test_an_approval_covers_no_other_subcommand_path_or_url(approved: str, stretched: tuple[str, ...]) -> None:
    patterns = alike_patterns(ASKS, call(approved))
    assert [command for command in stretched if is_covered(ASKS, patterns, call(command))] == []


@pytest.mark.parametrize("program", program_grammars())
def test_a_pattern_of_every_known_command_fixes_the_command_and_keeps_operands_to_their_kind(program: str) -> None:
    for command, placeholder in program_grammars()[program].commands.items():
        words = [program, *("part" if word == "*" else word for word in command)]
        approved = shlex.join([*words, "thing"] if placeholder else words)
        patterns = alike_patterns(ASKS, call(approved))
        assert patterns, f"{approved}: no pattern"
        assert is_covered(ASKS, patterns, call(shlex.join([*words, "other"]))) is bool(placeholder)
        hostile = HOSTILE[placeholder]
        tries = [[*words, operand] for operand in hostile] + [[*words, "thing", operand] for operand in hostile]
        tries += [
            [*words[:at], other, *words[at + 1 :], "thing"]
            for at in range(1, len(words))
            for other in OTHER_COMMANDS
            if other != words[at]
        ]
        assert [each for each in tries if is_covered(ASKS, patterns, call(shlex.join(each)))] == []


@pytest.mark.parametrize("program", program_grammars())
def test_an_operand_that_says_where_code_comes_from_gives_no_pattern(program: str) -> None:
    for command, placeholder in program_grammars()[program].commands.items():
        words = [program, *("part" if word == "*" else word for word in command)]
        assert [each for each in HOSTILE[placeholder] if alike_patterns(ASKS, call(shlex.join([*words, each])))] == []


@pytest.mark.parametrize(
    "command", ["evil install x", "./pip install x", "bash x", "make x", "git log x", "npx x", "python x"]
)
def test_a_program_without_a_grammar_gets_no_pattern(command: str) -> None:
    assert alike_patterns(ASKS, call(command)) == ()


RUNS_OR_PUBLISHES = {
    *OTHER_COMMANDS, "start", "test", "tool", "push", "deploy", "eval", "shell", "script", "set", "checkout",
}  # fmt: skip
NAMES_A_SOURCE = {
    "-e", "--editable", "-r", "--requirement", "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c",
    "--registry", "--channel", "--git", "--path", "--config", "--index", "--source", "-o", "--script-shell",
}  # fmt: skip


def test_no_known_command_runs_or_publishes_and_no_known_option_says_where_code_comes_from() -> None:
    """The rule of the table, so that a row that is added keeps it."""
    for program, grammar in program_grammars().items():
        assert not RUNS_OR_PUBLISHES & {word for command in grammar.commands for word in command[-1:]}, program
        names = program not in {"gh", "touch"}  # there -c shows comments and -c creates nothing
        assert not names or not NAMES_A_SOURCE & (grammar.flags | grammar.values), program
        assert grammar.global_options <= grammar.flags | grammar.values, program
