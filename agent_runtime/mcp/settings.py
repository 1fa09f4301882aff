"""The definition of an MCP server. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import urlsplit

from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import Rule

MAX_MESSAGE_BYTES = 6 * 1024**2
"""Room for an image of the size that models accept, as base64."""
MAX_MESSAGE_VALUES = 40_000
"""A message is parsed on the event loop, at some microseconds for each value."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def count_json_values(message: bytes) -> int:
    """Return an upper bound of the number of values in a JSON text."""
    return len(message) - len(message.translate(None, b",[{"))


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A definition of a server: a program in the agent's sandbox, or an address.

    Attributes:
        name: the prefix of its tools' names.
        env: in addition to the sandbox's variables.
        url: of a streamable HTTP server; empty for a program.
        private: whether `url` may be plain HTTP or private.
        tools: of the server, for the agent; None for all.
        allow: tools without approval.
        timeout: seconds for each call and the start.
        secrets: redacted from the output.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    private: bool = False
    tools: tuple[str, ...] | None = None
    allow: tuple[str, ...] = ()
    timeout: float = 60.0
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Validate the definition.

        Raises:
            SettingsError: the definition is invalid; the text contains no secret.
        """
        subject = f"MCP server {self.name!r}"
        if not _NAME.fullmatch(self.name) or self.name.endswith("_"):
            raise SettingsError(f"{subject}: a name has up to 30 lower-case letters, digits and underscores")
        if bool(self.command) == bool(self.url):
            raise SettingsError(f"{subject}: write either `command` or `url`")
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name) or set("\n\0") & set(value):
                raise SettingsError(f"{subject}: `env` has {name!r}, which is no variable with a value on one line")
        if self.url:
            try:
                parts = urlsplit(self.url)
                host = parts.hostname
            except ValueError:
                host = None
                parts = urlsplit("")
            if not host or parts.username or parts.fragment or parts.scheme not in {"http", "https"}:
                raise SettingsError(f"{subject}: `url` must be https://host/path; secrets belong in `headers`")
            if parts.scheme == "http" and not self.private:
                raise SettingsError(f"{subject}: `url` must be https://…; http:// is for a server with `private: true`")
        if self.tools is not None and (unknown := [tool for tool in self.allow if tool not in self.tools]):
            raise SettingsError(f"{subject}: `allow` names {unknown[0]!r}, which `tools` does not list")

    def tool_name(self, tool: str) -> str:
        """Return the agent's name for one of the server's tools."""
        return f"{self.name}_{_NO_WORD.sub('_', tool)}"

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(Rule(decision="allow", tool=self.tool_name(tool)) for tool in self.allow)

    def with_environment(self, environ: Mapping[str, str]) -> Self:
        """Substitute environment variables for `${NAME}` in `env` and `headers`; their values become `secrets`.

        Raises:
            SettingsError: a variable is not set, or its value is invalid.
        """
        used: list[str] = []

        def substitute(match: re.Match[str]) -> str:
            text = environ.get(match[1], "").strip()
            if not text:
                raise SettingsError(f"MCP server {self.name!r}: the environment variable {match[1]} is not set.")
            used.append(text)
            return text

        env = {name: _REFERENCE.sub(substitute, template) for name, template in self.env.items()}
        headers = {name: _REFERENCE.sub(substitute, template) for name, template in self.headers.items()}
        return replace(self, env=env, headers=headers, secrets=(*self.secrets, *used))
