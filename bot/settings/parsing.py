"""Settings as they are written to the values used; a ValueError says what a setting must be, never its secret."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent_runtime import Network, SandboxLimits
from bot.domain.access import Caps
from bot.domain.commands import ReviewEvent
from bot.domain.listening import TrustedBots
from bot.gate.repo_keys import command_pattern, trigger_word

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_ACCOUNT_ID = r"[1-9][0-9]{0,18}"
_LOGIN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_APP = rf"{_LOGIN}\[bot\]"
_MIN_SECRET = 16
_MAX_LABEL = 50
_MAX_KEY_BYTES = 64 * 1024


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text.lower()

    return parse


def yes_or_no(text: str) -> bool:
    """`yes`, `on` or `1`, `no`, `off` or `0`; and `true` and `false`, which workflows write."""
    known = {"yes": True, "on": True, "1": True, "true": True, "no": False, "off": False, "0": False, "false": False}
    if text.lower() not in known:
        raise ValueError(f"must be yes or no, not {text!r}")
    return known[text.lower()]


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {text!r}")
        return int(text)

    return parse


def dollars(text: str) -> float | None:
    """An amount above zero, or `none` for no bound."""
    if text.lower() == "none":
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) or float(text) <= 0:
        raise ValueError(f"must be a number above 0 such as 2.50, or none, not {text!r}")
    return float(text)


def url(text: str) -> str:
    """An address without a slash at its end; plain HTTP only to this machine, since keys travel over it."""
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError as error:
        raise ValueError(f"must be an address, not {text!r}") from error
    if not host or parts.query or parts.fragment or parts.username:
        raise ValueError("must be an address of the form https://host/path, without user, `?` or `#`")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        raise ValueError(f"must start with https:// (http:// only for this machine), not {text!r}")
    return text.rstrip("/")


def names(text: str) -> tuple[str, ...]:
    """Names with commas between, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def triggers(text: str) -> tuple[str, ...]:
    """Words that start a command, with commas between."""
    found = tuple(trigger_word(part.strip()) for part in text.split(","))
    return tuple(dict.fromkeys(found))


def label(text: str) -> str:
    """The name of a label, as GitHub takes it."""
    if not text.isprintable() or len(text) > _MAX_LABEL:
        raise ValueError(f"must be a label's name of at most {_MAX_LABEL} characters on one line, not {text!r}")
    return text


def command_patterns(text: str) -> tuple[str, ...]:
    """Patterns of commands, with semicolons or line breaks between."""
    parts = (part.strip() for part in re.split(r"[;\n]", text))
    return tuple(dict.fromkeys(command_pattern(part) for part in parts if part))


def caps(text: str) -> Caps:
    """How much work an hour, as `user=40,installation=500`; the others stay what they are."""
    known = tuple(each.name for each in fields(Caps))
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, written = (word.strip() for word in part.partition("="))
        if name not in known or not re.fullmatch(r"[0-9]{1,6}", written):
            raise ValueError(
                f"must be caps with commas between, each one of {', '.join(known)} with `=` and a whole number; "
                f"{part.strip()!r} is none"
            )
        found[name] = int(written)
    return replace(Caps(), **found)


def review_events(text: str) -> frozenset[str]:
    """What starts a review, with commas between."""
    found = frozenset(names(text.lower()))
    if unknown := found - set(get_args(ReviewEvent)):
        known = ", ".join(get_args(ReviewEvent))
        raise ValueError(f"must be some of {known} with commas between; {', '.join(sorted(unknown))!r} is none of them")
    return found


def repository(text: str) -> str:
    """`owner/name`."""
    if not _REPOSITORY.fullmatch(text):
        raise ValueError(f"must be owner/name, not {text!r}")
    return text


def trusted_bots(text: str) -> TrustedBots:
    """Numeric ids of accounts and names of Apps' accounts with commas between; no wildcard."""
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not re.fullmatch(_ACCOUNT_ID, part) and not re.fullmatch(_APP, part)]
    if wrong:
        raise ValueError(
            "must be names of Apps' accounts, which end in `[bot]`, or numeric user ids, with commas between (`*` is "
            f"not allowed); {wrong[0]!r} is neither"
        )
    ids = {part for part in parts if part.isdecimal()}
    names = {part.casefold() for part in parts if part not in ids}
    return TrustedBots(ids=frozenset(map(int, ids)), logins=frozenset(names))


def logins(text: str) -> frozenset[str]:
    """Names of people's accounts with commas between, in lower case."""
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not re.fullmatch(_LOGIN, part)]
    if wrong:
        raise ValueError(
            "must be logins with commas between, without `@`, teams or bots (those belong in CODEPILOT_TRUSTED_BOTS); "
            f"{wrong[0]!r} is none"
        )
    return frozenset(part.casefold() for part in parts)


def path(text: str) -> Path:
    """A path as it stands; `~` is a shell's business."""
    if text.startswith("~"):
        raise ValueError(f"must be a whole path: ~ is not expanded here, not {text!r}")
    return Path(text)


def directories(text: str) -> tuple[Path, ...]:
    """Absolute paths of directories, with colons between; the sandbox says when one does not exist."""
    found = tuple(Path(part) for part in text.split(":") if part)
    for each in found:
        if not each.is_absolute():
            raise ValueError(f"must name directories by their absolute paths, and {str(each)!r} is none")
    return found


def network(text: str) -> Network:
    """`off`, `registries`, hosts with or without a port; with commas between."""
    return Network.of(*text.split(","))


_LIMITS = {
    "memory": "memory_bytes",
    "processes": "processes",
    "cpu-seconds": "cpu_seconds",
    "disk": "disk_bytes",
    "files": "files",
    "free-disk": "free_bytes",
}
_AMOUNT = re.compile(r"([1-9][0-9]{0,8})(MiB|GiB)?")
_UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


def sandbox_limits(text: str) -> SandboxLimits:
    """Limits by name, as `memory=4GiB,processes=256`; the others stay what they are."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, written = (word.strip() for word in part.partition("="))
        amount = _AMOUNT.fullmatch(written)
        field = _LIMITS.get(name, "")
        if amount is None or not field or field.endswith("_bytes") != bool(amount[2]):
            raise ValueError(
                f"must be limits with commas between, each one of {', '.join(_LIMITS)} with `=` and a whole number, "
                f"and MiB or GiB behind it for bytes; {part.strip()!r} is none"
            )
        found[field] = int(amount[1]) * _UNITS.get(amount[2], 1)
    return replace(SandboxLimits(), **found)


def secret(text: str) -> SecretStr:
    """A secret long enough not to be guessed."""
    if len(text) < _MIN_SECRET:
        raise ValueError(f"must have at least {_MIN_SECRET} characters")
    return SecretStr(text)


def private_key_in(text: str) -> SecretStr:
    """The private key in the file of that name, which the world must not be able to read."""
    try:
        with open(path(text), "rb", opener=_without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ValueError(f"must name a file, which {text} is not")
            if mode & stat.S_IRWXO:
                raise ValueError(f"names a file open to every user of this machine; run: chmod 600 {text}")
            content = file.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {text}: {error.strerror}") from error
    if not content.lstrip().startswith(b"-----BEGIN ") or b"PRIVATE KEY-----" not in content:
        raise ValueError(f"names a file that holds no private key in PEM: {text}")
    return SecretStr(content.decode("ascii", "replace"))


def _without_waiting(name: str, flags: int) -> int:
    """Open a pipe without waiting for its writer."""
    return os.open(name, flags | os.O_NONBLOCK)
