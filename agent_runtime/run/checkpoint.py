"""A run that was stopped in the middle of a step, as encrypted and signed text.

Write access to a session's store must not be enough to change what an approval approves. So the text is signed, with
a key that does not lie in the store, and names all that the call depends on: the session, the run, the request, the
call itself, where the transport stands, the files' content, and the whole log before it. It is encrypted, because the
rest of the step needs what the model wrote, with the secrets that are scrubbed from the log.
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
from typing import TYPE_CHECKING, Any

from agent_runtime.core.errors import ResumeCode, ResumeError, SettingsError
from agent_runtime.core.events import Paused, Recorded
from agent_runtime.core.values import PendingCall, Plain, TransportName
from agent_runtime.processes.spawn import home_dir
from agent_runtime.sessions.codec import encode

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_FORMAT = 2
_BYTES = 32
_WRITING_SECONDS = 1.0
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What file systems without hard links answer; see link(2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStep:
    """Where a paused run stands.

    Attributes:
        session_id: of the session that the run belongs to.
        run_id: of the run.
        pending: the call that waits, whole.
        step: the step that it stands in.
        call: the number of the call that waits.
        seconds: wall time that the run has used.
        log: `digest_of` the events before the pause.
        shown: what the step has shown so far.
        calls: where the step's calls stand, as the transport told it; stored as `interpreter`.
        files: what the file tools know, and what they and the transport have done in this step.
        manifest: the workspace's files and their digests.
        terminals: names of the terminals that were alive.
        reply: the step's reply as the model wrote it, encoded, where the log has it without secrets; else empty.
    """

    session_id: str
    run_id: str
    pending: PendingCall
    step: int
    call: int
    seconds: float
    log: str
    shown: dict[str, Plain]
    calls: dict[str, Plain]
    files: dict[str, Plain]
    manifest: dict[str, Plain]
    terminals: list[str]
    reply: str = ""


def seal(saved: SavedStep, key: bytes) -> Paused:
    """The event that keeps a run until somebody answers.

    Args:
        saved: where the run stands.
        key: a secret of this installation, at least 16 bytes.
    """
    packed = zlib.compress(json.dumps(asdict(saved)).encode())
    transport = saved.calls.get("transport", "blocks")
    sealed = _cipher(key).encrypt(packed).decode("ascii")
    state = json.dumps({"format": _FORMAT, "transport": transport, "sealed": sealed}, separators=(",", ":"))
    return Paused(pending=saved.pending, state=state, signature=_signature(state, key))


def unseal(paused: Paused, key: bytes, *, session_id: str, run_id: str, log: str) -> SavedStep:
    """Check a paused run, and give where it stands.

    Args:
        paused: as it is in the session's log.
        key: the one that it was sealed with.
        session_id: the session that it was read from.
        run_id: the run that it was found in.
        log: `digest_of` all the other events in the log: nothing may follow a pause but what its answer brings.

    Raises:
        ResumeError: it was altered, moved here from elsewhere, or signed with another key.
    """
    if not hmac.compare_digest(_signature(paused.state, key).encode(), _bytes(paused.signature)):
        raise ResumeError(ResumeCode.ALTERED, request=paused.pending.request_id)
    state: dict[str, Any] = json.loads(paused.state)
    if (found := state["format"]) != _FORMAT:
        raise ResumeError(ResumeCode.FORMAT, request=paused.pending.request_id, found=found, known=_FORMAT)
    told: dict[str, Any] = json.loads(zlib.decompress(_cipher(key).decrypt(state["sealed"])))
    saved = SavedStep(**told | {"pending": PendingCall(**told["pending"])})
    moved = {
        "session": saved.session_id != session_id,
        "run": saved.run_id != run_id,
        "request shown": _text(paused.pending) != _text(saved.pending),
        "conversation": saved.log != log,
    }
    if wrong := [name for name, differs in moved.items() if differs]:
        raise ResumeError(ResumeCode.MOVED, request=saved.pending.request_id, parts=" and the ".join(wrong))
    return saved


def transport_of(paused: Paused) -> TransportName | None:
    """The transport that a paused run was suspended with, before its signature is checked; None where none is told."""
    try:
        told = json.loads(paused.state)["transport"]
    except (ValueError, TypeError, KeyError):
        return None
    return "tools" if told == "tools" else "blocks"


def digest_of(events: Iterable[Recorded]) -> str:
    """One hash over a log. Messages would not do: two replies may make the same message as one."""
    digest = hashlib.sha256()
    for event in events:
        digest.update(encode(event) + b"\n")
    return digest.hexdigest()


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
        if given is not None and len(given) < _BYTES // 2:
            raise SettingsError(f"`state_key` has {len(given)} bytes; give at least {_BYTES // 2} random ones.")
        self._key = given
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


def default_key_file() -> Path:
    """Where this user's key lies; apart from the sessions, whose files may be shared or moved.

    Raises:
        SettingsError: this user has no home directory.
    """
    lacking = "The key that signs paused runs cannot be stored"
    return home_dir(lacking, remedy="pass `state_key`") / ".codepilot" / "state.key"


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


def _cipher(key: bytes) -> Fernet:
    from cryptography.fernet import Fernet  # noqa: PLC0415 - only a run that waits pays for it

    return Fernet(base64.urlsafe_b64encode(hmac.digest(key, b"codepilot paused step encrypted", "sha256")))


def _signature(state: str, key: bytes) -> str:
    return hmac.new(key, b"codepilot paused step\0" + _bytes(state), "sha256").hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(pending: PendingCall) -> str:
    """For comparing: JSON makes lists of tuples, and keeps no order of keys that would mean anything."""
    return json.dumps(asdict(pending), sort_keys=True)


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
