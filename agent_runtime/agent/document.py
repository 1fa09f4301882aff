"""A YAML file as plain data, and where in the file each piece of it is. Reads text; opens nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import Rule
from agent_runtime.providers.protocol import Provider

if TYPE_CHECKING:
    import yaml
    from pydantic import BaseModel


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


# ---- The shape of a settings file as JSON schema, for editors. Pure.


def schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """The shape of the file that a model reads.

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


def _without_null(schema: Any) -> Any:  # noqa: ANN401 - a piece of JSON
    """The same without the null that stands for a key left out: the file has to leave the key out."""
    if isinstance(schema, list):
        return [_without_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    kinds = [each for each in plain.get("anyOf", ()) if each != {"type": "null"}]
    if len(kinds) != 1:
        return plain
    return {**kinds[0], **{key: value for key, value in plain.items() if key != "anyOf"}}


# ---- Describe how an agent may delegate tasks to child runs, and as whom these work.


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """A way for a child run to work; it can only narrow what its parent may do.

    Attributes:
        name: how tasks ask for it.
        role: what it is, as one sentence; empty for the parent's role.
        instructions: words for its system prompt, below the parent's.
        tools: the tools that it has of the parent's; None for all of them.
        denied: rules that deny; they come before the parent's rules.
    """

    name: str
    role: str = ""
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    denied: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """Check the rules.

        Raises:
            SettingsError: one of them allows or asks: before the parent's rules it could widen what those say.
        """
        if not self.name.strip():
            raise SettingsError("a persona has no name; give it one, by which tasks ask for it")
        if wider := next((rule for rule in self.denied if rule.decision != "deny"), None):
            raise SettingsError(
                f"persona {self.name!r}: the rule {wider.decision!r} for {wider.tool!r} in `denied` must be a 'deny': "
                "a persona can only narrow what its parent may do"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Bounds of delegated tasks, each of which is a child run on a copy of the workspace.

    Attributes:
        max_tasks: tasks that one run may delegate.
        at_once: child runs that work at the same time.
        max_depth: how deep tasks may be delegated; with 1, child runs have no child runs.
        share: the part of what is left of the parent's steps, tokens and money that one child run may use.
        personas: ways for child runs to work.
        provider: the model of child runs; None for the parent's. That of an agent is closed with the agent's own.
        copies: the directory below which copies of the workspace are made, on the same file system best; None for the
            system's directory for temporary files.
        max_copy_bytes: size of one copy.
        max_copy_files: files and directories of one copy.
    """

    max_tasks: int = 8
    at_once: int = 3
    max_depth: int = 1
    share: float = 0.5
    personas: tuple[Persona, ...] = ()
    provider: Provider | None = None
    copies: Path | None = None
    max_copy_bytes: int = 4 * 1024**3
    max_copy_files: int = 200_000

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            SettingsError: one is out of range, or a persona's name is given twice.
        """
        for name in ("max_tasks", "at_once", "max_depth", "max_copy_bytes", "max_copy_files"):
            if (value := getattr(self, name)) < 1:
                raise SettingsError(f"delegation: {name}={value}; it must be at least 1")
        if not 0 < self.share <= 1:
            raise SettingsError(f"delegation: share={self.share}; it must be above 0 and at most 1")
        names = [each.name for each in self.personas]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(f"delegation: the persona {twice[0]!r} is given twice; keep one")
