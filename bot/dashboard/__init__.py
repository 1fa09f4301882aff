"""The dashboard: read-only pages about the runs of one bot."""
