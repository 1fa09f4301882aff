"""Programs that run 300 steps with a model that takes no time, in this library and in the originals.

Each prints the processor time of a step around the 30th and the 300th, in ms: the median of the twenty before; and what
the process took up to the end of its first step. A step reads 20 lines of a file. The session is in memory. The time is
that of the agent's process.
"""

_COMMON = """
import json, os, statistics, sys, tempfile, time
from pathlib import Path
work = tempfile.mkdtemp()
Path(work, 'a.py').write_text(''.join(f'value_{n} = {n}  # the value that has number {n}\\n' for n in range(40)))
stamps = []
def last():
    stamps.append(time.process_time())
    return len(stamps) > 300
def tell():
    taken = [later - before for before, later in zip(stamps, stamps[1:])]
    told = {f'step {n}': statistics.median(taken[n - 20:n]) * 1000 for n in (30, 300)}
    told['start'] = stamps[1] * 1000
    print(json.dumps(told), file=sys.stderr)
"""

_OURS = (
    _COMMON
    + """
import asyncio
from agent_runtime import (Agent, AsyncRuntime, CallChunk, InMemorySession, Policy, ReplyEnd, ReplyStart, RunLimits,
    SandboxSettings, Status, TextChunk, Usage, pick_sandbox)
class Model:
    model, sees_images = 'none', False
    tool_calling = 'supported' if BLOCKS else 'preferred'
    async def reply(self, request):
        end, number = last(), len(stamps)
        yield ReplyStart(attempt=1)
        if end:
            yield TextChunk(text='```completion\\nDone.\\n```\\n' if BLOCKS else 'Done.')
        elif BLOCKS:
            yield TextChunk(text=f'```codepilot\\nread_file("a.py", 1, 20)  # {number}\\n```\\n')
        else:
            yield TextChunk(text=f'Step {number}.')
            arguments = '{"path": "a.py", "start_line": 1, "end_line": 20}'
            yield CallChunk(index=0, id=f'c{number}', name='read_file', arguments=arguments)
        yield ReplyEnd(stop='stop', usage=Usage(requests=1))
    async def close(self):
        pass
async def main():
    limits = RunLimits(max_steps=301, max_repeated_calls=301)
    agent = Agent(provider=Model(), work_dir=Path(work), sandbox=pick_sandbox('auto', SandboxSettings()),
        policy=Policy(limits=limits))
    async with AsyncRuntime(agent, InMemorySession()) as runtime:
        assert (await runtime.run('read')).status is Status.FINISHED
asyncio.run(main())
tell()
"""
)

_CODEPILOT = (
    _COMMON
    + """
import asyncio
from types import SimpleNamespace
# It loads a table of tokens from the network when it is imported.
sys.modules['tiktoken'] = SimpleNamespace(get_encoding=lambda _: SimpleNamespace(encode=str.split))
os.environ['KEY'] = 'none'
from codepilot.engine.runtime import AsyncRuntime
class Model:
    async def chat(self, messages, system, temperature, max_tokens):
        if last():
            return '```completion\\nDone.\\n```\\n'
        return f'```codepilot\\nread_file("a.py", 1, 20)  # {len(stamps)}\\n```\\n'
async def main():
    agent = Path(tempfile.mkdtemp(), 'agent.yaml')
    agent.write_text(json.dumps({'agent': {'name': 'bench', 'role': 'r', 'system_prompt': 'p',
        'model': {'provider': 'anthropic', 'name': 'none', 'api_key_env': 'KEY'},
        'runtime': {'work_dir': work, 'max_steps': 302}, 'tools': [{'name': 'read_file'}]}}))
    runtime = AsyncRuntime(str(agent))
    runtime.provider = Model()
    runtime._schedule_cache_timer = lambda: None
    await runtime.run('read')
    runtime._terminal_manager.cleanup_all()
asyncio.run(main())
tell()
"""
)

_PYGENT = (
    _COMMON
    + """
from types import SimpleNamespace
from pygent import Agent, tools
from pygent.openai_compat import Message, ToolCall, ToolCallFunction
from pygent.runtime import Runtime
def read(rt, path, start, end):
    return '\\n'.join(Path(rt.base_dir, path).read_text().splitlines()[start - 1:end])
tools.register_tool('read', 'Read lines of a file.', {'type': 'object', 'properties': {}}, read)
class Model:
    def chat(self, messages, model, tools):
        name = 'stop' if last() else 'read'
        arguments = '{}' if name == 'stop' else '{"path": "a.py", "start": 1, "end": 20}'
        call = ToolCall(f'c{len(stamps)}', 'function', ToolCallFunction(name, arguments))
        return Message('assistant', f'Step {len(stamps)}.', [call])
agent = Agent(runtime=Runtime(use_docker=False, workspace=work), model=Model())
agent.run_until_stop('read', max_steps=302)
tell()
"""
)

_LLM_CODING_AGENT = (
    _COMMON
    + """
import llm
from llm_coding_agent import CodingAgent
class Model(llm.Model):
    model_id, can_stream, supports_tools = 'none', True, True
    def execute(self, prompt, stream, response, conversation):
        end, number = last(), len(stamps)
        response.set_usage(input=100, output=10)
        yield f'Step {number}.'
        if not end:
            arguments = {'path': 'a.py', 'offset': 0, 'limit': 20}
            response.add_tool_call(
                llm.ToolCall(name='CodingTools_read_file', arguments=arguments, tool_call_id=f'c{number}'))
CodingAgent(Model(), root=work, approve=True, chain_limit=302).run('read')
tell()
"""
)

STEPS = {
    "ours": "BLOCKS = False" + _OURS,
    "ours, control blocks": "BLOCKS = True" + _OURS,
    "codepilot": _CODEPILOT,
    "pygent": _PYGENT,
    "llm-coding-agent": _LLM_CODING_AGENT,
}
