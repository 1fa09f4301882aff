"""Pygent's settings: environment variables, and the file that stands in for some of them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_runtime.compat.pygent.persona import Persona
from agent_runtime.core.errors import SettingsError

_DEFAULT_FILES = (Path("pygent.toml"), Path("~/.pygent.toml"))


def variable(name: str) -> str | None:
    """The variable `PYGENT_name`; None where it is empty or missing."""
    return os.environ.get(f"PYGENT_{name}") or None


def service_key() -> tuple[str | None, str | None]:
    """The key and the address of a service that speaks OpenAI's API."""
    return os.environ.get("OPENAI_API_KEY") or None, os.environ.get("OPENAI_BASE_URL") or None


def number(name: str) -> float | None:
    """The variable `PYGENT_name` as a number.

    Raises:
        SettingsError: it is none.
    """
    text = variable(name)
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise SettingsError(f"PYGENT_{name}={text!r} must be a number.") from error


def default_persona() -> Persona:
    """As whom an agent works that is given no persona."""
    return Persona(variable("PERSONA_NAME") or "Pygent", variable("PERSONA") or "a sandboxed coding assistant.")


def task_personas() -> list[Persona]:
    """As whom delegated tasks work, by turns.

    Raises:
        SettingsError: `PYGENT_TASK_PERSONAS_JSON` is no list of objects with a name.
    """
    if (text := variable("TASK_PERSONAS_JSON")) is not None:
        try:
            return [Persona(each["name"], each.get("description", "")) for each in json.loads(text)]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            wanted = '[{"name": "tester", "description": "writes tests"}]'
            raise SettingsError(f"PYGENT_TASK_PERSONAS_JSON must be a list such as {wanted}: {error!r}") from error
    names = [name.strip() for name in (variable("TASK_PERSONAS") or "").split(os.pathsep)]
    return [Persona(name) for name in names if name] or [default_persona()]


def load_config(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Read settings from a TOML file, and set the environment variables for those that have none yet.

    Args:
        path: the file; None for `pygent.toml` here and `~/.pygent.toml`, where they exist.

    Returns:
        The settings.

    Raises:
        SettingsError: a file cannot be read, or is not TOML.
    """
    config: dict[str, Any] = {}
    files = [each.expanduser() for each in _DEFAULT_FILES] if path is None else [Path(path)]
    for file in files:
        if path is not None or file.is_file():
            try:
                config |= tomllib.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise SettingsError(f"{file} cannot be read as TOML: {error}") from error
    personas, files_ = config.get("task_personas"), config.get("initial_files")
    values: dict[str, str | None] = {name.upper(): config.get(name) for name in ("persona", "persona_name")}
    if isinstance(personas, list) and personas and all(isinstance(each, Mapping) for each in personas):
        values["TASK_PERSONAS_JSON"] = json.dumps(personas)
        personas = [each.get("name", "") for each in personas]
    values |= {"TASK_PERSONAS": _joined(personas), "INIT_FILES": _joined(files_)}
    for name, value in values.items():
        if value is not None:
            os.environ.setdefault(f"PYGENT_{name}", str(value))
    return config


def _joined(value: object) -> str | None:
    """Several values in one variable."""
    return os.pathsep.join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else None
