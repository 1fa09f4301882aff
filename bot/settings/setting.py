"""A setting as a field of a model: its names, its meaning and its type come from the field."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_type_hints

from pydantic import SecretStr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

PREFIX = "CODEPILOT_"


@dataclass(frozen=True, slots=True)
class Written:
    """Marks a field of a model as a setting. Type, bounds and default are the field's; its docstring is the help text.

    Attributes:
        example: a value that works, as it would be written.
        name: the environment variable, where it is not `CODEPILOT_` and the field's name.
        input: the action's input, where the variable's name does not say it; None for a setting that is no input.
        between: separates the entries of a list.
    """

    example: str
    name: str = ""
    input: str | None = ""
    between: str = ","


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """One setting; `settings_of` makes one of each.

    Attributes:
        model: the model that it belongs to.
        field: its field there.
        type: the annotation of that.
        name: the environment variable.
        example: a value that works, as it would be written.
        default: the default as it would be written; None when the setting must be set, empty for none.
        input_name: its name among the action's inputs; empty where it is none of them.
        secret: whether the value itself is a secret, rather than the name of a file with one.
        between: separates the entries of a list.
    """

    model: type
    field: str
    type: Any
    name: str
    example: str
    default: str | None
    input_name: str
    secret: bool
    between: str

    @property
    def key(self) -> str:
        """Its name in the settings file."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def meaning(self) -> str:
        """The help text, in one line."""
        return _docstrings(self.model)[self.field]

    def parse(self, text: str) -> Any:  # noqa: ANN401 - each setting has its own type
        """The value of a written text.

        Raises:
            ValueError: it does not fit; the text says what the setting must be, and never a secret.
        """
        adapter = TypeAdapter[Any](self.type)
        try:
            return adapter.validate_python(text)
        except ValidationError as error:
            raise ValueError(_told(error.errors(include_url=False)[0], adapter)) from None


@cache
def settings_of(model: type) -> Mapping[str, Setting]:
    """The settings among the fields of a frozen dataclass, by field, in their order."""
    found: dict[str, Setting] = {}
    hints = get_type_hints(model, include_extras=True)
    for field in fields(model):
        hint = hints[field.name]
        for written in (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Written)):
            name = written.name or f"{PREFIX}{field.name.upper()}"
            derived = "" if name.startswith("GITHUB_") else name.removeprefix(PREFIX).lower().replace("_", "-")
            [kind, *_] = get_args(hint)
            # An alternative may be annotated in its turn, with how it is parsed.
            kinds = {getattr(each, "__origin__", each) for each in (kind, *get_args(kind))}
            found[field.name] = Setting(
                model=model,
                field=field.name,
                type=hint,
                name=name,
                example=written.example,
                default=_as_written(field.default, field.default_factory),
                input_name="" if written.input is None else written.input or derived,
                secret=SecretStr in kinds and not name.endswith("_FILE"),
                between=written.between,
            )
    return found


@cache
def _docstrings(model: type) -> Mapping[str, str]:
    """The docstring below each field, which the compiler does not keep."""
    return {
        ast.unparse(field.target): " ".join(str(ast.literal_eval(below.value)).split())
        for node in ast.parse(inspect.getsource(model)).body
        if isinstance(node, ast.ClassDef)
        for field, below in pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr)
    }


def _as_written(default: object, factory: object) -> str | None:
    if default is MISSING:
        return None if factory is MISSING else ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple | frozenset):
        return ",".join(default)
    return "" if default is None else str(default)


def _told(error: ErrorDetails, adapter: TypeAdapter[Any]) -> str:
    """The words for one of pydantic's errors, as a clause without the setting's name."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        known = context["expected"].replace(" or ", ", ").replace("'", "")
        return f"must be one of {known}, not {given!r}"
    if kind == "bool_parsing":
        return f"must be yes or no, not {given!r}"
    if kind in {"string_too_long", "too_short"}:
        bound = f"at most {context['max_length']:,}" if "max_length" in context else f"at least {context['min_length']}"
        return f"must have {bound} characters, but has {len(given):,}"
    if not kind.startswith(("int_", "greater_", "less_")):
        return error["msg"]
    schema = adapter.json_schema()
    whole = schema.get("anyOf", [schema])[0]
    return f"must be a whole number from {whole['minimum']} to {whole['maximum']}, not {given!r}"
