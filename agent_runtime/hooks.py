"""Who gets told what happens in a run."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent_runtime.events import Event

Listener = Callable[[Event], None]

log = logging.getLogger(__name__)


class Hooks:
    """Listeners, told of every event in the order in which they were added."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = list(listeners)

    def add(self, listener: Listener) -> None:
        """Tell `listener` of everything from now on."""
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        """Tell everyone; a listener that raises is reported in the log and never breaks the run."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # whatever a stranger's listener does, the run goes on
                log.exception("a listener failed on %s", type(event).__name__)
