"""Find the failures in a saved log. Runs in a worker process, because it reads strangers' bytes from a file."""

from __future__ import annotations

import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bot.red_ci.excerpts.table import excerpt, is_signal
from bot.red_ci.log import Moment, failing_lines

_CHUNK_BYTES = 256 * 1024
_MOST_ENTRIES = 20_000
# What no file of a zip is called: https://github.com/cli/cli/blob/trunk/pkg/cmd/run/view/logs.go
_NO_NAME = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_NAME_CHARS = 90
_NUMBERED = re.compile(r"-?\d+_(.*)\.txt", re.DOTALL)


def digest(path: str, moments: list[Moment], limit: int) -> tuple[str, int]:
    """The excerpt of a job's log, and how many failures it has beside those in it.

    Args:
        path: the log.
        moments: when the job's failed steps ran.
        limit: characters of the excerpt.
    """
    lines: list[str] = []
    # Where GitHub's times are not those of the log, all of it counts.
    for times in (moments, []):
        with Path(path).open("rb") as log:
            lines = lines or failing_lines(_chunks(log), times, is_signal=is_signal)
    return excerpt(lines, limit)


def digest_of_zip(path: str, job: str, moments: list[Moment], limit: int, most: int) -> tuple[str, int]:
    """`digest`, of a job in the zip file of a run's logs.

    Args:
        path: the zip file.
        job: the job's name.
        moments: when its failed steps ran.
        limit: characters of the excerpt.
        most: bytes that are unpacked.

    Raises:
        ValueError: it is no zip file, or has no log of that job.
    """
    lines: list[str] = []
    try:
        with zipfile.ZipFile(path) as archive:
            member = _member(archive, job)
            for times in (moments, []):
                with archive.open(member) as log:
                    lines = lines or failing_lines(_chunks(log, most), times, is_signal=is_signal)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError("the zip file of the logs cannot be read") from error
    return excerpt(lines, limit)


def _member(archive: zipfile.ZipFile, job: str) -> zipfile.ZipInfo:
    members = archive.infolist()
    if len(members) > _MOST_ENTRIES:
        raise ValueError(f"the zip file has more than {_MOST_ENTRIES:,} files")
    for each in members:
        numbered = _NUMBERED.fullmatch(each.filename)
        if numbered is not None and _file_name(numbered[1]) == _file_name(job):
            return each
    raise ValueError("the zip file has no log of this job")


def _file_name(job: str) -> str:
    """A job's name as far as a file's name shows it."""
    return _NO_NAME.sub("", job)[:_NAME_CHARS].strip()


def _chunks(log: IO[bytes], most: int = sys.maxsize) -> Iterator[bytes]:
    """The bytes piece by piece; no more than `most` of them, however many there are."""
    while chunk := log.read(min(_CHUNK_BYTES, most)):
        most -= len(chunk)
        yield chunk
