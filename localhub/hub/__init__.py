"""`LocalHub`: the whole hub as one object."""

from localhub.hub.local_hub import LocalHub

__all__ = ["LocalHub"]
