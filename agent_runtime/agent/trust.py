"""Workspace trust: which keys of an agent file take effect only when this user has trusted its content.

A cloned repository may contain an agent file. `guarded_keys` finds its keys that could weaken the sandbox or the
permissions, name an address, a variable or a file outside the directory, or start a program. `AgentFile.load` gives
them to its `review` before anything takes effect. `TrustRecord` remembers the contents that the user has trusted.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from agent_runtime.agent.delegation import Delegation
from agent_runtime.agent.document import MAX_CHARS, Document, KeyPath
from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import RunLimits
from agent_runtime.processes.spawn import home
from agent_runtime.providers.catalog import CATALOG
from agent_runtime.tools.tool import visible

Pattern = tuple[str, ...]
"""The keys from `agent` down to a value; `[]` is any position of a list."""
IsHarmless = Callable[[Any, Mapping[str, Any], Path], bool]
"""Whether a value is harmless, given the section that holds it and the real path of the file's directory."""

_MAX_BYTES = 4 * MAX_CHARS  # the maximum in UTF-8
_MODEL_NAME = re.compile(r"\w[\w.-]*([:/@]\w[\w.-]*)*", re.ASCII)
_LIMITS = RunLimits()
_DELEGATION = Delegation()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedKey:
    """A key of an agent file that takes effect only after trust.

    Attributes:
        place: its file and line.
        key: the key, such as `runtime.sandbox`.
        value: its value as JSON; for a path also the real paths outside the directory that it leads to.
        paths: these real paths.
    """

    place: str
    key: str
    value: str
    paths: tuple[Path, ...] = ()

    @property
    def line(self) -> str:
        """All of it in one line, in which every character can be seen."""
        return visible(f"{self.place}: {self.key}: {self.value}").replace("\n", "\\n").replace("\t", "\\t")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRequest:
    """An agent file that waits for trust.

    Attributes:
        file: the file, below the real path of its directory.
        keys: the keys that need trust.
        settings_digest: SHA-256 of the file, of `keys`, and of the files in the directory that it names.
        hash_contents: reads the files outside that it names, too, and hashes them.
    """

    file: Path
    keys: tuple[GuardedKey, ...]
    settings_digest: str
    hash_contents: Callable[[], str] = field(repr=False, compare=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the file, of every file that it names, and of `keys`.

        The first access reads these files, also outside the directory: only after trust in `settings_digest`.

        Raises:
            SettingsError: one of them cannot be read.
        """
        return self.hash_contents()


@dataclass(slots=True, kw_only=True)
class SourceFiles:
    """Reads an agent file and the files that it names, each once, and hashes the text that takes effect.

    Attributes:
        folder: the directory of the agent file.
    """

    folder: Path
    _texts: dict[Path, str] = field(default_factory=dict)
    _skills: dict[Path, list[Path]] = field(default_factory=dict)
    _real_folder: Path | None = None
    _outside: frozenset[Path] = frozenset()

    def text(self, path: Path) -> str:
        """Return the text of a file.

        Raises:
            SettingsError: it cannot be read, is too large, or is not UTF-8; no file can have this name; the agent file
                names a device; or the path has come to lead out of the directory after the review of the agent file.
        """
        if path not in self._texts:
            if self._texts and path.exists() and not path.is_file():  # reading a terminal or a pipe could wait for ever
                raise SettingsError(f"{path}: is not a regular file.")
            self._texts[path] = read_text(path, check=self._require_reviewed)
        return self._texts[path]

    def skills(self, folder: Path) -> list[Path]:
        """Return the `SKILL.md` files of a folder of skills, which is listed once."""
        if folder not in self._skills:
            self._skills[folder] = skill_files(folder)
        return self._skills[folder]

    def directory(self, path: Path) -> Path:
        """Return the real path of a directory, which is made if there is nothing of that name.

        Raises:
            SettingsError: it cannot be made; or the path has come to lead out of the directory after the review of the
                agent file.
        """
        try:
            real = path.resolve()
            self._require_reviewed(path, real)
            real.mkdir(parents=True, exist_ok=True)
            self._require_reviewed(path, real.resolve())
            return real.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SettingsError(f"`work_dir`: {path} is no directory and cannot be made: {reason}.") from error

    def request(
        self, path: Path, document: Document, *, names: Iterable[str], skills: Iterable[str], read: Callable[[], object]
    ) -> TrustRequest | None:
        """Return the request for trust in an agent file that was read here; None if no key needs it.

        It reads the files in the directory, so that they cannot change while the user is asked, and opens no other.
        From here on, paths lead to nothing outside the directory but to the places that the request shows.

        Args:
            path: the agent file.
            document: its content.
            names: the files that it names.
            skills: the folders of skills that it names.
            read: reads, by `text`, every file that it names.
        """
        folder = self._real_folder = self.folder.resolve()
        keys = guarded_keys(document, folder)
        self._outside = frozenset(each for key in keys for each in key.paths)
        folders = [self.folder / each for each in skills if _is_inside(each, {}, folder)]
        files = [*(self.folder / each for each in names), *(file for each in folders for file in self.skills(each))]
        for each in files:
            if _is_inside(str(each), {}, folder):
                with suppress(SettingsError):  # raised again, with its key, when the text is used
                    self.text(each)
        # A link that leads elsewhere now changes a key's value, and with it the digest.
        settings = _digest([self._hashes(), [[each.key, each.value] for each in keys]])

        def hash_contents() -> str:
            read()
            return _digest([settings, self._hashes()])

        request = TrustRequest(
            file=folder / path.name, keys=keys, settings_digest=settings, hash_contents=hash_contents
        )
        return request if keys else None

    def _hashes(self) -> list[list[str]]:
        folder = self.folder.as_posix()
        return [
            [path.absolute().as_posix().removeprefix(folder), hashlib.sha256(text.encode()).hexdigest()]
            for path, text in self._texts.items()
        ]

    def _require_reviewed(self, path: Path, real: Path) -> None:
        """Refuse a path that leads out of the directory, to a place that the review did not show.

        Raises:
            SettingsError: it does.
        """
        folder = self._real_folder
        reals = (real, path.parent.parent.resolve())  # a skill is in a folder of the one that was shown
        if folder is not None and not _is_inside(str(real), {}, folder) and self._outside.isdisjoint(reals):
            raise SettingsError(f"{path}: leads to {real} now, which it did not when the agent file was checked.")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def read_text(path: Path, *, check: Callable[[Path, Path], object] = lambda _path, _real: None) -> str:
    """Return the text of a file that settings name.

    Args:
        path: the file.
        check: called with the path and its real path before the file is opened, and again before it is read; raises an
            error to refuse it.

    Raises:
        SettingsError: it cannot be read, is too large, or is not UTF-8; or no file can have this name.
    """
    try:
        check(path, path.resolve())
        with path.open("rb") as file:
            check(path, _real_path_of(file, path))
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise SettingsError(f"{path}: is larger than {_MAX_BYTES:,} bytes.")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8.") from error
    except (RuntimeError, ValueError) as error:
        raise SettingsError(f"{str(path)!r}: no file can have this name ({error}).") from error


def _real_path_of(file: IO[bytes], path: Path) -> Path:
    """Return the real path of an open file.

    Raises:
        OSError: its path leads to another file already.
    """
    real = path.resolve()
    if not os.path.samestat(os.fstat(file.fileno()), real.lstat()):
        raise OSError(errno.ESTALE, "it is being replaced")
    return real


def instruction_file(system_prompt: str) -> str | None:
    """Return the file that a `system_prompt` names; None if it is the text itself."""
    name = system_prompt.strip()
    return name if name.endswith(".md") and "\n" not in name else None


def skill_files(folder: Path) -> list[Path]:
    """Return the `SKILL.md` files of a folder of skills."""
    return sorted(folder.glob("*/SKILL.md"))


def guarded_keys(document: Document, folder: Path) -> tuple[GuardedKey, ...]:
    """Return the keys of a valid agent file that need trust: all except those that `HARMLESS` finds harmless.

    Args:
        document: the file.
        folder: the real path of its directory.
    """
    data = document.data
    agent = data.get("agent") if isinstance(data, Mapping) else None
    if not isinstance(agent, Mapping):
        return ()
    found: list[GuardedKey] = []
    for path, value in _guarded(agent, (), agent, folder):
        reals = [_real(each) for each in _paths(value, path, folder) if not _is_inside(str(each), {}, folder)]
        text = " → ".join([json.dumps(value, ensure_ascii=False, default=str), *map(str, reals)])
        paths = tuple(each for each in reals if each is not None)
        found.append(GuardedKey(place=document.place(("agent", *path)), key=_key_text(path), value=text, paths=paths))
    return tuple(found)


def _guarded(
    value: object, path: KeyPath, section: Mapping[str, Any], folder: Path
) -> Iterator[tuple[KeyPath, object]]:
    """Yield the values that need trust, at or below a key path."""
    pattern = tuple("[]" if isinstance(key, int) else key for key in path)
    if pattern in HARMLESS:
        if not HARMLESS[pattern](value, section, folder):
            yield path, value
    elif value and isinstance(value, Mapping):
        for key, child in value.items():
            yield from _guarded(child, (*path, key), value, folder)
    elif value and isinstance(value, list):
        for at, child in enumerate(value):
            yield from _guarded(child, (*path, at), section, folder)
    elif value or pattern not in _SECTIONS:
        yield path, value


def _key_text(path: KeyPath) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def _paths(value: object, path: KeyPath, folder: Path) -> list[Path]:
    """Return the paths that a value names."""
    if path[0] == "skills":
        return _skill_paths(folder / str(value), folder)
    if path == ("system_prompt",) or path[:1] + path[-1:] in {("runtime", "work_dir"), ("model", "script")}:
        return [folder / str(value)]
    return []


def _skill_paths(skills: Path, folder: Path) -> list[Path]:
    """Return a folder of skills and its skills; of one outside the directory only itself, which is not listed."""
    return [skills, *skill_files(skills)] if _is_inside(str(skills), {}, folder) else [skills]


def _real(path: Path) -> Path | None:
    """Return a path with all links followed; None for a loop of links, and for a name that no file can have."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _always(_value: object, _section: Mapping[str, Any], _folder: Path) -> bool:
    return True


def _at_most(bound: float) -> IsHarmless:
    return lambda value, _section, _folder: value <= bound


def _one_of(*values: str) -> IsHarmless:
    return lambda value, _section, _folder: value in values


def _is_off(value: bool, _section: Mapping[str, Any], _folder: Path) -> bool:  # noqa: FBT001 - a value of the file
    return not value


def _is_own_service(value: str, _section: Mapping[str, Any], _folder: Path) -> bool:
    """Whether a provider is one service with a key of its own, and no cloud, script or set-up of another program."""
    return CATALOG[value].key_variable is not None and CATALOG[value].cloud is None


def _is_own_key(value: str, section: Mapping[str, Any], _folder: Path) -> bool:
    """Whether a key's variable is the usual one of a service that is asked at its own address."""
    return value == CATALOG[section["provider"]].key_variable and "base_url" not in section


def _is_plain_name(value: str, _section: Mapping[str, Any], _folder: Path) -> bool:
    """Whether a model's name is no resource of a cloud account, and leads to no other path of a service."""
    return _MODEL_NAME.fullmatch(value) is not None and not value.startswith(("arn:", "projects/"))


def _is_text_or_inside(value: str, _section: Mapping[str, Any], folder: Path) -> bool:
    name = instruction_file(value)
    return name is None or _is_inside(name, {}, folder)


def _is_inside(value: str, _section: Mapping[str, Any], folder: Path) -> bool:
    """Whether a path is inside, and not in a `.git`, whose hooks the user's own git would execute."""
    real = _real(folder / value)
    return (
        real is not None
        and real.is_relative_to(folder)
        and ".git" not in map(str.lower, real.relative_to(folder).parts)
    )


def _are_skills_inside(value: str, _section: Mapping[str, Any], folder: Path) -> bool:
    return all(_is_inside(str(each), {}, folder) for each in _skill_paths(folder / value, folder))


def _allows_nothing(value: Mapping[str, Any], _section: Mapping[str, Any], _folder: Path) -> bool:
    return value.keys() <= {"ask", "deny", "paths", "commands", "reason"}


_MODEL: Mapping[Pattern, IsHarmless] = {
    ("provider",): _is_own_service,
    ("name",): _is_plain_name,
    ("api_key_env",): _is_own_key,
    ("temperature",): _always,
    ("max_tokens",): _always,
    ("silence",): _always,
    ("reasoning_effort",): _always,
    ("api",): _always,
    ("images",): _always,
    ("thinking", "enabled"): _always,
    ("thinking", "budget_tokens"): _always,
}

HARMLESS: Mapping[Pattern, IsHarmless] = {
    ("name",): _always,
    ("role",): _always,
    ("system_prompt",): _is_text_or_inside,
    **{("model", *keys): check for keys, check in _MODEL.items()},
    **{("model", "fallback", "[]", *keys): check for keys, check in _MODEL.items()},
    ("model", "transport"): _always,
    ("runtime", "work_dir"): _is_inside,
    ("runtime", "max_steps"): _at_most(_LIMITS.max_steps),
    ("runtime", "max_seconds"): _at_most(_LIMITS.max_seconds),
    ("runtime", "max_cost_usd"): _always,
    ("runtime", "max_tokens"): _always,
    ("runtime", "unsafe_mode"): _is_off,
    ("runtime", "git_writable"): _is_off,
    ("runtime", "sandbox"): _one_of("auto", "bubblewrap"),
    ("memory", "max_context_tokens"): _always,
    ("memory", "global_summary_threshold"): _always,
    ("memory", "global_summary_max_tokens"): _always,
    ("tools", "[]", "name"): _always,
    ("tools", "[]", "enabled"): _always,
    ("tools", "[]", "config", "require_permission"): _always,
    ("tools", "[]", "config", "max_output_chars"): _always,
    ("delegation", "max_tasks"): _at_most(_DELEGATION.max_tasks),
    ("delegation", "at_once"): _at_most(_DELEGATION.at_once),
    ("delegation", "max_depth"): _at_most(_DELEGATION.max_depth),
    ("delegation", "share"): _always,
    ("delegation", "personas", "[]", "name"): _always,
    ("delegation", "personas", "[]", "role"): _always,
    ("delegation", "personas", "[]", "system_prompt"): _always,
    ("delegation", "personas", "[]", "tools"): _always,
    ("skills", "[]"): _are_skills_inside,
    ("permissions", "[]"): _allows_nothing,
}
"""The keys that may be harmless, each with its check. A key that is not listed needs trust, so that a new key does."""
_SECTIONS = frozenset(keys[:count] for keys in HARMLESS for count in range(len(keys)))
"""Sections of such keys; an empty one changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """The contents that this user has trusted, in `~/.codepilot/trust`: a file for each agent file.

    Attributes:
        reach: directories in which an agent may write; a record in one of them is neither used nor made.
    """

    reach: tuple[Path, ...]

    def has(self, request: TrustRequest) -> bool:
        """Return whether the user has trusted an agent file with this content."""
        try:
            place = self._folder(make=False) / _entry_name(request)
            descriptor = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except (OSError, SettingsError):
            return False
        try:
            if not _is_private(os.fstat(descriptor), stat.S_ISREG):
                return False
            entry = os.read(descriptor, _MAX_BYTES)
        finally:
            os.close(descriptor)
        # The settings first: files outside the directory are read only if the user has trusted the keys that name them.
        return entry.startswith(request.settings_digest.encode()) and entry == _entry(request)

    def add(self, request: TrustRequest) -> None:
        """Record that the user trusts an agent file with this content, and no longer with another.

        Raises:
            SettingsError: it cannot be recorded.
        """
        try:
            folder, entry = self._folder(make=True), _entry(request)
            descriptor, name = tempfile.mkstemp(dir=folder)  # with mode 0600
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(entry)
            Path(name).replace(folder / _entry_name(request))
        except OSError as error:
            raise SettingsError(f"Trust cannot be recorded: {error}.") from error

    def _folder(self, *, make: bool) -> Path:
        """Return the real path of the directory of records.

        Raises:
            OSError: there is none.
            SettingsError: an agent may write there, or it is not this user's own.
        """
        folder = home("Trust cannot be recorded") / ".codepilot" / "trust"
        real = folder.resolve()
        if within := next((each for each in self.reach if real.is_relative_to(each.resolve())), None):
            raise SettingsError(f"Trust cannot be recorded in {folder}: it lies in {within}, where agents work.")
        if make:
            real.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(real.stat(), stat.S_ISDIR):
            raise SettingsError(f"Trust cannot be recorded in {folder}: others have access. Run: chmod 700 {folder}")
        return real


def _entry_name(request: TrustRequest) -> str:
    return hashlib.sha256(os.fsencode(request.file)).hexdigest()


def _entry(request: TrustRequest) -> bytes:
    return f"{request.settings_digest} {request.digest}  ".encode() + os.fsencode(request.file) + b"\n"


def _is_private(state: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Whether a file is of a kind, and this user's alone; Windows has no such owner and mode."""
    own = os.name != "posix" or (state.st_uid == os.geteuid() and not state.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    return is_kind(state.st_mode) and own
