"""The parts of a token or key that no other has. Pure.

The rest is the same in files of strangers: `sk-ant-api03-` begins every key of Anthropic's, `eyJhbGciOiJIUzI1NiIs`
every JWT signed with HS256, jwt.io's sample among them, and `MIIEowIBAAKCAQEA` most RSA keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENOUGH = 12
_PREFIX = re.compile(r"gh[a-z]_|github_pat_(?:11)?|sk-(?:[a-z]{2,8}(?:[0-9]{2})?-){0,3}")
# https://datatracker.ietf.org/doc/html/rfc7519#section-3: header, claims and signature; the last alone is random. An
# encrypted one has five parts (https://datatracker.ietf.org/doc/html/rfc7516#section-3), random but for the header.
_SIGNED = re.compile(r"(?:^|_)eyJ[\w-]*\.[\w-]*\.(?P<random>[\w-]+)$", re.ASCII)
_ENCRYPTED = re.compile(r"(?:^|_)eyJ[\w-]*\.(?P<random>[\w-]*\.[\w-]*\.[\w-]+\.[\w-]+)$", re.ASCII)
_ARMOUR = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")
# The longest beginning that keys share: that of an RSA key in PKCS #8, up to the first byte of the modulus.
_KEY_HEAD = 52
# The exponent 65537 and what stands around it in an RSA key, at each of the three places in a group of base64.
_EXPONENT = re.compile("AgMBAAECggEB?A?|IDAQABAoIBAQ?|CAwEAAQKCAQE?")


def random_parts(secret: str) -> list[str]:
    """What to look for; all of the secret where nothing in it is known to be common, or too little would be left."""
    lines = [line.strip() for line in _ARMOUR.sub("\n", secret.replace("\\n", "\n")).splitlines()]
    lines = [line for line in lines if line]
    parts = list(_of_key(lines)) if _ARMOUR.search(secret) else [part for line in lines for part in _of_token(line)]
    return parts if any(len(part) >= _ENOUGH for part in parts) else lines


def _of_key(lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        body = line[_KEY_HEAD:] if number == 0 and len(lines) > 1 else line
        yield from filter(None, _EXPONENT.split(body))


def _of_token(line: str) -> Iterator[str]:
    if jwt := _SIGNED.search(line):
        yield jwt["random"]
    elif jwe := _ENCRYPTED.search(line):
        yield from jwe["random"].split(".")
    elif line:
        yield line[opening.end() :] if (opening := _PREFIX.match(line)) else line
