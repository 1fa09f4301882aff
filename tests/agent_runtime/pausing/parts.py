"""What tests of paused runs share."""

from __future__ import annotations

from pathlib import Path

from agent_runtime import AsyncRuntime, Observed, Rule

KEY = b"a key of sixteen bytes or more"
DONE = "```completion\nDone.\n```\n"
ASKS = (Rule(decision="ask", tool="execute", reason="commands need a person"),)


def shown(runtime: AsyncRuntime) -> str:
    """All that the session's steps have shown the model."""
    return "\n".join(event.text for event in runtime.session.events if isinstance(event, Observed))


def runs(place: Path) -> int:
    """How often the command was run that the tests wait with."""
    path = place / "runs.txt"
    return path.read_text().count("run") if path.exists() else 0
