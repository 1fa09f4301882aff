"""The model's words do nothing on a GitHub page, and still read as they were meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.publishing.defuse import Allowed, defuse, harmless

ALLOWED = Allowed(login="mona", number=12, server="https://github.example", repo="octo/calc")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Fixed the *parser* in `src/a.py`.", "Fixed the *parser* in `src/a.py`."),
        ("ping @octo/team and @hubot!", "ping `@octo/team` and `@hubot`!"),
        ("thanks @mona, see #12", "thanks @mona, see #12"),
        ("fixes #9, closes octo/other#3, GH-4", "fixes `#9`, closes `octo/other#3`, `GH-4`"),
        ("`a`@hubot", "`a` `@hubot`"),
        ("\\@hubot", "`@hubot`"),
        ("&#64;hubot", "&amp;#64;hubot"),
        ("write to a@b.example", "write to `a@b.example`"),
        ("<script>x</script> a < b", "&lt;script>x&lt;/script> a &lt; b"),
        ("![shot](https://evil.example/?q=secret)", "shot (`https://evil.example/?q=secret`)"),
        ("[docs](https://evil.example)", "docs (`https://evil.example`)"),
        (
            "[file](https://github.example/octo/calc/blob/main/a.py)",
            "[file](https://github.example/octo/calc/blob/main/a.py)",
        ),
        ("https://github.example/octo/other/issues/3", "`https://github.example/octo/other/issues/3`"),
        ("see www.evil.example", "see `www.evil.example`"),
        ("[x]: https://evil.example\n\n[x]", "\\[x]: `https://evil.example`\n\n[x]"),
        ("/codepilot fix it", "\\/codepilot fix it"),
        ("- /assign @hubot", "- \\/assign `@hubot`"),
        ("```py\n@decorator  # 9\n```", "```py\n@decorator  # 9\n```"),
        ("```py\nleft open", "```py\nleft open\n```"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07bell", "red bell"),
        ("zero\u200bwidth \u202etricks", "zerowidth tricks"),
    ],
)
def test_text_is_made_harmless_and_stays_readable(text: str, shown: str) -> None:
    assert defuse(text, ALLOWED) == shown
    assert harmless(shown, ALLOWED)


@pytest.mark.parametrize(
    "text",
    [
        "[a](<https://evil.example>)",
        "[a [b]](https://evil.example)",
        "[a]\n(https://evil.example)",
        "<https://evil.example>",
        "**@**hubot **@hubot** _@hubot_",
        "`` ` @hubot `",
        "```\n``` @hubot",
        "> ```\n> x\n\n@hubot",
        "    indented\n@hubot",
        "- a\n\n      @hubot code?\n- @hubot",
        "<!-- @hubot\n-->\n<details>\n\n#9",
        "| @hubot | #9 |\n|---|---|\n| <b> | [x](//evil.example) |",
        "[x][y]\n\n   [y]:\n https://evil.example 'title'",
        "![x][y]\n\n[y]: https://evil.example",
        "\\`@hubot\\`",
        "a\\\\`@hubot`` #9",
        "#\u200b9 @\u200bhubot",
    ],
)
def test_awkward_markdown_is_harmless(text: str) -> None:
    assert harmless(defuse(text, ALLOWED), ALLOWED)


@given(st.text(alphabet="@#`\\[]()<>!&*_~-+ \n\t|:/.wha9;'\"x", max_size=80))
def test_any_text_is_harmless(text: str) -> None:
    assert harmless(defuse(text, ALLOWED), ALLOWED)


def test_the_checker_sees_what_github_would_act_on() -> None:
    for active in (
        "@hubot",
        "#9",
        "o/r#1",
        "<b>x</b>",
        "![a](b)",
        "[a](https://evil.example)",
        "&#64;hubot",
        "https://evil.example",
    ):
        assert not harmless(active, ALLOWED), active
