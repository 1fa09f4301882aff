"""The words of whoever wrote the workflow, in place of those of who runs a server. Pure."""

from __future__ import annotations

import re

_VARIABLE = re.compile(r"`?\bCODEPILOT_([A-Z][A-Z_]*[A-Z])\b`?")


def in_inputs(text: str) -> str:
    """The text with each setting called as the action's input is: no workflow names these variables."""
    return _VARIABLE.sub(lambda found: f"`{found[1].lower().replace('_', '-')}`", text)
