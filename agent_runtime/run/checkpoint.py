"""Suspended runs as signed and encrypted text.

Write access to a session's store must not be enough to change what an approval approves: the key is outside it.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import json
import os
import secrets
import stat
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from agent_runtime.core.errors import ResumeCode, ResumeError, SettingsError
from agent_runtime.core.events import Paused, Recorded
from agent_runtime.core.values import PendingCall, Plain, TransportName
from agent_runtime.processes.spawn import home_dir
from agent_runtime.sessions.codec import encode

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_FORMAT = 2
_BYTES = 32
_WRITE_SECONDS = 1.0
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of file systems without hard links; see link(2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStep:
    """State of a suspended run."""

    session_id: str
    """The run's session."""
    run_id: str
    """The run."""
    pending: PendingCall
    """The call that waits."""
    step: int
    """Number of the current step."""
    call: int
    """Number of the call."""
    seconds: float
    """Run time so far."""
    log: str
    """`digest_log` the events before the pause."""
    output: dict[str, Plain]
    """Output of the step so far."""
    calls: dict[str, Plain]
    """State of the calls, from the transport."""
    files: dict[str, Plain]
    """State of the file tools and the transport."""
    manifest: dict[str, Plain]
    """Digests of the workspace's files."""
    terminals: list[str]
    """Names of live terminals."""
    reply: str = ""
    """The encoded reply if the log has a scrubbed one."""


def seal(saved: SavedStep, key: bytes) -> Paused:
    """Return the event that stores a suspended run; `key` has at least 16 bytes."""
    packed = zlib.compress(json.dumps(asdict(saved)).encode())
    transport = saved.calls.get("transport", "blocks")
    sealed = _cipher(key).encrypt(packed).decode("ascii")
    state = json.dumps({"format": _FORMAT, "transport": transport, "sealed": sealed}, separators=(",", ":"))
    return Paused(pending=saved.pending, state=state, signature=_signature(state, key))


def unseal(paused: Paused, key: bytes, *, session_id: str, run_id: str, log: str) -> SavedStep:
    """Verify a suspended run and return its state.

    `log` is the digest of the other events: only the answer may follow a pause.

    Raises:
        ResumeError: it was altered or moved, or the key differs.
    """
    if not hmac.compare_digest(_signature(paused.state, key).encode(), _bytes(paused.signature)):
        raise ResumeError(ResumeCode.ALTERED, request=paused.pending.request_id)
    state: dict[str, Any] = json.loads(paused.state)
    if (version := state["format"]) != _FORMAT:
        raise ResumeError(ResumeCode.FORMAT, request=paused.pending.request_id, found=version, known=_FORMAT)
    data: dict[str, Any] = json.loads(zlib.decompress(_cipher(key).decrypt(state["sealed"])))
    saved = SavedStep(**data | {"pending": PendingCall(**data["pending"])})
    moved = {
        "session": saved.session_id != session_id,
        "run": saved.run_id != run_id,
        "request shown": _canonical(paused.pending) != _canonical(saved.pending),
        "conversation": saved.log != log,
    }
    if mismatches := [name for name, differs in moved.items() if differs]:
        raise ResumeError(ResumeCode.MOVED, request=saved.pending.request_id, parts=" and the ".join(mismatches))
    return saved


def read_transport(paused: Paused) -> TransportName | None:
    """Return the transport of an unverified suspended run."""
    try:
        name = json.loads(paused.state)["transport"]
    except (ValueError, TypeError, KeyError):
        return None
    return name if name in get_args(TransportName) else None


def digest_log(events: Iterable[Recorded]) -> str:
    digest = hashlib.sha256()
    for event in events:
        digest.update(encode(event) + b"\n")
    return digest.hexdigest()


class StateKey:
    """Signing key of a runtime, created or read on first use."""

    def __init__(self, key: bytes | None, *, persistent: bool, work_dir: Path) -> None:
        """Select the key; a temporary one suffices unless it is `persistent`. The agent must not be able to read it."""
        if key is not None and len(key) < _BYTES // 2:
            raise SettingsError(f"`state_key` has {len(key)} bytes; give at least {_BYTES // 2} random ones.")
        self._key = key
        self._persistent = persistent
        if key is None and persistent and default_key_file().resolve().is_relative_to(work_dir.resolve()):
            raise SettingsError(
                f"The agent works in {work_dir}, which holds {default_key_file()}, the key that approvals are signed "
                "with. Choose a directory below it, or pass `state_key`."
            )

    def __call__(self) -> bytes:
        if self._key is None:
            self._key = load_key(default_key_file()) if self._persistent else secrets.token_bytes(_BYTES)
        return self._key


def default_key_file() -> Path:
    problem = "The key that signs paused runs cannot be stored"
    return home_dir(problem, remedy="pass `state_key`") / ".codepilot" / "state.key"


def load_key(path: Path) -> bytes:
    """Return the key in a file, which is created if missing.

    Raises:
        SettingsError: the file is unusable or accessible to others.
    """
    try:
        with suppress(FileNotFoundError):
            return _read(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Write it under a temporary name first: no process must read half of it.
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        _write(draft)
        try:
            os.link(draft, path)
        except FileExistsError:  # another process created it first
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with suppress(FileExistsError):  # as above; `_read` waits until it is written
                _write(path)
        finally:
            draft.unlink()
        return _read(path)
    except OSError as error:
        raise SettingsError(
            f"The key that signs paused runs, {path}, cannot be used: {error.strerror}. Fix that, or pass `state_key`."
        ) from error


def _cipher(key: bytes) -> Fernet:
    from cryptography.fernet import Fernet  # noqa: PLC0415 - only suspended runs need it

    return Fernet(base64.urlsafe_b64encode(hmac.digest(key, b"codepilot paused step encrypted", "sha256")))


def _signature(state: str, key: bytes) -> str:
    return hmac.new(key, b"codepilot paused step\0" + _bytes(state), "sha256").hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _canonical(pending: PendingCall) -> str:
    """Serialise for comparison, independent of tuples and key order."""
    return json.dumps(asdict(pending), sort_keys=True)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{path} can be read or changed by others; run: chmod 600 {path}")
        deadline = time.monotonic() + _WRITE_SECONDS
        while len(key := file.read()) < _BYTES // 2 and time.monotonic() < deadline:
            time.sleep(0.01)  # another process is about to write it; see `load_key`
            file.seek(0)
    if len(key) < _BYTES // 2:
        raise SettingsError(f"{path} is too short for a key; delete it, and reset the paused sessions.")
    return key


def _write(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
        file.flush()
        os.fsync(file.fileno())
