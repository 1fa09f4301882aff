"""Redaction of secrets in whole, in fragments and in encodings."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bot.publishing.redact import MARK, Redactor

SECRET = "wh00k+s3cret/valu3=with&signs"
REDACTOR = Redactor([SECRET])


_KEY = (
    "-----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,F2D4E6A1B2C3D4E5", "",
    *("MIIEow9+" * 8, "Q0lq/" * 9 + "abc", "9" * 64, "+/" * 32, "aB3="), "-----END RSA PRIVATE KEY-----",
)  # fmt: skip
KEYS = (
    "\n".join(_KEY),
    "\r\n".join(_KEY),
    "\\n".join(_KEY),
    " ".join(_KEY),
    '", "'.join(_KEY),
    '\\n"\n    "'.join(_KEY),
    "\n> ".join(_KEY),
    "\n+".join(_KEY),
    "\x1b[0m\n\x1b[32m+".join(_KEY),
    "".join(f"{'' if number == 1 else f'{number:>6} + '}{line}\n" for number, line in enumerate(_KEY, 1)).rstrip(),
)
"""A key as shown by files, logs, listings, diffs and programs."""


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        SECRET[::-1],
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        SECRET.upper(),
        quote(SECRET, safe=""),
        "".join(f"%{b:02X}" for b in SECRET.encode()),
        SECRET[5:17],
        SECRET[-12:],
    ],
)
def test_each_form_is_redacted(form: str) -> None:
    assert REDACTOR.redact(f"before {form} after") == f"before {MARK} after"


@pytest.mark.parametrize("secret", ['pa"ss\\word-x9Qz', "pässwörd-geheim", "a/b+c=d\tghijkl"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_in_json_is_redacted(secret: str, *, ascii_only: bool) -> None:
    text = json.dumps({"password": secret}, ensure_ascii=ascii_only)
    assert Redactor([secret]).redact(text) == f'{{"password": "{MARK}"}}'


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "x-access-token:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_redacted_at_each_alignment(before: str, encode: object) -> None:
    assert callable(encode)
    shown = REDACTOR.redact(encode((before + SECRET + "tail").encode()).decode())
    assert MARK in shown
    assert len(shown.replace(MARK, "")) < 32


def _letters(seed: str, length: int) -> str:
    """Random letters with a fixed seed."""
    rows = (hashlib.sha512(f"{seed} {number}".encode()).digest() for number in range(length // 64 + 1))
    return base64.urlsafe_b64encode(b"".join(rows)).decode().replace("-", "x").replace("_", "y")[:length]


_CLAIMS = "eyJpc3MiOiIxMjM0NSIsImV4cCI6NDEwMjQ0NDgwMH0"
TOKENS = {
    "old": f"ghs_{_letters('old', 36)}",
    "new": f"ghs_12345_eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.{_CLAIMS}.{_letters('new', 342)}",
    "key": f"sk-ant-api03-{_letters('key', 80)}",
}
# The first thing that anybody pastes who tests a JWT: https://www.jwt.io/
SAMPLE = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ."
    "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)
ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "reversed": lambda text: text[::-1],
    "upper case": str.upper,
    "lower case": str.lower,
    "hex": lambda text: text.encode().hex(),
    "percent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 twice": lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "base32, lower case": lambda text: base64.b32encode(text.encode()).decode().lower(),
    "UTF-16": lambda text: text.encode("utf-16-le").decode("latin-1"),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "base64 of UTF-16, big-endian": lambda text: base64.b64encode(text.encode("utf-16-be")).decode(),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_is_redacted_in_each_encoding(kind: str, encoding: str) -> None:
    redactor = Redactor([TOKENS[kind]])
    for before in ("", "a", "ab", "abc", "abcd", "Authorization: token "):
        text = ENCODINGS[encoding](f"{before}{TOKENS[kind]}\n")
        assert redactor.has_secret(text)
        if encoding != "UTF-16":  # of which `clean` leaves plain text, long before
            left = redactor.redact_known(text).split(MARK)
            own = ENCODINGS[encoding](TOKENS[kind][-36:-6])
            assert not [i for i in range(len(own) - 15) if any(own[i : i + 15] in part for part in left)]


@pytest.mark.parametrize("kind", TOKENS)
def test_common_prefixes_of_tokens_are_no_secret(kind: str) -> None:
    redactor = Redactor([TOKENS[kind]])
    others = [SAMPLE, f"ghs_99999_{SAMPLE}", "sk-ant-api03-", TOKENS["new"].rpartition(".")[0], "ghs_12345_eyJhbGciOi"]
    for other in [*others, *(encode(other) for encode in ENCODINGS.values() for other in others)]:
        assert redactor.redact_known(other) == other
        assert not redactor.has_secret(other)


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_foreign_key_is_not_redacted_as_known(form: PrivateFormat) -> None:
    ours, theirs = (
        rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, form, NoEncryption()).decode() for _ in "12"
    )
    redactor = Redactor([ours])
    assert not redactor.has_secret(theirs)
    assert all(redactor.has_secret(line) for line in ours.splitlines()[1:-2])
    assert redactor.has_secret(base64.b64encode(ours.encode()).decode())


def test_a_secret_with_few_random_parts_is_known_completely() -> None:
    assert Redactor(["sk-abc"]).redact_known("it is sk-abc") == f"it is {MARK}"
    assert Redactor(["github_pat_11x"]).has_secret("github_pat_11x")


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        "ghs_" + "a1B2" * 9,
        "ghs_12345_eyJhbGciOiJSUzI1NiJ9." + "aB-_" * 100 + "." + "cD3" * 20,
        "github_pat_" + "a1B2_" * 12,
        "sk-ant-api03-" + "a1B2-_" * 10,
        "sk-proj-" + "a1B2" * 10,
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{'MIIEow9+' * 8}\n{'Q0lq/' * 9}",
        *KEYS,
    ],
)
def test_known_token_shapes_are_redacted(token: str) -> None:
    assert Redactor().redact(f"see {token}") == f"see {MARK}"


@pytest.mark.parametrize("opening", ["-----BEGIN RSA PRIVATE KEY-----", f"-----BEGIN PRIVATE KEY-----\n{'aB3+' * 16}"])
def test_a_key_without_an_end_takes_nothing_with_it_that_looks_like_no_key(opening: str) -> None:
    rest = "`\n- Reading `src/a.py`\n\nIt waits for you.\n\n<!-- ours: 0123456789abcdef0123456789abcdef -->"
    assert Redactor().redact(f"- Running `{opening}{rest}") == f"- Running `{MARK}{rest}"
    end = "-----END RSA PRIVATE KEY-----"
    assert Redactor().redact(f"`{opening}` then `curl it; rm -rf .` and {end}").count("curl it; rm -rf .") == 1


def test_ordinary_text_stays() -> None:
    text = "sk-ill issue, ghosts, eyJ alone; commit 3f786850e387550fdab836ed7e6dc881de23001b; PRIVATE KEY handling"
    assert REDACTOR.redact(text) == text


def test_each_line_of_a_key_is_redacted_without_its_armour() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq\nQ0lqYW5kb21zdHJpbmc\n-----END RSA PRIVATE KEY-----\n"
    redactor = Redactor([key])
    assert redactor.redact("x Q0lqYW5kb21zdHJpbmc y") == f"x {MARK} y"
    assert redactor.redact("-----BEGIN CERTIFICATE-----") == "-----BEGIN CERTIFICATE-----"


@pytest.mark.parametrize("secret", ["pässwörd-geheim", "grüße-7"])
def test_a_non_ascii_secret_is_detected_in_bytes(secret: str) -> None:
    assert Redactor([secret]).has_secret(f"password: {secret}\n".encode().decode("latin-1"))


def test_a_short_secret_is_redacted() -> None:
    assert Redactor(["hunter2"]).redact("it is hunter2!") == f"it is {MARK}!"


def _lines(encoded: str, width: int, before: str = "", line_end: str = "\n") -> str:
    rows = [encoded[start : start + width] for start in range(0, len(encoded), width)]
    return line_end.join(before + row for row in rows)


def _dump(separator: str, form: str = "02x", before: str = "") -> Callable[[str], str]:
    return lambda text: separator.join(f"{before}{byte:{form}}" for byte in text.encode())


def _in_lines(width: int, before: str = "", line_end: str = "\n") -> Callable[[str], str]:
    return lambda text: _lines(base64.b64encode(text.encode()).decode(), width, before, line_end)


SPELLED: dict[str, Callable[[str], str]] = {
    r"\xNN": _dump("", before="\\x"),
    r"\xNN, upper case": _dump("", "02X", before="\\x"),
    r"\\xNN": _dump("", before="\\\\x"),
    r"\u00NN": _dump("", before="\\u00"),
    r"\u00NN, upper case": _dump("", "02X", before="\\u00"),
    r"\u{NN}": lambda text: "".join(f"\\u{{{byte:x}}}" for byte in text.encode()),
    r"\U000000NN": _dump("", before="\\U000000"),
    "%NN, upper and lower case": lambda text: "".join(f"%{b:02x}" if b % 2 else f"%{b:02X}" for b in text.encode()),
    "some letters escaped": lambda text: "".join(c if i % 3 else f"\\x{ord(c):02x}" for i, c in enumerate(text)),
    "octal": _dump("", "03o", before="\\"),
    "octal, spaced": _dump(" ", "03o"),
    "entities": lambda text: "".join(f"&#{byte};" for byte in text.encode()),
    "entities in hexadecimal": lambda text: "".join(f"&#x{byte:x};" for byte in text.encode()),
    "decimal": lambda text: str(list(text.encode())),
    "chr()": lambda text: "+".join(f"chr({byte})" for byte in text.encode()),
    "hex, spaced": _dump(" "),
    "hex, spaced, upper case": _dump(" ", "02X"),
    "hex with colons": _dump(":"),
    "hex with line breaks": _dump("\n"),
    "hex with 0x": _dump(", ", before="0x"),
    "hex in groups": lambda text: text.encode().hex(" ", 2),
    "hex in lines": lambda text: _lines(text.encode().hex(), 10, "  "),
    "hex in quoted lines": lambda text: _lines(text.encode().hex(" "), 48, "> "),
    "base64 in lines": _in_lines(76),
    "base64 in short lines": _in_lines(8),
    "base64, CRLF": _in_lines(64, line_end="\r\n"),
    "base64, indented": _in_lines(10, "    "),
    "base64, quoted": _in_lines(10, "> "),
    "base64 in a diff": _in_lines(10, "+"),
    "base64 removed": _in_lines(10, "-  "),
    "base64 in JSON": _in_lines(10, line_end="\\n"),
    "base64 in Python": _in_lines(10, "    '", "'\n"),
    "base64 in a listing": lambda text: "\n".join(
        f"{number:>4} | {line}" for number, line in enumerate(_in_lines(10)(text).split("\n"), 1)
    ),
    "base64 in colours": _in_lines(10, "\x1b[32m+\x1b[m\x1b[32m", "\x1b[m\n"),
    "base64 for addresses in lines": lambda text: _lines(base64.urlsafe_b64encode(text.encode()).decode(), 10),
    "in lines": lambda text: _lines(text, 10),
}


@pytest.mark.parametrize("before", ["", "a", "ab", "Authorization: token "])
@pytest.mark.parametrize("spelling", SPELLED)
def test_a_secret_in_parts_is_redacted(spelling: str, before: str) -> None:
    secret = TOKENS["old"]
    redactor, text = Redactor([secret]), SPELLED[spelling](f"{before}{secret} and the rest of it")
    assert redactor.has_secret(text)
    shown = redactor.redact_known(f"before it: {text}\nafter it")
    assert MARK in shown
    assert shown.startswith("before it: ")
    assert shown.endswith("\nafter it")
    # The beginning that all tokens share stays, and what would be fewer than twelve characters of the secret.
    spelled = SPELLED[spelling](secret[8:-4])
    pieces = [spelled[start : start + len(spelled) // 2] for start in range(0, len(spelled) // 2, 3)]
    assert not [piece for piece in pieces if piece in shown]


@pytest.mark.parametrize("spelling", SPELLED)
def test_harmless_text_in_parts_stays(spelling: str) -> None:
    text = SPELLED[spelling](f"Nothing of it is a secret: {_letters('other', 300)}")
    assert REDACTOR.redact(text) == text
    assert not REDACTOR.has_secret(text)


def test_a_short_secret_in_parts_is_redacted() -> None:
    redactor = Redactor(["hunter2!"])
    for spelling in (r"\xNN", r"\u00NN", "octal", "decimal", "hex, spaced", "hex with colons"):
        assert MARK in redactor.redact_known(SPELLED[spelling]("hunter2!")), spelling


def test_text_between_two_secrets_in_parts_stays() -> None:
    spaced, wrapped = _dump(" ")(SECRET), _in_lines(8)(SECRET)
    shown = REDACTOR.redact(f"one {spaced} two\n\n> {SECRET}, three: {wrapped}")
    assert shown.startswith(f"one {MARK} two\n\n> {MARK}, three: ")
    assert shown.count(MARK) == 3


REPEATS = (
    "67 ", "67:\n", "0x67, ", "\\x67", "\\", "\\\\x", "%6", "&#1", "\\u{0", "103, ", "103", "1 ", "aGVsbG8\n", "a\n> ",
    "a\n+", "a\\n", "\n", "a\n" + " " * 39, "\x1b[3", "a\x1b[32m\n", "12 | a\n", "word ", "a", "+", "\n1234567", "=\n",
)  # fmt: skip


@pytest.mark.parametrize("repeat", REPEATS)
def test_looking_for_parts_takes_linear_time(repeat: str) -> None:
    def seconds(length: int) -> float:
        text, spent = repeat * (length // len(repeat)), []
        for _ in range(3):
            begun = time.thread_time()
            REDACTOR.redact(text)
            spent.append(time.thread_time() - begun)
        return min(spent)

    # Eight times the text: eight times the time, or sixty-four times if it is quadratic.
    assert seconds(160_000) < 24 * max(seconds(20_000), 0.001)


def test_repeated_token_openings_take_linear_time() -> None:
    for opening in ("eyJ", "ghs_", "sk-", "-----BEGIN PRIVATE KEY-----"):
        text = opening * 100_000
        assert len(REDACTOR.redact(text)) <= len(text)


def test_a_later_secret_is_redacted_and_copies_are_independent() -> None:
    first = Redactor(["the-first-secret"])
    second = first.copy()
    second.add_secret("minted-while-it-ran")
    text = "the-first-secret minted-while-it-ran"
    assert second.redact(text) == f"{MARK} {MARK}"
    assert first.redact(text) == f"{MARK} minted-while-it-ran"
