"""Threat 57: a run that waits in an artifact, which anybody may read and any run may make, is what we sealed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState, Repo
from bot.git.errors import ChangeError
from bot.git.tree import CarriedChanges, CarriedFile, write_changes
from bot.jobs.handover import read_member
from bot.jobs.record import JobRecord, encode_record
from bot.jobs.storage import MAX_SEALED_BYTES, OtherKeyError, SavedJob, SealError, seal, unseal
from localhub import LocalHub
from tests.builders import a_job
from tests.handed_over import Handed, handed
from tests.stage import COMPLETION, FIXED_CALC, acting

KEY = b"the key of this repository"
ASKS = acting('print(execute("main", "echo ran >> told; cat told"))')
ENDS = acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION)


def saved(**changes: object) -> SavedJob:
    usual = SavedJob(
        job=a_job(),
        request_id="7f3a",
        until=4e9,
        record=encode_record(JobRecord(base_sha="hunter2")),
        session={},
        patch=None,
        work=CarriedChanges(),
        comment="",
    )
    return replace(usual, **changes)  # type: ignore[arg-type] # whatever a test needs


def test_sealed_state_requires_the_key() -> None:
    sealed = seal(saved(), KEY)
    assert b"hunter2" not in sealed
    assert unseal(sealed, KEY, repo_id=10, thread=7) == saved()
    with pytest.raises(OtherKeyError):
        unseal(sealed, b"another key", repo_id=10, thread=7)


@pytest.mark.parametrize("at", [0, 9, 60, -1])
def test_a_byte_that_is_altered_is_noticed(at: int) -> None:
    sealed = bytearray(seal(saved(), KEY))
    sealed[at] ^= 1
    with pytest.raises(SealError, match="was altered"):
        unseal(bytes(sealed), KEY, repo_id=10, thread=7)


@pytest.mark.parametrize(
    "job",
    [a_job(number=8), replace(a_job(), repo=Repo(id=11, full_name="octo/calc", private=False))],
    ids=["thread", "repository"],
)
def test_state_sealed_elsewhere_is_refused(job: object) -> None:
    with pytest.raises(SealError, match="another thread"):
        unseal(seal(saved(job=job), KEY), KEY, repo_id=10, thread=7)


def _zip(path: Path, files: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return str(path)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"state": bytes(5_000_000)}, "more than 1,000,000 bytes"),
        ({"../state": b"x", "/etc/state": b"x"}, "no file state"),
        ({f"{number}": b"" for number in range(200)}, "more than 100 files"),
    ],
    ids=["bomb", "paths", "many"],
)
def test_a_hostile_zip_is_not_unpacked(tmp_path: Path, files: dict[str, bytes], why: str) -> None:
    path = _zip(tmp_path / "a.zip", files)
    with pytest.raises(ValueError, match=why):
        read_member(path, "state", 1_000_000)
    assert [each.name for each in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize("path", [b"../out", b"a/../../out", b".git/config", b"a/.GIT/config"])
def test_no_file_is_put_outside_of_the_workspace(tmp_path: Path, path: bytes) -> None:
    root = tmp_path / "files"
    root.mkdir()
    with pytest.raises(ChangeError, match="cannot be restored:"):
        write_changes(root, CarriedChanges(files=(CarriedFile(path=path, mode="100644", content=b"x", changed=0),)))
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_link_that_set_up_has_left_is_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "files", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (root / "src").symlink_to(outside)
    (root / "leaf").symlink_to(outside / "kept")
    with pytest.raises(ChangeError, match="cannot be restored:"):
        write_changes(
            root,
            CarriedChanges(
                files=(CarriedFile(path=b"src/new", mode="100644", content=b"x", changed=0),), removed=(b"src/kept",)
            ),
        )
    write_changes(root, CarriedChanges(files=(CarriedFile(path=b"leaf", mode="100755", content=b"new", changed=0),)))
    assert (outside / "kept").read_text() == "kept"
    assert not (outside / "new").exists()
    assert (root / "leaf").read_text() == "new"


def _forged(thread: Handed) -> None:
    thread.keep(seal(saved(job=replace(a_job(), repo=Repo(id=thread.repo.id, full_name="", private=False))), b"guess"))


def _bomb(thread: Handed) -> None:
    thread.keep(bytes(MAX_SEALED_BYTES + 1))


def _other_file(thread: Handed) -> None:
    thread.keep(b"x", file="../session.codepilot")


@pytest.mark.parametrize("attack", [_forged, _bomb, _other_file])
async def test_artifacts_of_others_do_not_come_in_between(
    hub: LocalHub, tmp_path: Path, attack: Callable[[Handed], None]
) -> None:
    thread = handed(hub, tmp_path)
    assert await thread.say("/codepilot fix", ASKS) is JobState.WAITING
    request = thread.request_id()
    attack(thread)
    assert await thread.say(f"/codepilot approve {request}", ENDS) is JobState.DONE


async def test_only_an_artifact_that_was_sealed_with_the_key_is_gone_on_with(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    assert await thread.say("/codepilot fix", ASKS) is JobState.WAITING
    approve = f"/codepilot approve {thread.request_id()}"
    assert await thread.say(approve, ENDS, CODEPILOT_SESSION_KEY="x" * 32) is JobState.REFUSED
    assert "made with another key," in thread.last
    assert "Waiting for you" in thread.status


async def test_artifacts_of_a_forks_pull_request_are_not_read(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    hub.add_user("eve")
    fork = hub.add_repo("eve/calc", owner="eve", fork_of=thread.repo)
    assert await thread.say("/codepilot fix", ASKS, keep=False) is JobState.WAITING
    thread.keep(thread.sealed[1], fork=fork)
    assert await thread.say(f"/codepilot approve {thread.request_id()}", ENDS) is JobState.REFUSED
    assert "no run has stored an artifact" in thread.last


async def test_an_answer_counts_once(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    assert await thread.say("/codepilot fix", ASKS) is JobState.WAITING
    first = f"/codepilot approve {thread.request_id()}"
    assert await thread.say(first, ASKS) is JobState.WAITING
    thread.keep(thread.sealed[1])  # the older one, once more, so that it is the newest
    assert await thread.say(first, ENDS) is JobState.REFUSED
    second = f"/codepilot approve {thread.request_id()}"
    assert second != first
    assert await thread.say(second, ENDS) is JobState.DONE
    assert await thread.say(second, ENDS) is JobState.REFUSED
    assert "That request was already answered," in thread.last
    assert len([each for each in hub.issues(thread.repo) if each.pull is not None]) == 1


async def test_a_strangers_approval_fetches_nothing(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path)
    hub.add_user("eve")
    assert await thread.say("/codepilot fix", ASKS) is JobState.WAITING
    asked: list[str] = []
    hub.observe(on_exchange=lambda exchange: asked.append(exchange.path), on_delivery=thread.payloads.__setitem__)
    assert await thread.say(f"/codepilot approve {thread.request_id()}", ENDS, author="eve") is JobState.REFUSED
    assert asked
    assert not [path for path in asked if "artifacts" in path]
    assert "Waiting for you" in thread.status


async def test_a_push_voids_pending_requests(hub: LocalHub, tmp_path: Path) -> None:
    thread = handed(hub, tmp_path, pull=True)
    assert await thread.say("/codepilot fix", ASKS) is JobState.WAITING
    hub.commit(thread.repo, {"more.txt": "More.\n"}, message="More", author="mona", branch="topic")
    assert await thread.say(f"/codepilot approve {thread.request_id()}", ENDS) is JobState.STOPPED
    assert "Waiting for you" not in thread.status
