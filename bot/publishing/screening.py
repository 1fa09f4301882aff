"""Screen a change before it is published: objections, cautions, and the diff that a person approves.

`find_objections` finds changes that require approval: protected files, submodules, links out of the repository,
invisible characters. `show_files` renders the complete diff for approval.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Literal

from agent_runtime import Policy, Rule
from bot.domain.characters import BIDI, BLANKS, CONTROLS, EMOJI_SELECTORS, INVISIBLE, JOINERS, SURROGATES, ZERO_WIDTH
from bot.domain.difference import TEST_PATH, unquote_name
from bot.git.change import Change, FileChange
from bot.permissions.repo_config import file_kinds
from bot.publishing.markdown import code, fence

MAX_FILES = 100
MAX_LINES = 5_000
MAX_BYTES = 5 * 1024 * 1024
"""A change beyond any of these is opened as a draft."""

GITLINK = "160000"
EXECUTABLE = "100755"

_MAX_NAMES = 10
_MAX_HOPS = 40
_MAX_DEPTH, _MAX_STEPS = 500, 200_000
_CHECK_SETTINGS = re.compile(
    r"(?:^|/)(?:conftest\.py|(?:GNU)?[Mm]akefile|[Jj]ustfile|package\.json|pyproject\.toml|setup\.cfg|tox\.ini"
    r"|pytest\.ini|noxfile\.py|\.?(?:mypy|ruff|flake8|pylintrc|coveragerc|golangci|clippy|eslint|eslintrc|eslintignore"
    r"|biome|rubocop|phpunit)(?:\.[^/]*)?|(?:jest|vitest|vite|eslint|playwright)\.config\.[^/]+|tsconfig[^/]*\.json)$"
)

Cause = Literal["protected", "submodule", "escapes", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """A reason why a change requires a person's approval; `escapes` is a symbolic link out of the repository."""

    cause: Cause
    files: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"{_CAUSES[self.cause]}: {self.names}."

    @property
    def names(self) -> str:
        return format_names(self.files)


_CAUSES = {
    "protected": "It changes files that require a person's approval",
    "submodule": "It changes submodules",
    "escapes": "It adds symbolic links that point outside the repository",
    "unseen": "It adds invisible characters, or characters that change the direction of the text",
}


def find_objections(change: Change, protected: tuple[str, ...] = ()) -> tuple[Objection, ...]:
    """Return the objections to a change, with further protected globs (see `is_protected`)."""
    binary = {file.path for file in change.files if file.binary}
    unseen = {path for path, section in split_sections(change.patch) if adds_unseen(section)} - binary
    files_by_cause: tuple[tuple[Cause, list[str]], ...] = (
        ("protected", [f.path for f in change.files if is_protected(f.path, protected) and not _is_submodule(f)]),
        ("submodule", [f.path for f in change.files if _is_submodule(f)]),
        ("escapes", sorted(_escaping_links(change))),
        ("unseen", [f.path for f in change.files if f.new_mode and (is_deceptive(f.path) or f.path in unseen)]),
    )
    return tuple(Objection(cause=cause, files=tuple(files)) for cause, files in files_by_cause if files)


def cautions(change: Change) -> tuple[str, ...]:
    binary = [f for f in change.files if f.binary and f.status != "deleted"]
    executable = [f for f in change.files if f.new_mode == EXECUTABLE and f.old_mode != EXECUTABLE]
    notes = [*change.notes]
    if binary:
        notes.append(f"Binary: {format_names([f.path for f in binary])}.")
    if executable:
        notes.append(f"Made executable: {format_names([f.path for f in executable])}.")
    if is_large(change):
        notes.append("The change is large: review it in parts.")
    return tuple(notes)


def reduced_tests(change: Change) -> str:
    return format_names([f.path for f in change.files if f.removed and TEST_PATH.search(f.path)])


def check_settings(change: Change) -> str:
    return format_names([f.path for f in change.files if _CHECK_SETTINGS.search(f.path)])


def is_large(change: Change) -> bool:
    lines = sum(file.added + file.removed for file in change.files)
    size = sum(len(file.content or b"") for file in change.files)
    return len(change.files) > MAX_FILES or lines > MAX_LINES or size > MAX_BYTES


def _is_submodule(file: FileChange) -> bool:
    return GITLINK in {file.old_mode, file.new_mode} or file.path == ".gitmodules"


def _escaping_links(change: Change) -> set[str]:
    """Return the changed links that lead out of the repository, or that redirect an existing link out of it.

    Links resolve as in a kernel: `b/..` follows `b` first. A tree with too many links is not trusted.
    """
    changed, steps_left, escaping = change.changed_links, _MAX_STEPS, set[str]()
    for link in change.links if changed else ():
        directory, name = link.split("/")[:-1], link.rpartition("/")[2]
        unresolved, hops, traversed, is_outside = [name], 0, set[str](), False
        while unresolved and not is_outside and hops <= _MAX_HOPS:
            steps_left -= 1
            part = unresolved.pop()
            is_outside = part.casefold() == ".git" or (part == ".." and not directory) or len(directory) > _MAX_DEPTH
            if part == "..":
                directory = directory[:-1]
            elif part not in {"", "."}:
                path = "/".join([*directory, part])
                traversed |= {path} & changed
                if (target := change.links.get(path)) is None:
                    directory = [*directory, part]
                else:
                    hops, is_outside = hops + 1, target.startswith("/")
                    unresolved += reversed(target.split("/"))
        if steps_left < 0:
            return set(changed)
        if is_outside:
            escaping |= {link} & changed or traversed
    return escaping


def format_names(paths: Sequence[str]) -> str:
    names = ", ".join(code(escape_unseen(path)) for path in paths[:_MAX_NAMES])
    return names if len(paths) <= _MAX_NAMES else f"{names} and {len(paths) - _MAX_NAMES} more"


def is_protected(path: str, globs: tuple[str, ...] = ()) -> bool:
    return _approval_policy(globs).hides(_TOOL, path)


_TOOL = "write_file"


@cache
def _approval_policy(globs: tuple[str, ...]) -> Policy:
    # A rule that asks matches in any case and with everything below; one that allows matches exactly.
    built_in = [
        Rule(decision="ask" if kind.approve else "allow", tool=_TOOL, paths=kind.globs)
        for kind in file_kinds()
        if kind.approve or kind.exempt
    ]
    repository_rules = [Rule(decision="ask", tool=_TOOL, paths=globs)] if globs else []
    return Policy(rules=(*repository_rules, *built_in))


PREVIEW_LIMIT = 45_000
"""Characters of a request shown in the status comment, which leaves room for the answers."""
PART_LIMIT = 60_000
"""Characters of a request shown in a comment of its own."""
MAX_PARTS = 8

_FOLD_WIDTH = 160
_BLANK_LINES = 3
_BLANK = {" ": "blank lines", "+": "blank lines added", "-": "blank lines removed"}
_BINARY = re.compile(r"^(?:GIT binary patch|Binary files .*)$", re.MULTILINE)
_ADVICE = "Apply the patch yourself, or request smaller changes."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePreview:
    """Diff of some files, for approval by a user."""

    diff: str
    obstacle: str = ""
    has_escapes: bool = False


def show_files(change: Change, paths: Iterable[str], redact: Callable[[str], str]) -> ChangePreview:
    """Return the complete diff of some files, in the given order.

    A diff that the output redaction would alter cannot be shown.
    """
    by_path = dict.fromkeys(paths, "")
    for path, section in split_sections(change.patch):
        if path in by_path:
            by_path[path] += section
    lfs_pointers = {file.path for file in change.large if file.path in by_path}
    binary = {file.path for file in change.files if file.path in by_path and file.binary and file.new_mode}
    if unreadable := sorted(lfs_pointers | binary):
        names = ", ".join(code(escape_unseen(name)) for name in unreadable)
        reason = "which is binary" if not lfs_pointers else "which is binary or only a pointer to Git LFS"
        return _unshowable(f"nobody can read {names}, {reason}")
    if missing := [path for path, section in by_path.items() if not section]:
        names = ", ".join(code(escape_unseen(name)) for name in missing)
        return _unshowable(f"git shows no difference in {names}")
    size = sum(map(len, by_path.values()))
    if size > MAX_PARTS * PART_LIMIT:
        return _too_long(size)
    diff = "\n".join(line for section in by_path.values() for line in _preview_lines(section))
    blocks = split_diff(diff)
    if len(blocks) > MAX_PARTS:
        return _too_long(len(diff))
    if any(redact(text) != text for text in (fence(diff, "diff"), *(fence(block, "diff") for block in blocks))):
        return _unshowable("it contains something like a secret, which would not be shown")
    plain = (section.replace("\r\n", "\n") for section in by_path.values())
    return ChangePreview(diff=diff, has_escapes=any(escape_unseen(text) != text for text in plain))


def split_diff(diff: str) -> tuple[str, ...]:
    parts: list[list[str]] = [[]]
    room = PART_LIMIT
    for line in diff.split("\n"):
        if len(line) + 1 > room:
            parts.append([])
            room = PART_LIMIT
        parts[-1].append(line)
        room -= len(line) + 1
    return tuple("\n".join(part) for part in parts if part)


def fits_comment(preview: str) -> bool:
    return len(fence(preview)) <= PREVIEW_LIMIT


def approval_obstacle(preview: str, redact: Callable[[str], str]) -> str:
    """Return why a call cannot be approved, for the model; empty if it can.

    A preview that the output redaction would alter cannot be shown.
    """
    if not fits_comment(preview):
        return "it is too long to be approved: put it in a script, or make it shorter"
    block = fence(preview)
    if redact(block) != block:
        return "it contains something like a secret, so it cannot be shown in full; remove that"
    return ""


def deny_unshowable_calls(redact: Callable[[str], str]) -> Callable[..., str | None]:
    """Return a permission handler that denies calls whose preview cannot be shown completely."""

    def deny(preview: str, **_: object) -> str | None:
        return approval_obstacle(preview, redact) or None

    return deny


def _unshowable(reason: str) -> ChangePreview:
    return ChangePreview(diff="", obstacle=f"It cannot be approved here: {reason}. {_ADVICE}")


def _too_long(size: int) -> ChangePreview:
    most = MAX_PARTS * PART_LIMIT
    return _unshowable(f"the diff of these files has {size:,} characters, and at most {most:,} can be shown")


def _preview_lines(section: str) -> Iterator[str]:
    text = section.removesuffix("\n")
    if binary := _BINARY.search(text):
        # Only deleted binary files get here.
        text = f"{text[: binary.start()]}(binary, gone)"
    lines = text.split("\n")
    if all(line.endswith("\r") for line in lines if _is_content(line)) and any(map(_is_content, lines)):
        lines = [*(line.removesuffix("\r") for line in lines), "(its lines end with CR LF)"]
    for mark, run in groupby(lines, _blank_mark):
        lines_of_run = list(run)
        if mark is not None and len(lines_of_run) > _BLANK_LINES:
            yield f"… {len(lines_of_run):,} {_BLANK[mark]}"
            continue
        for line in lines_of_run:
            escaped = escape_unseen(line)
            yield escaped[:_FOLD_WIDTH]
            yield from (f"… {escaped[at : at + _FOLD_WIDTH]}" for at in range(_FOLD_WIDTH, len(escaped), _FOLD_WIDTH))


def _is_content(line: str) -> bool:
    return line[:1] in _BLANK and not line.startswith(("+++ ", "--- "))


def _blank_mark(line: str) -> str | None:
    return line[:1] if line[:1] in _BLANK and not line[1:].strip(" \t") else None


_SECTION_HEAD = "diff --git "
_SECTION_WINDOW = 4 << 20
_QUOTED_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"')


def split_sections(patch: str) -> Iterator[tuple[str, str]]:
    """Yield path and diff section of each file; a file that becomes a link has two.

    Only section heads begin with `diff --git`: other lines have a mark, or hold base 85.
    """
    begin = 0 if patch.startswith(_SECTION_HEAD) else _find_section(patch, 0)
    while begin >= 0:
        end = _find_section(patch, begin)
        section = patch[begin : end if end >= 0 else len(patch)]
        path = _section_path(section.partition("\n")[0].removeprefix(_SECTION_HEAD))
        if path is not None:
            yield path, section
        begin = end


def _find_section(patch: str, start: int) -> int:
    """Return the next head behind `start`; searches in windows so that other threads get to run."""
    mark = f"\n{_SECTION_HEAD}"
    for at in range(start, len(patch), _SECTION_WINDOW):
        if (found := patch.find(mark, at, at + _SECTION_WINDOW + len(mark))) >= 0:
            return found + 1
    return -1


def _section_path(names: str) -> str | None:
    if names.startswith('"'):
        quoted = _QUOTED_NAME.match(names)
        return None if quoted is None else unquote_name(quoted[1]).removeprefix("a/")
    half = len(names) // 2
    before, after = names[:half], names[half + 1 :]
    same = before.startswith("a/") and after == f"b/{before[2:]}"
    return before[2:] if same and names[half] == " " else None


_PICTOGRAPHS = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
_BEFORE_JOINERS = "\u0590-\u0dff\u0f00-\u109f\u1780-\u18aa\ufb1d-\ufefc\ufe0f" + _PICTOGRAPHS
_UNSEEN_CHARACTERS = re.compile(f"[{INVISIBLE}{SURROGATES}]")
# Form feeds separate pages of old code; a carriage return ends a line. Selectors and joiners are legitimate after a
# pictograph and between letters of some scripts.
_DECEPTIVE = re.compile(
    rf"(?![\f\r])[{CONTROLS}{BIDI}{BLANKS}{ZERO_WIDTH}]"
    f"|(?<![{_PICTOGRAPHS}])[{EMOJI_SELECTORS}](?!\u20e3)|(?<![{_BEFORE_JOINERS}])[{JOINERS}]"
)
# A lone carriage return lets a terminal overwrite the line.
_DECEPTIVE_IN_DIFF = re.compile(f"{_DECEPTIVE.pattern}|\r(?!\n)")
_BYTE_SURROGATES = range(0xDC80, 0xDD00)
_SEARCH_WINDOW = 1 << 20
_MAX_OLD_LINES = 100_000
"""Limit of lines of other versions to skip; a section with more counts as if it added such characters."""
_FIRST_LINE = re.compile(r"@@ -\d+(?:,\d+)? \+1(?:,\d+)? @@[^\n]*\n(?:-[^\n]*+\n)*+\+\Z")


def escape_unseen(text: str) -> str:
    """Write each unseen character as e.g. `[U+202E]`, and each undecodable byte as `[0xE9]`."""
    return text if text.isascii() and text.isprintable() else _UNSEEN_CHARACTERS.sub(_escape_character, text)


def is_deceptive(name: str) -> bool:
    return _DECEPTIVE.search(name) is not None or "\r" in name


def adds_unseen(section: str) -> bool:
    """Whether a file's diff section adds invisible characters, or characters that reorder text."""
    at = 0
    for _ in range(_MAX_OLD_LINES):
        at = _find_unseen(section, at)
        if at < 0:
            return False
        begin = section.rfind("\n", 0, at) + 1
        if section[begin] != "+":
            at = section.find("\n", at)
            if at < 0:
                return False
        elif section[at] == "\ufeff" and at == begin + 1 and _FIRST_LINE.search(section[max(0, begin - 1_000) : at]):
            at += 1  # a byte order mark at the beginning of the file
        else:
            return True
    return True


def _find_unseen(section: str, start: int) -> int:
    """Return the next such position; searches in windows so that other threads get to run."""
    while start < len(section):
        found = _DECEPTIVE_IN_DIFF.search(section, start, min(len(section), start + _SEARCH_WINDOW))
        if found is None:
            start += _SEARCH_WINDOW
        elif found[0] == "\r" and section[found.end() : found.end() + 1] == "\n":  # at the end of a window
            start = found.end()
        else:
            return found.start()
    return -1


def _escape_character(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"[0x{number - 0xDC00:02X}]" if number in _BYTE_SURROGATES else f"[U+{number:04X}]"
