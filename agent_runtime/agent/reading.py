"""Settings files checked against their schema; errors are reported in the words of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from agent_runtime.agent.document import MAX_CHARS, Document, KeyPath, read_document
from agent_runtime.core.did_you_mean import did_you_mean
from agent_runtime.core.errors import SettingsError

if TYPE_CHECKING:  # a tenth of a second to import, and only agent files need them
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    from agent_runtime.agent.schema import Agent, ServersDocument

Shape = TypeVar("Shape", bound="BaseModel")

_MOST_BYTES = 4 * MAX_CHARS  # what UTF-8 takes at most
_MOST_TOLD = 30
"""Problems of one file; a stranger's may have thousands, which are kept and made fit to show again and again."""
_KINDS: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a mapping of keys to values",
}
_FOUND: Mapping[type, str] = {
    type(None): "empty",
    bool: "true or false",
    str: "text",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}
_BOUNDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda given: f"must be more than {given['gt']:g}",
    "greater_than_equal": lambda given: f"must be at least {given['ge']}",
    "less_than_equal": lambda given: f"must be at most {given['le']}",
    "finite_number": lambda _given: "must be a finite number",
    "string_too_long": lambda given: f"must have at most {given['max_length']:,} characters",
    "too_long": lambda given: f"must have at most {given['max_length']} entries, but has {given['actual_length']}",
    "string_too_short": lambda _given: "must not be empty",
    "too_short": lambda _given: "must not be empty; without entries, remove the key",
    "literal_error": lambda given: f"must be one of {given['expected']}",
    "missing": lambda _given: "must be set",
    "value_error": lambda given: str(given["error"]),
}


def read_agent(path: Path) -> tuple[Agent, Document]:
    """Read and check an agent file.

    Raises:
        SettingsError: it cannot be read or does not fit; the text names everything that is wrong at once.
    """
    from agent_runtime.agent.schema import AgentDocument  # noqa: PLC0415 - loads pydantic

    document = read_document(read_text(path), source=str(path))
    return _fitted(document, AgentDocument).agent, document


def read_servers(path: Path) -> ServersDocument:
    """Read and check a file of MCP servers.

    Raises:
        SettingsError: as for `read_agent`.
    """
    from agent_runtime.agent.schema import ServersDocument  # noqa: PLC0415 - loads pydantic

    return read_settings(read_text(path), ServersDocument, source=str(path))


def read_settings(text: str, shape: type[Shape], *, source: str) -> Shape:
    """Read a YAML document of settings, as strictly as agent files are read.

    Args:
        text: the document.
        shape: the keys that it may have, of which an empty document has none. Forbid extra ones there; they are then
            told with the nearest known one.
        source: the file's name, for error texts.

    Raises:
        SettingsError: it is no YAML or does not fit; the text names file, line and key of all that is wrong at once.
    """
    document = read_document(text, source=source)
    return _fitted(document if document.data is not None else replace(document, data={}), shape)


def _fitted(document: Document, shape: type[Shape]) -> Shape:
    from pydantic import ValidationError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        return shape.model_validate(document.data)
    except ValidationError as error:
        # A list whose only entries are wrong counts as too short, too.
        found = [each for each in error.errors(include_url=False) if each["type"] != "too_short" or not each["input"]]
        wrong = sorted(found, key=lambda each: document.line(each["loc"]))
        more = [f"{document.source}: {len(wrong) - _MOST_TOLD:,} more."] if len(wrong) > _MOST_TOLD else []
        told = [_told(each, document, shape) for each in wrong[:_MOST_TOLD]]
        raise SettingsError("\n".join([*told, *more])) from None


def read_text(path: Path) -> str:
    """The text of a file that settings name.

    Raises:
        SettingsError: it cannot be read, is too large, or is not UTF-8; or the name is none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise SettingsError(f"{path}: is larger than {_MOST_BYTES:,} bytes.")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8.") from error
    except ValueError as error:
        raise SettingsError(f"{str(path)!r}: no file can have this name ({error}).") from error


def _told(error: ErrorDetails, document: Document, top: type[BaseModel]) -> str:
    """One problem: file, line, key path, what is wrong, what to do."""
    path: KeyPath = error["loc"]
    what = _KINDS.get(error["type"])
    if error["type"] == "extra_forbidden":
        section = top
        for key in path[:-1]:
            if isinstance(key, str):
                section = _section(section.model_fields[key].annotation) or section
        told = f"unknown key. {did_you_mean(str(path[-1]), section.model_fields)}"
    elif what is not None:
        kind = type(error["input"])  # not the value, which may be a secret in the wrong place
        told = f"must be {what}, but is {_FOUND.get(kind) or f'a {kind.__name__}; put it in quotes if it is text'}"
    elif error["type"] in _BOUNDS:
        told = _BOUNDS[error["type"]](error.get("ctx", {}))
    else:
        told = error["msg"]
    named = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).removeprefix(".")
    return f"{document.place(path)}: {f'`{named}`' if path else 'the file'}: {told.removesuffix('.')}."


def _section(annotation: object) -> type[BaseModel] | None:
    """The section inside an annotation such as `list[Tool] | None`."""
    from pydantic import BaseModel  # noqa: PLC0415 - see TYPE_CHECKING above

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _section(each))), None)
