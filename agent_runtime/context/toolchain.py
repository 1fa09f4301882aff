"""Find the programs that the agent has in its sandbox, once before the first step."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_runtime.processes.spawn import end, started
from agent_runtime.sandbox.protocol import Sandbox

_SECONDS = 10.0
_MOST_BYTES = 10_000
_ASK = r"""
# A program counts when it says its version: one whose interpreter or library is not in the sandbox is found, too.
export GOTOOLCHAIN=local
limit=$(command -v timeout) && limit="$limit 5"
asked=()
for program in python3 python pytest uv node npm go cargo make git gcc; do
  path=$(command -v "$program") || continue
  version=--version
  [ "$program" = go ] && version=version
  $limit "$path" $version </dev/null >/dev/null 2>&1 &
  asked+=("$program:$!")
done
for program in "${asked[@]}"; do
  wait "${program#*:}" && printf '%s ' "${program%:*}"
done
# -I: a file of the workspace is not taken for the module.
printf '\n'; python3 -I -c 'import platform; print(platform.python_version())' 2>/dev/null
"""


async def toolchain(sandbox: Sandbox, workspace: Path) -> str:
    """One line for the orientation, e.g. `Programs: python3 (3.11.7) pytest make git`; empty when nothing answers.

    Raises:
        SandboxError: the sandbox cannot start programs at all.
    """
    launch = sandbox.launch(["bash", "-c", _ASK], workspace=workspace)
    process = await started(launch.argv, env=launch.env)
    if process.stdout is None:
        raise AssertionError("it is a pipe")
    answer = b""
    try:
        async with asyncio.timeout(_SECONDS):
            await process.stdout.readexactly(_MOST_BYTES)  # only a program of the workspace says so much
    except asyncio.IncompleteReadError as error:
        answer = error.partial
    except TimeoutError:
        pass  # a courtesy is not worth waiting for
    finally:
        end(process)
        await process.communicate()  # `wait` never returns as long as reading stands still
    programs, _, version = answer.decode(errors="replace").strip().partition("\n")
    python = f"python3 ({version.strip()})" if version else "python3"
    return f"Programs: {programs.strip().replace('python3', python, 1)}" if programs else ""
