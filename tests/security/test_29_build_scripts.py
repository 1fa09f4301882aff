"""Threat 29: repository scripts, run by setup and tests, find no secrets.

The complete bot runs here, with secrets in every real location; the model runs the repository's setup commands,
Makefile and test configuration.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import ToolReturned
from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import FIX, acting, staged

SECRET = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"

# What it does: looks at variables, processes and files, asks the network, and says what it found.
_SNOOP = r"""
import glob, os, socket
WORDS = ["TERCES", "DETCENNOC", "DEVLOSER"]  # backwards, for it finds itself
PLACES = '''/proc/*/environ /proc/*/cmdline /proc/*/fd/* /proc/*/root/* /root/.* /home/*/.* /home/*/* /etc/shadow
/etc/gitconfig /run/** /var/** /tmp/** /mnt/** /opt/** /srv/** /workspace/../work*/**'''.split()
seen = [f"{name}={value}" for name, value in os.environ.items()]
for place in PLACES:
    for path in glob.glob(place, recursive=True, include_hidden=True):
        seen.append(path)
        try:
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    seen.append(file.read(100_000).decode(errors="replace"))
        except OSError as error:
            seen.append(str(error))
for address in (("127.0.0.1", PORT), ("169.254.169.254", 80), ("192.0.2.1", 443)):
    try:
        socket.create_connection(address, 2)
        seen.append(WORDS[1][::-1])
    except OSError as error:
        seen.append(str(error))
try:
    socket.getaddrinfo("example.org", 443)
    seen.append(WORDS[2][::-1])
except OSError as error:
    seen.append(str(error))
text = "\n".join(seen)
print("looked at", len(seen), "things:", [word for word in WORDS if word[::-1] in text])
"""
_LOOK = "set -o pipefail; make | cat && python3 conftest.py"


@pytest.mark.skipif(not Path("/usr/bin/make").exists(), reason="make is not installed")
async def test_a_makefile_a_test_configuration_and_a_setup_find_nothing(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    (tmp_path / "app.pem").write_text(SECRET)
    snoop = _SNOOP.replace("PORT", hub.url.rpartition(":")[2]).replace("TERCES", SECRET[::-1])
    files = {
        "calc.py": "def add(a, b):\n    return a + b + 1\n",
        "check.sh": "true\n",
        "conftest.py": snoop,
        "Makefile": "all:\n\tpython3 conftest.py\n",
        ".github/codepilot.yml": "setup: [python3 conftest.py > found-by-setup; cat found-by-setup]\n",
    }
    reply = acting(f'execute("main", {_LOOK!r}, timeout=60)\nexecute("main", "cat found-by-setup")')
    async with staged(hub, tmp_path, [reply, FIX], files=files) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    values = [each.value for each in stage.events if isinstance(each, ToolReturned)]
    outputs = [str(value["output"]) for value in values if isinstance(value, dict) and "output" in value]
    said = [line for output in outputs for line in output.splitlines() if line.startswith("looked at")]
    assert len(said) == 3, outputs
    for line in said:
        assert line.endswith("things: []")
        assert int(line.split()[2]) > 20, "it looked"
    assert SECRET not in "".join(outputs)
