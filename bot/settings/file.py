"""The operator's settings in a YAML file, turned into what would stand in the environment."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, create_model

from agent_runtime import SettingsError, read_settings
from bot.domain.errors import ConfigError
from bot.settings.setting import Setting

_MAX_BYTES = 256 * 1024
_WORDS = {True: "on", False: "off"}
"""YAML 1.1 reads `on` and `yes` as one, `off` and `no` as the other."""


def read_file(path: Path, settings: Sequence[Setting], *, secrets: Collection[str]) -> dict[str, str]:
    """What the file sets, by the names of environment variables.

    Args:
        path: of the file.
        settings: what may be set there.
        secrets: names of those that are secrets themselves; a file that holds one must not be open to every user.

    Raises:
        ConfigError: it cannot be read, has keys or values that do not fit, or is open to all and holds a secret.
    """
    text, mode = _read(path)
    names = {setting.key: setting.name for setting in settings}
    try:
        file = read_settings(text, _shape(settings), source=str(path))
    except SettingsError as error:
        raise ConfigError(tuple(str(error).splitlines())) from error
    found = {names[key]: getattr(file, key) for key in file.model_fields_set}
    held = sorted(setting.key for setting in settings if setting.name in secrets and found.get(setting.name))
    if held and mode & stat.S_IRWXO:
        raise ConfigError((f"{path}: `{held[0]}`: is a secret in a file open to every user; run: chmod 600 {path}",))
    return found


def _read(path: Path) -> tuple[str, int]:
    try:
        # A pipe is opened without waiting for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError((f"{path}: is no file; name one in CODEPILOT_CONFIG.",))
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError((f"{path}: is larger than {_MAX_BYTES:,} bytes.",))
        return data.decode("utf-8-sig"), mode
    except OSError as error:
        raise ConfigError((f"{path}: cannot be read: {error.strerror}. CODEPILOT_CONFIG names it.",)) from error
    except UnicodeDecodeError as error:
        raise ConfigError((f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8.",)) from error


def _shape(settings: Sequence[Setting]) -> type[BaseModel]:
    """A model with a key for each setting, whose values are checked as the environment's are."""
    keys: dict[str, Any] = {
        setting.key: (Annotated[str, BeforeValidator(_writer(setting)), AfterValidator(_checker(setting))], "")
        for setting in settings
    }
    return create_model("Settings", __config__=ConfigDict(extra="forbid"), **keys)


def _writer(setting: Setting) -> Callable[[object], str]:
    def write(value: object) -> str:
        if isinstance(value, list):
            return setting.between.join(_word(each) for each in value)
        if isinstance(value, dict):
            return setting.between.join(f"{_word(name)}={_word(each)}" for name, each in value.items())
        return _word(value)

    return write


def _word(value: object) -> str:
    if isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise ValueError("must be text or a number; put it in quotes, or leave the key out")


def _checker(setting: Setting) -> Callable[[str], str]:
    def check(written: str) -> str:
        if written:
            setting.parse(written)
        return written

    return check
