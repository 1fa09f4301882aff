"""Structured output: a completion matches the schema, is requested again, or ends the run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agent_runtime import (
    Agent,
    AsyncRuntime,
    CompletionWithdrawn,
    Event,
    Observed,
    ScriptedProvider,
    SettingsError,
    Started,
    Status,
    Streamed,
    Task,
    on_completion,
    pick_sandbox,
)
from agent_runtime.core.errors import BoundExceededError
from agent_runtime.core.values import Plain
from agent_runtime.run.output_schema import (
    MAX_OUTPUT_CHARS,
    MAX_SCHEMA_CHARS,
    Validation,
    check_completion,
    require_output_schema,
    validate_completion,
)
from agent_runtime.sandbox.protocol import SandboxSettings

SCHEMA: dict[str, Plain] = {
    "type": "object",
    "properties": {"kind": {"enum": ["bug", "question"]}, "files": {"type": "array", "items": {"type": "string"}}},
    "required": ["kind"],
    "additionalProperties": False,
}
BUG = '{"kind": "bug", "files": ["a.py"]}'


def completion(text: str) -> str:
    return f"```completion\n{text}\n```\n"


def runtime_for(
    path: Path, *replies: str, sessions: Path | None = None, events: list[Event] | None = None
) -> AsyncRuntime:
    agent = Agent(
        provider=ScriptedProvider([*replies]),
        work_dir=path,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        chat=False,
    )
    listeners = [] if events is None else [events.append]
    return AsyncRuntime(agent, "file" if sessions else "memory", session_dir=sessions, listeners=listeners)


async def test_a_completion_that_fits_is_the_result(tmp_path: Path) -> None:
    events: list[Event] = []
    async with runtime_for(tmp_path, completion(BUG), events=events) as runtime:
        outcome = await runtime.run(Task(goal="Sort it", output_schema=SCHEMA))
    assert outcome.status is Status.FINISHED
    assert outcome.structured_output == json.loads(BUG)
    assert outcome.output_json == '{"kind":"bug","files":["a.py"]}'
    (started,) = [each for each in events if isinstance(each, Started)]
    assert '"enum":["bug","question"]' in started.opening


async def test_a_completion_that_does_not_match_is_requested_again_with_its_errors(tmp_path: Path) -> None:
    events: list[Event] = []
    act = '```codepilot\nprint("looked")\n```\n'
    replies = (f"{act}{completion('It is a bug.')}", completion('{"kind": "bag"}'), completion(BUG))
    async with runtime_for(tmp_path, *replies, events=events) as runtime:
        outcome = await runtime.run(Task(goal="Sort it", output_schema=SCHEMA))
    assert (outcome.status, outcome.steps) == (Status.FINISHED, 3)
    assert outcome.structured_output == json.loads(BUG)
    first, second = [each.text for each in events if isinstance(each, Observed) and each.unfit]
    assert "looked" in first
    assert "It is not JSON" in first
    assert "$.kind: 'bag' " in second
    assert "the last one" in second
    assert [each.text for each in events if isinstance(each, Streamed)] == [f"{BUG}\n"]


async def test_the_third_completion_that_does_not_fit_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    async with runtime_for(tmp_path, *[completion('{"kind": "bag"}')] * 3) as runtime:
        outcome = await runtime.run(Task(goal="Sort it", output_schema=SCHEMA))
    assert (outcome.status, outcome.steps, outcome.structured_output) == (Status.INVALID_OUTPUT, 3, None)
    assert "$.kind: 'bag' " in str(outcome)


async def test_a_pause_gives_no_new_tries(tmp_path: Path) -> None:
    """The number of attempts is derived from the log."""
    files, kept = tmp_path / "files", tmp_path / "kept"
    files.mkdir()
    question = '```codepilot\nask_user("Which?")\n```\n'
    task = Task(goal="Sort it", output_schema=SCHEMA)
    async with runtime_for(files, completion("{}"), completion("{}"), question, sessions=kept) as runtime:
        assert (await runtime.run(task)).status is Status.PAUSED
    async with runtime_for(files, completion("{}"), sessions=kept) as runtime:
        assert (await runtime.resume(approve=True, note="This.")).status is Status.INVALID_OUTPUT


async def test_a_schema_that_cannot_be_used_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with runtime_for(tmp_path) as runtime:
        with pytest.raises(SettingsError, match=r"\$\.type: 'obj' "):
            await runtime.run(Task(goal="Sort it", output_schema={"type": "obj"}))
        assert not runtime.session.events


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BUG, None),
        (f"It is one.\n\n```json\n{BUG}\n```\n\nSee above.", None),
        (f"```json\n{BUG}\n```", None),
        ("It is one.", "not JSON"),
        (f"```json\n{BUG}\n```\n```json\n{BUG}\n```", "2 ```json blocks"),
        ('{"kind": "bug", "more": 1}', "'more' was unexpected"),
        ('{"kind": NaN}', "NaN is no number"),
        ('{"kind": 1e999}', "Out of range"),
        ('{"kind": "\\ud800"}', "surrogates"),
        ("[" * 200_000, "nests deeper"),
        ("[" * 150 + "]" * 150, "nests deeper"),
        ('{"kind": "' + "x" * MAX_OUTPUT_CHARS + '"}', "is the most"),
        ("[" + "9" * 5000 + "]", "not JSON"),
    ],
    ids=range(13),
)
def test_the_json_of_a_completion_is_extracted(text: str, told: str | None) -> None:
    fits, found = validate_completion(text, json.dumps(SCHEMA))
    assert fits is (told is None)
    assert (told or '{"kind":"bug"') in found
    assert len(found) < 5_000


@pytest.fixture
def fetched() -> Iterator[tuple[str, list[str]]]:
    """Start a web server; return its address and the requests."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"true")

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/schema.json", asked
    server.shutdown()
    server.server_close()


async def test_nothing_is_fetched_for_a_schema(fetched: tuple[str, list[str]]) -> None:
    address, asked = fetched
    schemas: list[dict[str, Plain]] = [
        {"$ref": address},
        {"$schema": address, "$dynamicRef": address},
        {"items": {"$ref": "other.json"}},
    ]
    for schema in schemas:
        with pytest.raises(SettingsError, match="is not supported"):
            await require_output_schema(schema)
        with pytest.raises(BoundExceededError, match="refers to something outside it"):
            await check_completion("[1]", schema)
    assert asked == []


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$ref": "#/$defs/nowhere"}, "refers to a place that it does not have"),
        ({"$defs": {"a": {"$id": "https://example.com/a"}}}, "its own address"),
        ({"description": "x" * MAX_SCHEMA_CHARS}, "is the most"),
        ({"pattern": "("}, "is not a 'regex'"),
        ({"type": {1, 2}}, "not plain JSON"),
    ],
)
async def test_a_schema_that_no_completion_could_be_checked_against_is_refused(
    schema: dict[str, Plain], told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        await require_output_schema(schema)


async def test_a_schema_may_refer_to_its_own_definitions() -> None:
    schema: dict[str, Plain] = {
        "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["value"]}},
        "$ref": "#/$defs/node",
    }
    await require_output_schema(schema)
    assert (await check_completion('{"value": 1, "next": {"value": 2}}', schema)).problems == ""
    assert "'value'" in (await check_completion('{"value": 1, "next": {}}', schema)).problems


async def test_a_pattern_that_backtracks_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_runtime.run.output_schema._SECONDS", 1.0)
    schema: dict[str, Plain] = {"type": "string", "pattern": "^(a+)+$"}
    await require_output_schema(schema)
    with pytest.raises(BoundExceededError, match="more than 1 seconds"):
        await check_completion(f'"{"a" * 100}b"', schema)


async def test_a_schema_that_refers_to_itself_without_end_is_stopped() -> None:
    with pytest.raises(BoundExceededError, match="endless reference"):
        await check_completion("1", {"$ref": "#"})


async def test_ten_of_a_hundred_problems_are_reported() -> None:
    found = await check_completion(json.dumps(["x" * 900] * 100), {"items": {"type": "integer"}})
    assert found != Validation()
    assert len(found.problems.splitlines()) == 10
    assert len(found.problems) < 10 * 500


async def test_a_handler_objects_to_a_completion_at_most_twice(tmp_path: Path) -> None:
    events: list[Event] = []
    act = '```codepilot\nprint("looked")\n```\n'
    replies = (f"{act}{completion('One.')}", completion("Two."), completion("Three."))
    async with runtime_for(tmp_path, *replies, events=events) as runtime:
        seen: list[str] = []

        @on_completion(runtime)
        async def object_to_it(completion: str, **_: object) -> str:
            seen.append(completion)
            return f"{completion} is not enough."

        outcome = await runtime.run("Sort it")
    assert (outcome.status, outcome.summary, seen) == (Status.FINISHED, "Three.", ["One.", "Two."])
    first, second = [each.text for each in events if isinstance(each, Observed) and each.unfit]
    assert "looked" in first
    assert "One. is not enough." in first
    assert "not accepted" in second
    assert [each.step for each in events if isinstance(each, CompletionWithdrawn)] == [1, 2]


async def test_a_completion_without_an_objection_ends_the_run(tmp_path: Path) -> None:
    async with runtime_for(tmp_path, completion("One.")) as runtime:
        runtime.hooks.register("completion", lambda **_: None)
        assert (await runtime.run("Sort it")).summary == "One."
