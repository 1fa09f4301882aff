"""Directories that are hard to remove, as hostile code in a sandbox leaves them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def nest(folder: Path, depth: int, name: str = "d" * 50) -> None:
    """Make `depth` directories below one another, with a file at the bottom, whose path nothing can spell."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=held)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=held)
        os.close(held)
        held = below
    os.close(os.open("bottom", os.O_WRONLY | os.O_CREAT, dir_fd=held))
    os.close(held)


def freeze(path: Path, *, frozen: bool = True) -> bool:
    """Make a file immutable, or mutable again; False where that cannot be done."""
    if shutil.which("chattr") is None:
        return False
    done = subprocess.run(["chattr", "+i" if frozen else "-i", str(path)], capture_output=True, check=False)
    return done.returncode == 0
