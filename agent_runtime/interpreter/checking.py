"""A control block is held against the type checker before any of it runs."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from typing_extensions import TypeIs

from agent_runtime.errors import FormatError
from agent_runtime.interpreter.diagnostics import parse_findings, render
from agent_runtime.interpreter.worker import Worker

if TYPE_CHECKING:  # the worker library takes a tenth of a second to import; it is loaded by the first run
    from pydantic_monty import AsyncFunctionSnapshot, AsyncSnapshot

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
_NOT_THERE = "only_checked__"  # stubs are imported by `*`, which leaves out names with a leading underscore


def declarations(stubs: str) -> str:
    """All that the checker must know besides the language: the tools, by their `stubs`, and what it lacks."""
    return f"{_BUILTINS}\ndef {_NOT_THERE}() -> None: ...\n{stubs}"


async def check(worker: Worker, source: str, *, tools: AbstractSet[str]) -> None:
    """Hold a block against the type checker by itself.

    The checker would take the variables of earlier blocks for declared, so that no later block could give one of
    them a value of another type. It only remembers blocks that ran to their end: so the block is fed to it below a
    name that is not there, and once more, unchecked, to be run. Names that control code has bound at any time
    are not unknown.

    Raises:
        FormatError: it does not fit the tools or the interpreter.
    """
    from pydantic_monty import MontyCrashedError, MontyError, MontyTypingError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        snapshot: Any = await worker.session.feed_start(f"{_NOT_THERE}\n{source}")
        while _asks_for_stubs(snapshot):
            snapshot = await snapshot.resume_not_handled()
        await snapshot.resume()
    except MontyTypingError as error:
        findings = parse_findings(error.display(), above=1)
        if counting := [finding for finding in findings if finding.counts(tools=tools, bound=worker.bound)]:
            raise FormatError(
                "control_syntax",
                "The control block was not run: it does not fit the tools or the interpreter.\n"
                + render(counting, source),
            ) from error
    except MontyCrashedError:
        raise
    except MontyError:  # the name that is not there; whatever else is wrong, running it will tell
        worker.blocks += 1  # the worker numbers the blocks that it starts, and it started this one


def _asks_for_stubs(snapshot: AsyncSnapshot) -> TypeIs[AsyncFunctionSnapshot]:
    """Whether the type checker asks the host about an imported module; it never has any to offer."""
    from pydantic_monty import AsyncFunctionSnapshot  # noqa: PLC0415 - see TYPE_CHECKING above

    return isinstance(snapshot, AsyncFunctionSnapshot) and snapshot.function_name == "import_stubs"
