"""Settings files: read YAML text, check it against a pydantic model, and report every error with its line and key.

Used for agent files and, through `agent_runtime`, for the settings files of the bot. A file is untrusted: its size, its
depth and what its aliases unfold into are bounded. Nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from agent_runtime.core.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    import yaml
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

Shape = TypeVar("Shape", bound="BaseModel")
KeyPath: TypeAlias = tuple[str | int, ...]
"""From the top of a document down to one value: keys of mappings, positions in lists."""

MAX_CHARS = 256_000
_MAX_VALUES = 5_000
_MAX_DEPTH = 20
_MAX_EXCERPT = 40
_COLLECTIONS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_MAX_PROBLEMS = 30
"""Reported for one file: a stranger's may have thousands, which are stored and escaped again and again."""

_EXPECTED: Mapping[str, str] = {
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
    return validate(document if document.data is not None else replace(document, data={}), shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A YAML document.

    Attributes:
        source: the file's name, for error texts.
        data: mappings with text keys, lists, texts, numbers, booleans and None; also dates, where YAML reads one.
        lines: key path → the line where it stands, from 1. For the key of a mapping that is the key's own line.
    """

    source: str
    data: object
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """Return the line of a key path; for a key that is not written, that of the nearest one above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def place(self, path: KeyPath) -> str:
        """Return the place of a key path, as `file:line`."""
        return f"{self.source}:{self.line(path)}"


def read_document(text: str, *, source: str) -> Document:
    """Read one YAML document, without tags of Python's, and without anything that unfolds into much.

    Raises:
        SettingsError: it is no YAML, too large or too deep, or has a key twice; the text names the line.
    """
    import yaml  # noqa: PLC0415 - see TYPE_CHECKING above

    if len(text) > MAX_CHARS:
        raise SettingsError(
            f"{source}: has {len(text):,} characters; the limit is {MAX_CHARS:,}. "
            "Move a long system_prompt into a .md file and name that file."
        )
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SettingsError(
            f"{source}:{line}: holds the control character U+{error.character:04X}; remove it."
        ) from error
    try:
        node = loader.get_single_node()
        reader = _Reader(loader, source)
        return Document(source=source, data=None if node is None else reader.value(node, ()), lines=reader.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise SettingsError(f"{source}:{line}: this is not YAML: {error.problem or error.context}.") from error
    except RecursionError as error:
        raise SettingsError(f"{source}: is nested too deeply.") from error
    except (ValueError, OverflowError) as error:
        # PyYAML's scanner gives an escape such as "\\U00110000" to chr() unchecked.
        raise SettingsError(
            f"{source}:{loader.line + 1}: this is not YAML: an escape sequence is not a character."
        ) from error
    finally:
        loader.dispose()


def validate(document: Document, shape: type[Shape]) -> Shape:
    """Check a document against a model.

    Raises:
        SettingsError: it does not fit; the text names everything that is wrong at once.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        return shape.model_validate(document.data)
    except ValidationError as error:
        # A list whose only entries are wrong counts as too short, too.
        errors = [each for each in error.errors(include_url=False) if each["type"] != "too_short" or not each["input"]]
        errors.sort(key=lambda each: document.line(each["loc"]))
        problems = [_describe_problem(each, document, shape) for each in errors[:_MAX_PROBLEMS]]
        if len(errors) > _MAX_PROBLEMS:
            problems.append(f"{document.source}: {len(errors) - _MAX_PROBLEMS:,} more.")
        raise SettingsError("\n".join(problems)) from None


def schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the JSON schema of the files that a model reads, for editors.

    Args:
        model: of the whole file.
        title: what editors call the file.
    """
    schema = model.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **{key: _without_null(value) for key, value in schema.items() if key != "title"},
    }


class _Reader:
    """Turns YAML nodes into data. The target of an alias counts each time that it is used."""

    def __init__(self, loader: yaml.SafeLoader, source: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._loader = loader
        self._source = source
        self._count = 0

    def value(self, node: yaml.Node, path: KeyPath) -> object:
        """The data of one node."""
        import yaml  # noqa: PLC0415 - see TYPE_CHECKING above

        self._count += 1
        self.lines.setdefault(path, node.start_mark.line + 1)
        if self._count > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise self._refusal(
                node, f"holds more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels, with aliases expanded"
            )
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
            raise self._refusal(node, f"the tag {_excerpt(node.tag)} is not supported; remove it")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]
        try:
            return self._loader.construct_object(node, deep=True)
        except ValueError as error:  # e.g. the 31st of February
            raise self._refusal(node, f"{_excerpt(node.value)} cannot be read: {error}") from error

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise self._refusal(key_node, "merge keys (`<<`) are not supported; write the keys out")
            is_word = key_node.tag == "tag:yaml.org,2002:bool" and key.lower() == "on"
            if not isinstance(key, str) or not (is_word or key_node.tag == "tag:yaml.org,2002:str"):
                raise self._refusal(key_node, "a key must be plain text; put it in quotes")
            if key in data:
                first = self.lines[*path, key]
                raise self._refusal(key_node, f"{_excerpt(key)} is also set in line {first}; remove one of them")
            self.lines[*path, key] = key_node.start_mark.line + 1
            data[key] = self.value(value_node, (*path, key))
        return data

    def _refusal(self, node: yaml.Node, what: str) -> SettingsError:
        return SettingsError(f"{self._source}:{node.start_mark.line + 1}: {what}.")


def _excerpt(text: str) -> str:
    return f"`{text if len(text) <= _MAX_EXCERPT else text[:_MAX_EXCERPT] + '…'}`"


def _describe_problem(error: ErrorDetails, document: Document, top: type[BaseModel]) -> str:
    """Return one problem as text: file, line, key path, error and remedy."""
    path: KeyPath = error["loc"]
    if error["type"] == "extra_forbidden":
        section = top
        for key in path[:-1]:
            if isinstance(key, str):
                section = _section_in(section.model_fields[key].annotation) or section
        problem = f"unknown key. {did_you_mean(str(path[-1]), section.model_fields)}"
    elif (expected := _EXPECTED.get(error["type"])) is not None:
        kind = type(error["input"])  # not the value, which may be a secret in the wrong place
        found = _FOUND.get(kind) or f"a {kind.__name__}; put it in quotes if it is text"
        problem = f"must be {expected}, but is {found}"
    elif error["type"] in _BOUNDS:
        problem = _BOUNDS[error["type"]](error.get("ctx", {}))
    else:
        problem = error["msg"]
    key_path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).removeprefix(".")
    return f"{document.place(path)}: {f'`{key_path}`' if path else 'the file'}: {problem.removesuffix('.')}."


def _section_in(annotation: object) -> type[BaseModel] | None:
    """Return the model inside an annotation such as `list[Tool] | None`."""
    from pydantic import BaseModel  # noqa: PLC0415 - see TYPE_CHECKING above

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _section_in(each))), None)


def _without_null(schema: Any) -> Any:  # noqa: ANN401 - a piece of JSON
    """Return a schema without the null that stands for a key left out: a file has to leave the key out."""
    if isinstance(schema, list):
        return [_without_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    kinds = [each for each in plain.get("anyOf", ()) if each != {"type": "null"}]
    if len(kinds) != 1:
        return plain
    return {**kinds[0], **{key: value for key, value in plain.items() if key != "anyOf"}}
