"""Clients of MCP servers (https://modelcontextprotocol.io), whose tools an agent may call."""
