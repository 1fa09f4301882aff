"""Sources of published packages, downloaded with pip and npm."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path


def unpacked(folder: Path, requirement: str) -> Path:
    """The source of `pip: NAME==VERSION` or `npm: NAME@VERSION`, unpacked into a folder, unless it is there."""
    tool, _, wanted = requirement.partition(": ")
    place = folder / re.sub(r"\W+", "-", wanted)
    if not place.exists():
        download = folder / "download"
        download.mkdir(parents=True)
        if tool == "pip":
            argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", ".", wanted]
        else:
            argv = ["npm", "pack", wanted]
        subprocess.run(argv, cwd=download, check=True, capture_output=True)
        (archive,) = (*download.glob("*.tar.gz"), *download.glob("*.tgz"))
        with tarfile.open(archive) as packed:
            packed.extractall(download / "files", filter="data")
        (only,) = (download / "files").iterdir()
        only.rename(place)
        shutil.rmtree(download)
    return place
