"""The documents say what the code says: generated parts are up to date, examples run."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from agent_runtime import Agent, AsyncRuntime, EventType, SandboxSettings, ScriptedProvider, pick_sandbox
from agent_runtime.agent.schema import json_schema
from bot.__main__ import cli
from bot.action.outputs import conclusions_table
from bot.cli import app
from bot.cli.chat import run
from bot.domain.grammar import render_help
from bot.domain.job import TRANSITIONS
from bot.evaluation.commands import evaluate
from bot.evaluation.rendering import render_markdown
from bot.evaluation.report import build_report
from bot.evaluation.results import read_results
from bot.git.leftovers import FILES, FOLDERS
from bot.permissions.repo_config import file_kinds, recipe_schema
from bot.permissions.repo_config import json_schema as repository_schema
from bot.settings.models import INPUTS, render_settings_table
from tests.agent_runtime.differences import NAMES, render_differences, render_suite
from tests.bot.evaluation.samples import INFLECTION, INFLECTION_MODELS, INFLECTION_SUITE
from tests.matrix import render_matrix, render_places
from tests.source_files import ROOT, tree_of

_GENERATED = re.compile(r"(<!-- generated: (?P<name>[a-z]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
_EXAMPLE = re.compile(r"<!-- example: (?P<name>[a-z]+) -->\n```python\n(?P<code>.*?)```", re.DOTALL)

_TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
_REFERENCE = re.compile(r"`(?P<path>[\w/]+\.py)(?:: (?P<name>[\w.]+))?`")
_STATION = re.compile(r"^## ([0-9]+)\. .*?(?=^## )", re.MULTILINE | re.DOTALL)

_SCRIPT = """\
- reply: |
    I write it and look.
    ```codepilot
    write_file("greeting.txt")
    execute("main", "cat greeting.txt", check=True)
    ```
    ```text filename=greeting.txt
    hello
    ```
    ```completion
    There is a greeting now.
    ```
"""


def _states() -> str:
    arrows = [f"    {before} --> {after}" for before, nexts in TRANSITIONS.items() for after in sorted(nexts)]
    ends = [f"    {state} --> [*]" for state, nexts in TRANSITIONS.items() if not nexts]
    first = next(iter(TRANSITIONS))
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *arrows, *ends, "```"])


def _action_table(part: str, only: Collection[str] = ()) -> str:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    rows = [
        f"| `{name}` | {entry['description']} |" for name, entry in action[part].items() if not only or name in only
    ]
    return "\n".join([f"| {part.removesuffix('s')} | meaning |", "|---|---|", *rows])


def _tools() -> str:
    """The declarations of a runtime's own tools. As text: the formatter would touch up what the model is told."""
    sandbox = pick_sandbox("local", SandboxSettings())
    runtime = AsyncRuntime(Agent(provider=ScriptedProvider([]), work_dir=ROOT, sandbox=sandbox))
    try:
        return f"```text\n{runtime.registry.declarations}\n```"
    finally:
        asyncio.run(runtime.close())


def _agent_keys() -> str:
    """The keys of an agent file, section by section."""
    sections = json_schema()["$defs"]
    rows: list[str] = []

    def describe(section: str, above: str) -> None:
        for key, field in sections[section]["properties"].items():
            if section == "ToolConfig" and key in sections["Vectors"]["properties"]:
                continue  # listed under `index`
            written = json.dumps(field)
            inner = re.search(r"#/\$defs/(\w+)", written)
            path = f"{above}{key}{'[]' if inner and 'array' in written else ''}"
            meaning = (
                " ".join(field.get("description", "").split()) or sections[inner[1] if inner else ""]["description"]
            )
            default = field.get("default")
            given = (
                f"`{json.dumps(default)}`" if isinstance(default, bool | int | float | str) and default != "" else ""
            )
            if key in sections[section].get("required", ()):
                given = "must be set"
            rows.append(f"| `{path}` | {meaning} | {given} |")
            if inner and key != "fallback":
                describe(inner[1], f"{path}.")

    describe("Agent", "")
    return "\n".join(["| key, below `agent` | meaning | default |", "|---|---|---|", *rows])


def _repository_keys() -> str:
    """The keys of `.github/codepilot.yml`, section by section."""
    return _keys_of(repository_schema())


def _keys_of(schema: dict[str, Any]) -> str:
    def rows(section: dict[str, Any], above: str) -> Iterator[str]:
        for key, field in section["properties"].items():
            inner = re.search(r"#/\$defs/(\w+)", json.dumps(field))
            if inner is None:
                default = field.get("default")
                given = f"`{json.dumps(default).strip(chr(34))}`" if default not in (None, "", []) else ""
                yield f"| `{above}{key}` | {' '.join(field['description'].split())} | {given} |"
            elif inner[1] == "Overrides" and key != "fix":
                continue  # they all have the same keys
            elif inner[1] == "ActionsKeys":  # docs/actions.md lists them
                yield f"| `{above}{key}` | {' '.join(field['description'].split())} |  |"
            else:
                yield from rows(schema["$defs"][inner[1]], f"{above}{'<verb>' if inner[1] == 'Overrides' else key}.")

    return "\n".join(["| key | meaning | default |", "|---|---|---|", *rows(schema, "")])


def _action_keys() -> str:
    """The kinds of actions, with the keys that only some have, and those with another default."""
    sections = repository_schema()["$defs"]
    common = sections["TargetKeys"]["properties"]
    rows = ["| kind | action | its own keys |", "|---|---|---|"]
    for kind, field in sections["ActionsKeys"]["properties"].items():
        if kind == "approval":
            continue
        section = sections[re.findall(r"#/\$defs/(\w+)", json.dumps(field))[0]]
        keys = {key: value for key, value in section["properties"].items() if common.get(key) != value}
        described = []
        for key, value in keys.items():
            must = " (must be set)" if key in section.get("required", ()) else ""
            default = f" By default {value['default']}." if key in common else ""
            described.append(f"`{key}`{must}: {' '.join(value['description'].split())}{default}")
        left_out = [f"No `{key}`." for key in common if key not in section["properties"]]
        rows.append(f"| `{kind}` | {' '.join(field['description'].split())} | {' '.join([*described, *left_out])} |")
    return "\n".join(rows)


def _built_in_recipes() -> str:
    folder = ROOT / "bot" / "permissions" / "recipes"
    return "\n\n".join(
        f"````markdown\n{(folder / f'{name}.md').read_text('utf-8')}````" for name in ("triage", "split")
    )


def _help() -> str:
    program = click.Context(cli, info_name="codepilot", **cli.context_settings)
    context = click.Context(run, parent=program, info_name="run", terminal_width=100)
    return f"```text\n{run.get_help(context)}\n```"


def _evaluation() -> str:
    """The report of the stored results of the page's run."""
    return f"```text\n{render_markdown(build_report(read_results(INFLECTION), INFLECTION_SUITE, INFLECTION_MODELS))}```"


def _evaluation_help() -> str:
    program = click.Context(cli, info_name="codepilot", **cli.context_settings)
    group = click.Context(evaluate, parent=program, info_name="eval")
    pages = [
        command.get_help(click.Context(command, parent=group, info_name=name, terminal_width=100))
        for name, command in sorted(evaluate.commands.items())
    ]
    return "\n\n".join(f"```text\n{page}\n```" for page in pages)


def _events() -> str:
    """Every kind of event, from the words below each in the code: `argument, argument: when`."""
    tree = ast.parse((ROOT / "agent_runtime" / "core" / "events.py").read_text(encoding="utf-8"))
    [kinds] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "EventType"]
    rows = ["| event | decorator | keyword arguments | meaning |", "|---|---|---|---|"]
    for member, words in pairwise(kinds.body):
        if isinstance(member, ast.Assign) and isinstance(words, ast.Expr):
            name = ast.unparse(member.targets[0])
            arguments, _, meaning = ast.literal_eval(words.value).partition(": ")
            listed = "" if arguments == "No arguments" else ", ".join(f"`{each}`" for each in arguments.split(", "))
            rows.append(f"| `{name}` | `on_{EventType[name]}` | {listed} | {meaning} |")
    return "\n".join(rows)


def _registries() -> str:
    """Return the hosts of `registries`, and the registries that it leaves out."""
    listed = tomllib.loads((ROOT / "agent_runtime" / "registries.toml").read_text(encoding="utf-8"))
    rows = ["| packages of | hosts | among `registries` |", "|---|---|---|"]
    for table, among in (("downloads", "yes"), ("also_takes_uploads", "no: they accept uploads")):
        rows += [
            f"| {kind} | {', '.join(f'`{host}`' for host in hosts)} | {among} |"
            for kind, hosts in listed[table].items()
        ]
    return "\n".join(rows)


def _app_steps() -> str:
    """The two steps of making the App in which something is ticked."""
    ticked = [each for each in app.PERMISSIONS if each.weight != "optional"]
    [extra] = [each for each in app.PERMISSIONS if each.weight == "optional"]

    def those(level: str) -> str:
        return _list([each.display_name for each in ticked if each.level == level])

    permissions = (
        f"3. Repository permissions: {those('write')} *read and write*; {those('read')} *read-only*. Nothing else; "
        f"*{app.describe(extra)}* only where you want it: without it, {extra.without}."
    )
    events = f"4. Subscribe to the events {_list([f'*{each.display_name}*' for each in app.EVENTS])}."
    wrapped = (
        textwrap.fill(step, 120, subsequent_indent="   ", break_on_hyphens=False) for step in (permissions, events)
    )
    return "\n".join(wrapped)


def _app_table() -> str:
    listed = (*app.PERMISSIONS, *app.EVENTS)
    rows = [f"| {app.describe(each)} | {each.weight} | {each.without} |" for each in listed]
    return "\n".join(["| the App's | is | without it |", "|---|---|---|", *rows])


def _known_files() -> str:
    kinds = [kind for kind in file_kinds() if kind.approve or kind.exempt]
    rows = []
    for kind in kinds:
        globs = " ".join(f"`{glob}`" for glob in kind.globs)
        rows.append(f"| {kind.name} | {'Exempt. ' if kind.exempt else ''}{kind.reason} | {globs} |")
    return "\n".join(["| files | why | which |", "|---|---|---|", *rows])


def _workflow() -> str:
    """The workflow to start with."""
    return f"```yaml\n{(ROOT / 'docs' / 'workflows' / 'comments.yml').read_text(encoding='utf-8')}```"


def _leftovers() -> str:
    """The table of leftovers of tools."""
    rows = []
    for rules, end in ((FOLDERS, "/"), (FILES, "")):
        for rule in rules:
            names = ", ".join(f"`{name}{end}`" for name in rule.names if name != "*") or "a directory"
            place = f" beside {', '.join(f'`{name}`' for name in rule.siblings)}" if rule.siblings else ""
            inside = f" with `{rule.marker}`" if rule.marker else ""
            rows.append(f"| {names}{inside}{place} | {rule.tool} | {'cache' if rule.is_cache else ''} |")
    return "\n".join(["| leftover | of | |", "|---|---|---|", *rows])


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]])


_MAKERS: dict[str, Callable[[], str]] = {
    **{f"{name.replace('-', '')}differences": partial(render_differences, name) for name in NAMES},
    **{f"{name.replace('-', '')}suite": partial(render_suite, name) for name in ("llm-coding-agent", "pygent")},
    "actionkeys": _action_keys,
    "agentfile": _agent_keys,
    "appsteps": _app_steps,
    "apptable": _app_table,
    "builtinrecipes": _built_in_recipes,
    "commandline": _help,
    "commands": render_help,
    "conclusions": conclusions_table,
    "evaluation": _evaluation,
    "evaluationhelp": _evaluation_help,
    "events": _events,
    "knownfiles": _known_files,
    "leftovers": _leftovers,
    "matrix": render_matrix,
    "inputs": lambda: _action_table("inputs"),
    "places": render_places,
    "outputs": lambda: _action_table("outputs"),
    "owninputs": lambda: _action_table("inputs", [each.input_name for each in INPUTS.values()]),
    "registries": _registries,
    "recipekeys": lambda: _keys_of(recipe_schema()),
    "repositorykeys": _repository_keys,
    "settings": render_settings_table,
    "states": _states,
    "tools": _tools,
    "workflow": _workflow,
}


def _documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("path", _documents(), ids=lambda path: path.name)
def test_the_generated_parts_of_a_document_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    fresh = _GENERATED.sub(lambda found: f"{found[1]}{_MAKERS[found['name']]().strip()}\n{found[4]}", text)
    if os.environ.get("UPDATE_DOCS") and fresh != text:
        path.write_text(fresh, encoding="utf-8")
        text = fresh
    assert text == fresh, f"{path.name} is out of date; run: UPDATE_DOCS=1 .venv/bin/pytest tests/test_docs.py"


def test_the_options_in_the_column_about_the_terminal_exist() -> None:
    options = {option for parameter in run.params for option in parameter.opts} | {"--help"}
    assert {"--answer", "--approve", "--deny"} <= set(re.findall(r"--\w+", render_places())) <= options


def test_everything_that_is_generated_stands_in_some_document() -> None:
    named = {found["name"] for path in _documents() for found in _GENERATED.finditer(path.read_text(encoding="utf-8"))}
    assert named == set(_MAKERS)


def test_the_example_of_the_library_runs(tmp_path: Path) -> None:
    examples = {found["name"]: found["code"] for found in _EXAMPLE.finditer((ROOT / "README.md").read_text("utf-8"))}
    asked = 'provider_for("anthropic", api_key=Path("key.txt").read_text().strip())'
    assert asked in examples["library"], "the example asks another model now; tell this test how to replace it"
    script = tmp_path / "script.yaml"
    script.write_text(_SCRIPT, encoding="utf-8")
    code = examples["library"].replace(
        asked, f"provider_for('scripted', options=ModelOptions(script=Path({str(script)!r})))"
    )
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    done = _ran(f"from agent_runtime import ModelOptions\n{code}", workspace)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "finished There is a greeting now.\n"
    assert (workspace / "greeting.txt").read_text(encoding="utf-8") == "hello\n"


def _ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def _definitions(path: str) -> set[str]:
    """The functions and classes of a module, and its methods with and without the name of their class."""
    found = set()
    for node in ast.walk(tree_of(Path(path))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
    return found


@pytest.mark.parametrize(("path", "name"), sorted(set(_REFERENCE.findall(_TOUR))))
def test_what_the_tour_names_exists(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"docs/tour.md names {path}, which is gone; name the file that does it now"
    assert not name or name in _definitions(path), (
        f"docs/tour.md names {path}: {name}, which is gone; name its successor"
    )


def test_the_tour_has_ten_stations_each_with_a_file_and_a_function() -> None:
    stations = [match[0] for match in _STATION.finditer(_TOUR)]
    assert [station.split(".")[0] for station in stations] == [f"## {number}" for number in range(1, 11)]
    for station in stations:
        assert any(name for _, name in _REFERENCE.findall(station)), station


def test_the_tour_can_be_read_in_ten_minutes() -> None:
    assert len(_TOUR.split()) < 10 * 200
