"""§21: the guide's server, driven as a browser does: runs, events token by token, messages, approval, reset."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient

from agent_runtime import FileSession
from tests.agent_runtime.seed.parts import reply
from tests.doc_pages import ENTRY, Page

pytestmark = pytest.mark.timeout(30)  # a browser that waits for an event waits for ever


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Page.read(ENTRY.parent / "guide" / "web-server.md").lay_out(tmp_path)
    agent = yaml.safe_load((tmp_path / "agent.yaml").read_text())
    agent["agent"]["permissions"] = [{"ask": "execute"}]
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def serve(folder: Path, *replies: str) -> TestClient:
    """The server as a process that starts now would run it."""
    (folder / "script.yaml").write_text(yaml.safe_dump([{"reply": text} for text in replies]))
    spec = importlib.util.spec_from_file_location("server", folder / "server.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app: FastAPI = module.app
    return TestClient(app)


def upto(socket: Any, kind: str) -> list[dict[str, Any]]:  # noqa: ANN401 - the test client's session has no public type
    """The events that a browser gets, until one of that kind."""

    def events() -> Iterator[dict[str, Any]]:
        while True:
            event = socket.receive_json()
            yield event
            if event["type"] == kind:
                return

    return list(events())


def test_a_run_is_followed_token_by_token(folder: Path) -> None:
    answer = "The config loader gives an empty dictionary where there is no file."
    with serve(folder, answer) as client, client.websocket_connect("/events") as socket:
        assert client.post("/run", json={"text": "What if it is missing?"}).json() == {"status": "started"}
        events = upto(socket, "end")
    words = [event["text"] for event in events if event["type"] == "stream"]
    assert len(words) > 3
    assert "".join(words) == answer
    assert events[-1] == {"type": "end", "status": "answered", "text": answer}


def test_calls_and_results_are_seen_and_messages_reach_the_agent(folder: Path) -> None:
    with (
        serve(folder, reply("list_files()"), reply(done="Heard.")) as client,
        client.websocket_connect("/events") as ws,
    ):
        assert client.post("/message", json={"text": "Be brief"}).status_code == 202
        client.post("/run", json={"text": "Look"})
        events = upto(ws, "end")
    assert [event["type"] for event in events if event["type"].startswith("tool")] == ["tool_call", "tool_result"]
    assert events[-1]["text"] == "Heard."
    session = FileSession("web", session_dir=folder / ".codepilot" / "sessions")
    assert {"role": "user", "content": "Be brief"} in session.load()


def test_a_call_that_waits_is_approved_after_the_server_was_restarted(folder: Path) -> None:
    with serve(folder, reply('execute("main", "touch made", check=True)', done="Made.")) as client:
        with client.websocket_connect("/events") as socket:
            client.post("/run", json={"text": "Make it"})
            waiting = upto(socket, "paused")[-1]
        assert (waiting["tool"], waiting["kind"]) == ("execute", "permission")
        assert "$ touch made" in waiting["preview"]
        assert client.post("/run", json={"text": "Another"}).status_code == 409
        assert client.post("/approve", json={"request": "00000000", "approve": True}).status_code == 409
    with serve(folder, reply(done="unused")) as client, client.websocket_connect("/events") as socket:
        assert upto(socket, "paused")[-1] == waiting
        assert client.post("/approve", json={"request": waiting["request"], "approve": True}).status_code == 202
        assert upto(socket, "end")[-1]["text"] == "Made."
        assert client.post("/approve", json={"request": waiting["request"], "approve": True}).status_code == 409
    assert (folder / "workspace" / "made").exists()


def test_an_approval_of_what_has_changed_since_is_refused_with_the_reason(folder: Path) -> None:
    block = reply('execute("main", "touch made", check=True)')
    with serve(folder, block) as client, client.websocket_connect("/events") as socket:
        client.post("/run", json={"text": "Make it"})
        waiting = upto(socket, "paused")[-1]
        (folder / "workspace" / "other.txt").write_text("new")
        client.post("/approve", json={"request": waiting["request"], "approve": True})
        assert "other.txt" in upto(socket, "error")[-1]["error"]
    assert not (folder / "workspace" / "made").exists()


def test_a_run_is_stopped_and_the_conversation_forgotten(folder: Path) -> None:
    replies = reply("print(read_file('no'))"), reply(done="Anew.")
    with serve(folder, *replies) as client, client.websocket_connect("/events") as socket:
        client.post("/stop")
        assert client.post("/reset").json() == {"status": "reset"}
        client.post("/run", json={"text": "Read"})
        events = upto(socket, "end")
    assert any(event["type"] == "error" and "FileNotFoundError" in event["error"] for event in events)
    assert events[-1]["text"] == "Anew."
