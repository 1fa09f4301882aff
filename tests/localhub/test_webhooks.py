from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from gidgethub import sansio

from localhub import WebhookDelivery
from tests.hub_client import app_jwt, client
from tests.localhub.conftest import World
from tests.waiting import eventually

SECRET = "correct horse"


@dataclass(slots=True)
class Receiver:
    """A webhook receiver that keeps what it gets, and answers what it is told to."""

    url: str = ""
    status: int = 200
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.got.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        return web.Response(status=self.status, text="heard")

    def events(self) -> list[str]:
        return [sansio.Event.from_http(headers, body, secret=SECRET).event for headers, body in self.got]


@pytest.fixture
async def receiver(world: World) -> AsyncIterator[Receiver]:
    listening = Receiver()
    app = web.Application()
    app.router.add_post("/hook", listening.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listening.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    world.hub.set_webhook(world.app, listening.url, SECRET)
    await eventually(lambda: listening.got)
    listening.got.clear()
    yield listening
    await runner.cleanup()


async def last(world: World, event: str) -> WebhookDelivery:
    """The newest delivery of an event, once it has arrived."""

    def found() -> WebhookDelivery | None:
        of_event = [d for d in world.hub.deliveries if d.event == event and d.status != "pending"]
        return of_event[-1] if of_event else None

    delivery = await eventually(found)
    assert delivery is not None
    return delivery


async def test_a_comment_arrives_signed_over_its_exact_bytes(world: World, receiver: Receiver) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    world.hub.comment(world.repo, 1, author="mona", body="/codepilot fix ünïcode")
    await eventually(lambda: len(receiver.got) == 2)
    by_event = {headers["x-github-event"]: (headers, body) for headers, body in receiver.got}
    headers, body = by_event["issue_comment"]
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature-256"] == f"sha256={expected}"
    assert headers["user-agent"].startswith("GitHub-Hookshot/")
    event = sansio.Event.from_http(headers, body, secret=SECRET)
    assert event.data["comment"]["body"] == "/codepilot fix ünïcode"
    assert event.data["installation"]["id"] == world.installation
    assert event.data["sender"]["login"] == "mona"


async def test_what_happens_to_a_pull_request_is_told(world: World, receiver: Receiver) -> None:
    hub, repo = world.hub, world.repo
    hub.commit(repo, {"a.txt": "a\n"}, message="A", author="mona", branch="fix")
    hub.open_pull(repo, author="mona", head="fix", title="A")
    hub.label(repo, 1, "now", by="mona")
    hub.commit(repo, {"b.txt": "b\n"}, message="B", author="mona", branch="fix")
    hub.merge(repo, 1, by="mona")
    sent = [(d.event, d.action) for d in hub.deliveries if d.event in {"push", "pull_request"}]
    assert sent == [
        ("push", None),
        ("pull_request", "opened"),
        ("pull_request", "labeled"),
        ("push", None),
        ("pull_request", "synchronize"),
        ("pull_request", "closed"),
        ("push", None),
    ]
    await eventually(lambda: len(receiver.got) == len(sent))


async def test_a_failed_delivery_is_logged_and_comes_again_under_its_guid(world: World, receiver: Receiver) -> None:
    receiver.status = 500
    world.hub.open_issue(world.repo, author="mona", title="It breaks")
    failed = await last(world, "issues")
    assert (failed.status_code, failed.response_body) == (500, "heard")
    assert len(receiver.got) == 1
    receiver.status = 202
    listed = await world.itself.ask("GET", "/app/hook/deliveries")
    assert listed.body[0]["guid"] == failed.guid
    await world.itself.ask("POST", f"/app/hook/deliveries/{failed.id}/attempts")
    await eventually(lambda: len(receiver.got) == 2)
    assert receiver.got[0][1] == receiver.got[1][1]
    again = await eventually(lambda: [d for d in world.hub.deliveries if d.redelivery and d.status == "OK"])
    assert again[0].guid == failed.guid


async def test_a_receiver_that_is_gone_is_logged(world: World) -> None:
    world.hub.set_webhook(world.app, "http://127.0.0.1:9/hook", SECRET)
    ping = await last(world, "ping")
    assert (ping.status_code, ping.status.partition(":")[0]) == (0, "failed to connect to host")


async def test_only_what_was_subscribed_to_and_is_installed_is_sent(world: World, receiver: Receiver) -> None:
    other = world.hub.add_repo("acme/other", owner="mona", files={"a": "a"})
    quiet = world.hub.add_app("quiet", webhook_url=receiver.url, webhook_secret=SECRET, events=["push"])
    world.hub.install(quiet, world.repo)
    world.hub.open_issue(other, author="mona", title="Nobody hears")
    world.hub.open_issue(world.repo, author="mona", title="One hears")
    issues = [d for d in world.hub.deliveries if d.event == "issues"]
    assert [(d.app_id, d.repository_id) for d in issues] == [(world.app.id, world.repo.id)]


async def test_deliveries_are_listed_by_cursor_and_by_how_they_ended(world: World, receiver: Receiver) -> None:
    issue = world.hub.open_issue(world.repo, author="mona", title="Hm")
    for status in (200, 500, 200):
        receiver.status = status
        world.hub.comment(world.repo, issue.number, author="mona", body="Hm.")
        await last(world, "issue_comment")
        await eventually(lambda: all(each.status != "pending" for each in world.hub.deliveries))
    ids = [each.id for each in world.hub.deliveries][::-1]
    async with client(world.hub, app_jwt(world.app)) as itself:
        seen, path = [], "/app/hook/deliveries?per_page=2"
        while path:
            page = await itself.ask("GET", path)
            seen += [each["id"] for each in page.body]
            assert len(page.body) <= 2
            path = page.headers.get("Link", "").partition(">")[0].removeprefix("<")
        assert seen == ids
        failed = await itself.ask("GET", "/app/hook/deliveries?status=failure")
        assert [each["status_code"] for each in failed.body] == [500]
        assert (await itself.ask("GET", "/app/hook/deliveries?cursor=x")).status == 422
