"""Run the migrations in the caller's transaction."""

from __future__ import annotations

from alembic import context

from bot.queue.store import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
