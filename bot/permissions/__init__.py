"""Commands to grants and tasks."""
