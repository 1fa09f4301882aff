"""Durable job queue."""
