"""Threat 27: submodules are never recursed into, and a change to one is never published unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.git.errors import CloneError
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from bot.publishing.screening import find_objections
from tests.origin import Origin, git


async def test_a_submodule_is_neither_fetched_nor_entered(tmp_path: Path) -> None:
    library = Origin(tmp_path / "library")
    library.commit({"code.py": "x = 1\n"})
    origin = Origin(tmp_path / "origin")
    origin.commit({".gitmodules": f'[submodule "lib"]\n\tpath = lib\n\turl = {library.url}\n'})
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{library.head()},lib")
    origin.git("commit", "--quiet", "--message", "Add the library")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        assert list((tree.path / "lib").iterdir()) == []
        git(tree.path / "lib", "init", "--quiet")
        (tree.path / "lib/code.py").write_text("planted\n")
        assert not await tree.change()


async def test_a_submodule_list_with_a_command_in_it_is_not_even_stored(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    sha = origin.commit({".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = x\n\tupdate = !touch pwned\n'})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    with pytest.raises(CloneError, match="disallowed submodule update setting") as caught:
        async with Workspaces(tmp_path / "state").open("job", 1, source):
            pass
    assert "malformed or hostile" in caught.value.remedy


async def test_a_change_of_the_submodule_list_needs_a_person(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.commit({"a": "1\n"}))
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        (tree.path / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = ext::sh -c id\n')
        words = {each.cause: each.sentence for each in find_objections(await tree.change())}
        assert words["submodule"] == "It changes submodules: `.gitmodules`."


async def test_large_file_pointers_stay_pointers(tmp_path: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
    origin = Origin(tmp_path / "origin")
    sha = origin.commit({"big.bin": pointer, ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=sha)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        assert (tree.path / "big.bin").read_text() == pointer


@pytest.mark.parametrize("rest", ["", '[submodule "b"]\n\tpath = deps/b\n\turl = https://example.com/b\n'])
async def test_a_submodule_goes_together_with_its_entry(tmp_path: Path, rest: str) -> None:
    origin = Origin(tmp_path / "origin")
    entry = '[submodule "a"]\n\tpath = deps/a\n\turl = https://example.com/a\n'
    sha = origin.commit({".gitmodules": entry + rest})
    for name in "abc":
        origin.git("update-index", "--add", "--cacheinfo", f"160000,{sha},deps/{name}")
    origin.git("commit", "--quiet", "--message", "Add them")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.head())
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        if rest:
            (tree.path / ".gitmodules").write_text(rest)
        else:
            (tree.path / ".gitmodules").unlink()
        (tree.path / "deps/a").rmdir()
        change = await tree.change()
        assert [file.path for file in change.files] == [".gitmodules", "deps/a"]
        assert find_objections(change)[-1].files == (".gitmodules", "deps/a")
        (tree.path / ".gitmodules").write_text("[broken")
        assert [file.path for file in (await tree.change()).files] == [".gitmodules"]
