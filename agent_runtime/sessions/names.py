"""Any text as a file's name or a database's key, so that no two texts share one. Pure."""

from __future__ import annotations

import hashlib
import json
import re

MAX_KEY = 600
"""Characters of an escaped text that every database can put an index on."""

_SLUG_CHARS = 40
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def file_name(session_id: str) -> str:
    """A file's name, without an ending, for a session; the same on disks that keep `A` and `a` apart and others.

    Its beginning is for people, its end keeps ids apart.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", session_id.lower())[:_SLUG_CHARS].strip("-") or "session"
    return f"{slug}-{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def escaped(text: str) -> str:
    r"""Text that every database takes as a key: no control characters, no lone surrogates; `\` escapes.

    Most ids are left as they are.
    """
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "backslashreplace").decode()


def unescaped(text: str) -> str:
    """The text that `escaped` was given."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _CONTROLS.get(found[2], found[2]), text)
