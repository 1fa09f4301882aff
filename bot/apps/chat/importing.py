"""`codepilot import-session`: bring in conversations of CodePilot 0.9."""

from __future__ import annotations

from pathlib import Path

import click

from agent_runtime import BaseSession, create_session, import_session_file, import_session_table

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("import-session")
@click.argument("files", nargs=-1, type=_FILE)
@click.option("--from-db", metavar="URL", help="Import all rows of a database instead of files.")
@click.option("--table", default="codepilot_sessions", show_default=True, help="The table to import with --from-db.")
@click.option("--to-db", metavar="URL", help="Store the sessions in this database; default ~/.codepilot/sessions.")
@click.option("--session-dir", type=click.Path(file_okay=False, path_type=Path), help="Store the sessions here.")
@click.option("--agent", "agent_name", default="agent", show_default=True, help="The agent's name to store.")
def import_session(
    *,
    files: tuple[Path, ...],
    from_db: str | None,
    table: str,
    to_db: str | None,
    session_dir: Path | None,
    agent_name: str,
) -> None:
    """Import sessions of CodePilot 0.9.

    They come from FILES, or from a database with --from-db. A session keeps its id and its messages. A session that
    already exists is not changed. Archived texts are imported as their summaries only.
    """
    if bool(files) is (from_db is not None):
        raise click.UsageError("Name session files, or a database with --from-db.")
    if to_db is not None and session_dir is not None:
        raise click.UsageError("--to-db and --session-dir exclude each other.")

    def session_for(session_id: str) -> BaseSession:
        backend = "file" if to_db is None else "db"
        return create_session(backend, session_id, agent_name, session_dir, to_db)

    for path in files:
        _tell(import_session_file(path, session_for))
    if from_db is not None:
        for session_id in import_session_table(from_db, session_for, table=table):
            _tell(session_id)


def _tell(session_id: str) -> None:
    click.echo(f"Imported the session {session_id!r}.")
