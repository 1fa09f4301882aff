"""Parsers for the text of settings, and types annotated with them.

A ValueError is a clause without the setting's name, and never repeats a secret.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import ssl
import stat
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainValidator, SecretStr

from agent_runtime import Network, SandboxLimits
from bot.domain.access import Caps, TrustedBots
from bot.domain.actions import KINDS, suggest
from bot.domain.commands import RECIPE_DIR, ReviewEvent, is_recipe_name, is_safe_branch
from bot.domain.spend import SpendCaps
from bot.permissions.repo_config import command_pattern, trigger_word

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_LOGIN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_DOLLARS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/ -]+")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9][A-Za-z0-9._-]*){0,8}/?")
_DIRECTORY = re.compile(r"file:///[^?#\s\x00]*[^?#\s\x00/]/?")
_MAX_PATH = 200
_MAX_KEY_BYTES = 64 * 1024
_MAX_CA_BYTES = 4 * 1024 * 1024

Lower = BeforeValidator(str.lower)
"""Text in any case."""


def dollars(text: str) -> float | None:
    """Parse a positive amount; None for `none`."""
    if text.lower() == "none":
        return None
    if not _DOLLARS.fullmatch(text) or float(text) <= 0:
        raise ValueError(f"must be a number above 0 such as 2.50, or none, not {text!r}")
    return float(text)


def url(text: str) -> str:
    """Parse an address; plain HTTP only for this machine, because keys are sent to it."""
    try:
        parts = urlsplit(text)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError("must be an address of the form https://host/path or https://host:port/path") from error
    if not host or parts.query or parts.fragment or parts.username:
        raise ValueError("must be an address of the form https://host/path, without user, `?` or `#`")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        raise ValueError(f"must start with https:// (http:// only for this machine), not {text!r}")
    return parts._replace(netloc=parts.netloc.lower()).geturl().rstrip("/")


def storage_url(text: str) -> str:
    """Parse `file:///path` or `s3://bucket/prefix`."""
    must = (
        "must be file:///directory or s3://bucket/prefix, without user, password, `?` or `#`; the key to a bucket "
        "belongs in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    if not (_BUCKET.fullmatch(text) or _DIRECTORY.fullmatch(text)) or "/../" in f"{text}/":
        raise ValueError(must)
    return text.rstrip("/")


def database_url(text: str) -> SecretStr:
    """Parse a database's address; errors do not repeat it, since it contains a password."""
    must = (
        "must be sqlite:///path or postgresql://user:password@host/name, with reserved characters in the password "
        "written as %XX"
    )
    try:
        parts = urlsplit(text)
        fits = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError(must) from None
    name = parts.path.removeprefix("/")
    if parts.scheme == "sqlite":
        fits = not parts.netloc and bool(name) and not name.startswith(":") and not parts.query
    elif parts.scheme == "postgresql":
        # `?host=` can name a socket's directory.
        fits = fits and bool(name) and "/" not in name and (bool(parts.hostname) or "host=" in parts.query)
    else:
        fits = False
    if not fits or parts.fragment or not text.isprintable():
        raise ValueError(must)
    return SecretStr(text)


def names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def proxies(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Parse addresses and networks."""
    try:
        networks = tuple(ipaddress.ip_network(network) for network in names(text))
    except ValueError as error:
        raise ValueError(f"must be addresses or networks such as 127.0.0.1, 10.0.0.0/8: {error}") from None
    if unbounded := next((network for network in networks if not network.prefixlen), None):
        raise ValueError(f"must name the proxies; {unbounded} would let every client choose its own address")
    return networks


def triggers(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(trigger_word(part.strip()) for part in text.split(",")))


def command_patterns(text: str) -> tuple[str, ...]:
    parts = (part.strip() for part in re.split(r"[;\n]", text))
    return tuple(dict.fromkeys(command_pattern(part) for part in parts if part))


def caps(text: str) -> Caps:
    """Parse `user=40,installation=500`."""
    cap_names = [item.name for item in fields(Caps)]
    must = f"must be limits separated by commas, each one of {', '.join(cap_names)} with `=` and a whole number"
    parts = _strip_and_match(text.split(","), rf"({'|'.join(cap_names)})\s*=\s*[0-9]{{1,6}}", must)
    return replace(Caps(), **{name.strip(): int(number) for name, number in (part.split("=") for part in parts)})


def spend_caps(text: str) -> SpendCaps:
    """Parse `repository-day=20,person-month=100.50`."""
    names = {item.name.replace("_", "-"): item.name for item in fields(SpendCaps)}
    must = f"must be limits separated by commas, each one of {', '.join(names)} with `=` and US dollars above 0"
    parts = _strip_and_match(text.split(","), rf"({'|'.join(names)})\s*=\s*(?=.*[1-9]){_DOLLARS.pattern}", must)
    return SpendCaps(**{names[name.strip()]: float(amount) for name, amount in (part.split("=") for part in parts)})


def _strip_and_match(parts: Iterable[str], pattern: str, must: str) -> list[str]:
    """Strip the parts and check each against a pattern."""
    stripped = [part.strip() for part in parts]
    if wrong := [part for part in stripped if not re.fullmatch(pattern, part)]:
        raise ValueError(f"{must}; {wrong[0]!r} is not valid")
    return stripped


def repository(text: str) -> str:
    if not _REPOSITORY.fullmatch(text):
        raise ValueError(f"must be owner/name, not {text!r}")
    return text


def trusted_bots(text: str) -> TrustedBots:
    must = (
        "must be names of Apps' accounts, which end in `[bot]`, or numeric user ids, separated by commas (`*` is not "
        "allowed)"
    )
    parts = _strip_and_match(text.split(","), rf"[1-9][0-9]{{0,18}}|{_LOGIN}\[bot\]", must)
    return TrustedBots(
        ids=frozenset(int(part) for part in parts if part.isdecimal()),
        logins=frozenset(part.casefold() for part in parts if not part.isdecimal()),
    )


def action_kinds(text: str) -> frozenset[str] | None:
    """Parse kinds of actions; None for `all`."""
    words = frozenset(names(text.lower()))
    if words in ({"all"}, {"off"}):
        return None if words == {"all"} else frozenset()
    if unknown := sorted(words.difference(KINDS)):
        raise ValueError(f"must be `all`, `off`, or kinds of actions, not {unknown[0]!r}. {suggest(unknown[0], KINDS)}")
    return words


def logins(text: str) -> frozenset[str]:
    must = "must be logins separated by commas, without `@`, teams or bots (those belong in CODEPILOT_TRUSTED_BOTS)"
    return frozenset(part.casefold() for part in _strip_and_match(text.split(","), _LOGIN, must))


def path(text: str) -> Path:
    """Parse a path; `~` is not expanded."""
    if text.startswith("~"):
        raise ValueError(f"must be a whole path: ~ is not expanded here, not {text!r}")
    return Path(text)


def directories(text: str) -> tuple[Path, ...]:
    """Parse absolute paths."""
    parts = (part for part in text.split(":") if part)
    return tuple(
        map(Path, _strip_and_match(parts, "/.*", "must name directories by their absolute paths, separated by colons"))
    )


def network(text: str) -> Network:
    return Network.of(*text.split(","))


_BYTES = {"memory": "memory_bytes", "disk": "disk_bytes", "free-disk": "free_bytes"}
_COUNTS = {"processes": "processes", "cpu-seconds": "cpu_seconds", "files": "files"}
_LIMIT = re.compile(r"([a-z-]+)\s*=\s*([0-9]+)(MiB|GiB)?")
_UNITS = {"": 1, "MiB": 1 << 20, "GiB": 1 << 30}


def sandbox_limits(text: str) -> SandboxLimits:
    """Parse `memory=4GiB,processes=256`."""
    must = (
        f"must be limits separated by commas, each one of {', '.join((*_BYTES, *_COUNTS))} with `=` and a whole "
        "number, and MiB or GiB after it for bytes"
    )
    number = r"\s*=\s*[1-9][0-9]{0,8}"
    pattern = rf"({'|'.join(_BYTES)}){number}(MiB|GiB)|({'|'.join(_COUNTS)}){number}"
    matches = _LIMIT.findall(",".join(_strip_and_match(text.split(","), pattern, must)))
    return replace(
        SandboxLimits(), **{(_BYTES | _COUNTS)[name]: int(amount) * _UNITS[unit] for name, amount, unit in matches}
    )


def read_content(name: str | Path, *, most: int) -> tuple[bytes, int]:
    """Return a file's content and mode. Does not block on a pipe.

    Raises:
        ValueError: unreadable, not a file, or larger than `most` bytes.
    """
    try:
        with open(name, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ValueError(f"must name a file, and {name} is not a file")
            content = file.read(most + 1)
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {name}: {error.strerror}") from error
    if len(content) > most:
        raise ValueError(f"names a file larger than {most:,} bytes: {name}")
    return content, mode


def read_secret(text: str) -> str:
    """Read a secret from a file that is not world-readable."""
    content, mode = read_content(path(text), most=_MAX_KEY_BYTES)
    if mode & stat.S_IRWXO:
        raise ValueError(f"names a file open to every user of this machine; run: chmod 600 {text}")
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"names a file that is not UTF-8: {text}") from error
    if not secret:
        raise ValueError(f"names an empty file: {text}")
    return secret


def ca_file(text: str) -> Path:
    """Check a file of PEM certificates."""
    ca_path = path(text)
    read_content(ca_path, most=_MAX_CA_BYTES)
    try:
        ssl.create_default_context(cafile=ca_path)
    except ssl.SSLError as error:
        raise ValueError(f"names a file without certificates in PEM: {text}") from error
    return ca_path


def read_private_key(text: str) -> SecretStr:
    """Read a PEM private key."""
    secret = read_secret(text)
    if not secret.startswith("-----BEGIN ") or "PRIVATE KEY-----" not in secret:
        raise ValueError(f"names a file that contains no private key in PEM: {text}")
    return SecretStr(f"{secret}\n")


def branch(text: str) -> str:
    if not is_safe_branch(text) or text.startswith("refs/"):
        raise ValueError(f"must be the name of a branch, such as main, not {text!r}")
    return text


def subdirectory(text: str) -> str:
    """Parse a directory below the repository's root."""
    directory = _normalize_path(text.rstrip("/"))
    if not directory:
        raise ValueError(f"must be a directory of the repository, such as services/api, not {text!r}")
    return directory


def repository_file(text: str) -> str:
    """Parse the path of a YAML file in the repository."""
    file_path = _normalize_path(text)
    if not file_path.endswith((".yml", ".yaml")) or not _PLAIN_PATH.fullmatch(file_path):  # it becomes a glob, too
        raise ValueError(
            f"must be the path of a YAML file of the repository, such as .github/codepilot.yml, not {text!r}"
        )
    return file_path


def recipe(text: str) -> str:
    if not is_recipe_name(text):
        raise ValueError(
            f"must be the name of a file in {RECIPE_DIR}/ without .md, at most 40 lower-case letters, digits and -, "
            f"such as weekly-update, not {text[:_MAX_PATH]!r}"
        )
    return text


def artifact(text: str) -> str:
    if not _ARTIFACT.fullmatch(text):
        raise ValueError(f"must be the name of an artifact, such as codepilot-session-12, not {text[:_MAX_PATH]!r}")
    return text


def output_schema(text: str) -> dict[str, Any] | str:
    """Parse a JSON schema, or the path of one."""
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not valid JSON: {error}") from error
    schema_path = _normalize_path(text)
    if not schema_path.endswith(".json"):
        raise ValueError(
            "must be a JSON schema, or the path of a JSON file of the repository, such as .github/triage.schema.json, "
            f"not {text[:_MAX_PATH]!r}"
        )
    return schema_path


def _normalize_path(text: str) -> str:
    """Normalize a relative path; empty if invalid or outside the root."""
    parts = text.removeprefix("./").split("/")
    is_safe = all(part not in {"", ".", "..", ".git"} for part in parts) and text.isprintable() and "\\" not in text
    return "/".join(parts) if is_safe and len(text) <= _MAX_PATH else ""


Bots = Annotated[TrustedBots, PlainValidator(trusted_bots)]
CaFile = Annotated[Path, PlainValidator(ca_file)]
CapsWords = Annotated[Caps, PlainValidator(caps)]
DatabaseUrl = Annotated[SecretStr, PlainValidator(database_url)]
Directories = Annotated[tuple[Path, ...], PlainValidator(directories)]
Dollars = Annotated[float | None, PlainValidator(dollars)]
FilePath = Annotated[Path, PlainValidator(path)]
KeyFile = Annotated[SecretStr, PlainValidator(read_private_key)]
Limits = Annotated[SandboxLimits, PlainValidator(sandbox_limits)]
Logins = Annotated[frozenset[str], PlainValidator(logins)]
Names = Annotated[tuple[str, ...], PlainValidator(names)]
NetworkWords = Annotated[Network, PlainValidator(network)]
Patterns = Annotated[tuple[str, ...], PlainValidator(command_patterns)]
Proxies = Annotated[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...], PlainValidator(proxies)]
RepoFile = Annotated[str, AfterValidator(repository_file)]
RepoName = Annotated[str, AfterValidator(repository)]
ActionKinds = Annotated[frozenset[str] | None, PlainValidator(action_kinds)]
ReviewEvents = Annotated[frozenset[ReviewEvent], BeforeValidator(lambda text: names(text.lower()))]
SpendCapsWords = Annotated[SpendCaps, PlainValidator(spend_caps)]
StorageUrl = Annotated[str, AfterValidator(storage_url)]
Schema = Annotated[dict[str, Any] | str, PlainValidator(output_schema)]
Triggers = Annotated[tuple[str, ...], PlainValidator(triggers)]
Url = Annotated[str, AfterValidator(url)]
