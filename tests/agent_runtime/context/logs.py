"""Logs written by hand, and a model that answers what it is told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from agent_runtime.context.conversation import Conversation
from agent_runtime.context.transcript import MemorySettings
from agent_runtime.core.errors import ModelError
from agent_runtime.core.events import Ended, Observed, Recorded, Replied, Started, ToolReturned
from agent_runtime.core.values import Image, Outcome, Plain, Status, Task, Usage
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import Chunk, ReplyEnd, ReplyStart, Request, StopReason, TextChunk
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.state import RunState
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.transports.blocks import BlockTransport


def started(goal: str = "Do it", opening: str = "", *, images: tuple[Image, ...] = ()) -> Started:
    return Started(task=Task(goal=goal, images=images), opening=opening or f"[Task] {goal}")


def replied(text: str = "I look.", step: int = 1) -> Replied:
    return Replied(step=step, text=text, usage=Usage())


def observed(text: str = "seen", step: int = 1) -> Observed:
    return Observed(step=step, text=text, ok=True)


def ended(summary: str = "Done.") -> Ended:
    return Ended(outcome=Outcome(status=Status.FINISHED, summary=summary))


def returned(tool: str = "read_file", text: str = "", *, output: str | None = None, label: str = "") -> ToolReturned:
    value: Plain = None if output is None else {"status": "completed", "exit_code": 0, "output": output, "cwd": "/"}
    return ToolReturned(
        number=1, tool=tool, args={}, value=value, text=text, ok=True, seconds=0.0, label=label or f"{tool}()"
    )


def words(chars: int, beginning: str = "") -> str:
    """A text of that length which counts as any prose does; a run of one character would count as almost nothing."""
    return (f"{beginning} " + "all kinds of words " * (chars // 19 + 1))[:chars].strip()


def task_of(goal: str, steps: int, *, chars: int = 40, summary: str = "Done.") -> list[Recorded]:
    """A finished task whose steps each show `chars` characters."""
    log: list[Recorded] = [started(goal)]
    for step in range(1, steps + 1):
        log += [
            replied(f"Step {step} of {goal}.", step),
            returned(label=f"read_file('{goal}{step}')"),
            observed(words(chars, f"{goal} {step}:"), step),
        ]
    return [*log, replied("Done.", steps + 1), ended(summary)]


@dataclass
class Model:
    """Gives prepared replies to requests, or raises them; keeps every request.

    Attributes:
        name: of the model; may change, as that of a chain does.
        sees_images: whether it does.
    """

    replies: list[str | ModelError] = field(default_factory=list)
    name: str = "test-model"
    stop: StopReason = "stop"
    usage: Usage = field(default_factory=lambda: Usage(requests=1, cached_tokens=900, output_tokens=10, cost_usd=0.01))
    requests: list[Request] = field(default_factory=list)
    sees_images: bool = False

    @property
    def model(self) -> str:
        return self.name

    async def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        reply = self.replies.pop(0)
        yield ReplyStart(attempt=1)
        if isinstance(reply, ModelError):
            yield TextChunk(text="broken off")
            raise reply
        yield TextChunk(text=reply[: len(reply) // 2])
        yield TextChunk(text=reply[len(reply) // 2 :])
        yield ReplyEnd(stop=self.stop, usage=self.usage)

    async def close(self) -> None:
        """Nothing to give back."""


@dataclass
class Clock:
    """Seconds that pass when they are told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Talk:
    """A conversation on a log in memory, with a model and a clock of its own."""

    log: list[Recorded] = field(default_factory=list)
    model: Model = field(default_factory=Model)
    memory: MemorySettings = field(default_factory=MemorySettings)
    system: str = "You are an agent."
    clock: Clock = field(default_factory=Clock)
    session: InMemorySession = field(init=False)
    conversation: Conversation = field(init=False)

    def __post_init__(self) -> None:
        self.session = InMemorySession()
        self.add(*self.log)
        self.conversation = Conversation(
            log=RunState(self.session, HookSystem()),
            provider=self.model,
            system=self.system,
            memory=self.memory,
            limits=RunLimits(),
            words=BlockTransport().extract_prose,
            clock=self.clock,
        )

    def add(self, *events: Recorded) -> None:
        for event in events:
            self.session.append(event)

    def recorded(self, kind: type[Recorded] | Callable[..., Recorded]) -> list[Recorded]:
        return [event for event in self.session.events if isinstance(event, kind)]  # type: ignore[arg-type] # classes only

    async def ask(self, status: str = "now") -> Request:
        """One request, and a reply whose usage says that the cache holds all of it."""
        request = await self.conversation.request(status)
        sent = self.conversation.tokens
        self.conversation.record_usage(Usage(requests=1, cached_tokens=sent, output_tokens=10))
        return request
