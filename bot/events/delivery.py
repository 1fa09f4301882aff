"""A webhook delivery, proven genuine. Pure."""

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

from bot.domain.access import Listening, is_app
from bot.domain.commands import AccessLost, Command
from bot.domain.errors import MalformedError, UnauthenticatedError
from bot.domain.grammar import parse_command
from bot.domain.job import Actor, Job, Origin, Repo, Thread

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
    """Whether bytes are signed with the webhook's secret, fed as they come, so that nobody has to hold them all.

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
        self._signature = lowered(headers).get("x-hub-signature-256", "")
        if not _SIGNATURE.fullmatch(self._signature):
            raise UnauthenticatedError(
                "the header X-Hub-Signature-256 is missing or is not a SHA-256 signature; "
                "set the same secret in the webhook's settings on GitHub and in CODEPILOT_WEBHOOK_SECRET"
            )
        self._digest = hmac.new(secret.encode(), digestmod="sha256")

    def feed(self, piece: bytes) -> None:
        """Take in the next bytes."""
        self._digest.update(piece)

    def check(self) -> None:
        """Compare, in constant time.

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
    """Parse what is proven to come from GitHub's webhook.

    Args:
        headers: the request's headers, in any case.
        body: the raw bytes.

    Raises:
        MalformedError: it is not a delivery.
    """
    names = lowered(headers)
    content_type = names.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise MalformedError(
            f"the webhook sends {content_type or 'no content type'}; "
            "set its content type to application/json in the webhook's settings on GitHub"
        )
    data = _parsed(body)
    event, delivery_id = names.get("x-github-event", ""), names.get("x-github-delivery", "")
    return _delivery(Event(data, event=event, delivery_id=delivery_id))


def _parsed(body: bytes) -> object:
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


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def from_action(*, event: str, payload: Any, run_id: str, run_attempt: str) -> Delivery:  # noqa: ANN401 - any JSON
    """Make a delivery of a workflow run's event; GitHub started the run, which is the proof.

    A re-run of the same run has another attempt number, and so counts as another delivery.

    Raises:
        MalformedError: the payload or a name is not what GitHub's runner gives.
    """
    found = Event(payload, event=event, delivery_id=f"action-{run_id}-{run_attempt}")
    return _delivery(found)


def _delivery(event: Event) -> Delivery:
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


# ---- The parts of GitHub's payloads that triggers read; what has another form is named, never guessed at. Pure.


# GitHub shows the account "ghost" for a deleted author, and sends null.
_NOBODY = "ghost"


def _storable(text: str) -> str:
    """Lone surrogates, which JSON can spell and UTF-8 cannot store, become question marks."""
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
        """Who it is, without what it is."""
        return Actor(id=self.id, login=self.login)


class Sender(User):
    """An account of which GitHub tells what it is."""

    type: str

    @property
    def is_bot(self) -> bool:
        """Whether GitHub, or the name that GitHub keeps for bots, says so."""
        return self.type == "Bot" or self.login.endswith("[bot]")


class Repository(PayloadPart):
    """A repository."""

    id: Id
    full_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$")]
    private: bool

    @property
    def repo(self) -> Repo:
        """The same as a value."""
        return Repo(id=self.id, full_name=self.full_name, private=self.private)


class Issue(PayloadPart):
    """An issue, or a pull request where GitHub shows it as one."""

    number: Id
    title: Text
    body: Text | None = None
    user: User | None = None
    created_at: Text = ""
    updated_at: Text = ""
    pull_request: dict[str, object] | None = None

    @property
    def thread(self) -> Thread:
        """Its words as they stood when the delivery was made."""
        return Thread(
            kind="issue" if self.pull_request is None else "pull",
            number=self.number,
            title=self.title,
            body=self.body or "",
            author=self.user.login if self.user else _NOBODY,
        )


class Head(PayloadPart):
    """The commit of a pull request's branch."""

    sha: Sha


class PullRequest(PayloadPart):
    """A pull request."""

    number: Id
    title: Text
    body: Text | None = None
    user: User | None = None
    created_at: Text = ""
    updated_at: Text = ""
    draft: bool = False
    head: Head

    @property
    def thread(self) -> Thread:
        """Its words as they stood when the delivery was made."""
        return Thread(
            kind="pull",
            number=self.number,
            title=self.title,
            body=self.body or "",
            author=self.user.login if self.user else _NOBODY,
        )


class Label(PayloadPart):
    """A label."""

    name: Text


class EventPayload(PayloadPart):
    """What every event in a repository says."""

    repository: Repository
    sender: Sender


Form = TypeVar("Form", bound=PayloadPart)


def read(form: type[Form], delivery: Delivery) -> Form | IgnoredDelivery:
    """The payload in a trigger's form, or which of its fields are missing or have another one."""
    try:
        return form.model_validate(delivery.payload)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors(include_input=False))
        return IgnoredDelivery(reason=f"these fields of the payload are missing or malformed: {fields}")


# ---- Turn a payload into a job: check who may ask, and fill in what all jobs have in common. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadText:
    """What somebody wrote in a thread.

    Attributes:
        text: the words.
        author: whose they are.
        origin: what they are on GitHub.
        head_sha: the pull request's head at that moment, or empty.
        unique: what holds the words, unique for the event and repository.
    """

    text: str
    author: User
    origin: Origin
    head_sha: str = ""
    unique: str


def other_action(delivery: Delivery, *wanted: str) -> IgnoredDelivery:
    """Why a delivery with another action than the wanted ones asks for nothing."""
    return IgnoredDelivery(
        reason=f"{delivery.event} is handled if its action is {', '.join(wanted)}; this one is "
        f"{delivery.action or 'without an action'}"
    )


def no_commander(sender: Sender, listening: Listening) -> IgnoredDelivery | None:
    """Why an account commands nothing, no matter which; None when the gate may decide about it.

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


def asked_in_words(
    delivery: Delivery, listening: Listening, *, event: EventPayload, thread: Thread, words: ThreadText
) -> Job | IgnoredDelivery:
    """The job that somebody's words ask for, or why they ask for none.

    Only the authenticated sender commands, in words of their own. The job's id comes from what holds the words, so that
    another delivery of them is the same job.
    """
    refusal = no_commander(event.sender, listening)
    if refusal is not None:
        return refusal
    if words.author.id != event.sender.id:
        return IgnoredDelivery(reason="the author of this text is not the sender of the delivery")
    parsed = parse_command(words.text, triggers=listening.triggers)
    if parsed is None:
        return IgnoredDelivery(reason=f"the {words.origin.kind.replace('_', ' ')} contains no command")
    return job_of(
        delivery,
        event=event,
        thread=thread,
        origin=words.origin,
        command=parsed.command,
        trigger=parsed.trigger,
        head_sha=words.head_sha,
        unique=words.unique,
    )


def asked_in_description(
    delivery: Delivery, listening: Listening, *, event: EventPayload, about: Issue | PullRequest
) -> Job | IgnoredDelivery:
    """The job that the description of a thread asks for, which was just opened; or why it asks for none."""
    if about.user is None:
        return IgnoredDelivery(reason="the author of the description is unknown")
    words = ThreadText(
        text=about.body or "",
        author=about.user,
        origin=Origin(kind="description", id=0, at=about.created_at),
        head_sha=about.head.sha if isinstance(about, PullRequest) else "",
        unique=f"description:{about.number}",
    )
    return asked_in_words(delivery, listening, event=event, thread=about.thread, words=words)


def job_of(
    delivery: Delivery,
    *,
    event: EventPayload,
    thread: Thread,
    origin: Origin,
    command: Command,
    trigger: str,
    head_sha: str = "",
    unique: str = "",
) -> Job:
    """A job in the delivery's repository.

    Args:
        delivery: what brought it.
        event: its repository and sender.
        thread: where.
        origin: what it came from.
        command: what is asked, or happened.
        trigger: see `Job`, as for the next.
        head_sha: see `Job`.
        unique: what it came from, unique for this event and repository; the delivery's id when empty, for what happens
            has no number of its own.
    """
    return Job(
        id=job_id(delivery.event, event.repository.id, unique or delivery.id),
        delivery_id=delivery.id,
        repo=event.repository.repo,
        thread=thread,
        actor=event.sender.actor,
        origin=origin,
        command=command,
        installation=delivery.installation,
        trigger=trigger,
        head_sha=head_sha,
    )


def departed(
    delivery: Delivery, listening: Listening, *, sender: Sender, repo_ids: tuple[int, ...] = ()
) -> Job | IgnoredDelivery:
    """The job of ending what has no purpose any more; it is in no repository and no thread."""
    if delivery.installation is None:
        return IgnoredDelivery(reason=f"the event {delivery.event} names no installation of the App")
    return Job(
        id=job_id(delivery.event, delivery.installation, delivery.id),
        delivery_id=delivery.id,
        repo=Repo(id=0, full_name="", private=True),
        thread=Thread.numbered("issue", 0),
        actor=sender.actor,
        origin=Origin(kind="event", id=0),
        command=AccessLost(repo_ids=repo_ids),
        installation=delivery.installation,
        trigger=listening.triggers[0],
    )


def job_id(event: str, place: int, unique: str) -> str:
    """Twelve characters, 60 bits: a clash among a million jobs has a chance of one in two million.

    Args:
        event: the event's name.
        place: numeric id of the repository, or of the installation.
        unique: what the job came from, unique for the event and place.
    """
    digest = hashlib.sha256(f"{event}:{place}:{unique}".encode()).digest()
    return base64.b32encode(digest[:10])[:12].decode().lower()
