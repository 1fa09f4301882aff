"""The control block's interpreter: a worker process that holds no host objects."""

from agent_runtime.interpreter.interpreter import Interpreter, require_readable
from agent_runtime.interpreter.source import InterpreterLimits, InterpreterState, Suspended

__all__ = [
    "Interpreter",
    "InterpreterLimits",
    "InterpreterState",
    "Suspended",
    "require_readable",
]
