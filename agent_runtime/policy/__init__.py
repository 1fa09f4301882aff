"""Decide what a call may do: rules for tools, paths and the commands that bash would really run."""
