"""The directories for this user's own files."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.core.errors import SandboxError, SettingsError


def home(lacking: str, *, otherwise: str = "", kind: type[SandboxError | SettingsError] = SettingsError) -> Path:
    """This user's home directory.

    Args:
        lacking: what cannot be done without one, a whole sentence without its end.
        otherwise: what else than setting `HOME` helps.
        kind: whose fault it is.

    Raises:
        SettingsError, or another `kind`: there is none; a container may run as a user that it does not know.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        also = f", or {otherwise}" if otherwise else ""
        raise kind(f"{lacking}: this user has no home directory. Set HOME{also}.") from error
