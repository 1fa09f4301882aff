"""A strong model's programs run as in CPython; others are refused before they run."""

from __future__ import annotations

import builtins
import contextlib
import io
import re
from collections.abc import AsyncIterator

import pytest

from agent_runtime.core.errors import ControlError, FormatError, Suspend, ToolError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.interpreter.source import Suspended
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools
from agent_runtime.tools.tool import Registry
from agent_runtime.workspace.files import Workspace
from tests.agent_runtime.interpreter.control_blocks import LEGAL, REFUSED, Answers

TOOL_CALL = re.compile(r"\b(read_file|find|execute|read_output)\b")


class Desk:
    """Answers calls by the functions that CPython calls, and records them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.printed = ""
        self._may_call = False

    async def call(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        self.calls.append(tool)
        try:
            answer: Plain = getattr(Answers(), tool)(*args, **kwargs)
        except (FileNotFoundError, RuntimeError) as error:
            raise ToolError(str(error), kind=type(error).__name__) from error  # type: ignore[arg-type] # both are kinds
        return answer

    async def freeze(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        self._may_call = True
        raise Suspend

    async def call_once(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        if not self._may_call:
            return await self.freeze(tool, args, kwargs, show=show)
        self._may_call = False
        return await self.call(tool, args, kwargs, show=show)

    def show(self, text: str) -> None:
        self.printed += text


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """Declarations of the real tools."""
    registry = Registry()
    with Workspace(tmp_path_factory.mktemp("workspace")) as workspace:
        for family in (FileTools(workspace), SearchTools(workspace)):
            registry.add_family(family)
    registry.add_family(ShellTools.__new__(ShellTools))
    return registry


@pytest.fixture
async def interpreter(registry: Registry) -> AsyncIterator[Interpreter]:
    interpreter = Interpreter(tools=registry.names, stubs=registry.stubs)
    yield interpreter
    await interpreter.close()


def by_cpython(source: str) -> str:
    tools = {name: getattr(Answers(), name) for name in ("read_file", "find", "execute", "read_output")}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<block>", "exec"), {"__builtins__": builtins, "__name__": "__main__"} | tools)  # noqa: S102 - our own table
    return printed.getvalue()


@pytest.mark.parametrize("name", LEGAL)
async def test_a_legal_program_prints_what_cpython_prints(interpreter: Interpreter, name: str) -> None:
    desk = Desk()
    await interpreter.run(LEGAL[name], call=desk.call, show=desk.show)
    assert desk.printed == by_cpython(LEGAL[name])


@pytest.mark.parametrize("name", [name for name in LEGAL if TOOL_CALL.search(LEGAL[name])])
async def test_it_prints_the_same_when_suspended_at_all_calls(registry: Registry, name: str) -> None:
    desk, state = Desk(), None
    while True:
        leg = Interpreter(tools=registry.names, stubs=registry.stubs)
        try:
            if state is None:
                await leg.run(LEGAL[name], call=desk.freeze, show=desk.show)
            else:
                await leg.resume(state, call=desk.call_once, show=desk.show)
            break
        except Suspended as suspended:
            state = suspended.state
        finally:
            await leg.close()
    assert desk.printed == by_cpython(LEGAL[name])


async def test_all_programs_run_in_sequence_in_one_session(interpreter: Interpreter) -> None:
    # Blocks that rebind builtins or shadow what later ones need are left to the test above.
    for name in LEGAL:
        if "named like a builtin" in name:
            continue
        desk = Desk()
        await interpreter.run(LEGAL[name], call=desk.call, show=desk.show)
        assert desk.printed == by_cpython(LEGAL[name]), name


@pytest.mark.parametrize("name", REFUSED)
async def test_programs_that_cannot_work_are_refused_before_they_run(interpreter: Interpreter, name: str) -> None:
    source, told = REFUSED[name]
    desk = Desk()
    with pytest.raises((FormatError, ControlError)) as refusal:
        await interpreter.run(f"execute('main', 'first')\n{source}", call=desk.call, show=desk.show)
    assert told in str(refusal.value)
    assert desk.calls == []
    await interpreter.run("print('alive')", call=desk.call, show=desk.show)
    assert desk.printed == "alive\n"


async def test_names_accepted_by_the_checker_are_known_to_later_blocks(interpreter: Interpreter) -> None:
    desk = Desk()
    doubtful = "import re\nm = re.search('a', 'abc')\nprint(m.group())\nclass Bag:\n    pass\nbag = Bag()\nbag.size = 3"
    await interpreter.run(doubtful, call=desk.call, show=desk.show)
    await interpreter.run("print(m.start(), bag.size)\nrow = find('clamp')[0]", call=desk.call, show=desk.show)
    await interpreter.run("row['seen'] = True\nprint(row['seen'])", call=desk.call, show=desk.show)
    assert desk.printed == "a\n0 3\nTrue\n"


async def test_a_tool_inside_a_sort_key_is_answered_with_advice(interpreter: Interpreter) -> None:
    desk = Desk()
    with pytest.raises(ControlError, match="collect the values in a loop first"):
        await interpreter.run("sorted(['README.md'], key=read_file)", call=desk.call, show=desk.show)


async def test_a_generator_gives_its_items_one_by_one(interpreter: Interpreter) -> None:
    desk = Desk()
    source = "g = (x * x for x in range(3))\nprint(next(g), next(g), next(g), next(g, 'end'))"
    await interpreter.run(source, call=desk.call, show=desk.show)
    assert desk.printed == "0 1 4 end\n"


async def test_foreign_line_ends_do_not_shift_discarded_calls(interpreter: Interpreter) -> None:
    flags: list[bool] = []

    async def call(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        flags.append(show)
        return ""

    source = "read_file('a')\rx = 'ü'\r\nread_file('b')\r\ny = read_file('c')"
    await interpreter.run(source, call=call, show=Desk().show)
    assert flags == [True, True, False]
