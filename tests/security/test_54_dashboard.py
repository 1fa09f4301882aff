"""The dashboard shows what strangers wrote: nobody sees it without a sign-in, and nothing of it becomes live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent_runtime import ToolReturned
from bot.dashboard.app import POLICY
from bot.dashboard.auth import client_address
from bot.dashboard.views import DashboardReader, RunMaterial
from bot.queue.records import StoredJob
from tests.bot.dashboard.serving import SECRET, TOKEN, Served, served
from tests.builders import a_job

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m"
PAGES = ("", "/runs", "/runs/j1", "/costs")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as site:
        await site.engine.accept(a_job(title=HOSTILE))
        yield site


@pytest.mark.parametrize("path", [*PAGES, "/runs/none"])
async def test_pages_require_a_sign_in(site: Served, path: str) -> None:
    status, text, answer = await site.get(path)
    assert (status, text) == (303, "")
    assert answer.headers["Location"].startswith("/dashboard/sign-in?next=")


async def test_events_and_sign_out_require_a_sign_in(site: Served) -> None:
    assert (await site.get("/events"))[0] == 401
    assert (await site.post("/sign-out"))[0] == 401


@pytest.mark.parametrize(("fault", "expected"), [(OSError("/srv/x"), 503), (KeyError("/srv/x"), 500)])
async def test_a_page_that_cannot_be_made_has_no_details_and_all_headers(
    site: Served, fault: Exception, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_reader: DashboardReader, _stored: StoredJob) -> RunMaterial:
        raise fault

    monkeypatch.setattr(DashboardReader, "read_run", broken)
    await site.sign_in()
    status, text, answer = await site.get("/runs/j1")
    assert status == expected
    assert "See the log." in text
    assert "/srv/x" not in text
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "\udcff"])
async def test_a_foreign_token_is_rejected(site: Served, token: str) -> None:
    status, _, _ = await site.sign_in(token.encode("utf-8", "replace").decode())
    assert status == 403
    assert not site.cookie("codepilot_dashboard")


async def test_a_cookie_is_out_of_reach_of_scripts_and_of_other_sites_forms(site: Served) -> None:
    async with site.client.get("/dashboard/sign-in", headers={"X-Forwarded-Proto": "https"}) as answer:
        form = answer.headers["Set-Cookie"]
    assert all(each in form for each in ("HttpOnly", "SameSite=Strict", "Path=/dashboard", "Secure"))
    status, _, answer = await site.sign_in()
    assert status == 303
    assert all(each in answer.headers["Set-Cookie"] for each in ("HttpOnly", "SameSite=Lax", "Path=/dashboard"))


async def test_a_form_of_another_site_neither_signs_in_nor_out(site: Served) -> None:
    assert (await site.sign_in(form="another"))[0] == 403
    assert (await site.post("/sign-in", token=TOKEN))[0] == 403
    await site.sign_in()
    assert (await site.post("/sign-out", form="another"))[0] == 403
    assert (await site.get())[0] == 200


async def test_a_cookie_or_a_form_that_no_page_of_ours_made_is_refused_without_a_trace(
    site: Served, caplog: pytest.LogCaptureFixture
) -> None:
    # The client sends no such cookie.
    url = urlsplit(str(site.client._base_url))
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(b"GET /dashboard/sign-in HTTP/1.1\r\nHost: x\r\nCookie: codepilot_dashboard_form=\xff\r\n")
    writer.write(b"Connection: close\r\n\r\n")
    async with asyncio.timeout(20):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    status, text, answer = await site.post("/sign-in", **{f"field{number}": "" for number in range(11)})
    assert (status, answer.headers["Content-Security-Policy"]) == (400, POLICY)
    assert "more than 10 fields" in text
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_cookie_that_is_changed_or_over_or_signed_out_counts_no_more(site: Served) -> None:
    await site.sign_in()
    cookie = site.cookie("codepilot_dashboard")
    for other in (cookie[:-4] + "AAAA", "x", "", "é"):
        assert site.sign_ins.read(other) is None
    own = site.sign_ins.read(cookie)
    assert own is not None
    site.clock.now += 8 * 3600 - 1
    assert site.sign_ins.read(cookie) == own
    assert (await site.post("/sign-out", form=own.form))[0] == 303
    assert site.sign_ins.read(cookie) is None
    later = site.sign_ins.create()
    site.clock.now += 8 * 3600
    assert site.sign_ins.read(later) is None


async def test_attempts_to_sign_in_are_limited(site: Served) -> None:
    answers = [(await site.sign_in("wrong"))[0] for _ in range(21)]
    assert answers == [403] * 20 + [429]
    assert (await site.sign_in())[0] == 429
    site.clock.now += 60
    assert (await site.sign_in())[0] == 303


async def _try_forwarded(site: Served, forwarded: str) -> int:
    form = {"form": site.cookie("codepilot_dashboard_form"), "token": "wrong"}
    headers = {"X-Forwarded-For": forwarded}
    async with site.client.post("/dashboard/sign-in", headers=headers, data=form) as answer:
        return answer.status


async def test_a_client_that_names_other_addresses_is_counted_by_its_own(site: Served) -> None:
    await site.get("/sign-in")
    answers = [await _try_forwarded(site, f"203.0.113.{number}") for number in range(21)]
    assert answers == [403] * 20 + [429]


async def test_attempts_of_one_client_of_a_proxy_keep_no_other_out(tmp_path: Path) -> None:
    async with served(tmp_path, proxies=(ip_network("127.0.0.0/8"),)) as site:
        await site.get("/sign-in")
        # What a client writes itself stands before what the proxy adds.
        answers = [await _try_forwarded(site, f"198.51.100.{number}, 203.0.113.7") for number in range(21)]
        assert answers == [403] * 20 + [429]
        assert await _try_forwarded(site, "203.0.113.8") == 403
        assert await _try_forwarded(site, "no address") == 403


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.7 , 10.0.0.2", "203.0.113.7"),  # two proxies, one behind the other
        ("10.0.0.1", "10.0.0.3,10.0.0.2", "10.0.0.3"),
        ("::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("203.0.113.9", "203.0.113.7", "203.0.113.9"),
        ("192.168.0.1", "203.0.113.7", "192.168.0.1"),
        ("127.0.0.1", "203.0.113.7", "127.0.0.1"),
        ("", "203.0.113.7", ""),
        ("2001:db8::1", "", "2001:db8::/64"),
        ("2001:db8::ffff:1", "", "2001:db8::/64"),
        ("10.0.0.1", "2001:db8:0:1::5", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "", "fe80::/64"),
    ],
)
def test_a_client_is_identified_by_connection_or_trusted_proxy(peer: str, forwarded: str, client: str) -> None:
    assert client_address(peer, forwarded, (ip_network("10.0.0.0/8"),)) == client


@pytest.mark.parametrize(
    "next_page", ["https://evil.example", "//evil.example", "/dashboard/../webhook", "/dashboard\\@evil.example", "/"]
)
async def test_a_sign_in_leads_nowhere_else(site: Served, next_page: str) -> None:
    _, _, answer = await site.sign_in(next=next_page)
    assert answer.headers["Location"] == "/dashboard"


async def test_untrusted_content_is_text(site: Served) -> None:
    said = f"{HOSTILE} {SECRET}"
    call = ToolReturned(number=1, tool="execute", args={}, value=None, text=said, ok=True, seconds=0.1, label=said)
    site.events, site.patch = [call], f"+{said}\n"
    await site.sign_in()
    for path in PAGES:
        status, text, answer = await site.get(path)
        assert status == 200
        assert text.count("<script") == 1, "the page's own"
        assert not any(each in text for each in ("<img", SECRET, "\x1b", "\u202e"))
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "unsafe" not in POLICY
    assert "&lt;script&gt;" in (await site.get("/runs/j1"))[1]


async def test_an_error_page_has_the_headers_and_no_details(site: Served) -> None:
    await site.sign_in()
    for path in ("/runs/none", "/nowhere", "/static/none.js", "/runs/%3Cscript%3E"):
        status, text, answer = await site.get(path)
        assert (status, answer.headers["Content-Security-Policy"]) == (404, POLICY)
        assert "<script" not in text


async def test_a_search_term_is_text(site: Served) -> None:
    await site.sign_in()
    _, text, _ = await site.get("/runs", params={"repository": '"><script>', "state": "<b>", "page": "9" * 30})
    assert text.count("<script") == 1
    assert '"&gt;' not in text


async def test_a_search_and_an_address_with_nul_are_no_fault_of_the_database(site: Served) -> None:
    await site.sign_in()
    status, page, _ = await site.get("/runs", params={"repository": "octo\0/calc"})
    assert (status, "octo/calc" in page) == (200, True)
    assert (await site.get("/runs/a%00b"))[0] == 404


async def test_open_pages_are_bounded_and_end_with_the_sign_in(site: Served) -> None:
    await site.sign_in()
    opened = [await site.client.get("/dashboard/events") for _ in range(20)]
    assert {each.status for each in opened} == {200}
    assert (await site.get("/events"))[0] == 503
    assert (await site.get("/events?run=none"))[0] == 404
    for each in opened:
        each.close()


async def test_pages_listen_to_changes_of_all_jobs_or_of_one_log(site: Served) -> None:
    await site.sign_in()
    async with site.client.get("/dashboard/events?run=j1") as events, asyncio.timeout(20):
        await events.content.readuntil(b"event: changed\ndata: .\n\n")
        site.events.append(
            ToolReturned(number=1, tool="t", args={}, value=None, text="", ok=True, seconds=0.0, label="")
        )
        await events.content.readuntil(b"event: changed\ndata: .\n\n")
        await site.engine.accept(a_job("j2", number=8))
        await events.content.readuntil(b"event: changed\ndata: .\n\n")
