"""A connection to one MCP server: started when it is first needed, and again when the server has ended."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from agent_runtime.core.errors import McpServerError, SandboxError, SettingsError
from agent_runtime.mcp.budget import Budget
from agent_runtime.mcp.sandboxed import LastWords, ServerPlace, sandboxed
from agent_runtime.mcp.settings import MAX_MESSAGE_BYTES, McpServer

if TYPE_CHECKING:  # the package is an extra, and a tenth of a second to import
    from collections.abc import Callable, Coroutine

    from mcp.client import Client
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
                from agent_runtime.mcp.guarded_http import guarded_client  # noqa: PLC0415 - the same

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
