"""Line endings as git itself would store them, where the `.gitattributes` of the commit ask for that.

Git converts numbered copies in a directory of ours, with attributes and an index of their own, so no name, attribute or
filter of the repository's takes part in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bot.workspace.attributes import make_repository
from bot.workspace.git import Git

ASKED = ("text", "crlf", "eol", "working-tree-encoding")
"""The attributes that decide."""

_CHUNK = 1024 * 1024
_ENDING = b"\r\n"


def rule(attributes: Mapping[str, str]) -> str:
    """What git is to be told about a file with these attributes; empty where it converts nothing.

    https://git-scm.com/docs/gitattributes#_end_of_line_conversion
    """
    if attributes.get("working-tree-encoding", "unspecified") not in {"unspecified", "unset"}:
        return ""
    # `crlf` is what `text` was called once. Git ignores values that it does not know.
    said = (attributes.get(name, "unspecified") for name in ("text", "crlf"))
    text = next((each for each in said if each in {"set", "unset", "auto", "input"}), "")
    if text == "auto":
        return "text=auto"
    return "text" if text in {"set", "input"} or (not text and attributes.get("eol") in {"lf", "crlf"}) else ""


async def converted(
    git: Git, folder: Path, staging: Path, rules: Mapping[int, str], before: Mapping[int, str]
) -> dict[int, str]:
    """The blobs of those copies whose line endings git converts, or may convert.

    Args:
        git: git on the directory that gets the blobs.
        folder: private; made when it is needed.
        staging: holds the numbered copies.
        rules: of copies by number, from `rule`.
        before: the blobs that stood in their places; git leaves CR LF alone where it stood before `text=auto` did.
    """
    asked = await asyncio.to_thread(lambda: [number for number in rules if _has_ending(staging / str(number))])
    if not asked:
        return {}
    await asyncio.to_thread(_prepare, git, folder, [f"/{number} {rules[number]}" for number in asked])
    place = replace(git, git_dir=folder, work_tree=staging, index=folder / "index")
    objects = {"GIT_OBJECT_DIRECTORY": f"{git.git_dir}/objects"}
    records = "".join(f"100644 {before[number]}\t{number}\0" for number in asked if number in before)
    await place.run("update-index", "-z", "--index-info", stdin=records.encode(), variables=objects)
    names = "".join(f"{number}\0" for number in asked).encode()
    await place.run("update-index", "-z", "--add", "--stdin", stdin=names, variables=objects)
    listing = (await place.run("ls-files", "-z", "--stage", variables=objects)).decode()
    entries = (record.partition("\t") for record in listing.split("\0")[:-1])
    return {int(number): facts.split(" ")[1] for facts, _, number in entries}


def _prepare(git: Git, folder: Path, attributes: Sequence[str]) -> None:
    make_repository(folder, git)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "attributes").write_text("\n".join([*attributes, ""]))
    (folder / "index").unlink(missing_ok=True)


def _has_ending(copy: Path) -> bool:
    before = b""
    with copy.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if _ENDING in before + chunk:
                return True
            before = chunk[-1:]
    return False
