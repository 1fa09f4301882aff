"""A server made with the official package, as a program: `python notes_server.py [http PORT]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001"
    "e221bc330000000049454e44ae426082"
)

server = MCPServer("notes")


@server.tool()
def search(query: str, limit: int = 3) -> list[str]:
    """Find notes that hold a word."""
    return [f"{query} {number}" for number in range(limit)]


@server.tool()
def look() -> str:
    """Say what this server sees."""
    return f"{os.environ.get('NOTES_KEY')} {Path.cwd()} {sorted(Path('/workspace').iterdir())} {os.getppid()}"


@server.tool()
def paint() -> Image:
    """Give a picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
