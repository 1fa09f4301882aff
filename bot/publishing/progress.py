"""Summarise the agent's progress from its events for the status comment. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from agent_runtime import (
    ChildWatched,
    Event,
    ModelAwaited,
    NetworkLost,
    Replied,
    ReplyBroken,
    Started,
    StepStarted,
    Summarised,
    ToolCalled,
    ToolReturned,
    Usage,
)
from bot.publishing.checking import checking
from bot.publishing.rerun import Rerun, step_lines
from bot.publishing.text import duration
from bot.publishing.verdict import Check, Edits, judged
from bot.publishing.view import Activity, CandidateView, DeniedCall

_MOST_DENIED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run so far.

    Attributes:
        activities: what the agent did, oldest first.
        checks: commands it ran whose exit codes say whether something is right: the host's account, not the model's.
        running: checks that went on after the agent had stopped waiting for them, by their terminals.
        edits: when it changed files, as far as that is known.
        places: where its terminals are, by their names.
        failing: for a job that failed checks began: the commands of the workflow's steps that failed.
        rerun: what the command that failed comes to after the change; None where nothing is to be proven.
        denied: calls that needed a person where nobody could be asked, each once, oldest first.
        steps: model replies asked for.
        usage: tokens and money of the replies so far.
        run_id: the newest run that `usage` includes; empty before the agent starts.
        network_lost: why the sandbox has no network any more; empty while it has what it was given.
        servers_down: MCP servers that did not answer a call, each once.
        reach: what the agent's commands may reach, for the comment; empty before that is known.
        awaits: what the run waits for to go on, or empty.
        warning: what the comment says of what went wrong before the agent started, or empty.
        setup_failed: the setup command that failed before the agent started, and how, or empty.
        attempts: for a fix with candidates: all of them, once they have ended.
    """

    activities: tuple[Activity, ...] = ()
    checks: tuple[Check, ...] = ()
    running: tuple[tuple[str, Check], ...] = ()
    edits: Edits | None = None
    places: tuple[tuple[str, str], ...] = ()
    failing: tuple[str, ...] = ()
    rerun: Rerun | None = None
    denied: tuple[DeniedCall, ...] = ()
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    run_id: str = ""
    network_lost: str = ""
    servers_down: tuple[str, ...] = ()
    reach: str = ""
    warning: str = ""
    awaits: str = ""
    setup_failed: str = ""
    attempts: tuple[CandidateView, ...] = ()

    @property
    def judged(self) -> tuple[Check, ...]:
        """The checks, each with what it says of the files as they are now."""
        return judged(self.checks, self.edits)

    @property
    def warnings(self) -> str:
        """All that went wrong and ended nothing."""
        named = ", ".join(f"`{each}`" for each in self.servers_down)
        down = f"MCP servers did not answer a call: {named}. The agent continued without them." if named else ""
        return "\n\n".join(filter(None, (self.warning, down)))

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

    def edited(self, edits: Edits | None) -> Progress:
        """The progress once it is known when files were changed, whatever changed them."""
        return replace(self, edits=Edits.joined(self.edits, edits))

    def resumed(self, log: Iterable[Event]) -> Progress:
        """What it is once another process, which began the run, has recorded all of `log`; this is how it began."""
        begun = self
        if self.steps:  # an earlier version kept what the log tells, too, when a run came to wait
            begun = replace(
                self, activities=(), checks=(), running=(), edits=None, places=(), steps=0, usage=Usage(), awaits=""
            )
        done = reduce(Progress.after, log, begun)
        # The attempt that kept this ended with its process before it could drop the log of the run that it gave up.
        return replace(done, usage=begun.usage) if begun.run_id and begun.run_id == done.run_id else done

    def after(self, event: Event) -> Progress:
        """The progress once `event` has happened."""
        changed: dict[str, Any] = {}
        match event:
            case Started():
                changed = {"run_id": event.run_id}
            case StepStarted():
                changed = {"steps": event.step}
            case Replied():
                changed = {"usage": self.usage + event.usage, "steps": event.step, "awaits": ""}
            # What several attempts spend counts, until one of them is taken.
            case (
                ReplyBroken(usage=spent)
                | Summarised(usage=spent)
                | ChildWatched(event=Replied(usage=spent) | ReplyBroken(usage=spent) | Summarised(usage=spent))
            ):
                changed = {"usage": self.usage + spent}
            case ChildWatched(task=task, event=ToolReturned(label=label, ok=ok)):
                label = f"attempt {task.removeprefix('t')}: {label}"
                return self.told(Activity(label=label, state="done" if ok else "failed"))
            case ModelAwaited():
                again = duration(event.seconds)
                changed = {"awaits": f"the model service does not answer; trying again in {again}"}
            case NetworkLost():
                changed = {"network_lost": event.reason}
            case ToolCalled():
                return self.told(Activity(label=event.label, state="doing"))
            case ToolReturned():
                return self._returned(event)
            case _:
                return self
        return replace(self, **changed)

    def _returned(self, event: ToolReturned) -> Progress:
        """The progress once a tool has run: what it checked, and whether it changed a file."""
        progress = self.told(Activity(label=event.label, state="done" if event.ok else "failed"))
        if event.server_down:
            return replace(progress, servers_down=tuple(dict.fromkeys((*self.servers_down, event.server_down))))
        at = event.file_time
        if event.tool == "write_file":
            return progress.edited(Edits(first=at, last=at)) if event.ok else progress
        value = event.value if isinstance(event.value, dict) else {}
        terminal = str(event.args.get("session_id", ""))
        if "status" not in value:  # nothing was run
            return progress
        places = {**dict(self.places), terminal: str(value.get("cwd", ""))}
        progress = replace(progress, places=tuple(places.items()))
        begun = self._begun(event) if event.tool == "execute" else dict(self.running).get(terminal)
        running = tuple(each for each in self.running if each[0] != terminal)
        if begun is None:
            return replace(progress, running=running) if event.tool == "execute" else progress
        code, seconds = value.get("exit_code"), begun.seconds
        if event.tool != "execute":
            seconds += max(0.0, at - begun.ended)
            # Of a pipe only the last stage is told then.
            code = None if "|" in begun.command else code
        check = replace(begun, exit_code=code if isinstance(code, int) else None, seconds=seconds, ended=at)
        checks = [each for each in self.checks if each != begun]
        if value["status"] == "running":
            running = (*running, (terminal, check))
        return replace(progress, checks=(*checks, check), running=running)

    def _begun(self, event: ToolReturned) -> Check | None:
        """The check that a command is; None where its exit code proves nothing."""
        command = str(event.args.get("command", ""))
        # The very line of the step that failed needs no declaration. Of a pipe only `check=True` knows every stage.
        is_step = "|" not in command and command.strip() in step_lines(self.failing)
        declared = event.args.get("check") is True or is_step
        if checking(command, declared=declared) is None:
            return None
        directory = dict(self.places).get(str(event.args.get("session_id", "")), "")
        return Check(command=command, exit_code=None, seconds=event.seconds, declared=declared, directory=directory)
