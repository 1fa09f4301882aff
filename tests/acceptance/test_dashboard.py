"""The dashboard of a real service: a job runs, and a real browser sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest
from playwright.async_api import Page
from pydantic import SecretStr

from bot.domain.job import JobState
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableSpending
from localhub import LocalHub
from tests.browser import DESKTOP, PHONE, browser, opened
from tests.pauses import ASKING, pause_of
from tests.stage import COMPLETION, FIX, WAIT_FOR_GO, Stage, acting, build, staged

TOKEN = "the-operators-token-of-the-test"
HOSTILE = "<img src=x onerror=alert(1)>\u202e</title><script>alert(2)</script>"
NOISY = """execute("main", "printf '\\\\033[31mred<b>\\\\033[0m ghp_0123456789abcdefghij0123456789abcdef\\\\n'")"""


async def _sign_in(page: Page, address: str) -> None:
    await page.goto(address)
    await page.get_by_label("Operator's token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await page.wait_for_url(address)
    await page.get_by_text("Live", exact=True).wait_for()


@pytest.mark.slow
@pytest.mark.long
async def test_a_person_follows_a_run_in_a_browser(hub: LocalHub, tmp_path: Path) -> None:
    script = [acting(NOISY), acting(WAIT_FOR_GO), FIX]
    serving = {"dashboard_token": SecretStr(TOKEN), "trace_url": "https://traces.example.com/trace"}
    async with staged(hub, tmp_path, script, serving=serving) as stage, browser() as started:
        context = await started.new_context(viewport=DESKTOP, color_scheme="dark")
        watched = await opened(context)
        page = watched.page
        await _sign_in(page, f"{stage.address}/dashboard")

        # What is not answered once is asked for again.
        await page.route("**/dashboard", lambda route: route.abort(), times=1)
        issue = stage.issue(title=HOSTILE)
        job_id = await stage.job_of(stage.say(issue.number, "/codepilot fix"))
        # It appears without a reload.
        await page.get_by_text("Not live: the page cannot be loaded.").wait_for(timeout=20_000)
        await page.get_by_text("Live", exact=True).wait_for(timeout=20_000)
        watched.complaints.clear()
        await page.get_by_role("link", name="<img src=x").click(timeout=20_000)
        await stage.at_work()
        await page.locator("li.call summary").first.click(timeout=20_000)
        output = await page.locator("pre.terminal").first.inner_text()
        assert "red<b> [redacted]" in output
        await page.screenshot(path=tmp_path / "running.png", full_page=True)
        await stage.let_go(job_id)
        await page.get_by_text(COMPLETION).first.wait_for(timeout=20_000)
        await page.locator(".state.done").wait_for(timeout=20_000)
        assert await page.locator(".diff .added").first.inner_text() == "+    return a + b\n"
        assert await page.get_by_role("link", name="Pull request #2").count() == 1
        assert await page.get_by_role("link", name="Trace").get_attribute("href")
        await page.screenshot(path=tmp_path / "done.png", full_page=True)

        await page.keyboard.press("Tab")
        await page.goto(f"{stage.address}/dashboard")
        await page.screenshot(path=tmp_path / "queue.png")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        await page.keyboard.press("/")
        await page.keyboard.type("mona/calc")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/runs?*")
        assert await page.locator("tbody tr").count() == 1
        await page.goto(f"{stage.address}/dashboard/runs?repository=mona/other")
        assert await page.get_by_text("No run fits.").count() == 1
        await page.goto(f"{stage.address}/dashboard/costs")
        assert await page.get_by_role("link", name="mona/calc").count() == 1

        await page.set_viewport_size(PHONE)
        for path in ("", f"/runs/{job_id}", "/runs", "/costs"):
            await page.goto(f"{stage.address}/dashboard{path}")
            assert await watched.overflow() <= 0, path
            await page.screenshot(path=tmp_path / f"phone{path.replace('/', '-')}.png", full_page=True)
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/sign-in")
        await page.screenshot(path=tmp_path / "sign-in.png")
        assert not watched.complaints
        await context.close()


@pytest.mark.slow
async def test_a_person_signs_in_with_github_and_sees_their_own_repositories(hub: LocalHub, tmp_path: Path) -> None:
    app, repo = build(hub)
    hub.add_user("eve")
    other = hub.add_repo("eve/own", owner="eve", files={"README.md": "# Own\n"})
    hub.install(app, other)
    client_id, client_secret = hub.set_callback(app, "http://127.0.0.1:1/dashboard/github/back")
    serving = {"client_id": client_id, "client_secret": SecretStr(client_secret)}
    before = Stage(hub=hub, directory=tmp_path, app=app, repo=repo, queue=cast("DurableEngine", None), address="")
    async with staged(hub, tmp_path, [FIX], serving=serving, after=before) as stage, browser() as started:
        hub.set_callback(app, f"{stage.address}/dashboard/github/back")
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        run = f"{stage.address}/dashboard/runs/{end.job_id}"
        seen: dict[str, str | int] = {}
        for login in ("mona", "eve"):
            context = await started.new_context()
            watched = await opened(context)
            page = watched.page
            await page.goto(run)
            await page.get_by_role("link", name="Sign in with GitHub").click()
            await page.get_by_role("button", name=f"Sign in as {login}").click()
            await page.get_by_role("button", name="Authorize").click()
            await page.wait_for_url(run)
            seen[login] = await page.locator("h1").inner_text()
            await page.goto(f"{stage.address}/dashboard")
            seen[f"{login}'s runs"] = await page.locator("tbody tr").count()
            await page.goto(f"{stage.address}/dashboard/costs")
            seen[f"{login}'s costs"] = await page.locator("tbody tr").count()
            await context.close()
    assert seen == {
        "mona": "Adding is off by one",
        "mona's runs": 1,
        "mona's costs": 3,
        "eve": "Not found",
        "eve's runs": 0,
        "eve's costs": 0,
    }


@pytest.mark.slow
async def test_a_person_sees_an_approval_being_waited_for_and_given(hub: LocalHub, tmp_path: Path) -> None:
    asks, ends = acting('execute("main", "make <mischief>")'), acting("pass", completion="There is nothing to change.")
    serving = {"dashboard_token": SecretStr(TOKEN)}
    async with staged(hub, tmp_path, [asks], [ends], operator=ASKING, serving=serving) as stage, browser() as started:
        watched = await opened(await started.new_context(viewport=PHONE))
        page, waiting = watched.page, watched.page.locator(".approval.waiting")
        pause = await pause_of(stage, stage.say(stage.issue().number, "/codepilot fix"))
        await _sign_in(page, f"{stage.address}/dashboard")
        await page.get_by_role("link", name="Adding is off by one").click()
        assert "make <mischief>" in await waiting.locator("pre").inner_text(timeout=20_000)
        assert await waiting.get_by_text("Answer in a comment on GitHub").count() == 1
        assert await page.locator(".approval button, .approval form").count() == 0
        assert await watched.overflow() <= 0
        await page.get_by_text("Live", exact=True).wait_for()
        stage.say(pause.number, f"/codepilot approve {pause.short_id}")
        # It is told without a reload.
        given = page.locator(".approval.approved h3")
        assert (await given.inner_text(timeout=20_000)).endswith(f"{pause.request_id}: approved by mona")
        await page.locator(".state.done").wait_for(timeout=20_000)
        assert await waiting.count() == 0
        assert not watched.complaints


async def test_a_run_that_is_cancelled_while_it_waits_is_shown_with_its_cost(hub: LocalHub, tmp_path: Path) -> None:
    script, serving = [acting('ask_user("Which one?")')], {"dashboard_token": SecretStr(TOKEN)}
    async with staged(hub, tmp_path, script, serving=serving) as stage:
        pause = await pause_of(stage, stage.say(stage.issue().number, "/codepilot fix"))
        hub.suspend(stage.installation)
        assert (await stage.ended(pause.job_id)).state is JobState.STOPPED

        async with asyncio.timeout(30):
            while not await stage.queue.load_log(pause.job_id):  # noqa: ASYNC110 - the database tells nobody
                await asyncio.sleep(0.02)
        assert len(await DurableSpending(stage.queue._store).month_costs()) == 1
