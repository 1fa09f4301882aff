"""Personas: the agents in `.github/agents` of a repository, chosen with `--agent NAME`. They only restrict a run.

The format is GitHub's (https://docs.github.com/en/copilot/reference/custom-agents-configuration).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from agent_runtime import SettingsError, order_instructions, read_front_matter

PERSONA_FOLDER = ".github/agents"
_MAX_DESCRIPTION, _MAX_LISTED = 200, 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READ = ("read_file", "list_files")
_SEARCH = ("find", "list_files", "semantic_search", "trace_callers", "trace_callees", "trace_graph")
_EXECUTE = ("execute", "read_output", "send_input", "terminate_terminal")
_ALIASES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("execute", "shell", "bash", "powershell"), _EXECUTE),
    **dict.fromkeys(("read", "notebookread", "view"), _READ),
    **dict.fromkeys(("edit", "multiedit", "write", "notebookedit"), ("write_file",)),
    **dict.fromkeys(("search", "grep", "glob"), _SEARCH),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """An agent of the repository.

    Attributes:
        tools: lower-case names of tools, or of GitHub's aliases for them; None for all.
        models: in the order of preference.
    """

    path: str
    text: str
    description: str = ""
    tools: frozenset[str] | None = None
    models: tuple[str, ...] = ()

    @classmethod
    def parse(cls, path: str, content: str) -> Self:
        """Parse a file; keys that belong to other tools are ignored.

        Raises:
            SettingsError: it has no valid front matter, `description` or text.
        """
        head, text = read_front_matter(path, content)
        description = head.get("description")
        if not isinstance(description, str) or not description.strip():
            raise SettingsError(f"{path}: `description` must say what the agent is for.")
        if not text.strip():
            raise SettingsError(f"{path}: has no text below the front matter; write there how the agent should work.")
        tools = _read_texts(path, "tools", head.get("tools"), split=True)
        return cls(
            path=path,
            text=text.strip(),
            description=" ".join(description[: 4 * _MAX_DESCRIPTION].split())[:_MAX_DESCRIPTION],
            tools=None if tools is None or "*" in tools else frozenset(map(str.lower, tools)),
            models=_read_texts(path, "model", head.get("model"), split=False) or (),
        )

    def select_tools(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the tools that the agent may use out of those of the run; unknown names have no effect."""
        if self.tools is None:
            return tuple(names)
        allowed = {tool for name in self.tools for tool in (name, *_ALIASES.get(name, ()))}
        return tuple(name for name in names if name in allowed)

    def select_servers(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if self.tools is None or f"{name}/*" in self.tools)


def is_persona_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _read_texts(path: str, key: str, value: object, *, split: bool) -> tuple[str, ...] | None:
    values = [value] if isinstance(value, str) else value
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise SettingsError(f"{path}: `{key}` must be a name or a list of names.")
    words = (word.strip() for item in values for word in (item.split(",") if split else [item]))
    return tuple(word for word in words if word)


def persona_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return the paths of personas by lower-case name."""
    folder = f"{PERSONA_FOLDER}/"
    files = [path.removeprefix(folder) for path in paths if path.startswith(folder) and path.endswith(".md")]
    personas: dict[str, str] = {}
    for file in sorted(files, key=lambda file: (not file.endswith(".agent.md"), file)):
        name = file.removesuffix(".md").removesuffix(".agent").lower()
        if is_persona_name(name) and name != "readme" and not order_instructions([folder + file]):
            personas.setdefault(name, folder + file)
    return personas


def describe_unknown(name: str, names: Collection[str]) -> str:
    """Return the answer to a name that no persona has."""
    similar = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean `--agent {similar[0]}`?" if similar else ""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    listed = f" There are {', '.join(f'`{name}`' for name in sorted(names)[:_MAX_LISTED])}{more}." if names else ""
    return f"There is no agent `{name}` in `{PERSONA_FOLDER}` on the base branch.{hint}{listed}"
