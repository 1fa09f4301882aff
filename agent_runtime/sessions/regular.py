"""Opening files of a session, in a directory where somebody else may have put links, pipes or devices."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def opened(path: Path, flags: int) -> int:
    """A descriptor of a regular file; what `flags` creates is its owner's alone.

    Raises:
        OSError: it is a link, a pipe, a device or a directory; or it cannot be opened.
    """
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file")
