"""Decide on tool calls by rules for tools, paths and commands."""
