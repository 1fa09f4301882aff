"""Read paths and commands for rules. Pure."""
