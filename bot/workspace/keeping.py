"""The state of a workspace when it was given to the agent, on disk beside its trusted git directory.

It is written before the agent starts, not when the job begins to wait: whenever the process dies, it is there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bot.workspace.changed import Baseline
from bot.workspace.scan import ScannedFile, Stamp

_FILE = "given.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A checked-out commit.

    Attributes:
        base_sha: the commit.
        blobs: path to blob id of every file in it.
        baseline: its files as they were written.
    """

    base_sha: str
    blobs: dict[str, str]
    baseline: Baseline


def save(trusted: Path, given: Given) -> None:
    """Write it to a directory that no sandbox may reach, whole or not at all."""
    baseline = given.baseline
    document = {
        "base_sha": given.base_sha,
        "blobs": given.blobs,
        "modes": {_text(path): mode for path, mode in baseline.modes.items()},
        "entries": {_text(path): [entry.mode, *entry.stamp] for path, entry in baseline.entries.items()},
        "left_out": sorted(map(_text, baseline.left_out)),
        "taken": sorted(map(_text, baseline.taken)),
        "restored": {_text(path): [*stamp, changed] for path, (stamp, changed) in baseline.restored.items()},
    }
    partial = trusted / f"{_FILE}.partial"
    partial.write_text(json.dumps(document))
    partial.replace(trusted / _FILE)


def load(trusted: Path) -> Given:
    """Read it again.

    Raises:
        OSError: it is not there.
        ValueError: it is damaged.
    """
    document = json.loads((trusted / _FILE).read_text())
    try:
        baseline = Baseline(
            modes={_bytes(path): str(mode) for path, mode in document["modes"].items()},
            entries={
                _bytes(path): ScannedFile(str(mode), _stamp(stamp))
                for path, (mode, *stamp) in document["entries"].items()
            },
            left_out=frozenset(map(_bytes, document["left_out"])),
            taken=frozenset(map(_bytes, document["taken"])),
            # An earlier version wrote none.
            restored={
                _bytes(path): (_stamp(stamp), int(changed))
                for path, (*stamp, changed) in document.get("restored", {}).items()
            },
        )
        return Given(base_sha=str(document["base_sha"]), blobs=dict(document["blobs"]), baseline=baseline)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{trusted / _FILE} is incomplete: {error}") from error


def _stamp(values: list[object]) -> Stamp:
    inode, size, modified, changed, mode = (int(str(each)) for each in values)
    return inode, size, modified, changed, mode


# JSON spells the half surrogate pairs by which Python writes bytes that are no UTF-8.
def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
