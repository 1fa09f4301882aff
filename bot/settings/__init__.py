"""Operator settings, from the environment and a file."""
