"""Stores for the events of a session."""
