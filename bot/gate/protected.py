"""Which files the bot publishes only after a person approved that very change. Pure."""

from __future__ import annotations

from functools import cache

from agent_runtime import Policy, Rule
from bot.gate.known_files import file_kinds


def is_protected(path: str, globs: tuple[str, ...] = ()) -> bool:
    """Whether a file needs an approval of its own.

    Args:
        path: from the repository's root, `/` between the parts.
        globs: what the repository protects beside the built-in list. Nothing can be taken out of that.
    """
    return _rules(globs).withholds(_TOOL, path)


_TOOL = "write_file"


@cache
def _rules(globs: tuple[str, ...]) -> Policy:
    # A rule that asks is read generously: whatever the case, and with all that lies beneath. One that allows is read to
    # the letter.
    built_in = [
        Rule(decision="ask" if kind.approve else "allow", tool=_TOOL, paths=kind.globs)
        for kind in file_kinds()
        if kind.approve or kind.exempt
    ]
    own = [Rule(decision="ask", tool=_TOOL, paths=globs)] if globs else []
    return Policy(rules=(*own, *built_in))
