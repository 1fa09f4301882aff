"""A workspace, a sandbox, and runtimes on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, AsyncRuntime, Runtime, Sandbox
from tests.agent_runtime.seed.parts import Model


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The workspace."""
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def described(place: Path, sandbox: Sandbox) -> Callable[..., tuple[Agent, Model]]:
    """An agent in code, and its model: `described(*replies, **settings_of_the_agent)`."""

    def describe(*replies: str, **settings: Any) -> tuple[Agent, Model]:  # noqa: ANN401 - whatever an agent takes
        model = Model(replies)
        return Agent(provider=model, work_dir=place, sandbox=sandbox, **settings), model

    return describe


@pytest.fixture
async def start(
    described: Callable[..., tuple[Agent, Model]],
) -> AsyncIterator[Callable[..., tuple[AsyncRuntime, Model]]]:
    """An async runtime with its model; `using` is what the runtime itself takes, the rest is the agent's."""
    made: list[AsyncRuntime] = []

    def make(*replies: str, using: dict[str, Any] | None = None, **settings: Any) -> tuple[AsyncRuntime, Model]:  # noqa: ANN401 - whatever an agent takes
        agent, model = described(*replies, **settings)
        made.append(AsyncRuntime(agent, **(using or {})))
        return made[-1], model

    yield make
    for runtime in made:
        await runtime.close()


@pytest.fixture
def start_sync(described: Callable[..., tuple[Agent, Model]]) -> Iterator[Callable[..., tuple[Runtime, Model]]]:
    """The same for code without an event loop."""
    made: list[Runtime] = []

    def make(*replies: str, using: dict[str, Any] | None = None, **settings: Any) -> tuple[Runtime, Model]:  # noqa: ANN401 - whatever an agent takes
        agent, model = described(*replies, **settings)
        made.append(Runtime(agent, **({"quiet": True} | (using or {}))))
        return made[-1], model

    yield make
    for runtime in made:
        runtime.close()
