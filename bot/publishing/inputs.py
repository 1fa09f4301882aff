"""Wording for the author of a workflow, instead of the operator of a server. Pure."""

from __future__ import annotations

import re

_SET = re.compile(
    r"`CODEPILOT_(?P<quoted>[A-Z_]+)=(?P<text>[^`\n]*)`|\bCODEPILOT_(?P<bare>[A-Z_]+)=(?P<word>[^\s`,;]+)"
)
_VARIABLE = re.compile(r"(?:the )?`?\bCODEPILOT_([A-Z][A-Z_]*[A-Z])\b`?")


def in_inputs(text: str) -> str:
    """The text with each setting called as the action's input is: no workflow names these variables."""
    return _VARIABLE.sub(lambda found: f"the input `{_input(found[1])}`", _SET.sub(_line, text))


def _line(found: re.Match[str]) -> str:
    name, value = found["quoted"] or found["bare"], found["text"] if found["quoted"] else found["word"]
    return f"`{_input(name)}: {value}`"


def _input(name: str) -> str:
    return name.lower().replace("_", "-")
