from __future__ import annotations

import json
import logging
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_runtime.core.errors import SessionDamagedError, SessionError, SessionNewerError
from agent_runtime.core.events import Observed, Replied
from agent_runtime.core.values import Usage
from agent_runtime.sessions import file
from agent_runtime.sessions.codec import encode
from agent_runtime.sessions.file import FileLock, FileSession
from agent_runtime.sessions.protocol import Holder

Make = Callable[..., FileSession]


def a_message(number: int = 1, text: str = "text") -> Observed:
    return Observed(step=number, text=f"{text} {number}", ok=True)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Sessions in one directory; closed in the end."""
    made: list[FileSession] = []

    def session(session_id: str = "s") -> FileSession:
        made.append(FileSession(session_id, session_dir=tmp_path / "sessions"))
        return made[-1]

    yield session
    for each in made:
        each.close()


async def a_log(make: Make, events: int = 3) -> Path:
    """The log of a session with some events, closed."""
    session = make("s")
    for number in range(1, events + 1):
        session.append(a_message(number))
    await session.commit()
    session.close()
    return session.path


def test_sessions_lie_in_the_home_directory_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    session = FileSession("ecommerce-api", "BackendEngineer")
    session.append(a_message())
    session.close()
    assert session.path.parent == tmp_path / ".codepilot" / "sessions"
    assert [each["session_id"] for each in FileSession("_", "_").list_sessions()] == ["ecommerce-api"]


async def test_nobody_else_can_read_what_lies_there(make: Make) -> None:
    path = await a_log(make)
    with path.open("ab") as log:
        log.write(b'{"half')
    session = make()
    assert session.recovered
    session.close()
    files = list(path.parent.iterdir())
    assert {each.suffix for each in files} == {".jsonl", ".index", ".lock", ".corrupt"}
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_the_log_is_lines_that_people_can_read(make: Make) -> None:
    path = await a_log(make, events=2)
    header, *events = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["session_id"] == "s"
    assert header["format"] == 1
    assert events == [{"kind": "Observed", "step": n, "text": f"text {n}", "ok": True} for n in (1, 2)]


async def test_what_is_recorded_is_in_the_file_before_any_commit(make: Make) -> None:
    session = make()
    session.append(a_message())
    assert session.path.read_bytes().endswith(encode(a_message()) + b"\n")
    assert make().load() == [{"role": "user", "content": "text 1"}]
    assert (known := make().metadata()) is not None
    assert known["messages"] == 1


async def test_nothing_is_rewritten_when_an_event_is_added(make: Make) -> None:
    path = await a_log(make)
    before, inode = path.read_bytes(), path.stat().st_ino
    session = make()
    session.append(a_message(4))
    await session.commit()
    assert path.read_bytes() == before + encode(a_message(4)) + b"\n"
    assert path.stat().st_ino == inode


async def test_a_log_cut_anywhere_in_its_last_event_is_recovered_to_the_one_before(make: Make) -> None:
    path = await a_log(make)
    whole = path.read_bytes()
    last = len(encode(a_message(3))) + 1
    for cut in range(len(whole) - last, len(whole)):
        path.write_bytes(whole[:cut])
        session = make()
        expected = [1, 2] if cut < len(whole) - 1 else [1, 2, 3]
        assert [event.step for event in session.events if isinstance(event, Observed)] == expected
        assert bool(session.recovered) == (len(whole) - last < cut < len(whole) - 1)
        session.append(a_message(9))
        session.close()
        again = make()
        assert again.events[-1] == a_message(9)
        assert not again.recovered
        again.close()


@pytest.mark.parametrize("tail", [b'{"kind":"Obs', b"\0" * 5000, b"\xff\xfe\n", b'{"kind":"Observed"}\n{"ki', b"\n\n"])
async def test_what_is_cut_off_is_kept_beside_and_said(
    make: Make, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = await a_log(make)
    with path.open("ab") as log:
        log.write(tail)
    assert len(make().load()) == 3
    assert (known := make().metadata()) is not None
    assert known["messages"] == 3
    with caplog.at_level(logging.WARNING):
        session = make()
        assert len(session.events) == 3
    kept = path.with_suffix(".corrupt")
    assert kept.read_bytes() == tail + b"\n"
    assert f"last {len(tail)} bytes" in session.recovered
    assert "line 5" in session.recovered
    assert str(kept) in session.recovered
    assert session.recovered in caplog.text
    session.reset()
    assert not kept.exists()


async def test_a_log_that_was_not_even_begun_is_begun_anew(make: Make) -> None:
    path = await a_log(make)
    for left in (b"", b'{"format":1,"sess', b"\0" * 100):
        path.write_bytes(left)
        session = make()
        assert session.events == []
        session.append(a_message())
        session.close()
        assert make().load() == [{"role": "user", "content": "text 1"}]


@pytest.mark.parametrize("line", [1, 2, 3])
async def test_damage_in_the_middle_is_refused_with_its_line_and_never_overwritten(make: Make, line: int) -> None:
    path = await a_log(make)
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = lines[line - 1][:10] + b"\xff" + lines[line - 1][11:]
    path.write_bytes(b"\n".join(lines))
    damaged = path.read_bytes()
    session = make()
    for use in (lambda: session.events, session.load, session.reset, lambda: session.append(a_message())):
        with pytest.raises(SessionDamagedError, match=rf"{path} .* line {line} "):
            use()
    assert path.read_bytes() == damaged
    assert not path.with_suffix(".corrupt").exists()


@pytest.mark.parametrize("place", ["header", "kind", "field"])
async def test_what_a_newer_version_wrote_is_refused_and_never_overwritten(
    make: Make, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = await a_log(make)
    text = path.read_text()
    newer = {
        "header": text.replace('"format":1', '"format":2'),
        "kind": text + '{"kind":"Dreamt"}\n',
        "field": text.replace('"step":3', '"mood":"good","step":3'),
    }[place]
    path.write_text(newer)
    path.with_suffix(".index").unlink()
    session = make()
    for use in (lambda: session.events, session.load, session.metadata, session.reset, lambda: session.save([])):
        with pytest.raises(SessionNewerError, match=f"{path}, line "):
            use()
    assert session.list_sessions() == []
    assert str(path) in caplog.text
    assert path.read_text() == newer


async def test_a_file_of_another_session_is_refused(make: Make) -> None:
    path = await a_log(make)
    other = make("other")
    path.rename(other.path)
    with pytest.raises(SessionError, match="belongs to session 's'"):
        _ = other.events


@pytest.mark.parametrize("damage", [None, b"", b"{}", b"[]", b'{"format":99}', b"\xff"])
async def test_an_index_that_is_lost_or_damaged_is_no_loss(make: Make, damage: bytes | None) -> None:
    path = await a_log(make)
    index = path.with_suffix(".index")
    expected = make().metadata()
    assert expected is not None
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)
    known = make().metadata()
    assert known is not None
    assert {**known, "updated_at": 0} == {**expected, "updated_at": 0}


@pytest.mark.parametrize("torn", [b"", b'{"kind'])
async def test_an_index_that_is_ahead_of_its_log_is_no_loss(make: Make, torn: bytes) -> None:
    path = await a_log(make)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]) + torn)
    for number in range(2, 9):
        session = make()
        session.append(a_message(number))
        assert (known := make().metadata()) is not None
        assert known["messages"] == number
        session.close()


async def test_the_list_reads_no_logs(make: Make) -> None:
    path = await a_log(make)
    size = path.stat().st_size
    path.write_bytes(b"x" * size)
    assert make().list_sessions()[0]["messages"] == 3


async def test_the_index_follows_a_log_that_grows(make: Make) -> None:
    session = make()
    for number in range(20):
        session.append(a_message(number, text="x" * 10_000))
        await session.commit()
    covered = json.loads(session.path.with_suffix(".index").read_text())["size"]
    assert 0 <= session.path.stat().st_size - covered < 70_000
    assert (known := make().metadata()) is not None
    assert known["messages"] == 20


async def test_an_index_that_is_behind_is_completed_from_the_end_of_the_log(make: Make) -> None:
    path = await a_log(make)
    session = make()
    session.append(Replied(step=4, text="x", usage=Usage()))
    session.append(a_message(5))
    (known,) = make().list_sessions()
    assert known["messages"] == 5
    assert json.loads(path.with_suffix(".index").read_text())["messages"] == 3


@contextmanager
def a_full_disk(path: Path, room: int) -> Iterator[None]:
    """Let no file grow beyond the size of `path` and some more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_is_said_and_leaves_the_log_whole(make: Make) -> None:
    path = await a_log(make)
    session = make()
    session.append(a_message(4))
    with a_full_disk(path, room=100), pytest.raises(SessionError) as caught:
        session.append(a_message(5, text="x" * 60_000))
    assert str(path) in str(caught.value)
    assert "space" in str(caught.value)
    assert len(session.events) == 4
    assert len(make().load()) == 4
    session.append(a_message(6))
    expected = list(session.events)
    session.close()
    again = make()
    assert again.events == expected
    assert not again.recovered


async def test_a_full_disk_while_messages_are_replaced_leaves_the_old_ones(make: Make) -> None:
    path = await a_log(make)
    session = make()
    before = session.load()
    with a_full_disk(path, room=100), pytest.raises(SessionError):
        session.save([{"role": "user", "content": "x" * 60_000}])
    assert session.load() == before
    session.append(a_message(4))
    session.close()
    assert len(make().events) == 4
    assert not path.with_suffix(".new").exists()


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    session = FileSession("s", session_dir=tmp_path / "file" / "sessions")
    with pytest.raises(SessionError, match=r"file/sessions/s-.*cannot be used"):
        session.append(a_message())
    assert not session.exists()
    assert session.list_sessions() == []


_HOLDER = """
import os, signal, subprocess, sys
from pathlib import Path
from agent_runtime.sessions.file import FileLock
lock = FileLock(Path(sys.argv[1]), "s")
fd = lock._lock._context.lock_file_fd
os.set_inheritable(fd, True)
subprocess.Popen(["cat"], pass_fds=[fd])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lock_that_a_child_of_a_killed_process_still_has_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.lock"
    with subprocess.Popen([sys.executable, "-c", _HOLDER, path], stdin=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.wait(timeout=60) == -signal.SIGKILL
        read_holder = file._read_holder

        def end_child(path: Path) -> Holder | None:
            """The lock was refused: the child may end now."""
            assert holder.stdin is not None
            holder.stdin.close()
            return read_holder(path)

        monkeypatch.setattr(file, "_read_holder", end_child)
        lock = FileLock(path, "s")
        assert holder.stdin.closed
        lock.release()
