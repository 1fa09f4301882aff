"""Check a control block with the type checker before any of it runs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from agent_runtime.core.errors import FormatError
from agent_runtime.interpreter.diagnostics import parse_findings, render
from agent_runtime.interpreter.source import Span
from agent_runtime.interpreter.worker import InterpreterWorker

if TYPE_CHECKING:  # the worker library takes a tenth of a second to import; it is loaded by the first run
    from pydantic_monty import AsyncSnapshot, MontyError

# The checker's idea of the builtins lacks these, though the interpreter has them.
_EXCEPTIONS = {
    "FileNotFoundError": "OSError",
    "FileExistsError": "OSError",
    "IsADirectoryError": "OSError",
    "NotADirectoryError": "OSError",
    "PermissionError": "OSError",
    "ImportError": "Exception",
    "ModuleNotFoundError": "ImportError",
    "UnboundLocalError": "NameError",
    "UnicodeDecodeError": "ValueError",
    "UnicodeEncodeError": "ValueError",
}
_FUNCTIONS = ("filter", "format", "getattr", "hasattr", "map", "setattr")
_BUILTINS = "\n".join(
    [
        "from typing import Any",
        *(f"class {name}({base}): ..." for name, base in _EXCEPTIONS.items()),
        *(f"def {name}(*args: Any) -> Any: ..." for name in _FUNCTIONS),
    ]
)
# No name is in it that a block could give another meaning. A block that holds this very line ends there.
_END = "assert False, 'the control block is over'"


def declarations(stubs: str) -> str:
    """All that the checker must know besides the language: the tools, by their `stubs`, and what it lacks."""
    return f"{_BUILTINS}\n{stubs}"


async def start(
    worker: InterpreterWorker,
    source: str,
    *,
    tools: AbstractSet[str],
    discarded: frozenset[Span],
    printed: Callable[[str, str], None],
) -> AsyncSnapshot:
    """Hold a block against the type checker by itself, and start it; both in one turn of the worker.

    The checker takes the variables of blocks that it saw run to their end for declared, so that no later block could
    give one of them a value of another type. So every block fails behind its last line, see `is_over`. Names that
    control code has bound at any time are not unknown.

    Args:
        worker: has bound the names of this block already.
        source: the control code.
        tools: names that it may call.
        discarded: the spans of its calls whose value is thrown away.
        printed: gets what it prints.

    Raises:
        FormatError: it does not fit the tools or the interpreter; none of it ran.
        MontyError: it is over, or failed.
    """
    from pydantic_monty import AsyncFunctionSnapshot, MontyTypingError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        snapshot = await worker.feed(f"{source}\n{_END}", discarded=discarded, printed=printed, checked=True)
        # The type checker asks the host about imported modules; it never has any to offer.
        while (
            isinstance(snapshot, AsyncFunctionSnapshot)
            and snapshot.is_os_function
            and snapshot.function_name == "import_stubs"
        ):
            snapshot = await snapshot.resume_not_handled()
    except MontyTypingError as error:
        worker.blocks -= 1  # it has started none, and the next one gets the number
        counting = [each for each in parse_findings(error.display()) if each.counts(tools=tools, bound=worker.bound)]
        if counting:
            raise FormatError(
                "control_syntax",
                "The control block was not run: it does not fit the tools or the interpreter.\n"
                + render(counting, source),
            ) from error
    else:
        return snapshot
    return await worker.feed(source, discarded=discarded, printed=printed, checked=False)


def is_over(error: MontyError) -> bool:
    """Whether a block that `start` started did not fail, but came to its end."""
    from pydantic_monty import MontyRuntimeError  # noqa: PLC0415 - see TYPE_CHECKING above

    if not isinstance(error, MontyRuntimeError):
        return False
    frames = error.traceback()
    return len(frames) == 1 and frames[0].source_line == _END
