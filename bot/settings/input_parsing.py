"""Inputs of the action as they are written to the values used; a ValueError says what an input must be. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import SecretStr

from bot.domain.options import is_safe_branch
from bot.gate.goals import MOST_GOAL_CHARS

_MOST_PATH = 200
_LEAST_KEY_CHARS = 32
_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/ -]+")
_BRANCH_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,58}[/-]")


def prompt(text: str) -> str:
    """A request in words, not longer than the agent is told."""
    if len(text) > MOST_GOAL_CHARS:
        raise ValueError(f"may have {MOST_GOAL_CHARS:,} characters and has {len(text):,}; put the rest into a file")
    return text


def branch(text: str) -> str:
    """The name of a branch, as git takes it, without `refs/heads/`."""
    if not is_safe_branch(text) or text.startswith("refs/"):
        raise ValueError(f"must be the name of a branch, such as main, not {text!r}")
    return text


def branch_prefix(text: str) -> str:
    """What the names of branches can begin with."""
    if not _BRANCH_PREFIX.fullmatch(text) or not is_safe_branch(f"{text}x") or text.startswith("refs/"):
        raise ValueError(
            f"must be at most 60 letters, digits and ./_- with / or - at its end, such as bots/codepilot/, not {text!r}"
        )
    return text


def subdirectory(text: str) -> str:
    """A directory below the repository's root, `/` between its parts."""
    found = _below_root(text.rstrip("/"))
    if not found:
        raise ValueError(f"must be a directory of the repository, such as services/api, not {text!r}")
    return found


def repository_file(text: str) -> str:
    """A YAML file of the repository, named from its root."""
    found = _below_root(text)
    if not found.endswith((".yml", ".yaml")) or not _PLAIN_PATH.fullmatch(found):  # it becomes a glob, too
        raise ValueError(
            f"must be the path of a YAML file of the repository, such as .github/codepilot.yml, not {text!r}"
        )
    return found


def artifact(text: str) -> str:
    """A name that an artifact can have."""
    if not _ARTIFACT.fullmatch(text):
        raise ValueError(f"must be the name of an artifact, such as codepilot-session-12, not {text[:_MOST_PATH]!r}")
    return text


def session_key(text: str) -> SecretStr:
    """A secret that cannot be guessed."""
    if len(text) < _LEAST_KEY_CHARS:
        raise ValueError(f"must have at least {_LEAST_KEY_CHARS} characters and has {len(text)}")
    return SecretStr(text)


def output_schema(text: str) -> dict[str, Any] | str:
    """A JSON schema, or the path of one in the repository."""
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is no JSON: {error}") from error
    found = _below_root(text)
    if not found.endswith(".json"):
        raise ValueError(
            "must be a JSON schema, or the path of a JSON file of the repository, such as .github/triage.schema.json, "
            f"not {text[:_MOST_PATH]!r}"
        )
    return found


def _below_root(text: str) -> str:
    """A relative path without its `./`; empty for what is none, or leads out."""
    parts = text.removeprefix("./").split("/")
    harmless = all(part not in {"", ".", "..", ".git"} for part in parts) and text.isprintable() and "\\" not in text
    return "/".join(parts) if harmless and len(text) <= _MOST_PATH else ""
