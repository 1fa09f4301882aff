"""Commands that people type: the terminal chat, `codepilot doctor`, registering the App, the MCP server."""
