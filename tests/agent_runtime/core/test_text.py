from __future__ import annotations

import ast

import pytest

from agent_runtime.core import text
from agent_runtime.core.text import replace_binary


def test_a_stretch_of_binary_data_is_replaced_by_its_length() -> None:
    assert replace_binary("pin" + "\ufffda" * 60 + "\n") == "pin[119 characters of binary data]a\n"


@pytest.mark.parametrize(
    "text", ["", "plain", "caf\ufffd und gr\ufffd\ufffd er", "\ufffd" * 11, "\ufffd123456789" * 50]
)
def test_a_text_of_another_encoding_stays_as_far_as_it_can_be_read(text: str) -> None:
    assert replace_binary(text) == text


NEWER = [
    "print(f'{\"a\\n\"}')",
    "print(f'{', '.join(x)}')",
    'print(f"{\'a\' if x else "b"}")',
    "print(f'{f'{1}'}')",
    "print(f'{x:{'>'}{10}}')",
    "print(f'{d['a']}' + f'{d[\"b\"]!r}' 'rest')",
    "print(f'''{\n1  # one's\n}''')",
    "print(t'{1}')",
    "type X[T] = list[T]",
    "type X = int",
    "class A[T: (int, str) = int](B): pass",
    "async def f[T](a: T) -> T: pass",
    "try: pass\nexcept A, b.C: pass",
]


@pytest.mark.parametrize("code", NEWER)
def test_newer_syntax_parses_with_the_same_positions(code: str) -> None:
    tree = text.parse(f"{code}\ncall('a', b)")
    (last,) = (node for node in tree.body if ast.unparse(node) == "call('a', b)")
    assert (last.lineno, last.col_offset) == (code.count("\n") + 2, 0)


@pytest.mark.parametrize(
    "code",
    [
        "print(f'{a b}')", "print('a", "print(f'{a')", "x = (", "def f[T(a): pass", "f'{'a}'", "print(f'{'a'{')",
        "if x:\npass", "except A, B: pass", "f'" + "{f'" * 1_000,
    ],
)  # fmt: skip
def test_invalid_python_does_not_parse(code: str) -> None:
    with pytest.raises(SyntaxError):
        text.parse(code)


@pytest.mark.parametrize("code", ["f'{x!r:{w}.{p}}' '{'", "rf'\\d{x}'; b'{'", "f'{{}}' 'a'", "type = 1; f'{a != b}'"])
def test_old_syntax_parses_unchanged(code: str) -> None:
    assert ast.dump(text.parse(code)) == ast.dump(ast.parse(code))
