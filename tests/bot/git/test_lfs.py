"""Git LFS objects are uploaded before their pointers, or nothing is pushed."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bot.git import lfs
from bot.git.change import LargeFile
from bot.git.diff import Attributes
from bot.git.errors import ChangeError, LargeFileError
from bot.git.lfs import format_pointer, is_safe_address, parse_pointer, upload_objects
from bot.git.mirror import Source
from bot.git.process import PAUSES, Git, ProcessBounds
from bot.git.workspace import Workspaces
from localhub import LocalHub, Trouble
from tests.origin import Origin, git
from tests.publishing_world import SECRET, Outlet, an_outlet, branch_of, cause_of, reason_of, sha_of
from tests.tls_hosts import serving

_CONTENT = b"\x89PNG" + bytes(range(256)) * 9_000  # more than is read at a time
_OID = hashlib.sha256(_CONTENT).hexdigest()
_POINTER = format_pointer(_OID, len(_CONTENT))
_ATTRIBUTES = "*.bin filter=lfs diff=lfs merge=lfs -text\nplain/*.bin !filter\n"
_KEPT = format_pointer("5" * 64, 7).decode()


@pytest.fixture
async def outlet(hub: LocalHub, tmp_path: Path) -> AsyncIterator[Outlet]:
    files = {".gitattributes": _ATTRIBUTES, "kept.bin": _KEPT, "plain/sample.bin": "x\n"}
    async with an_outlet(hub, tmp_path, files=files) as outlet:
        yield outlet


def test_a_pointer_is_recognized_by_its_exact_form() -> None:
    assert parse_pointer(_POINTER) == (_OID, len(_CONTENT))
    for other in (None, b"", _POINTER + b"x", b" " + _POINTER, _POINTER.replace(b"sha256", b"sha1"), _CONTENT):
        assert parse_pointer(other) is None


def _at(outlet: Outlet, branch: str, path: str) -> bytes:
    return git(outlet.repo.path, "show", f"{branch}:{path}").encode()


async def test_a_new_file_is_a_pointer_in_the_commit_and_an_object_in_lfs(outlet: Outlet) -> None:
    for name in ("new.bin", "deep/again.bin", "plain/new.bin", "other.png"):
        (outlet.tree.path / name).parent.mkdir(exist_ok=True)
        (outlet.tree.path / name).write_bytes(_CONTENT)
    (outlet.tree.path / "empty.bin").touch()
    (outlet.tree.path / "link.bin").symlink_to("new.bin")
    change = await outlet.tree.change()
    contents = {file.path: file.content for file in change.files}
    assert contents == {
        "deep/again.bin": _POINTER,
        "empty.bin": b"",
        "link.bin": b"new.bin",
        "new.bin": _POINTER,
        "other.png": _CONTENT,
        "plain/new.bin": _CONTENT,
    }
    assert [(each.path, each.oid, each.size) for each in change.large] == [
        ("deep/again.bin", _OID, len(_CONTENT)),
        ("new.bin", _OID, len(_CONTENT)),
    ]
    assert change.patch_file is not None
    assert await outlet.tree.restore(change.patch_file, expect=change.tree_sha) == change
    sent = await outlet.send(await outlet.publication(change=change))
    assert branch_of(sent)
    assert outlet.hub.large_files(outlet.repo) == {_OID: _CONTENT}
    assert _at(outlet, branch_of(sent), "new.bin").strip() == _POINTER.strip()
    assert _at(outlet, branch_of(sent), "kept.bin").strip() == _KEPT.encode().strip()


async def test_passing_trouble_is_waited_for(outlet: Outlet, tmp_path: Path) -> None:
    (tmp_path / _OID).write_bytes(_CONTENT)
    outlet.hub.faults.add("POST", "*/info/lfs/objects/batch", "503")
    outlet.hub.faults.add("PUT", "/-/lfs/*", "drop")
    file = LargeFile(path="new.bin", oid=_OID, size=len(_CONTENT))
    url, token = outlet.target.repo.clone_url, await outlet.github.tokens.for_push("mona/calc")
    for _ in range(2):  # the second time the server has it
        await upload_objects([file], objects=tmp_path, url=url, token=token, branch="b", pauses=(0.0,))
        assert outlet.hub.large_files(outlet.repo) == {_OID: _CONTENT}
    outlet.hub.faults.add("POST", "*/info/lfs/objects/batch", "503", times=2)
    with pytest.raises(LargeFileError, match="the server answered 503"):
        await upload_objects([file], objects=tmp_path, url=url, token=token, branch="b", pauses=(0.0,))


@pytest.mark.parametrize("trouble", ["503", "403", "404"])
async def test_an_upload_outlasts_an_outage_of_ten_minutes(outlet: Outlet, trouble: Trouble) -> None:
    (outlet.tree.path / "new.bin").write_bytes(_CONTENT)
    outlet.hub.faults.add("POST", "*/info/lfs/objects/batch", trouble, times=len(PAUSES) + 14)
    outlet.tree._pauses = (0.0,) * len(PAUSES)
    assert (await outlet.send(await outlet.publication())).withheld is None
    assert outlet.hub.large_files(outlet.repo) == {_OID: _CONTENT}


@pytest.mark.parametrize(
    "message",
    [
        "This repository is over its data quota. Purchase more data packs to restore access.",
        "Git LFS is disabled for this repository.",
        "@mona can not upload new objects to public fork mona/calc",
    ],
)
async def test_a_refusal_with_its_cause_is_not_repeated(tmp_path: Path, message: str) -> None:
    requests: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.json_response({"message": message}, status=403)

    app = web.Application()
    app.router.add_post("/{path:.*}", refuse)
    file = LargeFile(path="new.bin", oid=_OID, size=len(_CONTENT))
    async with serving(app, None) as port:
        url = f"http://127.0.0.1:{port}/mona/calc.git"
        with pytest.raises(LargeFileError, match="403; is Git LFS enabled"):
            await upload_objects([file], objects=tmp_path, url=url, token="", branch="b", pauses=(0.0,))
    assert len(requests) == 1


async def test_an_upload_sends_no_password_of_the_operator(
    outlet: Outlet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token = outlet.target.repo.clone_url, await outlet.github.tokens.for_push("mona/calc")
    (tmp_path / "netrc").write_text("default login operator password secret\n")
    (tmp_path / _OID).write_bytes(_CONTENT)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    received, request = list[str](), aiohttp.ClientSession._request

    async def record(*arguments: Any, **options: Any) -> aiohttp.ClientResponse:  # noqa: ANN401 - passed through
        response = await request(*arguments, **options)
        received.append(response.request_info.headers.get("Authorization", ""))
        return response

    monkeypatch.setattr(aiohttp.ClientSession, "_request", record)
    file = LargeFile(path="new.bin", oid=_OID, size=len(_CONTENT))
    await upload_objects([file], objects=tmp_path, url=url, token=token, branch="b", pauses=(0.0,))
    password = b64encode(b"operator:secret").decode()
    assert received
    assert not [header for header in received if password in header]


def test_an_object_is_sent_to_any_host_but_over_no_worse_connection() -> None:
    ours = "https://github.example/o/r.git/info/lfs/objects/batch"
    assert is_safe_address("https://storage.example/x", ours)
    assert is_safe_address("http://127.0.0.1:1/x", "http://127.0.0.1:1/o/r.git")
    for address in ("http://github.example/x", "file:///etc/passwd", "https:///x", ""):
        assert not is_safe_address(address, ours)


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("POST", "*/info/lfs/objects/batch", "the server answered 403"),
        ("PUT", "/-/lfs/*", "the server answered 403"),
        ("POST", "/-/lfs/*/verify", "the server answered 403"),
    ],
)
async def test_nothing_is_pushed_if_lfs_rejects_an_object(outlet: Outlet, method: str, path: str, said: str) -> None:
    (outlet.tree.path / "new.bin").write_bytes(_CONTENT)
    (outlet.tree.path / "a.txt").write_text("2\n")
    outlet.hub.faults.add(method, path, "403")
    outlet.tree._pauses = ()
    before = outlet.hub.branches(outlet.repo)
    sent = await outlet.send(await outlet.publication())
    assert not sha_of(sent)
    assert cause_of(sent) == "large-file"
    assert "`new.bin`" in reason_of(sent)
    assert said in reason_of(sent)
    assert outlet.hub.branches(outlet.repo) == before
    assert not outlet.pulls()


@pytest.mark.parametrize(
    ("limit", "reason"), [("MAX_BYTES", "they are larger than 0 MiB together"), ("SECONDS", "took longer than 0 s")]
)
async def test_objects_beyond_a_limit_hold_back_the_change(
    outlet: Outlet, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    monkeypatch.setattr(lfs, limit, 0)
    (outlet.tree.path / "new.bin").write_bytes(_CONTENT)
    sent = await outlet.send(await outlet.publication())
    assert cause_of(sent) == "large-file"
    assert reason in reason_of(sent)


async def test_patterns_without_end_hold_back_the_change(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    sha = origin.commit({".gitattributes": f"{'*a' * 13}*b filter=lfs\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        attributes = Attributes(
            git=Git(git_dir=tree.git_dir), folder=tmp_path / "attributes", bounds=ProcessBounds(cpu_seconds=1)
        )
        with pytest.raises(ChangeError, match=r"patterns in `\.gitattributes`"):
            await attributes.query(sha, [b"a" * 200 + b"c"], "filter")
        assert await attributes.query(sha, [b"xb"], "filter") == {b"xb": {"filter": "unspecified"}}


async def test_a_pointer_to_a_missing_object_is_not_pushed(outlet: Outlet) -> None:
    (outlet.tree.path / "made-up.bin").write_text(_KEPT)
    sent = await outlet.send(await outlet.publication())
    assert cause_of(sent) == "large-file"
    assert not sha_of(sent)


async def test_a_secret_in_an_object_is_detected(outlet: Outlet) -> None:
    (outlet.tree.path / "new.bin").write_bytes(b"x" * (1024 * 1024 - 9) + SECRET.encode() + b"y" * 99)
    sent = await outlet.send(await outlet.publication())
    assert cause_of(sent) == "secret"
    assert "`new.bin`" in reason_of(sent)
    assert not outlet.hub.large_files(outlet.repo)
