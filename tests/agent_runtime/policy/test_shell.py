from __future__ import annotations

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.shell import CommandPattern, Fit, ParsedCommand, parse_commands


def fits(pattern: str, command: str) -> bool:
    (found,) = parse_commands(command)
    return CommandPattern.parse(pattern).covers(found)


@pytest.mark.parametrize(
    ("pattern", "command", "fit"),
    [
        ("pytest", "pytest", True),
        ("pytest", "pytest -q", False),
        ("pytest *", "pytest", True),
        ("pytest *", "pytest a b", True),
        ("git * main", "git push main", True),
        ("git * main", "git push origin main", False),
        ("git * main", "git main", False),
        ("git * main", "git --force main", False),
        ("pytest tests/*", "pytest tests/a/b.py", True),
        ("pytest tests/*", "pytest tests/../x", False),
        ("pytest tests/*", "pytest tests/a/..", False),
        ("pytest tests/*", "pytest tests/a..b", True),
        ("pytest tests/*", "pytest tests/*.py", False),
        ("rm *.pyc", "rm a.pyc", True),
        ("rm *.pyc", "rm -rf.pyc", False),
        ("rm -*", "rm -rf", True),
        ("echo 'a b'", "echo a\\ b", True),
        ("echo 'a b'", "echo a b", False),
        ("npm run test:*", "npm run test:unit", True),
        ("./scripts/*", "./scripts/lint", True),
        ("./scripts/*", "scripts/lint", False),
        ("a.c", "abc", False),
        ("pytest {-q,--tb=*,<path>}*", "pytest", True),
        ("pytest {-q,--tb=*,<path>}*", "pytest -q tests/a.py::test_b 'a b' --tb=short", True),
        ("pytest {-q,--tb=*,<path>}*", "pytest -q -p evil", False),
        ("pytest {-q,--tb=*,<path>}*", "pytest -q /dev/stdin", False),
        ("pytest {-q,--tb=*,<path>}*", "pytest tests/*.py", False),
    ],
)
def test_a_pattern_means_its_words(pattern: str, command: str, *, fit: bool) -> None:
    assert fits(pattern, command) is fit


@pytest.mark.parametrize(
    ("placeholder", "words", "fit"),
    [
        ("<name>", "x left-pad @scope/x @scope/x@1.2 x@latest flask==2.0 flask>=2,<3 x[a,b]>=1 socket.io 5", True),
        ("<name>", ". .. ~ ./x ../x /x x/y user/repo @a/b/c @scope/../x -e - x- x, @x file:x https://x x:y", False),
        (
            "<name>",
            "x@./y x@file:y x@user/repo x@https://y git+ssh://x npm:x x.whl X.WHL x.zip[y] x.tar.gz x@y.tgz @a/b==c",
            False,
        ),
        ("<path>", "x x/y ./x . ./... a.py::test_b a.rb:12 a.rb:12:13 a/b[c=d] example.com/x 0", True),
        (
            "<path>",
            "/dev/stdin ../x a/../../x .. ~/x - -c @x +nightly X=1 X:=1 https://x file:x data:x npm:x npm:1",
            False,
        ),
        ("<path>", "localhost:80 localhost:80/x a:b", False),
    ],
)
def test_a_placeholder_means_one_kind_of_word(placeholder: str, words: str, *, fit: bool) -> None:
    pattern = CommandPattern.parse(f"x {placeholder}")
    parsed = [ParsedCommand(text="", words=("x", word)) for word in words.split()]
    assert [each.words for each in parsed if pattern.covers(each) is not fit] == []


def test_a_placeholder_is_known_and_stands_for_no_program() -> None:
    with pytest.raises(SettingsError, match="<file> is no placeholder; write <name> or <path>"):
        CommandPattern.parse("pip install <file>")
    with pytest.raises(SettingsError, match="<path> cannot stand for the program"):
        CommandPattern.parse("<path> --check")


def test_a_word_that_only_the_run_can_tell_may_be_anything() -> None:
    pattern = CommandPattern.parse("git push *")
    known = ParsedCommand(text="", words=("git", None), doubt="")
    assert pattern.fit(known) is Fit.MAYBE
    assert pattern.fit(ParsedCommand(text="", words=("git", "push", None))) is Fit.YES
    assert pattern.fit(ParsedCommand(text="", words=("ls", None))) is Fit.NO
    assert CommandPattern.parse("git push").fit(ParsedCommand(text="", words=("git", "push", None))) is Fit.MAYBE
    assert pattern.fit(ParsedCommand(text="", words=None)) is Fit.MAYBE
    assert not pattern.covers(known)


def test_a_command_is_read_in_its_parts() -> None:
    found = parse_commands("cd a && pytest -k 'x y' tests/*.py | tee \"$OUT\"")
    assert [each.words for each in found] == [
        ("cd", "a"),
        ("pytest", "-k", "x y", None),
        ("tee", None),
    ]
    assert [bool(each.doubt) for each in found] == [False, False, True]


def test_a_very_long_or_deep_command_is_not_read_at_all() -> None:
    (long,) = parse_commands("echo " + "a " * 12_000)
    assert long.words is None
    assert "longer than 12,000" in long.doubt
    assert any(each.words is None for each in parse_commands(" ( " * 100 + "ls" + " ) " * 100))


def test_patterns_do_not_backtrack() -> None:
    """A backtracking matcher would never finish."""
    assert CommandPattern.parse("echo " + "*a" * 13 + "*b").words[1].fullmatch("a" * 10_000) is None


@pytest.mark.parametrize("piece", ["a", "a.", "::", "../", "a@", "a-", "a=1,", "1:", ".tar"])
def test_placeholders_take_linear_time(piece: str) -> None:
    """Quadratic time would take minutes."""
    long = ParsedCommand(text="", words=("x", piece * 200_000 + "\n"))
    for pattern in ("x <name>", "x <path>", "x {-q,--tb=*,<path>}*"):
        CommandPattern.parse(pattern).covers(long)
