"""Suites on disk: written, read again, and refused with the file, the line and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.evaluation.suite import (
    MAX_ISSUE_CHARS,
    SuiteError,
    SuiteHead,
    Task,
    Validation,
    is_task_id,
    read_suite,
    write_refusals,
    write_suite,
    write_task,
)

_TASK = Task(
    id="12-rounding",
    title='Totals are "rounded" down \\ up\u200b',
    link="https://github.com/mona/shop/pull/12",
    base_commit="a" * 40,
    solution_commit="b" * 40,
    setup=("pip install -e .", "echo 'a\nb'\x7f"),
    test_command="python -m pytest -q",
    fail_to_pass=('tests/test_total.py::test_half[😀-"]',),
    pass_to_pass=("tests/test_total.py::test_zero",),
    validated=Validation(date="2026-11-28T20:00:00Z", fingerprint="f" * 64, seconds=1.5, tests=2),
)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    write_suite(tmp_path, SuiteHead(repository="mona/shop", commit="c" * 40, date="2026-11-28"))
    write_task(tmp_path, _TASK, issue="Totals\n", hidden=b"hidden\xff\r\n", reference=b"reference")
    return tmp_path


def test_a_suite_is_read_as_it_was_written(suite: Path) -> None:
    found = read_suite(suite)
    assert found.head == SuiteHead(repository="mona/shop", commit="c" * 40, date="2026-11-28")
    assert found.tasks == (_TASK,)
    [task] = found.tasks
    assert (found.read_issue(task), found.read_hidden(task), found.read_reference(task)) == (
        "Totals\n",
        b"hidden\xff\r\n",
        b"reference",
    )
    assert task.ref == "refs/codepilot-eval/12-rounding"
    assert not list(suite.rglob("*.partial"))


def test_writing_a_task_again_keeps_the_files_that_are_not_given(suite: Path) -> None:
    write_task(suite, _TASK.model_copy(update={"validated": None}))
    found = read_suite(suite)
    assert found.tasks[0].validated is None
    assert found.read_hidden(found.tasks[0]) == b"hidden\xff\r\n"


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../x", "a/b", "-x", ".git", "a..b", "a.lock", "a.", "a\n", "ü", "x" * 101]
)
def test_an_id_that_is_no_file_name_and_no_reference_is_refused(bad: str) -> None:
    assert not is_task_id(bad)
    with pytest.raises(ValueError, match="must have at most 100"):
        Task(id=bad, title="t", test_command="true")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('fail_to_pas = ["a"]', r"task\.toml:5: `fail_to_pas`: unknown key\. .*fail_to_pass"),
        ("setup = 5", r"task\.toml:5: `setup`: must be a list, but is a number"),
        ('base_commit = "HEAD"', r"task\.toml:5: `base_commit`: must be a commit's full id"),
        ('link = "a\\nb"', r"task\.toml:5: `link`: must be one line"),
        ("setup = [", r"task\.toml: this is not TOML"),
        ("setup = " + "[" * 5000, r"task\.toml: this is not TOML"),
        ('[validated]\ndate = "x"\nfingerprint = "x"\nseconds = 1\ntests = 1', "`fail_to_pass` must not be empty"),
    ],
)
def test_an_invalid_task_is_refused_with_its_file_line_and_key(suite: Path, line: str, problem: str) -> None:
    file = suite / _TASK.id / "task.toml"
    file.write_text(f'# edited\nid = "{_TASK.id}"\ntitle = "t"\ntest_command = "true"\n{line}\n')
    with pytest.raises(SuiteError, match=problem):
        read_suite(suite)


def test_a_folder_with_another_name_than_its_task_is_refused(suite: Path) -> None:
    (suite / _TASK.id).rename(suite / "other")
    with pytest.raises(SuiteError, match="`id` is 12-rounding, but the folder is other"):
        read_suite(suite)


def test_links_are_not_followed_and_long_texts_not_read(suite: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    issue = suite / _TASK.id / "issue.md"
    issue.unlink()
    issue.symlink_to(secret)
    content = read_suite(suite)
    with pytest.raises(SuiteError, match="is a link"):
        content.read_issue(_TASK)
    issue.unlink()
    issue.write_text("x" * (MAX_ISSUE_CHARS + 1))
    with pytest.raises(SuiteError, match="more than"):
        content.read_issue(_TASK)


def test_the_directory_itself_may_be_a_link(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("link") / "suite"
    link.symlink_to(suite)
    assert read_suite(link).read_issue(_TASK) == "Totals\n"


def test_nothing_is_written_through_a_link_of_a_shared_suite(suite: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in (
        f"{_TASK.id}/task.toml",
        f"{_TASK.id}/task.toml.partial",
        "suite.toml.partial",
        "refused.jsonl.partial",
    ):
        (suite / name).unlink(missing_ok=True)
        (suite / name).symlink_to(outside)
    write_task(suite, _TASK)
    write_suite(suite, SuiteHead(repository="mona/shop"))
    write_refusals(suite, "mine", [])
    assert outside.read_text() == "mine"
    assert read_suite(suite).tasks == (_TASK,)
    (suite / _TASK.id).rename(tmp_path / "folder")
    (suite / _TASK.id).symlink_to(tmp_path / "folder")
    with pytest.raises(SuiteError, match="is a link"):
        write_task(suite, _TASK)


def test_a_key_with_escape_sequences_is_shown_without_them(suite: Path) -> None:
    (suite / _TASK.id / "task.toml").write_text(f'id = "{_TASK.id}"\n"\\u001b[31mred" = 1\n')
    with pytest.raises(SuiteError) as caught:
        read_suite(suite)
    assert "red" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_directory_without_a_suite_is_refused_with_the_command_that_creates_one(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(SuiteError, match=f"{path} is not a suite; create it first: codepilot eval mine"):
            read_suite(path)
