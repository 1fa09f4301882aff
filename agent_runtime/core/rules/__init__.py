"""How rules read paths and commands. Pure."""
