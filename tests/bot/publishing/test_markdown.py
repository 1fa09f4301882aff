"""Escaped model text has no effect on a GitHub page, and stays readable."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.cmark import parse_markdown
from bot.publishing.markdown import (
    BotMarkup,
    code,
    defuse,
    escape_markdown,
    fence,
    is_harmless,
    redact_inertly,
)
from bot.publishing.redact import Redactor
from tests.github_page import ALLOWED, foreign, hostile_text, live_in


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
        ("Check http://10.0.0.1:8080/v1. Then", "Check `http://10.0.0.1:8080/v1`. Then"),
        ("[x]: https://evil.example\n\n[x]", "\\[x]: `https://evil.example`\n\n[x]"),
        ("/codepilot fix it", "\\/codepilot fix it"),
        ("- /assign @hubot", "- \\/assign `@hubot`"),
        ("```py\n@decorator  # 9\n```", "```py\n@decorator  # 9\n```"),
        ("```py\nleft open", "```py\nleft open\n```"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07bell", "red bell"),
        ("1https://evil.example/x", "1`https://evil.example/x`"),
        ("9https://github.example/o/r/issues/3", "9`https://github.example/o/r/issues/3`"),
        ("éhttps://evil.example", "é`https://evil.example`"),
        ("é#9 é@hubot éGH-4", "é`#9` é`@hubot` é`GH-4`"),
        ("HTTPS://evil.example", "`HTTPS://evil.example`"),
        ("a ` b @hubot", "a \\` b `@hubot`"),
        ("``\n# See\n`x` @hubot", "\\`\\`\n# See\n`x` `@hubot`"),
        ("| `` | @hubot | `` |\n|-|-|-|", "| \\`\\` | `@hubot` | \\`\\` |\n|-|-|-|"),
        ("```mermaid\ngraph\n```", "```text\ngraph\n```"),
        ("> - ~~~ GeoJSON x\n>   {}\n>   ~~~", "> - ~~~text\n>   {}\n>   ~~~"),
        ("```py title=a\nx\n```", "```py\nx\n```"),
        ("$\\href{//evil.example}{x}$", "```text\n$\\href{//evil.example}{x}$\n```"),
        ("zero\u200bwidth \u202etricks", "zerowidth tricks"),
    ],
)
def test_escaped_text_is_harmless_and_readable(text: str, shown: str) -> None:
    assert escape_markdown(text, ALLOWED) == shown
    assert is_harmless(shown, ALLOWED)
    assert not foreign(shown)


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
    assert is_harmless(escape_markdown(text, ALLOWED), ALLOWED)


@given(st.text(alphabet="@#`\\[]()<>!&*_~-+ \n\t|:/.wha9;'\"x", max_size=80))
def test_any_text_is_harmless(text: str) -> None:
    assert is_harmless(escape_markdown(text, ALLOWED), ALLOWED)


def test_hostile_texts_are_harmless_to_githubs_own_parser() -> None:
    texts = [hostile_text(random.Random(seed)) for seed in range(1_000)]  # noqa: S311 - the same texts every time
    shown = {text: foreign(escape_markdown(text, ALLOWED)) for text in texts}
    assert not {text: live for text, live in shown.items() if live}


@pytest.mark.parametrize("ticks", [1, 79, 80, 81, 200, 254, 255, 256, 400])
def test_no_run_of_back_ticks_leaves_a_code_span_or_a_block(ticks: int) -> None:
    run = "`" * ticks
    assert not foreign(code(f"{run} @hubot {run}"))
    assert not foreign(fence(f"{run}\n@hubot\n{run}`\n@hubot"))
    assert not foreign(fence(f"@hubot\n{run}"))


@pytest.mark.parametrize(
    "page",
    [
        *("", "/blob/main/a.py#L1-L9", "/blob/main/a%20b.py?plain=1", "/tree/main/src", "/commit/abcdef1", "/actions"),
        *("/actions/runs/7/job/9", "/issues/12", "/issues/12#issuecomment-3", "/pull/12/files", "/releases/tag/v1.0"),
    ],
)
def test_links_to_pages_of_the_repository_stay(page: str) -> None:
    assert ALLOWED.permits_link(f"https://github.example/octo/calc{page}")


@pytest.mark.parametrize(
    "address",
    [
        "/login/oauth/authorize?client_id=1",
        "/octo/calc/new/main?filename=.github/workflows/x.yml&value=x",
        "/octo/calc/edit/main/a.py",
        "/octo/calc/delete/main/a.py",
        "/octo/calc/issues/new?title=x",
        "/octo/calc/issues/9",
        "/octo/calc/pull/13",
        "/octo/calc/compare/main...evil?expand=1",
        "/octo/calc/settings",
        "/octo/calc/releases/new?tag=x",
        "/octo/calc/blob/main/../../../../login/oauth/authorize",
        "/octo/calc/blob/%2e%2e/%2E./../settings",
        "/octo/calc/blob/main/a.py?return_to=x",
        "/octo/calc\\..\\..\\login",
        "/octo/calculator",
        "/octo/other/blob/main/a.py",
        "/apps/evil/installations/new",
        "/settings/tokens/new",
        "/",
    ],
)
def test_links_to_actions_or_foreign_pages_do_not_stay(address: str) -> None:
    assert not ALLOWED.permits_link(f"https://github.example{address}")
    assert not foreign(escape_markdown(f"[x](https://github.example{address})", ALLOWED))


def test_links_to_other_hosts_never_stay() -> None:
    for host in ("github.example.evil.example", "github.example@evil.example", "github.example:1", "evil.example"):
        assert not ALLOWED.permits_link(f"https://{host}/octo/calc/blob/main/a.py")
    assert not ALLOWED.permits_link("http://github.example/octo/calc")
    assert not ALLOWED.permits_link("https://github.example\t/octo/calc")


def test_the_check_detects_each_active_element() -> None:
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
        assert not is_harmless(active, ALLOWED), active


_MARKER = "<!-- ours -->"
_TOKEN = "ghp_" + "a1B2" * 9
_KEY = "-----BEGIN PRIVATE KEY-----"
_OWN = BotMarkup(links=frozenset({"https://github.example/run/1"}), marker=_MARKER, tags=True)


@pytest.mark.parametrize(
    "active",
    [
        *("@hubot", "#9", "o/r#1", "o/r@abcdef1", "<b>x</b>", "<!-- x -->", "![a](b)", "[a](https://evil.example)"),
        *("&#64;hubot", "https://evil.example", "1https://evil.example", "www.evil.example", "a@b.example"),
        *("a ` b `@hubot` `", "```mermaid\nx\n```", "$`\\href{x}{y}`$", "[a](x)", "<sub>x</sub>", "[^1]\n\n[^1]: x"),
    ],
)
def test_the_parser_detects_each_active_element(active: str) -> None:
    assert not is_harmless(active, ALLOWED)


def test_only_the_bots_own_markup_is_allowed() -> None:
    more = "<details><summary>2 more</summary>\n\nx\n</details>"
    body = f"[run #9](https://github.example/run/1) for @mona\n\n{more}\n\n{_MARKER}"
    assert is_harmless(body, ALLOWED, _OWN)
    assert defuse(body, ALLOWED, _OWN, limit=1_000) == body
    for other in ("<b>", "<!-- theirs -->", "<sub class=x>", "[x](https://github.example/run/2)", "<sub>@hubot</sub>"):
        assert not is_harmless(f"{other}\n\n{body}", ALLOWED, _OWN)


@pytest.mark.parametrize("text", ["@hubot", "`" * 900, "``` `" * 200, "line\n" * 300])
def test_an_active_text_becomes_a_block_with_its_marker(text: str) -> None:
    sent = defuse(f"@hubot {text}\n\n{_MARKER}", ALLOWED, _OWN, limit=1_000)
    assert len(sent) <= 1_000
    assert sent.endswith(f"\n\n{_MARKER}")
    assert live_in(sent) == {"<!-- ours -->"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"see {_TOKEN} and `@hubot`", "see [redacted] and `@hubot`"),
        (f"see {_TOKEN}(//evil.example)", "`see [redacted](//evil.example)`"),
        (f"see\n{_TOKEN}(//evil.example)\n\n{_MARKER}", f"```text\nsee\n[redacted](//evil.example)\n```\n\n{_MARKER}"),
        (f"a {_KEY} bA=\n\n    {_KEY.replace('BEGIN', 'END')} @hubot", "`a [redacted] @hubot`"),
        (f"`` {_KEY} `` xA= `{_KEY.replace('BEGIN', 'END')}` `@hubot`", "``` `` [redacted]` `@hubot` ```"),
    ],
)
def test_a_redaction_activates_no_markup(before: str, after: str) -> None:
    assert is_harmless(before, ALLOWED, _OWN)
    shown = redact_inertly(Redactor().redact)(before)
    assert shown == after
    assert is_harmless(shown, ALLOWED, _OWN)


def test_reading_a_text_keeps_none_of_it() -> None:
    text = "**a** `x` " * 3_000
    parse_markdown(text)
    before = _resident()
    for _ in range(20):
        parse_markdown(text)
    assert _resident() - before < 25_000_000  # without freeing it is three times as much


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")
