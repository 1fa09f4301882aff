"""Recording what goes over real sockets, and replaying it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_runtime.core.errors import ModelRefusedError, ModelUnreachableError, ScriptError, SettingsError
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import Chunk, Message, Provider, Request, TextChunk
from agent_runtime.providers.recording import RecordingProvider, ReplayProvider, load_tape
from agent_runtime.providers.scripted import ScriptedProvider
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.providers.conversations import KEY, WIRES, Naps, conversation, provider_on
from tests.model_server import Breaks, Fails, ModelServer, Reply, Says, Wire


async def chunks_of(provider: Provider, request: Request) -> list[Chunk]:
    return [chunk async for chunk in provider.reply(request)]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_recording_replays_chunk_for_chunk(wire: Wire, tmp_path: Path) -> None:
    replies: list[Reply] = [
        Breaks("drop", text="Half of it"),
        "A whole reply, é 🐛.",
        Fails(500),
        Says("Cut", stop="length"),
    ]
    path = tmp_path / "run.jsonl"
    async with ModelServer(replies=replies) as server:
        recording = RecordingProvider(provider_on(server, wire), path)
        live = [await chunks_of(recording, conversation(step, status=f"[Step {step}]")) for step in (1, 2)]
        await recording.close()
    replaying = ReplayProvider(path, masks=())
    again = [await chunks_of(replaying, conversation(step, status=f"[Step {step}]")) for step in (1, 2)]
    assert again == live
    assert (replaying.model, replaying.remaining) == (recording.model, 0)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_recording_is_its_owners_and_never_holds_the_key(wire: Wire, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    leak = Fails(500, "oops", f"header authorization: Bearer {KEY}")
    async with ModelServer(replies=["Hello.", leak]) as server:
        options = ModelOptions(retry=Naps().retry(attempts=1))
        recording = RecordingProvider(provider_on(server, wire, options), path)
        await chunks_of(recording, conversation())
        with pytest.raises(ModelUnreachableError):
            await chunks_of(recording, conversation())
        assert KEY not in repr(recording)
        await recording.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert KEY not in path.read_text()


async def test_a_recording_that_was_cut_at_any_byte_can_be_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recording = RecordingProvider(ScriptedProvider(["Gr\u00fc\u00dfe \U0001f41b"]), path)
    await chunks_of(recording, conversation())
    await recording.close()
    data = path.read_bytes()
    for size in range(data.index(b"\n") + 1, len(data)):
        path.write_bytes(data[:size])
        tape = load_tape(path)
        assert len(tape.entries) == data[:size].count(b"\n") - 1
        assert tape.torn is not data[:size].endswith(b"\n")


async def test_an_error_is_replayed_as_the_error_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with ModelServer(replies=[Says("No.", stop="refusal")]) as server:
        recording = RecordingProvider(provider_on(server, "anthropic"), path)
        with pytest.raises(ModelRefusedError) as live:
            await chunks_of(recording, conversation())
        await recording.close()
    with pytest.raises(ModelRefusedError) as again:
        await chunks_of(ReplayProvider(path), conversation())
    assert str(again.value) == str(live.value)


async def recorded(path: Path, *requests: Request) -> None:
    recording = RecordingProvider(ScriptedProvider([f"Reply {number}." for number in range(len(requests))]), path)
    for request in requests:
        await chunks_of(recording, request)
    await recording.close()


async def test_a_request_that_differs_is_held_against_none_of_a_child_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    theirs = Request(system="A child.", messages=(Message(role="user", text="Theirs."),), child=True)
    await recorded(path, theirs, conversation(status="[Step 1]"))
    with pytest.raises(ScriptError, match=r"Request 2 of 2 differs .*\n.*\n.*\n.*\n-\[Step 1\]\n\+\[Step 2\]"):
        await chunks_of(ReplayProvider(path), conversation(status="[Step 2]"))
    lenient = ReplayProvider(path, strict=False)
    for request, text in ((conversation(status="[Step 2]"), "Reply 1."), (theirs, "Reply 0.")):
        told = await chunks_of(lenient, request)
        assert "".join(chunk.text for chunk in told if isinstance(chunk, TextChunk)) == text


async def test_a_request_that_differs_is_shown_as_a_diff(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await recorded(path, conversation(2))
    changed = Request(system="You break programs.", messages=conversation(2).messages)
    provider = ReplayProvider(path)
    with pytest.raises(ScriptError, match=r"Request 1 of 1 .*run\.jsonl") as caught:
        await chunks_of(provider, changed)
    assert "-You repair programs.\n+You break programs." in str(caught.value)
    assert provider.departure == str(caught.value)
    assert provider.remaining == 1


async def test_differences_can_be_kept_instead(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await recorded(path, conversation(1), conversation(2))
    provider = ReplayProvider(path, strict=False)
    await chunks_of(provider, Request(system="", messages=conversation(1).messages))
    await chunks_of(provider, conversation(2))
    assert len(provider.differences) == 1
    assert provider.remaining == 0


async def test_the_clock_is_masked_unless_the_byte_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await recorded(path, conversation(1, status="[Step 1. 2026-11-22 01:02 UTC.]"))
    later = conversation(1, status="[Step 1. 2026-11-23 09:10 UTC.]")
    assert await chunks_of(ReplayProvider(path), later)
    with pytest.raises(ScriptError, match="status"):
        await chunks_of(ReplayProvider(path, masks=()), later)


async def test_one_request_too_many_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await recorded(path, conversation(1))
    provider = ReplayProvider(path)
    await chunks_of(provider, conversation(1))
    with pytest.raises(ScriptError, match="has 1 requests, but the conversation makes one more"):
        await chunks_of(provider, conversation(2))


async def test_what_was_hidden_is_no_difference_to_who_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    request = Request(system="", messages=(Message(role="user", text="The password is hunter2"),))
    recording = RecordingProvider(ScriptedProvider(["hunter2, then."]), path, secrets=["hunter2"])
    await chunks_of(recording, request)
    await recording.close()
    assert "hunter2" not in path.read_text()
    with pytest.raises(ScriptError, match="differs"):
        await chunks_of(ReplayProvider(path), request)
    assert await chunks_of(ReplayProvider(path, secrets=["hunter2"]), request)


async def test_a_reply_that_was_left_early_is_recorded_as_far_as_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with ModelServer(replies=[Breaks("silence", text="Thinking")]) as server:
        recording = RecordingProvider(provider_on(server, "chat"), path)
        async with aclosing(recording.reply(conversation())) as chunks:
            read = [await anext(chunks), await anext(chunks)]
        await recording.close()
    assert await chunks_of(ReplayProvider(path), conversation()) == read


async def test_a_recording_whose_process_died_in_mid_reply_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await recorded(path, conversation(1))
    whole = path.read_text()
    path.write_text(whole[: len(whole) - 30])
    provider = ReplayProvider(path)
    assert provider.tape.torn
    with pytest.raises(ScriptError, match="process died"):
        await chunks_of(provider, conversation(1))


async def test_two_conversations_at_once_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    requests = [Request(system="", messages=(Message(role="user", text=text),)) for text in ("One", "Two")]
    recording = RecordingProvider(ScriptedProvider(["First reply.", "Second reply."], delay=0.001), path)
    live = await asyncio.gather(*[chunks_of(recording, request) for request in requests])
    await recording.close()
    provider = ReplayProvider(path)
    assert [await chunks_of(provider, request) for request in requests] == live


def test_no_file_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(SettingsError, match="already exists"):
        RecordingProvider(ScriptedProvider([]), path)
    with pytest.raises(SettingsError, match=r"nowhere.*No such file"):
        RecordingProvider(ScriptedProvider([]), tmp_path / "nowhere" / "run.jsonl")
    assert path.read_text() == "mine"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"nothing\.jsonl"):
        ReplayProvider(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("seeing", [True, False])
async def test_a_recording_sees_as_its_model_does_and_a_replay_what_was_shown(tmp_path: Path, *, seeing: bool) -> None:
    path = tmp_path / "run.jsonl"
    request = conversation(images=(picture(),) if seeing else ())
    recording = RecordingProvider(ScriptedProvider(["Seen."], sees_images=seeing), path)
    live = await chunks_of(recording, request)
    await recording.close()
    replaying = ReplayProvider(path, masks=())
    assert (recording.sees_images, replaying.sees_images) == (seeing, seeing)
    assert await chunks_of(replaying, request) == live


async def test_a_replay_notices_another_image(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await recorded(path, conversation(images=(picture(),)))
    with pytest.raises(ScriptError, match="differs"):
        await chunks_of(ReplayProvider(path), conversation(images=(picture(shade=7),)))
