"""Addresses that give something out to whoever has them, for a few minutes: attachments and logs."""

from __future__ import annotations

from datetime import timedelta

import jwt

from localhub.site import Site

LIFE = timedelta(minutes=5)


def signed(site: Site, path: str) -> str:
    """The address of a path, signed."""
    claims = {"path": path, "exp": int((site.now() + LIFE).timestamp())}
    return f"{site.url}{path}?jwt={jwt.encode(claims, site.store.signing_key, algorithm='HS256')}"


def is_signed(site: Site, path: str, signature: str) -> bool:
    """Whether a signature is of this path, and still good."""
    try:
        claims = jwt.decode(signature, site.store.signing_key, algorithms=["HS256"], options={"verify_exp": False})
    except jwt.InvalidTokenError:
        return False
    return bool(claims["path"] == path and claims["exp"] > site.now().timestamp())
