"""Hostile repositories against the whole service; `make soak`."""
