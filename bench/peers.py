"""The same measurements in agent libraries that a user could pick instead, each in an environment of its own.

Usage: bench/peers.py ENVIRONMENTS STDLIB; README.md has the commands that make both.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

_COMMON = """
import json, resource, sys, tempfile, time
def rss():
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) for line in status if line.startswith('VmHWM'))
def timed(call, times):
    taken = []
    for _ in range(times):
        begun = time.perf_counter(); call(); taken.append(time.perf_counter() - begun)
    return sorted(taken)[times // 2]
done = {}
def measure(execute, find, stdlib):
    done.update({'command': timed(lambda: execute('true'), 20) * 1000})
    before = rss()
    for size in (10, 50):
        done[f'{size} MB'] = timed(lambda: execute(f'yes %s | head -c {size}000000' % ('0123456789' * 5)), 1)
    done['memory'] = (rss() - before) / 1024
    if find is not None:
        done['find'] = timed(lambda: find('class Popen'), 7) * 1000
    print(json.dumps(done), file=sys.stderr)
"""

_CODEPILOT = (
    _COMMON
    + """
from types import SimpleNamespace
# It loads a table of tokens from the network when it is imported.
sys.modules['tiktoken'] = SimpleNamespace(get_encoding=lambda _: SimpleNamespace(encode=str.split))
from codepilot.tools import search, terminal
Quiet = SimpleNamespace(emit=lambda *_, **__: None)
def runtime(work_dir):
    config = SimpleNamespace(runtime=SimpleNamespace(work_dir=work_dir))
    return SimpleNamespace(config=config, hooks=Quiet, _tool_config=lambda _: {'max_output_chars': 10000},
        _append_execution=lambda _: None)
with tempfile.TemporaryDirectory() as work_dir:
    manager = terminal.TerminalManager(runtime(work_dir)); manager.start_default_terminal()
    name = next(name for name in vars(search) if name.lower().startswith(('search', 'find')) and isinstance(
        getattr(search, name), type))
    finder = getattr(search, name)(runtime(sys.argv[1]))
    measure(lambda command: manager.execute('main', command, 300), finder.find, sys.argv[1])
    manager.cleanup_all()
"""
)

_PYGENT = (
    _COMMON
    + """
from pygent.runtime import Runtime
with tempfile.TemporaryDirectory() as work_dir:
    runtime = Runtime(use_docker=False, workspace=work_dir)
    measure(lambda command: runtime.bash(command, 300), None, sys.argv[1])
"""
)

_LLM_CODING_AGENT = (
    _COMMON
    + """
from pathlib import Path
from llm_coding_agent.tools import CodingTools
lines = 'def f{i}(a, b=1):', '    x{i} = a + b * {i}', '    if x{i} > 3:', '        return [x{i}]', '    return 1', ''
function = ''.join(line + '\\n' for line in lines)
with tempfile.TemporaryDirectory() as work_dir:
    tools = CodingTools(work_dir)
    Path(work_dir, 'a.py').write_text(''.join(function.format(i=i) for i in range(833)))
    turns = iter(range(833))
    def edit():
        i = next(turns)
        answer = tools.edit_file('a.py', f'def f{i}(a, b=1):\\n', f'def f{i}(a, b=1):\\n    # {i}\\n')
        assert f'# {i}' in Path(work_dir, 'a.py').read_text(), answer
    done['edit'] = timed(edit, 200) * 1000
    measure(lambda command: tools.execute_command(command, 300), CodingTools(sys.argv[1]).search_files, sys.argv[1])
"""
)
_QUIET = "import tiktoken; tiktoken.get_encoding = lambda _: None\n"
"""Its table of tokens comes from the network, which is no part of an import."""
_IMPORTS = {
    "codepilot": f"{_QUIET}import codepilot",
    "pygent": "import pygent",
    "llm-coding-agent": "import llm_coding_agent",
}
_ROUNDS = 7
_CODEPILOT_SAVES = """
import json, tempfile, time
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
print(json.dumps(told))
"""
_OUR_SAVES = """
import asyncio, json, tempfile, time
from agent_runtime import FileSession
from agent_runtime.core.events import Told
told = {}
async def saves(directory, length):
    session = FileSession(str(length), "bench", directory)
    for n in range(length):
        session.append(Told(role="user", text="x" * (600 if n % 2 else 1500)))
    await session.commit()
    taken = []
    for _ in range(20):
        begun = time.process_time()
        session.append(Told(role="assistant", text="x" * 600)); session.append(Told(role="user", text="x" * 1500))
        await session.commit()
        taken.append(time.process_time() - begun)
    session.close()
    return min(taken) * 1000
with tempfile.TemporaryDirectory() as directory:
    for length in (100, 1000, 10000):
        told[f"save at {length:,}"] = asyncio.run(saves(directory, length))
print(json.dumps(told))
"""
PEERS = {
    "codepilot": ("codepilot-ai 0.9.1", _CODEPILOT),
    "pygent": ("pygent 0.1.26", _PYGENT),
    "llm-coding-agent": ("llm-coding-agent 0.1a0", _LLM_CODING_AGENT),
}


def measure(environments: Path, stdlib: Path) -> dict[str, dict[str, float]]:
    """What each peer with an environment in a directory takes: commands, searches, edits in ms; outputs in s; MiB."""
    answers: dict[str, dict[str, float]] = {}
    for name, (title, program) in PEERS.items():
        python = environments / name / "bin" / "python"
        if not python.exists():
            continue
        done = subprocess.run(
            [python, "-c", program, str(stdlib)], capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode != 0:
            sys.stderr.write(f"{title} failed: {done.stderr[-2000:]}\n")
            continue
        answers[title] = json.loads(done.stderr.splitlines()[-1])
    return answers


def measure_processor(environments: Path) -> dict[str, dict[str, float]]:
    """Processor time in ms, ours among them: imports in rounds one after the other, and saving a session of a length.

    Processor time is what a busy machine changes least; of the rounds, the least counts.
    """
    ours = Path(sys.executable)
    pythons = {name: environments / name / "bin" / "python" for name in PEERS}
    programs = [("ours", ours, "import agent_runtime")]
    programs += [(PEERS[name][0], python, _IMPORTS[name]) for name, python in pythons.items() if python.exists()]
    bare = dict.fromkeys((title for title, _, _ in programs), float("inf"))
    found = dict(bare)
    for _ in range(_ROUNDS):
        for title, python, program in programs:
            bare[title] = min(bare[title], _processor_seconds(python, "pass"))
            found[title] = min(found[title], _processor_seconds(python, program))
    answers = {title: {"import": (found[title] - bare[title]) * 1000} for title in found}
    saves = [("ours", ours, _OUR_SAVES), (PEERS["codepilot"][0], pythons["codepilot"], _QUIET + _CODEPILOT_SAVES)]
    for title, python, program in saves:
        if python.exists():
            done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=300, check=True)
            answers[title] |= json.loads(done.stdout.splitlines()[-1])
    return answers


def _processor_seconds(python: Path, program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", program], capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    where = Path(sys.argv[1])
    print(json.dumps(measure_processor(where), indent=2))
    print(json.dumps(measure(where, Path(sys.argv[2])), indent=2))
