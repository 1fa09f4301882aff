"""Servers that speak TLS on the loopback, under made-up names and a certificate authority of the tests' own."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A certificate authority.

    Attributes:
        pem: its certificate, for clients to trust.
        server: what a server with a certificate for its names needs.
    """

    pem: Path
    server: ssl.SSLContext


def authority(folder: Path, *names: str) -> Authority:
    """An authority, and a server's certificate for `names` signed by it; its files lie in `folder`."""
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "The tests' authority")])
    root = _certificate(root_name, root_name, root_key.public_key(), root_key, ca=True, names=())
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    leaf = _certificate(root_name, leaf_name, key.public_key(), root_key, ca=False, names=names)
    pem, chain, secret = folder / "ca.pem", folder / "chain.pem", folder / "key.pem"
    pem.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    chain.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, secret)
    return Authority(pem=pem, server=context)


@asynccontextmanager
async def serving(app: web.Application, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Serve `app` on a free port of the loopback, over TLS if there is a context; the port."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=context)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _certificate(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    names: tuple[str, ...],
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
    return made.sign(signer, hashes.SHA256())
