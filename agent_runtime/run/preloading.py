"""Import what a run needs, for a process whose event loop must not stop for it later.

`import agent_runtime` leaves out what takes long and what not every program needs. The first run of a process then
imports it, which holds the event loop for up to a second: too long for a server that answers others meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

_EVERY_RUN = (
    "agent_runtime.agent.agent_file",
    "agent_runtime.run.run",
    "agent_runtime.run.runtime",
    "agent_runtime.sandbox.resident",
    "agent_runtime.terminals.terminal",
    "pydantic_monty",
    "re2",
    "tree_sitter",
    "tree_sitter_bash",
)
# The clients import their resources when these are used first.
_BY_PROVIDER: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("anthropic.resources.messages.messages",),
    "openai": ("openai.resources.chat.completions.completions", "openai.resources.responses.responses"),
    "alibaba": ("openai.resources.chat.completions.completions",),
    "azure": ("openai.resources.chat.completions.completions",),
    "bedrock": ("anthropic.resources.messages.messages", "boto3"),
    "llm": ("llm",),
    "vertex": ("anthropic.resources.messages.messages", "google.auth"),
}
_BY_CLIENT = ("anyio", "anyio._core._sockets", "httpcore2", "httpx2", "truststore")


def preload(provider: str) -> None:
    """Import what a run with a model of this provider imports; a name that is not known adds nothing."""
    clients = _BY_CLIENT if provider in _BY_PROVIDER else ()
    for name in (*_EVERY_RUN, *clients, *_BY_PROVIDER.get(provider, ())):
        import_module(name)
