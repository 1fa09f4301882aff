"""Personas, as whom agents work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Persona:
    """A name, and what stands behind it as one sentence."""

    name: str
    description: str = ""
