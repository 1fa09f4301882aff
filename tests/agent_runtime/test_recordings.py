"""A run of a real agent, with real tools, recorded and replayed."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    Delegation,
    Network,
    Policy,
    Rule,
    Sandbox,
    SandboxSettings,
    ScriptedProvider,
    Status,
    pick_sandbox,
)
from agent_runtime.context import first_message
from agent_runtime.context.unindexed import ParsedSources
from agent_runtime.core.errors import ModelRejectedError, ScriptError, SettingsError
from agent_runtime.core.values import Quote, Task
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.providers.recording import RecordingProvider
from agent_runtime.recordings import Recorder, Replayed, compare_recording, replay_recording
from tests.agent_runtime.image_files import picture

LOOK = """Looking.
```codepilot
read_file("calc.py")
execute("main", "sleep 0.01; date +%s%N > .stamp; echo '1 passed in 0.01s'; pwd")
```
"""
FIX = """
```codepilot
write_file("calc.py")
execute("main", "grep -n plus calc.py", check=True)
```
```python filename=calc.py
def plus(a, b):
    return a + b
```
```completion
`plus` adds now.
```
"""
ANSWER = "There is one function, `plus`."
TASK = Task(goal="Fix plus", quotes=(Quote(source="issue #1", text="it subtracts"),))


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "calc.py").write_text("def plus(a, b):\n    return a - b\n")
    (place / ".gitignore").write_text(".stamp\n")
    return place


def sandbox() -> Sandbox:
    return pick_sandbox("local", SandboxSettings())


def agent_on(work_dir: Path, *replies: str, policy: Policy | None = None) -> Agent:
    return Agent(
        provider=ScriptedProvider(replies, chunk_chars=5),
        work_dir=work_dir,
        sandbox=sandbox(),
        policy=policy or Policy(),
        name="Fixer",
    )


async def recorded(agent: Agent, path: Path, *tasks: Task | str, facts: tuple[str, ...] = ()) -> None:
    recorder = Recorder(agent, path)
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        for task in tasks:
            await runtime.run(task, facts=facts)


@pytest.fixture
async def recording(work_dir: Path, tmp_path: Path) -> Path:
    """A recording of two runs, and beside it `start`, the directory as it was."""
    shutil.copytree(work_dir, tmp_path / "start")
    path = tmp_path / "run.jsonl"
    await recorded(agent_on(work_dir, LOOK, FIX, ANSWER), path, TASK, "What is there?")
    return path


async def replayed(path: Path) -> Replayed:
    return await replay_recording(path, work_dir=path.parent / "start", sandbox=sandbox())


async def test_a_recorded_run_replays_request_for_request_elsewhere_and_leaves_the_directory_alone(
    recording: Path,
) -> None:
    found = await replayed(recording)
    assert found.difference is None
    assert (found.requests, found.remaining, found.same_start) == (3, 0, True)
    assert [outcome.status for outcome in found.outcomes] == [Status.FINISHED, Status.ANSWERED]
    assert [outcome.summary for outcome in found.outcomes] == ["`plus` adds now.", ANSWER]
    assert found.is_same
    assert "a - b" in (recording.parent / "start" / "calc.py").read_text()


async def test_to_the_byte_the_clock_makes_a_difference(recording: Path) -> None:
    _edit(recording, "[Agentic step 1 / 30] 2", "[Agentic step 1 / 30] 1")
    assert (await replayed(recording)).is_same
    exact = await replay_recording(recording, work_dir=recording.parent / "start", sandbox=sandbox(), exact=True)
    assert exact.difference is not None


async def test_a_run_without_terminals_replays_to_the_byte(work_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(work_dir, tmp_path / "start")
    path = tmp_path / "run.jsonl"
    replies = [reply.replace('execute("main", ', "print(") for reply in (LOOK, FIX.replace(", check=True", ""))]
    await recorded(agent_on(work_dir, *replies), path, TASK, facts=("HEAD: 1234, nothing uncommitted",))
    found = await replay_recording(path, work_dir=tmp_path / "start", sandbox=sandbox(), exact=True)
    assert found.difference is None
    assert found.requests == 2
    assert found.is_same


@pytest.mark.parametrize("recorded_late", [False, True])
async def test_a_replay_does_not_depend_on_when_the_code_index_is_ready(
    work_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, recorded_late: bool
) -> None:
    def delay_code(patch: pytest.MonkeyPatch) -> None:
        async def is_ready(_: WorkspaceIndex, _seconds: float) -> bool:
            return False

        async def parse_nothing(*_: object) -> ParsedSources:
            return ParsedSources([])

        patch.setattr(WorkspaceIndex, "wait_ready", is_ready)
        patch.setattr(first_message, "parse_sources", parse_nothing)

    (work_dir / "calc.py").write_text(
        "def total(numbers):\n    return sum(numbers)\n\n\ndef plus(a, b):\n    return a - b\n"
    )
    shutil.copytree(work_dir, tmp_path / "start")
    delegate = '```codepilot\nprint(collect(delegate("How do numbers add up to a total?")))\n```\n'
    summary = "```completion\nBy `sum`.\n```\n"
    agent = replace(
        agent_on(work_dir, delegate, ANSWER),
        index_seconds=60.0,
        delegation=Delegation(provider=ScriptedProvider([summary])),
    )
    with monkeypatch.context() as patch:
        if recorded_late:
            delay_code(patch)
        await recorded(agent, tmp_path / "run.jsonl", "Which function adds numbers to a total?")
    assert ("return sum" in (tmp_path / "run.jsonl").read_text()) is not recorded_late
    if not recorded_late:
        delay_code(monkeypatch)
    found = await replayed(tmp_path / "run.jsonl")
    assert found.is_same, found.difference
    assert found.requests == 3


async def test_another_start_is_told_and_shown_where_the_model_would_have_noticed(recording: Path) -> None:
    (recording.parent / "start" / "calc.py").write_text("def plus(a, b):\n    return a * b\n")
    found = await replayed(recording)
    assert not found.same_start
    assert not found.is_same
    assert found.difference is not None
    assert "a - b" in found.difference
    assert "a * b" in found.difference
    assert (found.requests, found.remaining) == (1, 2)
    assert found.outcomes[0].status is Status.FAILED


async def test_a_run_that_waited_for_a_person_is_replayed_up_to_there(work_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(work_dir, tmp_path / "start")
    path = tmp_path / "run.jsonl"
    asks = Policy(rules=(Rule(decision="ask", tool="write_file"),))
    await recorded(agent_on(work_dir, LOOK, FIX, policy=asks), path, TASK)
    found = await replayed(path)
    assert [outcome.status for outcome in found.outcomes] == [Status.PAUSED]
    assert found.is_same


async def test_messages_to_a_recorded_run_are_sent_again_at_the_same_steps(work_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    recorder = Recorder(agent_on(work_dir, LOOK, ANSWER, LOOK, ANSWER), path)
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)

        def interrupt(number: int, **_: object) -> None:
            if number == 1:
                runtime.send_message("Be brief.")

        runtime.hooks.register("tool_result", interrupt)
        await runtime.run("Look")
        runtime.send_message("And look again.", id="m7")
        await runtime.run("Look again")
    found = await replay_recording(path, work_dir=work_dir, sandbox=sandbox())
    assert found.is_same, found.difference


@pytest.mark.parametrize("questions", [1, 2])
async def test_a_question_that_was_answered_is_answered_again_and_one_that_waited_waits(
    work_dir: Path, tmp_path: Path, questions: int
) -> None:
    path = tmp_path / "questions.jsonl"
    asks = '```codepilot\nprint("So:", ask_user("Which one?"))\n```\n'
    recorder = Recorder(agent_on(work_dir, *[asks] * questions, ANSWER), path)
    said = iter(["The first."])
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        runtime.hooks.register("ask_user", lambda **_: next(said, None))
        outcome = await runtime.run("Ask")
        if outcome.status is Status.PAUSED:
            await runtime.resume(note="The second.")
    found = await replay_recording(path, work_dir=work_dir, sandbox=sandbox())
    assert found.outcomes[-1].status is outcome.status
    assert (found.difference, found.remaining) == (None, questions - 1)


async def test_a_run_that_had_a_network_is_replayed_without_one(work_dir: Path, tmp_path: Path) -> None:
    path, apart = tmp_path / "network.jsonl", pick_sandbox("auto", SandboxSettings())
    agent = replace(agent_on(work_dir, ANSWER), sandbox=apart, network=Network.of("a.example"))
    await recorded(agent, path, "What is there?")
    assert "Network: HTTPS to a.example only" in path.read_text()
    found = await replay_recording(path, work_dir=work_dir, sandbox=apart)
    assert found.is_same, found.difference


class _Refuses(ScriptedProvider):
    """A service that rejects one task."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        if "What is there?" not in request.messages[-1].text:
            raise ModelRejectedError("The service refused the request.")
        async for chunk in super().reply(request):
            yield chunk


async def test_runs_after_one_that_failed_are_replayed_too(work_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    agent = replace(agent_on(work_dir), provider=_Refuses([ANSWER]))
    await recorded(agent, path, "First", "What is there?")
    found = await replay_recording(path, work_dir=work_dir, sandbox=sandbox())
    assert [each.status for each in found.recorded] == [Status.FAILED, Status.ANSWERED]
    assert found.is_same, found


async def test_what_was_hidden_in_the_recording_is_known_to_who_replays(work_dir: Path, tmp_path: Path) -> None:
    (work_dir / "calc.py").write_text("TOKEN = 'hunter2'\n")
    shutil.copytree(work_dir, tmp_path / "start")
    path = tmp_path / "run.jsonl"
    recorder = Recorder(agent_on(work_dir, LOOK, ANSWER), path, secrets=["hunter2"])
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        await runtime.run("Look")
    assert "hunter2" not in path.read_text()
    found = await replay_recording(path, work_dir=tmp_path / "start", sandbox=sandbox(), secrets=["hunter2"])
    assert found.difference is None


async def test_a_recording_that_begins_in_the_middle_cannot_be_replayed(work_dir: Path, tmp_path: Path) -> None:
    agent = agent_on(work_dir, LOOK, FIX, ANSWER)
    runtime = AsyncRuntime(agent)
    await runtime.run(TASK)
    recorder = Recorder(agent, tmp_path / "run.jsonl")
    async with AsyncRuntime(recorder.agent, runtime.session) as second:
        recorder.follow(second)
        await second.run("What is there?")
    await runtime.close()
    with pytest.raises(ScriptError, match="starts in the middle"):
        await replay_recording(tmp_path / "run.jsonl", work_dir=work_dir, sandbox=sandbox())
    assert (await compare_recording(tmp_path / "run.jsonl")).differences == ()


async def test_a_recording_never_lets_file_tools_out_of_the_directory(recording: Path) -> None:
    _edit(recording, '"unsafe_mode": false', '"unsafe_mode": true')
    with pytest.raises(ScriptError, match="never replayed"):
        await replayed(recording)


async def test_a_recording_that_does_not_say_where_it_was_made_is_refused(recording: Path) -> None:
    _edit(recording, '"work_dir": "', '"work_dir": "", "was": "')
    with pytest.raises(ScriptError, match="does not contain the agent's directory"):
        await replayed(recording)


async def test_a_recording_of_another_version_says_what_it_does_not_know(recording: Path) -> None:
    _edit(recording, '"unsafe_mode": false', '"telepathy": false')
    with pytest.raises(ScriptError, match=r"does not describe the agent .*telepathy"):
        await replayed(recording)


async def test_a_directory_that_cannot_be_copied_is_named(recording: Path) -> None:
    os.mkfifo(recording.parent / "start" / "pipe")
    with pytest.raises(SettingsError, match=r"start .*pipe"):
        await replayed(recording)


async def test_a_recording_without_events_cannot_be_replayed(work_dir: Path, tmp_path: Path) -> None:
    provider = RecordingProvider(ScriptedProvider([ANSWER]), tmp_path / "run.jsonl")
    async with AsyncRuntime(Agent(provider=provider, work_dir=work_dir, sandbox=sandbox())) as runtime:
        await runtime.run("What is there?")
    with pytest.raises(ScriptError, match="does not describe the agent"):
        await replay_recording(tmp_path / "run.jsonl", work_dir=work_dir, sandbox=sandbox())


async def test_the_code_that_recorded_would_ask_the_same(recording: Path) -> None:
    found = await compare_recording(recording)
    assert (found.requests, found.differences) == (3, ())


async def test_another_prompt_is_shown_once(recording: Path) -> None:
    _edit(recording, '"name": "Fixer"', '"name": "Tinker"')
    found = await compare_recording(recording)
    assert len(found.differences) == 1
    assert "--- recorded system" in found.differences[0]
    assert "+You are Tinker" in found.differences[0]


async def test_another_sandbox_than_the_recorded_one_is_refused(recording: Path) -> None:
    _edit(recording, '"sandbox": "none"', '"sandbox": "bubblewrap"')
    with pytest.raises(ScriptError, match=r"'bubblewrap'.*'none'"):
        await replayed(recording)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


LOOKING = Task(goal="Fix plus", images=(picture("issue #1"), picture("issue #2", shade=5)))


def seeing_agent(work_dir: Path) -> Agent:
    replies = [reply.replace('execute("main", ', "print(") for reply in (LOOK, FIX.replace(", check=True", ""))]
    return replace(agent_on(work_dir), provider=ScriptedProvider(replies, sees_images=True))


async def test_a_run_with_images_replays_to_the_byte(work_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(work_dir, tmp_path / "start")
    path = tmp_path / "run.jsonl"
    await recorded(seeing_agent(work_dir), path, LOOKING)
    found = await replay_recording(path, work_dir=tmp_path / "start", sandbox=sandbox(), exact=True)
    assert found.difference is None
    assert found.is_same
    assert (await compare_recording(path)).differences == ()


async def test_an_image_that_changed_in_a_recording_is_a_difference(work_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(work_dir, tmp_path / "start")
    path = tmp_path / "run.jsonl"
    await recorded(seeing_agent(work_dir), path, LOOKING)
    shown, other = LOOKING.images[1].data, picture(shade=6).data
    path.write_text(path.read_text().replace(f'"data": "{shown}"', f'"data": "{other}"', 1))
    found = await replay_recording(path, work_dir=tmp_path / "start", sandbox=sandbox())
    compared = await compare_recording(path)
    assert not found.is_same
    assert "sha256" in (found.difference or "") + "".join(compared.differences)


async def test_a_session_that_a_blind_model_went_on_with_compares_as_it_was(work_dir: Path, tmp_path: Path) -> None:
    seeing = agent_on(work_dir)
    async with AsyncRuntime(replace(seeing, provider=ScriptedProvider([ANSWER], sees_images=True))) as runtime:
        await runtime.run(LOOKING)
        session = runtime.session
    path = tmp_path / "run.jsonl"
    recorder = Recorder(agent_on(work_dir, ANSWER), path)
    async with AsyncRuntime(recorder.agent, session) as runtime:
        recorder.follow(runtime)
        await runtime.run("What is there?")
    assert LOOKING.images[0].data not in next(line for line in path.read_text().split("\n") if '"request": 1' in line)
    assert (await compare_recording(path)).differences == ()
