"""The library's guide: every example runs, and prints what its page says."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.doc_pages import PAGES, Page

_MAX_LINES = 190
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_examples_of_a_page_run_and_print_what_it_says(path: Path, tmp_path: Path) -> None:
    page = Page.read(path)
    page.lay_out(tmp_path)
    for name in page.examples:
        printed = page.ran(name, tmp_path)
        if os.environ.get("UPDATE_DOCS"):
            page.write_output(name, printed)
        else:
            assert printed == page.outputs.get(name, ""), (
                f"{path.name}, example {name} prints something else; if that is right, run: "
                "UPDATE_DOCS=1 .venv/bin/pytest tests/test_guide.py"
            )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_python_fence_of_a_page_is_run(path: Path) -> None:
    page = Page.read(path)
    assert not page.unmarked(), f"{path.name}: mark the fences on these lines as example or file: {page.unmarked()}"
    assert {*page.outputs, *page.typed, *page.scripts} <= {*page.examples, *page.files}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_short_enough_to_read_in_one_go(path: Path) -> None:
    # A table of differences is looked up, not read from end to end.
    assert len(_GENERATED.sub("", Page.read(path).shown).splitlines()) <= _MAX_LINES


def test_every_page_of_the_guide_is_linked_from_the_entry_page() -> None:
    entry, *pages = PAGES
    text = entry.read_text(encoding="utf-8")
    assert [path.name for path in pages if f"({path.relative_to(entry.parent)})" not in text] == []
