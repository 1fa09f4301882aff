"""Listing of files that git does not ignore, newest first.

Untrusted patterns are matched by an RE2 automaton in linear time; the package pathspec is not linear and differs from
git.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from agent_runtime.core.errors import ToolError
from agent_runtime.core.text import is_dot_git
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import files as files_module
from agent_runtime.workspace.files import Workspace

_MAX_FILES = 100_000
_MAX_RULES_BYTES = 1_000_000  # bytes of one .gitignore
_MAX_NAME_CHARS = 10_000_000  # of all names of a listing
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Files found, newest first; incomplete beyond the limits."""

    files: list[str]
    complete: bool


async def list_bounded(workspace: Workspace, pattern: str, path: str) -> Listing:
    """Run `list_files` in a worker process: names and patterns are untrusted.

    Raises:
        ToolError: as for `list_files`.
        BoundExceededError: timeout.
    """
    packed = await run_bounded(_list_packed, workspace, pattern, path, seconds=_SECONDS, task="Listing the files")
    complete, *files = packed.split("\0")
    return Listing(files=files, complete=bool(complete))


def _list_packed(workspace: Workspace, pattern: str, path: str) -> str:
    with workspace:
        listing = list_files(workspace, pattern, path)
    return "\0".join(["complete" if listing.complete else "", *listing.files])


def list_files(workspace: Workspace, pattern: str, path: str) -> Listing:
    """List regular files beneath `path`; a pattern without a slash matches names.

    Raises:
        ToolError: no such directory, or an invalid pattern.
    """
    start = workspace.resolve(path)
    if not workspace.is_directory(path):
        kind = "does not exist" if not workspace.exists(path) else "is not a directory"
        raise ToolError(f"path={path!r} {kind}; name a directory of the workspace", kind="NotADirectoryError")
    include = Include.parse(pattern, name="pattern")
    base = "" if start == "." else f"{start}/"
    matches: list[tuple[int, str]] = []
    chars = 0
    for number, (modified, name) in enumerate(walk_files(workspace, base, parent_rules(workspace, base)), 1):
        chars += len(name)
        if number > _MAX_FILES or chars > _MAX_NAME_CHARS:
            return Listing(files=[name for _, name in sorted(matches)], complete=False)
        if include.matches(name.removeprefix(base)):
            matches.append((-modified, name))
    return Listing(files=[name for _, name in sorted(matches)], complete=True)


def walk_files(workspace: Workspace, prefix: str, rules: tuple[IgnoreRules, ...]) -> Iterator[tuple[int, str]]:
    """Yield modification time and path of files that are not ignored."""
    for _, directory, entry in entries(workspace, prefix, rules):
        if entry is not None and entry.is_file(follow_symlinks=False):
            try:
                modified = entry.stat(follow_symlinks=False).st_mtime_ns
            except OSError:  # removed meanwhile
                modified = 0
            yield modified, directory + entry.name


def entries(
    workspace: Workspace, prefix: str = "", rules: tuple[IgnoreRules, ...] = ()
) -> Iterator[tuple[int, str, os.DirEntry[str] | None]]:
    """Yield entries that are not ignored, except directories; virtual environments inside count as ignored.

    Yields:
        Directory descriptor, valid until the next entry; prefix; entry. For an unreadable directory -1, path, None.
    """
    start, pending = prefix, [(prefix, rules)]
    while pending:
        prefix, rules = pending.pop()
        try:
            descriptor = workspace.open_directory(prefix or ".")
        except (OSError, ToolError):
            yield -1, prefix or ".", None
            continue
        with files_module.closing(descriptor), os.scandir(descriptor) as entries:
            names = sorted(entries, key=lambda entry: entry.name)
            if prefix != start and any(entry.name == "pyvenv.cfg" for entry in names):
                continue
            if any(entry.name == ".gitignore" for entry in names):
                rules = (*rules, *directory_rules(workspace, prefix))
            for entry in names:
                name = prefix + entry.name
                if is_dot_git(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not is_ignored(rules, name, directory=True):
                        pending.append((f"{name}/", rules))
                elif not is_ignored(rules, name, directory=False):
                    yield descriptor, prefix, entry


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """A `.gitignore` and its directory."""

    prefix: str
    file: IgnoreFile


def parent_rules(workspace: Workspace, prefix: str) -> tuple[IgnoreRules, ...]:
    """Return the rules of the parent directories."""
    parts = [] if prefix.startswith("/") else prefix.split("/")[:-1]
    above = ["".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts))]
    return tuple(rule for directory in above for rule in directory_rules(workspace, directory))


def directory_rules(workspace: Workspace, prefix: str) -> tuple[IgnoreRules, ...]:
    """Return a directory's rules, if any."""
    try:
        return (IgnoreRules(prefix, IgnoreFile(workspace.read_bytes(f"{prefix}.gitignore", _MAX_RULES_BYTES))),)
    except ToolError:  # missing or unreadable
        return ()


def is_ignored(rules: tuple[IgnoreRules, ...], name: str, *, directory: bool) -> bool:
    """Whether git ignores a path; the innermost matching `.gitignore` decides."""
    for rule in reversed(rules):
        verdict = rule.file.verdict(name.removeprefix(rule.prefix), directory=directory)
        if verdict is not None:
            return verdict
    return False


_MAGIC = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ONE_BYTE = re.compile(rb"\[\^/\](?!\*)")
_ONE_CHARACTER = rb"(?:[^/\x80-\xff]|[\xc0-\xff][\x80-\xbf]{0,3})"
"""`?` in a search; for git it is one byte."""
SURROGATES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates, except those that stand for non-UTF-8 bytes."""
_MAX_ALTERNATIVES = 64
_MAX_GLOB_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Glob of files to search; without a slash it matches names.

    Attributes:
        regex: for RE2, on bytes.
        directory: common parent of all matches.
    """

    glob: str
    regex: Any = field(repr=False)
    directory: str

    @classmethod
    def parse(cls, glob: str, *, name: str = "include") -> Include:
        """Compile a glob; errors mention `name`.

        Raises:
            ToolError: empty, negated, or outside the workspace.
        """
        import re2  # noqa: PLC0415 - only a search needs it

        plain = glob.removeprefix("./").lstrip("/")
        if len(glob) > _MAX_GLOB_CHARS:
            raise ToolError(
                f"{name} has more than {_MAX_GLOB_CHARS:,} characters; use a shorter glob", kind="ValueError"
            )
        is_malformed = "\0" in plain or "\n" in plain or SURROGATES.search(plain)
        if not plain or plain.startswith(("!", "#")) or ".." in plain.split("/") or is_malformed:
            raise ToolError(
                f"{name}={glob!r}: must be a glob of files in the workspace, such as '*.py' or 'tests/**'",
                kind="ValueError",
            )
        anywhere = plain.removeprefix("**/")
        plain = plain if "/" in anywhere else anywhere
        anchor = "/" if "/" in plain else ""
        globs = [f"{anchor}{alternative}".encode("utf-8", "surrogateescape") for alternative in _expand_braces(plain)]
        parsed = [pattern for alternative in globs if (pattern := Pattern.parse(alternative))]
        bodies = [(body, pattern.directory) for pattern in parsed if (body := pattern.regex()) is not None]
        bodies = [(_ONE_BYTE.sub(lambda _: _ONE_CHARACTER, body), directory) for body, directory in bodies]
        # Matching paths, and paths in matching directories.
        choices = [b"%b/.*" % body if directory else b"%b(?:/.*)?" % body for body, directory in bodies]
        try:
            regex = re2.compile(b"|".join(choices), re2_options()) if choices else None
        except re2.error:
            regex = None
        if regex is None:
            raise ToolError(f"{name}={glob!r}: matches nothing, or is too large", kind="ValueError")
        parents = plain.split("/")[:-1]
        fixed = next((i for i, part in enumerate(parents) if _MAGIC.search(part)), len(parents))
        return cls(glob=plain, regex=regex, directory="/".join(parents[:fixed]))

    @property
    def ripgrep_options(self) -> tuple[str, ...]:
        """Ripgrep's options to select names; its `--glob` would include ignored files."""
        return () if "/" in self.glob else (f"--type-add=wanted:{self.glob}", "--type=wanted")

    def matches(self, path: str) -> bool:
        """Whether a path matches."""
        return self.regex.fullmatch(path.encode("utf-8", "surrogateescape")) is not None


def _expand_braces(glob: str) -> Iterator[str]:
    pending, count = [glob], 0
    while pending:
        current = pending.pop()
        braces = _BRACES.search(current)
        if braces is None:
            yield current
            continue
        count += 1
        if count > _MAX_ALTERNATIVES:
            raise ToolError(f"include={glob!r}: too many alternatives in braces", kind="ValueError")
        before, after = current[: braces.start()], current[braces.end() :]
        pending += [before + choice + after for choice in braces[1].split(",")]


_SET_SIZE = 1000  # patterns of one automaton
_AUTOMATON_BYTES = 16 * 1024**2
_SPECIAL = frozenset(b"*?[\\")
_SLASH, _STAR, _BACKSLASH, _CLOSE = b"/*\\]"
_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": string.ascii_letters + string.digits + string.punctuation,
    b"lower": string.ascii_lowercase,
    b"print": string.ascii_letters + string.digits + string.punctuation + " ",
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


class IgnoreFile:
    """Patterns of a `.gitignore`: a table of literals, and an RE2 set on bytes."""

    def __init__(self, data: bytes, *, max_lines: int | None = None) -> None:
        """Parse the first `max_lines` lines, or all."""
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:max_lines]
        self.patterns = [pattern for line in lines if (pattern := Pattern.parse(line)) is not None]
        # Last pattern for each literal name and path: for directories, and for others.
        self._names: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._paths: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        regexes: list[tuple[int, bytes]] = []
        for number, pattern in enumerate(self.patterns):
            if pattern.is_literal:
                tables = self._paths if pattern.is_anchored else self._names
                for table in tables[: 1 if pattern.directory else 2]:
                    table[pattern.text.removeprefix(b"/")] = number
            elif (regex := pattern.regex()) is not None:
                regexes.append((number, regex))
        self._automata = [_compile_set(regexes[at : at + _SET_SIZE]) for at in range(0, len(regexes), _SET_SIZE)]

    def verdict(self, path: str, *, directory: bool) -> bool | None:
        """Return whether a path is ignored; None if no pattern matches. Parents are separate."""
        data = path.encode("utf-8", "surrogateescape")
        kind = 0 if directory else 1
        last = max(self._names[kind].get(data.rpartition(b"/")[2], -1), self._paths[kind].get(data, -1))
        for automaton, numbers in self._automata:
            for match in automaton.Match(data) or ():
                if numbers[match] > last and (directory or not self.patterns[numbers[match]].directory):
                    last = numbers[match]
        return None if last < 0 else not self.patterns[last].negated


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A line of a `.gitignore`; without a slash it matches names."""

    text: bytes
    negated: bool
    directory: bool

    @property
    def is_anchored(self) -> bool:
        """Whether it matches paths."""
        return b"/" in self.text

    @property
    def is_literal(self) -> bool:
        """Whether it has no wildcards."""
        return _SPECIAL.isdisjoint(self.text)

    @classmethod
    def parse(cls, line: bytes) -> Pattern | None:
        """Parse a line; None without a pattern."""
        line = line.removesuffix(b"\r").partition(b"\0")[0]
        stripped = line.rstrip(b" ")
        escaped = (len(stripped) - len(stripped.rstrip(b"\\"))) % 2  # a backslash keeps the first trailing space
        line = line[: len(stripped) + escaped]
        if not line or line.startswith(b"#"):
            return None
        text = line.removeprefix(b"!")
        bare = text.removesuffix(b"/")
        return cls(text=bare, negated=line.startswith(b"!"), directory=bare != text)

    def regex(self) -> bytes | None:
        """Return RE2's expression for matching paths; None if it matches nothing."""
        text = self.text.removeprefix(b"/")
        head = next((at for at, byte in enumerate(text) if byte in _SPECIAL), len(text))
        # git compares the part before the first wildcard separately, so a `**` after it counts as a name's start.
        glob, at = text[head:], 0
        pieces = [b"" if self.is_anchored else b"(?:.*/)?", _quote(text[:head])]
        while at < len(glob):
            byte = glob[at]
            if byte == _STAR:
                piece, at = _star_regex(glob, at, paths=self.is_anchored)
            elif byte == _BACKSLASH:
                if at + 1 == len(glob):
                    return None
                piece, at = _quote(glob[at + 1 : at + 2]), at + 2
            elif byte == ord("["):
                members, at = _bracket_members(glob, at + 1)
                if not members:
                    return None
                piece = b"[" + b"".join(b"\\x%02x" % member for member in sorted(members)) + b"]"
            else:
                piece, at = b"[^/]" if byte == ord("?") else _quote(glob[at : at + 1]), at + 1
            pieces.append(piece)
        return b"".join(pieces)


@cache
def re2_options() -> Any:  # noqa: ANN401 - a library without types
    """Return the RE2 options of this module."""
    import re2  # noqa: PLC0415 - only a run needs it

    settings = re2.Options()
    settings.encoding = re2.Options.Encoding.LATIN1
    settings.log_errors = False
    settings.never_capture = True
    settings.dot_nl = True
    settings.max_mem = _AUTOMATON_BYTES
    return settings


def _compile_set(expressions: list[tuple[int, bytes]]) -> tuple[Any, list[int]]:
    import re2  # noqa: PLC0415 - see above

    automaton = re2.Set.FullMatchSet(re2_options())
    for _, regex in expressions:
        automaton.Add(regex)
    automaton.Compile()
    return automaton, [number for number, _ in expressions]


def _star_regex(glob: bytes, at: int, *, paths: bool) -> tuple[bytes, int]:
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    rest = glob[end : end + 2]
    alone = paths and end - at > 1 and (at == 0 or glob[at - 1] == _SLASH)
    if alone and rest.startswith(b"/"):
        return b"(?:.*/)?", end + 1
    if alone and rest in {b"", b"\\/"}:
        return b".*", end
    return b"[^/]*", end


def _bracket_members(glob: bytes, at: int) -> tuple[frozenset[int], int]:
    """Return the bytes of a bracket expression and its end, as git's wildmatch.c."""
    negated = glob[at : at + 1] in {b"!", b"^"}
    at += negated
    members: set[int] = set()
    before, first = 0, True
    malformed = frozenset[int](), len(glob)
    while first or glob[at : at + 1] != b"]":
        first = False
        escaped = glob[at : at + 1] == b"\\"
        at += escaped
        if at >= len(glob):
            return malformed
        byte = glob[at]
        if not escaped and byte == ord("-") and before and glob[at + 1 : at + 2] not in {b"", b"]"}:
            at += 2 if glob[at + 1] == _BACKSLASH else 1
            if at >= len(glob):
                return malformed
            members.update(range(before, glob[at] + 1))
            before = 0
        elif not escaped and glob.startswith(b"[:", at) and (close := glob.find(b"]", at + 2)) != at + 2:
            if close < 0:
                return malformed
            if glob[close - 1] != ord(":") or close == at + 2:
                members.add(byte)
                before = byte
            elif (members_of_class := _CLASSES.get(glob[at + 2 : close - 1])) is None:
                return malformed
            else:
                members.update(members_of_class.encode())
                at, before = close, 0
        else:
            members.add(byte)
            before = byte
        at += 1
    matching = frozenset(range(256)) - members if negated else members
    return frozenset(matching - {_SLASH}), at + 1


def _quote(text: bytes) -> bytes:
    return b"".join(bytes((b,)) if chr(b).isalnum() and b < 128 else b"\\x%02x" % b for b in text)  # noqa: PLR2004 - ASCII
