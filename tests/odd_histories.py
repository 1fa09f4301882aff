"""Histories with one object in them that git's own check objects to, written past that check."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from tests.origin import Origin

WHO = b"Mona <mona@example.com> 1700000000 +0000"
_NULL = bytes(20)


def with_author(line: bytes) -> Callable[[Origin], str]:
    """A commit whose author and committer are written so."""
    return lambda origin: _commit(origin, _tree(origin), author=line, committer=line)


def with_message(message: bytes) -> Callable[[Origin], str]:
    """A commit with this message."""
    return lambda origin: _commit(origin, _tree(origin), message=message)


def with_tree(*entries: tuple[bytes, bytes, bytes | None]) -> Callable[[Origin], str]:
    """A commit whose tree has these entries: mode, name, and a blob's content; None for the id that is all zeros."""
    return lambda origin: _commit(origin, _tree(origin, *entries))


def two_authors(origin: Origin) -> str:
    """A commit with two lines that name an author."""
    return _commit(origin, _tree(origin), author=WHO + b"\nauthor " + WHO)


def two_links(origin: Origin) -> str:
    """A tree with a link and a directory of the same name, by which a careless checkout writes outside."""
    below = _object(origin, "tree", _entry(b"100644", b"file", _blob(origin, b"evil")))
    link = _entry(b"120000", b"a", _blob(origin, b"../outside"))
    return _commit(origin, _object(origin, "tree", link + _entry(b"40000", b"a", below)))


def follow(origin: Origin, *odd: str) -> str:
    """A sound commit on top of odd ones, on the branch `main`."""
    sha = _commit(origin, _tree(origin, (b"100644", b"a.txt", b"sound\n")), parents=odd)
    origin.git("update-ref", "refs/heads/main", sha)
    return sha


def _commit(
    origin: Origin,
    tree: str,
    *,
    author: bytes = WHO,
    committer: bytes = WHO,
    message: bytes = b"Odd\n",
    parents: Sequence[str] = (),
) -> str:
    lines = [b"tree " + tree.encode(), *(b"parent " + parent.encode() for parent in parents)]
    lines += [b"author " + author, b"committer " + committer, b"", message]
    return _object(origin, "commit", b"\n".join(lines))


def _tree(origin: Origin, *entries: tuple[bytes, bytes, bytes | None]) -> str:
    records = [_entry(mode, name, _NULL.hex() if text is None else _blob(origin, text)) for mode, name, text in entries]
    return _object(origin, "tree", b"".join(records))


def _entry(mode: bytes, name: bytes, sha: str) -> bytes:
    return mode + b" " + name + b"\0" + bytes.fromhex(sha)


def _blob(origin: Origin, content: bytes) -> str:
    return _object(origin, "blob", content)


def _object(origin: Origin, kind: str, content: bytes) -> str:
    command = ["git", "-C", str(origin.path), "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
    return subprocess.run(command, input=content, check=True, capture_output=True).stdout.decode().strip()
