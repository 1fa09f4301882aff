"""Alembic migrations of the engine's tables."""
