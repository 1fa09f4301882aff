"""Find the directories that a sandbox has to show for the operator's toolchains."""

from __future__ import annotations

import pwd
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import geteuid
from pathlib import Path

from bot.domain.errors import ConfigError

_SYSTEM = tuple(map(Path, ("/bin", "/lib", "/lib64", "/sbin", "/usr")))
"""Every sandbox shows these."""

_CONFIGURATION_BYTES = 64 * 1024
_HOPS = 40
"""As many symbolic links as the kernel follows."""


def directories_to_show(toolchains: Sequence[Path], *, private: Sequence[Path] = ()) -> tuple[Path, ...]:
    """The toolchains, and before each virtual environment the Python that it was made from.

    A virtual environment holds links to a Python somewhere else. Where that is not shown, the sandbox has no `python`,
    and `pytest` in the same environment is there and cannot start.

    Args:
        toolchains: what the operator named.
        private: directories that must not be shown on the strength of such a link, nor what lies around them; this
            user's home directory is always one.

    Raises:
        ConfigError: the Python of an environment does not exist, or cannot be shown without what is private.
    """
    hidden = [*private]
    with suppress(KeyError):  # a container may run as a user that it does not know, who has no home directory
        hidden.append(Path(pwd.getpwuid(geteuid()).pw_dir))
    shown: list[Path] = []
    for toolchain in toolchains:
        for directory in (*_pythons_of(toolchain), toolchain):
            what = f"CODEPILOT_TOOLCHAINS: {toolchain} is a virtual environment of the Python in {directory}, which"
            if not directory.is_dir() and directory != toolchain:
                raise ConfigError(
                    (f"{what} does not exist on this machine; create the environment here, or name another one.",)
                )
            around = next((path for path in hidden if path.is_relative_to(directory)), None)
            if around and directory != toolchain:
                raise ConfigError(
                    (f"{what} also contains {around}; create the environment with a Python in a directory of its own.",)
                )
            if not any(directory.is_relative_to(other) for other in (*shown, *_SYSTEM)):
                shown.append(directory)
    return tuple(shown)


def _pythons_of(toolchain: Path) -> Iterator[Path]:
    """The directories that a virtual environment's Python needs; nothing for other directories."""
    try:
        with (toolchain / "pyvenv.cfg").open(encoding="utf-8", errors="replace") as file:
            text = file.read(_CONFIGURATION_BYTES)
    except FileNotFoundError:
        return
    pairs = (line.partition("=") for line in text.splitlines())
    home = next((value.strip() for key, _, value in pairs if key.strip().lower() == "home"), "")
    if Path(home).is_absolute():
        yield _prefix(Path(home))
    link = toolchain / "bin" / "python"
    for _ in range(_HOPS):
        if not link.is_symlink():
            return
        link = link.parent / link.readlink()
        if not link.is_relative_to(toolchain):
            yield _prefix(link.parent)


def _prefix(programs: Path) -> Path:
    """The whole of a Python whose program lies in `programs`; for links among other programs, these alone."""
    return programs.parent if any(programs.parent.glob("lib*/python3*/os.py")) else programs
