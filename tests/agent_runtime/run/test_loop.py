"""The loop with a real parser and interpreter, a scripted model, and recording tools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, cast

import pytest
from typing_extensions import override

from agent_runtime.context.conversation import Conversation
from agent_runtime.context.transcript import MemorySettings, render_messages
from agent_runtime.core.errors import ScriptError, ToolError
from agent_runtime.core.events import (
    CompletionWithdrawn,
    Event,
    Observed,
    Replied,
    Started,
    Streamed,
    ToolReturned,
)
from agent_runtime.core.values import Outcome, Status, Task, ToolResult, Usage
from agent_runtime.policy.policy import CallFacts, Policy, RunLimits
from agent_runtime.providers.scripted import ScriptedProvider, ScriptedReply
from agent_runtime.run.approvals import Gate
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.loop import Calls, Loop, clip, clip_value
from agent_runtime.run.state import RunState
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.tool import CallPlan, Registry, ToolFamily
from agent_runtime.transports.blocks import BlockTransport

READ = '```codepilot\nread_file("a.txt")\n```\n'
WRITE = '```codepilot\nwrite_file("a.txt")\n```\n```text\nnew\n```\n'
GREEN = '```codepilot\nexecute("main", "true", check=True)\n```\n'
RED = '```codepilot\nprint("before")\nexecute("main", "false", check=True)\nprint("never")\n```\n'
DONE = "```completion\nDone.\n```\n"


class Diary(ToolFamily):
    """Tools that only record their calls."""

    value_types: ClassVar[dict[str, str]] = {"read_file": "str", "write_file": "None", "execute": "int"}
    labels: ClassVar[dict[str, str]] = {"execute": "Running `{command}`"}

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.transport = BlockTransport()

    def may_differ(self) -> bool:
        return True

    def report_external_changes(self) -> str:
        return ""

    def end_step(self) -> str:
        return ""

    def begin_step(self) -> None:
        pass

    def resume_step(self, state: Mapping[str, Any]) -> None:
        raise AssertionError("nothing pauses here")

    def read_file(self, path: str) -> ToolResult:
        """Read a file."""
        self.entries.append(f"read {path}")
        return ToolResult(value="content", text=f"[read_file] {path}: content")

    def write_file(self, path: str, *, contents: Sequence[str] = ()) -> ToolResult:
        """Write a file."""
        self.entries.append(f"write {path}: {contents[0]!r}")
        return ToolResult(value=None, text=f"[write_file] {path}")

    @override
    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        made = partial(self.write_file, **args) if tool == "write_file" else call
        return CallPlan(facts=CallFacts(tool=tool, args=args), preview=str, apply=made)

    async def execute(self, session_id: str, command: str, *, check: bool = False) -> ToolResult:
        """Run a command."""
        self.entries.append(f"{session_id}$ {command}")
        if check and command == "false":
            raise ToolError("`false` exited with 1")
        return ToolResult(value=0, text=f"$ {command}")


@dataclass
class Bench:
    """Run a loop and keep its state for assertions."""

    diary: Diary = field(default_factory=Diary)
    session: InMemorySession = field(default_factory=InMemorySession)
    live: list[Event] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    chunk_chars: int = 5
    tools: dict[str, Callable[[], object]] = field(default_factory=dict)

    async def run(self, *replies: str | ScriptedReply, chat: bool = False, policy: Policy | None = None) -> Outcome:
        policy = policy or Policy()
        registry = Registry(self.diary.transport.adapt_tool)
        registry.add_family(self.diary)
        for name, tool in self.tools.items():
            registry.register_tool(name, tool)
        transport = self.diary.transport.open(registry, policy.limits)
        self.provider = ScriptedProvider(replies, chunk_chars=self.chunk_chars)
        state = RunState(self.session, HookSystem(self.live.append))
        conversation = Conversation(
            log=state,
            provider=self.provider,
            system="system",
            memory=MemorySettings(),
            limits=policy.limits,
            words=BlockTransport().extract_prose,
        )
        self.session.append(Started(task=Task(goal="Do it"), opening="# Task\nDo it"))
        try:
            return await Loop(
                transport=transport,
                calls=Calls(registry=registry, policy=policy, gate=Gate(state), state=state),
                files=cast("FileTools", self.diary),
                state=state,
                conversation=conversation,
                status=lambda step: f"[step {step}]",
                network_lost=lambda: "",
                limits=policy.limits,
                end_baseline=_no_baseline,
                chat=chat,
            ).run()
        finally:
            await transport.close()

    def observed(self) -> list[str]:
        return [event.text for event in self.session.events if isinstance(event, Observed)]

    def streamed(self, *, completion: bool) -> str:
        return "".join(e.text for e in self.live if isinstance(e, Streamed) and e.completion is completion)


async def _no_baseline() -> None:
    """Return nothing: no test failed before."""


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_completion_in_the_step_that_proves_the_work_ends_the_run(bench: Bench) -> None:
    outcome = await bench.run(f"Here.\n{GREEN}{DONE}")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 1)
    assert bench.diary.entries == ["main$ true"]


async def test_a_completion_above_a_failed_step_is_withdrawn_and_the_run_goes_on(bench: Bench) -> None:
    outcome = await bench.run(f"{RED}{DONE}", DONE.replace("Done.", "Half done."))
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Half done.", 2)
    [observation] = bench.observed()
    assert observation.index("before") < observation.index("`false` exited with 1") < observation.index("withdrawn")
    assert "never" not in observation
    assert any(isinstance(event, CompletionWithdrawn) for event in bench.live)
    assert bench.streamed(completion=True).strip() == "Half done."


AGAIN = "```completion\n```\n"


async def test_an_empty_completion_repeats_the_withdrawn_one(bench: Bench) -> None:
    outcome = await bench.run(f"{RED}{DONE}", f"{RED}{AGAIN}", AGAIN, f"{GREEN}{AGAIN}")
    assert (outcome.status, outcome.summary, outcome.steps) == (Status.FINISHED, "Done.", 4)
    assert bench.streamed(completion=True) == "Done.\n"  # when it counts, and not before
    assert "only in a step that acts and succeeds" in bench.observed()[2]


async def test_an_empty_completion_repeats_only_a_withdrawn_one(bench: Bench) -> None:
    outcome = await bench.run(RED, f"{GREEN}{AGAIN}")
    assert (outcome.status, outcome.summary) == (Status.FINISHED, "")


async def test_a_reply_that_comes_in_one_piece_is_read_in_several_turns(bench: Bench) -> None:
    bench.chunk_chars = 1_000_000
    assert (await bench.run("a\n" * 100_000 + DONE)).summary == "Done."
    assert max(len(event.text) for event in bench.live if isinstance(event, Streamed)) <= 64_000


async def test_a_completion_alone_finishes(bench: Bench) -> None:
    assert (await bench.run(DONE)).summary == "Done."


async def test_words_alone_are_an_answer_in_chat(bench: Bench) -> None:
    outcome = await bench.run("It is blue.", chat=True)
    assert (outcome.status, outcome.summary) == (Status.ANSWERED, "It is blue.")


async def test_words_alone_get_corrective_turns_in_a_job_and_then_end_it(bench: Bench) -> None:
    outcome = await bench.run("Let me think.", "I am thinking.", "Still.")
    assert outcome.status is Status.FORMAT_ERRORS
    # The model is told what to write instead; whoever reads the outcome is told what happened.
    assert all("```codepilot" in each for each in bench.observed())
    assert "Your reply" not in str(outcome)
    assert str(outcome) == (
        "3 replies of the model in a row did not have the expected form; the last one neither acted nor ended the "
        "task. Try again, or choose another model."
    )
    assert len(bench.observed()) == 3


async def test_a_tool_that_the_task_lacks_is_named_with_those_that_it_has(bench: Bench) -> None:
    outcome = await bench.run(*['```codepilot\nread_file("a")\nsend_mail("b")\nundo()\n```\n'] * 3)
    assert outcome.status is Status.FORMAT_ERRORS
    assert str(outcome) == (
        "The model called send_mail, undo, which this task does not have; its tools are: execute, read_file, "
        "write_file. Give a task that needs no other, or try again."
    )
    assert "it calls send_mail, undo, which this task does not have" in bench.observed()[0]
    assert bench.diary.entries == []


async def test_a_corrected_reply_resets_the_count_of_format_errors(bench: Bench) -> None:
    outcome = await bench.run("Hm.", "Hm.", READ, "Hm.", "Hm.", DONE)
    assert outcome.status is Status.FINISHED


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("", "empty"),
        (READ + READ, "multiple_control"),
        (DONE + READ, "completion_first"),
        ('```codepilot\nread_file("a.txt"\n```\n', "control_syntax"),
        ("```codepilot\nread_file(1)\n```\n", "control_syntax"),
        ('```codepilot\nwrite_file("a.txt")\n```\n', "payload_count"),
        (WRITE.replace("```text\n", "```text filename=b.txt\n"), "filename_mismatch"),
        (f"{WRITE.replace('new' + chr(10) + '```' + chr(10), 'new' + chr(10))}{DONE}", "ambiguous"),
        (ScriptedReply(text=WRITE[:-5], stop="length"), "truncated"),
    ],
)
async def test_a_reply_that_breaks_the_protocol_runs_nothing_and_gets_the_reason(
    bench: Bench, reply: str | ScriptedReply, code: str
) -> None:
    outcome = await bench.run(reply, DONE)
    assert outcome.status is Status.FINISHED
    assert bench.diary.entries == []
    [observation] = bench.observed()
    assert f"1 of 3 in a row: {code}." in observation


async def test_payloads_reach_the_calls_in_order(bench: Bench) -> None:
    control = '```codepilot\nfor name in ["a", "b"]:\n    write_file(name)\n```\n'
    outcome = await bench.run(f"{control}```text\n1\n```\n```text filename=b\n2\n```\n{DONE}")
    assert outcome.status is Status.FINISHED
    assert bench.diary.entries == ["write a: '1\\n'", "write b: '2\\n'"]


async def test_payloads_left_over_fail_the_step(bench: Bench) -> None:
    control = '```codepilot\nif read_file("x") == "other":\n    write_file("a")\n```\n'
    await bench.run(f"{control}```text\n1\n```\n{DONE}", DONE)
    assert "1 payload " in bench.observed()[0]


async def test_results_and_prints_are_shown_in_order_and_used_values_are_not(bench: Bench) -> None:
    control = '```codepilot\nprint("one")\nread_file("a")\nx = read_file("b")\nprint("two")\n```\n'
    await bench.run(control, DONE)
    assert bench.observed() == ["one\n\n[read_file] a: content\n\ntwo"]


async def test_the_output_of_a_step_is_bounded(bench: Bench) -> None:
    policy = Policy(limits=RunLimits(max_output_chars_per_step=1000))
    await bench.run('```codepilot\nfor i in range(100):\n    print("x" * 99)\n```\n', DONE, policy=policy)
    [observation] = bench.observed()
    assert "9,000 more characters" in observation
    assert len(observation) < 1200


async def test_the_step_limit_ends_the_run(bench: Bench) -> None:
    outcome = await bench.run(READ, READ, READ, policy=Policy(limits=RunLimits(max_steps=3)))
    assert (outcome.status, outcome.steps) == (Status.MAX_STEPS, 3)
    assert "3 steps" in (outcome.reason or "")


async def test_the_money_limit_ends_the_run(bench: Bench) -> None:
    dear = ScriptedReply(text=READ, usage=Usage(requests=1, output_tokens=10, cost_usd=0.6))
    outcome = await bench.run(dear, dear, dear, policy=Policy(limits=RunLimits(max_cost_usd=1.0)))
    assert (outcome.status, outcome.steps) == (Status.MAX_COST, 2)
    assert "$1.20" in (outcome.reason or "")


async def test_the_money_limit_bounds_the_tokens_of_a_model_without_a_known_price(bench: Bench) -> None:
    unpriced = ScriptedReply(text=READ, usage=Usage(requests=1, output_tokens=150_000, cost_usd=None))
    outcome = await bench.run(unpriced, unpriced, unpriced, policy=Policy(limits=RunLimits(max_cost_usd=0.5)))
    assert (outcome.status, outcome.steps) == (Status.MAX_COST, 2)
    assert "price is not known" in (outcome.reason or "")


async def test_a_denied_tool_is_refused_in_words_that_code_may_catch(bench: Bench) -> None:
    policy = Policy(denied_tools={"execute": "read-only run"})
    outcome = await bench.run(
        '```codepilot\ntry:\n    execute("main", "ls")\nexcept PermissionError as e:\n    print(e)\n```\n',
        DONE,
        policy=policy,
    )
    assert outcome.status is Status.FINISHED
    assert bench.diary.entries == []
    assert "read-only run" in bench.observed()[0]


async def test_leaving_the_script_is_loud(bench: Bench) -> None:
    with pytest.raises(ScriptError):
        await bench.run(READ)


async def test_prose_and_completion_stream_and_control_does_not(bench: Bench) -> None:
    await bench.run(f"Let me see.\n{GREEN}{DONE}")
    assert bench.streamed(completion=False).strip() == "Let me see."
    assert bench.streamed(completion=True).strip() == "Done."
    kinds = [type(event) for event in bench.live]
    last_text = max(at for at, kind in enumerate(kinds) if kind is Streamed)
    assert last_text > kinds.index(ToolReturned)


async def test_a_completion_above_which_the_code_cannot_be_read_is_never_shown(bench: Bench) -> None:
    await bench.run(f"```codepilot\nif\n```\n{DONE}", DONE.replace("Done.", "Half done."))
    assert bench.streamed(completion=True).strip() == "Half done."


async def test_the_hosts_own_account_of_calls_is_recorded(bench: Bench) -> None:
    await bench.run(RED, DONE)
    [returned] = [event for event in bench.session.events if isinstance(event, ToolReturned)]
    assert (returned.tool, returned.args["command"], returned.ok) == ("execute", "false", False)


async def test_each_request_extends_the_one_before(bench: Bench) -> None:
    steps = 12
    await bench.run(*([READ, RED, "Hm."] * (steps // 3)), DONE)
    log = bench.session.events
    sent = [render_messages(log[:i]) for i, event in enumerate(log) if isinstance(event, Replied)]
    assert len(sent) == steps + 1
    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier


async def test_usage_is_summed_over_the_steps(bench: Bench) -> None:
    used = Usage(requests=1, input_tokens=5, cached_tokens=7, output_tokens=3, cost_usd=0.25)
    outcome = await bench.run(ScriptedReply(text=READ, usage=used), ScriptedReply(text=DONE, usage=used))
    assert outcome.usage == Usage(requests=2, input_tokens=10, cached_tokens=14, output_tokens=6, cost_usd=0.5)


def test_clipping_keeps_head_and_tail() -> None:
    assert clip("abcdefghij", 10) == "abcdefghij"
    assert clip("a" * 500 + "z" * 500, 10) == "aaaaa\n[990 characters left out]\nzzzzz"


def test_long_texts_inside_plain_data_are_clipped() -> None:
    short = clip_value({"a": ["x" * 1_000_000, 1, None], "b": ("y",)})
    assert isinstance(short, dict)
    assert len(str(short)) < 20_000
    assert short["b"] == ("y",)


def control(source: str) -> str:
    return f"```codepilot\n{source}\n```\n"


async def test_the_log_of_calls_does_not_contain_file_contents(bench: Bench) -> None:
    bench.tools["big"] = lambda: "x" * 1_000_000
    outcome = await bench.run(control("for _ in range(20): big()") + DONE)
    assert outcome.status is Status.FINISHED
    returned = [event for event in bench.session.events if isinstance(event, ToolReturned)]
    assert len(returned) == 20
    assert sum(len(event.text) + len(str(event.value)) for event in returned) < 500_000


@pytest.mark.parametrize("source", ["fail()", "raise ValueError('x' * 1_000_000)"])
async def test_a_huge_failure_is_shown_by_head_and_tail(bench: Bench, source: str) -> None:
    def fail() -> str:
        raise ToolError("boom " * 100_000, kind="ValueError")

    bench.tools["fail"] = fail
    await bench.run(control(source), DONE)
    [text] = bench.observed()
    assert "characters left out" in text
    assert len(text) < 40_000


async def test_output_before_a_failure_stays(bench: Bench) -> None:
    await bench.run(control("print('before')\nassert False, 'why'"), DONE)
    [text] = bench.observed()
    assert text.startswith("before\n\nTraceback")
    assert text.endswith("AssertionError: why")
