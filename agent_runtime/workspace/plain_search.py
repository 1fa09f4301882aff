"""Search files without ripgrep, and print what it would print. For a worker process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.gitignore import options
from agent_runtime.workspace.listing import rules_above, walk

_MOST_BYTES = 16_000_000  # of one file, and of all output
_BINARY_HEAD = 8_000


def search(workspace: Workspace, pattern: str, targets: Sequence[str], context: int, binary: bool) -> bytes:  # noqa: FBT001 - a worker's arguments have no names
    """The lines that match, in the form that `Hits` reads, with the columns of matches.

    Args:
        workspace: where.
        pattern: a regular expression as RE2 reads it, which ripgrep's are much like.
        targets: files, and directories whose files that git ignores are left out; canonical.
        context: lines to give before and behind each match.
        binary: whether to also search files with NUL bytes.

    Raises:
        ToolError: there is no such regular expression.
    """
    import re2  # noqa: PLC0415 - only a search needs it

    try:
        read = options()
        read.encoding = re2.Options.Encoding.UTF8
        wanted = re2.compile(pattern.encode(), read)
    except re2.error as error:
        raise ToolError(f"find: {error}", kind="ValueError") from error
    output = bytearray()
    with workspace:
        for name in _names(workspace, targets):
            try:
                data = workspace.read_bytes(name, _MOST_BYTES)
            except ToolError:  # too large, gone, or not to be read: ripgrep passes over it, too
                continue
            if binary or b"\0" not in data[:_BINARY_HEAD]:
                part = _found(name, data, wanted, context)
                output += b"\n" + part if output and part else part  # an empty line ends a file
            if len(output) > _MOST_BYTES:
                break
    return bytes(output)


def _names(workspace: Workspace, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        base = "" if target == "." else f"{target}/"
        if workspace.is_directory(target):
            yield from sorted(name for _, name in walk(workspace, base, rules_above(workspace, base)))
        else:
            yield target


def _found(name: str, data: bytes, wanted: Any, context: int) -> bytes:  # noqa: ANN401 - a library without types
    """One file's part of the output; empty without a match."""
    lines = data.removesuffix(b"\n").split(b"\n")
    matches = {number: found.start() for number, line in enumerate(lines) if (found := wanted.search(line)) is not None}
    if not matches:
        return b""
    shown = {near for number in matches for near in range(number - context, number + context + 1)}
    told = [
        b"%d:%d:%b" % (number + 1, matches[number] + 1, lines[number])
        if number in matches
        else b"%d-%b" % (number + 1, lines[number])
        for number in sorted(shown & set(range(len(lines))))
    ]
    return name.encode("utf-8", "surrogateescape") + b"\0" + b"\n".join(told) + b"\n"
