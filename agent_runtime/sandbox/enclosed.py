"""One program alone: a sandbox in which there is nothing but its file and the libraries that it loads.

It is stricter than a `Sandbox`, for programs that compute and speak over their standard streams only: an empty,
read-only root without `/proc`, `/dev`, `/tmp` or home, and no network, environment, capabilities or other processes.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from agent_runtime.sandbox.bubblewrap import namespaces, shared_files
from agent_runtime.sandbox.docker import Docker
from agent_runtime.sandbox.libraries import libraries_of
from agent_runtime.sandbox.machine import find
from agent_runtime.sandbox.protocol import Sandbox

_LIMITS = (f"--as={4 * 1024**3}", "--nproc=64", "--fsize=0", "--nofile=64", "--core=0")
"""As prlimit(1) takes them; address space in bytes. Set inside, where the processes are this sandbox's own."""
_INSIDE = "/program"


def enclosing(sandbox: Sandbox) -> Callable[[Path], Path] | None:
    """What writes such a program by the means of `sandbox`; None for one that protects nothing, or cannot here."""
    if isinstance(sandbox, Docker):
        return sandbox.enclosed if sys.platform == "linux" else None  # containers run programs of Linux
    return enclosed if sandbox.level == "bubblewrap" else None


def enclosed(program: Path) -> Path:
    """Write a program that starts `program` alone in a sandbox, with the arguments and standard streams it is given.

    What it starts dies with the thread that started it. The file goes with this process; for one program it is always
    the same.

    Raises:
        SandboxError: `program`, or one that the sandbox is made with, cannot be started here.
    """
    name = f"enclosed-{program.name}-{hashlib.sha256(bytes(program)).hexdigest()[:8]}"
    script = shared_files() / name
    if not script.exists():
        # Another thread may start it at any moment: it is whole from the first.
        half = script.with_name(f"{name}-{secrets.token_hex(4)}")
        half.write_text(f'#!{find("sh", "dash")}\nexec {shlex.join(_command(program))} "$@"{_opening_filter()}\n')
        half.chmod(0o700)
        half.replace(script)
    return script


def _command(program: Path) -> list[str]:
    limiter = find("prlimit", "util-linux")
    libraries = sorted(libraries_of(program) | libraries_of(Path(limiter)))
    options = [*namespaces(), "--new-session", "--clearenv", "--ro-bind", str(program), _INSIDE]
    for place in (limiter, *libraries):
        options += ["--ro-bind", place, place]
    # The loader's own table of libraries stays outside.
    directories = sorted({str(Path(library).parent) for library in libraries})
    options += ["--setenv", "LD_LIBRARY_PATH", ":".join(directories), "--remount-ro", "/", "--chdir", "/"]
    if _opening_filter():
        options += ["--seccomp", "9"]
    return [find("bwrap", "bubblewrap"), *options, "--", limiter, *_LIMITS, "--", _INSIDE]


def _opening_filter() -> str:
    """What to add to a shell's command so that bubblewrap finds the filter at descriptor 9."""
    place = shared_files() / "filter"
    return f" 9<{shlex.quote(str(place))}" if place.exists() else ""
