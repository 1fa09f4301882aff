"""Rules for the code, the documents and the lock files that neither ruff nor import-linter can check."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grimp
import pytest

from tests.source_files import (
    PACKAGES,
    ROOT,
    Function,
    code_lines,
    dotted,
    functions,
    modules,
    repository_files,
    single_use_helpers,
    text_of,
    tree_of,
)

_MAX_MODULE_LINES = 600
_MAX_FUNCTION_LINES = 60
_UNUSUAL = re.compile(
    r"\b(?:mend(?:s|ed|ing)?|holes?|there(?:of|in|by)|errands?|corridors?|households?|front doors?|the house|"
    r"(?:some|any|no)body's hands|in whatever clothes|for want of|who(?:so)?ever|told of|be had|lest|afresh|"
    r"nothing is said|for who has|has had go on|voids)\b",
    re.IGNORECASE,
)
_MAX_SINGLE_USE_HELPERS = 0.12
"""As a share of their functions."""
_COUNTED = frozenset({"agent_runtime", "bot"})

_PURE = (
    "agent_runtime/core/*.py",
    "agent_runtime/policy/*.py",
    "bot/ci_logs/*.py",
    "bot/domain/*.py",
    "bot/events/*.py",
    "bot/permissions/*.py",
    "bot/prompt/*.py",
    "bot/publishing/[!p]*.py",
    "bot/publishing/plan.py",
    "agent_runtime/agent/document.py",
    "agent_runtime/context/transcript.py",
    "agent_runtime/interpreter/source.py",
    "agent_runtime/prompts/notes.py",
    "agent_runtime/sessions/codec.py",
    "agent_runtime/transports/blocks_parser.py",
    "agent_runtime/workspace/diffs.py",
    "agent_runtime/workspace/edits.py",
    "agent_runtime/workspace/patches.py",
    "agent_runtime/workspace/syntax.py",
    "bot/git/change.py",
    "bot/github/graphql.py",
    "bot/github/types.py",
)
_WORLDLY = frozenset({"asyncio", "os", "random", "socket", "subprocess", "threading", "time"})
_CLIENTS = frozenset(
    {
        "aiohttp",
        "anthropic",
        "filelock",
        "git",
        "github",
        "httpx2",
        "openai",
        "pexpect",
        "psycopg",
        "pydantic_monty",
        "sqlalchemy",
        "sqlite3",
        "urllib.request",
    }
)
_GIDGETHUB_PARTS_WITH_IO = frozenset({"gidgethub.abc", "gidgethub.aiohttp", "gidgethub.httpx", "gidgethub.tornado"})
_IMPURE = _WORLDLY | _CLIENTS | _GIDGETHUB_PARTS_WITH_IO

_READS_THE_ENVIRONMENT = frozenset(
    {
        "agent_runtime/agent/agent_file.py",
        "agent_runtime/compat/pygent/models.py",
        "agent_runtime/sandbox/toolchains.py",
        "bot/settings/load.py",
    }
)
"""The settings, what looks up the key whose variable an agent file names, the variables that Pygent documents, and
those that select a toolchain.
"""
_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})

_SILENCED = re.compile(
    r"#\s*(?:noqa\b(?P<codes>: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*)?|type: ignore(?P<kinds>\[[a-z-, ]+\])?)"
)
_REASON = re.compile(r"\s*(?:-|#)\s*\S")

_QUESTION = re.compile(r"(What|Who|Whose|Whom|Where|Which|From|How|Why|When|Whether)\b")

_LINK = re.compile(r"\[[^\]]*\]\(<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def test_a_module_is_short_enough_to_read_in_one_go() -> None:
    long = [f"{path} has {count}" for path in modules() if (count := len(code_lines(path))) > _MAX_MODULE_LINES]
    assert not long, (
        f"a module may have {_MAX_MODULE_LINES} lines of code:{_listed(long)}\n"
        "Move one of its concerns to a module of its own."
    )


def test_a_function_fits_on_a_screen() -> None:
    long = [
        f"{path}:{node.lineno} {node.name} has {count}"
        for path in modules()
        for node in functions(path)
        if (count := _length(path, node)) > _MAX_FUNCTION_LINES
    ]
    assert not long, (
        f"a function may have {_MAX_FUNCTION_LINES} lines of code:{_listed(long)}\nGive a part of it a name of its own."
    )


def test_the_docstring_of_a_module_says_what_the_module_does() -> None:
    wrong = [
        f"{path}: {said.splitlines()[0]}"
        for path in modules()
        if path.parts[0] in PACKAGES and _QUESTION.match(said := ast.get_docstring(tree_of(path)) or "Which has none")
    ]
    assert not wrong, f'begin with an imperative or a noun: "Escape Markdown so that it cannot ping.":{_listed(wrong)}'


def test_few_functions_are_private_helpers_that_are_called_once() -> None:
    counted = [path for path in modules() if path.parts[0] in _COUNTED]
    helpers = [f"{path}: {each.name}" for path in counted for each in single_use_helpers(path)]
    share = len(helpers) / sum(len(list(functions(path))) for path in counted)
    assert share <= _MAX_SINGLE_USE_HELPERS, (
        f"{_MAX_SINGLE_USE_HELPERS:.1%} of all functions may be private helpers that are called once, and {share:.1%} "
        f"are. Merge those that are read together with their caller:{_listed(helpers)}"
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = _graph()
    circles = [
        f"{module} → {imported} → … → {module}"
        for module in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(module) - {module})
        if graph.find_shortest_chain(importer=imported, imported=module)
    ]
    assert not circles, f"circles of imports; move what both need to a module below both:{_listed(circles)}"


def test_one_module_knows_dbos() -> None:
    importers = {
        str(path)
        for path in modules()
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dbos")
        or (isinstance(node, ast.Import) and any(name.name.partition(".")[0] == "dbos" for name in node.names))
    }
    assert importers == {"bot/queue/workflows.py"}, "Call DBOS in bot/queue/workflows.py, the seam to it."


def test_only_the_settings_read_the_environment() -> None:
    readers = [
        f"{path}:{node.lineno}"
        for path in modules()
        if str(path) not in _READS_THE_ENVIRONMENT
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Attribute) and node.attr in _ENVIRONMENT and _is_name(node.value, "os"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and {n.name for n in node.names} & _ENVIRONMENT)
    ]
    assert not readers, (
        f"only the settings read the environment:{_listed(readers)}\n"
        "Add a field to a model in bot/settings and pass the value in."
    )


def test_every_pure_module_that_is_named_here_exists() -> None:
    unmatched = [pattern for pattern in _PURE if not list(ROOT.glob(pattern))]
    assert not unmatched, f"tests/test_code_rules.py names pure modules that do not exist: {unmatched}. Correct _PURE."


def test_a_pure_module_reaches_nothing_that_touches_the_world() -> None:
    found = [
        f"{path} reaches {each} (line {line}), which imports {name}"
        for path in sorted({path.relative_to(ROOT) for pattern in _PURE for path in ROOT.glob(pattern)})
        for each in sorted(_reached(dotted(path)))
        for name, line in _impure_imports(_path_of(each))
    ]
    assert not found, (
        f"pure modules reach the world:{_listed(found)}\nDo the reading and writing in the caller and pass values in."
    )


def test_every_listed_public_name_is_importable_and_documented() -> None:
    library = importlib.import_module("agent_runtime")
    listed = library.__all__
    assert len(listed) == len(set(listed)), "agent_runtime.__all__ names something twice; remove one."
    missing = [name for name in listed if not hasattr(library, name)]
    assert not missing, f"agent_runtime.__all__ names what cannot be imported: {missing}. Import it there or drop it."
    values = {name: getattr(library, name) for name in listed}
    undocumented = [n for n, v in values.items() if (inspect.isroutine(v) or isinstance(v, type)) and not v.__doc__]
    assert not undocumented, f"public names of agent_runtime without a docstring: {undocumented}. Say what they are."


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file(), (
        f"add the empty file {package}/py.typed, else mypy ignores our types"
    )


def test_a_silenced_check_names_the_rule_and_the_reason() -> None:
    bad = [
        f"{path}:{number} {match.group()}"
        for path in modules()
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        for match in _SILENCED.finditer(line)
        if not (match["codes"] or match["kinds"]) or not _REASON.match(line, match.end())
    ]
    assert not bad, f"write `# noqa: RULE - reason` or `# type: ignore[rule] - reason`:{_listed(bad)}"


def test_a_broad_except_says_why() -> None:
    silent = [
        f"{path}:{node.lineno}"
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler)
        and _is_broad(node)
        and not any("# " in line for line in text_of(path).splitlines()[node.lineno - 1 : node.end_lineno])
    ]
    assert not silent, f"catch what you expect, or write why everything is caught:{_listed(silent)}"


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    places = _machine()
    found = [
        f"{path} has {place.pattern}" for path in repository_files() for place in places if place.search(text_of(path))
    ]
    assert not found, f"these belong to one machine, not to the project; remove them:{_listed(found)}"


def test_a_lock_file_names_hashes_and_no_address() -> None:
    locks = sorted(ROOT.glob("requirements/*.lock"))
    assert locks, "requirements/ holds no lock file; run: make lock"
    for path in locks:
        text = path.read_text(encoding="utf-8")
        assert "://" not in text, f"{path.name} names an address; run: make lock"
        assert text.count("==") <= text.count("--hash=sha256:"), (
            f"{path.name} has packages without a hash; run: make lock"
        )


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = []
    for path in (path for path in repository_files() if path.suffix == ".md" and _is_documentation(path)):
        for match in _LINK.finditer(_FENCED.sub("", text_of(path))):
            target = match["target"].partition("#")[0]
            if target and not urlsplit(target).scheme and not (ROOT / path.parent / target).exists():
                broken.append(f"{path}: {target}")
    assert not broken, f"links to files that do not exist; correct or remove them:{_listed(broken)}"


def test_decisions_are_numbered_and_no_number_is_given_twice() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    wrong = [name for name in names if not re.fullmatch(r"[0-9]{4}-[a-z0-9-]+\.md", name)]
    assert not wrong, f"a decision is called NNNN-words-with-hyphens.md: {wrong}"
    numbers = [int(name[:4]) for name in names]
    assert numbers == list(range(1, len(numbers) + 1)), f"give the decisions the numbers 1, 2, 3 … : {numbers}"


def test_texts_use_plain_words() -> None:
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path in repository_files()
        if path.suffix in {".py", ".md", ".yml", ".toml", ".j2"} and path.parts[0] not in {"tests", "requirements"}
        for text in (text_of(path),)
        for match in _UNUSUAL.finditer(text)
    ]
    assert not found, f"write what other projects write: fix, vulnerability, pipeline, claimed, see:{_listed(found)}"


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(each is None or _is_name(each, "Exception") or _is_name(each, "BaseException") for each in caught)


@functools.cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def _reached(module: str) -> set[str]:
    """A module and everything of ours below it; what the library's `__init__` imports is not followed."""
    reached, waiting = set(), [module]
    while waiting:
        each = waiting.pop()
        if each not in reached and each not in PACKAGES:
            reached.add(each)
            waiting.extend(_graph().find_modules_directly_imported_by(each))
    return reached


def _path_of(module: str) -> Path:
    path = Path(*module.split("."))
    return path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")


@functools.cache
def _impure_imports(path: Path) -> list[tuple[str, int]]:
    return [
        (name, line)
        for name, line in _imports(path)
        if any(name == impure or name.startswith(f"{impure}.") for impure in _IMPURE)
    ]


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from ((f"{node.module}.{name.name}", node.lineno) for name in node.names)


def _length(path: Path, node: Function) -> int:
    return sum(node.lineno <= line <= (node.end_lineno or node.lineno) for line in code_lines(path))


def _listed(things: list[str]) -> str:
    return "".join(f"\n  {thing}" for thing in things)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_documentation(path: Path) -> bool:
    return path.parts[0] in {"docs", ".github", *PACKAGES} or len(path.parts) == 1


def _machine() -> list[re.Pattern[str]]:
    """Return patterns that no file may match: the path of this checkout, and the hosts of packages on this machine.

    A checkout right below the root or in the directory for temporary files says nothing: such names are everybody's.
    """
    telling = len(ROOT.parts) > len(("/", "src")) and not ROOT.is_relative_to(tempfile.gettempdir())
    places = [str(ROOT)] if telling else []
    shown = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    hosts = {urlsplit(url).hostname for url in re.findall(r"https?://[^\s'\"]+", shown.stdout)} - {"pypi.org"}
    paths = [re.compile(rf"(?<![\w.]){re.escape(place)}(?![\w-])") for place in places]
    return paths + [re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])") for host in hosts if host]
