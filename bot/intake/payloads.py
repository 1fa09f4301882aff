"""The parts of GitHub's payloads that triggers read; what has another form is named, never guessed at. Pure."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bot.domain.job import Actor, Repo, Thread
from bot.intake.deliveries import Delivery, IgnoredDelivery

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
