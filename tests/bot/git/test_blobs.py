from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from bot.domain.errors import BlobTooLargeError, StorageError
from bot.git.blobs import BlobAccess, BlobStore, DirectoryBlobs, open_blobs
from tests import s3
from tests.ports import free_port

LARGE = os.urandom(17 * 1024 * 1024)


@pytest.fixture(scope="module")
def server() -> Iterator[s3.S3]:
    with s3.running() as running:
        yield running


@pytest.fixture(params=["directory", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "directory":
        return open_blobs((tmp_path / "a store").as_uri())
    server: s3.S3 = request.getfixturevalue("server")
    return open_blobs(f"s3://{s3.BUCKET}/{uuid4().hex}/deep", server.access)


@pytest.mark.parametrize("content", [b"", b"patch\n", LARGE], ids=["empty", "small", "large"])
def test_a_stored_blob_can_be_read(blobs: BlobStore, content: bytes) -> None:
    blobs.put("patches/a.patch", content)
    assert blobs.get("patches/a.patch", limit=len(content)) == content


def test_a_missing_or_deleted_blob_is_none(blobs: BlobStore) -> None:
    blobs.put("a/b", b"1")
    for _ in range(2):
        blobs.delete("a/b")
    for name in ("a/b", "never"):
        assert blobs.get(name, limit=9) is None
    assert list(blobs.list("a")) == []


def test_a_second_put_takes_the_place_of_the_first(blobs: BlobStore) -> None:
    blobs.put("a", b"long content")
    blobs.put("a", b"short")
    assert blobs.get("a", limit=100) == b"short"


def test_an_oversized_fetch_leaves_nothing(blobs: BlobStore) -> None:
    blobs.put("a", b"12345")
    with pytest.raises(BlobTooLargeError, match="4 bytes"):
        blobs.get("a", limit=4)


def test_the_list_has_names_sizes_and_times(blobs: BlobStore) -> None:
    for name in ("jobs/1/a", "jobs/1/b", "jobs/12/a", "other"):
        blobs.put(name, name.encode())
    assert {each.name: each.size for each in blobs.list("jobs/1")} == {"jobs/1/a": 8, "jobs/1/b": 8}
    assert {each.name for each in blobs.list("jobs")} == {"jobs/1/a", "jobs/1/b", "jobs/12/a"}
    blobs.put("jobs/1/a", b"again")
    first, second = sorted(blobs.list("jobs/1"), key=lambda each: each.name)
    assert first.modified >= second.modified > 1_700_000_000


@pytest.mark.parametrize("name", ["", "/a", "a/", "../a", "a/../b", "a//b", ".hidden", "a b", "a\n", "é", "x" * 200])
def test_a_name_stays_below_the_store(blobs: BlobStore, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a blob"):
        blobs.put(name, b"")
    with pytest.raises(ValueError, match="cannot name a blob"):
        blobs.get(name, limit=1)


def test_only_the_bot_can_read_the_directory(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        open_blobs((tmp_path / "store").as_uri()).put("a/b/c", b"private")
    finally:
        os.umask(before)
    found = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in found}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_a_partial_file_is_removed_after_a_day(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    old, young = tmp_path / ".partial" / "old", tmp_path / ".partial" / "young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    DirectoryBlobs(tmp_path)
    assert not old.exists()
    assert young.exists()
    assert list(blobs.list("half")) == []


def test_a_full_store_fails_and_preserves_the_previous_blob(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    blobs.put("a", b"before")
    # The kernel refuses the write, as it does on a full disk.
    code = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from bot.domain.errors import StorageError\n"
        "from bot.git.blobs import DirectoryBlobs\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    DirectoryBlobs(Path(sys.argv[1])).put('a', bytes(9999))\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) in said
    assert "space" in said
    assert blobs.get("a", limit=99) == b"before"
    assert list((tmp_path / ".partial").iterdir()) == []


def test_an_unreachable_server_is_reported_without_the_key() -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    access = s3.S3(port=1).access
    blobs = open_blobs(
        "s3://nowhere/x",
        BlobAccess(access_key_id=access.access_key_id, secret_access_key=access.secret_access_key, endpoint=endpoint),
    )
    for call in (
        lambda: blobs.put("a", b""),
        lambda: blobs.get("a", limit=1),
        lambda: blobs.delete("a"),
        lambda: list(blobs.list("a")),
    ):
        with pytest.raises(StorageError) as error:
            call()
        assert f"s3://nowhere/x at {endpoint}" in str(error.value)
        assert "AWS_ENDPOINT_URL" in str(error.value)
        assert s3.KEY not in str(error.value)


def test_a_bucket_that_is_missing_is_an_error_and_not_an_empty_store(server: s3.S3) -> None:
    blobs = open_blobs("s3://no-such-bucket", server.access)
    for call in (
        lambda: blobs.put("a", b""),
        lambda: blobs.get("a", limit=1),
        lambda: blobs.delete("a"),
        lambda: list(blobs.list("a")),
    ):
        with pytest.raises(StorageError, match="NoSuchBucket"):
            call()


def test_a_step_of_a_workflow_has_no_s3_library() -> None:
    code = "import sys, bot.git.workspace, bot.server.build\nassert 'obstore' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_directory_is_an_error_and_not_an_empty_store(tmp_path: Path) -> None:
    blobs = open_blobs((tmp_path / "store").as_uri())
    blobs.put("a", b"1")
    (tmp_path / "store").rename(tmp_path / "unmounted")
    for call in (
        lambda: blobs.put("a", b""),
        lambda: blobs.get("a", limit=1),
        lambda: list(blobs.list("a")),
    ):
        with pytest.raises(StorageError, match="gone"):
            call()


def test_deleting_the_last_blob_removes_its_directory(tmp_path: Path) -> None:
    blobs = open_blobs(tmp_path.as_uri())
    for name in ("snapshots/job/head", "snapshots/job/pack"):
        blobs.put(name, b"1")
    blobs.delete("snapshots/job/head")
    assert blobs.get("snapshots/job/pack", limit=1) == b"1"
    blobs.delete("snapshots/job/pack")
    assert list((tmp_path / "snapshots").iterdir()) == []


def test_a_blob_stored_during_a_concurrent_delete_exists(tmp_path: Path) -> None:
    blobs = open_blobs(tmp_path.as_uri())

    def put_and_delete(number: int) -> list[bytes | None]:
        found = []
        for _ in range(200):
            blobs.put(f"patches/{number}", b"1")
            found.append(blobs.get(f"patches/{number}", limit=1))
            blobs.delete(f"patches/{number}")
        return found

    with ThreadPoolExecutor(4) as threads:
        assert {each for found in threads.map(put_and_delete, range(4)) for each in found} == {b"1"}
