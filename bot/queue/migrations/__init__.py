"""The versions of the engine's tables, as Alembic keeps them."""
