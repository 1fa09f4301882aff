"""Screening of a change before it is published: objections, cautions, and the diff that a person approves.

`objections` finds the changes that need a person's approval: protected files, submodules, links out of the repository,
characters that nobody sees. `cautions` finds those that a reviewer should look at twice. `show_files` shows the whole
change with nothing hidden, or says why it cannot be shown. `sections` splits a diff as git writes it, and `spelled_out`
makes unseen characters visible.
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
from bot.git.change import Change, FileChange
from bot.permissions.repo_config import file_kinds
from bot.publishing.markdown import code, fenced

MAX_FILES = 100
MAX_LINES = 5_000
MAX_BYTES = 5 * 1024 * 1024
"""A change beyond any of these is opened as a draft."""

GITLINK = "160000"
EXECUTABLE = "100755"

_SHOWN = 10
_MOST_HOPS = 40
_DEEPEST, _MOST_STEPS = 500, 200_000
_TEST = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?)/|(?:^|/)(?:conftest|tests?|test_[^/]*|[^/]*[._-](?:test|spec)s?|[^/]*Tests?)\.\w+$"
)
_SETTINGS = re.compile(
    r"(?:^|/)(?:conftest\.py|(?:GNU)?[Mm]akefile|[Jj]ustfile|package\.json|pyproject\.toml|setup\.cfg|tox\.ini"
    r"|pytest\.ini|noxfile\.py|\.?(?:mypy|ruff|flake8|pylintrc|coveragerc|golangci|clippy|eslint|eslintrc|eslintignore"
    r"|biome|rubocop|phpunit)(?:\.[^/]*)?|(?:jest|vitest|vite|eslint|playwright)\.config\.[^/]+|tsconfig[^/]*\.json)$"
)

Cause = Literal["protected", "submodule", "escapes", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why a change may not be published unless a person approves it.

    Attributes:
        cause: `protected` files, a `submodule`, a symbolic link that `escapes` the repository, or `unseen` characters.
        files: the paths that it is about.
    """

    cause: Cause
    files: tuple[str, ...]

    @property
    def words(self) -> str:
        """A sentence that names the files, as Markdown."""
        return f"{_CAUSES[self.cause]}: {self.names}."

    @property
    def names(self) -> str:
        """The files, as Markdown."""
        return _names(self.files)


_CAUSES = {
    "protected": "It changes files that require a person's approval",
    "submodule": "It changes submodules",
    "escapes": "It adds symbolic links that point outside the repository",
    "unseen": "It adds invisible characters, or characters that change the direction of the text",
}


def objections(change: Change, protected: tuple[str, ...] = ()) -> tuple[Objection, ...]:
    """Why this change may not be published without its own approval; empty when it may.

    Args:
        change: all of it.
        protected: globs of files beside the built-in ones; see `is_protected`.
    """
    binary = {each.path for each in change.files if each.binary}
    unseen = {path for path, section in sections(change.patch) if adds_unseen(section)} - binary
    found: tuple[tuple[Cause, list[str]], ...] = (
        ("protected", [f.path for f in change.files if is_protected(f.path, protected) and not _is_submodule(f)]),
        ("submodule", [f.path for f in change.files if _is_submodule(f)]),
        ("escapes", sorted(_escaping(change))),
        ("unseen", [f.path for f in change.files if f.new_mode and (is_deceptive(f.path) or f.path in unseen)]),
    )
    return tuple(Objection(cause=cause, files=tuple(files)) for cause, files in found if files)


def cautions(change: Change) -> tuple[str, ...]:
    """What a reviewer should look at twice: how the change was found, binary files, new executables, sheer size."""
    binary = [f for f in change.files if f.binary and f.status != "deleted"]
    executable = [f for f in change.files if f.new_mode == EXECUTABLE and f.old_mode != EXECUTABLE]
    notes = [*change.notes]
    if binary:
        notes.append(f"Binary: {_names([f.path for f in binary])}.")
    if executable:
        notes.append(f"Made executable: {_names([f.path for f in executable])}.")
    if is_large(change):
        notes.append("The change is large: review it in parts.")
    return tuple(notes)


def tests_cut(change: Change) -> str:
    """The tests that a change deletes or takes lines out of, as Markdown; empty for none."""
    return _names([f.path for f in change.files if f.removed and _TEST.search(f.path)])


def settings_of_checks(change: Change) -> str:
    """The files in it that say what is checked, and how, as Markdown; empty for none."""
    return _names([f.path for f in change.files if _SETTINGS.search(f.path)])


def is_large(change: Change) -> bool:
    """Whether it is over the limit for a pull request that is ready for review."""
    lines = sum(file.added + file.removed for file in change.files)
    size = sum(len(file.content or b"") for file in change.files)
    return len(change.files) > MAX_FILES or lines > MAX_LINES or size > MAX_BYTES


def _is_submodule(file: FileChange) -> bool:
    return GITLINK in {file.old_mode, file.new_mode} or file.path == ".gitmodules"


def _escaping(change: Change) -> set[str]:
    """The changed links that lead out of the repository, or by which a link that was there leads out of it now.

    Links are followed as a kernel would in the resulting tree: `b/..` is not where it seems to be if `b` is a link. A
    link with more hops than a kernel follows leads nowhere; a tree with too many links to follow is not trusted.
    """
    changed, left, found = change.changed_links, _MOST_STEPS, set[str]()
    for link in change.links if changed else ():
        place, name = link.split("/")[:-1], link.rpartition("/")[2]
        ahead, hops, passed, out = [name], 0, set[str](), False
        while ahead and not out and hops <= _MOST_HOPS:
            left -= 1
            part = ahead.pop()
            out = part.casefold() == ".git" or (part == ".." and not place) or len(place) > _DEEPEST
            if part == "..":
                place = place[:-1]
            elif part not in {"", "."}:
                path = "/".join([*place, part])
                passed |= {path} & changed
                if (target := change.links.get(path)) is None:
                    place = [*place, part]
                else:
                    hops, out = hops + 1, target.startswith("/")
                    ahead += reversed(target.split("/"))
        if left < 0:
            return set(changed)
        if out:
            found |= {link} & changed or passed
    return found


def _names(paths: Sequence[str]) -> str:
    names = ", ".join(code(spelled_out(path)) for path in paths[:_SHOWN])
    return names if len(paths) <= _SHOWN else f"{names} and {len(paths) - _SHOWN} more"


def is_protected(path: str, globs: tuple[str, ...] = ()) -> bool:
    """Whether a file needs an approval of its own.

    Args:
        path: from the repository's root, `/` between the parts.
        globs: what the repository protects beside the built-in list. Nothing can be taken out of that.
    """
    return _rules(globs).withholds(_TOOL, path)


_TOOL = "write_file"


@cache
def _rules(globs: tuple[str, ...]) -> Policy:
    # A rule that asks is read generously: whatever the case, and with all that lies beneath. One that allows is read to
    # the letter.
    built_in = [
        Rule(decision="ask" if kind.approve else "allow", tool=_TOOL, paths=kind.globs)
        for kind in file_kinds()
        if kind.approve or kind.exempt
    ]
    own = [Rule(decision="ask", tool=_TOOL, paths=globs)] if globs else []
    return Policy(rules=(*own, *built_in))


PREVIEW_LIMIT = 45_000
"""Characters of what a job's comment shows to be approved. The words before it and the lines to answer with have room
beside it; what follows is cut where there is none."""
PART_LIMIT = 60_000
"""The same in a comment of its own."""
MOST_PARTS = 8

_FOLD = 160
_BLANK_LINES = 3
_BLANK = {" ": "blank lines", "+": "blank lines added", "-": "blank lines removed"}
_BINARY = re.compile(r"^(?:GIT binary patch|Binary files .*)$", re.MULTILINE)
_HOW = "Apply the patch yourself, or request smaller changes."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """The diff of some files of a change, for the person who approves it; approval needs all of it.

    Attributes:
        diff: all of it; empty where it cannot be shown.
        hindrance: why it cannot be, and what to do, for the comment.
        spells: whether characters in it are spelled out, as in `[U+202E]`.
    """

    diff: str
    hindrance: str = ""
    spells: bool = False


def show_files(change: Change, paths: Iterable[str], redacted: Callable[[str], str]) -> ShownChange:
    """The whole difference in some files, for people.

    Args:
        change: all of it.
        paths: the files, in the order in which they are shown.
        redacted: what becomes of a text on its way out.
    """
    wanted = dict.fromkeys(paths, "")
    for path, section in sections(change.patch):
        if path in wanted:
            wanted[path] += section
    pointed = {file.path for file in change.large if file.path in wanted}
    binary = {file.path for file in change.files if file.path in wanted and file.binary and file.new_mode}
    if unreadable := sorted(pointed | binary):
        names = ", ".join(code(spelled_out(name)) for name in unreadable)
        why = "which is binary" if not pointed else "which is binary or only a pointer to Git LFS"
        return ShownChange(diff="", hindrance=f"It cannot be approved here: nobody can read {names}, {why}. {_HOW}")
    if missing := [path for path, section in wanted.items() if not section]:
        names = ", ".join(code(spelled_out(name)) for name in missing)
        return ShownChange(diff="", hindrance=f"It cannot be approved here: git shows no difference in {names}. {_HOW}")
    size = sum(map(len, wanted.values()))
    if size > MOST_PARTS * PART_LIMIT:
        return ShownChange(diff="", hindrance=_too_long(size))
    diff = "\n".join(line for section in wanted.values() for line in _lines(section))
    blocks = parts_of(diff)
    if len(blocks) > MOST_PARTS:
        return ShownChange(diff="", hindrance=_too_long(len(diff)))
    if any(redacted(each) != each for each in (fenced(diff, "diff"), *(fenced(block, "diff") for block in blocks))):
        why = "it contains something like a secret, which would not be shown"
        return ShownChange(diff="", hindrance=f"It cannot be approved here: {why}. {_HOW}")
    plain = (section.replace("\r\n", "\n") for section in wanted.values())
    return ShownChange(diff=diff, spells=any(spelled_out(each) != each for each in plain))


def parts_of(diff: str) -> tuple[str, ...]:
    """A diff in parts that fit into comments of their own, cut between lines; one part where it fits into one."""
    parts: list[list[str]] = [[]]
    room = PART_LIMIT
    for line in diff.split("\n"):
        if len(line) + 1 > room:
            parts.append([])
            room = PART_LIMIT
        parts[-1].append(line)
        room -= len(line) + 1
    return tuple("\n".join(part) for part in parts if part)


def fits(preview: str) -> bool:
    """Whether the job's own comment can show it whole."""
    return len(fenced(preview)) <= PREVIEW_LIMIT


def call_hindrance(preview: str, redacted: Callable[[str], str]) -> str:
    """Why nobody can approve a call, for the model; empty where it can be shown.

    Args:
        preview: what the call would do.
        redacted: what becomes of a text on its way out.
    """
    if not fits(preview):
        return "it is too long to be approved: put it in a script, or make it shorter"
    shown = fenced(preview)
    if redacted(shown) != shown:
        return "it contains something like a secret, so it cannot be shown in full; remove that"
    return ""


def denies_unshowable(redacted: Callable[[str], str]) -> Callable[..., str | None]:
    """A handler of requests for permission that denies, in words, what nobody can be shown whole."""

    def deny(preview: str, **_: object) -> str | None:
        return call_hindrance(preview, redacted) or None

    return deny


def _too_long(size: int) -> str:
    return (
        f"It cannot be approved here: the diff of these files has {size:,} characters, and at most "
        f"{MOST_PARTS * PART_LIMIT:,} can be shown. {_HOW}"
    )


def _lines(section: str) -> Iterator[str]:
    """The lines of one file's part: what nobody sees is spelled out, long lines are folded, blank ones counted."""
    text = section.removesuffix("\n")
    if binary := _BINARY.search(text):
        # Only of a file that is gone: what it held is of no interest.
        text = f"{text[: binary.start()]}(binary, gone)"
    lines = text.split("\n")
    if all(line.endswith("\r") for line in lines if _is_content(line)) and any(map(_is_content, lines)):
        lines = [*(line.removesuffix("\r") for line in lines), "(its lines end with CR LF)"]
    for mark, run in groupby(lines, _blank_mark):
        same = list(run)
        if mark is not None and len(same) > _BLANK_LINES:
            yield f"… {len(same):,} {_BLANK[mark]}"
            continue
        for line in same:
            shown = spelled_out(line)
            yield shown[:_FOLD]
            yield from (f"… {shown[at : at + _FOLD]}" for at in range(_FOLD, len(shown), _FOLD))


def _is_content(line: str) -> bool:
    return line[:1] in _BLANK and not line.startswith(("+++ ", "--- "))


def _blank_mark(line: str) -> str | None:
    """The mark of a line without text; None for any other."""
    return line[:1] if line[:1] in _BLANK and not line[1:].strip(" \t") else None


_SECTION_HEAD = "diff --git "
_SECTION_WINDOW = 4 << 20
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def sections(patch: str) -> Iterator[tuple[str, str]]:
    """Path and part of each file, in order; a file that becomes a link has two.

    Args:
        patch: without renames. No line in it begins with `diff --git` but those that head a file's part: others begin
            with a mark, or hold base 85.
    """
    begin = 0 if patch.startswith(_SECTION_HEAD) else _find_section(patch, 0)
    while begin >= 0:
        end = _find_section(patch, begin)
        section = patch[begin : end if end >= 0 else len(patch)]
        path = _section_path(section.partition("\n")[0].removeprefix(_SECTION_HEAD))
        if path is not None:
            yield path, section
        begin = end


def unquoted(name: bytes) -> bytes:
    """What stands between the quotes of a name that git has quoted."""

    def meant(escape: re.Match[bytes]) -> bytes:
        return bytes([int(escape[1], 8) & 0xFF]) if len(escape[1]) > 1 else _NAMED.get(escape[1], escape[1])

    # https://git-scm.com/docs/git-config#Documentation/git-config.txt-corequotePath
    return _ESCAPE.sub(meant, name)


def _find_section(patch: str, start: int) -> int:
    """Where the next head stands behind `start`; looked for in windows, so that other threads come to their turn."""
    mark = f"\n{_SECTION_HEAD}"
    for at in range(start, len(patch), _SECTION_WINDOW):
        if (found := patch.find(mark, at, at + _SECTION_WINDOW + len(mark))) >= 0:
            return found + 1
    return -1


def _section_path(names: str) -> str | None:
    """The one name in `a/NAME b/NAME`; None where it is not one."""
    if names.startswith('"'):
        quoted = _QUOTED.match(names)
        if quoted is None:
            return None
        raw = unquoted(quoted[1].encode("utf-8", "surrogateescape"))
        return raw.decode("utf-8", "surrogateescape").removeprefix("a/")
    half = len(names) // 2
    before, after = names[:half], names[half + 1 :]
    same = before.startswith("a/") and after == f"b/{before[2:]}"
    return before[2:] if same and names[half] == " " else None


_PICTURES = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
_JOINED = "\u0590-\u0dff\u0f00-\u109f\u1780-\u18aa\ufb1d-\ufefc\ufe0f" + _PICTURES
_SPELLED = re.compile(f"[{INVISIBLE}{SURROGATES}]")
# A form feed stands between pages of old code, a carriage return ends a line. Selectors and joiners have their place
# behind a picture and between letters of some scripts.
_DECEIVES = re.compile(
    rf"(?![\f\r])[{CONTROLS}{BIDI}{BLANKS}{ZERO_WIDTH}]"
    f"|(?<![{_PICTURES}])[{EMOJI_SELECTORS}](?!\u20e3)|(?<![{_JOINED}])[{JOINERS}]"
)
# A lone carriage return lets a terminal draw a line over what stands before it.
_ADDED = re.compile(f"{_DECEIVES.pattern}|\r(?!\n)")
_BYTES = range(0xDC80, 0xDD00)
_SEARCH_WINDOW = 1 << 20
_MOST_LINES = 100_000
"""As many lines of other versions are passed over; a part with more counts as if it added some."""
_FIRST_LINE = re.compile(r"@@ -\d+(?:,\d+)? \+1(?:,\d+)? @@[^\n]*\n(?:-[^\n]*+\n)*+\+\Z")


def spelled_out(text: str) -> str:
    """The text with each character that nobody sees as e.g. `[U+202E]`, and a byte that is no text as `[0xE9]`."""
    return text if text.isascii() and text.isprintable() else _SPELLED.sub(_spell, text)


def is_deceptive(name: str) -> bool:
    """Whether a name holds characters that make it look like another one."""
    return _DECEIVES.search(name) is not None or "\r" in name


def adds_unseen(section: str) -> bool:
    """Whether a file's part of a diff adds characters that nobody sees, or that turn the order of others.

    Args:
        section: as git writes it, from its `diff --git` line on.
    """
    at = 0
    for _ in range(_MOST_LINES):
        at = _find_unseen(section, at)
        if at < 0:
            return False
        begin = section.rfind("\n", 0, at) + 1
        if section[begin] != "+":
            at = section.find("\n", at)
            if at < 0:
                return False
        elif section[at] == "\ufeff" and at == begin + 1 and _FIRST_LINE.search(section[max(0, begin - 1_000) : at]):
            at += 1  # over the mark that says at the beginning of a file how it is encoded
        else:
            return True
    return True


def _find_unseen(section: str, start: int) -> int:
    """Where the next one stands; looked for in windows, so that other threads come to their turn."""
    while start < len(section):
        found = _ADDED.search(section, start, min(len(section), start + _SEARCH_WINDOW))
        if found is None:
            start += _SEARCH_WINDOW
        elif found[0] == "\r" and section[found.end() : found.end() + 1] == "\n":  # at the end of a window
            start = found.end()
        else:
            return found.start()
    return -1


def _spell(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"[0x{number - 0xDC00:02X}]" if number in _BYTES else f"[U+{number:04X}]"
