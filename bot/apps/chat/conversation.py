"""A conversation at a terminal: tasks in, approvals and answers asked for, until the person leaves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from agent_runtime import AsyncRuntime, Outcome, PendingCall, Provider, ResumeError, Status
from bot.apps.chat.answers import ChatAnswer, Permissions, Remembered, check_fit, reply
from bot.apps.chat.screen import ChatScreen

Prompt = Callable[[str], str]
"""Asks the person for a line; raises EOFError or KeyboardInterrupt when they have had enough."""


class LeftError(Exception):
    """The person has had enough, and left in the middle of a run.

    Attributes:
        by: the signal that said so.
    """

    def __init__(self, by: signal.Signals) -> None:
        super().__init__(by.name)
        self.by = by


class Chat:
    """One runtime and the person before the screen.

    The event loop runs while the agent works and stands still while the person is asked, so that Ctrl+C means what it
    says: at a prompt it leaves, and in a run it stops the run; pressed again it leaves there, too.
    """

    def __init__(
        self,
        runtime: AsyncRuntime,
        screen: ChatScreen,
        prompt: Prompt | None,
        *,
        permissions: Permissions = "auto",
        recorded: Callable[[Provider], Provider] | None = None,
    ) -> None:
        """Talk to `runtime`.

        Args:
            runtime: the agent; closed on leaving.
            screen: where everything is shown.
            prompt: asks the person; None when there is nobody to ask, so that a call that waits goes on waiting.
            permissions: who approves what waits.
            recorded: makes a provider one whose exchanges are recorded.
        """
        self._runtime = runtime
        self._screen = screen
        self._prompt = prompt
        self._permissions = permissions
        self._recorded = recorded
        self._remembered = Remembered()
        self._left_by = signal.SIGINT
        self._runner = asyncio.Runner()
        runtime.hooks.register("permission_request", self._known, by_arguments=True)

    def __enter__(self) -> Self:
        """Enter; see `__exit__`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what the agent started, and keep the session."""
        try:
            self._runner.run(self._runtime.close())
        finally:
            self._runner.close()

    def turn(self, task: str) -> Outcome:
        """Have one task done.

        Raises:
            LeftError: the person left before it was.
        """
        return self._settled(self._run(self._runtime.run(task)))

    def go_on(self) -> Outcome | None:
        """Go on with the session's newest run where it waits or was cut off; None when it did neither.

        Raises:
            LeftError: as for `turn`.
        """
        if not self._runtime.unfinished:
            return None
        call = self._runtime.pending
        if call is None:
            self._screen.say("The last run was interrupted; it resumes.", style="dim")
            return self._settled(self._run(self._runtime.resume()))
        return self._settled(Outcome(status=Status.PAUSED, pending=call))

    def answer(self, said: ChatAnswer) -> Outcome:
        """Answer the call that waits, and see the run to its end.

        Raises:
            SettingsError: it is no answer to what waits.
            ResumeError: nothing waits, or something was altered since it was shown.
            LeftError: as for `turn`.
        """
        if (call := self._runtime.pending) is not None:
            check_fit(said, call)
        return self._settled(self._resumed(said))

    def reset(self) -> None:
        """Forget everything."""
        self._runner.run(self._runtime.reset())

    def use(self, provider: Provider) -> None:
        """Ask another model from the next task on.

        Raises:
            SettingsError: it cannot go on with this conversation.
        """
        self._runner.run(self._runtime.use(self._recorded(provider) if self._recorded else provider))

    def _settled(self, outcome: Outcome) -> Outcome:
        """Ask the person about every call that waits, until the run ends or they leave it open."""
        while outcome.status is Status.PAUSED and (call := outcome.pending) is not None:
            known = self._known(call) if call.kind == "permission" else None
            said = self._asked(call) if known is None else ChatAnswer(approved=known)
            if said is None:
                break
            if said.always:
                self._remembered.add(call)
            try:
                outcome = self._resumed(said)
            except ResumeError as error:  # e.g. a file was changed meanwhile: the call still waits
                self._screen.say(str(error), style="yellow")
                if known is not None:
                    break
        if outcome.usage.requests or outcome.status is not Status.PAUSED:  # a call that waits has just been shown
            self._screen.ended(outcome)
        return outcome

    def _resumed(self, said: ChatAnswer) -> Outcome:
        return self._run(self._runtime.resume(approve=said.approved, note=said.note))

    def _asked(self, call: PendingCall) -> ChatAnswer | None:
        """What the person says to a call; None when they leave it open, or nobody is there."""
        self._screen.waiting(call)
        if self._prompt is None:
            return None
        try:
            if call.kind == "question":
                return ChatAnswer(approved=True, note=self._prompt("Your answer: ").strip(), answers=True)
            while True:
                self._screen.choices(call)
                said = reply(self._prompt("Allow? "))
                if said is not None:
                    return said
        except (EOFError, KeyboardInterrupt):
            self._screen.say("")
            return None

    def _known(self, pending: PendingCall, **_: object) -> bool | None:
        """The answer to a call that needs no person; None for one that does."""
        if self._permissions == "none":
            return False
        return True if self._permissions == "all" or pending in self._remembered else None

    def _run(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        try:
            return self._runner.run(self._watched(work))
        except asyncio.CancelledError as error:
            raise LeftError(self._left_by) from error

    async def _watched(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """A run that the first Ctrl+C stops, and the second leaves at once."""
        loop, task, pressed = asyncio.get_running_loop(), asyncio.current_task(), False

        def interrupt() -> None:
            nonlocal pressed
            if pressed and task is not None:
                task.cancel()
                return
            pressed = True
            self._screen.say("Stopping. Press Ctrl+C again to leave immediately.", style="yellow")
            self._runtime.abort()

        def leave() -> None:
            self._left_by = signal.SIGTERM
            if task is not None:
                task.cancel()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, leave)
        try:
            return await work
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)
