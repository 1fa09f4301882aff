"""What the agent has done so far, summed up from its events for the status comment. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent_runtime import (
    Event,
    ModelAwaited,
    NetworkLost,
    Replied,
    ReplyBroken,
    StepStarted,
    ToolCalled,
    ToolReturned,
    Usage,
)
from bot.publishing.render import Activity, Check, DeniedCall, duration

_MOST_DENIED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run so far.

    Attributes:
        activities: what the agent did, oldest first.
        checks: commands it ran that had to succeed, and how they ended: the host's account, not the model's.
        denied: calls that needed a person where nobody could be asked, each once, oldest first.
        steps: model replies asked for.
        usage: tokens and money of the replies so far.
        network_lost: why the sandbox has no network any more; empty while it has what it was given.
        reach: what the agent's commands may reach, for the comment; empty before that is known.
        awaits: what the run waits for to go on, or empty.
        warning: what the comment says of what went wrong before the agent started, or empty.
    """

    activities: tuple[Activity, ...] = ()
    checks: tuple[Check, ...] = ()
    denied: tuple[DeniedCall, ...] = ()
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    network_lost: str = ""
    reach: str = ""
    warning: str = ""
    awaits: str = ""

    @property
    def shown(self) -> tuple[Activity, ...]:
        """What the agent did, and what it waits for."""
        return (*self.activities, Activity(label=self.awaits, state="doing")) if self.awaits else self.activities

    def told(self, activity: Activity) -> Progress:
        """The progress once something that no agent does began, or ended."""
        begun = self.activities and self.activities[-1] == replace(activity, state="doing")
        return replace(self, activities=(*(self.activities[:-1] if begun else self.activities), activity))

    def without(self, call: DeniedCall) -> Progress:
        """The progress once a call was denied because nobody could be asked."""
        if call in self.denied or len(self.denied) >= _MOST_DENIED:
            return self
        return replace(self, denied=(*self.denied, call))

    def after(self, event: Event) -> Progress:
        """The progress once `event` has happened."""
        match event:
            case StepStarted():
                return replace(self, steps=event.step)
            case Replied() | ReplyBroken() | ModelAwaited():
                return self._heard(event)
            case ToolCalled():
                return replace(self, activities=(*self.activities, Activity(label=event.label, state="doing")))
            case ToolReturned():
                done = Activity(label=event.label, state="done" if event.ok else "failed")
                checks = (*self.checks, _check(event)) if _is_check(event) else self.checks
                return replace(self, activities=(*self.activities[:-1], done), checks=checks)
            case NetworkLost(reason=reason):
                return replace(self, network_lost=reason)
            case _:
                return self

    def _heard(self, event: Replied | ReplyBroken | ModelAwaited) -> Progress:
        """The progress once the model answered, or did not."""
        if isinstance(event, ModelAwaited):
            again = duration(event.seconds)
            return replace(self, awaits=f"the model service does not answer; trying again in {again}")
        awaits = "" if isinstance(event, Replied) else self.awaits
        return replace(self, usage=self.usage + event.usage, awaits=awaits)


def _is_check(event: ToolReturned) -> bool:
    """Only a command that was to succeed proves something by its exit code; one that was denied never ran."""
    return event.tool == "execute" and event.args.get("check") is True and isinstance(event.value, dict)


def _check(event: ToolReturned) -> Check:
    value = event.value if isinstance(event.value, dict) else {}
    exit_code = value.get("exit_code")
    return Check(
        command=str(event.args.get("command", "")),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        seconds=event.seconds,
    )
