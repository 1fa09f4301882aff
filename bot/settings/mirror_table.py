"""The settings that bound the mirrors of repositories; a part of `table.py`."""

from __future__ import annotations

from bot.settings import parsing
from bot.settings.setting import Setting

MIRRORS: dict[str, Setting] = {
    "fetch_mb": Setting(
        name="CODEPILOT_FETCH_MB",
        meaning="Megabytes that one fetch of a repository may bring.",
        example="4096",
        parse=parsing.whole(1, 1_000_000),
        default="1024",
    ),
    "pull_fetch_mb": Setting(
        name="CODEPILOT_PULL_FETCH_MB",
        meaning="Megabytes that a pull request's commits may bring beyond what is there; anybody may open one.",
        example="512",
        parse=parsing.whole(1, 1_000_000),
        default="256",
    ),
    "mirrors_gb": Setting(
        name="CODEPILOT_MIRRORS_GB",
        meaning="Gigabytes that all mirrors of repositories may have together; those used longest ago go first and are "
        "fetched again when they are needed.",
        example="100",
        parse=parsing.whole(1, 100_000),
        default="20",
    ),
}
