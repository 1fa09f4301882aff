"""Copies directories with `cp`, which knows how to have the file system share the bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from bot.workspace.process import ProcessBounds, run


async def cp(source: Path, target: Path, names: Sequence[str], *, times: bool = False) -> str:
    """Copy some names of a directory into another one; links are copied as links.

    Args:
        source: the directory.
        target: an existing directory; nothing of these names is in it.
        names: of files and directories in `source`.
        times: whether the copies keep the times at which their files were changed.

    Returns:
        What `cp` had to complain of, or nothing.
    """
    kept = ("--preserve=timestamps",) if times else ()
    ended = await run(
        (shutil.which("cp") or "cp", "-r", "-P", "--reflink=auto", *kept, "-t", str(target), "--", *names),
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        bounds=ProcessBounds(),
        cwd=source,
    )
    return "" if ended.code == 0 else ended.said.strip()[:500] or "cp gave no reason"
