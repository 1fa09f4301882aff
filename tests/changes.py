"""Changes for tests, as the trusted git directory would describe them."""

from __future__ import annotations

import os
from typing import Any

from bot.git.change import SYMLINK, Change, FileChange

BASE = "1" * 40
TREE = "2" * 40


def a_file(path: str = "src/app.py", content: bytes | None = b"x = 1\n", **changes: object) -> FileChange:
    values: dict[str, Any] = {
        "path": path,
        "status": "deleted" if content is None else "modified",
        "old_mode": "100644",
        "new_mode": "" if content is None else "100644",
        "added": 1,
        "removed": 1,
        "binary": False,
        "content": content,
    }
    values.update(changes)
    return FileChange(**values)


def a_change(*files: FileChange, base_sha: str = BASE) -> Change:
    links = {each.path: os.fsdecode(each.content or b"") for each in files if each.new_mode == SYMLINK}
    return Change(base_sha=base_sha, tree_sha=TREE, files=files, patch="diff --git ...\n", links=links)
