"""Deliveries of GitHub's events: their proof, the parts of their payloads, and the job made of one.

`from_webhook` checks the signature before anything is parsed; `from_action` reads the event of a workflow run.
`parse_payload` validates a payload with a model from here or from `triggers`. `reject_sender` keeps bots, and the bot
itself, from giving commands. `make_job` fills in the parts that all jobs share.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from gidgethub.sansio import Event
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from typing_extensions import override

from bot.domain.access import Listening, is_app
from bot.domain.commands import Command
from bot.domain.errors import MalformedError, UnauthenticatedError
from bot.domain.job import Actor, Job, Origin, Repo, Thread, ThreadKind

_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")
_EVENT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_ID = 2**63
_DELIVERY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event from GitHub, proven genuine by the entry point that received it.

    Attributes:
        id: GitHub's delivery GUID (`X-GitHub-Delivery`); for an Action, derived from its run id and attempt.
        event: the event's name, e.g. `issue_comment`.
        action: the payload's `action`, or the empty string.
        payload: the parsed JSON body.
        installation: the App installation's id, or None (an Action, or a repository webhook).
    """

    id: str
    event: str
    action: str
    payload: Mapping[str, Any]
    installation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredDelivery:
    """A genuine delivery that asks for nothing; `reason` is for the log and for GitHub's delivery page."""

    reason: str


class Proof:
    """Verification that bytes are signed with the webhook's secret; fed in chunks, so that they need not be in memory.

    The rules of the signature:
    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries

    Args:
        headers: the request's headers, in any case.
        secret: the webhook's secret; never empty.

    Raises:
        UnauthenticatedError: no SHA-256 signature.
    """

    def __init__(self, headers: Mapping[str, str], secret: str) -> None:
        if not secret:
            raise UnauthenticatedError("no webhook secret is configured, so deliveries cannot be verified")
        # GitHub also sends a SHA-1 signature, which proves less.
        self._signature = lower_names(headers).get("x-hub-signature-256", "")
        if not _SIGNATURE.fullmatch(self._signature):
            raise UnauthenticatedError(
                "the header X-Hub-Signature-256 is missing or is not a SHA-256 signature; "
                "set the same secret in the webhook's settings on GitHub and in CODEPILOT_WEBHOOK_SECRET"
            )
        self._digest = hmac.new(secret.encode(), digestmod="sha256")

    def feed(self, piece: bytes) -> None:
        """Hash the next bytes."""
        self._digest.update(piece)

    def check(self) -> None:
        """Compare the signatures in constant time.

        Raises:
            UnauthenticatedError: the signature is of other bytes, or made with another secret.
        """
        if not hmac.compare_digest(f"sha256={self._digest.hexdigest()}", self._signature):
            raise UnauthenticatedError(
                "the signature does not match the body; the secret on GitHub and CODEPILOT_WEBHOOK_SECRET differ"
            )


def from_webhook(headers: Mapping[str, str], body: bytes, secret: str) -> Delivery:
    """Prove that a request comes from GitHub, then parse it; nothing is parsed before the proof.

    Args:
        headers: the request's headers, in any case.
        body: the raw bytes, exactly as received.
        secret: the webhook's secret; never empty.

    Raises:
        UnauthenticatedError: no SHA-256 signature, or a wrong one.
        MalformedError: the signature is right, and the rest is not a delivery.
    """
    proof = Proof(headers, secret)
    proof.feed(body)
    proof.check()
    return from_proven(headers, body)


def from_proven(headers: Mapping[str, str], body: bytes) -> Delivery:
    """Parse a request that is proven to come from GitHub's webhook.

    Args:
        headers: the request's headers, in any case.
        body: the raw bytes.

    Raises:
        MalformedError: it is not a delivery.
    """
    names = lower_names(headers)
    content_type = names.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise MalformedError(
            f"the webhook sends {content_type or 'no content type'}; "
            "set its content type to application/json in the webhook's settings on GitHub"
        )
    data = _parse_json(body)
    event, delivery_id = names.get("x-github-event", ""), names.get("x-github-delivery", "")
    return _make_delivery(Event(data, event=event, delivery_id=delivery_id))


def _parse_json(body: bytes) -> object:
    # UTF-8 whatever charset the header claims (RFC 8259).
    with suppress(ValueError):
        return from_json(body, cache_strings="keys")
    # It is twice as fast, and takes less: half a surrogate pair, for example, is JSON.
    try:
        return json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise MalformedError("the body is not JSON in UTF-8") from error
    except RecursionError as error:
        raise MalformedError("the body's JSON is nested too deeply") from error


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def from_action(*, event: str, payload: Any, run_id: str, run_attempt: str) -> Delivery:  # noqa: ANN401 - any JSON
    """Make a delivery of a workflow run's event; GitHub started the run, which is the proof.

    A re-run of the same run has another attempt number, and so counts as another delivery.

    Raises:
        MalformedError: the payload or a name is not what GitHub's runner gives.
    """
    event_data = Event(payload, event=event, delivery_id=f"action-{run_id}-{run_attempt}")
    return _make_delivery(event_data)


def _make_delivery(event: Event) -> Delivery:
    if not _EVENT_NAME.fullmatch(event.event):
        raise MalformedError("the event's name (header X-GitHub-Event) is missing or not valid")
    if not _DELIVERY_ID.fullmatch(event.delivery_id):
        raise MalformedError("the delivery's id (header X-GitHub-Delivery) is missing or not valid")
    payload = event.data
    if not isinstance(payload, dict):
        raise MalformedError("the payload is not a JSON object")
    action, installation = payload.get("action"), payload.get("installation")
    number = installation.get("id") if isinstance(installation, dict) else None
    return Delivery(
        id=event.delivery_id,
        event=event.event,
        action=action if isinstance(action, str) else "",
        payload=payload,
        installation=number if type(number) is int and 0 < number < _MAX_ID else None,
    )


# GitHub shows the account "ghost" for a deleted author, and sends null.
_NOBODY = "ghost"


def _storable(text: str) -> str:
    """Replace lone surrogates, which JSON can spell and UTF-8 cannot store, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


Id = Annotated[int, Field(gt=0, lt=2**63)]
Text = Annotated[str, AfterValidator(_storable)]
Sha = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class PayloadPart(BaseModel):
    """Part of a payload; fields that are not named are passed over."""

    model_config = ConfigDict(strict=True, frozen=True)


class User(PayloadPart):
    """An account."""

    id: Id
    login: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}(\[bot\])?$")]

    @property
    def actor(self) -> Actor:
        """Return the account's id and login."""
        return Actor(id=self.id, login=self.login)


class Sender(User):
    """An account with its type."""

    type: str

    @property
    def is_bot(self) -> bool:
        """Return whether the type, or the form of name that GitHub reserves for bots, is a bot's."""
        return self.type == "Bot" or self.login.endswith("[bot]")


class Repository(PayloadPart):
    """A repository."""

    id: Id
    full_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$")]
    private: bool

    @property
    def repo(self) -> Repo:
        """Return the repository as the domain's value."""
        return Repo(id=self.id, full_name=self.full_name, private=self.private)


class _ThreadPart(PayloadPart):
    number: Id
    title: Text
    body: Text | None = None
    user: User | None = None
    created_at: Text = ""
    updated_at: Text = ""

    @property
    def kind(self) -> ThreadKind:
        """Return the kind of the thread."""
        return "pull"

    @property
    def head_sha(self) -> str:
        """Return the head commit of a pull request; empty for an issue."""
        return ""

    @property
    def thread(self) -> Thread:
        """Return the thread with its words at the time of the delivery."""
        author = self.user.login if self.user else _NOBODY
        return Thread(kind=self.kind, number=self.number, title=self.title, body=self.body or "", author=author)


class Issue(_ThreadPart):
    """An issue, or a pull request where GitHub shows it as one."""

    pull_request: dict[str, object] | None = None

    @property
    @override
    def kind(self) -> ThreadKind:
        return "issue" if self.pull_request is None else "pull"


class Head(PayloadPart):
    """The commit of a pull request's branch."""

    sha: Sha


class PullRequest(_ThreadPart):
    """A pull request."""

    draft: bool = False
    head: Head

    @property
    @override
    def head_sha(self) -> str:
        return self.head.sha


class EventPayload(PayloadPart):
    """The fields of every event in a repository."""

    repository: Repository
    sender: Sender


Payload = TypeVar("Payload", bound=PayloadPart)


def parse_payload(model: type[Payload], delivery: Delivery) -> Payload | IgnoredDelivery:
    """Validate a payload; names the fields that are missing or malformed."""
    try:
        return model.model_validate(delivery.payload)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors(include_input=False))
        return IgnoredDelivery(reason=f"these fields of the payload are missing or malformed: {fields}")


def reject_sender(sender: Sender, listening: Listening) -> IgnoredDelivery | None:
    """Return the reason that an account may command nothing at all; None if the permission check is to decide.

    Bots do not command, except those that the operator lists; the bot itself never does.
    """
    if listening.is_own(sender.id, sender.login):
        return IgnoredDelivery(reason="the sender is the bot's own account, whose text is never a command")
    bots = listening.trusted_bots
    # A name is worth something only with GitHub's word that it is an App's.
    listed = sender.id in bots.ids or (sender.type == "Bot" and bots.hold(sender.id, sender.login))
    if sender.is_bot and not listed:
        names = f"{sender.login} or its user id {sender.id}" if is_app(sender.login) else f"the user id {sender.id}"
        return IgnoredDelivery(reason=f"bots cannot give commands; list {names} in CODEPILOT_TRUSTED_BOTS to allow it")
    return None


def make_job(
    delivery: Delivery,
    listening: Listening,
    payload: EventPayload,
    *,
    thread: Thread,
    origin: Origin,
    command: Command,
    trigger: str = "",
    head_sha: str = "",
    unique: str = "",
) -> Job:
    """Make a job in the delivery's repository.

    Args:
        delivery: the event.
        listening: gives the trigger word unless `trigger` does.
        payload: gives the repository and the sender.
        thread: as in `Job`.
        origin: as in `Job`.
        command: as in `Job`.
        trigger: as in `Job`.
        head_sha: as in `Job`.
        unique: the number or name of the origin, unique for this event and repository; the delivery's id if empty, for
            an event without a number of its own.
    """
    return Job(
        id=job_id(delivery.event, payload.repository.id, unique or delivery.id),
        delivery_id=delivery.id,
        repo=payload.repository.repo,
        thread=thread,
        actor=payload.sender.actor,
        origin=origin,
        command=command,
        installation=delivery.installation,
        trigger=trigger or listening.triggers[0],
        head_sha=head_sha,
    )


def job_id(event: str, place: int, unique: str) -> str:
    """Return an id of twelve characters, 60 bits: a clash among a million jobs has a chance of one in two million.

    Args:
        event: the event's name.
        place: numeric id of the repository, or of the installation.
        unique: the number or name of the origin, unique for the event and place.
    """
    digest = hashlib.sha256(f"{event}:{place}:{unique}".encode()).digest()
    return base64.b32encode(digest[:10])[:12].decode().lower()
