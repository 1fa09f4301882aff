"""The secret that paused runs are signed with, when the caller gives none."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from agent_runtime.core.errors import SettingsError
from agent_runtime.processes.user_directories import home

_BYTES = 32
_WRITING_SECONDS = 1.0
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What file systems without hard links answer; see link(2)."""


def default_key_file() -> Path:
    """Where this user's key lies; apart from the sessions, whose files may be shared or moved.

    Raises:
        SettingsError: this user has no home directory.
    """
    lacking = "The key that signs paused runs cannot be stored"
    return home(lacking, otherwise="pass `state_key`") / ".codepilot" / "state.key"


def state_key(path: Path) -> bytes:
    """The key in a file; a new one is made when there is none.

    Raises:
        SettingsError: it cannot be read or made, is too short, or is not its owner's alone.
    """
    try:
        with suppress(FileNotFoundError):
            return _read(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(path)
        return _read(path)
    except OSError as error:
        raise SettingsError(
            f"The key that signs paused runs, {path}, cannot be used: {error.strerror}. Fix that, or pass `state_key`."
        ) from error


def checked_key(key: bytes) -> bytes:
    """A caller's own key.

    Raises:
        SettingsError: it is too short to be a secret.
    """
    if len(key) < _BYTES // 2:
        raise SettingsError(f"`state_key` has {len(key)} bytes; give at least {_BYTES // 2} random ones.")
    return key


class StateKey:
    """The secret that a runtime signs paused runs with, made or read when it is first needed."""

    def __init__(self, given: bytes | None, *, lasting: bool, work_dir: Path) -> None:
        """Settle where it comes from.

        Args:
            given: the caller's own, if there is one.
            lasting: whether a later process is to go on with what is paused; else a key that nobody keeps will do.
            work_dir: what the agent can read, and so must not hold the key.

        Raises:
            SettingsError: the key is too short, would lie in `work_dir`, or has no place.
        """
        self._key = None if given is None else checked_key(given)
        self._lasting = lasting
        if given is None and lasting and default_key_file().resolve().is_relative_to(work_dir.resolve()):
            raise SettingsError(
                f"The agent works in {work_dir}, which holds {default_key_file()}, the key that approvals are signed "
                "with. Choose a directory below it, or pass `state_key`."
            )

    def __call__(self) -> bytes:
        """The key.

        Raises:
            SettingsError: its file cannot be used.
        """
        if self._key is None:
            self._key = state_key(default_key_file()) if self._lasting else secrets.token_bytes(_BYTES)
        return self._key


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{path} can be read or changed by others; run: chmod 600 {path}")
        deadline = time.monotonic() + _WRITING_SECONDS
        while len(key := file.read()) < _BYTES // 2 and time.monotonic() < deadline:
            time.sleep(0.01)  # another process is about to write it; see `_make`
            file.seek(0)
    if len(key) < _BYTES // 2:
        raise SettingsError(f"{path} is too short for a key; delete it, and reset the paused sessions.")
    return key


def _make(path: Path) -> None:
    """Write a new key under another name first: a second process must never read half of it."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    _write(draft)
    try:
        os.link(draft, path)
    except FileExistsError:  # another process was quicker; its key is as good
        pass
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with suppress(FileExistsError):  # as above; a process that reads it before it is written waits a moment
            _write(path)
    finally:
        draft.unlink()


def _write(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
        file.flush()
        os.fsync(file.fileno())
