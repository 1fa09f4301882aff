"""Ask on the terminal whether a call may be made, and remember what was approved for the session."""

from __future__ import annotations

import click
import llm

from agent_runtime.compat.coding.actions import PREFIX
from agent_runtime.compat.coding.agent import CodingCall
from agent_runtime.core.approval_patterns import alike_patterns, exact_patterns, is_covered
from agent_runtime.core.errors import SettingsError
from agent_runtime.core.outcome import PendingCall
from agent_runtime.core.policy import Policy, Rule
from agent_runtime.core.rules.commands import CommandPattern

_ASKS = Policy(rules=(Rule(decision="ask", tool="execute"),))
_TOO_LONG = "Cancelled: it is too long to be approved. People approve only what they were shown whole; make it shorter"


class TerminalApproval:
    """Approves calls of a session: those that were allowed before, and those that the user says yes to.

    Attributes:
        approve_all: whether nothing is asked.
    """

    def __init__(self, allow: tuple[str, ...] = (), *, approve_all: bool = False) -> None:
        """Begin a session.

        Args:
            allow: commands that need no question, e.g. `pytest*`: a `*` at the end stands for any further arguments.
            approve_all: whether nothing is asked.

        Raises:
            SettingsError: one of them is no pattern of commands.
        """
        self.approve_all = approve_all
        self._writes = False
        self._patterns = tuple(_pattern(each) for each in allow)

    def __call__(self, tool: llm.Tool | None, call: llm.ToolCall) -> bool | str:  # noqa: ARG002 - what CodingAgent calls
        """Whether a call may be made; a text says why not."""
        command = call.arguments.get("command") if call.name == f"{PREFIX}execute_command" else None
        pending = None
        if isinstance(command, str):  # as the rules of this runtime know a command
            pending = PendingCall(
                request_id="",
                kind="permission",
                tool="execute",
                args={"command": command},
                reason="",
                preview="",
                workspace="",
            )
        if self.approve_all or (pending is None and self._writes):
            return True
        if pending is not None and is_covered(_ASKS, self._patterns, pending):
            return True
        preview = call.preview if isinstance(call, CodingCall) else ""
        if not preview:
            click.secho(f"\n{call.name.removeprefix(PREFIX)}: declined, it is too long to be shown whole", fg="yellow")
            return _TOO_LONG
        patterns = () if pending is None else alike_patterns(_ASKS, pending) or exact_patterns(_ASKS, pending)
        always = "every change of a file" if pending is None else " and ".join(f"`{each}`" for each in patterns)
        click.secho(f"\n{preview}", fg="yellow")
        try:
            answer = input(f"Approve? [y/n{f'/a=always: {always}' if always else ''}] ").strip().lower()
        except EOFError:
            return False
        if answer == "a" and always:
            self._writes = self._writes or pending is None
            self._patterns += patterns
            return True
        return answer == "y"


def _pattern(text: str) -> str:
    """A pattern of commands as llm-coding-agent writes it, in this runtime's form.

    Raises:
        SettingsError: it is none.
    """
    text = text.strip()
    plain = text.rstrip("*").rstrip()
    if not plain.partition(" ")[0].strip("*"):
        raise SettingsError(f"--allow {text!r}: name a program, e.g. 'pytest*'; --yolo approves everything")
    pattern = f"{plain} *" if text.endswith("*") else plain
    CommandPattern.parse(pattern)
    return pattern
