"""Tools that run commands in live terminals."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.policy.policy import CallFacts
from agent_runtime.prompts.notes import list_tests
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.sandbox.repositories import RepositoryGuard
from agent_runtime.terminals.command import CommandReport, ShellStart
from agent_runtime.terminals.factory import LiveTerminal, create_terminals
from agent_runtime.terminals.output import OutputLogs, Spool
from agent_runtime.tools.tool import (
    CallPlan,
    ToolFamily,
    preview_call,
    preview_command,
    preview_input,
    refusal_plan,
    require_text,
)
from agent_runtime.workspace.files import Scratch

if TYPE_CHECKING:  # few runs have a network
    from agent_runtime.sandbox.egress import Egress

MAIN = "main"
MAX_TERMINALS = 16
MAX_SECONDS = 3600.0
DEFAULT_SECONDS = 60.0
"""Default timeout of `execute`: most builds end within a minute, and each look costs a model request."""

_CONTINUE_HINTS = {
    "running": 'It still runs: read_output("{session_id}", timeout=60, check=True) waits for its end.',
    "waiting for input": 'It waits for input: send_input("{session_id}", "…\\n") types it, "\\x03" interrupts it.',
}
"""Hints of `check` for a command that has not ended, by status."""

_TERMINAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_LABEL_CHARACTERS = 60


class ShellTools(ToolFamily):
    """Shell tools of one workspace. The terminal `main` always exists and starts on first use."""

    value_types: ClassVar[dict[str, str]] = {
        "execute": "CommandResult",
        "read_output": "CommandResult",
        "send_input": "CommandResult",
        "terminate_terminal": "str",
    }
    labels: ClassVar[dict[str, str]] = {
        "execute": "Running `{command}`",
        "read_output": "Reading the output of {session_id}",
        "send_input": "Typing into {session_id}",
        "terminate_terminal": "Closing {session_id}",
    }
    stub_types: ClassVar[str] = (
        "class CommandResult(TypedDict): status: str; exit_code: int | None; output: str; cwd: str\n"
    )
    policy_parameters: ClassVar[dict[str, str]] = {"execute": "command", "send_input": "text"}
    minor_parameters: ClassVar[dict[str, tuple[str, ...]]] = {
        "execute": ("shell",),
        "read_output": ("timeout", "check"),
        "send_input": ("timeout",),
    }
    briefs: ClassVar[dict[str, str]] = dict.fromkeys(
        ("read_output", "send_input", "terminate_terminal"), "Wait for, type into or kill what runs on."
    )

    def __init__(
        self,
        sandbox: Sandbox,
        workspace: Path,
        logs: OutputLogs | None = None,
        egress: Egress | None = None,
        *,
        scratch: Scratch | None = None,
        guard: RepositoryGuard | None = None,
        start_in: str = "",
        gap: float = 0.0,
        excuse: Callable[[str, str], Awaitable[tuple[str, ...]]] | None = None,
    ) -> None:
        """Prepare terminals in one shared sandbox.

        Args:
            logs: full texts of long outputs.
            scratch: `/tmp` of an isolating sandbox, shared with the file tools.
            guard: protects the workspace's repositories; None where programs may change them.
            start_in: initial directory below `workspace`.
            gap: seconds before each command; see `Agent.separates_commands`.
            excuse: returns the failed tests in a command's output if all failed before the run.
        """
        self._logs = logs  # keeps its temporary directory alive
        readable = logs.agent_paths(sandbox) if logs is not None else {}
        self._spool = Spool(logs.directory, agent_path=next(iter(readable))) if logs is not None else None
        self._start = ShellStart(directory=start_in)
        self._home = "/".join(filter(None, (str(sandbox.inner_path(workspace)), start_in)))
        self._place = create_terminals(
            sandbox, workspace, readable, self._spool, egress, scratch=scratch, guard=guard, start=self._start
        )
        self._gap, self._excuse = gap, excuse
        self._shells: dict[str, str] = {}
        self._terminals: dict[str, LiveTerminal] = {MAIN: self._new_terminal(MAIN)}

    async def execute(  # noqa: PLR0917 - the signature that users of the first CodePilot know
        self,
        session_id: str,
        command: str,
        timeout: float = DEFAULT_SECONDS,  # noqa: ASYNC109 - the model says how long
        new_terminal: bool = False,  # noqa: FBT001, FBT002 - the seed's documented signature
        check: bool = False,  # noqa: FBT001, FBT002 - the same
        shell: str | None = None,
    ) -> ToolResult:
        """Run bash in a terminal that lives on: "main", or a new one. After timeout seconds it runs on. check=True
        raises unless all of a pipe succeeds. Returns {status, exit_code, output, cwd}.

        A command that runs on has the status "running", and one that reads from the terminal, at once, "waiting for
        input". shell: another one than bash, where the terminals have it.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        _check_command(command, timeout, shell, self._place.shells)
        terminal = await self._open_terminal(session_id, shell) if new_terminal else self._find(session_id)
        if shell not in {None, self._shells[session_id]}:
            raise ToolError(
                f"execute: {session_id!r} runs {self._shells[session_id]}; another shell needs a terminal of its own "
                "(new_terminal=True)",
                kind="ValueError",
            )
        _check_idle(session_id, terminal)
        if self._gap:
            await asyncio.sleep(self._gap)
        report = await terminal.run(command, timeout=timeout)
        return await self._result(session_id, report, check=check)

    async def read_output(
        self,
        session_id: str,
        timeout: float = 5,  # noqa: ASYNC109 - as above
        check: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> ToolResult:
        """Wait up to timeout seconds for the command to end; gives new output, or all of it once it was shown."""
        _check_seconds(timeout)
        report = await self._find(session_id).read(timeout=timeout)
        if report is None:
            raise ToolError(f"read_output: no command was run in {session_id!r} yet; use execute")
        return await self._result(session_id, report, check=check)

    async def send_input(self, session_id: str, text: str, timeout: float = 5) -> ToolResult:  # noqa: ASYNC109 - as above
        r"""Type text to the running command ("yes\n", "\x03" Ctrl+C, "\x04" Ctrl+D); gives the output that follows."""
        _check_seconds(timeout)
        terminal = self._find(session_id)
        _running(session_id, terminal)
        try:
            report = await terminal.send(text, timeout=timeout)
        except ValueError as error:
            raise ToolError(f"send_input: {error}", kind="ValueError") from error
        return _result(session_id, report, check=False)

    async def terminate_terminal(self, session_id: str) -> ToolResult:
        """Kill a terminal and everything it started."""
        await self._find(session_id).close()
        if session_id == MAIN:
            self._terminals[MAIN] = self._new_terminal(MAIN)
        else:
            del self._terminals[session_id], self._shells[session_id]
        note = "; it starts anew with the next command" if session_id == MAIN else ""
        text = f"[terminal:{session_id}] terminated{note}"
        return ToolResult(value=text, text=text)

    @override
    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        facts, preview = CallFacts(tool=tool, args=args), partial(preview_call, tool, args)
        try:
            if tool == "execute":
                name, command, fresh = args["session_id"], args["command"], args.get("new_terminal", False)
                terminal = self._terminals.get(name)
                cwd = (terminal.cwd if terminal is not None and not fresh else "") or self._home
                shell = args.get("shell") or ("" if fresh else self._shells.get(name, "")) or self._place.shells[0]
                facts = CallFacts(tool=tool, args=args, command=command, cwd=cwd, shell=shell)
                _check_command(command, args.get("timeout", DEFAULT_SECONDS), args.get("shell"), self._place.shells)
                if not fresh or terminal is not None:
                    _check_idle(name, self._find(name))
                preview = partial(preview_command, command, terminal=name, cwd=cwd, fresh=fresh)
            elif tool == "send_input":
                name, text = args["session_id"], args["text"]
                shell = self._shells.get(name, self._place.shells[0])
                facts = CallFacts(tool=tool, args=args, typed_input=text, shell=shell)
                preview = partial(preview_input, text, terminal=name, running=_running(name, self._find(name)))
        except ToolError as error:
            return refusal_plan(facts, error)
        return CallPlan(facts=facts, preview=preview, apply=call)

    @override
    def policy_facts(self, tool: str, args: dict[str, Any]) -> CallFacts:
        """Return the command or input of a call; see `ToolFamily`."""
        parameter, shell = self.policy_parameters[tool], str(args.get("shell") or "bash")
        text = require_text(tool, parameter, args[parameter])
        if tool == "send_input":
            return CallFacts(tool=tool, args=args, typed_input=text, shell=shell)
        return CallFacts(tool=tool, args=args, command=text, shell=shell)

    async def run_trial(self, script: str, seconds: float) -> str | None:
        """Return the output of a script in a temporary terminal; None on timeout."""
        terminal = self._place.terminal("trial", self._place.shells[0])
        try:
            async with asyncio.timeout(seconds):
                report = await terminal.run(script, timeout=seconds)
        except TimeoutError:
            return None
        finally:
            await terminal.close()
        return None if report.status == "running" else report.output

    def set_python_path(self, directory: str) -> None:
        """Set the Python path of future terminals to a directory below the first one."""
        self._start.python_path = f"{self._home}/{directory}" if directory else ""

    async def interrupt(self, reason: str = "interrupted") -> None:
        """Interrupt running commands; shells survive if possible."""
        await asyncio.gather(*(terminal.interrupt(reason) for terminal in self._terminals.values()))

    async def reset(self) -> None:
        """Kill all terminals; the next command starts a new one."""
        await self.close()
        self._terminals = {MAIN: self._new_terminal(MAIN)}

    async def close(self) -> None:
        """Kill all terminals; idempotent."""
        await self._place.close()
        await asyncio.gather(*(terminal.close() for terminal in self._terminals.values()))

    async def list_programs(self) -> tuple[str, ...]:
        """List the commands that run in terminals, and the command lines of programs in the background."""
        programs = [await terminal.list_programs() for terminal in self._terminals.values()]
        return tuple(dict.fromkeys(itertools.chain.from_iterable(programs)))

    @property
    def status(self) -> str:
        return "\n".join(
            f"{name}: {'running `' + _shorten(t.running_command) + '`' if t.running_command is not None else 'idle'}, "
            f"pid {t.pid}, cwd {t.cwd}"
            for name, t in self._terminals.items()
            if t.pid is not None
        )

    @property
    def live_names(self) -> list[str]:
        return [name for name, terminal in self._terminals.items() if terminal.pid is not None]

    async def _result(self, session_id: str, report: CommandReport, *, check: bool) -> ToolResult:
        excused: tuple[str, ...] = ()
        fails = report.status == "completed" and {report.exit_code, *report.pipe} - {0} == {1}
        if self._excuse is not None and fails and report.cwd == self._home:
            excused = await self._excuse(report.command, report.output)
        return _result(session_id, report, check=check, excused=excused)

    def _new_terminal(self, name: str, shell: str | None = None) -> LiveTerminal:
        self._shells[name] = shell or self._place.shells[0]
        return self._place.terminal(name, self._shells[name])

    def _find(self, session_id: str) -> LiveTerminal:
        terminal = self._terminals.get(session_id)
        if terminal is None:
            raise ToolError(
                f"there is no terminal {session_id!r}; there are: {', '.join(self._terminals)}. "
                "execute(..., new_terminal=True) makes one.",
                kind="ValueError",
            )
        return terminal

    async def _open_terminal(self, session_id: str, shell: str | None) -> LiveTerminal:
        old = self._terminals.get(session_id)
        if old is not None:
            if old.running_command is None:
                await old.close()
                self._terminals[session_id] = self._new_terminal(session_id, shell)
            return self._terminals[session_id]
        if _TERMINAL_NAME.fullmatch(session_id) is None:
            raise ToolError(
                f"session_id {session_id!r}: use up to 32 letters, digits, `_`, `.` and `-`", kind="ValueError"
            )
        if len(self._terminals) >= MAX_TERMINALS:
            raise ToolError(f"{MAX_TERMINALS} terminals are open; close one with terminate_terminal first")
        self._terminals[session_id] = self._new_terminal(session_id, shell)
        return self._terminals[session_id]


def _check_command(command: str, timeout: float, shell: str | None, shells: tuple[str, ...]) -> None:
    _check_seconds(timeout)
    if shell is not None and shell not in shells:
        raise ToolError(
            f"execute: shell={shell!r} is not offered; terminals run {' or '.join(shells)}. Leave shell out, "
            "or start the other one as a command.",
            kind="ValueError",
        )
    if "\0" in command:
        raise ToolError("execute: command holds a NUL character; no shell can take one", kind="ValueError")


def _check_idle(session_id: str, terminal: LiveTerminal) -> None:
    if terminal.running_command is not None:
        raise ToolError(
            f"{session_id!r} is busy with `{_shorten(terminal.running_command)}`. Use read_output or send_input, "
            'e.g. send_input(session_id, "\\x03") to interrupt it, or another terminal (new_terminal=True).'
        )


def _running(session_id: str, terminal: LiveTerminal) -> str:
    if terminal.running_command is None:
        raise ToolError(f"send_input: no command is running in {session_id!r}; to run one use execute")
    return terminal.running_command


def _check_seconds(timeout: float) -> None:
    if not 0 <= timeout <= MAX_SECONDS:
        raise ToolError(f"timeout {timeout}: use 0 to {MAX_SECONDS:.0f} seconds", kind="ValueError")


def _result(session_id: str, report: CommandReport, *, check: bool, excused: tuple[str, ...] = ()) -> ToolResult:
    value: dict[str, Plain] = {
        "status": report.status,
        "exit_code": report.exit_code,
        "output": report.output,
        "cwd": report.cwd,
    }
    text = _format_report(session_id, report)
    if excused:
        value["failed_before"] = list(excused)
        text += f"\n[failed before any change, too, and nothing else fails: {list_tests(excused)}]"
    if not check or report.ok or excused:
        return ToolResult(value=value, text=text, rest=f"read_output({session_id!r}) shows it until the next command")
    if report.status in _CONTINUE_HINTS:
        hint = _CONTINUE_HINTS[report.status].format(session_id=session_id)
        raise ToolError(f"{text}\n{hint}", kind="TimeoutError", value=value)
    # Report the exit code of the failed stage, not of the last one.
    failed = next((code for code in report.pipe if code), report.exit_code)
    raise ToolError(text, kind="RuntimeError", value=value | {"exit_code": failed})


def _format_report(session_id: str, report: CommandReport) -> str:
    output = report.output if not report.output or report.output.endswith("\n") else report.output + "\n"
    facts = [f"status: {report.status}"]
    if report.exit_code is not None:
        facts.append(f"exit_code: {report.exit_code}")
        if len(report.pipe) > 1:
            facts.append(f"pipe: {' '.join(map(str, report.pipe))}")
    facts.append(f"{report.seconds:.1f} s")
    if report.cwd:
        facts.append(f"cwd: {report.cwd}")
    if report.note:
        facts.append(report.note)
    return f"[terminal:{session_id}:cmd{report.number}] $ {report.command}\n{output}[{' | '.join(facts)}]"


def _shorten(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= _LABEL_CHARACTERS else f"{line[: _LABEL_CHARACTERS - 1]}…"
