"""When an attempt's files were written decides whether its checks count."""

from __future__ import annotations

import math
from pathlib import Path

from bot.pipeline.candidates import _written


def test_a_changed_file_that_cannot_be_found_by_its_name_lets_no_check_count(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "b\u202e.py").write_text("x")
    at = (tmp_path / "a.py").stat().st_ctime
    assert _written(tmp_path, [("changed", "a.py"), ("deleted", "gone.py")]) == [at]
    assert _written(tmp_path, [("changed", "a.py"), ("created", "'b\\u202e.py'")]) == [math.inf]
    assert _written(tmp_path, [("changed", "a.py"), ("… and 3 more", "")])[-1] == math.inf
