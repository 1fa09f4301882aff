"""Migration steps."""
