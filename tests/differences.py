"""Differences for tests: of files with given lines, and as a pull request's agent gets them from real git."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.domain.difference import ChangedFile, Hunk, Section
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from bot.prompt.difference import Difference, choose_readable, order_files

DIFF = """\
--- a/src/a.py
+++ b/src/a.py
@@ -1,2 +1,2 @@
 one
-two
+three
"""


def new_file(path: str, lines: Sequence[str], **facts: object) -> tuple[ChangedFile, Section]:
    """Return a new file with its section."""
    hunk = Hunk(old=0, new=1, lines=tuple(f"+{line}" for line in lines))
    size = sum(len(line) + 1 for line in lines)
    file = ChangedFile(path=path, status="added", new_mode="100644", added=len(lines), size=size)
    return file.with_mark({name: str(value) for name, value in facts.items()}), Section(path=path, hunks=(hunk,))


def difference_of(files: Mapping[str, Sequence[str]], *texts: str) -> Difference:
    """Return the difference of new files with these lines, ordered for these texts."""
    both = [new_file(path, lines) for path, lines in files.items()]
    return Difference.of(order_files([file for file, _ in both], texts), [section for _, section in both])


async def show_difference(
    workspaces: Workspaces, base: Source, head: Source, *texts: str, room: int = 60_000, repo_id: int = 1
) -> str:
    """Return the difference of two commits as an agent gets it."""
    comparison = await workspaces.compare(repo_id, base, head)
    ordered = order_files(comparison.files, texts)
    sections = await workspaces.read_sections(repo_id, comparison, choose_readable(ordered))
    return Difference.of(ordered, sections).render(room)
