"""What the result of a repository's setup depends on, as one key: two jobs with the same key can share it. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import translate
from functools import cache

from agent_runtime import Network
from bot.gate.known_files import file_kinds
from bot.gate.repo_config import RepoConfig

_VERSION = 1
"""Another one makes all that was kept before worthless."""

_WORDS = re.compile(r"[^\s'\"=;|&()<>`$]+")


def setup_key(config: RepoConfig, blobs: Mapping[str, str], *, network: Network, toolchain: str) -> str:
    """The key, as hexadecimal digits.

    Args:
        config: the commands, and what of their result is kept.
        blobs: path to git's blob id of every file in the commit that is worked on.
        network: what the commands may reach.
        toolchain: the versions of the programs in the sandbox, and its machine.
    """
    named = {word.removeprefix("./") for command in config.setup for word in _WORDS.findall(command)}
    counted = {path: blob for path, blob in blobs.items() if path in named or _says_what_to_install(path)}
    facts = [_VERSION, config.setup, config.cache, str(network), toolchain, sorted(counted.items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _says_what_to_install(path: str) -> bool:
    parts = path.split("/")
    return any(named.match("/".join(parts[-depth:])) is not None for depth, named in _by_depth().items())


@cache
def _by_depth() -> dict[int, re.Pattern[str]]:
    """How many names at the end of a path count, and what they are to be."""
    globs: dict[int, list[str]] = {}
    for glob in (glob for kind in file_kinds() if kind.install for glob in kind.globs):
        tail = glob.removeprefix("**/")
        globs.setdefault(tail.count("/") + 1, []).append(translate(tail))
    return {depth: re.compile("|".join(each)) for depth, each in globs.items()}
