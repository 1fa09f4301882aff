"""Sandboxes for programs, and their network."""
