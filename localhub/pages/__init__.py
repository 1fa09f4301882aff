"""Pages for people: repositories, threads, differences, checks, and a box to comment in.

There is no sign-in: anyone who reaches the port acts as any account, so the hub listens on the loopback by default. A
foreign page cannot post: the browser names the origin of a form, and only the hub's own is taken.
"""

from __future__ import annotations

from localhub.pages.application import Pages

__all__ = ["Pages"]
