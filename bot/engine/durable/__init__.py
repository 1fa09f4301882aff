"""The engine for one machine or many: jobs in SQLite or PostgreSQL, run by DBOS (docs/decisions/0064)."""
