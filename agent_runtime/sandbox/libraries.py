"""Find the files that a program is loaded from."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

from agent_runtime.core.errors import SandboxError

_LOADED = re.compile(r"^\s*(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)


@functools.cache
def libraries_of(program: Path) -> frozenset[str]:
    """The absolute paths of the files that a program is loaded from, as the loader says (ld.so(8)).

    Raises:
        SandboxError: it cannot be started.
    """
    try:
        # A program without libraries gets no loader, and answers for itself.
        traced = subprocess.run(
            [program, "--version"],
            env={"LD_TRACE_LOADED_OBJECTS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{program} cannot be started ({error}); install it again.") from error
    return frozenset(_LOADED.findall(traced.stdout))
