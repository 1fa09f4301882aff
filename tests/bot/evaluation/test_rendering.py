"""The report of an evaluation: tables for people, JSON for programs, and a page that hostile texts cannot change."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from typing_extensions import override

from bot.evaluation import rendering
from bot.evaluation.rendering import MAX_DIFF_LINES, render_html, render_json, render_markdown
from bot.evaluation.report import Report, build_report
from bot.evaluation.results import EvalResult, PhaseTokens
from bot.evaluation.suite import Suite, SuiteHead, Task
from tests.bot.evaluation.samples import SUITE, result
from tests.browser import DESKTOP, PHONE, browser, opened

_HOSTILE = "</pre></style><script>alert(1)</script><img src=x onerror=alert(1)> @mona `|` \x1b[31m\u202e"
_PATCH = f"""\
diff --git a/parcel.py b/parcel.py
--- a/parcel.py
+++ b/parcel.py
@@ -1,2 +1,2 @@ {_HOSTILE}
 import math
-{_HOSTILE}
+return 1
"""


def _report(*results: EvalResult, suite: Suite = SUITE, models: dict[str, str] | None = None) -> Report:
    return build_report(results, suite, models or {})


def _hostile_suite() -> Suite:
    title = _HOSTILE.replace("\x1b", "")
    task = Task(id="t1", title=title, link="javascript:alert(1)", test_command="pytest")
    return Suite(path=Path("nowhere"), head=SuiteHead(repository=title), tasks=(task,))


def _no_texts(_task: str) -> tuple[str, str]:
    return "", ""


class _Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str | None]] = {}
        self.feed(page)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value)


def _hostile_page() -> str:
    hostile = result(
        "t1",
        solved=False,
        error=_HOSTILE,
        tests={_HOSTILE: False},
        patch="p",
        tokens={_HOSTILE: PhaseTokens(input=1)},
    )
    report = _report(hostile, suite=_hostile_suite(), models={"a": _HOSTILE})
    return render_html(report, [hostile], lambda _task: (_HOSTILE, _PATCH), lambda _name: _PATCH)


def test_hostile_texts_are_only_text_on_the_page() -> None:
    page = _hostile_page()
    elements = _Elements(page)
    assert not elements.tags & {"script", "img", "iframe", "form", "link", "object", "base"}
    assert not [name for name in elements.attributes if name.startswith("on") or name in {"style", "src"}]
    assert elements.attributes["href"] == {"#task-t1"}
    assert page.count("<style>") == page.count("</style>") == 1
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert page.count("alert(1)") == 2 * 13, "each text is shown"


async def test_a_browser_shows_the_page_as_it_is_meant_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(_hostile_page(), encoding="utf-8")
    async with browser() as started:
        for window in (DESKTOP, PHONE):
            watched = await opened(await started.new_context(viewport=window, color_scheme="dark"))
            await watched.page.goto(f"file://{tmp_path}/report.html")
            assert await watched.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 26)"
            assert await watched.page.locator(".diff .removed").count() == 2
            assert await watched.page.locator("script, img").count() == 0
            assert (await watched.overflow(), watched.complaints) == (0, [])


def test_a_long_diff_and_many_of_them_are_cut_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    long = result("t1", patch="long")
    page = render_html(_report(long), [long], _no_texts, lambda _name: "+x\n" * (MAX_DIFF_LINES + 500))
    assert page.count('<span class="added">') == MAX_DIFF_LINES
    assert "the rest is left out" in page
    monkeypatch.setattr(rendering, "MAX_PAGE_CHARS", 100)
    results = [result(task, patch=task) for task in ("t1", "t2", "t3")]
    page = render_html(_report(*results), results, _no_texts, lambda _name: "+y\n" * 40)
    assert 0 < page.count("+y\n") < 40
    assert page.count("the rest is left out") == 3


def test_the_whole_patch_of_a_short_diff_is_shown() -> None:
    short = result("t1", patch="short")
    page = render_html(_report(short), [short], _no_texts, lambda _name: "+x\n+y\n")
    assert page.count('<span class="added">') == 2
    assert "the rest is left out" not in page


def test_the_tables_of_the_markdown_are_tables_for_github_too() -> None:
    hostile = result("t1", tokens={_HOSTILE: PhaseTokens(input=1)})
    text = render_markdown(_report(hostile, suite=_hostile_suite(), models={"a": _HOSTILE, "b": ""}))
    html = cmarkgfm.markdown_to_html_with_extensions(text, Options.CMARK_OPT_UNSAFE, ["table", "autolink"])
    elements = _Elements(html)
    assert not elements.tags & {"script", "img", "a"}
    rows = [row.count("<td") for row in html.split("<tr>")]
    assert rows.count(0) >= 5
    assert {*rows} == {0, 8, 7, 10, 5, 4}
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines if line.startswith("| `t1`")}) == 1


def test_the_columns_of_a_table_line_up() -> None:
    text = render_markdown(_report(result("t1"), result("t1", config="configuration-with-a-long-name")))
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 4
    assert all(len({len(line) for line in table}) == 1 for table in tables)


def test_a_small_sample_is_called_small() -> None:
    small = render_markdown(_report(result("t1")))
    assert "Small sample: 1 task, fewer than 30." in small
    large = render_markdown(_report(*(result(f"task-{number}") for number in range(30))))
    assert "Small sample" not in large


def test_a_comparison_claims_a_difference_only_if_the_test_does() -> None:
    def compare(count: int) -> str:
        return render_markdown(
            _report(
                *(result(f"n{number}", config="a", solved=True, cost_usd=0.5) for number in range(count)),
                *(result(f"n{number}", config="b", solved=False, cost_usd=0.25) for number in range(count)),
            )
        )

    assert "`a` and `b`: no difference is shown; the outcomes of 5 tasks differ; with fewer than 6," in compare(5)
    assert "`a` and `b`: `a` solves more." in compare(6)
    assert "The first is cheaper on 0 of 6, the second on 6: p = 0.031." in compare(6)


def test_gaps_and_refusals_are_told() -> None:
    text = render_markdown(
        _report(
            result("t1", attempt=1, solved=True),
            result("t1", attempt=2, solved=False),
            result("t2", status="refused", solved=None, approvals=2),
            result("t3", status="error", solved=None, cost_usd=None),
        )
    )
    for sentence in (
        "`a` has no result for 1 task, not counted: `t3`.",
        "`a` had 1 run with an error or an interruption, not counted (cost: -).",
        "`a` refused 1 run, counted as not solved.",
        "`a` requested 2 approvals.",
        "`a` solved 0 tasks in every run, and 1 in at least one.",
        "the sample is the tasks, not the runs",
    ):
        assert sentence in text
    assert "| 1 of 2 " in text


def test_a_report_without_results_is_whole() -> None:
    for report in (_report(), _report(models={"a": "gpt-6-luna"})):
        assert "## Tasks" in render_markdown(report)
        assert "no result" not in render_markdown(_report())
        assert "</html>" in render_html(report, [], _no_texts, str)
        assert json.loads(render_json(report))["format"] == 1


def test_the_json_has_its_documented_shape() -> None:
    data = json.loads(render_json(_report(result("t1"), result("t1", config="b"))))
    assert [*data] == ["format", "repository", "confidence", "is_small", "configs", "comparisons", "tasks"]
    assert data["configs"][0]["solved"] == {
        "count": 1.0,
        "size": 1,
        "share": 1.0,
        "low": pytest.approx(0.2065, abs=1e-4),
        "high": 1.0,
    }
    assert data["tasks"][0]["outcomes"]["b"] == {"attempts": 1, "solved": 1, "false_claims": 0, "errors": 0}
