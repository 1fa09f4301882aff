"""Hold what the bot writes to GitHub's own parser, with many hostile texts: `python -m bench.fuzz_markdown 20000`.

The test run does the same with fewer. The exit code is 1 when something stays live that is not allowed to.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time

from bot.publishing.markdown import escape_markdown
from tests.github_page import ALLOWED, foreign, hostile_text

_TEXTS = 20_000
# The judge's library frees nothing.
_TEXTS_A_PROCESS = 1_000


def main(texts: int) -> int:
    """Try texts with the seeds from 0 on; the exit code."""
    began = time.perf_counter()
    chunk = 50
    with multiprocessing.Pool(maxtasksperchild=_TEXTS_A_PROCESS // chunk) as pool:
        found = pool.map(_tried, range(texts), chunksize=chunk)
    live = [(seed, left) for seed, (left, _) in enumerate(found) if left]
    for seed, left in live[:20]:
        sys.stdout.write(f"seed {seed}: {left}\n")
    blocks = sum(block for _, block in found)
    seconds = time.perf_counter() - began
    sys.stdout.write(f"{texts} texts in {seconds:.1f} s: live in {len(live)}, shown as a code block {blocks}\n")
    return 1 if live else 0


def _tried(seed: int) -> tuple[set[str], bool]:
    """Return the live elements that a text should not have, and whether it had to become a code block."""
    text = hostile_text(random.Random(seed))  # noqa: S311 - the same texts every time
    shown = escape_markdown(text, ALLOWED)
    return foreign(shown), shown.startswith("```text\n") and not text.lstrip().startswith("```")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else _TEXTS))
