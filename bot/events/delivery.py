"""Deliveries of GitHub's events: verification, payloads and routing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from gidgethub import ValidationFailure
from gidgethub.routing import AsyncCallback, Router
from gidgethub.sansio import Event, validate_event
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from typing_extensions import override

from bot.domain.access import BotProfile, is_app
from bot.domain.commands import Command
from bot.domain.errors import MalformedError, UnauthenticatedError
from bot.domain.job import Actor, Job, Origin, Repo, Thread, ThreadKind

_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")
_EVENT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_ID = 2**63
_DELIVERY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Delivery(Event):
    """A verified event from GitHub; MalformedError if its name, id or payload is not valid.

    Attributes:
        action: empty if the payload has none.
        installation: None for an Action or a repository webhook.

    Raises:
        MalformedError: name, id or payload are not valid.
    """

    data: dict[str, Any]

    def __init__(self, data: object, *, event: str, delivery_id: str) -> None:
        if not _EVENT_NAME.fullmatch(event):
            raise MalformedError("the event's name (header X-GitHub-Event) is missing or not valid")
        if not _DELIVERY_ID.fullmatch(delivery_id):
            raise MalformedError("the delivery's id (header X-GitHub-Delivery) is missing or not valid")
        if not isinstance(data, dict):
            raise MalformedError("the payload is not a JSON object")
        super().__init__(data, event=event, delivery_id=delivery_id)
        action, installation = data.get("action"), data.get("installation")
        number = installation.get("id") if isinstance(installation, dict) else None
        self.action: str = action if isinstance(action, str) else ""
        self.installation = number if type(number) is int and 0 < number < _MAX_ID else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredDelivery:
    """The reason that a verified delivery starts no job."""

    reason: str


def signature_of(headers: Mapping[str, str], secret: str) -> str:
    """Return the SHA-256 signature of a request.

    Raises:
        UnauthenticatedError: there is none, or no secret.
    """
    if not secret:
        raise UnauthenticatedError("no webhook secret is configured, so deliveries cannot be verified")
    # gidgethub also accepts a SHA-1 signature, which proves less, and an unsigned body if there is no secret.
    signature = lower_names(headers).get("x-hub-signature-256", "")
    if not _SIGNATURE.fullmatch(signature):
        raise UnauthenticatedError(
            "the header X-Hub-Signature-256 is missing or is not a SHA-256 signature; "
            "set the same secret in the webhook's settings on GitHub and in CODEPILOT_WEBHOOK_SECRET"
        )
    return signature


def verify_signature(body: bytes, signature: str, secret: str) -> None:
    """Verify the signature of a raw body; UnauthenticatedError if it differs."""
    try:
        validate_event(body, signature=signature, secret=secret)
    except ValidationFailure as error:
        raise UnauthenticatedError(
            "the signature does not match the body; the secret on GitHub and CODEPILOT_WEBHOOK_SECRET differ"
        ) from error


def from_webhook(headers: Mapping[str, str], body: bytes, secret: str) -> Delivery:
    """Verify a request to the webhook, then parse it.

    Raises:
        UnauthenticatedError: the signature is missing or wrong.
        MalformedError: the request is not a delivery.
    """
    verify_signature(body, signature_of(headers, secret), secret)
    return parse_delivery(headers, body)


def parse_delivery(headers: Mapping[str, str], body: bytes) -> Delivery:
    """Parse a verified request.

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
    return Delivery(
        _parse_json(body), event=names.get("x-github-event", ""), delivery_id=names.get("x-github-delivery", "")
    )


def _parse_json(body: bytes) -> object:
    # UTF-8 for every charset that the header names (RFC 8259).
    with suppress(ValueError):
        return from_json(body, cache_strings="keys")
    # It is twice as fast, and accepts less: half a surrogate pair, for example, is JSON.
    try:
        return json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise MalformedError("the body is not JSON in UTF-8") from error
    except RecursionError as error:
        raise MalformedError("the body's JSON is nested too deeply") from error


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def from_action(*, event: str, payload: object, run_id: str, run_attempt: str) -> Delivery:
    """Make a delivery of a workflow run's event.

    Raises:
        MalformedError: it is not as GitHub's runner writes it.
    """
    return Delivery(payload, event=event, delivery_id=f"action-{run_id}-{run_attempt}")


# GitHub shows the account "ghost" for a deleted author, and sends null.
_DELETED_ACCOUNT = "ghost"

# GitHub accepts 65,536 characters of a comment or description.
_MAX_TEXT_CHARS = 4 * 65_536


def _storable(text: str) -> str:
    """Cut a text beyond GitHub's limits, and replace lone surrogates, which UTF-8 cannot store, by question marks."""
    return text[:_MAX_TEXT_CHARS].encode("utf-8", "replace").decode("utf-8")


Id = Annotated[int, Field(gt=0, lt=2**63)]
Text = Annotated[str, AfterValidator(_storable)]
Sha = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class PayloadPart(BaseModel):
    """Part of a payload; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class ObjectId(PayloadPart):
    """A reference by id."""

    id: Id


class User(ObjectId):
    login: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}(\[bot\])?$")]

    @property
    def actor(self) -> Actor:
        return Actor(id=self.id, login=self.login)


class Sender(User):
    type: str

    @property
    def is_bot(self) -> bool:
        """Return whether the type or the reserved suffix of the login is a bot's."""
        return self.type == "Bot" or self.login.endswith("[bot]")


class Repository(ObjectId):
    full_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$")]
    private: bool

    @property
    def repo(self) -> Repo:
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
        return "pull"

    @property
    def head_sha(self) -> str:
        return ""

    @property
    def thread(self) -> Thread:
        author = self.user.login if self.user else _DELETED_ACCOUNT
        return Thread(kind=self.kind, number=self.number, title=self.title, body=self.body or "", author=author)


class Issue(_ThreadPart):
    """An issue, or a pull request in an issue event."""

    pull_request: dict[str, object] | None = None

    @property
    @override
    def kind(self) -> ThreadKind:
        return "issue" if self.pull_request is None else "pull"


class Head(PayloadPart):
    sha: Sha


class _Base(PayloadPart):
    ref: Text = ""


class PullRequest(_ThreadPart):
    draft: bool = False
    merged: bool = False
    head: Head
    base: _Base = Field(default_factory=_Base)

    @property
    @override
    def head_sha(self) -> str:
        return self.head.sha


class EventPayload(PayloadPart):
    repository: Repository
    sender: Sender


Payload = TypeVar("Payload", bound=PayloadPart)


def parse_payload(model: type[Payload], delivery: Delivery) -> Payload | IgnoredDelivery:
    """Validate a payload; the reason to ignore it names the invalid fields."""
    try:
        return model.model_validate(delivery.data)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors(include_input=False))
        return IgnoredDelivery(reason=f"these fields of the payload are missing or malformed: {fields}")


MakeJob = TypeVar("MakeJob", bound=Callable[..., Job | IgnoredDelivery])


class JobRouter(Router):
    """Gidgethub router that maps each event and action to one job-making function.

    The functions are synchronous, because worker processes have no event loop.

    Attributes:
        actions: the registered actions of each event.
        fields: members of payloads that the functions use.
    """

    def __init__(self, *routers: JobRouter) -> None:
        self.actions: dict[str, list[str]] = {}
        self.fields: set[str] = {"action", "installation"}.union(*(router.fields for router in routers))
        super().__init__(*routers)

    @override
    def add(self, func: Callable[..., object], event_type: str, **data_detail: Any) -> None:
        self.actions.setdefault(event_type, []).append(data_detail["action"])
        super().add(cast("AsyncCallback[...]", func), event_type, **data_detail)

    @override
    def register(  # type: ignore[override]  # gidgethub's functions are coroutines, and parse the payload themselves
        self, event_type: str, payload: type[PayloadPart], *, action: str
    ) -> Callable[[MakeJob], MakeJob]:
        self.fields |= payload.model_fields.keys()

        def register(make_job: MakeJob) -> MakeJob:
            def handle(delivery: Delivery, profile: BotProfile) -> Job | IgnoredDelivery:
                parsed = parse_payload(payload, delivery)
                return parsed if isinstance(parsed, IgnoredDelivery) else make_job(delivery, profile, parsed)

            self.add(handle, event_type, action=action)
            return make_job

        return register

    def route(self, delivery: Delivery, profile: BotProfile) -> Job | IgnoredDelivery | None:
        # `fetch` raises for an action that is not hashable.
        for handle in self.fetch(delivery) if delivery.action else ():
            return cast("Job | IgnoredDelivery", handle(delivery, profile))
        return None


def reject_sender(sender: Sender, profile: BotProfile) -> IgnoredDelivery | None:
    """Return the reason that an account may give no commands: an unlisted bot, or the bot itself."""
    if profile.is_own(sender.id, sender.login):
        return IgnoredDelivery(reason="the sender is the bot's own account, whose text is never a command")
    bots = profile.trusted_bots
    # A name is worth something only with GitHub's word that it is an App's.
    listed = sender.id in bots.ids or (sender.type == "Bot" and bots.has_account(sender.id, sender.login))
    if sender.is_bot and not listed:
        names = f"{sender.login} or its user id {sender.id}" if is_app(sender.login) else f"the user id {sender.id}"
        return IgnoredDelivery(reason=f"bots cannot give commands; list {names} in CODEPILOT_TRUSTED_BOTS to allow it")
    return None


def make_job(
    delivery: Delivery,
    profile: BotProfile,
    payload: EventPayload,
    *,
    thread: Thread,
    origin: Origin,
    command: Command,
    trigger: str = "",
    head_sha: str = "",
    left_out: str = "",
    unique: str = "",
) -> Job:
    """Make a job in the delivery's repository; `unique` identifies the origin, by default the delivery."""
    return Job(
        id=job_id(delivery.event, payload.repository.id, unique or delivery.delivery_id),
        delivery_id=delivery.delivery_id,
        repo=payload.repository.repo,
        thread=thread,
        actor=payload.sender.actor,
        origin=origin,
        command=command,
        installation=delivery.installation,
        trigger=trigger or profile.triggers[0],
        head_sha=head_sha,
        left_out=left_out,
    )


def job_id(event: str, place: int, unique: str) -> str:
    """Return an id of twelve characters, 60 bits; `place` is a repository or an installation."""
    digest = hashlib.sha256(f"{event}:{place}:{unique}".encode()).digest()
    return base64.b32encode(digest[:10])[:12].decode().lower()
