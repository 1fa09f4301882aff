"""The agent at a terminal: `codepilot run` and `codepilot chat`."""
