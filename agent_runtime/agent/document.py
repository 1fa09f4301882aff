"""Settings files: parse YAML and validate it with a pydantic model. Files are untrusted: their size is limited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from agent_runtime.core.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    import yaml
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

Shape = TypeVar("Shape", bound="BaseModel")
KeyPath: TypeAlias = tuple[str | int, ...]
"""Mapping keys and list indexes from the top of a document to a value."""

MAX_CHARS = 256_000
_MAX_VALUES = 5_000
_MAX_DEPTH = 20
_MAX_EXCERPT = 40
_COLLECTIONS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_MAX_PROBLEMS = 30
"""Problems reported for one file; an untrusted file may have thousands."""

_EXPECTED_TYPES: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a mapping of keys to values",
}

_ACTUAL_TYPES: Mapping[type, str] = {
    type(None): "empty",
    bool: "true or false",
    str: "text",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}

_CONSTRAINTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda ctx: f"must be more than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"must be at least {ctx['ge']}",
    "less_than_equal": lambda ctx: f"must be at most {ctx['le']}",
    "finite_number": lambda _ctx: "must be a finite number",
    "string_too_long": lambda ctx: f"must have at most {ctx['max_length']:,} characters",
    "too_long": lambda ctx: f"must have at most {ctx['max_length']} entries, but has {ctx['actual_length']}",
    "string_too_short": lambda _ctx: "must not be empty",
    "too_short": lambda _ctx: "must not be empty; without entries, remove the key",
    "literal_error": lambda ctx: f"must be one of {ctx['expected']}",
    "missing": lambda _ctx: "must be set",
    "value_error": lambda ctx: str(ctx["error"]),
}


def read_settings(text: str, shape: type[Shape], *, source: str) -> Shape:
    """Parse and validate a YAML document; an empty one is an empty mapping.

    Raises:
        SettingsError: the text has file, line and key of each error.
    """
    document = read_document(text, source=source)
    return validate(document if document.data is not None else replace(document, data={}), shape)


def check_settings(data: object, shape: type[Shape], *, source: str, lines: Mapping[str, int] | None = None) -> Shape:
    """Validate plain data; `lines` has the line of each top-level key."""
    positions: dict[KeyPath, int] = {(key,): line for key, line in (lines or {}).items()}
    return validate(Document(source=source, data=data, lines=positions), shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    source: str
    """The file name for error texts."""
    data: object
    """Mappings with text keys, lists, texts, numbers, booleans, None, and dates."""
    lines: dict[KeyPath, int] = field(default_factory=dict)
    """1-based line of each key path."""

    def line(self, path: KeyPath) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def location(self, path: KeyPath) -> str:
        return f"{self.source}:{self.line(path)}"


def read_document(text: str, *, source: str) -> Document:
    """Parse one YAML document with safe types; reject repeated keys."""
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
        reader = _NodeReader(loader, source)
        return Document(source=source, data=None if node is None else reader.read_value(node, ()), lines=reader.lines)
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
    from pydantic import ValidationError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        return shape.model_validate(document.data)
    except ValidationError as error:
        # A list whose only entries are wrong counts as too short, too.
        errors = [
            fault for fault in error.errors(include_url=False) if fault["type"] != "too_short" or not fault["input"]
        ]
        errors.sort(key=lambda fault: document.line(fault["loc"]))
        problems = [_describe_problem(fault, document, shape) for fault in errors[:_MAX_PROBLEMS]]
        if len(errors) > _MAX_PROBLEMS:
            problems.append(f"{document.source}: {len(errors) - _MAX_PROBLEMS:,} more.")
        raise SettingsError("\n".join(problems)) from None


def schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the JSON schema of a model's files for editors, which show `title`."""
    schema = model.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **{key: _without_null(value) for key, value in schema.items() if key != "title"},
    }


class _NodeReader:
    """Converter from YAML nodes to data; each use of an alias counts."""

    def __init__(self, loader: yaml.SafeLoader, source: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._loader = loader
        self._source = source
        self._count = 0

    def read_value(self, node: yaml.Node, path: KeyPath) -> object:
        import yaml  # noqa: PLC0415 - see TYPE_CHECKING above

        self._count += 1
        self.lines.setdefault(path, node.start_mark.line + 1)
        if self._count > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise self._error(
                node, f"holds more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels, with aliases expanded"
            )
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
            raise self._error(node, f"the tag {_excerpt(node.tag)} is not supported; remove it")
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read_value(item, (*path, number)) for number, item in enumerate(node.value)]
        try:
            return self._loader.construct_object(node, deep=True)
        except ValueError as error:  # e.g. the 31st of February
            raise self._error(node, f"{_excerpt(node.value)} cannot be read: {error}") from error

    def _read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise self._error(key_node, "merge keys (`<<`) are not supported; write the keys out")
            is_word = key_node.tag == "tag:yaml.org,2002:bool" and key.lower() == "on"
            if not isinstance(key, str) or not (is_word or key_node.tag == "tag:yaml.org,2002:str"):
                raise self._error(key_node, "a key must be plain text; put it in quotes")
            if key in data:
                first = self.lines[*path, key]
                raise self._error(key_node, f"{_excerpt(key)} is also set in line {first}; remove one of them")
            self.lines[*path, key] = key_node.start_mark.line + 1
            data[key] = self.read_value(value_node, (*path, key))
        return data

    def _error(self, node: yaml.Node, problem: str) -> SettingsError:
        return SettingsError(f"{self._source}:{node.start_mark.line + 1}: {problem}.")


def _excerpt(text: str) -> str:
    return f"`{text if len(text) <= _MAX_EXCERPT else text[:_MAX_EXCERPT] + '…'}`"


def _describe_problem(error: ErrorDetails, document: Document, top: type[BaseModel]) -> str:
    path: KeyPath = error["loc"]
    if error["type"] == "extra_forbidden":
        section = top
        for key in path[:-1]:
            if isinstance(key, str):
                section = _section_in(_fields_by_key(section)[key].annotation) or section
        problem = f"unknown key. {did_you_mean(str(path[-1]), _fields_by_key(section))}"
    elif (expected := _EXPECTED_TYPES.get(error["type"])) is not None:
        kind = type(error["input"])  # not the value, which may be a secret in the wrong place
        actual = _ACTUAL_TYPES.get(kind) or f"a {kind.__name__}; put it in quotes if it is text"
        problem = f"must be {expected}, but is {actual}"
    elif error["type"] in _CONSTRAINTS:
        problem = _CONSTRAINTS[error["type"]](error.get("ctx", {}))
    else:
        problem = error["msg"]
    key_path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    return f"{document.location(path)}: {f'`{key_path}`' if path else 'the file'}: {problem.removesuffix('.')}."


def _fields_by_key(section: type[BaseModel]) -> Mapping[str, FieldInfo]:
    return {part.alias or name: part for name, part in section.model_fields.items()}


def _section_in(annotation: object) -> type[BaseModel] | None:
    from pydantic import BaseModel  # noqa: PLC0415 - see TYPE_CHECKING above

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((section for argument in get_args(annotation) if (section := _section_in(argument))), None)


def _without_null(schema: Any) -> Any:  # noqa: ANN401 - a piece of JSON
    """Remove the null type of optional keys: files must leave the key out."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    kinds = [item for item in plain.get("anyOf", ()) if item != {"type": "null"}]
    if len(kinds) != 1:
        return plain
    return {**kinds[0], **{key: value for key, value in plain.items() if key != "anyOf"}}
