"""The operator's settings in a YAML file, as they would be written in the environment."""

from __future__ import annotations

import stat
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, create_model

from agent_runtime import SettingsError, read_settings
from bot.domain.errors import ConfigError
from bot.settings.parsing import content_of
from bot.settings.setting import Setting

_MAX_BYTES = 256 * 1024


def read_file(path: Path, settings: Collection[Setting]) -> dict[str, str]:
    """The values that the file has, by the names of environment variables.

    Args:
        path: of the file.
        settings: the ones that may be set there; a file that holds a secret one must not be open to every user.

    Raises:
        ValueError: it cannot be read; a clause without the setting that names the file.
        ConfigError: it has keys or values that do not fit, or is open to every user and holds a secret.
    """
    content, mode = content_of(path, most=_MAX_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"names a file that is not UTF-8 (byte {error.start}): {path}; save it as UTF-8") from None
    keys: dict[str, Any] = {each.key: (Annotated[str, BeforeValidator(partial(_text, each))], "") for each in settings}
    try:
        file = read_settings(
            text, create_model("Keys", __config__=ConfigDict(extra="forbid"), **keys), source=str(path)
        )
    except SettingsError as error:
        raise ConfigError(tuple(str(error).splitlines())) from error
    found = {each.name: written for each in settings if (written := getattr(file, each.key))}
    held = sorted(each.key for each in settings if each.secret and each.name in found)
    if held and mode & stat.S_IRWXO:
        raise ConfigError((f"{path}: `{held[0]}`: is a secret in a file open to every user; run: chmod 600 {path}",))
    return found


def _text(setting: Setting, value: object) -> str:
    """A value of YAML as it would be written in a variable, where it fits the setting."""
    if isinstance(value, dict):
        value = [f"{_word(name)}={_word(each)}" for name, each in value.items()]
    text = setting.between.join(_word(each) for each in (value if isinstance(value, list) else [value]))
    if text:
        setting.parse(text)
    return text


def _word(value: object) -> str:
    if isinstance(value, bool):  # YAML 1.1 reads `on` and `yes` as one, `off` and `no` as the other
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise ValueError("must be text or a number; put it in quotes, or remove the key")
