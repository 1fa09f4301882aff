"""Programs that run commands and search files, in this library and in the originals.

Each takes a directory to search and the sizes of outputs in MB. It prints milliseconds by the clock: the median of
twenty commands, of each output once, of seven searches; and the memory that the outputs added, in MiB. One of them only
reads the terminal and keeps nothing.
"""

from __future__ import annotations

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
sizes = [*filter(None, sys.argv[2].split(','))]
def output(size):
    return f'yes %s | head -c {size}000000' % ('0123456789' * 5)
done = {}
def measure(execute, find):
    execute('true')
    done['command'] = timed(lambda: execute('true'), 20) * 1000
    before = rss()
    for size in sizes:
        done[f'{size} MB'] = timed(lambda: execute(output(size)), 1) * 1000
        done['memory'] = (rss() - before) / 1024
    if find is not None:
        done['find'] = timed(lambda: find('class Popen'), 7) * 1000
    print(json.dumps(done), file=sys.stderr)
"""

_OURS = (
    _COMMON
    + """
import asyncio
from pathlib import Path
from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.terminals.output import OutputLogs
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools
from agent_runtime.workspace.files import Workspace
sandbox = pick_sandbox('auto', SandboxSettings())
with tempfile.TemporaryDirectory() as work_dir, Workspace(Path(sys.argv[1])) as workspace, asyncio.Runner() as runner:
    shell, search = ShellTools(sandbox, Path(work_dir), OutputLogs()), SearchTools(workspace, sandbox)
    measure(
        lambda command: runner.run(shell.execute('main', command, 300)),
        lambda pattern: runner.run(search.find(pattern)),
    )
    runner.run(shell.close())
    search.close()
"""
)

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
    measure(lambda command: manager.execute('main', command, 300), finder.find)
    manager.cleanup_all()
"""
)

_PYGENT = (
    _COMMON
    + """
from pygent.runtime import Runtime
with tempfile.TemporaryDirectory() as work_dir:
    runtime = Runtime(use_docker=False, workspace=work_dir)
    measure(lambda command: runtime.bash(command, 300), None)
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
    measure(lambda command: tools.execute_command(command, 300), CodingTools(sys.argv[1]).search_files)
"""
)
_BARE = (
    _COMMON
    + """
import os, pty
def execute(command):
    child, terminal = pty.fork()
    if child == 0:
        os.execvp('bash', ['bash', '-c', f'stty -onlcr; {command}'])
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the other side is closed
    os.waitpid(child, 0)
    os.close(terminal)
print(json.dumps({f'{size} MB': timed(lambda: execute(output(size)), 1) * 1000 for size in sizes}), file=sys.stderr)
"""
)
TOOLS = {
    "a bare program on a terminal": _BARE,
    "ours": _OURS,
    "codepilot": _CODEPILOT,
    "pygent": _PYGENT,
    "llm-coding-agent": _LLM_CODING_AGENT,
}
