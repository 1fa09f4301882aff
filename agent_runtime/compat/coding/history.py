"""Keep responses in the database of the `llm` package, each once it is complete, at a cost that does not grow."""

from __future__ import annotations

from collections.abc import Sequence

import llm
from llm.logs import LogStore
from llm.parts import Message
from sqlite_utils import Database
from typing_extensions import override

_NAME_CHARS = 100


class History(LogStore):
    """The log of one conversation.

    `LogStore` hashes and looks up the whole conversation for every response. This one remembers which messages it has
    stored: messages that are the same objects are not looked at again.
    """

    def __init__(self, db: Database) -> None:
        """Bring the database's tables up to date."""
        super().__init__(db)  # type: ignore[no-untyped-call]  # llm leaves it untyped
        self._stored: dict[tuple[str | None, int], tuple[Message, str]] = {}

    def begin(self, conversation_id: str, prompt: str) -> None:
        """Name a conversation, if it is new, after its first prompt."""
        name = " ".join(prompt.split())
        self.ensure_thread(conversation_id, name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…")

    def record(self, response: llm.Response) -> None:
        """Keep a response; nothing of it is kept if that fails."""
        try:
            self.log(response)
        except BaseException:
            self._stored.clear()  # what this transaction had stored is gone
            raise

    @override
    def ensure_chain(
        self, messages: Sequence[Message], parent: str | None = None, fragments: Sequence[str] | None = None
    ) -> str | None:
        """Store messages as a chain; see `LogStore.ensure_chain`."""
        tip = parent
        for message in messages:
            known = self._stored.get((tip, id(message)))
            if known is None:
                stored = super().ensure_chain([message], tip, fragments)
                known = self._stored[tip, id(message)] = (message, str(stored))
            tip = known[1]
        return tip
