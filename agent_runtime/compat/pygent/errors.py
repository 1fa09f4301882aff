"""Pygent's errors."""

from agent_runtime.core.errors import AgentError


class PygentError(AgentError):
    """Base of the errors that Pygent names."""


class APIError(PygentError):
    """The model service failed, and trying again did not help."""
