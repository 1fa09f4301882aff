"""The control block's interpreter: a worker process that holds no host objects."""

from agent_runtime.interpreter.monty import CallTool, Interpreter, InterpreterLimits

__all__ = ["CallTool", "Interpreter", "InterpreterLimits"]
