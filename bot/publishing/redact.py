"""The one choke point that takes secrets out of text, before every sink. Pure, and linear in the text's length."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from typing_extensions import override

MARK = "[redacted]"

_PIECE = 12
_SHORTEST = 6
# Every quantifier is possessive and every start anchored to a word's edge, so that no text takes more than linear time.
_SHAPES = (
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)",
    # Since 2026 installation tokens carry the App's id and a JWT, with dots, about 520 characters in all:
    # https://docs.github.com/authentication/keeping-your-account-and-data-secure/about-authentication-to-github
    r"(?<![A-Za-z0-9])ghs_[A-Za-z0-9_.-]{20,}+",
    r"(?<![A-Za-z0-9])gh[pour]_[A-Za-z0-9]{20,}+",
    r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{20,}+",
    r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}+",
    r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",
    r"(?<![\w-])eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+(?:\.[\w-]*+)?",
)
_PATTERNS = re.compile("|".join(_SHAPES))
_ARMOUR = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")


class Redactor:
    """Takes known secrets, their encoded forms, pieces of them, and anything shaped like a token out of text.

    A piece is any 12 characters in a row; shorter ones cannot be told from ordinary words.

    Args:
        secrets: exact values; those under 6 characters are passed over, since they would blot out ordinary text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._whole: set[str] = set()
        self._pieces: set[str] = set()
        self._exact: re.Pattern[str] | None = None
        for secret in secrets:
            self.learn(secret)

    @override
    def __repr__(self) -> str:
        return f"Redactor({len(self._pieces)} pieces)"

    def learn(self, secret: str) -> None:
        """Know one more secret, e.g. a token that was minted just now."""
        if secret in self._secrets:
            return
        self._secrets.add(secret)
        for line in _lines(secret):
            for form in _forms(line):
                self._learn(form)
        if self._whole:
            self._exact = re.compile("|".join(map(re.escape, sorted(self._whole, key=len, reverse=True))))

    def copy(self) -> Redactor:
        """Another redactor that knows the same, and learns on its own."""
        other = Redactor()
        other._secrets |= self._secrets
        other._whole |= self._whole
        other._pieces |= self._pieces
        other._exact = self._exact
        return other

    def redact(self, text: str) -> str:
        """Give back `text` with every secret replaced by `[redacted]`."""
        return _PATTERNS.sub(MARK, self.redact_known(text))

    def redact_known(self, text: str) -> str:
        """The same for known secrets alone, where what only looks like one belongs, e.g. in the files of a test."""
        text = self._without_pieces(text)
        return self._exact.sub(MARK, text) if self._exact is not None else text

    def holds(self, text: str) -> bool:
        """Whether a known secret, a form or a piece of one stands in `text`; mere shapes of tokens do not count."""
        return next(self._spans(text), None) is not None or bool(self._exact and self._exact.search(text))

    def stream(self) -> RedactedStream:
        """A view of this redactor for text that arrives in chunks."""
        return RedactedStream(self)

    def _learn(self, form: str) -> None:
        if len(form) < _SHORTEST:
            return
        if len(form) < _PIECE:
            self._whole.add(form)
        self._pieces.update(form[i : i + _PIECE] for i in range(len(form) - _PIECE + 1))

    def _without_pieces(self, text: str) -> str:
        kept: list[str] = []
        position = 0
        for start, end in self._spans(text):
            kept += (text[position:start], MARK)
            position = end
        return "".join((*kept, text[position:])) if kept else text

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where secrets or their pieces stand; overlapping and adjoining ones are one span."""
        pieces = self._pieces
        if not pieces:
            return
        start = end = -1
        for i in range(len(text) - _PIECE + 1):
            if text[i : i + _PIECE] not in pieces:
                continue
            if i > end:
                if end >= 0:
                    yield start, end
                start = i
            end = i + _PIECE
        if end >= 0:
            yield start, end


class RedactedStream:
    """Redacts text that arrives in chunks, wherever a secret is cut: words are held back until they are whole."""

    _HOLD = 4096

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Take a chunk; give back what can be shown already."""
        self._held += chunk
        cut = self._safe_cut()
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._redactor.redact(ready)

    def close(self) -> str:
        """Give back the rest."""
        ready, self._held = self._held, ""
        return self._redactor.redact(ready)

    def _safe_cut(self) -> int:
        """Where no secret can span: after the last white space, before a key block that is still open."""
        begun = self._held.rfind("-----BEGIN ")
        limit = begun if begun >= 0 and "-----END " not in self._held[begun:] else len(self._held)
        cut = max(self._held.rfind(space, 0, limit) for space in " \n\t") + 1
        # A word without end is no secret; showing none of it would hold back a whole binary file.
        return cut if len(self._held) - cut <= self._HOLD or begun >= 0 else len(self._held) - self._HOLD // 2


def _lines(secret: str) -> Iterator[str]:
    # A key's armour is the same in every key and would blot out any text about keys.
    for line in _ARMOUR.sub("\n", secret.replace("\\n", "\n")).splitlines():
        if line.strip():
            yield line.strip()


def _forms(secret: str) -> Iterator[str]:
    raw = secret.encode()
    yield secret
    yield secret[::-1]
    yield raw.hex()
    yield raw.hex().upper()
    yield quote(secret, safe="")
    yield "".join(f"%{byte:02x}" for byte in raw)
    yield "".join(f"%{byte:02X}" for byte in raw)
    for skipped in range(3):
        yield from _base64(raw, skipped)


def _base64(raw: bytes, skipped: int) -> Iterator[str]:
    """The characters that depend on the secret alone when it stands `skipped` bytes into a base64 group."""
    shifted = b"\0" * skipped + raw
    first = -(-skipped * 8 // 6)
    last = len(shifted) * 8 // 6
    yield base64.b64encode(shifted).decode()[first:last]
    yield base64.urlsafe_b64encode(shifted).decode()[first:last]
