"""§13, §14 and §22: the control blocks that the document shows run as they are written there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import AsyncRuntime, Sandbox, SandboxSettings, Status, ToolReturned, pick_sandbox
from tests.agent_runtime.seed.parts import Model, reply

Start = Callable[..., tuple[AsyncRuntime, Model]]

FILES = {
    "config.py": "import json\n" * 12,
    "utils.py": "def slugify(text):\n    return text\n",
    "requirements.txt": "",
    "routes/profile.py": "".join(f"line{number} = validate_email({number})\n" for number in range(1, 71)),
    "utils/validators.py": "# TODO: accept plus signs\n\n\nclass MailHandler:\n    pass\n",
    "tests/test_config.py": "import torch\n",
}
PROGRAMS = {
    "uvicorn": "#!/bin/sh\necho 'Uvicorn running on http://0.0.0.0:8000'\nexec sleep 60\n",
    "pytest": "#!/bin/sh\necho '3 passed'\n",
    "pip": "#!/bin/sh\necho 'Successfully installed'\n",
}
STEPS = [
    reply(
        "# Reading before editing - exact line numbers required.\n"
        'read_file("routes/profile.py", start_line=35, end_line=65)\n'
        'read_file("config.py")\nread_file("utils.py")\nread_file("tests/test_config.py")'
    ),
    reply(
        r"""find(pattern=r'validate_email\(', scope='file', target='routes/profile.py')
find(pattern='TODO:', scope='files', target=['routes/profile.py', 'utils/validators.py'])
find(pattern=r'class \w+Handler', scope='codebase', include='*.py')
find(pattern='import torch', scope='codebase', include='tests/**')"""
    ),
    reply(
        "# Simple single-line edit, no read needed we know the line.\n"
        'write_file("config.py", start_line=12, end_line=12, mode="edit")\n'
        "# Fix L42-48 (error handling) and L55 (regex) in one step no drift\n"
        'write_file("routes/profile.py", mode="multi_edit", edits=[(42, 48), (55, 55)])',
        "TIMEOUT = 30",
        "# ... replacement for L42-48 ...",
        "# ... replacement for L55 ...",
    ),
    reply(
        'execute("main", "pytest tests/ -v", 30)\nexecute("main", "pip install -r requirements.txt", 10)\n'
        "# Start server in its own terminal session, verify startup logs within 4s\n"
        'execute("server", "uvicorn app.main:app --port 8000", 4, new_terminal=True)'
    ),
    reply(
        'execute("main", "pytest tests/test_api.py -v", 30)\nsend_input("server", "\\x03", 5)\n'
        'execute("main", "read answer; read name; echo $answer $name", 1)\n'
        'send_input("main", "yes\\n", 5)    # confirm a CLI prompt\n'
        'send_input("main", "admin\\n", 5)  # enter a username\n'
        'read_output("main", 30)   # wait up to 30 more seconds\n'
        'terminate_terminal("server")   # hard-kills the terminal session as a last resort'
    ),
]


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    """Programs of the names that the document uses, in place of the real ones."""
    for name, text in PROGRAMS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    return pick_sandbox("local", SandboxSettings(path=(tmp_path / "bin",)))


async def test_the_examples_of_the_tools_run_as_they_are_written(start: Start, place: Path) -> None:
    for name, text in FILES.items():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    runtime, model = start(*STEPS, reply(done="Done."))
    assert (await runtime.run("Try all of it")).status is Status.FINISHED
    calls = [event for event in runtime.session.events if isinstance(event, ToolReturned)]
    assert [(call.tool, call.args) for call in calls if not call.ok] == []
    assert len(calls) == 20
    read, found, _, ran, ended = model.read[1:6]
    assert "65 | line65" in read
    assert "70 match(es) (showing 50 of 70)" in found
    assert found.count("1 match(es)") == 3
    assert (place / "config.py").read_text().endswith("TIMEOUT = 30\n")
    assert len((place / "routes/profile.py").read_text().splitlines()) == 70 - 6
    assert "status: running" in ran
    assert "yes admin" in ended
