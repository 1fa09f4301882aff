"""The page of costs: months, filters, and names that people wrote."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.domain.commands import RecipeBounds
from bot.domain.job import Actor, Repo
from tests.bot.dashboard.serving import Served, served
from tests.builders import a_job

SITE = Repo(id=11, full_name="octo/site", private=True)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as site:
        await site.sign_in()
        yield site


async def _fill(site: Served) -> None:
    await site.spend(a_job("a"), 1.25, labels=("bug", "<b onclick=x>&"))
    tidy = RecipeBounds(name="tidy", level=None, tools=None, comment=None)
    other = replace(a_job("b"), repo=SITE, actor=Actor(id=9, login="hubot"), recipe=tidy)
    await site.spend(other, 2.5, verb="ask", labels=("bug",))
    await site.spend(replace(a_job("c"), repo=SITE), None, verb="review")


async def test_a_month_is_shown_by_each_dimension_and_can_be_narrowed(site: Served) -> None:
    await _fill(site)
    _, page, _ = await site.get("/costs")
    assert f"Costs in {datetime.now(UTC):%Y-%m}" in page
    assert "$3.75 and 1 of unknown cost (1,000 tokens) in 3 runs" in page
    for title in ("Repository", "Person", "Label", "Recipe", "Verb"):
        assert f'<th scope="col">{title}</th>' in page
    assert "&lt;b onclick=x&gt;&amp;" in page
    assert "<b onclick" not in page
    _, narrowed, _ = await site.get("/costs", params={"label": "<b onclick=x>&"})
    assert "$1.25 in 1 run<" in narrowed
    assert "label: &lt;b onclick=x&gt;&amp;" in narrowed
    assert "octo/site" not in narrowed
    _, both, _ = await site.get("/costs?label=bug&person=hubot")
    assert "$2.50 in 1 run<" in both


@pytest.mark.parametrize("month", ["2026-13", "0000-01", "9999-12", "x", "2026-1", "2026-11-01", "\0"])
async def test_what_is_no_month_shows_the_present_one(site: Served, month: str) -> None:
    status, page, _ = await site.get("/costs", params={"month": month})
    assert status == 200
    assert f"Costs in {time.strftime('%Y-%m', time.gmtime())}" in page


async def test_an_earlier_month_has_its_own_costs(site: Served) -> None:
    await _fill(site)
    _, page, _ = await site.get("/costs?month=2025-12")
    assert "Costs in 2025-12" in page
    assert "No run had a cost in this month." in page
    assert "month=2025-11" in page
    assert "month=2026-01" in page
