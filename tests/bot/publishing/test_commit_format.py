"""Titles and trailers follow the repository, and claim no more than is known."""

from __future__ import annotations

import pytest

from bot.permissions.repo_config import CommitKeys, RepoConfigError, merge_configs, parse_config
from bot.publishing.commit_format import CONVENTIONAL, PLAIN, TITLE_LIMIT, CommitFormat, choose_format
from bot.publishing.plan import commit_body
from tests.builders import a_job
from tests.changes import a_change, a_file

_HISTORY = ("fix: a", "feat(api)!: b", "docs(readme): c", "chore: d", "Merge it", "test: e")


@pytest.mark.parametrize(
    ("summary", "title"),
    [
        ("## I've added **retry** to `fetch()`.\nMore.", "Add retry to fetch()"),
        ("Fixes #9: handle @hubot's empty list", "Handle hubot's empty list"),
        ("- corrected the sum (see octo/calc#3, @x) of octo/calc#4. More.", "Correct the sum of"),
        ("Make **my_pkg/__init__.py** export _add", "Make my_pkg/__init__.py export _add"),
        ("fix(calc): handle `None`, closes #9. More.", "fix(calc): handle None"),
        ("Handle None, closes octo/calc#@5 and GH-@9", "Handle None, and"),
        ("Fix #(#1)12 and https:/@/x.example/issues/3", "Fix and"),
        ("feat!: drop Python 3.8", "feat!: drop Python 3.8"),
        ("feat(api)!: return pages", "feat(api)!: return pages"),
        ("Note: it works", "Note: it works"),
        ("", "Address issue 7"),
        ("...", "Address issue 7"),
        (
            "Handle " + "very " * 30 + "long lists",
            "Handle very very very very very very very very very very very very…",
        ),
    ],
)
def test_titles_are_plain_short_and_imperative(summary: str, title: str) -> None:
    made = CommitFormat().commit_title(summary, fallback="Address issue 7")
    assert made == title
    assert len(made) <= TITLE_LIMIT


@pytest.mark.parametrize(
    ("template", "summary", "paths", "title"),
    [
        (CONVENTIONAL, "Fixed the sum of empty lists.", ["src/a.py"], "fix: the sum of empty lists"),
        (CONVENTIONAL, "fix(calc)!: Reject NaN", ["src/a.py"], "fix(calc)!: Reject NaN"),
        (CONVENTIONAL, "HTTP errors are repeated", ["src/a.py"], "chore: HTTP errors are repeated"),
        (CONVENTIONAL, "parseArgs takes a list", ["src/a.py"], "chore: parseArgs takes a list"),
        (CONVENTIONAL, "Added a case", ["tests/test_a.py"], "test: add a case"),
        (CONVENTIONAL, "Fixed the links", ["README.md", "docs/a.rst"], "docs: fix the links"),
        (CONVENTIONAL, "Fixed the links", ["README.md", "src/a.py"], "fix: the links"),
        (CONVENTIONAL, "Added caching", [".github/workflows/ci.yml"], "ci: add caching"),
        (CONVENTIONAL, "", ["src/a.py"], "chore: address issue 7"),
        (PLAIN, "fix(calc): handle None", ["src/a.py"], "Handle None"),
        ("[CALC-{number}] {summary}", "Handled None", ["src/a.py"], "[CALC-7] Handle None"),
        ("{type}: {summary} (#{number})", "fix: " + "a " * 60, ["src/a.py"], f"fix: {'a ' * 29}a… (#7)"),
    ],
)
def test_the_template_of_the_repository_is_filled_in(template: str, summary: str, paths: list[str], title: str) -> None:
    change = a_change(*map(a_file, paths))
    made = CommitFormat(title=template).commit_title(summary, fallback="Address issue 7", change=change, number=7)
    assert made == title
    assert len(made) <= TITLE_LIMIT


def test_a_branch_has_no_number_and_so_no_title_with_one() -> None:
    assert CommitFormat(title="[{number}] {summary}").commit_title("Handled None", fallback="x") == "Handle None"
    assert CommitFormat(trailers=("Refs: #{number}", "Team: core")).trailer_lines("", 0) == ["Team: core"]


@pytest.mark.parametrize(
    ("titles", "title"),
    [
        (_HISTORY, CONVENTIONAL),
        (_HISTORY[:4], ""),
        ((*_HISTORY, "Merge it", "Add b"), ""),
        (("Fix: a", "fix a", "fixes: b", "feature: c", "x"), ""),
        ((), ""),
    ],
)
def test_a_clear_history_decides_unless_the_file_does(titles: tuple[str, ...], title: str) -> None:
    assert choose_format(CommitKeys(), titles).title == title
    assert choose_format(CommitKeys(title="plain"), titles).title == PLAIN
    assert choose_format(CommitKeys(title="conventional"), titles).title == CONVENTIONAL


def test_reverts_have_the_form_of_git_or_of_the_convention() -> None:
    assert CommitFormat().undo_title('fix: a "b" @x #9') == "Revert \"fix: a 'b' x\""
    assert CommitFormat().undo_title("Fixes #@9") == 'Revert "Fixes"'
    assert CommitFormat(title=CONVENTIONAL).undo_title("fix(a): b") == "revert: fix(a): b"


def test_trailers_are_one_block_at_the_end_of_the_message() -> None:
    keys = CommitKeys(trailers=("Refs: #{number}",), sign_off=True)
    made = choose_format(keys, (), "codepilot[bot] <99+codepilot[bot]@users.noreply.github.com>")
    assert commit_body(a_job(), commit_format=made).endswith(
        "\n\nCo-authored-by: hubot-owner <20+hubot-owner@users.noreply.github.com>\nRefs: #7\n"
        "Signed-off-by: codepilot[bot] <99+codepilot[bot]@users.noreply.github.com>"
    )
    bare = choose_format(CommitKeys(co_author=False), (), "codepilot[bot] <x>")
    assert "-by:" not in commit_body(a_job(), commit_format=bare)


@pytest.mark.parametrize(
    "line",
    [
        "title: Fix",
        "title: '{summary} {x}'",
        "title: '{summary!r}'",
        "title: '{summary.x}'",
        "title: '@octo/team {summary}'",
        "title: 'Fixes #9 {summary}'",
        "title: 'GH-9 {summary}'",
        "title: '#{summary}'",
        "title: '#{number}{summary}'",
        "title: '#{number}{number} {summary}'",
        "trailers: ['Closes: octo/other#{number}']",
        'title: "{summary}\\nCo-authored-by: x <y>"',
        f"title: '{{summary}}{'x' * 60}'",
        "trailers: ['Signed-off-by: Mona <mona@x.example>']",
        "trailers: ['Reviewed-by: nobody']",
        "trailers: ['Closes: #9']",
        "trailers: ['See: https://x.example']",
        "trailers: ['Cc: @octo/team']",
        "trailers: ['no key']",
        'trailers: ["A: b\\nC: d"]',
        "trailers: ['A: {summary}']",
        f"trailers: ['A: {'x' * 200}']",
        "trailers: [A: b, A: c, A: d, A: e, A: f, A: g]",
        "sign_off: Mona",
        "styel: plain",
    ],
)
def test_a_format_that_does_or_claims_more_is_refused(line: str) -> None:
    with pytest.raises(RepoConfigError, match="commit"):
        parse_config(f"commit: {{{line}}}".encode())


def test_each_key_of_an_organisation_applies_unless_the_repository_has_it() -> None:
    organisation = parse_config(b"commit: {title: conventional, co_author: false}")
    merged = merge_configs(organisation, parse_config(b"commit: {co_author: true, trailers: ['A: b']}"))
    assert merged.commit == CommitKeys(title="conventional", co_author=True, trailers=("A: b",))
