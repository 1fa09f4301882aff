from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given

from agent_runtime.core.errors import SessionError, SessionInUseError
from agent_runtime.core.events import Imported, Observed, Recorded, Recovered, Replied
from agent_runtime.core.values import ToolRequest, Usage
from agent_runtime.sessions.codec import decode, encode
from agent_runtime.sessions.file import FileSession
from agent_runtime.sessions.protocol import InMemorySession, Session, scrub_value
from tests.agent_runtime.sessions.samples import SAMPLES, any_event
from tests.agent_runtime.sessions.stores import Store
from tests.agent_runtime.sessions.writer import write
from tests.forked import Forked
from tests.source_files import ROOT

IDS = ["a/b", "a_b", "A", "a", "", "..", "x" * 300, "a\0b", "\ud800", "a\\b", "it's", "☃"]
HELLO = [{"role": "user", "content": "hello\0\ud800"}, {"role": "assistant", "content": ""}]
MORE = [*HELLO, {"role": "assistant", "content": "and"}, {"role": "user", "content": "more"}]


def a_message(number: int = 1) -> Observed:
    return Observed(step=number, text=f"text {number}", ok=True)


@contextmanager
def another_process(store: Store, events: int = 0) -> Iterator[Forked]:
    """A process that holds session `s` and has recorded some events in it."""
    with Forked(write, store.to_json(), events, piped=True) as process:
        for _ in range(1 + events + events // 3):
            assert process.stdout.readline()
        yield process


async def test_what_was_committed_is_there_after_reopening(store: Store) -> None:
    session: Session = store.session()
    for event in SAMPLES:
        session.append(event)
    await session.commit()
    assert tuple(session.events) == SAMPLES
    session.close()
    assert tuple(store.session().events) == SAMPLES


async def test_a_closed_session_can_be_used_again(store: Store) -> None:
    session = store.session()
    session.append(a_message(1))
    session.close()
    session.close()
    session.append(a_message(2))
    await session.commit()
    assert session.events == [a_message(1), a_message(2)]


async def test_closing_keeps_what_was_not_committed(store: Store) -> None:
    session = store.session()
    session.append(a_message())
    session.close()
    assert store.session().events == [a_message()]


async def test_a_session_that_nobody_closed_is_free_and_whole_once_it_is_dropped(store: Store) -> None:
    session = Store(session_dir=store.session_dir, db_url=store.db_url).session()
    session.append(a_message())
    del session
    assert store.session().events == [a_message()]


@pytest.mark.slow
def test_a_process_that_ends_without_closing_leaves_the_session_whole_and_free(store: Store) -> None:
    code = """
import sys
from agent_runtime.core.events import Recovered
from tests.agent_runtime.sessions.stores import Store
from tests.agent_runtime.sessions.writer import write
from tests.forked import Forked
session = Store.from_json(sys.argv[1]).session()
session.append(Recovered(text="the last words"))
"""
    subprocess.run([sys.executable, "-c", code, store.to_json()], cwd=ROOT, check=True)
    assert store.session().events == [Recovered(text="the last words")]


async def test_committing_nothing_makes_nothing(store: Store) -> None:
    session = store.session()
    await session.commit()
    assert session.events == []
    await session.commit()
    assert not session.exists()
    assert session.metadata() is None
    assert session.load() == []
    assert session.recovered == ""


async def test_events_may_be_recorded_while_a_commit_is_under_way(store: Store) -> None:
    session = store.session()
    for number in range(30):
        session.append(a_message(number))
        commit = asyncio.create_task(session.commit())
        await asyncio.sleep(0)
        session.append(a_message(-number))
        if number % 7 == 0:
            commit.cancel()
        await asyncio.wait([commit])
    await session.commit()
    expected = list(session.events)
    session.close()
    assert store.session().events == expected
    assert len(expected) == 60


async def test_ids_are_kept_apart_whatever_characters_they_hold(store: Store) -> None:
    for number, session_id in enumerate(IDS):
        session = store.session(session_id)
        session.append(a_message(number))
        session.close()
    for number, session_id in enumerate(IDS):
        assert store.session(session_id).events == [a_message(number)]
    assert sorted(each["session_id"] for each in store.session().list_sessions()) == sorted(IDS)


async def test_reset_forgets_everything_and_the_session_goes_on(store: Store) -> None:
    session = store.session()
    session.append(a_message(1))
    await session.commit()
    session.append(a_message(2))
    session.reset()
    assert session.events == []
    assert not session.exists()
    session.append(a_message(3))
    await session.commit()
    session.close()
    assert store.session().events == [a_message(3)]
    assert (known := session.metadata()) is not None
    assert known["messages"] == 1


async def test_metadata_tells_of_the_session_without_opening_it(store: Store) -> None:
    session = store.session(agent_name="BackendEngineer")
    for event in SAMPLES:
        session.append(event)
    await session.commit()
    known = store.session(agent_name="somebody else").metadata()
    assert known is not None
    assert known["session_id"] == "s"
    assert known["agent_name"] == "BackendEngineer"
    assert known["messages"] == len(session.load()) == 9
    assert 1_700_000_000 < known["created_at"] <= known["updated_at"]


async def test_looking_into_a_session_does_not_use_it(store: Store) -> None:
    session = store.session()
    session.append(a_message())
    session.close()
    before = session.metadata()
    assert len(session.events) == 1
    await session.commit()
    session.close()
    assert session.metadata() == before


async def test_the_list_has_every_session_the_last_used_first(store: Store) -> None:
    assert store.session("_").list_sessions() == []
    for session_id in ("old", "new", "old"):
        session = store.session(session_id)
        session.append(a_message())
        await session.commit()
        session.close()
    assert [(each["session_id"], each["messages"]) for each in store.session("_").list_sessions()] == [
        ("old", 2),
        ("new", 1),
    ]


async def test_asking_about_a_session_that_is_worked_on_takes_no_lock(store: Store) -> None:
    session = store.session()
    session.append(a_message())
    await session.commit()
    beside = store.session()
    assert beside.exists()
    assert beside.metadata() is not None
    assert beside.load() == session.load()
    assert len(beside.list_sessions()) == 1


@pytest.mark.slow
async def test_a_second_process_is_refused_with_the_holder_named(store: Store) -> None:
    with another_process(store, events=4) as holder:
        session = store.session()
        with pytest.raises(SessionInUseError, match=rf"'s' .* process {holder.pid} on .+, since 20.+ UTC"):
            session.append(a_message())
        with pytest.raises(SessionError, match=str(holder.pid)) as caught:
            _ = session.events
        assert "Wait until that is done" in str(caught.value)
        assert store.session("another").events == []
        holder.stdin.close()
        assert await holder.wait() == 0
    assert [event.step for event in session.events if isinstance(event, Observed)] == [1, 2, 3, 4]


async def test_a_second_session_in_the_same_process_is_refused_too(store: Store) -> None:
    first = store.session()
    assert first.events == []
    with pytest.raises(SessionInUseError, match=r"of this process that was not closed, .*close\(\)") as refused:
        _ = store.session().events
    if isinstance(first, FileSession):
        assert f"opened by {__file__}, line " in str(refused.value)
    first.close()
    assert store.session().events == []


@pytest.mark.slow
async def test_a_session_whose_holder_was_killed_is_free_at_once(store: Store) -> None:
    with another_process(store, events=3) as holder:
        holder.kill()
        await holder.wait()
        assert len(store.session().events) == 3


def test_messages_that_were_saved_are_loaded(session: InMemorySession) -> None:
    session.save(HELLO)
    assert session.load() == HELLO
    assert session.events == [Imported(role="user", text="hello\0\ud800"), Imported(role="assistant", text="")]


def test_saving_more_adds_what_is_new(session: InMemorySession) -> None:
    session.append(a_message())
    session.save([{"role": "user", "content": "text 1"}, *HELLO])
    assert session.events[0] == a_message()
    assert len(session.load()) == 3
    session.save(session.load())
    assert len(session.events) == 3


def test_saving_something_else_takes_the_place_of_all(session: InMemorySession) -> None:
    session.save(MORE)
    session.save(HELLO)
    assert session.load() == HELLO
    session.save(MORE)
    assert session.load() == MORE
    known = session.metadata()
    assert known is not None
    assert known["messages"] == 4
    session.save([])
    assert session.load() == []
    assert not session.exists()
    session.save(HELLO)
    assert (known := session.metadata()) is not None
    assert known["messages"] == 2


async def test_what_was_saved_outlives_the_process_without_a_commit(store: Store) -> None:
    session = store.session()
    session.save(MORE)
    session.save(HELLO)
    assert store.session().load() == HELLO
    session.append(a_message())
    await session.commit()
    session.close()
    assert len(store.session().events) == 3


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("hi", "message 2 is a str"),
        ({"role": "system", "content": "x"}, "message 2 has the role 'system'"),
        ({"role": "user", "content": [{"type": "text"}]}, "content of message 2 is a list"),
        ({"role": "user"}, "content of message 2 is a NoneType"),
    ],
)
def test_messages_in_another_form_are_refused_and_nothing_changes(
    session: InMemorySession, message: object, reason: str
) -> None:
    session.save(HELLO)
    with pytest.raises(SessionError, match=reason):
        session.save([HELLO[0], message])
    assert session.load() == HELLO


@given(any_event())
def test_what_holds_no_secret_comes_back_as_it_is(event: Recorded) -> None:
    assert scrub_value(event, lambda text: text) == event


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_every_text_is_scrubbed_and_what_is_left_can_be_kept(event: Recorded) -> None:
    clean = scrub_value(event, lambda _text: "x")
    assert decode(encode(clean)) == clean
    kept = encode(clean).decode("utf-8", "surrogatepass")
    for word in ("mend it", "half a character", "found", "hurry", "look at it", "HEAD: 1234", "rm -r build"):
        assert word not in kept


@pytest.mark.parametrize("secret", ['pa"ss\\word', "pässword", "two\nlines", "a\ttab"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_that_json_escapes_is_taken_out_of_arguments_and_reasoning(secret: str, *, ascii_only: bool) -> None:
    def scrub(text: str) -> str:
        return text.replace(secret, "[secret]")

    written = json.dumps({"code": f"login({secret})", secret: [1.5]}, ensure_ascii=ascii_only)
    request = ToolRequest(id="1", name="script", arguments=written)
    clean = scrub_value(Replied(step=1, text="", usage=Usage(), requests=(request,), reasoning=written), scrub)
    assert json.loads(clean.requests[0].arguments) == {"code": "login([secret])", "[secret]": [1.5]}
    assert clean.reasoning == ""
    for untouched in ('{"a":  NaN}', '{"a":', "[" * 5_000, '{"a": 1, "a": 2}'):
        assert scrub_value(replace(request, arguments=untouched), scrub).arguments == untouched


def test_signed_reasoning_that_holds_a_secret_is_dropped_whole() -> None:
    event = Replied(step=1, text="", usage=Usage(), reasoning='{"kept": "s3cret"}')
    clean = scrub_value(event, lambda text: text.replace("s3cret", "[secret]"))
    assert clean == replace(event, reasoning="")
