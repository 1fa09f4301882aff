"""Parsing of review completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.domain.difference import DiffLines, Side, parse_patch
from bot.github.types import ReviewDraft, ReviewNote
from bot.prompt.reading import Unread
from bot.publishing.markdown import Allowlist, is_harmless
from bot.publishing.review import _ParsedComment, extract_prose, list_output, parse_review
from tests.github_page import live_in
from tests.origin import git

ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")
HEAD = "a" * 40
DIFF = """\
diff --git a/src/a.py b/src/a.py
index 1111111..2222222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,4 @@
 one
--- two
+++ two
+three
 four
@@ -20,2 +21,2 @@ def f():
 x
-y
+z
diff --git a/old.py b/old.py
deleted file mode 100644
--- a/old.py
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git "a/na\\303\\257ve \\"x\\".py" "b/na\\303\\257ve \\"x\\".py"
--- "a/na\\303\\257ve \\"x\\".py"
+++ "b/na\\303\\257ve \\"x\\".py"
@@ -0,0 +1 @@
+new
"""
LINES = DiffLines.of(parse_patch(DIFF))


def reviewed(*comments: object, prose: str = "Two things.", block: str | None = None) -> ReviewDraft:
    written = json.dumps(list(comments)) if block is None else block
    return parse_review(f"{prose}\n\n```json\n{written}\n```\n", LINES, ALLOWED, commit_sha=HEAD)


def test_comments_on_lines_of_the_diff_become_notes_with_suggestions() -> None:
    review = reviewed(
        {"path": "src/a.py", "start_line": 2, "line": 3, "body": "Off by one.", "suggestion": "two\nthree"},
        {"path": "old.py", "line": 1, "side": "LEFT", "body": "Still used.", "suggestion": "cannot be"},
    )
    assert review == ReviewDraft(
        commit_sha=HEAD,
        body="Two things.",
        notes=(
            ReviewNote(
                path="src/a.py",
                start_line=2,
                line=3,
                body="Off by one.\n\n```suggestion\ntwo\nthree\n```",
            ),
            ReviewNote(path="old.py", line=1, side="LEFT", body="Still used."),
        ),
    )


@pytest.mark.parametrize(
    ("path", "side", "first", "last", "is_contained"),
    [
        ("src/a.py", "RIGHT", 1, 4, True),
        ("src/a.py", "RIGHT", 4, 5, False),
        ("src/a.py", "RIGHT", 4, 21, False),
        ("src/a.py", "RIGHT", 22, 21, False),
        ("src/a.py", "LEFT", 2, 2, True),
        ("src/a.py", "LEFT", 21, 21, True),
        ("src/b.py", "RIGHT", 1, 1, False),
        ("old.py", "RIGHT", 1, 1, False),
        ('naïve "x".py', "RIGHT", 1, 1, True),
    ],
)
def test_only_lines_of_one_hunk_can_be_commented(
    path: str,
    side: Side,
    first: int,
    last: int,
    is_contained: bool,  # noqa: FBT001 - a column of the table
) -> None:
    comment = _ParsedComment(path=path, line=last, start_line=first, side=side, body="", suggestion=None)
    assert comment.is_in(LINES) is is_contained


def test_gits_own_diff_is_read_as_git_means_it(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    git(tmp_path, "init", "--quiet", str(repo))
    odd = 'sp ace\t"é".txt'
    (repo / odd).write_text("".join(f"{n}\n" for n in range(1, 41)))
    git(repo, "add", "--all")
    (repo / odd).write_text("".join(f"{n}\n" for n in range(1, 41) if n != 5).replace("30\n", "-- 30\n++ 30\n"))
    lines = DiffLines.of(parse_patch(git(repo, "diff")))
    assert sorted(lines.hunks[odd, "RIGHT"]) == [*range(2, 8), *range(26, 34)]
    assert sorted(lines.hunks[odd, "LEFT"]) == [*range(2, 9), *range(27, 34)]


def test_comments_elsewhere_move_into_the_body_with_their_place() -> None:
    review = reviewed(
        {"path": "src/a.py", "line": 99, "body": "Here, too.", "suggestion": "x = 1"},
        {"path": "../@octo/x.py", "start_line": 1, "line": 2, "body": "And there."},
    )
    assert review.notes == ()
    assert review.body == (
        "Two things.\n\n**At** `src/a.py:99`: Here, too.\n\n```\nx = 1\n```\n\n**At** `../@octo/x.py:1-2`: And there."
    )


def with_unread(names: Sequence[str], total: int, ignored: Sequence[str] = ()) -> str:
    files = tuple((name, "new, +1") for name in names)
    unread = Unread(names=files, total=total, changed=120, ignored=tuple(ignored), ignored_total=len(ignored))
    return parse_review("Fine.", LINES, ALLOWED, commit_sha=HEAD, unread=unread).body


def test_unread_and_ignored_files_are_named_behind_the_summary() -> None:
    assert with_unread(["a.py", "b.py"], 2, ["c.lock"]) == (
        "Fine.\n\n"
        "**Not reviewed** (2 of 120 changed files, or parts of them): `a.py` (new, +1), `b.py` (new, +1).\n\n"
        "**Left out on request** (1 file, by `review.ignore`): `c.lock`."
    )


def test_many_unread_files_are_folded_and_counted() -> None:
    body = with_unread([f"f{n}.py" for n in range(50)], 99)
    assert "parts of them): `f0.py` (new, +1), `f1.py` (new, +1), `f2.py` (new, +1) and 96 more.\n\n<details>" in body
    assert body.endswith("- `f49.py` (new, +1)\n- and 49 more\n\n</details>")


@pytest.mark.parametrize("total", [8, 99])
def test_names_of_unread_files_stay_names(total: int) -> None:
    names = [
        "</details><script>",
        "`@evil` #1",
        "a\n\n# H",
        "<img src=http://e>",
        "x|y",
        "``` ```",
        "[a](http://b)",
        "\u202e",
    ]
    assert live_in(with_unread(names * 2 if total > 8 else names, total, names)) <= {"<details>", "<summary>"}


def test_unread_files_survive_a_review_that_is_cut() -> None:
    comments = [{"path": "x.py", "line": 1, "body": "word " * 780} for _ in range(90)]
    completion = f"Fine.\n\n```json\n{json.dumps(comments)}\n```\n"
    unread = Unread(names=(("a.py", "new, +1"),), total=1, changed=2)
    body = parse_review(completion, LINES, ALLOWED, commit_sha=HEAD, unread=unread).body
    assert "**Not reviewed** (1 of 2" in body
    assert body.endswith("_Truncated: the review was longer._")


def test_a_comment_under_the_old_name_of_a_renamed_file_moves_to_the_new_one() -> None:
    completion = (
        f"Fine.\n\n```json\n{json.dumps([{'path': 'old/a.py', 'line': 2, 'side': 'LEFT', 'body': 'x'}])}\n```\n"
    )
    review = parse_review(completion, LINES, ALLOWED, commit_sha=HEAD, moved={"old/a.py": "src/a.py"})
    assert [(note.path, note.line, note.side) for note in review.notes] == [("src/a.py", 2, "LEFT")]


def test_comments_beyond_thirty_move_into_the_body() -> None:
    review = reviewed(*({"path": "src/a.py", "line": 1, "body": f"number {n}"} for n in range(40)))
    assert len(review.notes) == 30
    assert review.body.count("**At** `src/a.py:1`") == 10


@pytest.mark.parametrize("block", ["{", "[" * 100_000, '{"path": "a"}', "null"])
def test_unreadable_comments_are_reported(block: str) -> None:
    review = reviewed(block=block)
    assert review.notes == ()
    assert "could not be parsed" in review.body


def test_the_prose_surrounds_the_block() -> None:
    shown = "Look:\n```sh\nmake\n```\n"
    assert extract_prose(f"{shown}\n```json\n[]\n```\n\nThat is all.") == f"{shown}\n\nThat is all."
    assert extract_prose("All is well.") == "All is well."


def test_nothing_to_say_is_a_review_too() -> None:
    assert reviewed(prose="All is well.") == ReviewDraft(commit_sha=HEAD, body="All is well.")
    assert parse_review("No block.", LINES, ALLOWED, commit_sha=HEAD).body == "No block."
    assert parse_review("```json\n[]\n```", LINES, ALLOWED, commit_sha=HEAD).body == "See the comments below."


@pytest.mark.parametrize(
    "comment",
    [
        None,
        {},
        {"path": 1, "line": 1, "body": "x"},
        {"path": "src/a.py", "line": True, "body": "x"},
        {"path": "src/a.py", "line": -1, "body": "x"},
        {"path": "src/a.py", "line": 1, "body": " "},
        {"path": "src/a.py", "line": 1, "body": ["x"]},
    ],
)
def test_an_empty_or_unplaced_comment_is_dropped(comment: object) -> None:
    good = {"path": "src/a.py", "line": 1, "body": "x"}
    assert [note.body for note in reviewed(comment, good).notes] == ["x"]


def test_all_of_it_is_made_inert() -> None:
    hostile = "Ask @hubot, fixes #9 ![](https://evil.example/p.png) <b>\n/codepilot fix"
    review = reviewed(
        {"path": "src/a.py", "line": 1, "body": hostile}, {"path": "@hubot", "line": 1, "body": hostile}, prose=hostile
    )
    assert is_harmless(review.body, ALLOWED)
    assert is_harmless(review.notes[0].body, ALLOWED)
    assert not [line for line in review.body.splitlines() if line.startswith("/")]


def test_a_suggestion_of_nothing_takes_the_lines_away() -> None:
    review = reviewed({"path": "src/a.py", "line": 1, "body": "Not needed.", "suggestion": ""})
    assert review.notes[0].body == "Not needed.\n\n```suggestion\n```"


@given(st.lists(st.sampled_from(["```", "````", "~~~", "```suggestion", "@hubot", "x", "", " "]), max_size=8))
def test_no_suggestion_leaves_its_block(lines: list[str]) -> None:
    text = "\n".join(lines)
    body = reviewed({"path": "src/a.py", "line": 1, "body": "See:", "suggestion": text}).notes[0].body
    tokens = MarkdownIt("commonmark").parse(body)
    fences = [token for token in tokens if token.type == "fence"]
    assert [token.info for token in fences] == ["suggestion"]
    assert fences[0].content == (f"{text.removesuffix(chr(10))}\n" if text else "")
    assert tokens[-1] is fences[0]


def test_the_prose_excludes_the_block_for_each_line_ending() -> None:
    assert extract_prose("10 %\r100 %\n\n```json\r\n[]\r\n```\nAll read.\n") == "10 %\n100 %\n\nAll read."


@pytest.mark.parametrize(
    ("completion", "value", "shown"),
    [
        ('{"kind": "bug", "sure": true}', {"kind": "bug", "sure": True}, "- `kind`: bug\n- `sure`: `true`"),
        ("It is:\n\n```json\n[1, 2]\n```\n", [1, 2], "It is:\n\n- `1`\n- `2`"),
        ("[]", {"files": [{"path": "a.py"}], "none": []}, "- `files`:\n  -\n    - `path`: a.py\n- `none`: `[]`"),
        ('"word"', "word", "- word"),
    ],
    ids=["an object", "a block below prose", "nested", "a text"],
)
def test_the_json_of_a_completion_becomes_a_list_for_people(completion: str, value: object, shown: str) -> None:
    assert list_output(completion, json.dumps(value)) == shown


def test_the_list_of_a_large_value_is_cut() -> None:
    deep: object = []
    for _ in range(90):
        deep = [deep, "x" * 1_000]
    shown = list_output("{", json.dumps({str(number): deep for number in range(200)}))
    assert shown.endswith("\n- … (the output `structured-output` has the rest)")
    assert len(shown) < 20_000
