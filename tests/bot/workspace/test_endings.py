"""Line endings become what git itself would store."""

from __future__ import annotations

from pathlib import Path

from bot.workspace import Source, Workspaces
from tests.origin import Origin

_ATTRIBUTES = "* text=auto\n*.bat text eol=crlf\n*.bin -text\n*.sln eol=crlf -text\n"
_CRLF = b"a\r\nb\r\n"


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


async def test_what_has_another_encoding_or_no_attributes_stays_as_it_is(tmp_path: Path) -> None:
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
