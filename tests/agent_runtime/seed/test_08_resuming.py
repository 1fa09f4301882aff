"""§8: a later process with the same session id goes on where the earlier one left off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agent_runtime import FileSession, Runtime
from tests.agent_runtime.seed.parts import reply, write_agent_file
from tests.source_files import ROOT

PROCESS = """
import sys
from agent_runtime import Runtime
runtime = Runtime("agent.yaml", session="file", session_id="ecommerce-api", quiet=True)
print(len(runtime.messages), runtime.run(sys.argv[1]))
"""


def test_another_process_picks_up_where_the_first_left_off(tmp_path: Path) -> None:
    write_agent_file(tmp_path, reply(done="Endpoints are there."))
    assert _ran("Create the endpoints", tmp_path) == "0 Endpoints are there.\n"
    write_agent_file(tmp_path, reply(done="So are the migrations."))
    assert _ran("Add migrations", tmp_path) == "2 So are the migrations.\n"
    session = FileSession("ecommerce-api", session_dir=tmp_path / ".codepilot" / "sessions")
    assert [message["content"].splitlines()[:2] for message in session.load() if message["role"] == "user"] == [
        ["[Task 1]", "Create the endpoints"],
        ["[Task 2]", "Add migrations"],
    ]


def test_sessions_are_listed_and_looked_at_without_being_opened(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    with Runtime(
        write_agent_file(tmp_path, reply(done="Done.")), "file", session_id="shop", session_dir=folder, quiet=True
    ) as runtime:
        runtime.run("Do it")
        asked = FileSession(session_id="_", agent_name="_", session_dir=folder)
        [listed] = asked.list_sessions()
        assert (listed["session_id"], listed["messages"], listed["agent_name"]) == ("shop", 2, "Code Pilot")
        looked = FileSession(session_id="shop", agent_name="Code Pilot", session_dir=folder)
        metadata = looked.metadata()
        assert metadata is not None
        assert metadata["updated_at"] >= metadata["created_at"] > 1_700_000_000
        assert looked.exists()
        assert looked.path.is_file()
    nothing = FileSession(session_id="nothing", agent_name="_", session_dir=folder)
    assert nothing.metadata() is None
    assert not nothing.exists()


def _ran(task: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROCESS, task],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
