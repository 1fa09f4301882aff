"""The machine-readable output of `git diff-tree -z` to values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["added", "modified", "deleted"]

_KINDS: dict[bytes, Kind] = {b"A": "added", b"M": "modified", b"T": "modified", b"D": "deleted"}
_ABSENT = "000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawChange:
    """One record of `--raw`.

    Attributes:
        path: as git stores it.
        status: what happened; a change of type (file to link) is a modification.
        old_mode: empty when added.
        new_mode: empty when deleted.
        blob: the new content's id, zeros when deleted.
    """

    path: bytes
    status: Kind
    old_mode: str
    new_mode: str
    blob: str


def parse_raw(output: bytes) -> list[RawChange]:
    """Parse `git diff-tree -r -z --raw` between two trees, in git's order.

    The format is in git-diff-tree(1), "Raw output format": `:mode mode id id status NUL path NUL`.
    """
    fields = output.split(b"\0")[:-1]
    changes: list[RawChange] = []
    for meta, path in zip(fields[::2], fields[1::2], strict=True):
        old, new, _, blob, status = meta.removeprefix(b":").split(b" ")
        changes.append(
            RawChange(
                path=path,
                status=_KINDS[status[:1]],
                old_mode=_mode(old),
                new_mode=_mode(new),
                blob=blob.decode(),
            )
        )
    return changes


def parse_numstat(output: bytes) -> dict[bytes, tuple[int, int] | None]:
    """Parse `git diff-tree -r -z --numstat`: lines added and removed by path, None for a binary file."""
    counts: dict[bytes, tuple[int, int] | None] = {}
    for record in output.split(b"\0")[:-1]:
        added, removed, path = record.split(b"\t", 2)
        counts[path] = None if added == b"-" else (int(added), int(removed))
    return counts


def _mode(field: bytes) -> str:
    mode = field.decode()
    return "" if mode == _ABSENT else mode
