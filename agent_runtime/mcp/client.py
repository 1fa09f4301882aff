"""Connections to MCP servers: programs in a sandbox of their own, or addresses.

`McpConnection` starts a server when it is first needed, and again when it has ended. Strangers write servers, so all
that one says from one start to the next is bounded (`Budget`), and HTTP goes to public addresses only, unless the
operator says otherwise (`guarded_client`). The package `mcp` speaks the protocol.
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
from agent_runtime.mcp.settings import MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES, McpServer, values_in
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

_MOST_STARTS = 5
_STARTS_SECONDS = 600.0
"""One that ends as soon as it is started is left alone for a while, and one that was down for a while is not lost."""
_MOST_PAGES = 20
_CLOSE_SECONDS = 10.0
_SESSION_GONE = "Session terminated"
"""As the package tells that a server at an address was started anew, and has forgotten who we are."""
_NO_ANSWER = "Server returned an error response"
"""As the package tells of an answer that is HTTP's alone, such as 503."""


class McpConnection:
    """One server.

    Attributes:
        server: its definition.
        changed: whether it said that it has other tools now.
    """

    def __init__(self, server: McpServer, place: ServerPlace, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare; nothing is started yet.

        Args:
            server: its definition.
            place: where it runs, if it is a program.
            clock: gives seconds.

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
        self.changed = False
        self._place = place
        self._clock = clock
        self._starts = deque[float](maxlen=_MOST_STARTS)
        self._budget = Budget()
        self._starting = asyncio.Lock()
        self._words: LastWords | None = None
        self._wrong = ""
        self._owner: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._leave = asyncio.Event()

    @property
    def spent(self) -> bool:
        """Whether it said so much that the next call starts it again."""
        return self._budget.spent

    async def tools(self) -> list[Tool]:
        """The tools that it has now.

        Raises:
            McpServerError: it does not start or answer, or has more pages of them than are read.
        """
        from mcp_types import PaginatedRequestParams  # noqa: PLC0415 - see TYPE_CHECKING above

        client, found, cursor = await self._started(), list["Tool"](), None
        for _ in range(_MOST_PAGES):
            page = await self._answer(client.session.list_tools(params=PaginatedRequestParams(cursor=cursor)))
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise McpServerError(f"The MCP server {self.server.name!r} lists its tools on more than {_MOST_PAGES} pages.")

    async def call(self, name: str, arguments: dict[str, object]) -> CallToolResult:
        """Call one of its tools. The result is not held against the schema that the server gives for it.

        Raises:
            McpServerError: it ended, refused, or did not answer in time or in form.
        """
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult  # noqa: PLC0415 - see above

        client = await self._started()
        # Not `call_tool`: that one compiles patterns of the server's, which may take for ever.
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        return await self._answer(client.session.send_request(request, CallToolResult))

    async def close(self) -> None:
        """End it; idempotent."""
        owner, self._owner, self._client = self._owner, None, None
        if owner is not None:
            self._leave.set()
            _, late = await asyncio.wait([owner], timeout=min(self.server.timeout, _CLOSE_SECONDS))
            for task in late:
                task.cancel()
            await asyncio.gather(owner, return_exceptions=True)

    async def _started(self) -> Client:
        async with self._starting:
            lives = self._client is not None and self._owner is not None and not self._owner.done()
            if self._client is not None and lives and not self.spent:
                return self._client
            await self.close()
            name, now = self.server.name, self._clock()
            if len(self._starts) == _MOST_STARTS and (wait := self._starts[0] + _STARTS_SECONDS - now) > 0:
                raise McpServerError(
                    f"The MCP server {name!r} was started {_MOST_STARTS} times within {_STARTS_SECONDS / 60:g} minutes "
                    f"and ended each time. A call in {wait:.0f} seconds starts it again.",
                    down=True,
                )
            self._starts.append(now)
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._leave.clear()
            self._wrong = ""
            self._owner = owner = asyncio.create_task(self._own(ready))
            try:
                both: list[asyncio.Future[Any]] = [owner, ready]
                await asyncio.wait(both, timeout=self.server.timeout, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                owner.cancel()
                raise
            if not ready.done():
                owner.cancel()
                await asyncio.wait([owner])
                raise McpServerError(
                    f"The MCP server {name!r} did not start: {self._failure(owner)}{self._last_words()}. "
                    "To work without it, leave it out in `mcp`.",
                    down=True,
                )
            self._client = ready.result()
            return self._client

    async def _own(self, ready: asyncio.Future[Client]) -> None:
        """Hold the connection: what was entered in a task must be left in it."""
        from importlib.metadata import version  # noqa: PLC0415 - few agents have servers

        from mcp.client import Client  # noqa: PLC0415 - see TYPE_CHECKING above
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same
        from mcp_types import Implementation  # noqa: PLC0415 - the same

        server, self._budget = self.server, Budget()
        async with AsyncExitStack() as stack:
            if server.url:
                http = await stack.enter_async_context(guarded_client(server, self._budget, self._answered))
                transport = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            else:
                self._words = LastWords(self._budget, server.secrets)
                transport = sandboxed(server, self._place, self._words)
            client = Client(
                transport,
                read_timeout_seconds=server.timeout,
                client_info=Implementation(name="codepilot", version=version("codepilot-bot")),
                message_handler=self._heard,
                cache=None,
            )
            ready.set_result(await stack.enter_async_context(client))
            await self._leave.wait()

    async def _heard(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification  # noqa: PLC0415 - see TYPE_CHECKING above

        self.changed = self.changed or isinstance(message, ToolListChangedNotification)

    async def _answer(self, request: Coroutine[object, object, T]) -> T:
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
            told = f"did not answer within {self.server.timeout:g} seconds"
        except ValidationError:
            told, down = "gave an answer that does not follow the protocol", False
        except MCPError as error:
            from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - see TYPE_CHECKING above

            if error.code != CONNECTION_CLOSED and error.message != _SESSION_GONE:
                told = f"refused: {error.message}{f' ({self._wrong})' if self._wrong else ''}"
                down = error.message == _NO_ANSWER
            else:
                owner = self._owner
                await self.close()
                why = self._last_words()
                if not why and self.server.url:
                    broke = owner is not None and not owner.cancelled() and owner.exception() is not None
                    why = f": {self._failure(owner) if owner is not None and broke else error.message}"
                told = f"ended during the call{why}; it is started again by the next call"
        raise McpServerError(f"The MCP server {name!r} {told}.", down=down) from late

    def _failure(self, owner: asyncio.Task[None]) -> str:
        """Why its connection could not be made."""
        error: BaseException | None = None if owner.cancelled() else owner.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error is None:
            return f"it did not answer within {self.server.timeout:g} seconds"
        return str(error) if isinstance(error, SandboxError | SettingsError) else f"{type(error).__name__}: {error}"

    def _answered(self, wrong: str) -> None:
        self._wrong = wrong

    def _last_words(self) -> str:
        said = self._words.told if self._words is not None else self._wrong
        return f". It said: {said}" if said else ""


_PLACE = "$HOME"
"""Not the workspace: programs look for modules and settings where they start, and there others may have put them."""
_SCRIPT = f"""
echo ready >&2
while IFS= read -r line && [ -n "$line" ]; do export "$line"; done
cd "{_PLACE}" && "$@"
"""
_START_SECONDS, _END_SECONDS = 30.0, 10.0
_LAST_WORDS = 2_000
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
"""Perhaps half of a surrogate pair, which the package's parser refuses: a call would wait for its answer in vain."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """Where the servers of an agent run.

    Attributes:
        sandbox: the agent's.
        workspace: the agent's.
        network: what the agent's commands may reach, and its servers with them.
        told: of each connection that a server asks for.
        guard: of the workspace's repositories; None where programs may make and change them.
    """

    sandbox: Sandbox
    workspace: Path
    network: Network
    told: Callable[[Connection], None]
    guard: RepositoryGuard | None = None


@asynccontextmanager
async def sandboxed(server: McpServer, place: ServerPlace, words: LastWords) -> AsyncGenerator[TransportStreams]:
    """Start a server, and give the streams of its messages; leaving kills it and all that it started.

    Its sandbox has the settings and limits of the terminals' sandbox, but is another one: the agent's programs see
    neither the server's processes nor its variables, and both see the same workspace. The first program inside is
    `_SCRIPT`, which waits for the variables; until then nothing of the server runs, so the proxy can start listening.

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
        fixed = () if place.guard is None else await asyncio.to_thread(place.guard.begin)
        launch = sandbox.launch(argv, workspace=place.workspace, fixed=fixed, first=True)
        process = await _started(launch, words)
        stack.push_async_callback(_ended, process)
        words.silence = partial(end, process)
        first = await words.first()
        if sandbox.apart:
            words.watcher = _watch(first, place)
            egress = open_egress(sandbox, place.network, told=place.told, lost=words.add)
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
        return "\n".join(filter(None, (self.text.strip(), "" if breach is None else breach.message())))

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


async def _started(launch: Launch, words: LastWords) -> asyncio.subprocess.Process:
    try:
        return await finish_start(
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


def _watch(first: int, place: ServerPlace) -> Watcher:
    """Have a sandbox ended when its programs together go over a limit."""
    held: list[int] = []
    try:
        held.append(os.open(f"/proc/{first}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        held.append(os.pidfd_open(first))
        return Watcher(
            root=held[0],
            first=held[1],
            workspace=place.workspace,
            tmpfs=TMPFS,
            limits=place.sandbox.limits,
            guard=place.guard,
        )
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
                    if _HALF_CHARACTER.search(line):
                        with suppress(ValueError, RecursionError):
                            line = replace_surrogates(json.dumps(json.loads(line), ensure_ascii=False)).encode()
                            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
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


_MAX_STREAM_BYTES = 64 * 1024**2
_MAX_STREAMS = 200
"""Of one connection. A stream for what the server says unasked is opened again when it ends, as soon as it wants."""
_ENDS_OF_EVENTS = (b"\n\n", b"\n\r", b"\r\r")
"""A line ends with CR, LF or both, so an empty one ends with one of these, or with LF after the second."""
_LINES_PER_PIECE = 32
"""Each line is parsed, even a comment of one character: a budget of bytes alone would take half a minute of that."""


def guarded_client(server: McpServer, budget: Budget, told: Callable[[str], None]) -> httpx2.AsyncClient:
    """A client for the requests to a server; its users do not follow redirects to elsewhere.

    Args:
        server: its definition.
        budget: for all that it answers; what comes after that is not read.
        told: is given what is wrong with the last answer to a message, or an empty text.
    """
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=server.timeout,
        transport=_Guarded(server, budget, told),
        trust_env=False,
    )


class _Guarded(httpx2.AsyncHTTPTransport):
    """Resolves the server's name itself, so that the address which was judged is the one that is connected to."""

    def __init__(self, server: McpServer, budget: Budget, told: Callable[[str], None]) -> None:
        super().__init__(trust_env=False)
        self._server = server
        self._budget = budget
        self._told = told
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
            found = await egress_module.resolve(url.host, url.port or 443)
        except OSError as error:
            raise httpx2.ConnectError(f"{url.host} cannot be resolved: {error}") from error
        refused = {address: egress_module.refusal(address) for address in found}
        usable = [address for address, reason in refused.items() if self._server.private or reason is None]
        if not usable:
            reasons = ", ".join(f"{address} is {reason}" for address, reason in refused.items())
            raise httpx2.ConnectError(
                f"{url.host} has no public address ({reasons}); if this server is meant, define it with `private: true`"
            )
        response = await self._sent(request, usable)
        if request.method == "POST":
            status = response.status_code
            hint = ": check `headers` in its definition" if status in {401, 403} else ""
            self._told(f"HTTP {status}{hint}" if status >= httpx2.codes.BAD_REQUEST else "")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError(f"{url.host} answered with compressed content, which was not asked for")
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        content = cast("httpx2.AsyncByteStream", response.stream)
        # The package reads the answer to a call on after the call was given up.
        until = time.monotonic() + self._server.timeout if request.method == "POST" else math.inf
        response.stream = _Bounded(content, self._budget, self._told, until=until, streams=streams)
        return response

    async def _sent(self, request: httpx2.Request, usable: list[str]) -> httpx2.Response:
        """What the first of the addresses answers that can be connected to: a server may listen at one of them only."""
        url, failure = request.url, httpx2.ConnectError("no address")
        for address in usable:
            # The header `Host` keeps the name, and so does what the certificate is checked against.
            sent = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return await super().handle_async_request(sent)
            except httpx2.ConnectError as error:
                failure = error
        raise failure


class _Bounded(httpx2.AsyncByteStream):
    """What a server answers: up to a number of bytes, and of values in one message, and up to a time."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        budget: Budget,
        told: Callable[[str], None],
        *,
        until: float,
        streams: bool,
    ) -> None:
        self._inner = inner
        self._budget = budget
        self._told = told
        self._until = until
        self._streams = streams
        self._left = self._most = _MAX_STREAM_BYTES if streams else MAX_MESSAGE_BYTES
        self._values = 0

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise self._refusal(f"(It sent a message of more than {self._most:,} bytes.)")
            lines = (chunk.count(b"\n") + chunk.count(b"\r")) // _LINES_PER_PIECE
            if not self._budget.takes(chunk, max(1, lines, sum(map(chunk.count, _ENDS_OF_EVENTS)))):
                raise self._refusal(self._budget.refusal)
            if time.monotonic() > self._until:
                raise self._refusal("(Its answer did not end in time.)")
            # At worst too many are counted: a chunk may have the end of one message and the beginning of the next.
            self._values += values_in(chunk)
            if self._values > MAX_MESSAGE_VALUES:
                raise self._refusal(f"(It sent a message of more than {MAX_MESSAGE_VALUES:,} values.)")
            if self._streams and chunk.endswith((*_ENDS_OF_EVENTS, b"\n\r\n")):
                self._values = 0
            yield chunk

    def _refusal(self, text: str) -> httpx2.ReadError:
        self._told(text)  # of a stream, the package tells only that it has ended
        return httpx2.ReadError(text)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


MAX_BYTES = 256 * 1024**2
MAX_PIECES = 100_000
"""Messages, and reads of what it writes beside them. More than any run needs, and little enough to be read."""


class Budget:
    """What is left to a server until it is started again.

    Attributes:
        spent: whether it said more.
        refusal: a sentence about that, for people.
    """

    def __init__(self) -> None:
        self.spent = False
        self.refusal = f"(It said more than {MAX_BYTES:,} bytes, or {MAX_PIECES:,} messages, since it was started.)"
        self._bytes, self._pieces = MAX_BYTES, MAX_PIECES

    def takes(self, said: bytes, pieces: int = 1) -> bool:
        """Count something that it said; whether that was within what was left."""
        self._bytes -= len(said)
        self._pieces -= pieces
        self.spent = self.spent or self._bytes < 0 or self._pieces < 0
        return not self.spent
