"""Who the App is, for PyGithub."""

from __future__ import annotations

from functools import lru_cache

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from github import Auth


def app_auth(app_id: int | str, private_key: str) -> Auth.AppAuth:
    """The App's identity; every request as the App itself is signed anew.

    Args:
        app_id: the App's.
        private_key: the App's, in PEM.
    """
    return Auth.AppAuth(
        app_id, sign_func=lambda payload: jwt.encode(payload, _signing_key(private_key), algorithm="RS256")
    )


@lru_cache(maxsize=4)
def _signing_key(pem: str) -> RSAPrivateKey:
    """The key, read once: each reading tests its primes, for tens of milliseconds of which other jobs get nothing."""
    key = jwt.get_algorithm_by_name("RS256").prepare_key(pem)
    if not isinstance(key, RSAPrivateKey):
        raise jwt.InvalidKeyError("the App's private key is a public one")
    return key
