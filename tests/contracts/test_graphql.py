"""The hub's GraphQL schema is a part of GitHub's: same names, same types, same arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from graphql import GraphQLEnumType, GraphQLNamedType, build_schema

from localhub.graphql.endpoint import schema


def test_every_type_field_and_argument_is_as_github_describes_it(contract_files: Path | str) -> None:
    if not isinstance(contract_files, Path):
        pytest.skip(str(contract_files))
    text = (contract_files / "schema.graphql").read_text(encoding="utf-8")
    official = build_schema(text, assume_valid=True).type_map
    ours = {name: kind for name, kind in schema().type_map.items() if not name.startswith("__")}
    assert len(ours) > 80
    wrong = [line for name, kind in ours.items() for line in _differences(kind, official.get(name))]
    assert not wrong, "\n".join(wrong)


def _differences(ours: GraphQLNamedType, theirs: GraphQLNamedType | None) -> Iterator[str]:
    if theirs is None:
        yield f"{ours.name}: GitHub has no such type"
        return
    if isinstance(ours, GraphQLEnumType) and isinstance(theirs, GraphQLEnumType):
        yield from (f"{ours.name}: {value}" for value in set(ours.values) ^ set(theirs.values))
    for name, field in getattr(ours, "fields", {}).items():
        known = getattr(theirs, "fields", {}).get(name)
        if known is None or str(known.type) != str(field.type):
            yield f"{ours.name}.{name}: {field.type}, at GitHub {known and known.type}"
            continue
        for argument, value in getattr(field, "args", {}).items():
            there = known.args.get(argument)
            if there is None or str(there.type) != str(value.type):
                yield f"{ours.name}.{name}({argument}): {value.type}, at GitHub {there and there.type}"
