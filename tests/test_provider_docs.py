"""docs/providers.md says what the code says, and its examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime import CATALOG
from agent_runtime.core.values import IMAGE_TOKENS, MAX_IMAGE_BYTES, MAX_IMAGE_SIDE
from tests.agent_runtime.image_files import png
from tests.source_files import ROOT

TEXT = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)\n```\n", TEXT, re.DOTALL))
ROWS = {row[1]: row for row in re.findall(r"^(\| `(\w+)` \|.*)$", TEXT, re.MULTILINE)}


def ran(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[name]],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_table_names_every_provider_with_its_model_and_key() -> None:
    assert set(CATALOG) <= set(ROWS)
    for name, entry in CATALOG.items():
        row = ROWS[name][0]
        assert name == "scripted" or entry.default_model in row
        assert entry.key_variable is None or f"`{entry.key_variable}`" in row
        if entry.cloud:
            names = (*(name for either in entry.cloud.required for name in either), *entry.cloud.optional)
            assert all(f"`{name}`" in TEXT for name in names)


def test_the_example_of_a_chain_runs(tmp_path: Path) -> None:
    for name in ("anthropic", "openai"):
        (tmp_path / f"{name}.key").write_text("sk-made-up\n")
    assert ran("fallback", tmp_path) == "asks first: claude-sonnet-5-5\n"


def test_the_example_of_images_runs(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "screenshot.png").write_bytes(png())
    assert ran("images", tmp_path) == "The button hides the text.\n"


def test_the_limits_of_images_are_those_of_the_code() -> None:
    assert f"up to {MAX_IMAGE_BYTES / 1e6} MB and {MAX_IMAGE_SIDE:,} pixels on a side" in TEXT
    assert f"Each is estimated at {IMAGE_TOKENS:,} tokens" in TEXT


@pytest.mark.slow
def test_the_example_of_a_recording_runs(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("A project.\n")
    assert ran("recording", tmp_path) == "1 request; the same\n"
    assert (tmp_path / "run.jsonl").stat().st_mode & 0o777 == 0o600
