"""Calling what may block for as long as a person takes, in a thread that nobody waits for at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(call: Callable[[], T]) -> T:
    """`asyncio.to_thread`, in a thread that does not keep the process from ending.

    A prompt that is still open when its run was stopped would otherwise hold up the interpreter's exit until somebody
    answers it.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[tuple[list[T], BaseException | None]] = loop.create_future()

    def settle(values: list[T], error: BaseException | None) -> None:
        if not done.done():
            done.set_result((values, error))

    def work() -> None:
        values, error = list[T](), None
        try:
            values.append(context.run(call))
        except BaseException as raised:  # noqa: BLE001 - raised again where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, values, error)

    threading.Thread(target=work, name="codepilot asks", daemon=True).start()
    values, error = await done
    if error is not None:
        raise error
    return values[0]
