"""Remove secrets from text before any output, in linear time."""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate

from typing_extensions import override

MARK = "[redacted]"

_FRAGMENT = 12
_SHORTEST = 6
# Only every fourth fragment of a rare encoding is stored, to save memory; 15 of its characters always contain one.
_STRIDE = 4
# Each fragment contains a gram of 6 characters at one of every seven offsets, so only those offsets are searched.
_GRAM = 6
_STEP = _FRAGMENT - _GRAM + 1
# A key may have the prefixes of listings, diffs and quotations between its lines. It does not extend to the end of the
# text, or a forged first line could hide all that follows.
_KEY_GAP = r"(?:\\[nrt]|\x1b\[[0-9;]{0,9}m|[0-9]{1,7}(?![A-Za-z0-9/=])|(?!-----END )[^A-Za-z0-9/=<\\]){0,60}+/?"
_KEY_HEAD = r"(?:Proc-Type: [0-9],[A-Z]{1,20}|DEK-Info: [A-Z0-9-]{1,30},[0-9A-Fa-f]{1,64})"
_KEY_LINE = r"(?:[A-Za-z0-9+/=]{16,}+|\[redacted\])"
_KEY = (
    rf"-----BEGIN [A-Z ]{{0,30}}PRIVATE KEY-----(?:{_KEY_GAP}{_KEY_HEAD}){{0,2}}+(?:{_KEY_GAP}{_KEY_LINE}){{0,1000}}+"
    rf"(?:(?:{_KEY_GAP}[A-Za-z0-9+/=]{{1,15}}){{0,2}}{_KEY_GAP}-----END [A-Z ]{{0,30}}PRIVATE KEY-----"
    rf"|{_KEY_GAP}[A-Za-z0-9+/]{{1,15}}={{1,2}})?"
)
# Possessive quantifiers and starts at word boundaries keep the time linear.
_SHAPES = (
    _KEY,
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


_MIN_RANDOM_CHARS = 12
_PREFIX = re.compile(r"gh[a-z]_|github_pat_(?:11)?|sk-(?:[a-z]{2,8}(?:[0-9]{2})?-){0,3}")
# https://datatracker.ietf.org/doc/html/rfc7519#section-3: header, claims and signature; the last alone is random. An
# encrypted one has five parts (https://datatracker.ietf.org/doc/html/rfc7516#section-3), random but for the header.
_SIGNED_JWT = re.compile(r"(?:^|_)eyJ[\w-]*\.[\w-]*\.(?P<random>[\w-]+)$", re.ASCII)
_ENCRYPTED_JWT = re.compile(r"(?:^|_)eyJ[\w-]*\.(?P<random>[\w-]*\.[\w-]*\.[\w-]+\.[\w-]+)$", re.ASCII)
_ARMOUR = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")
# The longest common prefix of keys: an RSA key in PKCS #8 up to the modulus.
_KEY_INTRODUCTION = 52
# The exponent 65537 with its surroundings in an RSA key, at each of the three base64 alignments.
_EXPONENT = re.compile("AgMBAAECggEB?A?|IDAQABAoIBAQ?|CAwEAAQKCAQE?")


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder for text that consists of encoded parts.

    Attributes:
        part: pattern whose group is a part; a match without the group is a gap.
    """

    part: re.Pattern[str]
    decode: Callable[[str], str] = str

    def join(self, text: str, start: int, end: int) -> str:
        return "".join(map(self.decode, self.part.findall(text, start, end)))

    def locate(self, text: str, start: int, end: int, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        parts = [found.span(1) for found in self.part.finditer(text, start, end) if found[1]]
        sizes = [len(self.decode(text[first:last])) for first, last in parts]
        ends = [*accumulate(sizes)]

        def place(index: int) -> tuple[int, int]:
            number = bisect_right(ends, index)
            first, last = parts[number]
            if last - first == sizes[number]:
                first += index - ends[number] + sizes[number]
                last = first + 1
            return first, last

        for begin, after in spans:
            yield place(begin)[0], place(after - 1)[1]


_HEX = "[0-9a-fA-F]"
_ESCAPE = (
    rf"(?:\\{{1,8}}+(?:[xX]{_HEX}{{2}}|u00{_HEX}{{2}}|U0{{6}}{_HEX}{{2}}|u\{{0{{0,4}}{_HEX}{{2}}\}}|[0-3][0-7]{{2}})"
    rf"|%(?:u00)?{_HEX}{{2}}|&#(?:[xX]0{{0,4}}{_HEX}{{2}}|0{{0,4}}[0-9]{{2,3}});?)"
)
_IS_ESCAPE = re.compile(_ESCAPE)
_OCTAL = re.compile(r"\\[0-3][0-7]{2}$")
_DECIMAL = re.compile(r"&#([0-9]+)")
_NUMBER = r"[0-9]{2,3}+"
_LETTER = r"[A-Za-z0-9+/_-]"
_COLOUR = r"\x1b\[[0-9;]{0,9}m"


def _unescape(part: str) -> str:
    if not _IS_ESCAPE.fullmatch(part):
        return part
    if decimal := _DECIMAL.match(part):
        return chr(int(decimal[1]))
    return chr(int(part[-3:], 8) if _OCTAL.search(part) else int(part.rstrip("};")[-2:], 16))


def _to_character(base: int, digits: str) -> str:
    try:
        return chr(int(digits, base))
    except ValueError:
        return "\n"


def _line_gap(margin: str) -> str:
    """Build a pattern for the gap between lines of a quotation, listing, diff, terminal or program."""
    return (
        rf"(?:{_COLOUR}|[^A-Za-z0-9+/_\n\\-]){{0,12}}+(?:\\[rn]|\r?\n)"
        rf"(?:\\[nrt]|{_COLOUR}|[0-9]{{1,7}}(?![A-Za-z0-9/=+_-])|{margin}){{0,40}}+"
    )


_PLAIN_GAP, _DIFF_GAP = map(_line_gap, (r"[^A-Za-z0-9+/_\\-]", r"[^A-Za-z0-9/_\\]"))
# Possessive quantifiers, and runs that cannot begin inside another, keep the time linear.
_PART_ENCODINGS: dict[str, tuple[re.Pattern[str], tuple[Decoder, ...]]] = {
    "escapes": (
        re.compile(rf"\A(?:[^\\%&]++|(?!{_ESCAPE}).)*+{_ESCAPE}.*+", re.DOTALL),
        (Decoder(re.compile(rf"({_ESCAPE}|[^\\%&]++|.)", re.DOTALL), _unescape),),
    ),
    "hexadecimal": (
        re.compile(rf"(?<![0-9A-Za-z])(?:0[xX])?+{_HEX}{{2,}}+(?:[^0-9A-Za-z]{{1,16}}+(?:0[xX])?+{_HEX}{{2,}}+)++"),
        (Decoder(re.compile(rf"0[xX]|({_HEX}++)"), str.lower),),
    ),
    "numbers": (
        re.compile(rf"(?<![0-9]){_NUMBER}(?:[^0-9]{{1,8}}+{_NUMBER}){{{_SHORTEST - 1},}}+"),
        tuple(Decoder(re.compile(rf"({_NUMBER})"), lru_cache(partial(_to_character, base))) for base in (8, 10)),
    ),
    "lines": (
        re.compile(rf"(?<!{_LETTER}){_LETTER}{{4,}}+(?:{_DIFF_GAP}{_LETTER}++)++"),
        tuple(Decoder(re.compile(rf"{gap}|({_LETTER}++)")) for gap in (_PLAIN_GAP, _DIFF_GAP)),
    ),
}
"""Ways to write a secret in parts with gaps; `plain_forms` has the contiguous ones."""


class Redactor:
    """Removes known secrets, their encoded forms and fragments, and strings shaped like tokens.

    A fragment is any 12 consecutive characters. Prefixes that tokens and keys have in common are not secret.

    Args:
        secrets: exact values; those under 6 characters are ignored, since they would match ordinary text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._short_forms: set[str] = set()
        self._fragments: set[str] = set()
        self._grams: set[str] = set()
        # Fragments and grams shared with copies: a private key's take 10 MB.
        self._common = (frozenset[str](), frozenset[str]())
        self._alphabet: set[str] = set()
        self._exact: re.Pattern[str] | None = None
        self._run_pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.add_secret(secret)

    @override
    def __repr__(self) -> str:
        return f"Redactor({len(self._common[0] | self._fragments)} pieces)"

    def add_secret(self, secret: str) -> None:
        if secret in self._secrets:
            return
        self._secrets.add(secret)
        for part in random_parts(secret):
            for form in plain_forms(part):
                self._add_form(form, stride=1)
            for form in rare_encodings(part):
                self._add_form(form, stride=_STRIDE)
        alphabet = re.escape("".join(sorted(self._alphabet)))
        self._run_pattern = re.compile(f"[{alphabet}]{{{_FRAGMENT},}}") if alphabet else None
        if self._short_forms:
            self._exact = re.compile("|".join(map(re.escape, sorted(self._short_forms, key=len, reverse=True))))

    def copy(self) -> Redactor:
        if self._fragments:
            self._common = (self._common[0] | self._fragments, self._common[1] | self._grams)
            self._fragments, self._grams = set(), set()
        clone = Redactor()
        clone._secrets |= self._secrets
        clone._short_forms |= self._short_forms
        clone._common = self._common
        clone._alphabet |= self._alphabet
        clone._exact, clone._run_pattern = self._exact, self._run_pattern
        return clone

    def redact(self, text: str) -> str:
        return _PATTERNS.sub(MARK, self.redact_known(text)).replace(MARK + MARK, MARK)

    def redact_known(self, text: str) -> str:
        """Replace only known secrets, for content with token-like text, e.g. test files."""
        chunks: list[str] = []
        position = 0
        for start, end in sorted([*self._spans(text), *self._encoded_spans(text)]):
            if start > position or not chunks:
                chunks += (text[position:start], MARK)
            position = max(position, end)
        text = "".join((*chunks, text[position:])) if chunks else text
        return self._exact.sub(MARK, text) if self._exact is not None else text

    def has_secret(self, text: str) -> bool:
        """Whether the text contains a known secret, an encoded form or a fragment; token shapes do not count."""
        if next(self._offsets(text), None) is not None or bool(self._exact and self._exact.search(text)):
            return True
        if next(self._encoded_spans(text), None) is not None:
            return True
        # A file in UTF-16, read byte by byte.
        return "\0" in text and self.has_secret(text.replace("\0", ""))

    def _add_form(self, form: str, *, stride: int) -> None:
        if len(form) < _SHORTEST:
            return
        if len(form) < _FRAGMENT:
            self._short_forms.add(form)
            return
        last = len(form) - _FRAGMENT
        self._alphabet.update(form)
        self._fragments.update(form[i : i + _FRAGMENT] for i in (*range(0, last, stride), last))
        self._grams.update(form[i : i + _GRAM] for i in range(len(form) - _GRAM + 1))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        start = end = -1
        for i in self._offsets(text):
            if i > end:
                if end >= 0:
                    yield start, end
                start = i
            end = i + _FRAGMENT
        if end >= 0:
            yield start, end

    def _encoded_spans(self, text: str) -> Iterator[tuple[int, int]]:
        for run, decoders in _PART_ENCODINGS.values() if self._secrets else ():
            for start, end in (found.span() for found in run.finditer(text)):
                for decoder in decoders:
                    joined = decoder.join(text, start, end)
                    exact = self._exact.finditer(joined) if self._exact is not None else ()
                    if spans := [*self._spans(joined), *(found.span() for found in exact)]:
                        yield from decoder.locate(text, start, end, spans)

    def _offsets(self, text: str) -> Iterator[int]:
        fragments, grams = self._common
        for run in self._run_pattern.finditer(text) if self._run_pattern is not None else ():
            last = run.end() - _FRAGMENT
            for offset in range(run.start(), run.end() - _GRAM + 1, _STEP):
                if (gram := text[offset : offset + _GRAM]) in grams or gram in self._grams:
                    candidates = range(max(run.start(), offset - _STEP + 1), min(offset, last) + 1)
                    slices = ((i, text[i : i + _FRAGMENT]) for i in candidates)
                    yield from (i for i, fragment in slices if fragment in fragments or fragment in self._fragments)


def plain_forms(secret: str) -> Iterator[str]:
    """Yield the secret itself, reversed, in either case, in JSON, hexadecimal and base64."""
    raw = secret.encode()
    yield from {
        secret,
        secret.upper(),
        secret.lower(),
        raw.decode("latin-1"),  # as files are read
        *(json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)),
    }
    yield secret[::-1]
    yield raw.hex()
    yield raw.hex().upper()
    yield from _base64_forms(raw)


def rare_encodings(secret: str) -> Iterator[str]:
    """Yield the secret in base32, in double base64, and in base64 of UTF-16 (PowerShell's encoded commands)."""
    raw = secret.encode()
    yield from _base32_forms(raw)
    for inner in _base64_forms(raw):
        yield from _base64_forms(inner.encode())
    # Big-endian is the same bytes, one later.
    yield from _base64_forms(secret.encode("utf-16-le"))


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the base64 characters that depend on the secret alone, at each alignment of three bytes."""
    forms = set[str]()
    for shift in range(3):
        shifted = bytes(shift) + raw
        first, last = -(-shift * 8 // 6), len(shifted) * 8 // 6
        forms.add(base64.b64encode(shifted).decode()[first:last])
        forms.add(base64.urlsafe_b64encode(shifted).decode()[first:last])
    yield from forms


def _base32_forms(raw: bytes) -> Iterator[str]:
    for shift in range(5):
        shifted = bytes(shift) + raw
        first, last = -(-shift * 8 // 5), len(shifted) * 8 // 5
        form = base64.b32encode(shifted).decode()[first:last]
        yield form
        yield form.lower()


def random_parts(secret: str) -> list[str]:
    """Return the parts of a secret that differ between secrets; all of it if these are too short."""
    lines = [line.strip() for line in _ARMOUR.sub("\n", secret.replace("\\n", "\n")).splitlines()]
    lines = [line for line in lines if line]
    if _ARMOUR.search(secret):
        bodies = [lines[0][_KEY_INTRODUCTION:], *lines[1:]] if len(lines) > 1 else lines
        parts = [part for body in bodies for part in _EXPONENT.split(body) if part]
    else:
        parts = [part for line in lines for part in _random_token_parts(line)]
    return parts if any(len(part) >= _MIN_RANDOM_CHARS for part in parts) else lines


def _random_token_parts(line: str) -> Iterator[str]:
    if jwt := _SIGNED_JWT.search(line):
        yield jwt["random"]
    elif jwe := _ENCRYPTED_JWT.search(line):
        yield from jwe["random"].split(".")
    elif line:
        yield line[prefix.end() :] if (prefix := _PREFIX.match(line)) else line
