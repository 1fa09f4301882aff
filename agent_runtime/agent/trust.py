"""Workspace trust: agent file keys that take effect only after the user has trusted the content."""

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
from agent_runtime.processes.spawn import home_dir
from agent_runtime.providers.catalog import CATALOG
from agent_runtime.tools.tool import visible

Pattern = tuple[str, ...]
"""Keys from `agent` down to a value; `[]` is any list index."""
IsHarmless = Callable[[Any, Mapping[str, Any], Path], bool]
"""Check a value, given its section and the real path of the file's directory."""

_MAX_BYTES = 4 * MAX_CHARS  # the maximum in UTF-8
_MODEL_NAME = re.compile(r"\w[\w.-]*([:/@]\w[\w.-]*)*", re.ASCII)
_LIMITS = RunLimits()
_DELEGATION = Delegation()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedKey:
    """A key that takes effect only after trust."""

    location: str
    """File and line."""
    key: str
    """The key path, such as `runtime.sandbox`."""
    value: str
    """JSON, and for a path also its real paths outside the directory."""
    paths: tuple[Path, ...] = ()
    """These real paths."""

    @property
    def line(self) -> str:
        return visible(f"{self.location}: {self.key}: {self.value}").replace("\n", "\\n").replace("\t", "\\t")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRequest:
    """An agent file that needs trust."""

    file: Path
    """The file, below the real path of its directory."""
    keys: tuple[GuardedKey, ...]
    """The keys that need trust."""
    settings_digest: str
    """SHA-256 of the file, `keys`, and the referenced files in the directory."""
    hash_contents: Callable[[], str] = field(repr=False, compare=False)
    """Reads the referenced files outside, too, and returns the digest."""

    @property
    def digest(self) -> str:
        """SHA-256 of all referenced files and `keys`.

        Reads files outside the directory: only after trust in `settings_digest`.
        """
        return self.hash_contents()


@dataclass(slots=True, kw_only=True)
class SourceFiles:
    """Cached reader of an agent file and its referenced files."""

    folder: Path
    _texts: dict[Path, str] = field(default_factory=dict)
    _skills: dict[Path, list[Path]] = field(default_factory=dict)
    _real_folder: Path | None = None
    _outside: frozenset[Path] = frozenset()

    def text(self, path: Path) -> str:
        if path not in self._texts:
            if self._texts and path.exists() and not path.is_file():  # reading a terminal or a pipe could block
                raise SettingsError(f"{path}: is not a regular file.")
            self._texts[path] = read_text(path, check=self._require_reviewed)
        return self._texts[path]

    def skills(self, folder: Path) -> list[Path]:
        """Return the `SKILL.md` files of a folder, listed once."""
        if folder not in self._skills:
            self._skills[folder] = skill_files(folder)
        return self._skills[folder]

    def directory(self, path: Path) -> Path:
        try:
            real = path.resolve()
            self._require_reviewed(path, real)
            real.mkdir(parents=True, exist_ok=True)
            self._require_reviewed(path, real.resolve())
            return real.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SettingsError(f"`work_dir`: {path} is no directory and cannot be made: {reason}.") from error

    def build_request(
        self, path: Path, document: Document, *, names: Iterable[str], skills: Iterable[str], read: Callable[[], object]
    ) -> TrustRequest | None:
        """Return the trust request of an agent file, or None if no key needs trust.

        Reads referenced files in the directory now, so that they cannot change while the user decides.
        """
        folder = self._real_folder = self.folder.resolve()
        keys = guarded_keys(document, folder)
        self._outside = frozenset(outside for key in keys for outside in key.paths)
        folders = [self.folder / name for name in skills if _is_inside(name, {}, folder)]
        files = [*(self.folder / name for name in names), *(file for skill in folders for file in self.skills(skill))]
        for file in files:
            if _is_inside(str(file), {}, folder):
                with suppress(SettingsError):  # raised again, with its key, when the text is used
                    self.text(file)
        # A link with a new target changes a key's value, and with it the digest.
        settings = _digest([self._hashes(), [[key.key, key.value] for key in keys]])

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
        """Reject a path that leads outside to a place that the review did not show."""
        folder = self._real_folder
        real_paths = (real, path.parent.parent.resolve())  # a skill is in a subfolder of a reviewed folder
        if folder is not None and not _is_inside(str(real), {}, folder) and self._outside.isdisjoint(real_paths):
            raise SettingsError(f"{path}: leads to {real} now, which it did not when the agent file was checked.")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def read_text(path: Path, *, check: Callable[[Path, Path], object] = lambda _path, _real: None) -> str:
    """Return the text of a file that settings reference.

    `check` gets the path and its real path before opening and before reading; it raises to refuse.
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
    """Return the real path of an open file; raise OSError if the path leads to another file by now."""
    real = path.resolve()
    if not os.path.samestat(os.fstat(file.fileno()), real.lstat()):
        raise OSError(errno.ESTALE, "it is being replaced")
    return real


def instruction_file(system_prompt: str) -> str | None:
    """Return the file name in a `system_prompt`; None if it is the text itself."""
    name = system_prompt.strip()
    return name if name.endswith(".md") and "\n" not in name else None


def skill_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/SKILL.md"))


def guarded_keys(document: Document, folder: Path) -> tuple[GuardedKey, ...]:
    """Return the keys of a valid agent file that need trust."""
    data = document.data
    agent = data.get("agent") if isinstance(data, Mapping) else None
    if not isinstance(agent, Mapping):
        return ()
    keys: list[GuardedKey] = []
    for path, value in _guarded(agent, (), agent, folder):
        real_paths = [_resolve(p) for p in _referenced_paths(value, path, folder) if not _is_inside(str(p), {}, folder)]
        text = " → ".join([json.dumps(value, ensure_ascii=False, default=str), *map(str, real_paths)])
        paths = tuple(real for real in real_paths if real is not None)
        location = document.location(("agent", *path))
        keys.append(GuardedKey(location=location, key=_key_text(path), value=text, paths=paths))
    return tuple(keys)


def _guarded(
    value: object, path: KeyPath, section: Mapping[str, Any], folder: Path
) -> Iterator[tuple[KeyPath, object]]:
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


def _referenced_paths(value: object, path: KeyPath, folder: Path) -> list[Path]:
    if path[0] == "skills":
        return _skill_paths(folder / str(value), folder)
    if path == ("system_prompt",) or path[:1] + path[-1:] in {("runtime", "work_dir"), ("model", "script")}:
        return [folder / str(value)]
    return []


def _skill_paths(skills: Path, folder: Path) -> list[Path]:
    return [skills, *skill_files(skills)] if _is_inside(str(skills), {}, folder) else [skills]


def _resolve(path: Path) -> Path | None:
    """Return the real path; None for a link loop or an invalid name."""
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
    """Whether a provider has a single service with its own key."""
    return CATALOG[value].key_variable is not None and CATALOG[value].cloud is None


def _is_own_key(value: str, section: Mapping[str, Any], _folder: Path) -> bool:
    """Whether the variable is the default of a service at its own address."""
    return value == CATALOG[section["provider"]].key_variable and "base_url" not in section


def _is_plain_name(value: str, _section: Mapping[str, Any], _folder: Path) -> bool:
    """Whether a model name is neither a cloud resource nor a URL path."""
    return _MODEL_NAME.fullmatch(value) is not None and not value.startswith(("arn:", "projects/"))


def _is_text_or_inside(value: str, _section: Mapping[str, Any], folder: Path) -> bool:
    name = instruction_file(value)
    return name is None or _is_inside(name, {}, folder)


def _is_inside(value: str, _section: Mapping[str, Any], folder: Path) -> bool:
    """Whether a path is inside and not in a `.git`, whose hooks the user's git would execute."""
    real = _resolve(folder / value)
    return (
        real is not None
        and real.is_relative_to(folder)
        and ".git" not in map(str.lower, real.relative_to(folder).parts)
    )


def _are_skills_inside(value: str, _section: Mapping[str, Any], folder: Path) -> bool:
    return all(_is_inside(str(path), {}, folder) for path in _skill_paths(folder / value, folder))


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
    ("runtime", "outage_seconds"): _at_most(_LIMITS.outage_seconds),
    ("runtime", "max_cost_usd"): _always,
    ("runtime", "max_tokens"): _always,
    ("runtime", "unsafe_mode"): _is_off,
    ("runtime", "git_writable"): _is_off,
    ("runtime", "sandbox"): _one_of("auto", "bubblewrap"),
    ("runtime", "toolchains"): _one_of("auto", "none"),
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
"""Check of each key that may be harmless. A key that is not listed needs trust."""
_SECTIONS = frozenset(keys[:count] for keys in HARMLESS for count in range(len(keys)))
"""Parent sections of these keys; an empty one has no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """Trusted contents in `~/.codepilot/trust`, one file for each agent file.

    Agents write in `reach`: a record there is ignored and never created.
    """

    reach: tuple[Path, ...]

    def has(self, request: TrustRequest) -> bool:
        """Return whether the user has trusted this content."""
        try:
            path = self._folder(create=False) / _entry_name(request)
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
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
        """Record trust in this content."""
        try:
            folder, entry = self._folder(create=True), _entry(request)
            descriptor, name = tempfile.mkstemp(dir=folder)  # with mode 0600
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(entry)
            Path(name).replace(folder / _entry_name(request))
        except OSError as error:
            raise SettingsError(f"Trust cannot be recorded: {error}.") from error

    def _folder(self, *, create: bool) -> Path:
        """Return the record directory; raise SettingsError if an agent or another user has access."""
        folder = home_dir("Trust cannot be recorded") / ".codepilot" / "trust"
        real = folder.resolve()
        if within := next((root for root in self.reach if real.is_relative_to(root.resolve())), None):
            raise SettingsError(f"Trust cannot be recorded in {folder}: it lies in {within}, where agents work.")
        if create:
            real.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(real.stat(), stat.S_ISDIR):
            raise SettingsError(f"Trust cannot be recorded in {folder}: others have access. Run: chmod 700 {folder}")
        return real


def _entry_name(request: TrustRequest) -> str:
    return hashlib.sha256(os.fsencode(request.file)).hexdigest()


def _entry(request: TrustRequest) -> bytes:
    return f"{request.settings_digest} {request.digest}  ".encode() + os.fsencode(request.file) + b"\n"


def _is_private(state: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    is_own = os.name != "posix" or (state.st_uid == os.geteuid() and not state.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    return is_kind(state.st_mode) and is_own
