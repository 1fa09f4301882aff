"""Who the App is and what an installation lets it do, for PyGithub."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from github import Auth
from typing_extensions import override

from bot.github.session import Token, TokenStore

log = logging.getLogger(__name__)

_TOLERATED_SECONDS = 30
"""The difference between two clocks that is not worth a correction."""


class AppIdentity(Auth.AppAuth):
    """The App's identity; every request as the App itself is signed anew, by GitHub's clock where ours is wrong.

    Args:
        app_id: the App's.
        private_key: the App's, in PEM.
    """

    def __init__(self, app_id: int | str, private_key: str) -> None:
        super().__init__(app_id, sign_func=self._signed)
        self._private_key = private_key
        self._ahead = 0

    def correct_clock(self, date: str) -> bool:
        """Learn from GitHub's `Date` header how far our clock is off; False when it is not, or there is no date."""
        try:
            ahead = round(parsedate_to_datetime(date).timestamp() - time.time())
        except ValueError:
            return False
        if abs(ahead - self._ahead) <= _TOLERATED_SECONDS:
            return False
        self._ahead = ahead
        log.warning(
            "this machine's clock is %d s %s GitHub's, which refuses the App's tokens for that; they are signed for "
            "GitHub's time from now on. Set the clock, e.g. `timedatectl set-ntp true`",
            abs(ahead),
            "behind" if ahead > 0 else "ahead of",
        )
        return True

    def now(self) -> datetime:
        """GitHub's time, as far as it is known."""
        return datetime.now(UTC) + timedelta(seconds=self._ahead)

    def _signed(self, payload: dict[str, Any]) -> str:
        times = {name: payload[name] + self._ahead for name in ("iat", "exp")}
        return jwt.encode({**payload, **times}, _signing_key(self._private_key), algorithm="RS256")


class InstallationAuth(Auth.AppInstallationAuth):
    """PyGithub's own, with tokens that all clients of the installation share.

    Args:
        app: who we are.
        installation_id: GitHub's number of the installation.
        tokens: where its tokens are kept.
        minted: told of each token before it is used, so that it is taken out of whatever leaves.
    """

    def __init__(
        self, app: AppIdentity, installation_id: int, *, tokens: TokenStore, minted: Callable[[str], None]
    ) -> None:
        super().__init__(app, installation_id)
        self.tokens = tokens
        self._app = app
        self._minted = minted
        self._used = ""
        self._proven = ""

    @property
    @override
    def token(self) -> str:
        self._used = self.tokens.get((), self._mint)
        self._minted(self._used)
        return self._used

    def made(self, value: str, expires_at: datetime) -> Token:
        """A token that was minted just now; GitHub says by its own clock when it expires."""
        return Token.lasting((expires_at - self._app.now()).total_seconds(), value)

    def refused(self, *, outright: bool) -> bool:
        """Whether to ask again with a new token, now that GitHub refused the one that was used last."""
        return self.tokens.refused(self._used, outright=outright, proven=self._used == self._proven)

    def wrote(self) -> None:
        """Take note that the token which was used last may write where this client writes: in its job's repository."""
        self._proven = self._used

    def _mint(self) -> Token:
        made = self._get_installation_authorization()
        return self.made(made.token, made.expires_at)


def app_auth(app_id: int | str, private_key: str) -> AppIdentity:
    """See `AppIdentity`."""
    return AppIdentity(app_id, private_key)


@lru_cache(maxsize=4)
def _signing_key(pem: str) -> RSAPrivateKey:
    """The key, read once: each reading tests its primes, for tens of milliseconds of which other jobs get nothing."""
    key = jwt.get_algorithm_by_name("RS256").prepare_key(pem)
    if not isinstance(key, RSAPrivateKey):
        raise jwt.InvalidKeyError("the App's private key is a public one")
    return key
