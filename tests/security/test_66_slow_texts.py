"""Texts of a model, a stranger or a server are read in linear time, and in at most 100 ms of one turn of the loop."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from mcp_types import jsonrpc_message_adapter

from agent_runtime import Outcome, Policy, Rule, Status, Task
from agent_runtime.agent.document import read_document
from agent_runtime.context.instructions import list_imports, parse_instructions, select_files
from agent_runtime.context.relevant_code import Passage, read_clues, render_excerpts
from agent_runtime.context.test_command import read_test_paths
from agent_runtime.core.errors import BoundExceededError, FormatError, SettingsError, ToolError
from agent_runtime.core.text import MAX_REPLY_CHARS, replace_binary
from agent_runtime.core.values import ListedLines, Skill
from agent_runtime.index.index import Definition
from agent_runtime.index.snippets import read_uses
from agent_runtime.interpreter import interpreter
from agent_runtime.interpreter.source import bound_names, discarded_calls, parse_code
from agent_runtime.mcp.settings import MAX_MESSAGE_VALUES, McpServer, count_json_values
from agent_runtime.policy.policy import CallFacts, Denied, Permitted
from agent_runtime.policy.shell import PathGlob, parse_commands
from agent_runtime.providers.faults import ModelService
from agent_runtime.providers.protocol import CallChunk
from agent_runtime.run.baseline import excuse_failures, is_about, read_failures
from agent_runtime.run.loop import StepOutput
from agent_runtime.run.output_schema import schema_problem, validate_completion
from agent_runtime.sandbox import toolchains
from agent_runtime.terminals.output import Screen
from agent_runtime.tools import changes, reading
from agent_runtime.tools.mcp import clean_text
from agent_runtime.tools.tool import describe_in_line, preview_call, preview_command, read_arguments
from agent_runtime.transports.blocks_parser import expected_writes, parse
from agent_runtime.transports.native import NativeReply, NativeTransport
from agent_runtime.workspace import syntax
from agent_runtime.workspace.diffs import Text
from agent_runtime.workspace.listing import IgnoreFile, Include
from agent_runtime.workspace.overlay import TextFile
from agent_runtime.workspace.patches import count_hunks, parse_patch
from bot.ci_logs.log_formats import excerpt, failing_lines
from bot.ci_logs.workflow import describe_job
from bot.domain import difference
from bot.domain.actions import MAX_BODY, ActionError, name_created, parse_action
from bot.domain.grammar import parse_command, parse_merge_request
from bot.domain.mail_reply import LINE_END, parse_reply, split_reply
from bot.evaluation import leaks
from bot.evaluation.mine import read_message
from bot.jobs import waiting
from bot.permissions.actions import matches
from bot.permissions.levels import allowed_commands
from bot.permissions.personas import Persona
from bot.permissions.repo_config import parse_config, parse_recipe
from bot.prompt import sanitize
from bot.prompt.difference import Difference, order_files
from bot.publishing import markdown, review, rules, screening
from bot.publishing.commit_format import CommitFormat
from bot.publishing.description import Description, parse_description
from bot.publishing.plan import explain_end
from bot.publishing.redact import Redactor
from tests.security.hostile_texts import SHAPES, Read, faults

_ALLOWED = markdown.Allowlist(login="ann", number=1, server="https://github.com", repo="octo/repo")
_REDACTOR = Redactor(["correct-horse-battery-staple"])
_SERVER = McpServer(name="wiki", command=("wiki",), secrets=("correct-horse",))
_SERVICE = ModelService(name="Local", model="m", url="http://model.example/v1", key_variable="KEY", secret="sk-1")
_ASKS = Policy(
    default="ask",
    rules=(
        Rule(decision="deny", tool="execute", commands=("rm *", "git push *")),
        Rule(decision="allow", tool="execute", commands=allowed_commands()),
    ),
)
"""The level `ask` with a network: hundreds of built-in patterns."""

ON_THE_LOOP: dict[str, tuple[int, Read]] = {}
"""Readers that run in one turn, by name, with their number of characters."""
IN_A_THREAD: dict[str, tuple[int, Read]] = {}
"""Readers in a thread that releases the interpreter, or in a worker process."""


def _on_the_loop(name: str, size: int) -> Callable[[Read], Read]:
    def take(read: Read) -> Read:
        ON_THE_LOOP[f"{name} {size}"] = (size, read)
        return read

    return take


def _in_a_thread(name: str, size: int) -> Callable[[Read], Read]:
    def take(read: Read) -> Read:
        IN_A_THREAD[f"{name} {size}"] = (size, read)
        return read

    return take


@_on_the_loop("prose of a reply", 64_000)
def _(text: str) -> None:
    parse(text)


@_on_the_loop("advice of an error", 64_000)
def _(text: str) -> None:
    explain_end(Outcome(status=Status.FAILED, reason=text))


@_on_the_loop("control block", 10_000)
@_on_the_loop("control block", 20_000)
@_on_the_loop("control block", 35_000)
@_on_the_loop("control block", 60_000)
def _(text: str) -> None:
    parse_code.cache_clear()
    parse(f"```codepilot\n{text}\nwrite_file('a')\n```\n```\nx\n```\n")


@_on_the_loop("unclosed control block", 60_000)
def _(text: str) -> None:
    parse_code.cache_clear()
    parse(f"```codepilot\n{text}")


@_on_the_loop("writes ahead", 10_000)
@_on_the_loop("writes ahead", 35_000)
def _(text: str) -> None:
    parse_code.cache_clear()
    expected_writes(f"write_file('a')\n{text}")


@_on_the_loop("code of a script", 10_000)
@_on_the_loop("code of a script", 35_000)
@_on_the_loop("code of a script", 60_000)
def _(text: str) -> None:
    parse_code.cache_clear()
    nodes = [*ast.walk(parse_code(text))]
    bound_names(nodes)
    discarded_calls(nodes, text)


@_on_the_loop("traceback of a control block", 64_000)
def _(text: str) -> None:
    interpreter._LONG_MARK.sub("", text)
    interpreter._LONG_MARK.sub("", f'  File "<python-input-1>", line 1\n    {text}')


@_on_the_loop("unclosed Python", 10_000)
@_on_the_loop("unclosed Python", 60_000)
def _(text: str) -> None:
    parse_code.cache_clear()
    parse(f"```codepilot\nwrite_file('a.py')\n```\n```\n{text}")


@_on_the_loop("unclosed JSON", 60_000)
def _(text: str) -> None:
    parse(f"```codepilot\nwrite_file('a.json')\n```\n```\n{text}")


@_on_the_loop("unclosed TOML", 10_000)
@_on_the_loop("unclosed TOML", 60_000)
def _(text: str) -> None:
    parse(f"```codepilot\nwrite_file('a.toml')\n```\n```\n{text}")


@_on_the_loop("arguments of a call", 1_000_000)
def _(text: str) -> None:
    read_arguments("execute", text)


@_on_the_loop("command", 12_000)
@_on_the_loop("command", 250_000)
def _(text: str) -> None:
    _ASKS.decide(CallFacts(tool="execute", command=text))


@_on_the_loop("typed text", 12_000)
def _(text: str) -> None:
    _ASKS.decide(CallFacts(tool="send_input", typed_input=text))


@_on_the_loop("path", 4_000)
def _(text: str) -> None:
    glob = PathGlob.parse("**/a*b*c/**/x*y/**")
    glob.covers(text)
    PathGlob.loose_union((glob.text, "docs/*", "*.md")).fullmatch(text)


@_on_the_loop("glob", 200)
def _(text: str) -> None:
    PathGlob.loose_union((text, "docs/*")).fullmatch("a/" * 500)


@_on_the_loop("message of an MCP server", 1_000_000)
def _(text: str) -> None:
    for body in (text, json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": text}}, ensure_ascii=False)):
        if count_json_values(body.encode()) <= MAX_MESSAGE_VALUES:
            _validate(body)


def _validate(body: str) -> None:
    with suppress(ValueError):
        jsonrpc_message_adapter.validate_json(body, by_name=False)


@_on_the_loop("text of an MCP server", 1_000_000)
def _(text: str) -> None:
    clean_text(_SERVER, text)


@_on_the_loop("comment", 65_536)
def _(text: str) -> None:
    parse_command(text, triggers=("/codepilot",))


@_on_the_loop("command of a comment", 65_536)
def _(text: str) -> None:
    parse_command(f"/codepilot {text}", triggers=("/codepilot",))


@_on_the_loop("options of a comment", 65_536)
def _(text: str) -> None:
    parse_command(f"/codepilot fix --{text}", triggers=("/codepilot",))
    parse_command(f"/codepilot undo the {text}", triggers=("/codepilot",))
    parse_merge_request(f"resolve conflicts with a{text}x")


@_on_the_loop("reply by e-mail", 65_536)
def _(text: str) -> None:
    split_reply(LINE_END.split(f"a\n\n{text}"))
    split_reply(LINE_END.split(f"a\n\nOn 2024-01-02 10:00, ann wrote:\n> a\n{text}"))


@_on_the_loop("comment with two commands", 65_536)
def _(text: str) -> None:
    parse_command(f"/codepilot fix\n{text}\n/codepilot no, {text[:100]}", triggers=("/codepilot",))
    parse_command(f"/codepilot please do not {text}", triggers=("/codepilot",))


@_on_the_loop("comment without a command", 65_536)
def _(text: str) -> None:
    parse_reply(f"> a\n\n{text}", triggers=("/codepilot",))


@_on_the_loop("quoted question", 16_000)
def _(text: str) -> None:
    waiting.quotes_question(f"> {text}\n" + "a question of the agent\n" * 300, text)


@_on_the_loop("error of a model service", 250_000)
def _(text: str) -> None:
    _SERVICE.sanitize(text)


@_on_the_loop("secrets", 64_000)
def _(text: str) -> None:
    _REDACTOR.redact(text)
    _REDACTOR.has_secret(text)


@_on_the_loop("binary text", 250_000)
def _(text: str) -> None:
    replace_binary(text)


@_on_the_loop("output of a terminal", 16_000)
def _(text: str) -> None:
    Screen().feed(text.encode())


@_on_the_loop("skill", 16_000)
def _(text: str) -> None:
    Skill.parse("skill.md", f"---\nname: a\ndescription: {text}\n---\n{text}")


@_in_a_thread("instructions", 64_000)
def _(text: str) -> None:
    parse_instructions({"CLAUDE.md": text, "a/AGENTS.md": f"@{text}"})


@_in_a_thread("imports and names in instructions", 64_000)
def _(text: str) -> None:
    files = {"CLAUDE.md": text, ".github/instructions/a.instructions.md": f"---\napplyTo: '**/*.{{a,b}}'\n---\n{text}"}
    list_imports(files, ())
    parse_instructions(files).open(Task(goal=text), (text,), "n")


@_on_the_loop("head of instructions", 3_000)
def _(text: str) -> None:
    path = ".github/instructions/a.instructions.md"
    files = {path: f"---\napplyTo: {text}\n---\nx", f"{path}.{path}": f"---\nexcludeAgent: {text}\n---\nx"}
    select_files(files, "coding-agent")
    parse_instructions(files).choose((f"{text[:100]}/a.py", text), ())


@_in_a_thread("persona", 16_000)
def _(text: str) -> None:
    head = text[:2_000]
    Persona.parse("a.agent.md", f"---\ndescription: {head}\ntools: {head}\nmodel: {head}\n---\n{text}").select_tools(
        ["a"]
    )


@_on_the_loop("small Python file", 16_000)
def _(text: str) -> None:
    changes.parse_python(text)


@_in_a_thread("patch", 30_000)
def _(text: str) -> None:
    patch = f"*** Begin Patch\n*** Update File: a\n{text}\n*** End Patch\n"
    count_hunks(patch)
    parse_patch(patch)


@_in_a_thread("preview", 30_000)
def _(text: str) -> None:
    preview_command(text, terminal="main", cwd=".", fresh=False)
    preview_call("tool", {"text": text})
    describe_in_line(CallFacts(tool="execute", command=text))


@_in_a_thread("quoted text", 4_000)
def _(text: str) -> None:
    sanitize.clean(text, limit=20_000)
    sanitize.clean_code(text, limit=20_000)
    sanitize.visible_images(text)


@_in_a_thread("published text", 4_000)
def _(text: str) -> None:
    markdown.is_harmless(markdown.escape_markdown(text, _ALLOWED), _ALLOWED)
    markdown.fence(markdown.one_line(text, 100))


@_in_a_thread("description of a pull request", 4_000)
def _(text: str) -> None:
    old = Description(title="a", body=f"<img src={text}\n\n{text}")
    parse_description(f"a\n\n{text}", old, commit_format=CommitFormat(), template=text, allowed=_ALLOWED)


@_in_a_thread("diff", 16_000)
def _(text: str) -> None:
    section = f"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n+{text}"
    [*difference.parse_patch(section)]
    [*screening.split_sections(section)]
    screening.split_diff(section)
    screening.adds_unseen(section)
    screening.escape_unseen(text)


@_in_a_thread("names and lines of changed files", 4_000)
def _(text: str) -> None:
    name = text.replace("\0", "")[:4_000] or "a"
    file = difference.ChangedFile(path=name, status="added", added=1).with_mark({})
    hunk = difference.Hunk(old=0, new=1, lines=(f"+{text}",))
    section = difference.Section(path=name, hunks=(hunk,))
    shown = Difference.of(order_files([file] * 10, [text]), [section]).render(20_000)
    [*difference.parse_patch(shown)]


@_in_a_thread("review", 8_000)
def _(text: str) -> None:
    review.extract_prose(text)


@_in_a_thread("log of a check", 16_000)
def _(text: str) -> None:
    excerpt(failing_lines([text.encode()]), 8_000)


@_in_a_thread("workflow file", 2_000)
def _(text: str) -> None:
    describe_job(text, "test (3.11)", [(1, "Run a", True)])


@_in_a_thread("configuration", 4_000)
def _(text: str) -> None:
    parse_config(text.encode())


@_in_a_thread("recipe", 3_000)
def _(text: str) -> None:
    parse_recipe(f"---\n{text}\n---\ntext".encode(), "recipe")


@_in_a_thread("agent file", 3_000)
def _(text: str) -> None:
    read_document(text, source="agent.yaml")


@_in_a_thread("ignore file", 8_000)
def _(text: str) -> None:
    ignores = IgnoreFile(text.encode())
    for path in ("a/b/c.py", "a" * 200, "a/" * 100 + "b"):
        ignores.verdict(path, directory=False)


@_in_a_thread("included names", 1_000)
def _(text: str) -> None:
    Include.parse(text).matches("a/b/" + "a" * 200)


@_in_a_thread("version of a toolchain", 64 * 1024)
def _(text: str) -> None:
    toolchains._VERSION.fullmatch(text)
    toolchains._CHANNEL.search(text)


@_in_a_thread("words of a task", 8_000)
def _(text: str) -> None:
    read_clues(text, [text])


@_in_a_thread("output of tests", 8_000)
def _(text: str) -> None:
    for output in (text, f"FAILED a.py::{text}", f"FAILED a.py::t[{text}", f"1 failed, 1 passed{text}"):
        read_failures(output)
    excuse_failures({"a.py::t": "x"}, f"pytest {text}", text, lambda _path: "")
    is_about(Task(goal=f"fix failing {text}"), "a.py::t")


@_in_a_thread("settings of tests", 8_000)
def _(text: str) -> None:
    for line in (text, f"testpaths = {text}", f"testpaths = [{text}", f"testpaths =\n  {text}"):
        read_test_paths(line)


@_in_a_thread("snippet of a task", 8_000)
def _(text: str) -> None:
    read_uses([text, f"new {text}"])


@_on_the_loop("fields of a proposal", 250_000)
def _(text: str) -> None:
    names = {"labels": [text], "issue": text}
    started = {"workflow": text, "ref": text, "inputs": {text: text, "suite": text}}
    for kind, values in (("add-labels", names), ("start-workflow", started), ("notice", {text: text}), (text, {})):
        with suppress(ActionError):
            parse_action(kind, values)
    name_created(text[:MAX_BODY], lambda _: 7)
    matches(text[:100], f"*{text[:30]}*{text[:30]}*", "labels")


@_in_a_thread("docstrings of a file", 8_000)
def _(text: str) -> None:
    lines = Text(text).lines
    whole = Definition(
        path="a", name="a", qualified="a", kind="class", first=1, last=len(lines), header=1, parents=(), is_test=False
    )
    render_excerpts([Passage(path="a", definition=whole)], lambda _path: Text(text), 100_000)


@_in_a_thread("schema", 8_000)
def _(text: str) -> None:
    schema_problem(text)
    validate_completion(text, '{"type": "object"}')


@_in_a_thread("outline", 1_500)
def _(text: str) -> None:
    file = TextFile(data=b"", text=Text(f"{text}\n" * 2), version="v")
    reading.read_lines("a.py", file, 1, None, None)
    with suppress(ToolError, BoundExceededError):
        reading.read_symbol("a.py", file, text[:100], None)


@_on_the_loop("lines of a read", 60_000)
def _(text: str) -> None:
    shown = StepOutput(60_000)
    part = ListedLines(value="", text=f"head\n1 | {text}", path="a.py", version="v", first=1, last=1)
    shown.add_lines([part, part])


_CHANGE = b"+".join(b"    new_%d = old_%d(value)\n" % (number, number) for number in range(400))
_LEAKS = leaks.find_leaks(b"+" + _CHANGE, b"", [], numbers=[12], commits=sorted(f"{n:040x}" for n in range(2_000)))


@_in_a_thread("text of a task", 25_000)
def _(text: str) -> None:
    _LEAKS.cut(text)
    _LEAKS.cut_references(text[:2_000])


@_in_a_thread("message of a commit", 25_000)
def _(text: str) -> None:
    read_message(text)


@_in_a_thread("change before a task", 8_000)
def _(text: str) -> None:
    leaks.find_leaks(text.encode(), text.encode(), [text.encode()], numbers=[], commits=[])


@_in_a_thread("rule", 4_000)
def _(text: str) -> None:
    rules.propose_rule(text)
    for part in (text[:300], text):
        with suppress(rules.RuleError):
            rules.make_rule(
                part, number=1, url="https://g.example/a/b/issues/1", server="https://g.example", repo="a/b"
            )


@_in_a_thread("file with rules", 16_000)
def _(text: str) -> None:
    for content in (text, f"## {rules.HEADING}\n\n- {text}\n- a{text}"):
        lines = rules.list_rules(content)
        rules.has_words(lines, text)
        with suppress(rules.RuleError):
            rules.add_rules(content, [f"- a{text}"])
        rules.describe_rules(lines, title="", path="A", server="https://g.example", repo="a/b")


@pytest.mark.parametrize("name", ON_THE_LOOP)
def test_a_turn_of_the_loop_is_short_and_time_grows_with_the_text(name: str) -> None:
    size, read = ON_THE_LOOP[name]
    assert faults(read, size, turn=True) == []


@pytest.mark.parametrize("name", IN_A_THREAD)
def test_the_time_of_a_reader_in_a_thread_grows_with_the_text(name: str) -> None:
    size, read = IN_A_THREAD[name]
    assert faults(read, size, turn=False) == []


def test_the_model_is_told_the_limits_of_a_reply() -> None:
    with pytest.raises(FormatError, match="10,000 words and signs"):
        parse("```codepilot\n" + SHAPES["chain"](60_000) + "```\n")
    with pytest.raises(FormatError, match="2,000,000 characters"):
        parse("a" * (MAX_REPLY_CHARS + 1))
    with pytest.raises(FormatError, match="5,000 fence lines"):
        parse("```\n" * 6_000)
    transport, reply = NativeTransport(), NativeReply()
    transport.feed_reply(reply, CallChunk(index=0, name="execute", arguments="a" * (MAX_REPLY_CHARS + 1)))
    with pytest.raises(FormatError, match="2,000,000 characters"):
        transport.parse_reply(reply, "stop")


@pytest.mark.parametrize(
    ("command", "limit"),
    [("a;" * 300, "250 signs"), ("a " * 6_001, "12,000 characters"), ("a\n" * 1_001, "1,000 lines")],
)
def test_a_command_beyond_a_limit_is_refused_with_the_limit(command: str, limit: str) -> None:
    decided = _ASKS.decide(CallFacts(tool="execute", command=command))
    assert isinstance(decided, Denied)
    assert limit in decided.reason


def test_a_command_that_no_rule_has_to_read_has_no_limit() -> None:
    allows = Policy(rules=(Rule(decision="allow", tool="execute"), Rule(decision="ask", commands=("rm *",))))
    assert isinstance(allows.decide(CallFacts(tool="execute", command="a;" * 10_000)), Permitted)


def test_commands_within_each_other_are_read_however_deep() -> None:
    """A recursive reader fails with `RecursionError`."""
    commands = parse_commands("$(a " * 240 + ")" * 240)
    assert len(commands) == 241
    assert all(command.doubt for command in commands)


def test_a_file_of_another_language_is_parsed_in_a_worker_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser holds the interpreter's lock, for seconds in a small file."""
    pytest.importorskip("tree_sitter_javascript")
    monkeypatch.setattr(syntax, "_parser", lambda *_: pytest.fail("it was parsed in this process"))
    assert "syntax error" in (changes.find_fault("a.js", "let (") or "")


@pytest.mark.parametrize("glob", ["[]", "[z-a]", "a[a-\\]"])
def test_a_glob_that_names_no_characters_is_refused_by_its_name(glob: str) -> None:
    with pytest.raises(SettingsError, match="no set of characters"):
        PathGlob.parse(glob)
