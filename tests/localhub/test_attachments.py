"""Attachments, as GitHub gives them out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from localhub import LocalHub, NewComment
from tests.hub_client import Client, client
from tests.localhub.conftest import World
from tests.pictures import png

FULL = "application/vnd.github.full+json"


async def page(who: Client, path: str) -> str:
    """A text as it is rendered."""
    reply = await who.ask("GET", path, Accept=FULL)
    assert reply.status == 200
    return str(reply.body["body_html"])


def sources(rendered: str) -> list[str]:
    return re.findall(r'<img src="([^"]+)"', rendered)


async def test_one_of_a_public_repository_leads_anybody_to_a_signed_address(world: World) -> None:
    address = world.hub.attach(world.repo, png(), author="mona")
    assert re.fullmatch(rf"{world.hub.url}/user-attachments/assets/[0-9a-f-]{{36}}", address)
    reply = await world.nobody.staying().ask("GET", address)
    assert reply.status == 302
    assert reply.headers["Location"].startswith(f"{address}?jwt=")
    async with world.nobody.session.get(address) as shown:
        assert (shown.status, shown.content_type, await shown.read()) == (200, "image/png", png())


async def test_one_of_a_private_repository_opens_to_no_token_but_by_its_signed_address(world: World) -> None:
    address = world.hub.attach(world.secret, png(), author="mona")
    for who in (world.nobody, world.owner, world.bot):
        assert (await who.ask("GET", address)).status == 404
    issue = world.hub.open_issue(world.secret, author="mona", title="x", body=f"![Shot]({address})")
    [signed] = sources(await page(world.owner, f"/repos/acme/secret/issues/{issue.number}"))
    assert signed.startswith(f"{address}?jwt=")
    async with world.nobody.session.get(signed) as shown:
        assert await shown.read() == png()
    other = world.hub.attach(world.secret, png(2), author="mona")
    assert (await world.nobody.ask("GET", signed.replace(address, other))).status == 404
    assert (await world.nobody.ask("GET", f"{address}?jwt=x")).status == 404


async def test_a_signed_address_serves_for_five_minutes(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    async with LocalHub(tmp_path / "hub", now=lambda: moment) as hub, client(hub) as nobody:
        repo = hub.add_repo("acme/widgets", files={"a": "b"})
        address = hub.attach(repo, png(), author="acme")
        signed = (await nobody.staying().ask("GET", address)).headers["Location"]
        moment += timedelta(minutes=4)
        async with nobody.session.get(signed) as shown:
            assert shown.status == 200
        moment += timedelta(minutes=2)
        assert (await nobody.ask("GET", signed)).status == 404


async def test_every_text_is_rendered_for_those_who_ask(world: World) -> None:
    hub, repo = world.hub, world.repo
    address = hub.attach(repo, png(), author="mona")
    text = f"See **this**: ![Shot]({address}) <script>x</script>"
    hub.commit(repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    pull = hub.open_pull(repo, author="mona", head="topic", title="Two", body=text)
    comment = hub.comment(repo, pull.number, author="mona", body=text)
    wanted = NewComment(path="src/a.py", body=text, line=1, side="RIGHT")
    review = hub.review(repo, pull.number, author="mona", body=text, comments=[wanted])
    [said] = hub.review_comments(repo, pull.number)
    base = "/repos/acme/widgets"
    for path in (
        f"{base}/issues/{pull.number}",
        f"{base}/issues/comments/{comment.id}",
        f"{base}/pulls/comments/{said.id}",
        f"{base}/pulls/{pull.number}/reviews/{review.id}",
    ):
        rendered = await page(world.bot, path)
        assert len(sources(rendered)) == 1
        assert "<strong>this</strong>" in rendered
        assert "script" not in rendered
    listed = await world.bot.ask("GET", f"{base}/issues/{pull.number}/comments", Accept=FULL)
    assert "body_html" in listed.body[0]


@pytest.mark.parametrize("accept", ["application/vnd.github+json", "*/*"])
async def test_a_text_is_not_rendered_for_others(world: World, accept: str) -> None:
    issue = world.hub.open_issue(world.repo, author="mona", title="x", body="y")
    reply = await world.bot.ask("GET", f"/repos/acme/widgets/issues/{issue.number}", Accept=accept)
    assert "body_html" not in reply.body


async def test_an_attachment_that_is_not_there_is_not_there(world: World) -> None:
    assert (await world.nobody.ask("GET", f"{world.hub.url}/user-attachments/assets/x")).status == 404
