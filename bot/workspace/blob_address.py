"""Open the blob store at an address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from bot.domain.errors import ConfigError
from bot.workspace.blobs import BlobAccess, BlobStore, DirectoryBlobs


def open_blobs(url: str, access: BlobAccess | None = None) -> BlobStore:
    """The store at `file:///directory` or `s3://bucket/prefix`; nothing is asked of a service yet.

    Raises:
        ConfigError: the address needs what is not installed.
        StorageError: the directory cannot be made.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return DirectoryBlobs(Path(unquote(parts.path)))
    try:
        from bot.workspace.s3_blobs import S3Blobs  # noqa: PLC0415 - a workflow's step does not install it
    except ModuleNotFoundError as error:
        raise ConfigError(
            (f"CODEPILOT_STORAGE_URL={url} needs the extra `service`; run: pip install 'codepilot-bot[service]'",)
        ) from error
    return S3Blobs(parts.netloc, parts.path.strip("/"), access or BlobAccess())
