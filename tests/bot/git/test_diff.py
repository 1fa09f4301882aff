"""Stored changes, with line endings as `.gitattributes` demand."""

from __future__ import annotations

import os
from pathlib import Path

from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.origin import Origin, git

_ATTRIBUTES = "* text=auto\n*.bat text eol=crlf\n*.bin -text\n*.sln eol=crlf -text\n"
_CRLF = b"a\r\nb\r\n"
_TABLE = {
    "none": "",
    "auto": "text=auto",
    "text": "text",
    "not-text": "-text",
    "binary": "binary",
    "eol-lf": "eol=lf",
    "eol-crlf": "eol=crlf",
    "auto-lf": "text=auto eol=lf",
    "auto-crlf": "text=auto eol=crlf",
    "not-text-crlf": "-text eol=crlf",
    "old": "crlf",
    "old-not": "-crlf",
    "old-input": "crlf=input",
    "odd": "text=odd crlf=auto",
}
_CONTENTS = {
    "lf": b"a\nb\n",
    "crlf": b"a\r\nb\r\n",
    "mixed": b"a\r\nb\nc\r\n",
    "lone": b"a\rb\r\n",
    "double": b"a\r\r\nb\r\n",
    "nul": b"a\0b\r\n",
    "few-strange": b"\x01" + b"a" * 256 + b"\r\n",
    "strange": b"\x01\x02\x03" + b"a" * 256 + b"\r\n",
    "end-of-file": b"a\r\n\x1a",
    "delete": b"a\x7f\r\n",
    "latin-1": "äöü\r\n".encode("latin-1"),
    "escapes": b"\x1b[1m\b\t\x0c\r\n",
    "empty": b"",
}
_BEFORE = {"new": None, "from-lf": b"old\n", "from-crlf": b"old\r\n", "from-binary": b"old\0\r\n"}


async def test_they_are_converted_as_git_would(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    origin.commit({"old.txt": _CRLF, "there.txt": "a\n"})
    sha = origin.commit({".gitattributes": _ATTRIBUTES, "0": "a\n"})
    new = {"new.txt": _CRLF, "run.bat": _CRLF, "raw.bin": _CRLF, "x.sln": _CRLF, "nul.txt": b"a\r\n\0", "0": _CRLF}
    files = {**new, "old.txt": b"c\r\nd\r\n", "there.txt": _CRLF + b"c\n", "plain.txt": b"a\n", '\u00fc ".txt': _CRLF}
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "w").open("j", 1, source) as tree:
        for place in (tree.path, origin.path):
            for name, content in files.items():
                (place / name).write_bytes(content)
            (place / "link.txt").symlink_to("a\r\nb")
        change = await tree.change()
    stored = {file.path: file.content for file in change.files}
    assert stored["new.txt"] == stored["run.bat"] == stored["0"] == b"a\nb\n"
    assert stored["old.txt"] == files["old.txt"], "CR LF that stood there before stays"
    origin.commit()
    assert change.tree_sha == origin.git("rev-parse", "HEAD^{tree}")


async def test_a_file_with_an_encoding_or_without_attributes_is_unchanged(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    shas = [
        origin.commit({"a": "a\n"}),
        origin.commit({".gitattributes": "*.txt text working-tree-encoding=UTF-16LE\n"}),
    ]
    for number, sha in enumerate(shas):
        source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
        async with Workspaces(tmp_path / "w").open(f"j{number}", 1, source) as tree:
            (tree.path / "x.txt").write_bytes(_CRLF)
            assert [file.content for file in (await tree.change()).files] == [_CRLF]


async def test_every_content_under_every_attribute_is_committed_as_git_would(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    before = {
        f"{folder}/{then}-{now}": content
        for folder in _TABLE
        for then, content in _BEFORE.items()
        for now in _CONTENTS
        if content is not None
    }
    origin.commit(before)  # before there are attributes, so that they stay as they are
    origin.path.joinpath(".gitattributes").write_text("".join(f"{k}/** {v}\n" for k, v in _TABLE.items() if v))
    origin.git("add", ".gitattributes")
    origin.git("commit", "--quiet", "--message", "Attributes")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", origin.url, str(clone))
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        for root in (clone, tree.path):
            for folder in _TABLE:
                for then in _BEFORE:
                    for now, content in _CONTENTS.items():
                        target = root / folder / f"{then}-{now}"
                        target.parent.mkdir(exist_ok=True)
                        target.write_bytes(content)
        change = await tree.change()
        git(clone, "add", "--all")
        expected = git(clone, "ls-tree", "-r", git(clone, "write-tree"))
        assert git(tree.git_dir, "ls-tree", "-r", change.tree_sha) == expected


async def test_a_file_that_is_only_touched_is_no_change(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    origin.commit({"a.txt": "a\r\n"})
    origin.path.joinpath(".gitattributes").write_text("*.txt text\n")
    origin.git("add", ".gitattributes")
    origin.git("commit", "--quiet", "--message", "Attributes")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        assert (tree.path / "a.txt").read_bytes() == b"a\r\n"
        os.utime(tree.path / "a.txt", (0, 0))
        assert not await tree.change()
