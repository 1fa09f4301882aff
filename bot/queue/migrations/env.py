"""Alembic's entry point: run the migrations in the transaction that the caller has begun."""

from __future__ import annotations

from alembic import context

from bot.queue.store import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
