"""YAML read with the lines in which things stand, and nothing that unfolds into much."""

from __future__ import annotations

import pytest

from agent_runtime.agent.document import MAX_CHARS, read_document
from agent_runtime.core.errors import SettingsError


def test_every_key_and_list_entry_has_its_line() -> None:
    document = read_document("a:\n  b: 1\n  c:\n    - x\n    - d: 2\n", source="f.yaml")
    assert document.data == {"a": {"b": 1, "c": ["x", {"d": 2}]}}
    assert document.location(("a", "c", 1, "d")) == "f.yaml:5"
    assert document.location(("a", "c", 0)) == "f.yaml:4"


def test_an_omitted_key_has_the_line_of_its_parent() -> None:
    document = read_document("a:\n  b: 1\nc: {}\n", source="f.yaml")
    assert document.location(("c", "missing", "deeper")) == "f.yaml:3"


def test_an_alias_is_replaced_by_its_target() -> None:
    assert read_document("a: &x {b: 1}\nc: *x\n", source="f.yaml").data == {"a": {"b": 1}, "c": {"b": 1}}


def test_an_empty_file_holds_nothing() -> None:
    assert read_document("", source="f.yaml").data is None


_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nname: b\n", r"f\.yaml:2: `name` is also set in line 1; remove one of them"),
        ("a:\n\tb: 1\n", r"f\.yaml:2: this is not YAML: found character '\\t'"),
        ("a: [1\nb: 2\n", r"f\.yaml:2: this is not YAML"),
        ("a: *nobody\n", r"f\.yaml:1: this is not YAML: found undefined alias"),
        ("a: 1\n---\nb: 2\n", r"f\.yaml:2: this is not YAML: but found another document"),
        ("a: !!python/object/apply:os.system [id]\n", r"f\.yaml:1: the tag .* is not supported"),
        ("a: !mine x\n", r"f\.yaml:1: this is not YAML: could not determine a constructor"),
        ("a: 2024-02-31\n", r"f\.yaml:1: `2024-02-31` cannot be read"),
        ("1: a\n", r"f\.yaml:1: a key must be plain text; put it in quotes"),
        ("yes: a\n", r"f\.yaml:1: a key must be plain text; put it in quotes"),
        ("? [a]\n: b\n", r"f\.yaml:1: a key must be plain text"),
        ("a: {<<: {b: 1}}\n", r"f\.yaml:1: merge keys .* are not supported; write the keys out"),
        ('a: 1\nb: "\\U00110000"\n', r"f\.yaml:2: this is not YAML: an escape sequence is not a character"),
        ("&a [*a]", r"holds more than 5,000 values or 20 levels"),
        (_BOMB, r"holds more than 5,000 values or 20 levels"),
        ("[" * 50_000, r"f\.yaml: is nested too deeply"),
        ("a" * (MAX_CHARS + 1), r"f\.yaml: has 256,001 characters; the limit is 256,000"),
        ("a:\nb: \x07", r"f\.yaml:2: holds the control character U\+0007; remove it"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_line(text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        read_document(text, source="f.yaml")
