"""A task: a trusted goal, and untrusted text quoted beside it."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.core.calls import Plain
from agent_runtime.core.images import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Text from people who may not command the agent, e.g. an issue's body.

    Attributes:
        source: where it came from, e.g. `issue #12 by @mona`.
        text: the text, already cleaned by the quote's creator.
    """

    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The trusted request, and untrusted quotes; they stay apart all the way into the prompt.

    Attributes:
        goal: what to do, in the words of someone who may ask for it.
        quotes: material to read, never instructions.
        images: material to look at, e.g. screenshots; for a provider whose model sees.
        output_schema: a JSON schema that the result must fit; `Outcome.structured_output` then holds that result. None
            for a result in words.
    """

    goal: str
    quotes: tuple[Quote, ...] = ()
    images: tuple[Image, ...] = ()
    output_schema: dict[str, Plain] | None = None
