"""Command-line interface: terminal chat, `codepilot doctor`, registration of the App, MCP server."""
