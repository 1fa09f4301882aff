"""Merge a base branch into a pull request's head as `git merge` does, with `git merge-tree`."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bot.git.baseline import GITLINK
from bot.git.change import REGULAR_MODES
from bot.git.diff import commit_step, make_repository, parse_entries, read_blobs, read_sizes
from bot.git.errors import GitError, WorkspaceError
from bot.git.merge import Conflict, Merge, Stage, split_lines
from bot.git.process import Git

_SETTINGS = (
    ("merge.conflictStyle", "diff3"),
    ("merge.renames", "true"),
    ("merge.directoryRenames", "conflict"),
    ("core.abbrev", "40"),  # a shorter id of the ancestor, in its marker, would depend on the other objects
)
_SECONDS = 120.0
_DIFFERENCES = ("diff-tree", "-r", "-z", "--raw", "--abbrev=40", "--no-renames")
_UNRELATED = "unrelated histories"
# The types are stable, the messages are not: git-merge-tree(1), "Informational messages".
_TYPE = re.compile(r"(?:CONFLICT|ERROR) \(([^)]*)\)")
# Inner merges of several common ancestors have longer markers.
_MARKER = re.compile(rb"(?:<{7,}|\|{7,}|>{7,})(?: .*)?|={7,}")
_HUNK_START, _HUNK_END = re.compile(rb"<{7} "), re.compile(rb">{7} ")
_CONTEXT = 3
_EXCERPT_CHARS = 4_000
_DIFFED_BYTES = 100_000
_READ_BYTES = 32 * 1024**2
"""Of conflicted files at once; their contents are in memory."""


async def merge_commits(git: Git, head: str, base: str, *, branch: str) -> Merge | None:
    """Merge `base`, of the branch, into `head`; None if the head contains it. The result depends on nothing else.

    Raises:
        WorkspaceError: they have no common history.
    """
    if base in (await git.run("merge-base", base, head, expect=(0, 1))).decode().split():
        return None
    with tempfile.TemporaryDirectory(prefix="codepilot-merge-") as name:
        folder = Path(name)
        # The names of these references are the labels in the markers, the same as in the agent's repository.
        await asyncio.to_thread(_prepare, folder, git, head)
        objects = {"GIT_OBJECT_DIRECTORY": f"{git.git_dir}/objects"}
        merger = replace(git, git_dir=folder, settings=_SETTINGS, bounds=replace(git.bounds, seconds=_SECONDS))
        await merger.run("update-ref", f"refs/remotes/origin/{branch}", base)
        try:
            answer = await merger.run(
                *("merge-tree", "--write-tree", "--messages", "-z", "HEAD", f"origin/{branch}"),
                variables=objects,
                expect=(0, 1),
            )
        except GitError as error:
            if _UNRELATED not in error.stderr:
                raise
            raise WorkspaceError(
                f"`{branch}` and this branch have no commit in common, so they cannot be merged.",
                "Merge them yourself with `git merge --allow-unrelated-histories`.",
            ) from error
        tree, stages, messages = parse_merge(answer)
        commit = await commit_step(git, tree, "-p", head, "-p", base)
        merged, of_base = [
            {os.fsdecode(entry.path): entry for entry in parse_entries(await git.run(*_DIFFERENCES, side, tree))}
            for side in (head, base)
        ]
        marked = {
            path: merged[path].blob for path in stages if path in merged and merged[path].new_mode in REGULAR_MODES
        }
        blobs = {
            path: {marked.get(path, ""), *(stage.blob for stage in versions.values() if stage.mode != GITLINK)} - {""}
            for path, versions in stages.items()
        }
        markers, excerpts = dict[str, Mapping[bytes, int]](), dict[str, str]()
        for batch in _batches(blobs, marked, await read_sizes(git, set[str]().union(*blobs.values()))):
            contents = await read_blobs(git, folder / "contents", sorted(set[str]().union(*batch.values())))
            for path in batch:  # in a thread, since hostile contents take seconds
                arguments = contents, marked.get(path, ""), stages[path]
                markers[path], excerpts[path] = await asyncio.to_thread(_read_conflict, *arguments)
    return Merge(
        head=head,
        base=base,
        branch=branch,
        commit=commit,
        tree=tree,
        conflicts=tuple(_conflicts(stages, messages)),
        stages=stages,
        markers={path: lines for path, lines in markers.items() if lines},
        excerpts={path: text for path, text in excerpts.items() if text},
        writes_workflows=any(
            path.startswith(".github/workflows/") and merged[path].new_mode for path in merged.keys() & of_base.keys()
        ),
    )


def _prepare(folder: Path, git: Git, head: str) -> None:
    make_repository(folder, git)
    # Without this, git would take the current directory for the work tree, and read attributes there.
    (folder / "config").write_text("[core]\n\tbare = true\n\trepositoryFormatVersion = 0\n")
    (folder / "HEAD").write_text(f"{head}\n")
    # Versions of git that read attributes of HEAD here obey these instead.
    (folder / "info").mkdir()
    (folder / "info" / "attributes").write_text("* !merge !conflict-marker-size\n")


_Stages = Mapping[str, Mapping[int, Stage]]
_Message = tuple[str, tuple[str, ...], str]


def parse_merge(output: bytes) -> tuple[str, _Stages, list[_Message]]:
    """Parse `git merge-tree --write-tree -z --messages`: the tree, the conflicted paths, and types, paths and messages.

    The format is in git-merge-tree(1), "OUTPUT".
    """
    tree, *records = output.split(b"\0")
    end = records.index(b"")
    stages: dict[str, dict[int, Stage]] = {}
    for record in records[:end]:
        facts, _, path = record.partition(b"\t")
        mode, blob, number = facts.decode().split(" ")
        stages.setdefault(os.fsdecode(path), {})[int(number)] = Stage(mode=mode, blob=blob)
    rest, messages = iter(records[end + 1 :]), list[_Message]()
    for count in rest:
        if not count.isdigit():  # git's advice about submodules follows as plain text
            break
        paths = tuple(os.fsdecode(next(rest)) for _ in range(int(count)))
        messages.append((next(rest).decode(), paths, next(rest).decode(errors="replace").strip()))
    return tree.decode(), stages, messages


def _conflicts(stages: _Stages, messages: Sequence[_Message]) -> Iterator[Conflict]:
    """Yield each conflict once; git reports one of a binary file's twice, and a file's mode not at all."""
    covered = set[str]()
    types = [(match[1], paths, message) for kind, paths, message in messages if (match := _TYPE.match(kind))]
    # The general type last: a specific one says more about the same file.
    for kind, paths, message in sorted(types, key=lambda entry: entry[0] == "contents"):
        if kind != "contents" or not covered.issuperset(paths):
            is_content = kind == "contents" and paths and paths[0] in stages
            yield Conflict(kind=_kind(stages[paths[0]]) if is_content else kind, paths=paths, message=message)
        covered |= set(paths)
    for path in sorted(stages.keys() - covered):
        yield Conflict(kind=_kind(stages[path]), paths=(path,), message=f"Merge conflict in {path}")


def _kind(versions: Mapping[int, Stage]) -> str:
    if 2 in versions and 3 in versions and versions[2].blob == versions[3].blob:  # noqa: PLR2004 - git's own numbers
        return "mode"
    return "content" if 1 in versions else "add/add"


def _batches(
    blobs: Mapping[str, set[str]], marked: Mapping[str, str], sizes: Mapping[str, int]
) -> Iterator[dict[str, set[str]]]:
    """Yield paths with the blobs to read at once; of files that are too large for that only git's result, or none."""
    batch, room = dict[str, set[str]](), _READ_BYTES
    for path, versions in blobs.items():
        choices = (versions, versions & {marked.get(path, "")}, set[str]())
        chosen, size = next((few, size) for few in choices if (size := sum(sizes[blob] for blob in few)) <= _READ_BYTES)
        if size > room:
            yield batch
            batch, room = {}, _READ_BYTES
        batch[path], room = chosen, room - size
    yield batch


def _read_conflict(
    contents: Mapping[str, bytes], marked: str, versions: Mapping[int, Stage]
) -> tuple[dict[bytes, int], str]:
    markers = _markers(contents, marked, versions) if marked in contents else {}
    return markers, _excerpt(contents, marked if markers else "", versions)


def _markers(contents: Mapping[str, bytes], blob: str, versions: Mapping[int, Stage]) -> dict[bytes, int]:
    """Return the marker lines that git added to a file, with their number in both sides."""
    sides = Counter[bytes]()
    for number, stage in versions.items():
        if number > 1:
            sides.update(split_lines(contents.get(stage.blob, b"")))
    lines = Counter(line for line in split_lines(contents[blob]) if _MARKER.fullmatch(line))
    return {line: sides[line] for line, count in lines.items() if count > sides[line]}


def _excerpt(contents: Mapping[str, bytes], marked: str, versions: Mapping[int, Stage]) -> str:
    if marked:
        return _clip(_hunks(split_lines(contents[marked])))
    survivor = versions.get(2, versions.get(3))
    if len(versions) != 2 or 1 not in versions or survivor is None:  # noqa: PLR2004 - the ancestor and one side
        return ""
    before, after = contents.get(versions[1].blob), contents.get(survivor.blob)
    if before is None or after is None or b"\0" in before + after or len(before) + len(after) > _DIFFED_BYTES:
        return ""
    old, new = (text.decode(errors="replace").splitlines() for text in (before, after))
    return _clip("\n".join(difflib.unified_diff(old, new, "common ancestor", "the side that kept it", lineterm="")))


def _hunks(lines: list[bytes]) -> str:
    """Return each conflict of a file with some lines around it."""
    parts, begin, shown = list[str](), None, 0
    for number, line in enumerate(lines):
        if _HUNK_START.match(line):
            begin = number
        elif begin is not None and _HUNK_END.match(line):
            first, end = max(shown, begin - _CONTEXT), number + 1 + _CONTEXT
            parts.append(f"@@ line {first + 1} @@\n" + b"\n".join(lines[first:end]).decode(errors="replace"))
            begin, shown = None, min(end, len(lines))
    return "\n".join(parts)


def _clip(text: str) -> str:
    if len(text) <= _EXCERPT_CHARS:
        return text
    return f"{text[:_EXCERPT_CHARS].rpartition(chr(10))[0]}\n[The rest is in the file.]"
