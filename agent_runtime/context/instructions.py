"""Instructions for agents in a repository, by the conventions of several tools.

A text applies to all files, to its directory, or to its `applyTo`. The first message has the general ones and those
about a file that it names; the others follow when a file tool reads or writes such a file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal

from agent_runtime.context.relevant_code import printable
from agent_runtime.core.errors import SettingsError, ToolError
from agent_runtime.core.events import InstructionsShown
from agent_runtime.core.values import MAX_SKILLS, Task, read_front_matter
from agent_runtime.prompts import notes
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import Include, walk_files

INSTRUCTION_CHARS = 24_000
"""Characters in the first message; as many may follow."""
FILE_CHARS = 12_000
"""Characters of one file."""
MAX_INSTRUCTION_FILES = 50
MAX_HOPS = 5
"""Imports of imports, and links to links."""
SKILL_FOLDERS = (".agents/skills", ".claude/skills", ".github/skills", ".codepilot/skills")
"""Directories of skills."""
_DIRECTORY_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Files about their directory."""
INSTRUCTION_FILES = (*_DIRECTORY_FILES, ".claude/CLAUDE.md", ".github/copilot-instructions.md")
"""Files about the whole repository."""
_APPLY_TO_FOLDER, _APPLY_TO_SUFFIX = ".github/instructions/", ".instructions.md"
_IMPORTING = frozenset({"CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md"})
_INSTRUCTION_BYTES = 64 * 1024
_MAX_WALKED, _MAX_LISTED, _MAX_GLOBS, _MAX_NAMED = 20_000, 20, 50, 2_000
_SOURCE_CHARS = 200
_IMPORT = re.compile(r"(?<![\w@/.-])@([\w./-]+)")
_PATH = re.compile(r"[^\s`'\"()\[\]<>,;:]+")
_GLOB = re.compile(r"(?:[^,{]|\{[^{}]*\})+")
_BARE_GLOB = re.compile(r"^(applyTo:[ \t]*)([*{][^\"\r\n]*)$", re.MULTILINE)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
"""Characters that a reviewer does not see."""

Reader = Literal["coding-agent", "code-review"]
"""Agents that `excludeAgent` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """A file's text; it applies to all files, a directory or globs."""

    path: str
    text: str
    key: str
    """The text with plain blanks."""
    directory: str = ""
    globs: tuple[str, ...] = ()

    @property
    def is_general(self) -> bool:
        return not self.directory and not self.globs

    def covers(self, path: str) -> bool:
        """Whether they apply to a file; `*.py` is one in the root."""
        if self.directory:
            return path.startswith(self.directory)
        return any(_include(glob).matches(path) and ("/" in glob or "/" not in path) for glob in self.globs)


@lru_cache(maxsize=1_000)
def _include(glob: str) -> Include:
    return Include.parse(glob, name="applyTo")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionSet:
    """The instructions of a repository, and `problems` with their files."""

    general: tuple[Instructions, ...] = ()
    scoped: tuple[Instructions, ...] = ()
    problems: tuple[str, ...] = ()

    def open(self, task: Task, paths: Iterable[str], nonce: str) -> InstructionsShown:
        """Return the first message's part; it shows code of `paths`."""
        texts = (task.goal, *(quote.text for quote in task.quotes))
        words = (match[0] for text in texts for match in _PATH.finditer(text))
        named = dict.fromkeys(islice((word for word in words if "/" in word or "." in word), _MAX_NAMED))
        # The names in a difference have prefixes.
        candidates = [*paths, *named, *(name[2:] for name in named if name.startswith(("a/", "b/", "./")))]
        chosen = self.choose(candidates, ())
        shown = _frame((*self.general, *chosen), nonce, INSTRUCTION_CHARS)
        more = [item for item in self.scoped if item not in chosen]
        if not shown.text and not more:
            return InstructionsShown(paths=())
        names = [clean_source(f"{item.path} ({item.directory or ', '.join(item.globs)})") for item in more]
        listed = f"{notes.MORE_INSTRUCTIONS} {_list_names(names)}" if names else ""
        text = "\n".join(filter(None, (notes.INSTRUCTIONS, shown.text, listed)))
        return InstructionsShown(paths=shown.paths, incomplete=shown.incomplete, nonce=nonce, text=text)

    def find_shown(self, opening: str, nonce: str) -> InstructionsShown:
        """Return the instructions in a recorded first message."""
        items = (*self.general, *self.scoped)
        paths = [item.path for item in items if f"[instructions {nonce} from {clean_source(item.path)}]\n" in opening]
        return InstructionsShown(paths=tuple(paths), nonce=nonce if items else "")

    def choose(self, paths: Iterable[str], earlier: Collection[str]) -> tuple[Instructions, ...]:
        """Return those about one of these files, nearest first, without the texts of `earlier` ones."""
        texts = {item.key for item in (*self.general, *self.scoped) if item.is_general or item.path in earlier}
        chosen: dict[str, Instructions] = {}
        candidates = tuple(paths)
        for item in self.scoped:
            if item.key not in texts and any(map(item.covers, candidates)):
                chosen.setdefault(item.key, item)
        return tuple(chosen.values())

    def follow(self, paths: Iterable[str], earlier: Sequence[InstructionsShown]) -> InstructionsShown | None:
        """Return those to show after files were read or written, if any."""
        shown = [path for event in earlier for path in (*event.paths, *event.incomplete)]
        chosen = self.choose(paths, shown)
        if not chosen:
            return None
        room = INSTRUCTION_CHARS - sum(len(event.text) for event in earlier)
        return _frame(chosen, next((event.nonce for event in earlier), ""), room)


def _frame(items: Iterable[Instructions], nonce: str, room: int) -> InstructionsShown:
    """Frame texts within `room` characters, and name the others."""
    parts, paths, cut, left_out = list[str](), list[str](), list[str](), list[str]()
    for item in items:
        text = notes.shorten(item.text, FILE_CHARS)
        if len(text) > room:
            left_out.append(item.path)
            continue
        room -= len(text)
        paths.append(item.path)
        cut += [item.path] if text != item.text else []
        parts.append(f"[instructions {nonce} from {clean_source(item.path)}]\n{text}\n[end of instructions {nonce}]")
    if left_out:
        parts.append(f"Too long to be shown with the others: {_list_names(map(clean_source, left_out))}")
    return InstructionsShown(paths=tuple(paths), incomplete=(*cut, *left_out), nonce=nonce, text="\n".join(parts))


def _list_names(names: Iterable[str]) -> str:
    names = [*names]
    rest = f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{', '.join(names[:_MAX_LISTED])}{rest}"


def clean_source(text: str) -> str:
    """Return a source for a frame's first line, which it can neither leave nor close."""
    return " ".join(printable(text).split()).replace("[", "(").replace("]", ")")[:_SOURCE_CHARS]


def is_instruction_file(path: str) -> bool:
    is_scoped = path.startswith(_APPLY_TO_FOLDER) and path.endswith(_APPLY_TO_SUFFIX)
    return path in INSTRUCTION_FILES or path.rpartition("/")[2] in _DIRECTORY_FILES or is_scoped


def order_instructions(paths: Iterable[str]) -> list[str]:
    """Return the instruction files among these, those of the whole repository first."""
    found = filter(is_instruction_file, paths)
    ranks = {path: rank for rank, path in enumerate(INSTRUCTION_FILES)}
    return sorted(
        found, key=lambda path: (ranks.get(path, 9), not path.startswith(_APPLY_TO_FOLDER), path.count("/"), path)
    )


def parse_instructions(files: Mapping[str, str]) -> InstructionSet:
    """Parse texts by path, each text once; one outside of the conventions, such as an import, is general."""
    general, scoped, problems = dict[str, Instructions](), list[Instructions](), list[str]()
    for path, content in files.items():
        try:
            item = _parse_file(path, content, files)
        except SettingsError as error:
            problems.append(str(error))
            continue
        if hidden := len(_INVISIBLE.findall(content.removeprefix("\ufeff").replace("\r\n", "\n"))):
            problems.append(f"{path}: its invisible characters are left out ({hidden:,}).")
        if item is None or not item.text:
            continue
        if item.is_general:
            general.setdefault(item.key, item)
        else:
            scoped.append(item)
    scoped = [item for item in scoped if item.key not in general]
    # The nearest to a file is the deepest.
    scoped.sort(key=lambda item: -item.directory.count("/"))
    return InstructionSet(general=tuple(general.values()), scoped=tuple(scoped), problems=tuple(problems))


def _parse_file(path: str, content: str, files: Collection[str]) -> Instructions | None:
    """Parse a file; None if it applies to no file by itself."""
    globs, text = tuple[str, ...](), content
    if path.endswith(_APPLY_TO_SUFFIX) and content.removeprefix("\ufeff").startswith("---"):
        head, text = _read_head(path, content)
        globs = _read_globs(path, head.get("applyTo"))
    if path.endswith(_APPLY_TO_SUFFIX) and not globs:
        return None
    # An import on a line of its own names a file that is shown anyway.
    lines = (line for line in text.splitlines() if not (line.strip().startswith("@") and _is_import(path, line, files)))
    text = _INVISIBLE.sub("", "\n".join(line.rstrip() for line in lines)).strip("\n")
    folder, _, name = path.rpartition("/")
    directory = f"{folder}/" if folder and name in _DIRECTORY_FILES and path not in INSTRUCTION_FILES else ""
    globs = () if "**" in globs else globs
    return Instructions(path=path, text=text, key=" ".join(text.split()), directory=directory, globs=globs)


def _read_head(path: str, content: str) -> tuple[dict[str, object], str]:
    # A glob without quotes would be an alias of YAML.
    return read_front_matter(path, _BARE_GLOB.sub(r'\1"\2"', content, count=1))


def _is_import(path: str, line: str, files: Collection[str]) -> bool:
    target = _resolve(path, line.strip()[1:])
    return target in files and target != path


def _read_globs(path: str, value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    texts = [text for text in values if isinstance(text, str)]
    if len(texts) < len(values):
        raise SettingsError(f"{path}: `applyTo` must be globs separated by commas, e.g. `**/*.py,docs/**`.")
    globs = [glob.strip() for text in texts for glob in _GLOB.findall(text) if glob.strip()]
    if len(globs) > _MAX_GLOBS:
        raise SettingsError(f"{path}: `applyTo` has {len(globs)} globs; the limit is {_MAX_GLOBS}.")
    try:
        for glob in globs:
            _include(glob)
    except ToolError as error:
        raise SettingsError(f"{path}: {error}.") from error
    return ("**",) if {"*", "**", "**/*"}.intersection(globs) else tuple(globs)


def select_files(files: Mapping[str, str], reader: Reader) -> dict[str, str]:
    """Return the texts that do not exclude this kind of agent."""
    names = {"coding-agent", "cloud-agent"} if reader == "coding-agent" else {reader}
    return {path: text for path, text in files.items() if names.isdisjoint(_read_excluded(path, text))}


def _read_excluded(path: str, content: str) -> Sequence[str]:
    if not path.endswith(_APPLY_TO_SUFFIX) or "excludeAgent" not in content:
        return ()
    try:
        value = _read_head(path, content)[0].get("excludeAgent")
    except SettingsError:  # `parse_instructions` reports it
        return ()
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]


def find_imports(path: str, text: str) -> Iterator[str]:
    """Yield the paths of imports such as `@docs/style.md`."""
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code and "@" in line:
            for match in _IMPORT.finditer("` ".join(line.split("`")[::2])):
                if target := _resolve(path, match[1].rstrip(".")):
                    yield target


def _resolve(path: str, reference: str) -> str:
    """Return a reference's path from the root; empty if it leaves the repository."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), reference))
    return "" if target.startswith(("/", "..")) or target == "." else target


def list_imports(texts: Mapping[str, str], present: Collection[str]) -> list[str]:
    """Return imports of the whole repository's texts that are not `present`."""
    importing = ((path, text) for path, text in texts.items() if path in _IMPORTING or not is_instruction_file(path))
    found = (target for path, text in importing for target in find_imports(path, text))
    return [target for target in dict.fromkeys(found) if target not in present]


def read_instructions(root: Path, names: Sequence[str] | None = None) -> dict[str, str]:
    """Return the instruction files of a repository whose maintainers are trusted, or the files `names`.

    Links and imports are followed below `root` only.
    """
    with Workspace(root) as files:
        if names is not None:
            return _read_texts(files, names)
        walked = (path for _, path in islice(walk_files(files, "", ()), _MAX_WALKED))
        paths = order_instructions(dict.fromkeys((*INSTRUCTION_FILES, *walked)))
        texts = _read_texts(files, paths[: MAX_INSTRUCTION_FILES + len(INSTRUCTION_FILES)])
        for _ in range(MAX_HOPS):
            missing = list_imports(texts, texts)
            imported = _read_texts(files, missing[: MAX_INSTRUCTION_FILES - min(len(texts), MAX_INSTRUCTION_FILES)])
            if not imported:
                break
            texts |= imported
    return select_files(texts, "coding-agent")


def _read_texts(files: Workspace, names: Iterable[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in names:
        try:
            text = files.read_bytes(name, _INSTRUCTION_BYTES).decode("utf-8", errors="replace").strip()
        except ToolError:  # missing, a directory, outside, too long or not permitted
            continue
        if text:
            texts[name] = text
    return texts


def read_skills(root: Path, folders: Sequence[str] = SKILL_FOLDERS) -> dict[str, str]:
    """Return up to 30 `SKILL.md` files of each folder, by path, of a repository whose maintainers are trusted."""
    texts: dict[str, str] = {}
    for folder in folders:
        try:
            with Workspace(root) as files:  # follows no link out
                names = [name.rstrip("/") for name in files.list_directory(folder)][:MAX_SKILLS]
        except (OSError, ToolError):  # there is no such folder
            continue
        texts |= read_instructions(root, [f"{folder}/{name}/SKILL.md" for name in names])
    return texts
