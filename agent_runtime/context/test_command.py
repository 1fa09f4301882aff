"""Detection of a project's test command: candidates from its files, a trial script, and the reading of its output.

The script runs strangers' code, so it belongs into the sandbox, and its output only selects among known answers.
"""

from __future__ import annotations

import heapq
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.files import Workspace

TRIAL_SECONDS = 5.0

_READ_BYTES = 400_000
_TEST_FILE = re.compile(r"(?:test_[\w-]{1,80}|\w[\w-]{0,80}_test)\.py")
_TEST_DIRECTORIES = frozenset({"test", "tests", "testing"})
_DIRECTORY = re.compile(r"[\w-]{1,80}/")
_SKIPPED_DIRECTORIES = frozenset(
    {"build", "dist", "env", "node_modules", "site-packages", "third_party", "vendor", "venv"}
)
_MAX_DEPTH, _MAX_DIRECTORIES, _MAX_FILES = 5, 300, 1_000
_SETTINGS_FILES = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_TEST_PATHS = re.compile(
    r"^[ \t]{0,8}testpaths[ \t]{0,8}=[ \t]{0,8}"
    r"(?P<paths>\[[^\]]{0,1000}|[^\n]{0,300}(?:\n[ \t]{1,20}[^\n]{1,200}){0,30})",
    re.MULTILINE,
)
_PATH = re.compile(r"[\w-][\w./-]{0,199}")
_NPM_TEST = re.compile(r'"test"\s{0,9}:\s{0,9}"(?P<script>[^"\\]{1,400})')
_NPM_RUNNERS = frozenset({"ava", "jasmine", "jest", "mocha", "node", "tap", "vitest"})
_NPM_NAME = re.compile(r"[\w@][\w@./-]{0,40}")
_NPM_SKIPPED = frozenset({"cross-env", "dotenv", "env", "npx"})
# Which files suggest each kind of tests, what must be in them, and the command that is asked about.
_SUGGESTED = (
    ("python", "", "", "python -m pytest -q"),
    ("npm", "package.json", '"test"', "npm test"),
    ("go", "go.mod", "", "go test ./..."),
    ("cargo", "Cargo.toml", "", "cargo test --offline"),
    ("make", "Makefile", "\ntest:", "make test"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial script for bash, the likely test command, and files with tests of Python."""

    script: str
    command: str
    files: tuple[str, ...] = ()


def make_trial(workspace: Workspace, start_in: str, permitted: Callable[[str], bool]) -> Trial | None:
    """Return a trial for a workspace; None without signs of tests or without a permitted command."""
    base = f"{start_in}/" if start_in else ""
    settings: list[str] = []
    kinds: dict[str, str] = {}
    files: tuple[str, ...] = ()
    for kind, name, needle, command in _SUGGESTED:
        text = workspace.read_or_empty(base + name, _READ_BYTES).decode(errors="replace") if name else ""
        if kind == "python":
            files = find_test_files(workspace, base)
            settings.append(f"file={shlex.quote(next(iter(files), ''))}")
            suggested = bool(files)
        else:
            suggested = bool(text) and needle in text
        if kind == "npm" and suggested:
            program = _npm_program(text)
            settings += [f"program={shlex.quote(program)}", f"is_runner={'yes' if program in _NPM_RUNNERS else ''}"]
            suggested = bool(program)
        if suggested and permitted(command):
            kinds[kind] = command
    if len(kinds) > 1:  # its rule calls the others, mostly
        kinds.pop("make", None)
    if not kinds:
        return None
    return Trial(
        script="\n".join([*settings, _SCRIPT, " || ".join(f"try_{kind}" for kind in kinds)]),
        command=next(iter(kinds.values())),
        files=files,
    )


def _npm_program(package: str) -> str:
    """Return the program of the `test` script in a `package.json`; empty for npm's placeholder."""
    match = _NPM_TEST.search(package)
    if match is None or "no test specified" in package[match.start() : match.end() + 40]:
        return ""
    words = (word for word in match["script"].split() if "=" not in word and word not in _NPM_SKIPPED)
    program = next(words, "")
    return program if _NPM_NAME.fullmatch(program) else ""


def find_test_files(workspace: Workspace, base: str) -> tuple[str, ...]:
    """Return Python test files relative to the start directory, those in directories of tests first; plain names only.

    If the project's settings name directories (`testpaths`), only files below these count.
    """
    named: list[str] = []
    for name in _SETTINGS_FILES:
        named += read_test_paths(workspace.read_or_empty(base + name, _READ_BYTES).decode(errors="replace"))
    files = (named and _walk(workspace, base, named)) or _walk(workspace, base, [""])
    return tuple(sorted(files, key=lambda path: not _is_in_tests(path)))


def read_test_paths(settings: str) -> list[str]:
    """Return the paths in pytest's setting `testpaths` in a TOML or INI file."""
    match = _TEST_PATHS.search(settings)
    return [path.strip("/") for path in _PATH.findall(match["paths"]) if ".." not in path] if match else []


def _walk(workspace: Workspace, base: str, roots: Sequence[str]) -> list[str]:
    """Return test files at or below the roots; a bounded number of directories is read, those of tests first."""
    files = [root for root in roots if _is_test_file(root) and workspace.exists(base + root)]
    queue = [(False, 0, root) for root in dict.fromkeys(roots)]
    heapq.heapify(queue)
    for _ in range(_MAX_DIRECTORIES):
        if not queue or len(files) >= _MAX_FILES:
            break
        _, depth, directory = heapq.heappop(queue)
        prefix = f"{directory}/" if directory else ""
        names = _list_names(workspace, base + directory)
        files += [prefix + name for name in islice(filter(_is_test_file, names), _MAX_FILES)]
        for name in names:
            inner = prefix + name.rstrip("/")
            if depth < _MAX_DEPTH and _DIRECTORY.fullmatch(name) and name[:-1] not in _SKIPPED_DIRECTORIES:
                heapq.heappush(queue, (not _is_in_tests(f"{inner}/"), depth + 1, inner))
    return list(dict.fromkeys(files))


def _is_test_file(path: str) -> bool:
    return _TEST_FILE.fullmatch(path.rpartition("/")[2]) is not None


def _is_in_tests(path: str) -> bool:
    return not _TEST_DIRECTORIES.isdisjoint(path.split("/")[:-1])


def _list_names(workspace: Workspace, directory: str) -> list[str]:
    try:
        return workspace.list_directory(directory or ".")
    except ToolError:  # there is none
        return []


_ANSWER = re.compile(
    r"^trial:(?P<kind>\w{2,6}):(?P<status>runs|there|src|lib|unmade|with|broken|fails):(?P<text>[\w .'@/-]{0,80})\s*$",
    re.MULTILINE,
)
_COMMAND = re.compile(
    r"(?:python3?|(?:\.?venv|\.tox/[\w.-]{1,40})/bin/python|uv run --frozen python) -m pytest -q|tox|npm test|make test"
    r"|go test \./\.\.\.|cargo test --offline"
)
_FACTS = {
    "runs": "Test command: {command} (tried: it finds the tests)",
    "there": "Test command: {command} (its programs are installed)",
    "unmade": "Likely test command: {command} (not tried: it has to install its environments first)",
}
_WITH_PATH = "Test command: {command} (tried: it finds the tests with PYTHONPATH={path}, which is set in the terminals)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """A line for the first message, the directory for `PYTHONPATH`, and the command of pytest that finds the files."""

    fact: str
    python_path: str = ""
    command: str = ""
    files: tuple[str, ...] = ()


def read_trial(trial: Trial, output: str | None) -> TrialResult:
    """Read a trial's output; None stands for a timeout."""
    if output is None:
        late = f"finding the tests takes more than {TRIAL_SECONDS:g} s"
        fact = f"Likely test command: {trial.command} (not confirmed: {late})"
        is_python = trial.command.endswith("pytest -q")  # it may still run beside the first request
        return TrialResult(fact=fact, command=trial.command if is_python else "", files=trial.files)
    failed: list[str] = []
    command = trial.command
    for answer in _ANSWER.finditer(output):
        kind, status, text = answer.group("kind", "status", "text")
        if status == "fails":
            failed.append(text or f"{kind} does not say why")
        elif status == "broken":
            reason = f"one file was tried, and not collected: {text or 'pytest does not say why'}"
            return TrialResult(fact=f"Test command: {command} ({reason})")
        elif _COMMAND.fullmatch(text):
            if status != "with":
                runs = status not in {"there", "unmade"} and text.endswith("pytest -q")
                return TrialResult(
                    fact=_FACTS.get(status, _WITH_PATH).format(command=text, path=status),
                    python_path="" if status in _FACTS else status,
                    command=text if runs else "",
                    files=trial.files if runs else (),
                )
            command = text  # with which what is told next was tried
    return TrialResult(fact=f"The tests cannot be run here: {'; '.join(failed) or 'what was tried gave no answer'}")


_SCRIPT = r"""
export PYTHONDONTWRITEBYTECODE=1 GOTOOLCHAIN=local GOPROXY=off UV_OFFLINE=1
say() { printf 'trial:%s:%s:%s\n' "$@"; }
here() { command -v "$1" >/dev/null 2>&1; }
collects() {
  out=$({ "$@" -m pytest -q --collect-only -p no:cacheprovider "$file" 2>&1 </dev/null; printf '\nexit=%s' "$?"; } |
    tail -c 4000)
  [[ ${out##*exit=} == [05] ]]
}
why() { grep -oE "No module named '[A-Za-z0-9_.]{1,40}'|[A-Za-z]{1,40}Error" <<<"$out" | tail -n 1; }
# Prints whether pytest is there, and the first directory whose modules are not found without help.
look='
import importlib.util, os
found = importlib.util.find_spec
print("pytest" if found("pytest") else "none")
for place in ("src", "lib"):
    names = os.listdir(place) if os.path.isdir(place) else []
    names = [each for each in names if each.endswith(".py") or os.path.exists(f"{place}/{each}/__init__.py")]
    names = [each.removesuffix(".py") for each in names if each.removesuffix(".py").isidentifier()]
    if any(found(name) is None for name in names):
        print(place)
        break
'
try_python() {
  local each found place status=fails reason='python is not installed'
  for each in python python3 .venv/bin/python venv/bin/python .tox/*/bin/python; do
    # Where `python` has pytest, `python3` is that one again.
    if ! here "$each" || [[ $each == python3 && $status == broken ]]; then continue; fi
    { read -r found; read -r place; } < <("$each" -c "$look" 2>/dev/null </dev/null)
    if [[ $found != pytest ]]; then
      [[ $status == broken ]] || reason='pytest is not installed'
      continue
    fi
    if PYTHONPATH=${place:+$PWD/$place:}$PYTHONPATH collects "$each"; then
      say python "${place:-runs}" "$each -m pytest -q"; return
    fi
    if [[ $status != broken ]]; then
      status=broken reason=$(why)
      say python with "$each -m pytest -q"
    fi
  done
  if [[ -f uv.lock ]] && here uv && collects uv run --frozen python; then
    say python runs 'uv run --frozen python -m pytest -q'; return
  fi
  if [[ -f tox.ini ]] && here tox && tox -l </dev/null >/dev/null 2>&1; then say python unmade tox; return; fi
  say python "$status" "$reason"; [[ $status == broken ]]
}
try_npm() {
  if ! here npm; then say npm fails 'npm is not installed'; return 1; fi
  local path=node_modules/.bin/$program
  [[ -x $path ]] || path=$(command -v "$program") || { say npm fails "$program is not installed"; return 1; }
  # Only of these it is known that they run no tests when they are asked for a list, or for their version.
  if [[ $program == jest ]] && grep -q . < <("$path" --listTests </dev/null 2>/dev/null); then
    say npm runs 'npm test'; return
  fi
  if [[ -n $is_runner ]] && ! "$path" --version </dev/null >/dev/null 2>&1; then
    say npm fails "$program does not start"; return 1
  fi
  say npm there 'npm test'
}
try_go() {
  if ! here go; then say go fails 'go is not installed'; return 1; fi
  if go list -test -deps ./... </dev/null >/dev/null 2>&1; then say go runs 'go test ./...'; return; fi
  say go fails 'a module is missing'; false
}
try_cargo() {
  if ! here cargo; then say cargo fails 'cargo is not installed'; return 1; fi
  if cargo metadata --offline --format-version 1 </dev/null >/dev/null 2>&1; then
    say cargo runs 'cargo test --offline'; return
  fi
  say cargo fails 'a crate is missing'; false
}
try_make() {
  if ! here make; then say make fails 'make is not installed'; return 1; fi
  local lines word
  if ! lines=$(make -n test </dev/null 2>/dev/null); then say make fails 'its rule cannot be made'; return 1; fi
  while read word _; do  # without -r: a command that is continued on another line is one
    case $word in
      bundle|cargo|cmake|composer|ctest|go|gradle|hatch|jest|mocha|mvn|node|nox|npm|npx|pdm|php|phpunit|pnpm|poetry|\
      pytest|python|python3|rake|rspec|ruby|tox|uv|vitest|yarn)
        here "$word" || { say make fails "$word is not installed"; return 1; } ;;
    esac
  done < <(head -n 50 <<<"$lines")
  say make there 'make test'
}
"""
