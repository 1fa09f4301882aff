"""Pages for people: repositories, threads, differences, checks, and a box to comment in.

There are no passwords: anyone who reaches the port can sign in as any person, so the hub listens on the loopback by
default. A page of a stranger in the same browser can send nothing: a form must come from the hub's own origin, with a
token that only the hub's pages hold, and requests for other host names are refused.
"""

from __future__ import annotations

from localhub.pages.application import Pages

__all__ = ["Pages"]
