"""The control block's interpreter: a worker process that holds no host objects."""

from agent_runtime.interpreter.limits import InterpreterLimits
from agent_runtime.interpreter.monty import Interpreter, require_readable
from agent_runtime.interpreter.suspension import InterpreterState, Suspended

__all__ = [
    "Interpreter",
    "InterpreterLimits",
    "InterpreterState",
    "Suspended",
    "require_readable",
]
