"""§12: a message sent while the agent works is queued at once and read at the next step, never in the middle of one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from agent_runtime import AsyncRuntime, EventType, Runtime, on_tool_call
from tests.agent_runtime.seed.parts import Model, reply, watch

Start = Callable[..., tuple[AsyncRuntime, Model]]


async def test_a_message_enters_at_the_next_step_apart_from_the_task(start: Start) -> None:
    runtime, model = start(reply('execute("main", "echo first")\nprint("still first")'), reply(done="Done."))
    seen = watch(runtime, EventType.STEP, EventType.USER_MESSAGE_QUEUED, EventType.USER_MESSAGE_INJECTED)

    @on_tool_call(runtime)
    def interrupt(**_: object) -> None:
        runtime.send_message("Use tabs")

    await runtime.run("Indent it")
    assert [kind for kind, _ in seen] == [
        EventType.STEP,
        EventType.USER_MESSAGE_QUEUED,
        EventType.STEP,
        EventType.USER_MESSAGE_INJECTED,
    ]
    assert "Use tabs" not in model.read[0]
    assert model.read[1].index("still first") < model.read[1].index("[USER MESSAGE] Use tabs")
    assert "[Task" not in model.read[1]


async def test_messages_keep_their_order_and_each_is_read_once(start: Start) -> None:
    runtime, model = start(reply("print('one')"), reply("print('two')"), reply(done="Done."))
    runtime.send_message("first word")
    runtime.send_message("second word")
    await runtime.run("Listen")
    assert model.read[0].index("[Task 1]") < model.read[0].index("first word") < model.read[0].index("second word")
    assert sum("word" in text for text in model.read) == 1


async def test_a_message_that_comes_too_late_is_read_by_the_next_run(start: Start) -> None:
    runtime, model = start(reply(done="Done."), reply(done="Read it."))
    await runtime.run("Do it")
    runtime.send_message("One more thing")
    assert "One more thing" not in str(runtime.messages)
    await runtime.run("And now?")
    assert "[USER MESSAGE] One more thing" in model.read[1]


async def test_another_thread_may_send(start: Start) -> None:
    runtime, model = start(reply('execute("main", "sleep 600", 0.2)'), reply(done="Heard."))
    threads: list[threading.Thread] = []

    @on_tool_call(runtime)
    def elsewhere(**_: object) -> None:
        threads.append(threading.Thread(target=runtime.send_message, args=("From a thread",)))
        threads[0].start()
        threads[0].join()

    await asyncio.wait_for(runtime.run("Wait"), timeout=20)
    assert "[USER MESSAGE] From a thread" in model.read[1]


def test_the_blocking_runtime_hears_other_threads(start_sync: Callable[..., tuple[Runtime, Model]]) -> None:
    runtime, model = start_sync(reply("print(answer())"), reply(done="Heard."))
    waiting, sent = threading.Event(), threading.Event()

    def answer() -> str:
        """Wait for the other thread."""
        waiting.set()
        assert sent.wait(10)
        return "answered"

    def send() -> None:
        assert waiting.wait(10)
        runtime.send_message("From outside")
        sent.set()

    runtime.register_tool("answer", answer)
    thread = threading.Thread(target=send)
    thread.start()
    runtime.run("Ask")
    thread.join()
    assert "[USER MESSAGE] From outside" in model.read[1]
