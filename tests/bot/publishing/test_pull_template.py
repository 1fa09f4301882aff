"""A repository's template for pull requests is filled in, and claims nothing that the bot did not see."""

from __future__ import annotations

import random

import pytest

from bot.publishing.plan import pull_body
from bot.publishing.pull_template import choose_template, fill_template
from tests.builders import a_job
from tests.github_page import ALLOWED, foreign, hostile_text

TEMPLATE = """\
---
name: Change
---
<!-- Thanks! -->
## Type of change
- [x] Bug fix (non-breaking change)
* [X] Feature
1. [x] Read
> - 2) [X] Signed

## 📝 Description
<!--- Describe
your changes -->
See @octo/team, octo/other#3, Closes #9 and [the guide](https://x.example).

```py
x = 1  # @hubot
```
**Checklist:**
- [ ] Tests, as `List<T>`
"""
TEXT, ACCOUNT = "Fixed the sum.", "**✅ Done, checks passed.**\n\n| check | exit code |\n|---|---|\n| `pytest` | 0 |"


def body(template: str) -> str:
    return pull_body(a_job(), TEXT, server="https://github.example", account=ACCOUNT, template=template)


def test_the_text_is_below_the_fitting_heading_and_the_checks_are_at_the_end() -> None:
    text = body(TEMPLATE)
    assert text.startswith(
        "## Type of change\n- [ ] Bug fix (non-breaking change)\n* [ ] Feature\n1. [ ] Read\n"
        "> - 2) [ ] Signed\n\n## 📝 Description\n"
    )
    assert f"## 📝 Description\n\n{TEXT}\n\nFixes #7\n\nSee" in text
    assert f"- [ ] Tests, as `List<T>`\n\n---\n\n{ACCOUNT}\n\n<sub>Made by Codepilot" in text
    assert "<!--" not in text
    assert "```py\nx = 1  # @hubot\n```" in text
    assert "See `@octo/team`, `octo/other#3`, Closes `#9` and the guide (`https://x.example`)." in text


def test_lines_can_end_with_carriage_returns() -> None:
    assert body(TEMPLATE.replace("\n", "\r")) == body(TEMPLATE)


@pytest.mark.parametrize(
    ("heading", "fits"),
    [
        ("# Summary", True),
        ("### What does this PR do?", True),
        ("## A short description of the change", True),
        ("Proposed changes\n---", True),
        ("**Description**", True),
        ("**Overview:**", True),
        ("## What type of PR is this?", False),
        ("## Breaking changes", False),
        ("## Why", False),
        ("## How has this been tested?", False),
        ("A description of it", False),
        ("```\n# Summary\n```", False),
    ],
)
def test_which_headings_fit(heading: str, fits: bool) -> None:  # noqa: FBT001 - a column of the table
    filled = fill_template(f"{heading}\n\nWords.\n", TEXT, ALLOWED)
    assert filled == (f"{heading}\n\n{TEXT}\n\nWords." if fits else f"{TEXT}\n\n{heading}\n\nWords.")


@pytest.mark.parametrize("template", ["", " \n", "<!-- only a comment", "x" * 30_000])
def test_a_template_without_text_or_of_great_length_is_left_out(template: str) -> None:
    assert body(template) == body("")
    assert body("").startswith(ACCOUNT)


@pytest.mark.parametrize(
    ("paths", "chosen"),
    [
        (["docs/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE.md"], ".github/PULL_REQUEST_TEMPLATE.md"),
        (["docs/pull_request_template.md", "PULL_REQUEST_TEMPLATE"], "PULL_REQUEST_TEMPLATE"),
        (["docs/Pull_Request_Template.txt"], "docs/Pull_Request_Template.txt"),
        ([".github/PULL_REQUEST_TEMPLATE/fix.md"], ".github/PULL_REQUEST_TEMPLATE/fix.md"),
        ([".github/PULL_REQUEST_TEMPLATE/fix.md", ".github/PULL_REQUEST_TEMPLATE/new.md"], None),
        ([".github/PULL_REQUEST_TEMPLATE/fix.md", "pull_request_template.md"], "pull_request_template.md"),
        (["src/pull_request_template.md", "pull_request_template.py"], None),
        ([], None),
    ],
)
def test_the_default_template_is_githubs(paths: list[str], chosen: str | None) -> None:
    assert choose_template(paths) == chosen


def test_no_template_activates_anything() -> None:
    source = random.Random(7)  # noqa: S311 - for texts, not for secrets
    for _ in range(400):
        template = f"## Summary\n{hostile_text(source)}"
        assert TEXT in body(template)
        assert not foreign(body(template)) - foreign(body("")), template
