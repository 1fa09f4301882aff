"""Remove secrets from text before every output; nothing else does. Pure, and linear in the text's length."""

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

_PIECE = 12
_SHORTEST = 6
# Of a rare disguise every fourth piece is kept, so that what a token costs in memory stays small; 15 characters of one
# always hold such a piece.
_STRIDE = 4
# Any piece holds one of the text's grams of 6 characters at every seventh place, so only those are looked at.
_GRAM = 6
_STEP = _PIECE - _GRAM + 1
# A key is what looks like one, with what listings, diffs and quotations put between its lines. Were it all up to the
# end of the text, anybody who writes such a first line would blot out what stands behind it.
_KEY_GAP = r"(?:\\[nrt]|\x1b\[[0-9;]{0,9}m|[0-9]{1,7}(?![A-Za-z0-9/=])|(?!-----END )[^A-Za-z0-9/=<\\]){0,60}+/?"
_KEY_HEAD = r"(?:Proc-Type: [0-9],[A-Z]{1,20}|DEK-Info: [A-Z0-9-]{1,30},[0-9A-Fa-f]{1,64})"
_KEY_LINE = r"(?:[A-Za-z0-9+/=]{16,}+|\[redacted\])"
_KEY = (
    rf"-----BEGIN [A-Z ]{{0,30}}PRIVATE KEY-----(?:{_KEY_GAP}{_KEY_HEAD}){{0,2}}+(?:{_KEY_GAP}{_KEY_LINE}){{0,1000}}+"
    rf"(?:(?:{_KEY_GAP}[A-Za-z0-9+/=]{{1,15}}){{0,2}}{_KEY_GAP}-----END [A-Z ]{{0,30}}PRIVATE KEY-----"
    rf"|{_KEY_GAP}[A-Za-z0-9+/]{{1,15}}={{1,2}})?"
)
# Every quantifier is possessive and every start anchored to a word's edge, so that no text takes more than linear time.
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


_ENOUGH = 12
_PREFIX = re.compile(r"gh[a-z]_|github_pat_(?:11)?|sk-(?:[a-z]{2,8}(?:[0-9]{2})?-){0,3}")
# https://datatracker.ietf.org/doc/html/rfc7519#section-3: header, claims and signature; the last alone is random. An
# encrypted one has five parts (https://datatracker.ietf.org/doc/html/rfc7516#section-3), random but for the header.
_SIGNED = re.compile(r"(?:^|_)eyJ[\w-]*\.[\w-]*\.(?P<random>[\w-]+)$", re.ASCII)
_ENCRYPTED = re.compile(r"(?:^|_)eyJ[\w-]*\.(?P<random>[\w-]*\.[\w-]*\.[\w-]+\.[\w-]+)$", re.ASCII)
_ARMOUR = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")
# The longest beginning that keys share: that of an RSA key in PKCS #8, up to the first byte of the modulus.
_KEY_INTRODUCTION = 52
# The exponent 65537 and what stands around it in an RSA key, at each of the three places in a group of base64.
_EXPONENT = re.compile("AgMBAAECggEB?A?|IDAQABAoIBAQ?|CAwEAAQKCAQE?")


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to read the parts of which a text consists.

    Attributes:
        part: its group is a part; a match without it is a gap.
        spell: returns the text that a part stands for, of the part's length or one character.
    """

    part: re.Pattern[str]
    spell: Callable[[str], str] = str

    def join(self, text: str, start: int, end: int) -> str:
        """Return the text that a run of parts stands for."""
        return "".join(map(self.spell, self.part.findall(text, start, end)))

    def locate(self, text: str, start: int, end: int, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield where spans of a joined run stand in the text."""
        parts = [found.span(1) for found in self.part.finditer(text, start, end) if found[1]]
        sizes = [len(self.spell(text[first:last])) for first, last in parts]
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


def _character(base: int, digits: str) -> str:
    try:
        return chr(int(digits, base))
    except ValueError:
        return "\n"


def _line_gap(margin: str) -> str:
    """Return a pattern for what stands between the lines of a quotation, a listing, a diff, a terminal or a program.

    Args:
        margin: the characters that may stand before a line, besides numbers and colours, as a class.
    """
    return (
        rf"(?:{_COLOUR}|[^A-Za-z0-9+/_\n\\-]){{0,12}}+(?:\\[rn]|\r?\n)"
        rf"(?:\\[nrt]|{_COLOUR}|[0-9]{{1,7}}(?![A-Za-z0-9/=+_-])|{margin}){{0,40}}+"
    )


_PLAIN_GAP, _DIFF_GAP = map(_line_gap, (r"[^A-Za-z0-9+/_\\-]", r"[^A-Za-z0-9/_\\]"))
# Each run begins where no earlier part can have begun, and each quantifier is possessive: that takes linear time.
_SPELLINGS: dict[str, tuple[re.Pattern[str], tuple[Reading, ...]]] = {
    "escapes": (
        re.compile(rf"\A(?:[^\\%&]++|(?!{_ESCAPE}).)*+{_ESCAPE}.*+", re.DOTALL),
        (Reading(re.compile(rf"({_ESCAPE}|[^\\%&]++|.)", re.DOTALL), _unescape),),
    ),
    "hexadecimal": (
        re.compile(rf"(?<![0-9A-Za-z])(?:0[xX])?+{_HEX}{{2,}}+(?:[^0-9A-Za-z]{{1,16}}+(?:0[xX])?+{_HEX}{{2,}}+)++"),
        (Reading(re.compile(rf"0[xX]|({_HEX}++)"), str.lower),),
    ),
    "numbers": (
        re.compile(rf"(?<![0-9]){_NUMBER}(?:[^0-9]{{1,8}}+{_NUMBER}){{{_SHORTEST - 1},}}+"),
        tuple(Reading(re.compile(rf"({_NUMBER})"), lru_cache(partial(_character, base))) for base in (8, 10)),
    ),
    "lines": (
        re.compile(rf"(?<!{_LETTER}){_LETTER}{{4,}}+(?:{_DIFF_GAP}{_LETTER}++)++"),
        tuple(Reading(re.compile(rf"{gap}|({_LETTER}++)")) for gap in (_PLAIN_GAP, _DIFF_GAP)),
    ),
}
"""Besides the forms of a secret (`plain_forms`), ways to write it in parts, between which anything may stand."""


class Redactor:
    """Takes known secrets, their encoded forms, pieces of them, and anything shaped like a token out of text.

    A piece is any 12 characters in a row; shorter ones cannot be told from ordinary words. What tokens and keys have in
    common with others of their kind is no secret, and known nowhere.

    Args:
        secrets: exact values; those under 6 characters are passed over, since they would blot out ordinary text.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._whole: set[str] = set()
        self._pieces: set[str] = set()
        self._grams: set[str] = set()
        # The pieces and grams that copies have in common: a private key's take 10 MB.
        self._shared = (frozenset[str](), frozenset[str]())
        self._letters: set[str] = set()
        self._exact: re.Pattern[str] | None = None
        self._runs: re.Pattern[str] | None = None
        for secret in secrets:
            self.learn(secret)

    @override
    def __repr__(self) -> str:
        return f"Redactor({len(self._shared[0] | self._pieces)} pieces)"

    def learn(self, secret: str) -> None:
        """Know one more secret, e.g. a token that was minted just now."""
        if secret in self._secrets:
            return
        self._secrets.add(secret)
        for part in random_parts(secret):
            for form in plain_forms(part):
                self._learn(form, stride=1)
            for form in disguises(part):
                self._learn(form, stride=_STRIDE)
        letters = re.escape("".join(sorted(self._letters)))
        self._runs = re.compile(f"[{letters}]{{{_PIECE},}}") if letters else None
        if self._whole:
            self._exact = re.compile("|".join(map(re.escape, sorted(self._whole, key=len, reverse=True))))

    def copy(self) -> Redactor:
        """Another redactor that knows the same, and learns on its own."""
        if self._pieces:
            self._shared = (self._shared[0] | self._pieces, self._shared[1] | self._grams)
            self._pieces, self._grams = set(), set()
        other = Redactor()
        other._secrets |= self._secrets
        other._whole |= self._whole
        other._shared = self._shared
        other._letters |= self._letters
        other._exact, other._runs = self._exact, self._runs
        return other

    def redact(self, text: str) -> str:
        """Give back `text` with every secret replaced by `[redacted]`."""
        return _PATTERNS.sub(MARK, self.redact_known(text)).replace(MARK + MARK, MARK)

    def redact_known(self, text: str) -> str:
        """The same for known secrets alone, where what only looks like one belongs, e.g. in the files of a test."""
        kept: list[str] = []
        position = 0
        for start, end in sorted([*self._spans(text), *self._spelled(text)]):
            if start > position or not kept:
                kept += (text[position:start], MARK)
            position = max(position, end)
        text = "".join((*kept, text[position:])) if kept else text
        return self._exact.sub(MARK, text) if self._exact is not None else text

    def holds(self, text: str) -> bool:
        """Whether a known secret, a form or a piece of one is in `text`; mere shapes of tokens do not count."""
        if next(self._found(text), None) is not None or bool(self._exact and self._exact.search(text)):
            return True
        if next(self._spelled(text), None) is not None:
            return True
        # A file in UTF-16, read byte by byte.
        return "\0" in text and self.holds(text.replace("\0", ""))

    def _learn(self, form: str, *, stride: int) -> None:
        if len(form) < _SHORTEST:
            return
        if len(form) < _PIECE:
            self._whole.add(form)
            return
        last = len(form) - _PIECE
        self._letters.update(form)
        self._pieces.update(form[i : i + _PIECE] for i in (*range(0, last, stride), last))
        self._grams.update(form[i : i + _GRAM] for i in range(len(form) - _GRAM + 1))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where secrets or their pieces stand; overlapping and adjoining ones are one span."""
        start = end = -1
        for i in self._found(text):
            if i > end:
                if end >= 0:
                    yield start, end
                start = i
            end = i + _PIECE
        if end >= 0:
            yield start, end

    def _spelled(self, text: str) -> Iterator[tuple[int, int]]:
        """Where secrets or their pieces stand in parts."""
        for run, readings in _SPELLINGS.values() if self._secrets else ():
            for start, end in (found.span() for found in run.finditer(text)):
                for reading in readings:
                    joined = reading.join(text, start, end)
                    exact = self._exact.finditer(joined) if self._exact is not None else ()
                    if spans := [*self._spans(joined), *(found.span() for found in exact)]:
                        yield from reading.locate(text, start, end, spans)

    def _found(self, text: str) -> Iterator[int]:
        """Where pieces begin, in order."""
        pieces, grams = self._shared
        for run in self._runs.finditer(text) if self._runs is not None else ():
            last = run.end() - _PIECE
            for near in range(run.start(), run.end() - _GRAM + 1, _STEP):
                if (gram := text[near : near + _GRAM]) in grams or gram in self._grams:
                    around = range(max(run.start(), near - _STEP + 1), min(near, last) + 1)
                    cut = ((i, text[i : i + _PIECE]) for i in around)
                    yield from (i for i, piece in cut if piece in pieces or piece in self._pieces)


def plain_forms(secret: str) -> Iterator[str]:
    """The secret, turned round, in either case, in JSON, in hexadecimal, and in base64."""
    raw = secret.encode()
    yield from {
        secret,
        secret.upper(),
        secret.lower(),
        raw.decode("latin-1"),  # as files are read
        *(json.dumps(secret, ensure_ascii=no)[1:-1] for no in (True, False)),
    }
    yield secret[::-1]
    yield raw.hex()
    yield raw.hex().upper()
    yield from _base64(raw)


def disguises(secret: str) -> Iterator[str]:
    """The secret in base32, in base64 twice, and in base64 of UTF-16, in which PowerShell takes commands."""
    raw = secret.encode()
    yield from _base32(raw)
    for inner in _base64(raw):
        yield from _base64(inner.encode())
    # Big-endian is the same bytes, one later.
    yield from _base64(secret.encode("utf-16-le"))


def _base64(raw: bytes) -> Iterator[str]:
    """The characters that depend on the secret alone, wherever in a group of three bytes it begins."""
    found = set[str]()
    for skipped in range(3):
        shifted = bytes(skipped) + raw
        first, last = -(-skipped * 8 // 6), len(shifted) * 8 // 6
        found.add(base64.b64encode(shifted).decode()[first:last])
        found.add(base64.urlsafe_b64encode(shifted).decode()[first:last])
    yield from found


def _base32(raw: bytes) -> Iterator[str]:
    """The same for groups of five bytes."""
    for skipped in range(5):
        shifted = bytes(skipped) + raw
        first, last = -(-skipped * 8 // 5), len(shifted) * 8 // 5
        form = base64.b32encode(shifted).decode()[first:last]
        yield form
        yield form.lower()


def random_parts(secret: str) -> list[str]:
    """What to look for; all of the secret where nothing in it is known to be common, or too little would be left."""
    lines = [line.strip() for line in _ARMOUR.sub("\n", secret.replace("\\n", "\n")).splitlines()]
    lines = [line for line in lines if line]
    if _ARMOUR.search(secret):
        bodies = [lines[0][_KEY_INTRODUCTION:], *lines[1:]] if len(lines) > 1 else lines
        parts = [part for body in bodies for part in _EXPONENT.split(body) if part]
    else:
        parts = [part for line in lines for part in _of_token(line)]
    return parts if any(len(part) >= _ENOUGH for part in parts) else lines


def _of_token(line: str) -> Iterator[str]:
    if jwt := _SIGNED.search(line):
        yield jwt["random"]
    elif jwe := _ENCRYPTED.search(line):
        yield from jwe["random"].split(".")
    elif line:
        yield line[opening.end() :] if (opening := _PREFIX.match(line)) else line
