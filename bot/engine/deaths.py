"""Find the jobs that may have killed their workers, and the statements that keep count.

A worker that dies takes all its jobs along, and nobody can tell which of them was to blame. So all become suspects, and
from then on a worker runs one suspect at a time. A suspect that is running when a worker dies again is charged
with that death. One that gets on, by a step of its agent or by a fact that was not there before, is a suspect no more.
"""

from __future__ import annotations

import sqlite3

ALONE_SECONDS = 60.0
"""For how long a suspect keeps other suspects from its worker: a run that has not got on by then may just be slow."""

MOST_DEATHS = 3
"""How many deaths a job is charged with before it is not begun again, but given up."""

HOPELESS_DEATHS = MOST_DEATHS + 100
"""After so many, days later, even the attempts to give a job up end."""

# By deaths that a job is charged with. Whoever restarts the bot three times in a bad minute takes no job with them.
_PAUSES = (0.0, 0.0, 60.0, 0.0, 60.0, 300.0, 900.0, 3600.0)


def pause_after(deaths: int) -> float:
    """Seconds before a job is tried again that is charged with so many deaths."""
    return _PAUSES[min(deaths, len(_PAUSES) - 1)]


def charge(rows: sqlite3.Connection, job_id: str) -> int:
    """Record that a worker died while running the job; return the number of deaths that it is charged with."""
    rows.execute(
        "INSERT INTO suspects (job_id, deaths) VALUES (?, 0)"
        " ON CONFLICT (job_id) DO UPDATE SET deaths = deaths + 1, claimed_at = NULL",
        (job_id,),
    )
    return deaths_of(rows, job_id)


def deaths_of(rows: sqlite3.Connection, job_id: str) -> int:
    """How many deaths a job is charged with."""
    found = rows.execute("SELECT deaths FROM suspects WHERE job_id = ?", (job_id,)).fetchone()
    return int(found[0]) if found else 0


def claimed(rows: sqlite3.Connection, job_id: str, now: float | None) -> None:
    """Take note since when a worker has the job, or that none has it; of no interest for a job that is no suspect."""
    rows.execute("UPDATE suspects SET claimed_at = ? WHERE job_id = ?", (now, job_id))


def clear(rows: sqlite3.Connection, job_id: str) -> None:
    """A job got on, or ended."""
    rows.execute("DELETE FROM suspects WHERE job_id = ?", (job_id,))
