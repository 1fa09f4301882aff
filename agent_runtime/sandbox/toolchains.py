"""Toolchains for commands: the workspace's virtual environment, and the user's."""

# A repository may name any path of the host in its `.venv`. Only installations are shown, and of these only programs
# and libraries: settings of pip or conda may contain passwords.

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox.protocol import TMPFS, WORKSPACE, ToolchainSetting

log = logging.getLogger(__name__)

_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")))
_OCCUPIED = (*_SYSTEM, *map(Path, ("/etc", "/proc", "/dev", "/run", "/var/tmp", WORKSPACE)))  # noqa: S108 - a link inside
_PRIVATE = {
    ".aws", ".azure", ".codepilot", ".config", ".docker", ".gnupg", ".kube", ".mozilla", ".password-store", ".ssh",
}  # fmt: skip
_MAX_FILE_BYTES, _MAX_LINKS = 64 * 1024, 10
_VERSION = re.compile(r"(?:python-|v)?([A-Za-z0-9][\w.+-]{0,60})", re.ASCII)
_CHANNEL = re.compile(r'^(?:channel|default_toolchain) = "([\w.+-]{1,60})"', re.ASCII | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Patterns of files in an installation, and its parts to show."""

    program: str
    marker: str
    parts: tuple[str, ...] = ("bin", "include", "lib", "lib64", "libexec", "share", "ssl")


_PYTHON = _Kind(program="bin/python3.*[0-9]", marker="lib*/python3.*/os.py")
_ENVIRONMENT = _Kind(
    program="lib*/python3.*/site-packages", marker="pyvenv.cfg", parts=("bin", "include", "lib", "share", "pyvenv.cfg")
)
_NODE = _Kind(program="bin/node", marker="lib/node_modules/npm/package.json")
_RUST = _Kind(program="bin/rustc", marker="lib/rustlib/components")
_GO = _Kind(program="bin/go", marker="src/runtime/proc.go", parts=("bin", "go.env", "lib", "pkg", "src", "VERSION"))


@dataclass(slots=True, kw_only=True)
class Toolchains:
    """Toolchains of one workspace.

    Attributes:
        environment: name of the workspace's virtual environment, or "".
        mounts: host paths by path inside.
        links: targets by path inside.
        path: for `PATH`.
    """

    environment: str = ""
    mounts: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    path: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def variables(self, workspace: str) -> dict[str, str]:
        # Terminals put it on the `PATH`. Our own programs in the sandbox must not be a stranger's.
        return {"VIRTUAL_ENV": f"{workspace}/{self.environment}"} if self.environment else {}

    def links_beside(self, mounts: Iterable[str]) -> list[tuple[str, str]]:
        # A mount below a link makes directories in its place: ripgrep, if this package is installed in the environment.
        return [link for link in self.links.items() if not any(Path(mount).is_relative_to(link[0]) for mount in mounts)]

    @property
    def line(self) -> str:
        names = f"Toolchains: {', '.join(self.names)}" if self.names else ""
        refused = f"Not shown in the sandbox: {', '.join(self.refused)}" if self.refused else ""
        return ascii(". ".join(filter(None, (names, refused))))[1:-1]


def find_toolchains(setting: ToolchainSetting, workspace: Path, *, isolated: bool = True) -> Toolchains:
    """Find the toolchains for commands in a workspace.

    Without isolation, a repository's own environment is used only if the user has activated it.

    Raises:
        SandboxError: a directory of the setting cannot be shown.
    """
    if setting == "none" or sys.platform == "win32":
        return Toolchains()
    try:
        home = Path.home()
    except RuntimeError:  # a container may run as a user without a home directory
        return Toolchains()
    search = _Search(workspace.absolute(), home)
    for directory in () if setting == "auto" else setting:
        search.add_named(Path(directory).expanduser())
    search.add_workspace_environment(isolated=isolated)
    search.add_selected()
    search.add_aliases()
    if line := search.toolchains.line:
        log.info("%s", line)
    return search.toolchains


def read_toolchains(text: str) -> ToolchainSetting:
    """Return the setting of an option: `auto`, `none`, or directories separated by colons."""
    match text:
        case "auto" | "none":
            return text
        case _:
            return tuple(Path(name).expanduser() for name in text.split(os.pathsep) if name)


def read_python_home(environment: Path) -> str:
    """Return the directory of the base Python's programs; empty for a directory that is no virtual environment."""
    lines = (line.partition("=") for line in _read_text(environment / "pyvenv.cfg").splitlines())
    return next((value.strip() for key, _, value in lines if key.strip().lower() == "home"), "")


class _Search:
    def __init__(self, workspace: Path, home: Path) -> None:
        self.toolchains = Toolchains()
        self._workspaces = {workspace, workspace.resolve()}
        self._workspace = workspace
        self._home, self._homes = home, {home, home.resolve()}
        self._pyenv = _variable("PYENV_ROOT") or home / ".pyenv"
        self._nvm = _variable("NVM_DIR") or home / ".nvm"
        self._rustup = _variable("RUSTUP_HOME") or home / ".rustup"
        self._active = _variable("VIRTUAL_ENV")
        self._conda, self._goroot = _variable("CONDA_PREFIX"), _variable("GOROOT")
        named = (self._pyenv, self._nvm, self._rustup, self._active, self._conda, self._goroot)
        self._roots = [*self._homes, Path("/opt"), *_SYSTEM, *filter(None, named)]

    def add_named(self, directory: Path) -> None:
        real = directory.resolve()
        is_inside = self._is_inside(real)
        is_plain = directory.is_absolute() and directory.is_dir() and is_inside == self._is_inside(directory)
        if not is_plain or not self._is_public(real):
            raise SandboxError(
                f"toolchains: {directory} must be the absolute path of a directory that contains neither the home "
                "directory nor the workspace and no passwords; name another one or remove it."
            )
        self._roots.append(directory)
        if not is_inside:
            self.toolchains.mounts[str(directory)] = real
        if (directory / "pyvenv.cfg").is_file():
            self._add_base(directory)
        self._add_to_path(directory / "bin" if (directory / "bin").is_dir() else directory, str(directory))

    def add_workspace_environment(self, *, isolated: bool) -> None:
        active = (self._active.name,) if self._active and self._active.parent in self._workspaces else ()
        for name in (*active, *((".venv", "venv") if isolated else ())):
            environment = self._workspace / name
            if environment.is_symlink() or (environment / "bin").is_symlink():
                self.toolchains.refused.append(f"{name} (a link)")
            elif _read_text(environment / "pyvenv.cfg"):
                if base := self._add_base(environment):
                    self.toolchains.environment = name
                    self.toolchains.names.insert(0, f"{name} (Python of {base})")
                    return
                self.toolchains.refused.append(f"{name} (its Python is no installation of this user or the system)")

    def add_selected(self) -> None:
        active = self._active
        if active and self._add(active, _ENVIRONMENT) and self._add_base(active):  # not one of the workspace
            self._add_to_path(active / "bin", str(active))
        if self._conda and self._add(self._conda, _PYTHON):
            self._add_to_path(self._conda / "bin", f"conda {self._conda.name}")
        self._add_python()
        uv = shutil.which("uv")
        if uv and self._is_shown(uv_path := Path(uv)):
            self._add_to_path(uv_path.parent, "uv")
        node = os.environ.get("NVM_BIN", "")
        wanted = self._find_version(".nvmrc", ".node-version") or _read_text(self._nvm / "alias" / "default").strip()
        nodes = self._nvm / "versions" / "node"
        chosen = _pick(nodes, wanted, "v") or (Path(node).parent if node else None)
        if chosen and chosen.is_relative_to(nodes) and self._add(chosen, _NODE):
            self._add_to_path(chosen / "bin", f"node {chosen.name}")
        text = _read_text(self._workspace / "rust-toolchain.toml") or _read_text(self._workspace / "rust-toolchain")
        channel = _CHANNEL.search(text) or _CHANNEL.search(_read_text(self._rustup / "settings.toml"))
        rust = _pick(self._rustup / "toolchains", channel[1] if channel else "")
        if rust and self._add(rust, _RUST):
            self._add_to_path(rust / "bin", f"rust {rust.name}")
        program = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
        go = self._goroot or (Path(program).resolve().parent.parent if program else None)
        if go and self._add(go, _GO):
            self._add_to_path(go / "bin", f"go in {go}")

    def _add_python(self) -> None:
        wanted = self._find_version(".python-version") or os.environ.get("PYENV_VERSION", "")
        version = wanted or _read_text(self._pyenv / "version").partition("\n")[0].strip()
        pythons = self._home / ".local" / "share" / "uv" / "python"
        python = _pick(self._pyenv / "versions", version) or _pick(pythons, version, "cpython-")
        if python and self._add(python, _PYTHON):
            self._add_to_path(python / "bin", f"Python {python.name}")

    def _find_version(self, *names: str) -> str:
        texts = (_read_text(self._workspace / name).partition("\n")[0].strip() for name in names)
        return next(filter(None, texts), "")

    def _add_base(self, environment: Path) -> Path | None:
        """Show the Python of an environment: its `home`, and each installation to which its links lead."""
        link = environment / "bin" / "python"
        for _ in range(_MAX_LINKS):  # links within the environment
            if link.parent != environment / "bin" or not link.is_symlink():
                break
            link = Path(os.path.normpath(link.parent / link.readlink()))
        base = self._trace(Path(read_python_home(environment)) / "python3")
        return base if base and (link.parent == environment / "bin" or self._trace(link)) else None

    def _trace(self, program: Path) -> Path | None:
        """Show the installation of a Python, and the links to it; None if it is no installation."""
        for _ in range(_MAX_LINKS):
            if self._is_inside(program):
                return program.parent.parent  # the sandbox shows it as it is
            if not self._is_allowed(program):
                return None
            prefix, real = program.parent.parent, program.resolve() if _is_system(program) else program
            if _is_system(real) or self._add(prefix, _PYTHON):
                return prefix
            if real == program:
                if not program.is_symlink():
                    return None
                real = Path(os.path.normpath(program.parent / program.readlink()))
                self.toolchains.links[str(program)] = str(real)
            program = real
        return None

    def _add(self, prefix: Path, kind: _Kind) -> bool:
        """Show the parts of an installation, if it is one, under its given and its real path."""
        try:
            if not (self._is_allowed(prefix) and self._is_allowed(real := prefix.resolve())):
                return False
            is_real = any(map(_is_own, real.glob(kind.program))) and any(map(_is_own, real.glob(kind.marker)))
        except (OSError, RuntimeError, ValueError):  # a loop of links, or no name that a file can have
            return False
        if is_real and not _is_system(prefix):
            for place in (real / part for part in kind.parts):
                if place.exists() and not place.is_symlink():
                    self.toolchains.mounts |= {str(prefix / place.name): place, str(place): place}
        return is_real

    def _is_shown(self, program: Path) -> bool:
        """Show a single program; a script would need other files."""
        try:
            real = program.resolve()
            if not (self._is_allowed(program) and self._is_allowed(real) and _is_own(real)):
                return False
            with real.open("rb") as file:
                is_program = file.read(4) == b"\x7fELF"
        except (OSError, RuntimeError):
            return False
        if is_program and not _is_system(program):
            self.toolchains.mounts[str(program)] = real
        return is_program

    def _add_to_path(self, directory: Path, name: str) -> None:
        if directory not in self.toolchains.path and directory.parent != Path("/usr"):
            self.toolchains.path.append(directory)
            self.toolchains.names.append(name)

    def add_aliases(self) -> None:
        # Scripts of an environment, and its `.pth` files, contain the workspace's path on the host.
        mounts = [*_OCCUPIED, *map(Path, self.toolchains.mounts)]
        above = [*mounts, *map(Path, TMPFS)]
        links = dict(self.toolchains.links)
        if self.toolchains.environment or any(map(self._is_inside, self.toolchains.path)):
            links |= {str(root): WORKSPACE for root in self._workspaces}
        self.toolchains.links = {
            link: target
            for link, target in links.items()
            if not any(map(Path(link).is_relative_to, mounts)) and not any(path.is_relative_to(link) for path in above)
        }

    def _is_allowed(self, path: Path) -> bool:
        # Decided before the path is opened: a stranger could name the server of an automounter.
        return (
            path.is_absolute()
            and ".." not in path.parts
            and any(map(path.is_relative_to, self._roots))
            and not self._is_inside(path)
            and self._is_public(path)
        )

    def _is_inside(self, path: Path) -> bool:
        return any(map(path.is_relative_to, self._workspaces))

    def _is_public(self, path: Path) -> bool:
        is_private = any(path.is_relative_to(home / name) for home in self._homes for name in _PRIVATE)
        return not is_private and not any(place.is_relative_to(path) for place in (*self._homes, *self._workspaces))


def _is_system(path: Path) -> bool:
    return any(map(path.is_relative_to, _SYSTEM))


def _variable(name: str) -> Path | None:
    path = Path(os.environ.get(name, ""))
    return path if path.is_absolute() and ".." not in path.parts else None


def _is_own(path: Path) -> bool:
    status = path.lstat()
    is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return is_plain and status.st_uid in {0, os.geteuid()}


def _read_text(path: Path) -> str:
    # A stranger may have put a pipe or a link there.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return file.read(_MAX_FILE_BYTES).decode(errors="replace") if is_file else ""
    except (OSError, ValueError):
        return ""


def _pick(folder: Path, version: str, prefix: str = "") -> Path | None:
    """Return the newest installation of a version such as 3.12."""
    wanted = _VERSION.fullmatch(version)
    if wanted is None:
        return None
    names = (f"{prefix}{wanted[1]}", f"{prefix}{wanted[1]}.", f"{prefix}{wanted[1]}-")
    try:
        found = [entry for entry in folder.iterdir() if entry.name == names[0] or entry.name.startswith(names[1:])]
    except OSError:
        return None
    return max(found, key=lambda entry: [int(digits) for digits in re.findall(r"[0-9]+", entry.name)], default=None)
