"""The programs in `programs.txt` are those of the published document, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_runtime.compat.published import fetch_source
from tests.agent_runtime.seed.test_documented_programs import BLOCKS

_SHA256 = "8000f53c40f8ee1422c654886e5ee0f80f42075bee834b8e93bfdfd422a34c69"


@pytest.mark.slow
@pytest.mark.long
def test_each_program_stands_in_the_readme_of_codepilot(tmp_path: Path) -> None:
    folder = fetch_source("codepilot-ai", "0.9.1", _SHA256, tmp_path)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert [block for block, code in BLOCKS.items() if f"```python\n{code}```" not in readme] == []
    assert not [*folder.rglob("test*")]  # its distribution has no suite
