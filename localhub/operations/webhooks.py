"""Webhooks: subscribers, signatures, one delivery each in the background, and the log."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
import uuid
from dataclasses import replace

import aiohttp

from localhub.state.model import App, Installation, Repo, User, WebhookDelivery
from localhub.state.store import Json, Site, iso, node_id
from localhub.views import accounts as account_views

TIMEOUT = 10.0
"""GitHub gives up on a receiver after ten seconds, and never tries again by itself."""


def emit(site: Site, event: str, repo: Repo, sender: User, payload: Json, *, only: App | None = None) -> None:
    """Send an event of a repository to every App that is installed there and subscribed to it, or to one of them."""
    for installation in site.store.installations:
        app = site.store.apps[installation.app_id]
        if repo.id not in installation.repo_ids or installation.suspended_at is not None:
            continue
        if not _subscribed(app, event, installation) or (only is not None and only.id != app.id):
            continue
        whole = payload | {
            "repository": repository(site, repo, event),
            "sender": account_views.simple_user(site, sender),
            "installation": {
                "id": installation.id,
                "node_id": node_id("Installation", installation.id),
            },
        }
        owner = account_views.owner_of(site, repo)
        if owner.type == "Organization":
            whole["organization"] = account_views.organization(site, owner)
        dispatch(site, app, event, whole, installation=installation, repo=repo)


def _subscribed(app: App, event: str, installation: Installation) -> bool:
    """Apps that may write checks get `check_run` unasked (docs: "Webhook events and payloads", check_run)."""
    return event in app.events or (event == "check_run" and installation.permissions.get("checks") == "write")


def repository(site: Site, repo: Repo, event: str) -> Json:
    """A repository as a payload carries it; a push gives its times in seconds, as GitHub does."""
    shown = account_views.repository(site, repo)
    if event == "push":
        shown |= {
            "created_at": int(repo.created_at.timestamp()),
            "pushed_at": int(repo.pushed_at.timestamp()),
            "stargazers": 0,
            "master_branch": repo.default_branch,
        }
    return shown


def dispatch(
    site: Site, app: App, event: str, payload: Json, *, installation: Installation | None, repo: Repo | None
) -> WebhookDelivery | None:
    """Record a delivery to one App and put it on its way; nothing happens when it has no webhook address."""
    if site.seen_payload is not None:
        site.seen_payload(event, payload)
    if not app.webhook_url:
        return None
    body = json.dumps(payload).encode()
    guid = str(uuid.uuid4())
    delivery = WebhookDelivery(
        id=site.store.new_id(),
        guid=guid,
        app_id=app.id,
        event=event,
        action=payload.get("action"),
        installation_id=installation.id if installation else None,
        repository_id=repo.id if repo else None,
        delivered_at=site.now(),
        redelivery=False,
        url=app.webhook_url,
        request_headers=_headers(app, event, guid, body),
        body=body,
    )
    site.store.deliveries.put(delivery)
    site.send(delivery)
    return delivery


def redeliver(site: Site, old: WebhookDelivery) -> WebhookDelivery:
    """Send the same bytes under the same GUID again, to where the App's webhook points now."""
    app = site.store.apps[old.app_id]
    again = replace(
        old,
        id=site.store.new_id(),
        redelivery=True,
        delivered_at=site.now(),
        url=app.webhook_url,
        request_headers=_headers(app, old.event, old.guid, old.body),
        status="pending",
        status_code=0,
        duration=0.0,
        response_headers={},
        response_body="",
    )
    site.store.deliveries.put(again)
    site.send(again)
    return again


def ping(site: Site, app: App) -> None:
    """Tell an App that its webhook was set up."""
    hook = {
        "type": "App",
        "id": app.hook_id,
        "name": "web",
        "active": True,
        "events": list(app.events),
        "config": {"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": app.webhook_url},
        "created_at": iso(app.created_at),
        "updated_at": iso(app.created_at),
        "app_id": app.id,
        "deliveries_url": site.api("app", "hook", "deliveries"),
    }
    payload = {"zen": "Keep it logically awesome.", "hook_id": app.hook_id, "hook": hook}
    dispatch(site, app, "ping", payload, installation=None, repo=None)


def installation(site: Site, value: Installation, sender: User, action: str) -> None:
    """Tell an App that somebody installed, suspended or removed it."""
    payload = {
        "action": action,
        "installation": account_views.installation(site, value),
        "repositories": [_short(site.store.repos[number]) for number in value.repo_ids],
        "requester": None,
        "sender": account_views.simple_user(site, sender),
    }
    dispatch(site, site.store.apps[value.app_id], "installation", payload, installation=value, repo=None)


def installation_repositories(site: Site, value: Installation, sender: User, action: str, repo: Repo) -> None:
    """Tell an App that its installation covers one repository more (`added`) or less (`removed`)."""
    payload = {
        "action": action,
        "installation": account_views.installation(site, value),
        "repository_selection": "selected",
        "repositories_added": [_short(repo)] if action == "added" else [],
        "repositories_removed": [_short(repo)] if action == "removed" else [],
        "requester": None,
        "sender": account_views.simple_user(site, sender),
    }
    dispatch(site, site.store.apps[value.app_id], "installation_repositories", payload, installation=value, repo=None)


def _short(repo: Repo) -> Json:
    return {
        "id": repo.id,
        "node_id": node_id("Repository", repo.id),
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
    }


def sign(secret: str, body: bytes) -> str:
    """The value of `X-Hub-Signature-256` for these exact bytes."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def _headers(app: App, event: str, guid: str, body: bytes) -> dict[str, str]:
    signature = {"X-Hub-Signature-256": sign(app.webhook_secret, body)} if app.webhook_secret else {}
    return {
        "Accept": "*/*",
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/localhub",
        "X-GitHub-Delivery": guid,
        "X-GitHub-Event": event,
        "X-GitHub-Hook-ID": str(app.hook_id),
        "X-GitHub-Hook-Installation-Target-ID": str(app.id),
        "X-GitHub-Hook-Installation-Target-Type": "integration",
        **signature,
    }


def unsent(delivery: WebhookDelivery) -> None:
    """Refuse a delivery: `Site.send` while the hub is not running.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"the hub is not running, so {delivery.event} cannot be delivered; call start() first")


class WebhookSender:
    """Carries deliveries out in the background, on the hub's event loop."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, delivery: WebhookDelivery) -> None:
        """Start one attempt; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._start, delivery)

    def _start(self, delivery: WebhookDelivery) -> None:
        task = self._loop.create_task(self._deliver(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: WebhookDelivery) -> None:
        began = time.monotonic()
        done = delivery
        try:
            async with self._session.post(
                delivery.url, data=delivery.body, headers=dict(delivery.request_headers), allow_redirects=False
            ) as response:
                text = await response.text(errors="replace")
                done = replace(
                    delivery,
                    status="OK" if response.ok else f"Invalid HTTP Response: {response.status}",
                    status_code=response.status,
                    response_headers=dict(response.headers),
                    response_body=text,
                )
        except TimeoutError:
            done = replace(delivery, status="timed out")
        except aiohttp.ClientError as error:
            done = replace(delivery, status=f"failed to connect to host: {error}")
        with self._site.lock:
            self._site.store.deliveries.put(replace(done, duration=time.monotonic() - began))

    async def close(self) -> None:
        """Cancel pending deliveries and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
