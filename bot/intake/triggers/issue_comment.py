"""A comment on an issue or pull request. Pure."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bot.intake.commands import parse_command
from bot.intake.deliveries import Delivery, Ignored
from bot.jobs.job import Actor, Job, Repo, Thread

EVENT = "issue_comment"


def job_from(
    delivery: Delivery, *, trigger: str, own_ids: frozenset[int], trusted_bot_ids: frozenset[int] = frozenset()
) -> Job | Ignored:
    """The job that a comment asks for, or why it asks for none.

    Only the authenticated sender of a freshly made comment commands, and never a bot, save those the operator lists.
    The job's id comes from the comment, so that another delivery of the same comment is the same job.

    Args:
        delivery: an `issue_comment` event.
        trigger: the word that starts a command, e.g. `/codepilot`.
        own_ids: numeric user ids of the bot itself.
        trusted_bot_ids: numeric user ids of other bots that may command.
    """
    if delivery.action != "created":
        return Ignored(reason=f"only a new comment can be a command, this one was {delivery.action or 'of no action'}")
    try:
        event = _Event.model_validate(delivery.payload)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors(include_input=False))
        return Ignored(reason=f"the payload lacks, or has in another form: {fields}")
    refusal = _refusal(event, own_ids, trusted_bot_ids)
    if refusal is not None:
        return refusal
    command = parse_command(event.comment.body, trigger=trigger)
    if command is None:
        return Ignored(reason="the comment holds no command")
    return Job(
        id=_job_id(event.repository.id, event.comment.id),
        delivery_id=delivery.id,
        repo=Repo(id=event.repository.id, full_name=event.repository.full_name, private=event.repository.private),
        thread=_thread(event.issue),
        actor=Actor(id=event.sender.id, login=event.sender.login),
        comment_id=event.comment.id,
        command=command,
        installation=delivery.installation,
    )


def _storable(text: str) -> str:
    """Lone surrogates, which JSON can spell and UTF-8 cannot store, become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


_Id = Annotated[int, Field(gt=0, lt=2**63)]
_Text = Annotated[str, AfterValidator(_storable)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _User(_Part):
    id: _Id
    login: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}(\[bot\])?$")]


class _Sender(_User):
    type: str

    @property
    def is_bot(self) -> bool:
        return self.type == "Bot" or self.login.endswith("[bot]")


class _Issue(_Part):
    number: _Id
    title: _Text
    body: _Text | None = None
    user: _User | None = None
    pull_request: dict[str, object] | None = None


class _Comment(_Part):
    id: _Id
    body: _Text
    user: _User


class _Repository(_Part):
    id: _Id
    full_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$")]
    private: bool


class _Event(_Part):
    issue: _Issue
    comment: _Comment
    repository: _Repository
    sender: _Sender


def _refusal(event: _Event, own_ids: frozenset[int], trusted_bot_ids: frozenset[int]) -> Ignored | None:
    sender = event.sender
    if sender.id in own_ids:
        return Ignored(reason="the comment is the bot's own")
    if sender.is_bot and sender.id not in trusted_bot_ids:
        return Ignored(
            reason=f"bots do not command; list the user id {sender.id} in CODEPILOT_TRUSTED_BOT_IDS to allow it"
        )
    if event.comment.user.id != sender.id:
        return Ignored(reason="the comment's author is not the sender of the delivery")
    return None


def _thread(issue: _Issue) -> Thread:
    return Thread(
        kind="issue" if issue.pull_request is None else "pull",
        number=issue.number,
        title=issue.title,
        body=issue.body or "",
        # GitHub shows the account "ghost" for a deleted author, and sends null.
        author=issue.user.login if issue.user else "ghost",
    )


def _job_id(repo_id: int, comment_id: int) -> str:
    """Twelve characters, 60 bits: a clash among a million jobs has a chance of one in two million."""
    digest = hashlib.sha256(f"{EVENT}:{repo_id}:{comment_id}".encode()).digest()
    return base64.b32encode(digest)[:12].decode().lower()
