"""List the files of a workspace, newest first, without those that git ignores.

`.gitignore` files are read as git reads them (`IgnoreFile`, `Pattern`), and so are the globs that narrow a search
(`Include`). Strangers write both, so the patterns of a file are matched by one RE2 automaton, in time linear in the
path. The package pathspec would do the same, but differs from git and is not linear.
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

_MOST_SEEN = 100_000
_MAX_RULES = 1_000_000  # bytes of one .gitignore
_MOST_CHARS = 10_000_000  # of all names of a listing
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Files found.

    Attributes:
        files: their paths from the workspace's root, newest first.
        complete: whether everything was looked at.
    """

    files: list[str]
    complete: bool


async def list_bounded(workspace: Workspace, pattern: str, path: str) -> Listing:
    """`list_files` in a worker process: a stranger chose the names, their number, and what git ignores.

    Raises:
        ToolError: as for `list_files`.
        BoundExceededError: it takes too long.
    """
    packed = await run_bounded(_packed, workspace, pattern, path, seconds=_SECONDS, task="Listing the files")
    complete, *files = packed.split("\0")
    return Listing(files=files, complete=bool(complete))


def _packed(workspace: Workspace, pattern: str, path: str) -> str:
    with workspace:
        found = list_files(workspace, pattern, path)
    return "\0".join(["complete" if found.complete else "", *found.files])


def list_files(workspace: Workspace, pattern: str, path: str) -> Listing:
    """List regular files beneath a directory; links are not followed.

    Args:
        workspace: where.
        pattern: a glob; without a slash it is about names in any directory, else about paths from `path`.
        path: the directory.

    Raises:
        ToolError: the directory does not exist, or the pattern is no glob of files beneath it.
    """
    start = workspace.resolve(path)
    if not workspace.is_directory(path):
        kind = "does not exist" if not workspace.exists(path) else "is not a directory"
        raise ToolError(f"path={path!r} {kind}; name a directory of the workspace", kind="NotADirectoryError")
    wanted = Include.parse(pattern, name="pattern")
    base = "" if start == "." else f"{start}/"
    found: list[tuple[int, str]] = []
    chars = 0
    for seen, (modified, name) in enumerate(walk(workspace, base, rules_above(workspace, base)), 1):
        chars += len(name)
        if seen > _MOST_SEEN or chars > _MOST_CHARS:
            return Listing(files=[name for _, name in sorted(found)], complete=False)
        if wanted.matches(name.removeprefix(base)):
            found.append((-modified, name))
    return Listing(files=[name for _, name in sorted(found)], complete=True)


def walk(workspace: Workspace, prefix: str, rules: tuple[Rules, ...]) -> Iterator[tuple[int, str]]:
    """Times of modification and paths of the files that are not ignored.

    Args:
        workspace: where.
        prefix: the directory to begin in, `""` for the root, else with a slash at its end.
        rules: what the directories above it say; see `rules_above`.
    """
    for _, place, entry in entries(workspace, prefix, rules):
        if entry is not None and entry.is_file(follow_symlinks=False):
            try:
                modified = entry.stat(follow_symlinks=False).st_mtime_ns
            except OSError:  # gone in this moment
                modified = 0
            yield modified, place + entry.name


def entries(
    workspace: Workspace, prefix: str = "", rules: tuple[Rules, ...] = ()
) -> Iterator[tuple[int, str, os.DirEntry[str] | None]]:
    """Everything but directories that is not ignored, git's own left out; no link is followed.

    Args:
        workspace: where.
        prefix: the directory to begin in; see `walk`.
        rules: what the directories above it say.

    Yields:
        The directory, as a descriptor that is open until the next one is asked for, and as a prefix; and the entry. One
        that is gone in this moment, or cannot be read, comes as -1, its path, and None.
    """
    pending = [(prefix, rules)]
    while pending:
        prefix, rules = pending.pop()
        try:
            descriptor = workspace.open_directory(prefix or ".")
        except (OSError, ToolError):
            yield -1, prefix or ".", None
            continue
        with files_module.held(descriptor), os.scandir(descriptor) as entries:
            names = sorted(entries, key=lambda entry: entry.name)
            if any(entry.name == ".gitignore" for entry in names):
                rules = (*rules, *rules_in(workspace, prefix))
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
class Rules:
    """One `.gitignore`: its directory's prefix, and what it says."""

    prefix: str
    file: IgnoreFile


def rules_above(workspace: Workspace, prefix: str) -> tuple[Rules, ...]:
    """What the directories above say."""
    parts = [] if prefix.startswith("/") else prefix.split("/")[:-1]
    above = ["".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts))]
    return tuple(rule for directory in above for rule in rules_in(workspace, directory))


def rules_in(workspace: Workspace, prefix: str) -> tuple[Rules, ...]:
    """What the `.gitignore` of a directory says, if it has one."""
    try:
        return (Rules(prefix, IgnoreFile(workspace.read_bytes(f"{prefix}.gitignore", _MAX_RULES))),)
    except ToolError:  # none there, or none that can be read
        return ()


def is_ignored(rules: tuple[Rules, ...], name: str, *, directory: bool) -> bool:
    """Whether git ignores a path: the innermost `.gitignore` that says something about it decides."""
    for rule in reversed(rules):
        verdict = rule.file.says(name.removeprefix(rule.prefix), directory=directory)
        if verdict is not None:
            return verdict
    return False


_MAGIC = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ONE_BYTE = re.compile(rb"\[\^/\](?!\*)")
_ONE_CHARACTER = rb"(?:[^/\x80-\xff]|[\xc0-\xff][\x80-\xbf]{0,3})"
"""What `?` is in a search; to git, whose patterns match bytes, it is one byte."""
HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of characters. (Those between stand for bytes in names that are no UTF-8.)"""
_MOST_ALTERNATIVES = 64
_MOST_GLOB_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Which files a search is about.

    A glob without a slash is about names in any directory; one with a slash is about paths from the workspace's root.

    Attributes:
        glob: as it was given, a leading `./` or `/` left out.
        regex: the same for RE2, which does not backtrack; it matches bytes.
        directory: the directory that everything it matches lies in, `""` for the root.
    """

    glob: str
    regex: Any = field(repr=False)
    directory: str

    @classmethod
    def parse(cls, glob: str, *, name: str = "include") -> Include:
        """Check and compile a glob.

        Args:
            glob: as it was given.
            name: the argument that it was given as, for error texts.

        Raises:
            ToolError: it is empty, a negation, or leaves the workspace.
        """
        import re2  # noqa: PLC0415 - only a search needs it

        plain = glob.removeprefix("./").lstrip("/")
        if len(glob) > _MOST_GLOB_CHARS:
            raise ToolError(
                f"{name} has more than {_MOST_GLOB_CHARS:,} characters; use a shorter glob", kind="ValueError"
            )
        odd = "\0" in plain or "\n" in plain or HALVES.search(plain)
        if not plain or plain.startswith(("!", "#")) or ".." in plain.split("/") or odd:
            raise ToolError(
                f"{name}={glob!r}: must be a glob of files in the workspace, such as '*.py' or 'tests/**'",
                kind="ValueError",
            )
        anywhere = plain.removeprefix("**/")
        plain = plain if "/" in anywhere else anywhere
        anchor = "/" if "/" in plain else ""
        globs = [f"{anchor}{each}".encode("utf-8", "surrogateescape") for each in _alternatives(plain)]
        parsed = [pattern for each in globs if (pattern := Pattern.parse(each))]
        bodies = [(body, pattern.directory) for pattern in parsed if (body := pattern.regex()) is not None]
        bodies = [(_ONE_BYTE.sub(lambda _: _ONE_CHARACTER, body), directory) for body, directory in bodies]
        # What the glob matches, and what lies in a directory that it matches.
        choices = [b"%b/.*" % body if directory else b"%b(?:/.*)?" % body for body, directory in bodies]
        try:
            regex = re2.compile(b"|".join(choices), options()) if choices else None
        except re2.error:
            regex = None
        if regex is None:
            raise ToolError(f"{name}={glob!r}: matches nothing, or is too large", kind="ValueError")
        parents = plain.split("/")[:-1]
        fixed = next((i for i, part in enumerate(parents) if _MAGIC.search(part)), len(parents))
        return cls(glob=plain, regex=regex, directory="/".join(parents[:fixed]))

    @property
    def options(self) -> tuple[str, ...]:
        """What tells ripgrep to leave other names alone. Its own `--glob` would search ignored files, too."""
        return () if "/" in self.glob else (f"--type-add=wanted:{self.glob}", "--type=wanted")

    def matches(self, path: str) -> bool:
        """Whether a file, by its path from the root, is meant."""
        return self.regex.fullmatch(path.encode("utf-8", "surrogateescape")) is not None


def _alternatives(glob: str) -> Iterator[str]:
    """Expand `{a,b}`, which ripgrep's globs know and git's do not.

    Raises:
        ToolError: there are too many alternatives.
    """
    pending, done = [glob], 0
    while pending:
        current = pending.pop()
        braces = _BRACES.search(current)
        if braces is None:
            yield current
            continue
        done += 1
        if done > _MOST_ALTERNATIVES:
            raise ToolError(f"include={glob!r}: too many alternatives in braces", kind="ValueError")
        before, after = current[: braces.start()], current[braces.end() :]
        pending += [before + each + after for each in braces[1].split(",")]


_TOGETHER = 1000  # patterns of one automaton
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
    """The patterns of one `.gitignore`.

    Patterns without wildcards are looked up in a table. All others match at once, as regular expressions of RE2, which
    does not backtrack; they match bytes, as git's do.
    """

    def __init__(self, data: bytes, *, most: int | None = None) -> None:
        """Read them.

        Args:
            data: the file's content.
            most: lines to be read; the others are as if they were not there. None for all.
        """
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:most]
        self.patterns = [pattern for line in lines if (pattern := Pattern.parse(line)) is not None]
        # For names and paths without wildcards: the last pattern about each, of any kind, and for non-directories.
        self._names: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._paths: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        wild: list[tuple[int, bytes]] = []
        for number, pattern in enumerate(self.patterns):
            if pattern.plain:
                known = self._paths if pattern.anchored else self._names
                for each in known[: 1 if pattern.directory else 2]:
                    each[pattern.text.removeprefix(b"/")] = number
            elif (regex := pattern.regex()) is not None:
                wild.append((number, regex))
        self._wild = [_automaton(wild[at : at + _TOGETHER]) for at in range(0, len(wild), _TOGETHER)]

    def says(self, path: str, *, directory: bool) -> bool | None:
        """Whether a path is ignored; None when no pattern is about it.

        Args:
            path: from the file's own directory. The directories above it are asked about by themselves.
            directory: whether it is one.
        """
        data = path.encode("utf-8", "surrogateescape")
        kind = 0 if directory else 1
        last = max(self._names[kind].get(data.rpartition(b"/")[2], -1), self._paths[kind].get(data, -1))
        for automaton, numbers in self._wild:
            for found in automaton.Match(data) or ():
                if numbers[found] > last and (directory or not self.patterns[numbers[found]].directory):
                    last = numbers[found]
        return None if last < 0 else not self.patterns[last].negated


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line of a `.gitignore`.

    Attributes:
        text: the pattern itself; without a slash it is about names in any directory.
        negated: whether what it matches is not ignored.
        directory: whether it is about directories only.
    """

    text: bytes
    negated: bool
    directory: bool

    @property
    def anchored(self) -> bool:
        """Whether it is about paths from the file's own directory."""
        return b"/" in self.text

    @property
    def plain(self) -> bool:
        """Whether it has no wildcards."""
        return _SPECIAL.isdisjoint(self.text)

    @classmethod
    def parse(cls, line: bytes) -> Pattern | None:
        """Read a line; None for one without a pattern."""
        line = line.removesuffix(b"\r").partition(b"\0")[0]
        kept = line.rstrip(b" ")
        escaped = (len(kept) - len(kept.rstrip(b"\\"))) % 2  # a backslash keeps the first trailing space
        line = line[: len(kept) + escaped]
        if not line or line.startswith(b"#"):
            return None
        text = line.removeprefix(b"!")
        bare = text.removesuffix(b"/")
        return cls(text=bare, negated=line.startswith(b"!"), directory=bare != text)

    def regex(self) -> bytes | None:
        """RE2's expression for the paths that it matches, from the file's own directory; None when there is none."""
        text = self.text.removeprefix(b"/")
        head = next((at for at, byte in enumerate(text) if byte in _SPECIAL), len(text))
        # git compares what stands before the first wildcard by itself: `**` behind it counts as if it began a name.
        glob, at = text[head:], 0
        pieces = [b"" if self.anchored else b"(?:.*/)?", _quoted(text[:head])]
        while at < len(glob):
            byte = glob[at]
            if byte == _STAR:
                piece, at = _stars(glob, at, paths=self.anchored)
            elif byte == _BACKSLASH:
                if at + 1 == len(glob):
                    return None
                piece, at = _quoted(glob[at + 1 : at + 2]), at + 2
            elif byte == ord("["):
                members, at = _members(glob, at + 1)
                if not members:
                    return None
                piece = b"[" + b"".join(b"\\x%02x" % member for member in sorted(members)) + b"]"
            else:
                piece, at = b"[^/]" if byte == ord("?") else _quoted(glob[at : at + 1]), at + 1
            pieces.append(piece)
        return b"".join(pieces)


@cache
def options() -> Any:  # noqa: ANN401 - a library without types
    """How RE2 is to read the expressions of this module."""
    import re2  # noqa: PLC0415 - only a run needs it

    chosen = re2.Options()
    chosen.encoding = re2.Options.Encoding.LATIN1
    chosen.log_errors = False
    chosen.never_capture = True
    chosen.dot_nl = True
    chosen.max_mem = _AUTOMATON_BYTES
    return chosen


def _automaton(wild: list[tuple[int, bytes]]) -> tuple[Any, list[int]]:
    import re2  # noqa: PLC0415 - see above

    automaton = re2.Set.FullMatchSet(options())
    for _, regex in wild:
        automaton.Add(regex)
    automaton.Compile()
    return automaton, [number for number, _ in wild]


def _stars(glob: bytes, at: int, *, paths: bool) -> tuple[bytes, int]:
    """What a run of stars matches, and where it ends; with `paths`, `**` between slashes means directories."""
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


def _members(glob: bytes, at: int) -> tuple[frozenset[int], int]:
    """The bytes of a bracket expression, and where it ends; none for one that is malformed. As in git's wildmatch.c."""
    negated = glob[at : at + 1] in {b"!", b"^"}
    at += negated
    members: set[int] = set()
    before, first = 0, True
    nothing = frozenset[int](), len(glob)
    while first or glob[at : at + 1] != b"]":
        first = False
        escaped = glob[at : at + 1] == b"\\"
        at += escaped
        if at >= len(glob):
            return nothing
        byte = glob[at]
        if not escaped and byte == ord("-") and before and glob[at + 1 : at + 2] not in {b"", b"]"}:
            at += 2 if glob[at + 1] == _BACKSLASH else 1
            if at >= len(glob):
                return nothing
            members.update(range(before, glob[at] + 1))
            before = 0
        elif not escaped and glob.startswith(b"[:", at) and (close := glob.find(b"]", at + 2)) != at + 2:
            if close < 0:
                return nothing
            if glob[close - 1] != ord(":") or close == at + 2:
                members.add(byte)
                before = byte
            elif (named := _CLASSES.get(glob[at + 2 : close - 1])) is None:
                return nothing
            else:
                members.update(named.encode())
                at, before = close, 0
        else:
            members.add(byte)
            before = byte
        at += 1
    found = frozenset(range(256)) - members if negated else members
    return frozenset(found - {_SLASH}), at + 1


def _quoted(text: bytes) -> bytes:
    return b"".join(bytes((b,)) if chr(b).isalnum() and b < 128 else b"\\x%02x" % b for b in text)  # noqa: PLR2004 - ASCII
