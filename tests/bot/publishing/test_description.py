"""Titles and descriptions from a model: nothing becomes active that the author's text did not have."""

from __future__ import annotations

import pytest

from bot.github.types import BODY_LIMIT
from bot.publishing.commit_format import CONVENTIONAL, CommitFormat
from bot.publishing.description import Description, parse_description
from bot.publishing.markdown import Allowlist

ALLOWED = Allowlist(login="mona", number=8, server="https://github.com", repo="octo/calc")
OLD = Description(title="Wip", body="")


def parsed(text: str, *, old: str = "", title: str = "Add a topic", template: str = "") -> str:
    draft = parse_description(
        f"{title}\n\n{text}",
        Description(title="Wip", body=old),
        commit_format=CommitFormat(),
        template=template,
        allowed=ALLOWED,
    )
    assert draft is not None
    return draft.body


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Add a topic", "Add a topic"),
        ("**Title:** Add a topic.", "Add a topic"),
        ("Title: Added a topic for @hubot", "Add a topic for hubot"),
        ("Fixes #7: add a topic", "Add a topic"),
    ],
)
def test_the_first_line_is_the_title_in_plain_text(line: str, title: str) -> None:
    draft = parse_description(f"{line}\n\nA topic.", OLD, commit_format=CommitFormat(), template="", allowed=ALLOWED)
    assert draft is not None
    assert draft.title == title


def test_the_title_has_the_repositorys_format() -> None:
    conventional = CommitFormat(title=CONVENTIONAL)
    for line, title in (
        ("Added a topic", "chore: add a topic"),
        ("feat(docs): add a topic", "feat(docs): add a topic"),
    ):
        draft = parse_description(f"{line}\n\nx", OLD, commit_format=conventional, template="", allowed=ALLOWED)
        assert draft is not None
        assert draft.title == title
    assert parse_description("GH-5\n\nx", OLD, commit_format=conventional, template="", allowed=ALLOWED) is None


@pytest.mark.parametrize("completion", ["", "Add a topic", "Add a topic\n\n  ", "\n\n", "GH-5\n\nA topic."])
def test_without_a_title_or_a_text_there_is_no_description(completion: str) -> None:
    assert parse_description(completion, OLD, commit_format=CommitFormat(), template="", allowed=ALLOWED) is None


@pytest.mark.parametrize(
    "hostile",
    [
        "@hubot",
        "@mona",
        "@octo/admins",
        "#7",
        "octo/other#7",
        "GH-7",
        "https://evil.example/x",
        "![x](https://evil.example/p)",
    ],
)
def test_what_the_author_did_not_have_is_inert(hostile: str) -> None:
    assert f"`{hostile}`" in parsed(f"See {hostile} here.") or "(`https://evil.example/p`)" in parsed(
        f"See {hostile} here."
    )


def test_mentions_and_links_of_the_author_stay_active() -> None:
    old = "Thanks to @hubot, see https://docs.example/topic and [the plan](https://plan.example/1)."
    text = "From @hubot: https://docs.example/topic, [plan](https://plan.example/1); not @eve."
    assert (
        parsed(text, old=old) == "From @hubot: https://docs.example/topic, [plan](https://plan.example/1); not `@eve`."
    )


def test_a_mention_in_a_link_a_picture_or_a_comment_is_none() -> None:
    for old in ("[@hubot](https://a.example)", "![@hubot](https://a.example)", "<!-- @hubot -->", "a <!-- @hubot -->"):
        assert "`@hubot`" in parsed("Ask @hubot.", old=old)


def test_a_definition_in_a_kept_section_makes_no_link_of_the_new_text() -> None:
    section = "## Tests\n[x]: https://a.example/"
    assert parsed("See [x].", old=section, template="## Tests\n") == "See [x]."
    assert parsed("See x.", old=section, template="## Tests\n") == f"See x.\n\n{section}"


def test_a_mention_in_the_authors_code_is_none() -> None:
    assert parsed("Ask @hubot.", old="Run `@hubot` and\n\n```\n@hubot #7\n```") == "Ask `@hubot`."


def test_only_the_issues_that_the_author_closed_are_closed_and_those_remain_so() -> None:
    assert parsed("Fixes #5, closes #6.", old="Fixes #5 and relates to #6.") == "Fixes #5, closes `#6`."
    assert (
        parsed("A topic.", old="Closes #5\n\nResolves octo/other#6") == "A topic.\n\nCloses #5\n\nResolves octo/other#6"
    )
    assert parsed("A topic.", old="<details>\nFixes #5\n</details>") == "A topic.\n\nFixes #5"
    assert parsed("About #5.", old="Fixes #5") == "About #5.\n\nFixes #5"
    link = "https://github.com/octo/calc/issues/5"
    assert f"`{link}`" in parsed(f"Fixes {link}", old=f"See {link}")
    assert parsed(f"Fixes {link}", old=f"Fixes {link}") == f"Fixes {link}"


def test_pictures_the_bots_mark_and_sections_of_the_template_stay() -> None:
    mark = "<!-- codepilot:job=abc sig=0123 -->"
    picture = '<img width="10" src="https://github.com/user-attachments/assets/0">'
    old = f"## Why\n\nSo.\n\n![a](https://x.example/a.png)\n\n## Tests\n\n- [x] By hand @hubot\n\n{picture}\n\n{mark}"
    body = parsed("## Why\n\nReaders.", old=old, template="## Why\n## Tests\n## Risks\n")
    assert body.startswith("## Why\n\nReaders.\n\n![a](https://x.example/a.png)\n\n## Tests\n\n- [x] By hand @hubot")
    assert picture in body
    assert body.endswith(mark)
    assert "Risks" not in body


def test_what_a_kept_section_has_is_there_once() -> None:
    old = "## Tests\n\n![a](https://x.example/a.png)\n\nFixes #5"
    assert parsed("A topic.", old=old, template="## Tests\n") == f"A topic.\n\n{old}"


def test_a_heading_in_code_or_a_comment_begins_and_ends_no_section() -> None:
    for hidden in ("```\n## Tests\n@octo/team fixes #6\n```", "<!--\n## Tests\n@octo/team fixes #6\n-->"):
        assert parsed("A topic.", old=hidden, template="## Tests\n") == "A topic."
    section = "## Tests\n\n```\n# not a heading\n```"
    assert parsed("A topic.", old=f"{section}\n\n## Other\n", template="## Tests\n") == f"A topic.\n\n{section}"


@pytest.mark.parametrize("end", ["```\nmake test", "<!-- to do"])
def test_a_section_that_is_left_open_hides_nothing_else(end: str) -> None:
    section = f"## Tests\n{end}"
    body = parsed("A topic.", old=f"Fixes #7\n\n{section}", template="## Tests\n")
    assert body == f"A topic.\n\nFixes #7\n\n{section}"


@pytest.mark.parametrize(
    "text", ["`fixes #5`", "```\nfixes #5\n```", "<!-- fixes #5 -->", "Fixes `x` #5", "Fixes [#5](/x)"]
)
def test_words_in_code_comments_and_links_close_nothing(text: str) -> None:
    assert parsed("A topic.", old=f"Related to #5.\n\n{text}") == "A topic."


def test_a_hidden_picture_or_mark_of_another_kind_is_not_taken_over() -> None:
    old = "`![a](https://x.example/a.png)` <!-- ![b](https://x.example/b.png) --> <!-- other:mark -->"
    assert parsed("A topic.", old=old) == "A topic."


def test_a_command_and_html_are_text() -> None:
    body = parsed("/codepilot fix\n\n<details>x</details>\n\n<!-- codepilot:job=x sig=y -->")
    assert body.startswith("\\/codepilot")
    assert "&lt;details>" in body
    assert "&lt;!--" in body


def test_a_description_that_github_would_refuse_is_none() -> None:
    old = Description(title="Wip", body="\n\n".join(f"Fixes #{number}" for number in range(1, 9_000)))
    assert parse_description("Add\n\nx", old, commit_format=CommitFormat(), template="", allowed=ALLOWED) is None
    assert len(parsed("x" * 100_000)) < BODY_LIMIT


def test_line_endings_make_no_difference() -> None:
    assert Description(title="a", body="x\r\ny\r\n").equals(Description(title="a ", body="x\ny"))
    assert not Description(title="a", body="x").equals(Description(title="b", body="x"))
