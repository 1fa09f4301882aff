"""A job that waits for a person, sealed for another workflow run: nobody else can read it, change it or make one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.fernet import Fernet, InvalidToken
from pydantic import ConfigDict, TypeAdapter

from bot.domain.errors import BotError
from bot.domain.job import Job
from bot.engine.facts import record_of_facts
from bot.workspace.carrying import Carried

MAX_SEALED_BYTES = 24 * 1024 * 1024
_MAX_OPEN_BYTES = 160 * 1024 * 1024
_FORMAT = 2
_FORMAT_WITH_FACTS = 1


class SealError(BotError):
    """A sealed job cannot be used; the text says why, in one sentence."""


class OtherKeyError(SealError):
    """It was not sealed with this key, or it was altered since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob:
    """All that another machine needs to go on.

    Attributes:
        job: what was asked.
        request_id: the request that somebody has to answer.
        until: seconds since the epoch at which it is too late to.
        record: what is recorded of the job, as `encode_record` writes it.
        session: the files of its session, by their names.
        patch: what is kept of a finished run's change; None when it is not finished.
        work: what it has changed in its files, when it is not.
        comment: the digest of the status comment's text, while that waits for the answer.
        format: of this value.
    """

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    job: Job
    request_id: str
    until: float
    record: str
    session: Mapping[str, bytes]
    patch: bytes | None
    work: Carried
    comment: str
    format: int = field(default=_FORMAT)


_SAVED = TypeAdapter(SavedJob)


def seal(saved: SavedJob, key: bytes) -> bytes:
    """The job as bytes that only who has the key can read, and make.

    Raises:
        SealError: it is too large.
    """
    sealed = Fernet(_fernet_key(key)).encrypt(zlib.compress(_SAVED.dump_json(saved)))
    if len(sealed) > MAX_SEALED_BYTES:
        raise SealError(
            f"The state of the run has {len(sealed):,} bytes; the limit for a waiting workflow run is "
            f"{MAX_SEALED_BYTES:,}. Split the task."
        )
    return sealed


def unseal(sealed: bytes, key: bytes, *, repo_id: int, thread: int) -> SavedJob:
    """The job again, if it is one of this thread.

    Raises:
        SealError: it was made with another key, altered, or is of another place or version.
    """
    try:
        # Nothing is unpacked or parsed that was not made with the key.
        packed = Fernet(_fernet_key(key)).decrypt(sealed)
    except InvalidToken as error:
        raise OtherKeyError("it was made with another key, or was altered") from error
    opened = zlib.decompressobj()
    try:
        content = json.loads(opened.decompress(packed, _MAX_OPEN_BYTES))
        if content.get("format") == _FORMAT_WITH_FACTS:
            content |= {"format": _FORMAT, "record": record_of_facts(content.pop("facts"))}
        saved = _SAVED.validate_json(json.dumps(content))
    except ValueError as error:
        raise SealError("another version of Codepilot made it") from error
    if saved.format != _FORMAT:
        raise SealError("another version of Codepilot made it")
    if (saved.job.repo.id, saved.job.thread.key) != (repo_id, thread):
        raise SealError("it belongs to another thread")
    return saved


def digest_of(text: str) -> str:
    """What a comment's text is compared by."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fernet_key(key: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(key, b"sealed job", hashlib.sha256))
