"""Rules by which a job is found that may have killed its workers.

A worker that dies takes all its jobs along, and nobody can tell which of them was to blame. So all become suspects, and
from then on a worker runs one suspect at a time. A suspect that is running when a worker dies again is charged
with that death, unless a worker died lately that was not running it: then something else kills workers, and for each of
these deaths one is excused. One that gets on, by a step of its agent or by a fact that was not there before, is a
suspect no more.
"""

from __future__ import annotations

ALONE_SECONDS = 60.0
"""For how long a suspect keeps other suspects from its worker: a run that has not got on by then may just be slow."""

MOST_DEATHS = 3
"""How many deaths a job is charged with before it is not begun again, but given up."""

MOST_EXCUSED = 4
"""How many deaths a job is not charged with since workers died without it, too: somebody may kill them on purpose."""

EXCUSING_SECONDS = 3600.0
"""For how long the death of a worker excuses those of others."""

HOPELESS_DEATHS = MOST_DEATHS + 100
"""After so many, days later, even the attempts to give a job up end."""

# By deaths that a job is charged with. Three restarts of the bot in one bad minute fail no job.
_PAUSES = (0.0, 0.0, 60.0, 0.0, 60.0, 300.0, 900.0, 3600.0)


def pause_after(deaths: int) -> float:
    """Seconds before a job is tried again that is charged with so many deaths."""
    return _PAUSES[min(deaths, len(_PAUSES) - 1)]
