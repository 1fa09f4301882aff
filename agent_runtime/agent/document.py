"""A YAML file as plain data, and where in the file each piece of it is. Reads text; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from agent_runtime.core.errors import SettingsError

if TYPE_CHECKING:  # a fiftieth of a second to import, and only agent files need it
    import yaml

KeyPath: TypeAlias = tuple[str | int, ...]
"""From the top of a document down to one value: keys of mappings, positions in lists."""

MAX_CHARS = 256_000
_MAX_VALUES = 5_000
_MAX_DEPTH = 20
_LITTLE = 40
_COLLECTIONS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


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
        """Where a key path stands; for one that is not written, what is nearest above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def place(self, path: KeyPath) -> str:
        """Where a key path stands, as `file:line`."""
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
    except (
        ValueError,
        OverflowError,
    ) as error:  # PyYAML's scanner gives an escape such as "\\U00110000" to chr() unchecked
        raise SettingsError(
            f"{source}:{loader.line + 1}: this is not YAML: an escape sequence is not a character."
        ) from error
    finally:
        loader.dispose()


class _Reader:
    """Turns nodes into data; what an alias stands for counts each time it is used."""

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
            raise self._refusal(node, f"the tag {_little(node.tag)} is not supported; remove it")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]
        try:
            return self._loader.construct_object(node, deep=True)
        except ValueError as error:  # e.g. the 31st of February
            raise self._refusal(node, f"{_little(node.value)} cannot be read: {error}") from error

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
                raise self._refusal(key_node, f"{_little(key)} is also set in line {first}; remove one of them")
            self.lines[*path, key] = key_node.start_mark.line + 1
            data[key] = self.value(value_node, (*path, key))
        return data

    def _refusal(self, node: yaml.Node, what: str) -> SettingsError:
        return SettingsError(f"{self._source}:{node.start_mark.line + 1}: {what}.")


def _little(text: str) -> str:
    return f"`{text if len(text) <= _LITTLE else text[:_LITTLE] + '…'}`"
