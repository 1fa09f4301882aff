"""Programs that save one more step of a session, in this library and in CodePilot.

Each prints processor time in ms, the least of a few saves.
"""

from __future__ import annotations

_CODEPILOT = """
import tiktoken; tiktoken.get_encoding = lambda _: None
import json, sys, tempfile, time
from pathlib import Path
from codepilot.core.session import FileSession
told = {}
with tempfile.TemporaryDirectory() as directory:
    for length in (100, 1000, 10000):
        session = FileSession(str(length), "bench", Path(directory))
        messages = [{"role": "user", "content": "x" * (600 if n % 2 else 1500)} for n in range(length)]
        taken = []
        for _ in range(5):
            begun = time.process_time(); session.save(messages); taken.append(time.process_time() - begun)
        told[f"save at {length:,}"] = min(taken) * 1000
print(json.dumps(told), file=sys.stderr)
"""
_OURS = """
import asyncio, json, sys, tempfile, time
from agent_runtime import FileSession
from agent_runtime.core.events import Imported
told = {}
async def saves(directory, length):
    session = FileSession(str(length), "bench", directory)
    for n in range(length):
        session.append(Imported(role="user", text="x" * (600 if n % 2 else 1500)))
    await session.commit()
    taken = []
    for _ in range(20):
        begun = time.process_time()
        session.append(Imported(role="assistant", text="x" * 600))
        session.append(Imported(role="user", text="x" * 1500))
        await session.commit()
        taken.append(time.process_time() - begun)
    session.close()
    return min(taken) * 1000
with tempfile.TemporaryDirectory() as directory:
    for length in (100, 1000, 10000):
        told[f"save at {length:,}"] = asyncio.run(saves(directory, length))
print(json.dumps(told), file=sys.stderr)
"""

SESSIONS = {"ours": _OURS, "codepilot": _CODEPILOT}
