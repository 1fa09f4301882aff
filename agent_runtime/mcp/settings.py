"""An MCP server as its operator defines it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import urlsplit

from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import Rule

MAX_MESSAGE_BYTES = 6 * 1024**2
"""A picture of the size that models take, as base64, and some words beside it."""
MAX_MESSAGE_VALUES = 40_000
"""A message is parsed on the event loop, which takes some microseconds for each value and little for long texts."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def values_in(message: bytes) -> int:
    """How many values a piece of JSON has at most. Marks in its texts are counted, too."""
    return len(message) - len(message.translate(None, b",[{"))


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server that an agent may use: a program in the agent's sandbox, or an address.

    Attributes:
        name: stands before the names of its tools.
        command: the program and its arguments; empty for a server at `url`.
        env: variables that the program gets beside the sandbox's own.
        url: the address of a server that speaks streamable HTTP; empty for a program.
        headers: sent to that address with each request.
        private: whether `url` may lead to an address that is not public, and be plain HTTP.
        tools: which of its tools the agent has, by the server's names; None for all.
        allow: those of them whose calls need no approval.
        timeout: seconds for each call, and for the server's start.
        secrets: texts that are taken out of all that the server answers.
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
        """Check it.

        Raises:
            SettingsError: it cannot be used like this; the text says why, and never with a secret.
        """
        where = f"MCP server {self.name!r}"
        if not _NAME.fullmatch(self.name) or self.name.endswith("_"):
            raise SettingsError(f"{where}: a name has up to 30 lower-case letters, digits and underscores")
        if bool(self.command) == bool(self.url):
            raise SettingsError(f"{where}: write either `command` or `url`")
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name) or set("\n\0") & set(value):
                raise SettingsError(f"{where}: `env` has {name!r}, which is no variable with a value on one line")
        if self.url:
            try:
                parts = urlsplit(self.url)
                host = parts.hostname
            except ValueError:
                host = None
                parts = urlsplit("")
            if not host or parts.username or parts.fragment or parts.scheme not in {"http", "https"}:
                raise SettingsError(f"{where}: `url` must be https://host/path; secrets belong in `headers`")
            if parts.scheme == "http" and not self.private:
                raise SettingsError(f"{where}: `url` must be https://…; http:// is for a server with `private: true`")
        if self.tools is not None and (unknown := [each for each in self.allow if each not in self.tools]):
            raise SettingsError(f"{where}: `allow` names {unknown[0]!r}, which `tools` does not list")

    def called(self, tool: str) -> str:
        """How one of its tools is called, by the server's name for it."""
        return f"{self.name}_{_NO_WORD.sub('_', tool)}"

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What `allow` says, as rules."""
        return tuple(Rule(decision="allow", tool=self.called(each)) for each in self.allow)

    def filled(self, environ: Mapping[str, str]) -> Self:
        """The same with the value of an environment variable in place of each `${NAME}` in `env` and `headers`.

        Args:
            environ: the variables. The values that are used become `secrets`.

        Raises:
            SettingsError: one is not set, or its value cannot be used.
        """
        used: list[str] = []

        def value(found: re.Match[str]) -> str:
            given = environ.get(found[1], "").strip()
            if not given:
                raise SettingsError(f"MCP server {self.name!r}: the environment variable {found[1]} is not set.")
            used.append(given)
            return given

        env = {name: _REFERENCE.sub(value, written) for name, written in self.env.items()}
        headers = {name: _REFERENCE.sub(value, written) for name, written in self.headers.items()}
        return replace(self, env=env, headers=headers, secrets=(*self.secrets, *used))
