"""55. Nothing that a control block does reaches the host, and only plain data crosses to a tool."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_monty import AsyncSnapshot

from agent_runtime.core.errors import ControlError, FormatError, LimitError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter import interpreter as interpreter_module
from agent_runtime.interpreter.interpreter import Interpreter, InterpreterWorker
from tests.security.control_attacks import ATTACKS, CONTAINED, HARMLESS, NOT_PLAIN, unique

STUBS = "def read_file(path: str) -> str: ...\ndef anything(*values: Any, **more: Any) -> Any: ..."
SECRET = "hunter2-of-the-host"


class Desk:
    """Records every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Plain, ...], dict[str, Plain]]] = []
        self.printed = ""

    async def call(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        self.calls.append((tool, args, kwargs))
        return args[0] if args else None

    def show(self, text: str) -> None:
        self.printed += text


def is_plain(value: object) -> bool:
    if type(value) in {list, tuple}:
        return all(map(is_plain, value))  # type: ignore[call-overload] # one of the two, by exact type
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    return value is None or type(value) in {bool, int, float, str}


def test_there_are_more_than_a_hundred_and_none_twice() -> None:
    assert len(ATTACKS) + len(NOT_PLAIN) > 100
    assert unique()


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_fails_also_where_the_type_checker_does_not_see_it(
    monkeypatch: pytest.MonkeyPatch, attack: str, *, checked: bool
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    interpreter = Interpreter(tools=["read_file", "anything"], stubs=f"from typing import Any\n{STUBS}")
    desk = Desk()
    if not checked:
        await interpreter.run("pass", call=desk.call, show=desk.show)
        monkeypatch.setattr(interpreter_module, "start_block", _start_unseen)
    try:
        with pytest.raises((ControlError, FormatError, LimitError)):
            await interpreter.run(attack, call=desk.call, show=desk.show)
    finally:
        await interpreter.close()
    assert SECRET not in desk.printed
    assert "root:" not in desk.printed
    assert all(is_plain(list(args)) and is_plain(kwargs) for _, args, kwargs in desk.calls)


async def _start_unseen(
    worker: InterpreterWorker,
    source: str,
    *,
    tools: object,
    missing: object,
    **rest: Any,  # noqa: ANN401 - passed on
) -> AsyncSnapshot:
    """Start a block without the type checker."""
    return await worker.feed(source, type_check=False, **rest)


@pytest.mark.parametrize("attack", CONTAINED)
async def test_contained_blocks_see_nothing_of_the_host(monkeypatch: pytest.MonkeyPatch, attack: str) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    interpreter, desk = (
        Interpreter(tools=["read_file", "anything"], stubs=f"from typing import Any\n{STUBS}"),
        Desk(),
    )
    try:
        with contextlib.suppress(ControlError, FormatError):
            await interpreter.run(attack, call=desk.call, show=desk.show)
    finally:
        await interpreter.close()
    for host in (SECRET, str(Path.cwd()), str(Path.home()), sys.executable, sys.version):
        assert host not in desk.printed


@pytest.mark.parametrize("attack", NOT_PLAIN)
async def test_invalid_or_oversized_data_never_reaches_a_tool(attack: str) -> None:
    interpreter, desk = Interpreter(tools=["anything"], stubs=f"from typing import Any\n{STUBS}"), Desk()
    try:
        with pytest.raises(ControlError, match="TypeError: anything: "):
            await interpreter.run(attack, call=desk.call, show=desk.show)
    finally:
        await interpreter.close()
    assert desk.calls == []


@pytest.mark.parametrize(("source", "printed"), HARMLESS)
async def test_harmless_lookalikes_of_attacks_work(source: str, printed: str) -> None:
    interpreter, desk = Interpreter(tools=["anything"], stubs=f"from typing import Any\n{STUBS}"), Desk()
    try:
        await interpreter.run(source, call=desk.call, show=desk.show)
    finally:
        await interpreter.close()
    assert desk.printed == f"{printed}\n"


async def test_a_tool_that_the_block_shadows_stays_what_it_is_for_the_policy() -> None:
    interpreter, desk = Interpreter(tools=["read_file"], stubs="def read_file(path: str) -> str: ..."), Desk()
    try:
        await interpreter.run(
            "def read_file(path):\n    return 'mine'\nprint(read_file('x'))", call=desk.call, show=desk.show
        )
    finally:
        await interpreter.close()
    assert (desk.printed, desk.calls) == ("mine\n", [])
