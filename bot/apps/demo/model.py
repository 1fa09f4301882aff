"""The scripted models of the demo: its own job must fit the script; later ones are told where they do not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import chain, repeat

from typing_extensions import override

from agent_runtime import Chunk, Provider, Request, ScriptedProvider, ScriptError

KEYS = "ANTHROPIC_API_KEY or OPENAI_API_KEY"
_UNKNOWN = f"""\
```completion
This demo has no key of a model service, so its model only knows the replies of its script, and none of them fits \
here. Everything else is real. Start the demo with {KEYS} to have a real model answer.
```
"""


class _PatientScript(ScriptedProvider):
    """Ends a run that leaves the script with a completion that says so."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        try:
            async with aclosing(super().reply(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ScriptError:  # raised before the first chunk
            async with aclosing(ScriptedProvider([_UNKNOWN]).reply(request)) as chunks:
                async for chunk in chunks:
                    yield chunk


def scripted(script: str, *, chunk_chars: int, delay: float) -> Callable[[], Provider]:
    """What makes the model of each run, of which the first one is the demo's own.

    Args:
        script: the file with the replies.
        chunk_chars: see `ScriptedProvider`.
        delay: see `ScriptedProvider`.
    """
    kinds = chain([ScriptedProvider], repeat(_PatientScript))
    return lambda: next(kinds).from_file(script, chunk_chars=chunk_chars, delay=delay)
