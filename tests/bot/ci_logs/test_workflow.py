"""Description of a job from its workflow file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.ci_logs.workflow import combinations, describe_job, is_possible_name

FILE = """\
name: CI
on: [push]
env: {MODE: ci, VERSION: 3.10}
defaults:
  run: {shell: bash}
jobs:
  test:
    runs-on: ${{ matrix.os }}
    strategy:
      matrix:
        python: [3.10, '3.11']
        os: [ubuntu, windows]
        exclude: [{python: 3.10, os: windows}]
        include: [{python: '3.11', os: ubuntu, extra: "yes"}, {python: 3.12, os: macos}]
    env:
      TOKEN: ${{ secrets.CALC_TOKEN }}
      PY: py${{ matrix.python }}
    services:
      db: {image: "postgres:16"}
    container: {image: "python:${{ matrix.python }}"}
    defaults:
      run: {working-directory: src}
    steps:
      - uses: actions/checkout@v5
      - uses: actions/setup-python@v6
        with: {python-version: "${{ matrix.python }}", token: "${{ secrets.CALC_TOKEN }}"}
      - run: |
          pip install -e .
          pip list
      - name: Tests on ${{ matrix.os }} of ${{ github.sha }}
        run: pytest -q --mode ${{ env.MODE }} ${{ env.EXTRA }}
        shell: sh
        env: {MODE: own, EXTRA: "-x"}
  lint:
    name: Lint with ${{ vars.LINTER }}
    steps:
      - run: ruff check .
        working-directory: sub
  called:
    uses: ./.github/workflows/other.yml
  dynamic:
    strategy: {matrix: "${{ fromJSON(needs.x.outputs.y) }}"}
    steps: [{run: make}]
  far:
    uses: octo/flows/.github/workflows/x.yml@v1
"""


def told(name: str, *steps: tuple[int, str, bool], text: str = FILE) -> dict[str, Any]:
    return describe_job(text, name, list(steps))


def test_a_matrix_job_has_its_values_and_names_of_secrets() -> None:
    steps = (
        (1, "Set up job", False),
        (2, "Initialize containers", False),
        (3, "Run actions/checkout@v5", False),
        (4, "Run actions/setup-python@v6", False),
        (5, "Run pip install -e .", False),
        (6, "Tests on ubuntu of 0123abc", True),
        (11, "Post Run actions/checkout@v5", False),
    )
    job = told("test (3.11, ubuntu, yes)", *steps)
    assert job["environment"] == {
        "MODE": "own",
        "VERSION": "3.10",
        "TOKEN": "${{ secrets.CALC_TOKEN }}",
        "PY": "py3.11",
        "EXTRA": "-x",
    }
    assert (job["services"], job["container"]) == ({"db": "postgres:16"}, "python:3.11")
    assert list(job["steps"]) == ["3", "4", "5", "6"]
    assert job["steps"]["4"]["uses"] == "actions/setup-python@v6"
    assert job["steps"]["4"]["inputs"] == {"python-version": "3.11", "token": "${{ secrets.CALC_TOKEN }}"}
    assert job["steps"]["5"]["run"] == "pip install -e .\npip list\n"
    assert (job["steps"]["5"]["shell"], job["steps"]["5"]["working_directory"]) == ("bash", "src")
    assert job["steps"]["6"]["run"] == "pytest -q --mode own -x"
    assert job["steps"]["6"]["shell"] == "sh"


@pytest.mark.parametrize(
    ("name", "variable"),
    [("test (3.10, ubuntu)", "py3.10"), ("test (3.11, windows)", "py3.11"), ("test (3.12, macos)", "py3.12")],
)
def test_all_combinations_are_listed(name: str, variable: str) -> None:
    assert told(name)["environment"]["PY"] == variable


def test_a_name_with_an_expression_is_matched_by_its_context() -> None:
    assert told("Lint with ruff", (2, "Run ruff check .", True))["steps"]["2"]["working_directory"] == "sub"
    assert told("dynamic (a, b)", (2, "Run make", True))["steps"]["2"]["run"] == "make"
    # What was left out of the matrix has a name that only the job's key is known of.
    assert told("test (3.10, windows)")["environment"]["PY"] == "py${{ matrix.python }}"


def test_a_reusable_workflow_of_the_repository_is_followed() -> None:
    assert told("called / inner / test (1)") == {
        "calls": ".github/workflows/other.yml",
        "name": "inner / test (1)",
    }
    assert told("far / test") == {}
    assert told("nobody") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "jobs: 1",
        "jobs: {test: 1}",
        "jobs: {test: {steps: 1, env: [], services: x, strategy: {matrix: 1}}}",
    ],
)
def test_a_file_of_another_shape_says_nothing(text: str) -> None:
    job = told("test", (1, "Run x", True), text=text)
    assert not job or not (job["steps"] or job["environment"] or job["services"])


@pytest.mark.parametrize("text", ["a: [", "\t", "[" * 5_000, "a: *b", "\x00"])
def test_invalid_yaml_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not YAML"):
        told("test", text=text)


def test_neither_anchors_nor_a_matrix_make_much_of_little() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert told("test", text=f"{bomb}jobs: {{test: {{env: *a59, steps: *a59, services: {{x: *a59}}}}}}")[
        "services"
    ] == {"x": ""}
    wide = {f"a{n}": [str(m) for m in range(200)] for n in range(50)}
    assert len(combinations(wide)) == 256
    assert len(combinations({"include": [{"a": str(n)} for n in range(1_000)]})) == 256


def test_tags_make_nothing() -> None:
    assert told("test", text='jobs: {test: {env: {A: !!python/object/apply:os.system ["x"], B: !!int "7"}}}')[
        "environment"
    ] == {"A": "", "B": "7"}


@given(st.text(max_size=40), st.text(max_size=40))
def test_names_are_compared_without_end(name: str, template: str) -> None:
    assert is_possible_name(name, name) or "${{" in name
    is_possible_name(name, template)


def test_a_template_matches_names_with_its_pieces_in_order() -> None:
    assert is_possible_name("a 1 b 2 c", "a ${{ x }} b ${{ y }} c")
    assert not is_possible_name("a 1 c", "a ${{ x }} b ${{ y }} c")
    assert not is_possible_name("ac", "a${{ x }}cc")
