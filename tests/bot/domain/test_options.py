from __future__ import annotations

import pytest

from bot.domain.commands import OPTIONS, Malformed, Options, Read, read_options


def _read(line: str, *, allowed: tuple[str, ...] = tuple(OPTIONS)) -> Read | Malformed:
    return read_options(line, allowed=allowed, of="`fix`")


def _remedy(line: str, *, allowed: tuple[str, ...] = tuple(OPTIONS)) -> str:
    found = _read(line, allowed=allowed)
    assert isinstance(found, Malformed), found
    return found.reason


@pytest.mark.parametrize(
    ("line", "options", "text"),
    [
        ("", Options(), ""),
        ("the sum", Options(), "the sum"),
        (" --dry-run", Options(dry_run=True), ""),
        (" --DRY-RUN the sum", Options(dry_run=True), "the sum"),
        ("the sum --dry-run", Options(dry_run=True), "the sum"),
        ("the --dry-run sum", Options(dry_run=True), "the sum"),
        ("--model gpt-5.1:free", Options(model="gpt-5.1:free"), ""),
        ("--model=qwen/q3 x", Options(model="qwen/q3"), "x"),
        ("--budget 2.50 --max-steps=40 x", Options(budget_usd=2.5, max_steps=40), "x"),
        ("--budget=$3", Options(budget_usd=3.0), ""),
        ("--base release/2.x the sum", Options(base="release/2.x"), "the sum"),
        ("a  b\t c", Options(), "a  b\t c"),
        ("a ` b --dry-run", Options(dry_run=True), "a ` b"),
        ("a `` b ` c --dry-run", Options(dry_run=True), "a `` b ` c"),
        ("`a b` c` --dry-run", Options(dry_run=True), "`a b` c`"),
    ],
)
def test_options_are_taken_out_of_the_line(line: str, options: Options, text: str) -> None:
    assert _read(line) == Read(options=options, text=text)


@pytest.mark.parametrize(
    "line",
    [
        "the `--dry-run` flag",
        "what `run --dry-run --model x` does",
        "``a --dry-run b`` c",
        "``a ` --dry-run b`` c",
        "the --verbose flag",
        "a - b -- c",
        "cut -x",
        "a \u2014 b",
    ],
)
def test_text_that_only_speaks_of_options_stays_as_it_is(line: str) -> None:
    assert _read(line) == Read(options=Options(), text=line)


@pytest.mark.parametrize("line", ["--dry-run it", "the --model x", "--", "-- a", "\u2014dry-run"])
def test_two_hyphens_before_the_text_end_the_options(line: str) -> None:
    assert _read(f" -- {line}") == Read(options=Options(), text=line)
    assert _read(f"--dry-run -- {line}") == Read(options=Options(dry_run=True), text=line)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("--modle x", "--model"),
        ("--dryrun", "--dry-run"),
        ("--dry_run", "--dry-run"),
        ("--max-step 4", "--max-steps"),
        ("--steps 4", "--max-steps"),
        ("it --dryrun", "--dry-run"),
        ("it \u2014dry-run", "--dry-run"),
        ("-dry-run", "--dry-run"),
        ("\u2013model x", "--model"),
    ],
)
def test_a_mistyped_option_is_answered_with_the_one_that_was_meant(line: str, meant: str) -> None:
    assert f"Did you mean `{meant}`?" in _remedy(line)


def test_an_unknown_option_before_the_text_is_answered_with_all_there_are() -> None:
    remedy = _remedy("--zz it")
    assert remedy.startswith(
        "There is no option `--zz`. The options are `--model`, `--budget`, `--max-steps`, `--candidates`, "
    )
    assert "put it in backticks," in remedy


@pytest.mark.parametrize("line", ["--@everyone", "--`", "--x;y", "---", "--\u00e9"])
def test_an_unreadable_option_is_not_repeated(line: str) -> None:
    assert line not in _remedy(line).replace("`--` before the text", "")


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("--model", "a model's name"),
        ("--model --dry-run", "a model's name"),
        ("--model=", "a model's name"),
        ("--model -x", "a model's name"),
        ("--model `x`", "a model's name"),
        ("--budget much", "an amount"),
        ("--budget 0", "an amount"),
        ("--budget -1", "an amount"),
        ("--budget 1e9", "an amount"),
        ("--budget nan", "an amount"),
        ("--budget 12345678", "an amount"),
        ("--budget \u0663", "an amount"),
        ("--max-steps 0", "a whole number"),
        ("--max-steps 2.5", "a whole number"),
        ("--max-steps 99999999", "a whole number"),
        ("--dry-run=no", "takes no value"),
        ("--dry-run x --dry-run", "twice"),
        ("--model a --model=b", "twice"),
    ],
)
def test_a_value_that_cannot_be_one_is_answered_with_the_remedy(line: str, needs: str) -> None:
    assert needs in _remedy(line)


def test_an_option_that_means_nothing_here_is_not_passed_over() -> None:
    assert "`fix` takes only `--model`" in _remedy("it --dry-run", allowed=("model",))
    assert "`fix` takes no options" in _remedy("--model x", allowed=())
