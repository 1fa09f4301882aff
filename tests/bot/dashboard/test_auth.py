"""People sign in with GitHub, and see what GitHub says that they may see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest

from bot.dashboard.auth import ATTEMPT_SECONDS, People
from bot.github.app import OAuthClient
from bot.github.types import GitHubError
from bot.queue.ledger import DurableSchedules
from tests.bot.dashboard.serving import Served, served
from tests.builders import a_job
from tests.waiting import eventually


@dataclass
class Directory:
    """GitHub, of one person."""

    client_id: str = "Iv1.7"
    server_url: str = "https://github.example.com"
    repos: frozenset[int] | None = frozenset({10})
    user_login: str = "mona"
    fails: bool = False
    repository_requests: int = 0
    exchanged: list[tuple[str, str]] = field(default_factory=list)

    async def exchange(self, code: str, verifier: str) -> str:
        self.exchanged.append((code, verifier))
        if code != "good":
            raise GitHubError("exchange a code", status=200, message="no", remedy="try again")
        return "ghu_of-mona"

    async def login(self, token: str) -> str:
        return {"ghu_of-mona": self.user_login}[token]

    async def repositories(self, token: str) -> frozenset[int] | None:
        self.repository_requests += 1
        if self.fails:
            raise GitHubError("list repositories", status=503, message="down", remedy="wait")
        return self.repos if token == "ghu_of-mona" else None


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
async def site(tmp_path: Path, directory: Directory) -> AsyncIterator[Served]:
    async with served(tmp_path, token=None, directory=directory) as site:
        await site.engine.accept(a_job())
        yield site


async def _authorize_query(site: Served, next_page: str = "/dashboard/runs") -> dict[str, str]:
    """Return the query of the address at GitHub that a sign-in redirects to."""
    status, _, answer = await site.get("/github", params={"next": next_page})
    assert status == 303
    query = urlsplit(answer.headers["Location"]).query
    return {name: values[0] for name, values in parse_qs(query).items()}


async def _back(site: Served, code: str = "good", state: str | None = None) -> tuple[int, str]:
    sent = await _authorize_query(site)
    params = {"code": code, "state": sent["state"] if state is None else state}
    status, _, answer = await site.get("/github/back", params=params)
    return status, answer.headers.get("Location", "")


async def test_a_person_comes_back_signed_in_to_the_page_that_they_wanted(site: Served, directory: Directory) -> None:
    sent = await _authorize_query(site)
    assert (sent["client_id"], sent["code_challenge_method"]) == ("Iv1.7", "S256")
    assert "redirect_uri" not in sent
    assert await _back(site) == (303, "/dashboard/runs")
    [(code, verifier)] = directory.exchanged
    assert code == "good"
    assert len(verifier) >= 43
    status, text, _ = await site.get("/runs/j1")
    assert status == 200
    assert "mona" in text
    assert "ghu_" not in f"{text}{site.cookie('codepilot_dashboard')}"


@pytest.mark.parametrize(("code", "state"), [("bad", None), ("good", "another"), ("good", ""), ("", None)])
async def test_who_was_not_sent_from_here_or_has_no_code_is_not_signed_in(
    site: Served, code: str, state: str | None
) -> None:
    assert (await _back(site, code, state))[0] == 403
    assert not site.cookie("codepilot_dashboard")


async def test_whom_github_gives_no_name_is_not_taken_for_the_operator(tmp_path: Path, directory: Directory) -> None:
    directory.user_login = ""
    async with served(tmp_path, directory=directory) as site:
        assert (await _back(site))[0] == 403
        assert not site.cookie("codepilot_dashboard")


async def test_who_comes_back_too_late_or_without_their_cookie_is_not_signed_in(
    site: Served, directory: Directory
) -> None:
    sent = await _authorize_query(site)
    site.clock.now += ATTEMPT_SECONDS
    assert (await site.get("/github/back", params={"code": "good", "state": sent["state"]}))[0] == 403
    sent = await _authorize_query(site)
    site.client.cookie_jar.clear()
    assert (await site.get("/github/back", params={"code": "good", "state": sent["state"]}))[0] == 403
    assert not directory.exchanged


async def test_a_run_of_another_repository_does_not_exist(site: Served, directory: Directory) -> None:
    await site.spend(a_job(), 1.0, labels=("secret-label",))
    await DurableSchedules(site.engine._store).save(a_job().repo, 1, {"nightly": "17 3 * * *"})
    await _back(site)
    shown = (await site.get("/costs"))[1]
    assert [word in shown for word in ("octo/calc", "secret-label", "nightly")] == [True] * 3
    directory.repos = frozenset({11})
    site.clock.now += 301
    assert (await site.get("/runs/j1"))[0] == 404
    for path in ("/costs", "/costs?label=secret-label", "/costs?repository=octo/calc"):
        _, page, _ = await site.get(path)
        assert "No run had a cost in this month." in page
        assert "nightly" not in page
    assert (await site.get("/events?run=j1"))[0] == 404
    for path in ("", "/runs", "/runs?repository=octo/calc"):
        assert "octo/calc#7" not in (await site.get(path))[1]


async def test_what_a_person_may_see_is_asked_again_after_five_minutes(site: Served, directory: Directory) -> None:
    await _back(site)
    assert (await site.get("/runs/j1"))[0] == 200
    directory.repos = frozenset()
    assert (await site.get("/runs/j1"))[0] == 200
    assert directory.repository_requests == 1
    site.clock.now += 301
    assert (await site.get("/runs/j1"))[0] == 404


async def test_pages_that_are_opened_together_ask_once(site: Served, directory: Directory) -> None:
    await _back(site)
    answers = await asyncio.gather(*(site.get("/runs") for _ in range(5)))
    assert {status for status, _, _ in answers} == {200}
    assert directory.repository_requests == 1


async def test_a_person_who_signs_in_again_keeps_no_more_pages_open(site: Served) -> None:
    opened = []
    for _ in range(3):
        await _back(site)
        opened += [await site.client.get("/dashboard/events") for _ in range(7)]
    assert [each.status for each in opened] == [200] * 20 + [503]
    for each in opened:
        each.close()


async def test_nothing_is_shown_while_github_does_not_answer(site: Served, directory: Directory) -> None:
    await _back(site)
    directory.fails = True
    assert (await site.get("/runs/j1"))[0] == 503
    directory.fails = False
    assert (await site.get("/runs/j1"))[0] == 200


async def test_a_failure_that_nobody_waited_for_any_more_is_not_shown_later(
    site: Served, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    people, asked, fails = People(cast("OAuthClient", directory), site.sign_ins), asyncio.Event(), asyncio.Event()
    once = directory.repositories

    async def slowly(token: str) -> frozenset[int] | None:
        asked.set()
        await fails.wait()
        return await once(token)

    directory.fails = True
    monkeypatch.setattr(directory, "repositories", slowly)
    closed = asyncio.create_task(people.repositories("ghu_of-mona"))
    await asked.wait()
    closed.cancel()
    await asyncio.wait([closed])
    fails.set()
    await eventually(lambda: directory.repository_requests)
    directory.fails = False
    assert await people.repositories("ghu_of-mona") == frozenset({10})


async def test_who_signs_out_while_github_does_not_answer_is_signed_out(site: Served, directory: Directory) -> None:
    await _back(site)
    own = site.sign_ins.read(site.cookie("codepilot_dashboard"))
    assert own is not None
    directory.fails = True
    assert (await site.post("/sign-out", form=own.form))[0] == 303
    assert site.sign_ins.read(site.sign_ins.seal(asdict(own))) is None


async def test_who_has_taken_the_token_back_is_signed_out(site: Served, directory: Directory) -> None:
    await _back(site)
    directory.repos = None
    assert (await site.get("/runs/j1"))[0] == 303


async def test_without_a_token_of_the_operator_nobody_is_the_operator(site: Served) -> None:
    assert (await site.sign_in(""))[0] == 403
    assert site.sign_ins.read(site.sign_ins.create()) is None
