"""The shape of a settings file as JSON schema, for editors. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Pydantic takes a tenth of a second to load, and is only needed to publish a schema.
    from pydantic import BaseModel


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
