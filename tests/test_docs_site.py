"""The site of the documents: it builds without a warning, so every link in it leads somewhere."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.source_files import ROOT

_DOCS = ROOT / "docs"


@pytest.mark.slow
@pytest.mark.long
def test_the_site_builds_without_a_warning_and_has_every_page() -> None:
    site = _built()
    pages = [path.relative_to(_DOCS).with_suffix(".html") for path in _DOCS.glob("**/*.md")]
    assert [page for page in pages if not (site / page).is_file()] == []
    first = (site / "index.html").read_text(encoding="utf-8")
    assert [page for page in pages if f'href="{page}"' not in first and page.name != "index.html"] == []
    assert "agent_runtime.AsyncRuntime" in (site / "api.html").read_text(encoding="utf-8")


def _built() -> Path:
    """The site, built if a page or a docstring has changed since the last build without a warning."""
    sources = sorted([*_DOCS.glob("**/*.*"), *(ROOT / "agent_runtime").glob("**/*.py")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources if path.is_file())).hexdigest()
    cache = ROOT / ".cache" / "docs-site"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        done = cache / "digest"
        if not done.is_file() or done.read_text(encoding="ascii") != digest:
            # The theme puts a list of all pages on each page, which takes half of the time.
            _run_sphinx(cache, "-E", "-D", "html_theme=basic", _DOCS, cache / "site")
            _run_sphinx(cache, _DOCS, cache / "site", _DOCS / "index.md", _DOCS / "api.rst")
            done.write_text(digest, encoding="ascii")
    return cache / "site"


def _run_sphinx(cache: Path, *words: str | Path) -> None:
    argv = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", cache / "doctrees", *words]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"correct these, then run: make docs\n{built.stderr}"
