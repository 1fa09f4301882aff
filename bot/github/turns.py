"""How soon the client writes: for what is urgent, and for what can wait."""

from __future__ import annotations

from bot.github.pace import Urgency
from bot.github.part import ClientPart


class Turns(ClientPart):
    """The client's place in the line of those who write for the same installation."""

    def hurry(self, urgency: Urgency) -> None:
        """Be at least this urgent from now on."""
        self._connection.urgency = min(self._connection.urgency, urgency)

    @property
    def waiting(self) -> int:
        """How many writes of the installation wait for their turn."""
        return self._connection.session.pace.waiting

    async def lull(self) -> None:
        """Wait until nobody else has anything to write."""
        await self._connection.session.pace.lull()

    @property
    def spread(self) -> float:
        """How many times rarer than usual requests that can wait should be, for the hour's budget to last."""
        return self._connection.session.limits.spread
