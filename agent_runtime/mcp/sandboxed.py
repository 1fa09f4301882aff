"""An MCP server as a program in a sandbox of its own, spoken to over its standard streams.

The sandbox is started as that of the terminals is: the same settings and limits, another start. So nothing that the
agent runs sees the server's processes or variables, and both see the same workspace. The first program inside is a few
lines of bash, which wait for the variables: until then nothing of the server runs, and the proxy of the network can
begin to listen.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent_runtime.core.errors import SandboxError, SettingsError
from agent_runtime.core.network import Connection, Network
from agent_runtime.mcp.budget import Budget
from agent_runtime.mcp.settings import MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES, McpServer, values_in
from agent_runtime.processes.spawn import end, seen_through
from agent_runtime.sandbox.bubblewrap import WITHOUT_GUARD
from agent_runtime.sandbox.protocol import TMPFS, Launch, Sandbox
from agent_runtime.sandbox.watcher import Watcher
from agent_runtime.sandbox.way_out import way_out

if TYPE_CHECKING:  # the package is an extra, and a tenth of a second to import
    from mcp.client._transport import TransportStreams

_PLACE = "$HOME"
"""Not the workspace: programs look for modules and settings where they start, and there others may have put them."""
_SCRIPT = f"""
echo ready >&2
while IFS= read -r line && [ -n "$line" ]; do export "$line"; done
cd "{_PLACE}" && "$@"
"""
_START_SECONDS, _END_SECONDS = 30.0, 10.0
_LAST_WORDS = 2_000
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """Where the servers of an agent run.

    Attributes:
        sandbox: the agent's.
        workspace: the agent's.
        network: what the agent's commands may reach, and its servers with them.
        told: of each connection that a server asks for.
    """

    sandbox: Sandbox
    workspace: Path
    network: Network
    told: Callable[[Connection], None]


class LastWords:
    """What a server wrote to standard error, as far as it is kept; also which process it is.

    Attributes:
        text: the words.
        watcher: ends its sandbox at a limit.
        budget: for all that it says, on either stream.
        silence: ends it when it said too much.
    """

    def __init__(self, budget: Budget, secrets: Sequence[str] = ()) -> None:
        self.text = ""
        self._secrets = secrets
        self.watcher: Watcher | None = None
        self.budget = budget
        self.silence: Callable[[], object] = bool
        self._ours, self.theirs = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._ours.settimeout(0)
        self._first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._ours, self._listen)

    @property
    def told(self) -> str:
        """The words, and the limit for which its sandbox was ended."""
        breach = None if self.watcher is None else self.watcher.verdict()
        return "\n".join(filter(None, (self.text.strip(), "" if breach is None else breach.told())))

    def add(self, text: str) -> None:
        """Keep a text of ours with them."""
        self.text = f"{self.text}\n{text}"[-_LAST_WORDS:]

    async def first(self) -> int:
        """Wait for the first process inside to speak; its id, as this machine counts.

        Raises:
            SandboxError: it ended without a word of ours, or took too long.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(self._first), _START_SECONDS)
        except TimeoutError:
            raise SandboxError(f"The sandbox of an MCP server did not start within {_START_SECONDS:g} s.") from None

    def close(self) -> None:
        """Hear no more; idempotent."""
        if self._ours.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._ours)
        self._ours.close()
        self.theirs.close()
        self._first.cancel()

    def _listen(self) -> None:
        try:
            data, control, _, _ = self._ours.recvmsg(_LAST_WORDS, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return
        except ConnectionError:
            data, control = b"", []
        if not data:
            asyncio.get_running_loop().remove_reader(self._ours)
            if not self._first.done():
                said = self.text.strip() or "nothing"
                self._first.set_exception(SandboxError(f"The sandbox of an MCP server did not start. It said: {said}"))
            return
        if not self._first.done() and data.startswith(b"ready\n") and control:
            self._first.set_result(_CREDENTIALS.unpack(control[0][2])[0])
            data = data.removeprefix(b"ready\n")
        said = self.text + data.decode(errors="replace")
        for secret in self._secrets:  # before it is cut: nobody knows the rest of one
            said = said.replace(secret, "***")
        self.text = said[-_LAST_WORDS:]
        if not self.budget.takes(data):
            self.add(self.budget.refusal)
            asyncio.get_running_loop().remove_reader(self._ours)
            self.silence()


@asynccontextmanager
async def sandboxed(server: McpServer, place: ServerPlace, words: LastWords) -> AsyncGenerator[TransportStreams]:
    """Start a server, and give the streams of its messages; leaving kills it and all that it started.

    Args:
        server: the program.
        place: where it runs.
        words: takes what it writes to standard error; closed at the end.

    Raises:
        SandboxError: the sandbox cannot be started.
        SettingsError: this sandbox cannot hold such a server.
    """
    sandbox = place.sandbox
    environment = dict(server.env)
    async with AsyncExitStack() as stack:
        stack.callback(words.close)
        if sandbox.level == "docker":
            raise SettingsError(
                f"MCP server {server.name!r}: programs as servers need the sandbox `bubblewrap`; with `docker`, define "
                "a server with a `url`"
            )
        guard = WITHOUT_GUARD if sandbox.apart else ()
        argv = ("bash", "--noprofile", "--norc", "-c", _SCRIPT, "mcp", *guard, *server.command)
        launch = sandbox.launch(argv, workspace=place.workspace, first=True)
        process = await _started(launch, words)
        stack.push_async_callback(_ended, process)
        words.silence = partial(end, process)
        first = await words.first()
        if sandbox.apart:
            words.watcher = _watch(first, sandbox, place.workspace)
            egress = way_out(sandbox, place.network, told=place.told, lost=words.add)
            if egress is not None:
                namespace = os.open(f"/proc/{first}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, namespace)
                stack.push_async_callback(egress.close)
                await egress.serve(namespace)
                environment = {**egress.environment, **environment}
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("they are pipes")
        stdin.write("".join(f"{name}={value}\n" for name, value in environment.items()).encode() + b"\n")
        yield await stack.enter_async_context(_messages(stdin, stdout, words))


@asynccontextmanager
async def _messages(
    stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, words: LastWords
) -> AsyncGenerator[TransportStreams]:
    """The messages of a server, as values; bounded in size and number."""
    import anyio  # noqa: PLC0415 - see TYPE_CHECKING above
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - the same
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - the same

    into, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    said, out_of = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with into:
            while line := await _line(stdout, words):
                message: SessionMessage | Exception
                try:
                    message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError as error:  # a server that prints; the session ignores it
                    message = error
                await into.send(message)

    async def write() -> None:
        async with out_of:
            async for message in out_of:
                stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await stdin.drain()

    # Whichever of them ends first: the other side is told by the end of its stream.
    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        yield heard, said
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (into, heard, said, out_of):
            await each.aclose()


async def _line(stdout: asyncio.StreamReader, words: LastWords) -> bytes:
    """The next line; empty at the end, and in place of a line that goes over a limit."""
    try:
        line = await stdout.readline()
    except ValueError:
        words.add(f"(It sent a message of more than {MAX_MESSAGE_BYTES:,} bytes.)")
        return b""
    if values_in(line) > MAX_MESSAGE_VALUES:
        words.add(f"(It sent a message of more than {MAX_MESSAGE_VALUES:,} values.)")
        return b""
    if not words.budget.takes(line):
        words.add(words.budget.refusal)
        return b""
    return line


async def _started(launch: Launch, words: LastWords) -> asyncio.subprocess.Process:
    try:
        return await seen_through(
            asyncio.create_subprocess_exec(
                *launch.argv,
                env=dict(launch.env),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=words.theirs.fileno(),
                limit=MAX_MESSAGE_BYTES,
                start_new_session=True,
            ),
            end=_ended,
        )
    except OSError as error:
        raise SandboxError(f"`{launch.argv[0]}` could not be started: {error}") from error
    finally:
        words.theirs.close()


def _watch(first: int, sandbox: Sandbox, workspace: Path) -> Watcher:
    """Have a sandbox ended when its programs together go over a limit."""
    held: list[int] = []
    try:
        held.append(os.open(f"/proc/{first}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        held.append(os.pidfd_open(first))
        return Watcher(root=held[0], first=held[1], workspace=workspace, tmpfs=TMPFS, limits=sandbox.limits)
    except OSError as error:
        raise SandboxError(f"The sandbox of an MCP server ended, or cannot be watched: {error}") from error
    finally:
        for descriptor in held:
            os.close(descriptor)


async def _ended(process: asyncio.subprocess.Process) -> None:
    end(process)
    if process.stdin is not None:
        process.stdin.close()
    await asyncio.wait_for(process.wait(), _END_SECONDS)
