"""Read the one file of an artifact's zip. Runs in a worker process: anybody may have made it. Pure but for the file."""

from __future__ import annotations

import zipfile
import zlib

_MOST_ENTRIES = 100


def member_of(path: str, name: str, most: int) -> bytes:
    """What a zip file holds under a name; nothing is unpacked to the disk, and no more than `most` bytes at all.

    Args:
        path: the zip file.
        name: of the member, exactly.
        most: bytes that it may have.

    Raises:
        ValueError: it is no such zip file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > _MOST_ENTRIES:
                raise ValueError(f"it has more than {_MOST_ENTRIES} files")
            with archive.open(name) as member:
                content = member.read(most + 1)
    except KeyError as error:
        raise ValueError(f"it has no file {name}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError("it is not a readable zip file") from error
    if len(content) > most:
        raise ValueError(f"its file has more than {most:,} bytes")
    return content
