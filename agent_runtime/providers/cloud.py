"""Take the access to a cloud's models from the variables that its SDK reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from agent_runtime.core.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudVariables:
    """The variables of one cloud.

    Attributes:
        needed: each must be set, or one of several.
        further: may be set.
        secrets: those of all of these whose values are secrets.
    """

    needed: tuple[tuple[str, ...], ...]
    further: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def of(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Those that are set; one that is empty counts as not set."""
        names = (*(name for either in self.needed for name in either), *self.further)
        return {name: value for name in names if (value := environ.get(name, "").strip())}

    def lacking(self, cloud: Mapping[str, str]) -> str:
        """What must be set and is not, in words; empty where nothing is missing."""
        return ", ".join(" or ".join(either) for either in self.needed if not any(map(cloud.get, either)))

    def require(self, provider: str, cloud: Mapping[str, str], *, base_url: str | None, address: str) -> None:
        """Refuse what cannot work.

        Args:
            provider: its name, for error texts.
            cloud: what is set.
            base_url: another address that somebody named. It is refused: it says nothing of these credentials.
            address: the variable that names an address for these credentials.

        Raises:
            SettingsError: a variable is not set, or another address is named.
        """
        if lacking := self.lacking(cloud):
            raise SettingsError(f"The provider `{provider}` needs {lacking}, as its SDK does: set it, or pass cloud=.")
        if base_url:
            raise SettingsError(f"The provider `{provider}` takes no base_url: its credentials go to {address} only.")


def require_extra(module: str, extra: str) -> None:
    """Refuse a provider whose package is not installed.

    Raises:
        SettingsError: it is not; the text says how to install it.
    """
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:  # the package that holds it is missing, too
        found = False
    if not found:
        raise SettingsError(
            f"The provider `{extra}` needs a package that is not installed; install it with: "
            f"pip install 'codepilot-bot[{extra}]'"
        )
