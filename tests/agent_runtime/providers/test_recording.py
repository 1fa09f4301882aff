from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRefusedError,
    ModelUnreachableError,
    ScriptError,
    SettingsError,
)
from agent_runtime.core.values import Image, ToolAnswer, ToolRequest, Usage
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    TextChunk,
    ToolSchema,
)
from agent_runtime.providers.recording import (
    REDACTED,
    VOLATILE,
    Note,
    RecordingProvider,
    ReplayProvider,
    Tape,
    TapedReply,
    TapedRequest,
    TapeWriter,
    diff_requests,
    has_images,
    load_tape,
    parse_tape,
    redact_request,
)
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
        assert tape.is_truncated is not data[:size].endswith(b"\n")


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


async def test_the_clock_is_masked_unless_the_comparison_is_exact(tmp_path: Path) -> None:
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


async def test_a_redacted_secret_is_no_difference_if_the_replay_knows_it(tmp_path: Path) -> None:
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
    assert provider.tape.is_truncated
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
async def test_a_replay_accepts_images_if_the_recording_has_some(tmp_path: Path, *, seeing: bool) -> None:
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


CHUNKS: tuple[Chunk, ...] = (
    ReplyStart(attempt=1),
    TextChunk(text="Half\u2028 é 🐛"),
    ReplyFault(reason="it broke", billed=True, wait=1.5, model="m-2"),
    ReplyStart(attempt=2),
    TextChunk(text="Who"),
    TextChunk(text="le.\r\n"),
    ReplyEnd(stop="length", usage=Usage(requests=1, input_tokens=7, cost_usd=None), model="m-2"),
)


def request(*texts: str, system: str = "Be brief.", status: str = "") -> Request:
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[index % 2], text=text) for index, text in enumerate(texts))  # type: ignore[arg-type]  # the roles are the two there are
    return Request(system=system, messages=messages, status=status)


def written(writer: TapeWriter, *requests: Request) -> str:
    lines = [writer.header_line("m-1", {"why": "a test"})]
    for each in requests:
        number, line = writer.request_line(each)
        lines += [line, writer.reply_line(number, CHUNKS, None)]
    return "".join(lines)


def test_an_outage_is_replayed_with_its_retry_after() -> None:
    writer = TapeWriter()
    number, line = writer.request_line(request("One"))
    text = (
        writer.header_line("m-1", {}) + line + writer.reply_line(number, [], ModelOutageError("down", retry_after=90.0))
    )
    [_, answer] = parse_tape(text, source="t").entries
    assert isinstance(answer, TapedReply)
    assert isinstance(answer.error, ModelOutageError)
    assert (str(answer.error), answer.error.retry_after) == ("down", 90.0)


def test_a_recording_round_trips_exactly() -> None:
    requests = [
        request("One"),
        request("One", "Two\u2028", "Three\n", status="[Step 2]"),
        request("Other", system="Now"),
    ]
    writer = TapeWriter()
    text = written(writer, *requests) + writer.note_line("event", {"a": [1, None, 2.5]})
    tape = parse_tape(text, source="t")
    assert (tape.model, tape.about, tape.is_truncated) == ("m-1", {"why": "a test"}, False)
    assert [entry.request for entry in tape.entries if isinstance(entry, TapedRequest)] == requests
    assert [entry.chunks for entry in tape.entries if isinstance(entry, TapedReply)] == [CHUNKS] * 3
    assert tape.entries[-1] == Note(kind="event", value={"a": [1, None, 2.5]})


def test_a_growing_conversation_is_written_once() -> None:
    texts = [f"message {number} " + "x" * 1_000 for number in range(60)]
    text = written(TapeWriter(), *[request(*texts[: size + 1], system="s" * 6_000) for size in range(0, 60, 2)])
    assert len(text) < 60 * 1_100 + 6_000 + 30 * 700


def test_an_error_is_decoded_to_its_class() -> None:
    writer = TapeWriter()
    head = writer.header_line("m", {})
    lines = [writer.reply_line(1, [], error) for error in (ContextOverflowError("too long"), ModelError("odd"))]
    lines.append(writer.reply_line(1, [], ModelError("x")).replace('"ModelError"', '"os"'))
    errors = [
        entry.error for entry in parse_tape(head + "".join(lines), source="t").entries if isinstance(entry, TapedReply)
    ]
    assert [(type(error), str(error)) for error in errors] == [
        (ContextOverflowError, "too long"),
        (ModelError, "odd"),
        (ModelError, "x"),
    ]


def test_a_truncated_last_line_is_dropped_and_reported() -> None:
    text = written(TapeWriter(), request("One"))
    tape = parse_tape(text[:-9], source="t")
    assert tape.is_truncated
    assert [type(entry) for entry in tape.entries] == [TapedRequest]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1 is not JSON"),
        ("[]\n", "line 1 is not an object"),
        ("hello\n", "t, line 1 is not JSON"),
        ('{"recording": 2}\n', "not a recording of format 1 .*update the package"),
        ('{"recording": 1, "model": "m"}\n{"surprise": 1}\n', "t, line 2 is not an entry"),
        ('{"recording": 1, "model": "m"}\nnonsense\n{"note": "a", "value": 1}\n', "t, line 2 is not JSON"),
        (
            '{"recording": 1, "model": "m"}\n{"reply": 1, "chunks": [["odd"]], "error": null}\n',
            "line 2 is not an entry",
        ),
    ],
)
def test_an_invalid_recording_is_refused_with_the_line(text: str, told: str) -> None:
    with pytest.raises(ScriptError, match=told):
        parse_tape(text, source="t")


def test_secrets_are_kept_out_wherever_they_stand() -> None:
    secret = 'sk-"quoted"-é'
    writer = TapeWriter(secrets=(secret, ""))
    pieces = [TextChunk(text=f"It is {secret[:5]}"), TextChunk(text=f"{secret[5:]}, I think")]
    _, line = writer.request_line(request(f"key={secret}", system=secret, status=secret))
    lines = [
        writer.header_line(secret, {secret: [secret]}),
        line,
        writer.reply_line(1, [ReplyStart(attempt=1), *pieces], ModelError(secret)),
        writer.note_line("event", {"text": (secret,)}),
    ]
    for line in lines:
        assert secret not in line
        assert json.dumps(secret)[1:-1] not in line
        assert "[secret]" in line
    tape = parse_tape("".join(lines), source="t")
    answer = next(entry for entry in tape.entries if isinstance(entry, TapedReply))
    assert answer.chunks == (ReplyStart(attempt=1), TextChunk(text="It is [secret], I think"))


def test_requests_that_are_alike_have_no_difference() -> None:
    assert not list(diff_requests(request("a", "b"), request("a", "b")))


def test_each_difference_is_a_small_diff_that_names_its_place() -> None:
    body = "\n".join(f"line {number}" for number in range(100))
    then = request("Task", "Reply", body, system="Old", status="[Step 2 of 30]")
    now = request("Task", "Reply", body.replace("line 50\n", "line fifty\n"), system="New", status="[Step 2 of 40]")
    system, message, status = diff_requests(then, now)
    assert system.splitlines()[:2] == ["--- recorded system", "+++ system now"]
    assert "-Old" in system
    assert "+New" in system
    assert "--- recorded message 3" in message
    assert "-line 50\n+line fifty" in message
    assert len(message.splitlines()) < 10
    assert "status" in status


def test_a_message_too_many_is_named() -> None:
    (told,) = diff_requests(request("a"), request("a", "b"))
    assert told.endswith("+2 assistant")


def test_a_difference_of_line_endings_is_reported() -> None:
    (told,) = diff_requests(request("a\r\nb"), request("a\nb"))
    assert told == "message 1: the line endings differ"


def test_a_large_difference_is_cut() -> None:
    (told,) = diff_requests(request("a\n" * 500), request("b " * 1_000))
    assert len(told) < 4_000
    assert "more lines" in told


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("[Step 1. 2026-11-22 01:02 UTC.]", "[Step 1. 2027-01-01 23:59 UTC.]"),
        ("[ENVIRONMENT CHANGE] 2026-11-22 01:02:03", "[ENVIRONMENT CHANGE] 2026-11-22 04:05:06"),
        ("[quote 01234567 from x]\n[end of quote 01234567]", "[quote ba987654 from x]\n[end of quote ba987654]"),
        ("[instructions 01234567 from x]", "[instructions ba987654 from x]"),
        ("[end of instructions 01234567]", "[end of instructions ba987654]"),
        ("3 passed in 0.12s", "3 passed in 1.7s"),
        ("main: idle, pid 7211, cwd /w", "main: idle, pid 80, cwd /w"),
    ],
)  # fmt: skip
def test_volatile_texts_are_masked(then: str, now: str) -> None:
    assert list(diff_requests(request(then), request(now)))
    assert not list(diff_requests(request(then), request(now), masks=VOLATILE))


@pytest.mark.parametrize(
    ("then", "now"), [("3 passed", "4 passed"), ("v1.2.3s4", "v1.2.4s4"), ("in files", "in 5 files")]
)
def test_nothing_else_is_masked(then: str, now: str) -> None:
    assert list(diff_requests(request(then), request(now), masks=VOLATILE))


def test_an_empty_recording_has_a_head() -> None:
    assert parse_tape(TapeWriter().header_line("m", {}), source="t") == Tape(model="m", about={}, entries=())


def looking(*images: Image, text: str = "Look") -> Request:
    return Request(system="Be brief.", messages=(Message(role="user", text=text, images=images),))


def test_images_are_written_once_and_read_to_the_byte() -> None:
    first = looking(picture(), picture("b", shade=3))
    requests = [first, replace(first, messages=(*first.messages, *request("One", "Two").messages))]
    text = written(TapeWriter(), *requests)
    tape = parse_tape(text, source="t")
    assert [entry.request for entry in tape.entries if isinstance(entry, TapedRequest)] == requests
    assert text.count(picture().data) == 1
    assert has_images(tape)


def test_a_message_without_images_is_written_as_ever() -> None:
    text = written(TapeWriter(), request("One"))
    assert '"messages": [["user", "One"]]' in text
    assert not has_images(parse_tape(text, source="t"))


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (looking(picture(shade=4)), "sha256"),
        (looking(picture("elsewhere")), "+[image elsewhere: image/png"),
        (looking(), "-[image issue #12 by @mona: image/png"),
        (looking(picture(), picture()), "+[image issue #12 by @mona: image/png"),
    ],
    ids=["other bytes", "another source", "none", "one more"],
)
def test_other_images_are_a_difference_that_shows_no_bytes(now: Request, told: str) -> None:
    (difference,) = diff_requests(looking(picture()), now, masks=VOLATILE)
    assert told in difference
    assert picture().data not in difference


def test_the_same_images_are_no_difference() -> None:
    assert [*diff_requests(looking(picture()), looking(picture()))] == []


def test_secrets_are_kept_out_of_images_too_and_the_request_is_known_again() -> None:
    image = picture("at hunter2's desk")
    secrets = ("hunter2", image.data[8:30])
    text = written(TapeWriter(secrets=secrets), looking(image))
    assert not any(secret in text for secret in secrets)
    (asked,) = (entry for entry in parse_tape(text, source="t").entries if isinstance(entry, TapedRequest))
    assert asked.request == redact_request(looking(image), secrets)


@pytest.mark.parametrize("images", ['[{"source": "s"}]', '"x"', "[3]", "3", "[], []"])
def test_an_invalid_image_is_no_entry_of_a_recording(images: str) -> None:
    text = written(TapeWriter(), request("One")).replace('["user", "One"]', f'["user", "One", {images}]')
    with pytest.raises(ScriptError, match="t, line 2 is not an entry"):
        parse_tape(text, source="t")


@pytest.mark.parametrize("secret", ['pa"ss\\word', "pässword", "two\nlines"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_that_the_arguments_of_a_call_escape_is_kept_out(secret: str, *, ascii_only: bool) -> None:
    arguments = json.dumps({"a": secret}, ensure_ascii=ascii_only)
    pieces = [CallChunk(index=0, name="find", arguments=each) for each in (arguments[:9], arguments[9:])]
    lines = [TapeWriter().header_line("m", {}), TapeWriter(secrets=(secret,)).reply_line(1, pieces, None)]
    [answered] = parse_tape("".join(lines), source="t").entries
    assert isinstance(answered, TapedReply)
    assert answered.chunks == (CallChunk(index=0, name="find", arguments=f'{{"a": "{REDACTED}"}}'),)


def test_native_tool_calls_are_kept_and_no_secret_of_them() -> None:
    tool = ToolSchema(name="find", description="Find", parameters={"type": "object"})
    asks = ToolRequest(id="c1", name="find", arguments='{"a": "s3cret"}')
    gives = ToolAnswer(id="c1", text="s3cret", ok=False, images=(picture("plot"),))
    said = Message(role="assistant", text="", requests=(asks,), reasoning="signed")
    first = Request(system="", messages=(Message(role="user", text="go"),), tools=(tool,))
    second = replace(first, messages=(*first.messages, said, Message(role="user", text="", answers=(gives,))))
    third = replace(second, tools=())
    pieces = ['{"a": "s3', 'cret"}']
    chunks: list[Chunk] = [
        CallChunk(index=0, id="c1", name="find"),
        *(CallChunk(index=0, arguments=each) for each in pieces),
        ReplyEnd(stop="stop", usage=Usage(), reasoning="signed"),
    ]
    writer = TapeWriter(secrets=("s3cret",))
    lines = [writer.header_line("m", {})]
    for each in (first, second, third):
        number, line = writer.request_line(each)
        lines += [line, writer.reply_line(number, chunks, None)]
    text = "".join(lines)
    assert "s3cret" not in text
    assert "cret" not in text.replace(REDACTED, "")
    entries = parse_tape(text, source="t").entries
    told = [entry.request for entry in entries if isinstance(entry, TapedRequest)]
    assert told == [redact_request(each, ("s3cret",)) for each in (first, second, third)]
    [answered, *_] = [entry for entry in entries if isinstance(entry, TapedReply)]
    assert answered.chunks == (
        CallChunk(index=0, id="c1", name="find", arguments='{"a": "[secret]"}'),
        ReplyEnd(stop="stop", usage=Usage(), reasoning="signed"),
    )
    assert [*diff_requests(told[0], told[2])]
