"""What the result of a repository's setup depends on, as one key: two jobs with the same key can share it. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import translate

from agent_runtime import Network
from bot.gate.repo_config import RepoConfig

_VERSION = 1
"""Another one makes all that was kept before worthless."""

# Lock files, and the files that say what is to be installed: projects without a lock file have only these.
_NAMES = (
    ".nvmrc", ".python-version", ".ruby-version", ".tool-versions", ".npmrc", "*.gemspec", "Cargo.lock", "Cargo.toml",
    "Gemfile", "Gemfile.lock", "Pipfile", "Pipfile.lock", "build.gradle*", "bun.lock", "bun.lockb", "composer.json",
    "composer.lock", "conda-lock.yml", "constraints*.txt", "deno.lock", "environment.yml", "flake.lock", "go.mod",
    "go.sum", "gradle.lockfile", "libs.versions.toml", "mix.exs", "mix.lock", "npm-shrinkwrap.json",
    "package-lock.json", "package.json", "packages.lock.json", "pdm.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml",
    "poetry.lock", "pom.xml", "pubspec.lock", "pubspec.yaml", "pylock*.toml", "pyproject.toml", "requirements*.in",
    "requirements*.txt", "rust-toolchain*", "setup.cfg", "setup.py", "uv.lock", "yarn.lock",
)  # fmt: skip

_NAMED = re.compile("|".join(map(translate, _NAMES)))
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
    in_requirements = len(parts) > 1 and parts[-2] == "requirements" and path.endswith((".txt", ".in"))
    return in_requirements or _NAMED.match(parts[-1]) is not None
