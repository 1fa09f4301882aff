"""GitHub's answers to Python values: the one place where an answer is parsed. Pure.

Whatever is wrong with an answer becomes a `GitHubError` with a text: a proxy's HTML page, an empty body, half an
answer, a missing field, `errors` of any form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Never

from bot.github.errors import unreadable

_SHOWN_CHARS = 80
_OK = 200


def parsed(what: str, text: str, *, status: int = _OK) -> Any:  # noqa: ANN401 - parsed JSON
    """The JSON of an answer that says all went well; None for the empty body of 204.

    Args:
        what: what was asked.
        text: the answer's body.
        status: its HTTP status.

    Raises:
        GitHubError: it is no JSON, or neither an object nor a list.
    """
    if not text.strip():
        if status == _OK:
            raise unreadable(what, status, "an empty answer")
        return None
    beginning = " ".join(text[: 4 * _SHOWN_CHARS].split())[:_SHOWN_CHARS].replace("`", "'")
    try:
        found = json.loads(text, object_hook=lambda fields: _Fields(what, fields))
    except (ValueError, RecursionError) as error:
        raise unreadable(what, status, f"not JSON, but `{beginning}`") from error
    if not isinstance(found, dict | list):
        raise unreadable(what, status, f"no object and no list, but `{beginning}`")
    return found


def explained(text: str) -> dict[str, Any]:
    """The JSON object of an answer that says something went wrong; empty for anything else, such as a page of HTML."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def details(errors: object) -> list[str]:
    """What the `errors` of an answer say, each a text or an object, as GitHub's APIs have both."""
    listed = errors if isinstance(errors, list) else []
    said = [each.get("message") or each.get("code") if isinstance(each, Mapping) else each for each in listed]
    return [each for each in said if isinstance(each, str) and each]


class _Fields(dict[str, Any]):
    """A JSON object; asking for a field that it lacks is an error of GitHub's, not a bug of ours."""

    __slots__ = ("_what",)

    def __init__(self, what: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self._what = what

    def __missing__(self, name: str) -> Never:
        raise unreadable(self._what, _OK, f"an answer without `{name}`")
