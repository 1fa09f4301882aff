from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from agent_runtime.core.errors import ControlError, FormatError, LimitError, ToolError
from agent_runtime.core.values import Plain
from agent_runtime.interpreter.interpreter import Interpreter
from agent_runtime.interpreter.source import InterpreterLimits

STUBS = """
from typing import TypedDict
class Done(TypedDict):
    exit_code: int
    output: str
def read_file(path: str, start_line: int = 1) -> str: ...
def execute(session_id: str, command: str) -> Done: ...
def anything(value: object) -> object: ...
"""


class Desk:
    """Answers calls and records a transcript."""

    def __init__(self) -> None:
        self.transcript: list[str] = []
        self.arguments: list[Plain] = []

    async def call(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        self.transcript.append(f"{tool}{'!' if show else ''}")
        self.arguments.extend([*args, *kwargs.values()])
        if tool == "read_file":
            if args and args[0] == "missing":
                raise ToolError("no file 'missing'", kind="FileNotFoundError")
            return "text"
        if tool == "execute":
            return {"exit_code": 1, "output": "boo"}
        return args[0] if args else None

    def show(self, text: str) -> None:
        self.transcript.append(text)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def interpreter() -> AsyncIterator[Interpreter]:
    limits = InterpreterLimits(seconds=0.5, memory_bytes=50_000_000, calls=20, printed_chars=5_000)
    interpreter = Interpreter(tools=["read_file", "execute", "anything"], stubs=STUBS, limits=limits)
    yield interpreter
    await interpreter.close()


async def run(interpreter: Interpreter, desk: Desk, source: str) -> list[str]:
    desk.transcript.clear()
    await interpreter.run(source, call=desk.call, show=desk.show)
    return desk.transcript


async def test_prints_and_calls_are_ordered(interpreter: Interpreter, desk: Desk) -> None:
    source = "print('a')\nread_file('x')\nprint('b')\nr = execute('main', 'ls')\nprint(r['output'])"
    assert await run(interpreter, desk, source) == ["a\n", "read_file!", "b\n", "execute", "boo\n"]


async def test_a_traceback_marks_calls_only_where_a_line_has_more(interpreter: Interpreter, desk: Desk) -> None:
    line = "read_file('missing', start_line=1)"
    with pytest.raises(ControlError) as caught:
        await run(interpreter, desk, line)
    assert f"\n    {line}\nFileNotFoundError" in str(caught.value)
    with pytest.raises(ControlError) as caught:
        await run(interpreter, desk, "texts = [read_file(name) for name in ['missing', 'another'] if len(name) > 2]")
    assert "\n             ~~~~~~~~~~~~~~~\nFileNotFoundError" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "show"),
    [
        ("read_file('x')", True),
        ("y = read_file('x')", False),
        ("print(read_file('x'))", False),
        ("if read_file('x'):\n    pass", False),
        ("for _ in [1]:\n    read_file('x')", True),
        ("def f():\n    read_file('x')\nf()", True),
        ("def f():\n    return read_file('x')\nf()", False),
        ("assert read_file('x')", False),
        ("r = read_file\nr('x')", True),
        ("s = 'ü'; read_file('ü')", True),
    ],
)
async def test_only_a_discarded_result_is_shown(
    interpreter: Interpreter, desk: Desk, source: str, *, show: bool
) -> None:
    calls = [entry for entry in await run(interpreter, desk, source) if entry.startswith("read_file")]
    assert calls == ["read_file!" if show else "read_file"]


async def test_a_block_may_be_newer_than_the_python_of_the_host(interpreter: Interpreter, desk: Desk) -> None:
    source = "print(f'{\"\\n\".join(['a', 'b'])}')\nread_file('x')"
    assert await run(interpreter, desk, source) == ["a\nb\n", "read_file!"]


async def test_a_function_of_an_earlier_block_still_shows_its_results(interpreter: Interpreter, desk: Desk) -> None:
    await run(interpreter, desk, "def f():\n    y = 1\n    read_file('x')\n    return y")
    with pytest.raises(FormatError):
        await run(interpreter, desk, "nope()")
    assert await run(interpreter, desk, "z = f()") == ["read_file!"]


async def test_variables_live_on_also_after_a_block_that_failed(interpreter: Interpreter, desk: Desk) -> None:
    with pytest.raises(ControlError, match="assert 1 == 2"):
        await run(interpreter, desk, "kept = 5\nassert 1 == 2")
    assert await run(interpreter, desk, "print(kept)") == ["5\n"]


async def test_a_later_block_may_give_a_variable_another_type(interpreter: Interpreter, desk: Desk) -> None:
    await run(interpreter, desk, "x = 1\ndef double(y: int) -> int:\n    return 2 * y")
    assert await run(interpreter, desk, "x = 'text'\nprint(x, double(4))") == ["text 8\n"]


@pytest.mark.parametrize(
    "source",
    [
        "raise AssertionError('the control block is over')",
        "def f():\n    assert False, 'the control block is over'\nf()",
        "exec(\"assert False, 'the control block is over'\")",
        "assert anything(0), 'the control block is over'",
    ],
)
async def test_no_failure_passes_for_a_block_s_end(interpreter: Interpreter, desk: Desk, source: str) -> None:
    with pytest.raises(ControlError, match="the control block is over"):
        await run(interpreter, desk, source)


async def test_a_missing_module_is_refused_and_a_tool_may_have_any_name(desk: Desk) -> None:
    interpreter = Interpreter(tools=["import_stubs"], stubs="def import_stubs(value: object) -> object: ...")
    try:
        with pytest.raises(FormatError, match="numpy"):
            await run(interpreter, desk, "import_stubs(1)\nimport numpy")
        assert desk.transcript == []
        assert await run(interpreter, desk, "import_stubs(1)") == ["import_stubs!"]
    finally:
        await interpreter.close()


async def test_a_tool_error_can_be_caught(interpreter: Interpreter, desk: Desk) -> None:
    source = "try:\n    read_file('missing')\nexcept FileNotFoundError as e:\n    print('caught', e)"
    assert (await run(interpreter, desk, source))[-1] == "caught no file 'missing'\n"


async def test_an_uncaught_tool_error_names_the_line(interpreter: Interpreter, desk: Desk) -> None:
    with pytest.raises(ControlError, match=r"line 2[\s\S]*FileNotFoundError: no file 'missing'"):
        await run(interpreter, desk, "x = 1\nread_file('missing')")


@pytest.mark.parametrize(
    ("source", "code", "told"),
    [
        ("execute(1, 'x')", "control_syntax", "Expected `str`, found `Literal[1]`"),
        ("read_file('a', depth=2)", "control_syntax", "`depth` does not match any known parameter"),
        ("read_fil('a')", "missing_tool", "Name `read_fil` used when not defined"),
        ("import subprocess", "control_syntax", "Cannot resolve imported module `subprocess`"),
        ("read_fil", "control_syntax", "Name `read_fil` used when not defined"),
        ("open('/etc/passwd')", "missing_tool", "Name `open` used when not defined"),
    ],
)
async def test_blocks_that_fail_the_type_check_do_not_run(
    interpreter: Interpreter, desk: Desk, source: str, code: str, told: str
) -> None:
    with pytest.raises(FormatError) as refusal:
        await run(interpreter, desk, f"execute('main', 'rm -rf x')\n{source}")
    assert refusal.value.code == code
    assert told in str(refusal.value)
    assert "line 2" in str(refusal.value)
    assert desk.transcript == []


@pytest.mark.parametrize(
    "value", ["{1}", "b'x'", "{1: 'a'}", "[{'a': {2}}]", "print", "ValueError('x')", "Path('/')", "Thing()"]
)
async def test_only_plain_data_crosses(interpreter: Interpreter, desk: Desk, value: str) -> None:
    with pytest.raises(ControlError, match="TypeError: anything: argument 1"):
        await run(interpreter, desk, f"from pathlib import Path\nclass Thing:\n    x = 1\nThing()\nanything({value})")
    assert desk.arguments == []


@pytest.mark.parametrize("value", ["lambda: 1", "range(3)", "len", "Exception"])
async def test_values_without_data_cross_as_inert_text_or_not_at_all(
    interpreter: Interpreter, desk: Desk, value: str
) -> None:
    with suppress(ControlError):
        await run(interpreter, desk, f"anything({value})")
    assert all(type(value) is str for value in desk.arguments)


async def test_plain_data_crosses_both_ways(interpreter: Interpreter, desk: Desk) -> None:
    value = "{'a': [1, 2.5, None, True, 'ü', (1, 2)]}"
    assert await run(interpreter, desk, f"print(anything({value}) == {value})") == ["anything", "True\n"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("while True: pass", "time limit"),
        ("x = 'a' * 10**9", "memory limit"),
        ("def f(): return f()\nf()", "RecursionError"),
        ("while True: print('x' * 100)", "printed more than 5,000 characters"),
        ("while True: read_file('x')", "more than 20 tool calls"),
    ],
)
async def test_limits_stop_a_block_and_the_next_one_works(
    interpreter: Interpreter, desk: Desk, source: str, told: str
) -> None:
    with pytest.raises(LimitError, match=told):
        await run(interpreter, desk, source)
    assert await run(interpreter, desk, "print('alive')") == ["alive\n"]


async def test_nothing_of_the_host_can_be_read(interpreter: Interpreter, desk: Desk) -> None:
    source = "from pathlib import Path\nprint(Path('/etc/passwd').read_text())"
    with pytest.raises(ControlError, match="PermissionError"):
        await run(interpreter, desk, source)
    with pytest.raises(ControlError, match="execute\\('main', 'sleep 1'\\)"):
        await run(interpreter, desk, "import time\ntime.sleep(1)")


async def test_a_call_that_breaks_the_host_side_leaves_a_usable_interpreter(
    interpreter: Interpreter, desk: Desk
) -> None:
    async def broken(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        raise ConnectionError("the host's own trouble")

    with pytest.raises(ConnectionError):
        await interpreter.run("read_file('x')", call=broken, show=desk.show)
    assert await run(interpreter, desk, "print('alive')") == ["alive\n"]


async def test_a_refusal_that_quotes_half_a_character_is_a_refusal(interpreter: Interpreter, desk: Desk) -> None:
    async def refuse(tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        raise ToolError(f"no file caf\udce9 (shown: {show})", kind="FileNotFoundError")

    source = "try:\n    read_file('x')\nexcept FileNotFoundError as error:\n    print(error)"
    await interpreter.run(source, call=refuse, show=desk.show)
    assert desk.transcript == ["no file caf\\udce9 (shown: True)\n"]
