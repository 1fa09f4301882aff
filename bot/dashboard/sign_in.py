"""Sign people in: by the operator's token, or by GitHub. A sign-in is an encrypted cookie; the server keeps none."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from cryptography.fernet import Fernet, InvalidToken
from pydantic import SecretStr, TypeAdapter, ValidationError

SIGN_IN_SECONDS = 8 * 3600
"""For how long a sign-in lasts; GitHub's tokens for people expire then, too."""

_ATTEMPTS, _ATTEMPTS_SECONDS = 20, 60.0
_MOST_ADDRESSES = 10_000
_MOST_SIGNED_OUT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A sign-in, as it stands in its cookie.

    Attributes:
        id: names it.
        form: the value that forms of its pages repeat.
        until: when it ends, in seconds since the epoch.
        login: the person's on GitHub; empty for the operator, who sees all repositories.
        token: the token that GitHub gave for the person.
    """

    id: str
    form: str
    until: float
    login: str = ""
    token: str = ""


_SIGN_IN = TypeAdapter(SignIn)


class SignIns:
    """Makes and reads sign-ins.

    Args:
        key: 32 bytes that encrypt the cookies.
        token: the operator's; None where nobody can sign in by one.
        clock: seconds since the epoch.
    """

    def __init__(self, key: bytes, token: SecretStr | None, *, clock: Callable[[], float] = time.time) -> None:
        self._sealed = Fernet(base64.urlsafe_b64encode(key))
        self._token, self._clock = token, clock
        self._attempts: dict[str, deque[float]] = {}
        self._signed_out: dict[str, float] = {}

    @property
    def by_token(self) -> bool:
        """Whether somebody can sign in by a token."""
        return self._token is not None

    def may_try(self, address: str) -> bool:
        """Whether one more attempt may be made from an address; it is counted."""
        now = self._clock()
        made = self._attempts.pop(address, None) or deque[float]()
        while made and made[0] <= now - _ATTEMPTS_SECONDS:
            made.popleft()
        allowed = len(made) < _ATTEMPTS
        if allowed:
            made.append(now)
        self._attempts[address] = made
        while len(self._attempts) > _MOST_ADDRESSES:
            del self._attempts[next(iter(self._attempts))]
        return allowed

    def is_operator(self, shown: str) -> bool:
        """Whether a text is the operator's token."""
        if self._token is None:
            return False
        expected = self._token.get_secret_value().encode()
        return hmac.compare_digest(shown.encode(errors="surrogateescape"), expected)

    def new(self, *, login: str = "", token: str = "") -> str:
        """A cookie with a new sign-in, of the operator unless a person is named."""
        made = SignIn(
            id=secrets.token_urlsafe(16),
            form=secrets.token_urlsafe(16),
            until=self._clock() + SIGN_IN_SECONDS,
            login=login,
            token=token,
        )
        return self.seal(asdict(made))

    def read(self, cookie: str) -> SignIn | None:
        """The sign-in of a cookie; None for one that is not ours, is over or was signed out."""
        try:
            found = _SIGN_IN.validate_python(self.unseal(cookie))
        except ValidationError:
            return None
        if found.until <= self._clock() or found.id in self._signed_out or (not found.login and not self.by_token):
            return None
        return found

    def end(self, sign_in: SignIn) -> None:
        """Let a sign-in count no more in this process, even if its cookie is sent again."""
        now = self._clock()
        self._signed_out = {each: until for each, until in self._signed_out.items() if until > now}
        if len(self._signed_out) < _MOST_SIGNED_OUT:
            self._signed_out[sign_in.id] = sign_in.until

    def seal(self, values: dict[str, str | float]) -> str:
        """Values that nobody else can read or make."""
        return self._sealed.encrypt(json.dumps(values).encode()).decode()

    def unseal(self, text: str) -> object:
        """What was sealed; None for anything else."""
        try:
            return json.loads(self._sealed.decrypt(text.encode(errors="replace")))
        except (InvalidToken, ValueError):
            return None
