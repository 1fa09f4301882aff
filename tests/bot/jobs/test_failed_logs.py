"""The logs of a run's jobs: each job's own, else the zip file of all, else why there is none."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bot.github.client import GitHub
from bot.github.downloads import LogError, LogGoneError
from bot.github.types import GitHubError, JobFacts
from bot.jobs import material
from bot.jobs.material import FailedLogs

LOG = b"2026-01-01T00:00:00.0000000Z ##[group]Run pytest\n2026-01-01T00:00:01.0000000Z ##[error]1 failed in %b\n"
GONE = GitHubError("read the log", 410, "Gone", "It was deleted.")
DENIED = GitHubError("read the log", 403, "Resource not accessible by integration", "Grant it.")
DOWN = GitHubError("read the log", 502, "Bad gateway", "Later.")


@dataclass(slots=True)
class _Logs:
    """Where GitHub says that logs are, and what is there; an error in place of either is raised."""

    own: str | GitHubError = "own"
    every: str | GitHubError = "zip"
    broken: dict[str, LogError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    folders: set[Path] = field(default_factory=set)

    async def job_log_url(self, _: str, job_id: int) -> str:
        return self._told(self.own, f"{self.own} {job_id}")

    async def logs_url(self, *_: object) -> str:
        return self._told(self.every, f"{self.every}")

    def _told(self, known: str | GitHubError, address: str) -> str:
        if isinstance(known, GitHubError):
            raise known
        return address

    async def save(self, address: str, file: Path, *, most: int, tail: int, seconds: float, **trust: object) -> None:
        assert 0 < seconds <= 60.0
        assert trust == {"plain": True, "ca_file": None}
        assert tail < most
        self.asked.append(address)
        self.folders.add(file.parent)
        if address in self.broken:
            raise self.broken[address]
        _write(address, file)


def _write(address: str, file: Path) -> None:
    if address == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("0_test (3.11).txt", LOG % b"zip")
    else:
        file.write_bytes(LOG % address.encode())


async def _read(logs: _Logs, monkeypatch: pytest.MonkeyPatch, *names: str) -> Sequence[str | LogError]:
    """The excerpts of some jobs, one after the other, or why there is none."""
    monkeypatch.setattr(material, "save_log", logs.save)
    github = cast("GitHub", SimpleNamespace(runs=logs))
    found: list[str | LogError] = []
    async with FailedLogs(github, "octo/calc", 501, 1, plain=True).opened() as opened:
        for number, name in enumerate(names):
            job = JobFacts(id=number, name=name, conclusion="failure", steps=(), labels=(), check_id=0, html_url="")
            try:
                found.append((await opened.excerpt(job, ()))[0])
            except LogError as error:
                found.append(error)
    return found


async def test_a_job_has_its_own_log_and_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = _Logs()
    [text] = await _read(logs, monkeypatch, "test (3.11)")
    assert "1 failed in own 0" in str(text)
    [folder] = logs.folders
    assert not folder.exists()


async def test_logs_that_are_gone_are_read_from_one_zip_file(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = _Logs(own=GONE)
    first, other = await _read(logs, monkeypatch, "test (3.11)", "another")
    assert "1 failed in zip" in str(first)
    assert isinstance(other, LogGoneError)
    assert logs.asked == ["zip"]


async def test_a_zip_file_that_is_too_large_is_not_fetched_twice_and_each_job_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = _Logs(own=GONE, broken={"zip": LogError("The log has 99 bytes; the limit is 9.")})
    first, second = await _read(logs, monkeypatch, "test (3.11)", "another")
    assert logs.asked == ["zip"]
    assert "the limit is 9" in str(first)
    assert "the limit is 9" in str(second)


async def test_a_zip_file_that_is_gone_too_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await _read(_Logs(own=GONE, every=GONE), monkeypatch, "test (3.11)", "another")
    assert [type(each) for each in found] == [LogGoneError, LogGoneError]


async def test_a_permission_that_is_missing_is_told_and_no_reason_to_look_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = _Logs(own=DENIED)
    [error] = await _read(logs, monkeypatch, "test (3.11)")
    assert "Grant it." in str(error)
    assert logs.asked == []


@pytest.mark.parametrize("logs", [_Logs(own=DOWN), _Logs(own=GONE, every=DOWN)], ids=["its own", "the zip file"])
async def test_github_that_is_silent_for_a_moment_is_asked_again_later(
    logs: _Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GitHubError):
        await _read(logs, monkeypatch, "test (3.11)")


async def test_many_slow_logs_take_no_longer_than_all_may_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_SECONDS_TOGETHER", 0.0)
    logs = _Logs()
    [error] = await _read(logs, monkeypatch, "test (3.11)")
    assert isinstance(error, LogError)
    assert logs.asked == []
