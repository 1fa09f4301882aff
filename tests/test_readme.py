"""The README: what its badges, its figures and its links say is true."""

from __future__ import annotations

import re
import tomllib
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

from tests.script_files import load_script
from tests.source_files import ROOT

_README = (ROOT / "README.md").read_text(encoding="utf-8")
_PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    return load_script("record-demo")


def test_it_is_short_and_names_the_commands_to_begin_with() -> None:
    assert len(_README.splitlines()) < 120
    for command in ("make demo", "make test", "pip install .", "codepilot app create"):
        assert command in _README
    assert _README.index("pip install .") < _README.index("docs/configure.md")


def test_the_badges_say_what_the_project_file_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    versions = [
        found[1]
        for each in project["project"]["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
    ]
    badges = re.findall(r"^\[!\[(?P<text>[^]]+)\]", _README, re.MULTILINE)
    assert badges == [
        f"License: {project['project']['license']}",
        f"Python {', '.join(versions)}",
        "Types: mypy strict",
    ]
    assert project["tool"]["mypy"]["strict"]


def test_there_are_seven_promises_each_with_the_page_that_explains_it() -> None:
    section = _README.partition("## Seven promises")[2].partition("\n## ")[0]
    promises = re.findall(r"^\d\. .*?(?=^\d\. |\n\n|\Z)", section, re.MULTILINE | re.DOTALL)
    assert len(promises) == 7
    assert [promise for promise in promises if "](docs/" not in promise] == []


def test_each_source_of_the_comparison_is_named_once_and_used() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    sources = re.findall(r"^\[(?P<name>[\w-]+)\]: (?P<url>\S+)$", page, re.MULTILINE)
    names = [name for name, _ in sources]
    assert len(names) == len(set(names))
    assert [name for name in names if f"][{name}]" not in page] == []
    assert set(re.findall(r"\]\[([\w-]+)\]", page)) == set(names)
    assert [url for _, url in sources if not url.startswith("https://")] == []


def test_the_price_of_a_fix_is_the_measured_one() -> None:
    costs = (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")
    low, high = (re.search(rf"^\| {steps} steps.*?\| \$(.*?) to \$(\S+) ", costs, re.MULTILINE) for steps in (3, 30))
    assert low
    assert high
    assert f"**${float(low[1]):.2f} to ${float(high[2]):.2f}**" in _README


def test_the_picture_of_the_demo_shows_it_to_its_end_and_loads_and_runs_nothing() -> None:
    drawing = ET.parse(_PICTURE)  # noqa: S314 - a file of this repository
    used = {element.tag.removeprefix(_SVG) for element in drawing.iter()}
    assert used <= {"svg", "title", "style", "rect", "circle", "g", "text"}
    written = _PICTURE.read_text(encoding="utf-8")
    assert not re.search(r"url\(|href|@import|\bon\w+=", written)
    assert len(written) < 150_000
    shown = "".join(element.text or "" for element in drawing.iter(f"{_SVG}text"))
    for line in ("opens issue #1", "/codepilot fix", "pull request #2", "Done, checks passed"):
        assert line in shown


def test_what_a_terminal_was_sent_is_drawn_from_the_first_heading_on(recorder: ModuleType) -> None:
    printed = "skipped\r\nThe \x1b[1mend\x1b[0m ──────\r\n\x1b[31m<b> & more\x1b[0m\r\n  ✅  passed ⚠\ufe0f it\r\n"
    drawing = ET.fromstring(recorder.drawn(printed.encode()))  # noqa: S314 - our own drawing
    lines = [text.text for text in drawing.iter(f"{_SVG}text")][1:]
    assert lines == ["The", "end", " ──────", "<b> & more", "  ✅  passed ⚠  it"]


def test_a_page_ends_before_a_section_that_it_cannot_show_whole(recorder: ModuleType) -> None:
    lines = ["text"] * 40
    lines[20] = "step 2 of at most 30"
    assert list(recorder.paged(lines)) == [range(20), range(20, 40)]
    assert list(recorder.paged(["text"] * 40)) == [range(recorder.ROWS), range(recorder.ROWS, 40)]
