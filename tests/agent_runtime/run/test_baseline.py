"""Tests that failed before a run are named at its beginning, and do not withdraw a completion."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    FileSession,
    InMemorySession,
    Outcome,
    Policy,
    Quote,
    Recorder,
    Rule,
    SandboxSettings,
    ScriptedProvider,
    Session,
    Status,
    Task,
    pick_sandbox,
    replay_recording,
)
from agent_runtime.context.test_command import TrialResult
from agent_runtime.core.events import BaselineTaken, CompletionWithdrawn, Recorded, Started, ToolReturned
from agent_runtime.providers.protocol import Chunk, Request
from agent_runtime.run import baseline, toolbox
from agent_runtime.run.baseline import choose_tests, digest_file, excuse_failures, is_about, read_failures
from agent_runtime.run.state import RunProgress
from agent_runtime.workspace.files import Workspace
from tests.waiting import eventually

_PYTHON = Path(sys.prefix)
OLD = "tests/test_a.py::test_old"
ONE_FAILS = f"""F.
=========================== short test summary info ============================
FAILED {OLD} - assert 1 == 2
1 failed, 1 passed in 0.12s
"""
VERBOSE = f"""
FAILED {OLD} - assert 'a]' == 'b'
FAILED tests/test_a.py::TestB::test_c[x - y] - AssertionError
=================== 2 failed, 3 passed, 1 warning in 61.02s (0:01:01) ===================
"""
COLLECTED = "ERROR tests/test_b.py\n!!!!!!! Interrupted: 1 error during collection !!!!!!!\n1 error in 0.10s\n"
DONE = "```completion\nDone.\n```\n"


def _call(command: str, *, completes: bool = True, check: bool = True) -> str:
    block = f'```codepilot\nexecute("main", {command!r}, check={check})\n```\n'
    return block + DONE if completes else block


@pytest.mark.parametrize(
    ("output", "tests", "some_passed"),
    [
        pytest.param(ONE_FAILS, (OLD,), True, id="quiet"),
        pytest.param(VERBOSE, (OLD, "tests/test_a.py::TestB::test_c[x - y]"), True, id="with bars and parameters"),
        pytest.param(f"FAILED {OLD}\n1 failed in 0.1s", (OLD,), False, id="nothing passed"),
        pytest.param("3 passed in 0.1s", (), False, id="nothing failed"),
        pytest.param(COLLECTED, (), False, id="not collected"),
        pytest.param(ONE_FAILS.replace("1 passed", "1 passed, 1 error"), (), False, id="an error in a fixture"),
        pytest.param(f"ERROR {OLD}\n{ONE_FAILS}", (), False, id="an error that the last line hides"),
        pytest.param(ONE_FAILS.replace("1 failed", "2 failed"), (), False, id="a failure that is not named"),
        pytest.param(f"FAILED {OLD}\n{ONE_FAILS}", (), False, id="a line that a test printed"),
        pytest.param(f"{ONE_FAILS}{ONE_FAILS}", (), False, id="two runs"),
        pytest.param(f"FAILED {OLD}[`]\n{ONE_FAILS}", (), False, id="an unreadable name beside a line that it printed"),
        pytest.param(f"! stopping after 1 failures !\n{ONE_FAILS}", (), False, id="stopped in a narrow terminal"),
        pytest.param(f"!!!!! stopping after 1 failures !!!!!\n{ONE_FAILS}", (), False, id="stopped at a failure"),
        pytest.param(ONE_FAILS.replace("FAILED ", "SUBFAILED[a] "), (), False, id="subtests"),
        pytest.param(ONE_FAILS.replace("test_old", "test_\u202eold"), (), False, id="a name with hidden characters"),
        pytest.param(ONE_FAILS.replace("test_old", "test_`old`"), (), False, id="a name that would leave a quote"),
    ],
)
def test_only_a_complete_summary_of_failures_is_read(output: str, tests: tuple[str, ...], *, some_passed: bool) -> None:
    assert read_failures(output) == (tests, some_passed)


@pytest.mark.parametrize(
    ("command", "output", "is_excused"),
    [
        pytest.param("pytest -q", ONE_FAILS, True, id="as before"),
        pytest.param(
            "PYTHONPATH=src .venv/bin/python -m pytest 'tests' -k 'a or b' 2>&1 | tail -5", ONE_FAILS, True, id="long"
        ),
        pytest.param("pytest -q", ONE_FAILS.replace("test_old", "test_new"), False, id="another test"),
        pytest.param("pytest -q", ONE_FAILS.replace("test_old", "test_old2"), False, id="a longer name"),
        pytest.param("pytest -q", VERBOSE, False, id="one more"),
        pytest.param("pytest -q", ONE_FAILS.replace(", 1 passed", ""), False, id="nothing passed"),
        pytest.param("pytest -q", COLLECTED, False, id="not collected"),
        *(
            pytest.param(command, ONE_FAILS, False, id=command)
            for command in (
                "pytest -q; mypy .",
                "pytest -q && mypy .",
                "pytest -q || mypy .",
                "pytest -q\nmypy .",
                "pytest -q $(mypy .)",
                "pytest -q `mypy .`",
                "mypy . & pytest",
                "tox",
                "make test",
                "./mypytest",
                "cat pytest",
            )
        ),
    ],
)
def test_only_the_same_failures_of_pytest_alone_are_excused(command: str, output: str, *, is_excused: bool) -> None:
    digests = {"tests/test_a.py": "5ca1ab1e"}
    excused = excuse_failures({OLD: "5ca1ab1e"}, command, output, lambda path: digests.get(path, ""))
    assert excused == ((OLD,) if is_excused else ())


def test_a_test_that_was_changed_or_that_the_task_is_about_is_not_excused() -> None:
    assert excuse_failures({OLD: "before"}, "pytest", ONE_FAILS, lambda _path: "after") == ()
    assert excuse_failures({OLD: ""}, "pytest", ONE_FAILS, lambda _path: "") == ()


@pytest.mark.parametrize(
    ("goal", "quote"),
    [
        ("Fix the failing tests", ""),
        ("Make the tests pass.", ""),
        ("CI is red, look into it", ""),
        ("The tests are not passing", ""),
        ("See the pytest failures", ""),
        ("Fix it", "Since yesterday the test suite fails"),
        ("Repair test_old", ""),
        ("Fix it", "tests/test_a.py fails on 3.12"),
        ("Fix it", "FAILED test_a.py::TestA::test_old[1]"),
    ],
)
def test_a_failure_that_the_task_is_about_is_recognised(goal: str, quote: str) -> None:
    assert is_about(Task(goal=goal, quotes=(Quote(source="issue", text=quote),)), f"{OLD}[x-y]")
    other = Quote(source="issue", text="All checks passed, but the value is lost")
    assert not is_about(Task(goal="Fix the parser and add a test", quotes=(other,)), OLD)


@pytest.mark.parametrize(
    ("goal", "ranked", "expected"),
    [
        ("It breaks in test_late, see below", [], ["tests/test_z.py"]),
        ("See tests/test_b.py", ["src/parse.py"], ["tests/test_b.py", "tests/test_parse.py"]),
        ("parse.py breaks", [], ["tests/test_parse.py"]),
        ("It breaks", ["src/parse.py"], ["tests/test_parse.py"]),
        ("It breaks", ["src/parse_dates.py"], ["tests/test_parse.py"]),
        ("It breaks", ["src/render.py", "src/parse.py"], ["tests/test_b.py", "tests/test_parse.py"]),
        ("It breaks", ["tests/test_z.py"], ["tests/test_z.py"]),
        ("It breaks", ["pkg/tags.py"], ["pkg/tests/test_tags_late.py"]),
        ("It breaks", ["src/nothing.py"], ["tests/test_a.py"]),
    ],
)
def test_the_nearest_tests_are_named_or_match_the_code_that_ranks_first(
    tmp_path: Path, goal: str, ranked: list[str], expected: list[str]
) -> None:
    files = {
        "test_a": "",
        "test_b": "from parcel import (render)\n",
        "test_parse": "",
        "test_z": "def test_late(): ...\n",
    }
    (tmp_path / "tests").mkdir()
    for name, text in files.items():
        (tmp_path / f"tests/{name}.py").write_text(text)
    paths = [*(f"tests/{name}.py" for name in files), "tests/test_tags_early.py", "pkg/tests/test_tags_late.py"]
    with Workspace(tmp_path) as workspace:
        chosen = choose_tests(workspace, "", Task(goal=goal), ranked, paths)
    assert [*chosen] == expected


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a program that prints `output.txt` and fails as pytest does."""
    root = tmp_path / "project"
    for name, text in {
        "bin/pytest": f"#!/bin/sh\ncat <<'END'\n{ONE_FAILS}END\nexit 1\n",
        "tests/test_a.py": "def test_old(): assert 1 == 2\n",
    }.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    (root / "bin/pytest").chmod(0o755)
    return root


class Bench:
    """Runs of an agent in a project of Python."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.session: Session = InMemorySession()
        self.withdrawn = 0

    async def run(
        self, *replies: str, resumes: bool = False, message: str = "", answer: str = "", **settings: object
    ) -> Outcome:
        provider = settings.pop("provider", ScriptedProvider([*replies]))
        sandbox = pick_sandbox("local", SandboxSettings())
        agent = Agent(provider=provider, work_dir=self.project, sandbox=sandbox, chat=False, **settings)  # type: ignore[arg-type]
        async with AsyncRuntime(agent, self.session, listeners=[self._count]) as runtime:
            if message:
                runtime.send_message(message)
            if answer:
                runtime.hooks.register("ask_user", lambda **_: answer)
            return await (runtime.resume() if resumes else runtime.run("Fix it"))

    def _count(self, event: object) -> None:
        self.withdrawn += isinstance(event, CompletionWithdrawn)

    @property
    def opening(self) -> str:
        return next(event.opening for event in self.session.events if isinstance(event, Started))


@pytest.fixture
def bench(project: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(project)

    async def find_tests(_self: object) -> TrialResult:
        return TrialResult(fact="", command="python -m pytest -q", files=("tests/test_a.py",))

    monkeypatch.setattr(toolbox.Toolbox, "_find_tests", find_tests)
    return made


@pytest.fixture
def fails_before(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Workspace(project) as workspace:
        taken = BaselineTaken(failures={OLD: digest_file(workspace, "", "tests/test_a.py")})

    async def take(*_args: object, **_kwargs: object) -> BaselineTaken:
        return taken

    monkeypatch.setattr(toolbox, "take_baseline", take)


@pytest.mark.usefixtures("fails_before")
async def test_a_failure_in_a_hidden_file_is_not_named(bench: Bench) -> None:
    await bench.run(DONE, policy=Policy(rules=(Rule(decision="deny", paths=("tests/**",)),)))
    assert "Fail already" not in bench.opening


@pytest.mark.usefixtures("fails_before")
@pytest.mark.parametrize("check", [True, False])
async def test_a_completion_stands_if_only_tests_fail_that_failed_before(bench: Bench, *, check: bool) -> None:
    outcome = await bench.run(_call("bin/pytest -q", check=check))
    assert (outcome.status, outcome.steps, bench.withdrawn) == (Status.FINISHED, 1, 0)
    assert outcome.summary == f"Done.\n\nFailed before too: `{OLD}`."
    assert f"its tests]\nFail already before any change: `{OLD}`\n[end of quote" in bench.opening
    [returned] = [event for event in bench.session.events if isinstance(event, ToolReturned)]
    assert isinstance(returned.value, dict)
    assert (returned.value["exit_code"], returned.value["failed_before"]) == (1, [OLD])


@pytest.mark.usefixtures("fails_before")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sed -i s/test_old/test_new/ bin/pytest; bin/pytest", id="another test fails"),
        pytest.param("echo '# changed' >> tests/test_a.py", id="the test was changed"),
        pytest.param("sed -i 's/exit 1/exit 2/' bin/pytest", id="another exit code"),
        pytest.param("mkdir -p sub/tests; cp -r bin tests sub; cd sub", id="the test of another directory"),
    ],
)
async def test_a_completion_is_withdrawn_as_before_where_anything_else_fails(bench: Bench, command: str) -> None:
    block = f'```codepilot\nexecute("main", {command!r})\nexecute("main", "bin/pytest -q", check=True)\n```\n{DONE}'
    outcome = await bench.run(block, DONE.replace("Done", "It fails"))
    assert (outcome.summary, outcome.steps, bench.withdrawn) == ("It fails.", 2, 1)


@pytest.mark.usefixtures("fails_before")
async def test_a_failure_that_a_later_message_is_about_is_not_excused(bench: Bench) -> None:
    outcome = await bench.run(_call("bin/pytest -q"), DONE, message="And repair test_old.")
    assert (outcome.summary, outcome.steps, bench.withdrawn) == ("Done.", 2, 1)


@pytest.mark.usefixtures("fails_before")
@pytest.mark.parametrize(
    ("question", "answer"), [("Anything else?", "Repair test_old"), ("Shall I repair test_old?", "Yes")]
)
async def test_a_failure_that_an_answer_is_about_is_not_excused(bench: Bench, question: str, answer: str) -> None:
    ask = f"```codepilot\nask_user({question!r})\n```\n"
    outcome = await bench.run(ask, _call("bin/pytest -q"), DONE, answer=answer)
    assert (outcome.summary, outcome.steps, bench.withdrawn) == ("Done.", 3, 1)


@pytest.mark.usefixtures("fails_before")
async def test_no_thread_reads_events_while_the_event_loop_does(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, read = set[threading.Thread](), RunProgress.read

    def observe(progress: RunProgress, *events: Sequence[Recorded]) -> RunProgress:
        threads.add(threading.current_thread())
        return read(progress, *events)

    class Model(ScriptedProvider):
        @override
        async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
            threads.clear()
            async for chunk in super().reply(request):
                yield chunk

    monkeypatch.setattr(RunProgress, "read", observe)
    assert (await bench.run(provider=Model([_call("bin/pytest -q")]))).steps == 1
    assert threads == {threading.current_thread()}


async def test_a_run_without_a_baseline_is_as_before(bench: Bench) -> None:
    outcome = await bench.run(_call("bin/pytest -q"), DONE, baseline_seconds=0)
    assert (outcome.summary, outcome.steps, bench.withdrawn) == ("Done.", 2, 1)
    assert "Fail already" not in bench.opening


class Moment:
    """A baseline that ends when `may_end` is set, and a model that replies when `may_reply` says so."""

    def __init__(self, taken: BaselineTaken) -> None:
        self.taken = taken
        self.asked, self.ended = asyncio.Event(), ""

    async def take(self, *_args: object, **_kwargs: object) -> BaselineTaken:
        try:
            await self.asked.wait()
        except asyncio.CancelledError:
            self.ended = "by the first action"
            raise
        self.ended = "by itself"
        return self.taken

    def model(self, replies: list[str], *, lets_end: bool) -> ScriptedProvider:
        moment = self

        class Model(ScriptedProvider):
            @override
            async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
                if lets_end:
                    moment.asked.set()
                    await eventually(lambda: moment.ended)
                async for chunk in super().reply(request):
                    yield chunk

        return Model(replies)


@pytest.fixture
def moment(project: Path, monkeypatch: pytest.MonkeyPatch) -> Moment:
    with Workspace(project) as workspace:
        made = Moment(BaselineTaken(failures={OLD: digest_file(workspace, "", "tests/test_a.py")}))
    monkeypatch.setattr(toolbox, "take_baseline", made.take)
    return made


async def test_tests_that_end_beside_the_first_request_count_without_being_named(bench: Bench, moment: Moment) -> None:
    model = moment.model([_call("bin/pytest -q")], lets_end=True)
    outcome = await bench.run(provider=model, baseline_seconds=0.001)
    assert (moment.ended, outcome.steps, bench.withdrawn) == ("by itself", 1, 0)
    assert "Fail already" not in bench.opening


async def test_tests_that_go_on_end_before_the_first_action_and_do_not_count(bench: Bench, moment: Moment) -> None:
    model = moment.model([_call("bin/pytest -q"), DONE], lets_end=False)
    outcome = await bench.run(provider=model, baseline_seconds=0.001)
    assert (moment.ended, outcome.steps, bench.withdrawn) == ("by the first action", 2, 1)
    assert not any(isinstance(event, BaselineTaken) for event in bench.session.events)


async def test_tests_that_go_on_end_with_a_run_that_never_acts(bench: Bench, moment: Moment) -> None:
    outcome = await bench.run(provider=moment.model([], lets_end=False), baseline_seconds=0.001)
    assert (moment.ended, outcome.status) == ("by the first action", Status.FAILED)


async def test_tests_about_which_the_policy_would_ask_are_not_run(bench: Bench, moment: Moment) -> None:
    rules = (
        Rule(decision="ask", tool="execute", commands=("python -m pytest -q tests/*",), reason="a person decides"),
    )
    moment.asked.set()
    await bench.run(DONE, policy=Policy(rules=rules))
    endings = [moment.ended]
    bench.session = InMemorySession()
    await bench.run(DONE)
    assert [*endings, moment.ended] == ["", "by itself"]


@pytest.mark.usefixtures("fails_before")
async def test_a_run_that_goes_on_in_another_process_knows_what_failed_before(bench: Bench, tmp_path: Path) -> None:
    session = FileSession("s", session_dir=tmp_path / "sessions")
    session.append(Started(task=Task(goal="Go."), opening="# Task\nGo.", run_id="r"))
    with Workspace(bench.project) as workspace:
        session.append(BaselineTaken(failures={OLD: digest_file(workspace, "", "tests/test_a.py")}))
    session.close()
    bench.session = FileSession("s", session_dir=tmp_path / "sessions")
    outcome = await bench.run(_call("bin/pytest -q"), resumes=True)
    assert (outcome.status, outcome.steps, bench.withdrawn) == (Status.FINISHED, 1, 0)


def test_a_later_run_of_a_session_has_a_baseline_of_its_own() -> None:
    started = Started(task=Task(goal="Go."), opening="Go.")
    events: list[Recorded] = [started, BaselineTaken(failures={OLD: "5ca1ab1e"})]
    assert RunProgress(events).read().failures == {OLD: "5ca1ab1e"}
    assert RunProgress([*events, started]).read().failures == {}


@pytest.mark.usefixtures("fails_before")
async def test_a_replay_takes_the_baseline_from_the_recording(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(bench.project, tmp_path / "before")
    sandbox = pick_sandbox("local", SandboxSettings())
    provider = ScriptedProvider([_call("bin/pytest -q")])
    recorder = Recorder(
        Agent(provider=provider, work_dir=bench.project, sandbox=sandbox, chat=False), tmp_path / "run.jsonl"
    )
    async with AsyncRuntime(recorder.agent) as runtime:
        recorder.follow(runtime)
        assert (await runtime.run("Fix it")).steps == 1
    monkeypatch.delattr(toolbox, "take_baseline")  # nothing is tried in a replay
    replayed = await replay_recording(tmp_path / "run.jsonl", work_dir=tmp_path / "before", sandbox=sandbox)
    assert replayed.is_same, replayed.outcomes


REAL = {
    "src/parcel/__init__.py": "",
    "src/parcel/weight.py": "WEIGHT = 6\n",
    "src/parcel/tests/test_colour.py": "def test_other(): assert False\n",
    "src/parcel/tests/test_weight.py": """\
from pathlib import Path

from parcel import weight


def test_weight():
    assert weight.WEIGHT > 1


def test_label():
    Path("left.txt").write_text("x")
    (Path(__file__).parent / "beside.txt").write_text("x")
    assert weight.LABEL == "red"
""",
    "pyproject.toml": "[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = 'function'\n",
}
REAL_FIX = """```codepilot
execute("main", "find . -type f | sort")
write_file("src/parcel/weight.py", mode="w")
execute("main", "python -m pytest -q src/parcel/tests/test_weight.py", check=True)
```
```python filename=src/parcel/weight.py
WEIGHT = 7
```
"""


async def test_the_nearest_tests_are_run_on_a_copy_before_the_agent_begins(tmp_path: Path) -> None:
    root = tmp_path / "work"
    for name, text in REAL.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    settings = SandboxSettings(read_only=(_PYTHON, Path(sys.base_prefix)), path=(_PYTHON / "bin",))
    agent = Agent(
        provider=ScriptedProvider([REAL_FIX + DONE]),
        work_dir=root,
        sandbox=pick_sandbox("auto", settings),
        chat=False,
        baseline_seconds=60.0,
    )
    async with AsyncRuntime(agent) as runtime:
        outcome = await runtime.run("The weight in weight.py must be 7")
        events = runtime.session.events
    old = "src/parcel/tests/test_weight.py::test_label"
    [started] = [event for event in events if isinstance(event, Started)]
    assert f"Fail already before any change: `{old}`\n" in started.opening
    assert (outcome.status, outcome.steps, outcome.summary) == (
        Status.FINISHED,
        1,
        f"Done.\n\nFailed before too: `{old}`.",
    )
    first = next(event for event in events if isinstance(event, ToolReturned))
    assert isinstance(first.value, dict)
    assert str(first.value["output"]).split() == sorted(f"./{name}" for name in REAL)


async def test_a_workspace_of_too_many_files_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[object] = []

    async def copy(*arguments: object) -> None:
        copied.append(arguments)

    monkeypatch.setattr(baseline, "copy_workspace", copy)
    monkeypatch.setattr(baseline, "_COPY_FILES", 1)
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    agent = Agent(provider=ScriptedProvider([]), work_dir=tmp_path, sandbox=pick_sandbox("local", SandboxSettings()))
    with Workspace(tmp_path) as workspace:
        result = TrialResult(fact="", command="python -m pytest -q")
        taken = await baseline.take_baseline(agent, workspace, Task(goal="Fix"), result, files=["a.py"])
    assert (taken.failures, copied) == ({}, [])
