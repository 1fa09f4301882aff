"""An S3 server of the tests' own: on the loopback, on a free port, in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer
from pydantic import SecretStr

from bot.git.blobs import BlobAccess

BUCKET = "codepilot-tests"
KEY = "not-a-real-secret-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3:
    """A running server with one bucket."""

    port: int

    @property
    def access(self) -> BlobAccess:
        """How to reach it."""
        return BlobAccess(
            access_key_id="tester",
            secret_access_key=SecretStr(KEY),
            region="us-east-1",
            endpoint=f"http://127.0.0.1:{self.port}",
        )


@contextmanager
def running() -> Iterator[S3]:
    """Start a server and stop it again."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        with urlopen(Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")):
            yield S3(port=port)
    finally:
        server.stop()
