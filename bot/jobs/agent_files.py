"""The base branch's files for agents: instructions and skills, by the conventions of several tools."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from agent_runtime import (
    INSTRUCTION_FILES,
    SKILL_FOLDERS,
    SettingsError,
    list_imports,
    order_instructions,
    parse_instructions,
)
from bot.domain.commands import persona_of
from bot.git.errors import LinkError, WorkspaceError
from bot.git.mirror import Blob, Source
from bot.git.workspace import Workspaces
from bot.jobs.context import JobContext
from bot.permissions.levels import Refusal
from bot.permissions.personas import PERSONA_FOLDER, Persona, describe_unknown, persona_paths
from bot.permissions.repo_config import MAX_BYTES
from bot.publishing.markdown import code, escape_markdown, one_line

_MAX_INSTRUCTIONS, _MAX_SKILLS, _MAX_FOLLOWED, _MAX_HOPS = 50, 30, 20, 5
_MAX_PROBLEMS, _PROBLEM_CHARS, _MAX_PERSONAS = 5, 300, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFiles:
    """Texts by path.

    Attributes:
        personas: paths by name.
        blobs: git ids, of missing files of the root None.
        followed: other files that instructions import or are links to.
    """

    instructions: Mapping[str, str]
    personas: Mapping[str, str]
    skills: Mapping[str, str]
    blobs: Mapping[str, str | None]
    followed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        listed = [f"- {code(one_line(problem, _PROBLEM_CHARS))}" for problem in self.problems[:_MAX_PROBLEMS]]
        if more := len(self.problems) - len(listed):
            listed.append(f"- and {more} more")
        return "\n".join(["Files for agents on the base branch:\n", *listed]) if listed else ""


async def read_agent_files(workspaces: Workspaces, repo_id: int, base: Source) -> AgentFiles:
    """Read the files of a commit; unusable ones are problems.

    Raises:
        WorkspaceError: the commit could not be fetched.
    """
    blobs = await workspaces.list_blobs(repo_id, base)
    instructions, skills, personas = await asyncio.to_thread(_choose, blobs)
    problems = [
        f"Only {most} of the {len(paths)} {kind} are read."
        for paths, most, kind in ((instructions, _MAX_INSTRUCTIONS, "instructions"), (skills, _MAX_SKILLS, "skills"))
        if len(paths) > most
    ]
    reader = _Reader(workspaces, repo_id, base, blobs)
    await reader.read([*instructions[:_MAX_INSTRUCTIONS], *skills[:_MAX_SKILLS]])
    names = instructions[:_MAX_INSTRUCTIONS]
    for _ in range(_MAX_HOPS):
        texts = reader.texts(names)
        imports = await asyncio.to_thread(list_imports, texts, names)
        names += [path for path in imports if path in blobs][:_MAX_FOLLOWED]
        if not await reader.read([*names, *reader.links.values()]):
            break
    texts = reader.texts(names)
    parsed = await asyncio.to_thread(parse_instructions, texts)
    followed = [path for path in reader.contents if path not in {*instructions, *skills}]
    ids = {path: blobs.get(path) for path in (*INSTRUCTION_FILES, *instructions, *skills, *followed)}
    return AgentFiles(
        instructions=texts,
        personas=personas,
        skills=reader.texts(skills),
        blobs=ids | {path: blobs[path] for path in personas.values()},
        followed=tuple(followed),
        problems=(*problems, *reader.problems, *parsed.problems),
    )


def _choose(paths: Collection[str]) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the instructions, the skills and the personas among the files of a repository."""
    parts = [path.rsplit("/", 2) for path in paths if path.endswith("/SKILL.md")]
    skills = sorted("/".join(part) for part in parts if part[0] in SKILL_FOLDERS)
    skills.sort(key=lambda path: SKILL_FOLDERS.index(path.rsplit("/", 2)[0]))
    return order_instructions(paths), skills, persona_paths(paths)


async def choose_persona(
    context: JobContext, repo_id: int, base: Source, personas: Mapping[str, str]
) -> Persona | Refusal | None:
    """Read the persona that a command names, from the base branch; None if it names none.

    Raises:
        WorkspaceError: the commit could not be fetched.
    """
    name = persona_of(context.job.command)
    if not name:
        return None
    path = personas.get(name.lower())
    if path is None:
        return Refusal(cause="persona", variant=name, reason=describe_unknown(name, personas))
    file = (await context.services.workspaces.read_each(repo_id, base, (path,), limit=MAX_BYTES))[path]
    if not isinstance(file, Blob):
        reason = f"{code(path)} is no regular file of at most {MAX_BYTES:,} bytes."
        return Refusal(cause="persona", variant=path, reason=reason)
    try:
        return await asyncio.to_thread(Persona.parse, path, file.content.decode("utf-8", "replace"))
    except SettingsError as error:
        reason = f"The agent {code(name)} is not valid: {code(one_line(str(error), _PROBLEM_CHARS))}"
        return Refusal(cause="persona", variant=reason, reason=reason)


async def personas_text(context: JobContext) -> str:
    """Return the help about the default branch's personas."""
    repos, repo = context.github.repos, context.job.repo.full_name
    files = await repos.list_files(repo, PERSONA_FOLDER)
    paths = persona_paths(f"{PERSONA_FOLDER}/{name}" for name in files)
    personas = {path: files[path.rpartition("/")[2]] for path in [*paths.values()][:_MAX_PERSONAS]}
    contents = await repos.read_blobs(repo, [file.sha for file in personas.values() if file.size <= MAX_BYTES])
    lines, allowed = [], context.services.allowed(context.job)
    for name, path in zip(paths, personas, strict=False):
        try:
            content = contents.get(personas[path].sha, b"").decode("utf-8", "replace")
            persona = await asyncio.to_thread(Persona.parse, path, content)
            lines.append(f"- `{name}`: {escape_markdown(persona.description, allowed)}")
        except SettingsError as error:
            lines.append(f"- Not valid: {code(one_line(str(error), _PROBLEM_CHARS))}")
    return "\n".join([f"**Agents** in `{PERSONA_FOLDER}`, chosen with `--agent NAME`\n", *lines]) if lines else ""


class _Reader:
    """Reads files of a commit, each once."""

    def __init__(self, workspaces: Workspaces, repo_id: int, base: Source, blobs: Mapping[str, str]) -> None:
        self._workspaces, self._repo_id, self._base, self._blobs = workspaces, repo_id, base, blobs
        self.contents: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.problems: list[str] = []
        self._requested: set[str] = set()

    async def read(self, paths: Iterable[str]) -> bool:
        """Read new files; return whether there are any."""
        paths = [path for path in dict.fromkeys(paths) if path in self._blobs and path not in self._requested]
        self._requested.update(paths)
        files = await self._workspaces.read_each(self._repo_id, self._base, paths, limit=MAX_BYTES) if paths else {}
        for path, file in files.items():
            if isinstance(file, LinkError) and file.target in self._blobs:
                self.links[path] = file.target
            elif isinstance(file, WorkspaceError):
                note = " It leads to no file of the repository." if isinstance(file, LinkError) else ""
                self.problems.append(f"{file.reason.replace('`', '')}{note}")
            elif file is not None:
                self.contents[path] = file.content.decode("utf-8", "replace")
        return bool(paths)

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the texts of files and of links to files."""
        texts: dict[str, str] = {}
        for path in paths:
            target = path
            for _ in range(_MAX_HOPS):
                target = self.links.get(target, target)
            if target in self.contents:
                texts[path] = self.contents[target]
        return texts
