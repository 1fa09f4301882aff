"""GitHub's limits for what an App writes into a check run (docs: "Create a check run")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localhub.api.errors import HubError, unprocessable

MAX_TEXT = 65_535
MAX_ANNOTATIONS = 50
MAX_MESSAGE = 64 * 1024
MAX_ACTIONS = 3
LEVELS = ("notice", "warning", "failure")
_ACTION = {"label": 20, "description": 40, "identifier": 20}
_ANNOTATION = {"message": MAX_MESSAGE, "title": 255, "raw_details": MAX_MESSAGE}


def demand_within_limits(body: Mapping[str, Any]) -> None:
    """Refuse a request that GitHub would refuse.

    Raises:
        HubError: 422.
    """
    output = body.get("output") or {}
    for name in ("summary", "text"):
        _length(f"output.{name}", output.get(name), MAX_TEXT)
    _count("output.annotations", output.get("annotations") or (), MAX_ANNOTATIONS)
    for annotation in output.get("annotations") or ():
        _annotation(annotation)
    _count("actions", body.get("actions") or (), MAX_ACTIONS)
    for action in body.get("actions") or ():
        for name, most in _ACTION.items():
            _supplied(f"actions.{name}", action.get(name), str)
            _length(f"actions.{name}", action[name], most)


def _annotation(given: Mapping[str, Any]) -> None:
    for name, kind in (("path", str), ("start_line", int), ("end_line", int), ("message", str)):
        _supplied(f"annotations.{name}", given.get(name), kind)
    for name, most in _ANNOTATION.items():
        _length(f"annotations.{name}", given.get(name), most)
    if given.get("annotation_level") not in LEVELS:
        raise _refusal("annotations.annotation_level", f"{given.get('annotation_level')!r} is not a member of {LEVELS}")
    if "start_column" in given and given["start_line"] != given["end_line"]:
        raise _refusal("annotations.start_column", "columns go with annotations of one line only")


def _supplied(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise _refusal(name, f"a value of type {kind.__name__} wasn't supplied")


def _length(name: str, value: str | None, most: int) -> None:
    if value is not None and len(value) > most:
        raise _refusal(name, f"only {most} characters are allowed; {len(value)} were supplied")


def _count(name: str, values: Any, most: int) -> None:  # noqa: ANN401 - JSON
    if len(values) > most:
        raise _refusal(name, f"no more than {most} items are allowed; {len(values)} were supplied")


def _refusal(name: str, why: str) -> HubError:
    return unprocessable(f"Invalid request.\n\nFor 'properties/{name}', {why}.")
