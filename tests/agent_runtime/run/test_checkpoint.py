from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from agent_runtime import FileSession, SettingsError
from agent_runtime.run.checkpoint import StateKey, load_key


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_without_a_home_directory_the_setting_that_takes_its_place_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(SettingsError, match="state_key"):
        StateKey(None, persistent=True, work_dir=tmp_path)
    with pytest.raises(SettingsError, match="session_dir"):
        FileSession("s")
    assert StateKey(b"k" * 32, persistent=True, work_dir=tmp_path)() == b"k" * 32
    assert FileSession("s", session_dir=tmp_path).path.parent == tmp_path


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_without_hard_links_one_key_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(_source: Path, _target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    path, found = tmp_path / "private" / "state.key", list[bytes]()
    threads = [threading.Thread(target=lambda: found.append(load_key(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {path.read_bytes()}
    assert len(found[0]) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["state.key"]


def test_a_key_that_another_process_is_about_to_write_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "state.key"
    path.touch(mode=0o600)
    writing = threading.Timer(0.1, path.write_bytes, [b"k" * 32])
    writing.start()
    assert load_key(path) == b"k" * 32
    writing.join()


def test_another_failure_of_the_file_system_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(_source: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(SettingsError, match="No space left"):
        load_key(tmp_path / "state.key")
    assert not list(tmp_path.iterdir())
