"""Statements for any number of rows: each database prepares one once, and gets the rows as one value, in JSON.

SQLAlchemy and DBOS take about a millisecond of processor time to store a job and its workflow by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from dbos import DBOSClient, EnqueueOptions
from pydantic_core import to_json
from sqlalchemy.engine import Connection

_STATUS_COLUMNS = (
    "workflow_uuid", "status", "name", "queue_name", "queue_partition_key", "priority", "recovery_attempts",
    "serialization", "delay_until_epoch_ms", "application_name", "creator_xid",
)  # fmt: skip
_INPUT_COLUMNS = ("workflow_uuid", "inputs")

_TRY_LOCKS = """
SELECT pg_try_advisory_xact_lock(hashtextextended(name, 0)) FROM json_array_elements_text(CAST(%s AS json)) AS name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A workflow that is to run; see `Transaction.enqueue`."""

    workflow: str
    id: str
    queue: str
    partition: str | None
    delay: float
    args: tuple[str | int, ...]

    @property
    def options(self) -> EnqueueOptions:
        """In the form that DBOS takes."""
        options = EnqueueOptions(workflow_name=self.workflow, queue_name=self.queue, workflow_id=self.id)
        if self.partition is not None:
            options["queue_partition_key"] = self.partition
        if self.delay > 0:
            options["delay_seconds"] = self.delay
        return options


def try_locks(rows: Connection, names: Sequence[str]) -> list[bool]:
    """Take the locks that nobody else has; for each name whether it is one of them. See `Transaction.lock`."""
    if rows.dialect.name != "postgresql":
        return [True] * len(names)
    return list(rows.exec_driver_sql(_TRY_LOCKS, (to_json(names).decode(),)).scalars())


def put(
    rows: Connection,
    table: str,
    values: Sequence[Mapping[str, object]],
    computed: tuple[tuple[str, str], ...] = (),
    more: str = "",
) -> sa.CursorResult[Any]:
    """Store rows, except those that are known.

    Args:
        rows: the connection, in a transaction.
        table: where.
        values: at least one row, all with the same columns.
        computed: further columns and their expressions, in which `new` is the row.
        more: the end of the statement.
    """
    statement = _putting(rows.dialect.name, table, tuple(values[0]), computed)
    return rows.exec_driver_sql(statement + more, (to_json(values).decode(),))


@cache
def _putting(dialect: str, table: str, columns: tuple[str, ...], computed: tuple[tuple[str, str], ...]) -> str:
    if dialect == "postgresql":
        rows = f"json_populate_recordset(NULL::{table}, CAST(%s AS json))"
    else:
        fields = ", ".join(f"json_extract(value, '$.{column}') AS {column}" for column in columns)
        rows = f"(SELECT {fields} FROM json_each(?))"  # noqa: S608 - ours
    into = ", ".join([*columns, *(column for column, _ in computed)])
    values = ", ".join([*columns, *(expression for _, expression in computed)])
    # Without WHERE, SQLite would take ON for a part of FROM.
    return f"INSERT INTO {table} ({into}) SELECT {values} FROM {rows} AS new WHERE true ON CONFLICT DO NOTHING"  # noqa: S608 - ours


def enqueue(rows: Connection, client: DBOSClient, several: Sequence[Enqueued]) -> None:
    """Have workflows run, in two statements; DBOS itself makes their rows, and would take two for each."""
    if not several:
        return
    schema = "dbos." if rows.dialect.name == "postgresql" else ""
    made = [client._build_enqueue_status(each.options, *each.args)[1] for each in several]  # noqa: SLF001 - no other way in 3.4
    statuses = [{**each, "recovery_attempts": 0, "creator_xid": str(uuid4())} for each in made]
    for table, columns in (("workflow_status", _STATUS_COLUMNS), ("workflow_input", _INPUT_COLUMNS)):
        put(rows, f"{schema}{table}", [{column: each[column] for column in columns} for each in statuses])
