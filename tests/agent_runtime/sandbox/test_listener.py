from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import asyncio, sys, tempfile
from pathlib import Path
sys.path[:0] = sys.argv[1:]
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.egress import listen_inside
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.terminals.keeper import Keeper, argv

async def main(place):
    keeper = Keeper(Bubblewrap(SandboxSettings()).launch(argv(["bash"]), workspace=Path(place), first=True))
    await keeper.ready()
    with listen_inside(keeper.network) as listener:
        print(listener.getsockname(), listener.gettimeout())
    await keeper.close()

with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(place))
"""


def test_an_ordinary_user_can_open_the_network_of_a_sandbox_of_theirs() -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
    root = Path(__file__).parents[3]
    if python is None or subprocess.run([*user, "ls", str(root)], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Python of the system, or the source cannot be read by other users")
    packages = [path for path in sys.path if "site-packages" in path]
    done = subprocess.run(
        [*user, python, "-c", _PROGRAM, str(root), *packages], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "('127.0.0.1', 3128) 0.0\n", done.stderr
