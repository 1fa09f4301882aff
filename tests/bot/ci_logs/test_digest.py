"""What saved logs say: whole ones, and those in the zip file of a run."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from bot.ci_logs.excerpts import digest, digest_of_zip

LOG = "2024-01-01T00:00:03.0000000Z ==== FAILURES ====\n2024-01-01T00:00:03.0000000Z ____ test_a ____\nE   assert 0\n"
NOW = [("2024-01-01T00:00:03Z", "2024-01-01T00:00:04Z")]


def packed(path: Path, **files: str) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return str(path)


@pytest.mark.parametrize("moments", [NOW, [], [("2030-01-01T00:00:00Z", "")]], ids=["its time", "no time", "another"])
def test_the_failure_is_found_whatever_the_times_say(tmp_path: Path, moments: list[tuple[str, str]]) -> None:
    file = tmp_path / "log"
    file.write_text(LOG)
    assert digest(str(file), moments, 500) == ("==== FAILURES ====\n____ test_a ____\nE   assert 0", 0)


def test_the_jobs_own_file_is_read_from_a_zip_file(tmp_path: Path) -> None:
    path = packed(
        tmp_path / "zip",
        **{"test/1_Set up job.txt": "no\n", "0_testother.txt": "no\n", "1_test (3.11, ab).txt": LOG, "x.txt": "no\n"},
    )
    text, more = digest_of_zip(path, "test (3.11, a/b)", NOW, 500, 10_000)
    assert ("E   assert 0" in text, more) == (True, 0)
    with pytest.raises(ValueError, match="no log of this job"):
        digest_of_zip(path, "another", NOW, 500, 10_000)


def test_no_more_is_unpacked_than_may_be(tmp_path: Path) -> None:
    path = packed(tmp_path / "zip", **{"0_test.txt": "a\n" * 10_000_000 + LOG})
    assert Path(path).stat().st_size < 100_000
    text, more = digest_of_zip(path, "test", [], 500, 1_000_000)
    assert ("assert" in text, more) == (False, 0)
    assert len(text) <= 500


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"<html>no</html>" * 100])
def test_what_is_no_zip_file_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "zip"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read"):
        digest_of_zip(str(path), "test", [], 500, 1_000)


def test_a_zip_file_of_countless_files_is_left_alone(tmp_path: Path) -> None:
    path = packed(tmp_path / "zip", **{f"{number}_x.txt": "" for number in range(20_001)})
    with pytest.raises(ValueError, match="more than 20,000 files"):
        digest_of_zip(path, "x", [], 500, 1_000)
