"""Connections to MCP servers: programs in a sandbox of their own, or HTTP addresses.

`McpConnection` starts a server on first use and restarts it after it ends. Servers are untrusted: their output is
bounded (`Budget`), and HTTP requests go to public addresses unless the operator allows others (`guarded_client`).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import httpx2
from typing_extensions import override

from agent_runtime.core.errors import McpServerError, SandboxError, SettingsError
from agent_runtime.core.text import replace_surrogates
from agent_runtime.core.values import Connection, Network
from agent_runtime.mcp.settings import MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES, McpServer, count_json_values
from agent_runtime.processes.spawn import end, finish_start
from agent_runtime.sandbox import egress as egress_module
from agent_runtime.sandbox.bubblewrap import WITHOUT_GUARD
from agent_runtime.sandbox.limits import Watcher
from agent_runtime.sandbox.protocol import TMPFS, Launch, Sandbox
from agent_runtime.sandbox.repositories import RepositoryGuard
from agent_runtime.sandbox.select import open_egress

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mcp.client import Client
    from mcp.client._transport import TransportStreams
    from mcp.client.session import IncomingMessage
    from mcp_types import CallToolResult, Tool


T = TypeVar("T")

_MAX_STARTS = 5
_STARTS_SECONDS = 600.0
"""The window of `_MAX_STARTS`: a server that ends at once is left alone for a while, an outage is survived."""
_MAX_PAGES = 20
_CLOSE_SECONDS = 10.0
_SESSION_GONE = "Session terminated"
"""The package's error text for a server that was restarted and lost the session."""
_NO_ANSWER = "Server returned an error response"
"""The package's error text for an answer without JSON-RPC, such as HTTP 503."""


class McpConnection:
    """A connection to one server, started on demand.

    Attributes:
        changed: whether the server announced a new list of tools.
    """

    def __init__(
        self, server: McpServer, place: ServerEnvironment, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare the connection.

        Raises:
            SettingsError: the package `mcp` is not installed.
        """
        try:
            import mcp  # noqa: F401, PLC0415 - see TYPE_CHECKING above
        except ImportError as error:
            raise SettingsError(
                f"MCP server {server.name!r}: the package `mcp` is missing; install codepilot-bot[mcp]"
            ) from error
        self.server = server
        self.has_new_tools = False
        self._place = place
        self._clock = clock
        self._starts = deque[float](maxlen=_MAX_STARTS)
        self._budget = Budget()
        self._starting = asyncio.Lock()
        self._stderr: StderrTail | None = None
        self._http_fault = ""
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._stop = asyncio.Event()

    @property
    def is_spent(self) -> bool:
        """Whether the server used up its budget and has to restart."""
        return self._budget.is_spent

    async def list_tools(self) -> list[Tool]:
        """List the server's tools.

        Raises:
            McpServerError: the server does not start or answer, or its list has too many pages.
        """
        from mcp_types import PaginatedRequestParams  # noqa: PLC0415 - see TYPE_CHECKING above

        client, tools, cursor = await self._ensure_started(), list["Tool"](), None
        for _ in range(_MAX_PAGES):
            page = await self._await_answer(client.session.list_tools(params=PaginatedRequestParams(cursor=cursor)))
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise McpServerError(f"The MCP server {self.server.name!r} lists its tools on more than {_MAX_PAGES} pages.")

    async def call(self, name: str, arguments: dict[str, object]) -> CallToolResult:
        """Call a tool. Its result is not validated against the server's schema.

        Raises:
            McpServerError: the server ended, refused, or did not answer in time or in form.
        """
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult  # noqa: PLC0415 - see above

        client = await self._ensure_started()
        # Not `call_tool`: that one compiles patterns of the server's, which may take for ever.
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        return await self._await_answer(client.session.send_request(request, CallToolResult))

    async def close(self) -> None:
        connection_task, self._task, self._client = self._task, None, None
        if connection_task is not None:
            self._stop.set()
            _, late = await asyncio.wait([connection_task], timeout=min(self.server.timeout, _CLOSE_SECONDS))
            for task in late:
                task.cancel()
            await asyncio.gather(connection_task, return_exceptions=True)

    async def _ensure_started(self) -> Client:
        async with self._starting:
            is_alive = self._client is not None and self._task is not None and not self._task.done()
            if self._client is not None and is_alive and not self.is_spent:
                return self._client
            await self.close()
            name, now = self.server.name, self._clock()
            if len(self._starts) == _MAX_STARTS and (wait := self._starts[0] + _STARTS_SECONDS - now) > 0:
                raise McpServerError(
                    f"The MCP server {name!r} was started {_MAX_STARTS} times within {_STARTS_SECONDS / 60:g} minutes "
                    f"and ended each time. A call in {wait:.0f} seconds starts it again.",
                    down=True,
                )
            self._starts.append(now)
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._stop.clear()
            self._http_fault = ""
            self._task = task = asyncio.create_task(self._hold_connection(ready))
            try:
                futures: list[asyncio.Future[Any]] = [task, ready]
                await asyncio.wait(futures, timeout=self.server.timeout, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                task.cancel()
                raise
            if not ready.done():
                task.cancel()
                await asyncio.wait([task])
                raise McpServerError(
                    f"The MCP server {name!r} did not start: {self._describe_failure(task)}{self._format_stderr()}. "
                    "To work without it, leave it out in `mcp`.",
                    down=True,
                )
            self._client = ready.result()
            return self._client

    async def _hold_connection(self, ready: asyncio.Future[Client]) -> None:
        """Hold the connection: a cancel scope is left in the task that entered it."""
        from importlib.metadata import version  # noqa: PLC0415 - few agents have servers

        from mcp.client import Client  # noqa: PLC0415 - see TYPE_CHECKING above
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same
        from mcp_types import Implementation  # noqa: PLC0415 - the same

        server, self._budget = self.server, Budget()
        async with AsyncExitStack() as stack:
            if server.url:
                http = await stack.enter_async_context(guarded_client(server, self._budget, self._record_http_fault))
                transport = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            else:
                self._stderr = StderrTail(self._budget, server.secrets)
                transport = open_sandboxed_server(server, self._place, self._stderr)
            client = Client(
                transport,
                read_timeout_seconds=server.timeout,
                client_info=Implementation(name="codepilot", version=version("codepilot-bot")),
                message_handler=self._handle_notification,
                cache=None,
            )
            ready.set_result(await stack.enter_async_context(client))
            await self._stop.wait()

    async def _handle_notification(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification  # noqa: PLC0415 - see TYPE_CHECKING above

        self.has_new_tools = self.has_new_tools or isinstance(message, ToolListChangedNotification)

    async def _await_answer(self, request: Coroutine[object, object, T]) -> T:
        from mcp import MCPError  # noqa: PLC0415 - see TYPE_CHECKING above
        from pydantic import ValidationError  # noqa: PLC0415 - the same

        name = self.server.name
        late: TimeoutError | None = None
        down = True
        try:
            async with asyncio.timeout(self.server.timeout):
                return await request
        except TimeoutError as error:
            late = error
            outcome = f"did not answer within {self.server.timeout:g} seconds"
        except ValidationError:
            outcome, down = "gave an answer that does not follow the protocol", False
        except MCPError as error:
            from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - see TYPE_CHECKING above

            if error.code != CONNECTION_CLOSED and error.message != _SESSION_GONE:
                outcome = f"refused: {error.message}{f' ({self._http_fault})' if self._http_fault else ''}"
                down = error.message == _NO_ANSWER
            else:
                task = self._task
                await self.close()
                reason = self._format_stderr()
                if not reason and self.server.url:
                    has_failed = task is not None and not task.cancelled() and task.exception() is not None
                    reason = f": {self._describe_failure(task) if task is not None and has_failed else error.message}"
                outcome = f"ended during the call{reason}; it is started again by the next call"
        raise McpServerError(f"The MCP server {name!r} {outcome}.", down=down) from late

    def _describe_failure(self, task: asyncio.Task[None]) -> str:
        error: BaseException | None = None if task.cancelled() else task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error is None:
            return f"it did not answer within {self.server.timeout:g} seconds"
        return str(error) if isinstance(error, SandboxError | SettingsError) else f"{type(error).__name__}: {error}"

    def _record_http_fault(self, fault: str) -> None:
        self._http_fault = fault

    def _format_stderr(self) -> str:
        output = self._stderr.report if self._stderr is not None else self._http_fault
        return f". It said: {output}" if output else ""


_START_DIRECTORY = "$HOME"
"""Not the workspace: programs load modules and settings from their start directory, which strangers can fill there."""
_SCRIPT = f"""
echo ready >&2
while IFS= read -r line && [ -n "$line" ]; do export "$line"; done
cd "{_START_DIRECTORY}" && "$@"
"""
_START_SECONDS, _END_SECONDS = 30.0, 10.0
_STDERR_TAIL_CHARS = 2_000
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
"""Perhaps half of a surrogate pair, which the package's parser refuses: the call would never get its answer."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEnvironment:
    """The environment of an agent's servers.

    Attributes:
        on_connection: called for each connection that a server requests.
        guard: of the workspace's repositories; None where programs may change them.
    """

    sandbox: Sandbox
    workspace: Path
    network: Network
    on_connection: Callable[[Connection], None]
    guard: RepositoryGuard | None = None


@asynccontextmanager
async def open_sandboxed_server(
    server: McpServer, place: ServerEnvironment, stderr: StderrTail
) -> AsyncGenerator[TransportStreams]:
    """Start a server in a sandbox and yield its message streams; on exit kill all its processes.

    The sandbox is separate from the terminals', with the same settings and workspace. The first program inside is
    `_SCRIPT`, which waits for the variables, so that the proxy listens before the server runs.

    Raises:
        SandboxError: the sandbox does not start.
        SettingsError: this sandbox cannot run such a server.
    """
    sandbox = place.sandbox
    environment = dict(server.env)
    async with AsyncExitStack() as stack:
        stack.callback(stderr.close)
        if sandbox.level == "docker":
            raise SettingsError(
                f"MCP server {server.name!r}: programs as servers need the sandbox `bubblewrap`; with `docker`, define "
                "a server with a `url`"
            )
        guard = WITHOUT_GUARD if sandbox.is_isolated else ()
        argv = ("bash", "--noprofile", "--norc", "-c", _SCRIPT, "mcp", *guard, *server.command)
        fixed = () if place.guard is None else await asyncio.to_thread(place.guard.begin)
        launch = sandbox.launch(argv, workspace=place.workspace, fixed=fixed, first=True)
        process = await _start_process(launch, stderr)
        stack.push_async_callback(_end_process, process)
        stderr.on_overflow = partial(end, process)
        first = await stderr.wait_for_first_process()
        if sandbox.is_isolated:
            stderr.watcher = _create_watcher(first, place)
            egress = open_egress(sandbox, place.network, on_connection=place.on_connection, on_lost=stderr.add)
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
        yield await stack.enter_async_context(_open_message_streams(stdin, stdout, stderr))


class StderrTail:
    """The end of a server's standard error, and the id of its first process.

    Attributes:
        watcher: ends the sandbox at a resource limit.
        budget: for both output streams.
    """

    def __init__(self, budget: Budget, secrets: Sequence[str] = ()) -> None:
        self.text = ""
        self._secrets = secrets
        self.watcher: Watcher | None = None
        self.budget = budget
        self.on_overflow: Callable[[], object] = bool
        self._reader, self.writer = socket.socketpair()
        self._reader.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._reader.settimeout(0)
        self._first_process: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._reader, self._listen)

    @property
    def report(self) -> str:
        """The text, with the limit for which the sandbox was ended."""
        breach = None if self.watcher is None else self.watcher.verdict()
        return "\n".join(filter(None, (self.text.strip(), "" if breach is None else breach.message())))

    def add(self, text: str) -> None:
        self.text = f"{self.text}\n{text}"[-_STDERR_TAIL_CHARS:]

    async def wait_for_first_process(self) -> int:
        """Wait until the first process inside writes; return its id in this process namespace.

        Raises:
            SandboxError: the process ended before, or took too long.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(self._first_process), _START_SECONDS)
        except TimeoutError:
            raise SandboxError(f"The sandbox of an MCP server did not start within {_START_SECONDS:g} s.") from None

    def close(self) -> None:
        if self._reader.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._reader)
        self._reader.close()
        self.writer.close()
        self._first_process.cancel()

    def _listen(self) -> None:
        try:
            data, control, _, _ = self._reader.recvmsg(_STDERR_TAIL_CHARS, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return
        except ConnectionError:
            data, control = b"", []
        if not data:
            asyncio.get_running_loop().remove_reader(self._reader)
            if not self._first_process.done():
                text = self.text.strip() or "nothing"
                self._first_process.set_exception(
                    SandboxError(f"The sandbox of an MCP server did not start. It said: {text}")
                )
            return
        if not self._first_process.done() and data.startswith(b"ready\n") and control:
            self._first_process.set_result(_CREDENTIALS.unpack(control[0][2])[0])
            data = data.removeprefix(b"ready\n")
        text = self.text + data.decode(errors="replace")
        for secret in self._secrets:  # before the cut, which could leave half of one
            text = text.replace(secret, "***")
        self.text = text[-_STDERR_TAIL_CHARS:]
        if not self.budget.consume(data):
            self.add(self.budget.refusal)
            asyncio.get_running_loop().remove_reader(self._reader)
            self.on_overflow()


async def _start_process(launch: Launch, stderr: StderrTail) -> asyncio.subprocess.Process:
    try:
        return await finish_start(
            asyncio.create_subprocess_exec(
                *launch.argv,
                env=dict(launch.env),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr.writer.fileno(),
                limit=MAX_MESSAGE_BYTES,
                start_new_session=True,
            ),
            end=_end_process,
        )
    except OSError as error:
        raise SandboxError(f"`{launch.argv[0]}` could not be started: {error}") from error
    finally:
        stderr.writer.close()


def _create_watcher(first: int, place: ServerEnvironment) -> Watcher:
    descriptors: list[int] = []
    try:
        descriptors.append(os.open(f"/proc/{first}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        descriptors.append(os.pidfd_open(first))
        return Watcher(
            root=descriptors[0],
            first=descriptors[1],
            workspace=place.workspace,
            tmpfs=TMPFS,
            limits=place.sandbox.limits,
            guard=place.guard,
        )
    except OSError as error:
        raise SandboxError(f"The sandbox of an MCP server ended, or cannot be watched: {error}") from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


async def _end_process(process: asyncio.subprocess.Process) -> None:
    end(process)
    if process.stdin is not None:
        process.stdin.close()
    await asyncio.wait_for(process.wait(), _END_SECONDS)


@asynccontextmanager
async def _open_message_streams(
    stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, stderr: StderrTail
) -> AsyncGenerator[TransportStreams]:
    import anyio  # noqa: PLC0415 - see TYPE_CHECKING above
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - the same
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - the same

    incoming_sender, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outgoing_receiver = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with incoming_sender:
            while line := await _read_line(stdout, stderr):
                message: SessionMessage | Exception
                try:
                    message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError as error:  # a server that prints; the session ignores it
                    message = error
                    if _HALF_CHARACTER.search(line):
                        with suppress(ValueError, RecursionError):
                            line = replace_surrogates(json.dumps(json.loads(line), ensure_ascii=False)).encode()
                            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                await incoming_sender.send(message)

    async def write() -> None:
        async with outgoing_receiver:
            async for message in outgoing_receiver:
                stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await stdin.drain()

    # The end of one task ends the other side's stream.
    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        yield incoming, outgoing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (incoming_sender, incoming, outgoing, outgoing_receiver):
            await stream.aclose()


async def _read_line(stdout: asyncio.StreamReader, stderr: StderrTail) -> bytes:
    try:
        line = await stdout.readline()
    except ValueError:
        stderr.add(f"(It sent a message of more than {MAX_MESSAGE_BYTES:,} bytes.)")
        return b""
    if count_json_values(line) > MAX_MESSAGE_VALUES:
        stderr.add(f"(It sent a message of more than {MAX_MESSAGE_VALUES:,} values.)")
        return b""
    if not stderr.budget.consume(line):
        stderr.add(stderr.budget.refusal)
        return b""
    return line


_MAX_STREAM_BYTES = 64 * 1024**2
_MAX_STREAMS = 200
"""For one connection. The client reopens the stream of notifications as often as the server ends it."""
_ENDS_OF_EVENTS = (b"\n\n", b"\n\r", b"\r\r")
"""A line ends with CR, LF or both, so an empty line ends with one of these, or with LF after the second."""
_LINES_PER_PIECE = 32
"""Every line is parsed, even a comment of one character: a budget of bytes alone would allow half a minute of that."""


def guarded_client(server: McpServer, budget: Budget, on_fault: Callable[[str], None]) -> httpx2.AsyncClient:
    """Create the HTTP client of a server; it follows no redirects.

    Args:
        budget: for all answers; content beyond it is not read.
        on_fault: called with the fault of the last answer, or an empty text.
    """
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=server.timeout,
        transport=_GuardedTransport(server, budget, on_fault),
        trust_env=False,
    )


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    """A transport that resolves the name itself, so that it connects to the address that it checked."""

    def __init__(self, server: McpServer, budget: Budget, on_fault: Callable[[str], None]) -> None:
        super().__init__(trust_env=False)
        self._server = server
        self._budget = budget
        self._on_fault = on_fault
        self._streams = 0

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, origin = request.url, httpx2.URL(self._server.url)
        if (url.scheme, url.host, url.port) != (origin.scheme, origin.host, origin.port):
            raise httpx2.ConnectError(f"{url.host} is not the server that was defined")
        if request.method == "GET":
            self._streams += 1
            if self._streams > _MAX_STREAMS:
                raise httpx2.ConnectError(f"{url.host} ended {_MAX_STREAMS} streams")
        try:
            addresses = await egress_module.resolve(url.host, url.port or 443)
        except OSError as error:
            raise httpx2.ConnectError(f"{url.host} cannot be resolved: {error}") from error
        refused = {address: egress_module.refusal_reason(address) for address in addresses}
        usable = [address for address, reason in refused.items() if self._server.private or reason is None]
        if not usable:
            reasons = ", ".join(f"{address} is {reason}" for address, reason in refused.items())
            raise httpx2.ConnectError(
                f"{url.host} has no public address ({reasons}); if this server is meant, define it with `private: true`"
            )
        response = await self._send(request, usable)
        if request.method == "POST":
            status = response.status_code
            hint = ": check `headers` in its definition" if status in {401, 403} else ""
            self._on_fault(f"HTTP {status}{hint}" if status >= httpx2.codes.BAD_REQUEST else "")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError(f"{url.host} answered with compressed content, which was not asked for")
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        content = cast("httpx2.AsyncByteStream", response.stream)
        # The package goes on reading the answer to a call that has timed out.
        until = time.monotonic() + self._server.timeout if request.method == "POST" else math.inf
        response.stream = _BoundedStream(content, self._budget, self._on_fault, deadline=until, is_event_stream=streams)
        return response

    async def _send(self, request: httpx2.Request, usable: list[str]) -> httpx2.Response:
        url, failure = request.url, httpx2.ConnectError("no address")
        for address in usable:
            # The header `Host` and the certificate check keep the name.
            attempt = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return await super().handle_async_request(attempt)
            except httpx2.ConnectError as error:
                failure = error
        raise failure


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body with limits on bytes, on values in one message, and on time."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        budget: Budget,
        on_fault: Callable[[str], None],
        *,
        deadline: float,
        is_event_stream: bool,
    ) -> None:
        self._inner = inner
        self._budget = budget
        self._on_fault = on_fault
        self._deadline = deadline
        self._is_event_stream = is_event_stream
        self._remaining = self._limit = _MAX_STREAM_BYTES if is_event_stream else MAX_MESSAGE_BYTES
        self._values = 0

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._remaining -= len(chunk)
            if self._remaining < 0:
                raise self._refuse(f"(It sent a message of more than {self._limit:,} bytes.)")
            lines = (chunk.count(b"\n") + chunk.count(b"\r")) // _LINES_PER_PIECE
            if not self._budget.consume(chunk, max(1, lines, sum(map(chunk.count, _ENDS_OF_EVENTS)))):
                raise self._refuse(self._budget.refusal)
            if time.monotonic() > self._deadline:
                raise self._refuse("(Its answer did not end in time.)")
            # An upper bound: a chunk may hold the end of one message and the beginning of the next.
            self._values += count_json_values(chunk)
            if self._values > MAX_MESSAGE_VALUES:
                raise self._refuse(f"(It sent a message of more than {MAX_MESSAGE_VALUES:,} values.)")
            if self._is_event_stream and chunk.endswith((*_ENDS_OF_EVENTS, b"\n\r\n")):
                self._values = 0
            yield chunk

    def _refuse(self, text: str) -> httpx2.ReadError:
        self._on_fault(text)  # the package reports a stream's end without its reason
        return httpx2.ReadError(text)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


MAX_BYTES = 256 * 1024**2
MAX_PIECES = 100_000
"""Messages, and chunks of standard error."""


class Budget:
    def __init__(self) -> None:
        self.is_spent = False
        self.refusal = f"(It said more than {MAX_BYTES:,} bytes, or {MAX_PIECES:,} messages, since it was started.)"
        self._bytes, self._pieces = MAX_BYTES, MAX_PIECES

    def consume(self, data: bytes, pieces: int = 1) -> bool:
        """Count a piece of output; return whether it fits into the budget."""
        self._bytes -= len(data)
        self._pieces -= pieces
        self.is_spent = self.is_spent or self._bytes < 0 or self._pieces < 0
        return not self.is_spent
