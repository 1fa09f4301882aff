from __future__ import annotations

from agent_runtime.context.code_map import render_map
from agent_runtime.index.index import Outline


def outline(path: str, *names: str, is_test: bool = False) -> Outline:
    return Outline(path=path, is_test=is_test, names=names)


def test_a_small_repository_is_named_whole_with_private_names_last_and_tests_by_directory() -> None:
    code_map = render_map(
        [
            outline("docs/conf.py", "setup"),
            outline("pkg/__init__.py"),
            outline("pkg/keys.py", "Key", "Key._hash", "Key.__init__", "Key.draw", "_helper", "unikey", "Empty"),
            outline("tests/test_keys.py", "test_draw", is_test=True),
            outline("tests/test_more.py", "test_more", is_test=True),
        ],
        [],
        1_000,
    )
    assert code_map.is_complete
    assert code_map.text.splitlines() == [
        "pkg/keys.py",
        " Key: draw __init__ _hash",
        " unikey Empty _helper",
        "docs/ (1 file)",
        "tests/ (2 files)",
    ]


def test_names_of_the_files_that_rank_best_stay_when_not_all_fit() -> None:
    outlines = [outline(f"pkg/part_{n:02}.py", *(f"function_{n}_{m}" for m in range(30))) for n in range(40)]
    ranked = [("pkg/part_31.py", "function_31_29"), ("pkg/part_07.py", "function_7_28")]
    code_map = render_map(outlines, ranked, 2_000)
    assert not code_map.is_complete
    assert len(code_map.text) <= 2_000
    lines = code_map.text.splitlines()
    best = lines[lines.index("pkg/part_31.py") + 1]
    assert best.startswith(" function_31_0 ")
    assert "function_31_29 … " in best
    assert "function_7_28" in lines[lines.index("pkg/part_07.py") + 1]
    files = sum(line.endswith(".py") for line in lines)
    assert lines[-1] == f"pkg/ ({40 - files} files)"


def test_a_ranked_test_is_named_where_not_all_fits() -> None:
    outlines = [outline(f"pkg/{n}.py", *(f"function_{m}" for m in range(30))) for n in range(40)]
    text = render_map(
        [*outlines, outline("tests/test_x.py", "test_x", is_test=True)], [("tests/test_x.py", "test_x")], 2_000
    ).text
    assert "tests/test_x.py\n test_x" in text


def test_files_whose_names_are_not_known_make_a_map_incomplete() -> None:
    unknown = Outline(path="pkg/b.py", is_test=False, names=None)
    code_map = render_map([outline("pkg/a.py", "f"), unknown], [], 1_000)
    assert not code_map.is_complete
    assert code_map.text.splitlines() == ["pkg/a.py", " f", "pkg/ (1 file)"]


def test_hostile_names_stay_on_their_line_and_many_directories_are_cut() -> None:
    outlines = [
        outline("a\nb.py", "f\u202eg", "C", "C.x\ny"),
        *(outline(f"d{n}/x.py", is_test=True) for n in range(900)),
    ]
    lines = render_map(outlines, [], 1_000).text.splitlines()
    assert lines[:2] == [r"a\nb.py", r" C: x\ny"]
    assert all(line.isprintable() for line in lines)
    assert sum(map(len, lines)) + len(lines) <= 1_050
    assert lines[-1].endswith(" more directories")


def test_a_workspace_without_sources_has_no_map() -> None:
    assert render_map([], [], 1_000).text == ""


def test_directories_alone_are_no_map() -> None:
    unknown = Outline(path="pkg/b.py", is_test=False, names=None)
    assert render_map([unknown, outline("tests/test_x.py", "test_x", is_test=True)], [], 1_000).text == ""


def test_a_path_that_is_too_long_leaves_room_for_others() -> None:
    outlines = [
        outline("\u202e" * 1_000 + "/a.py", "f"),
        outline("pkg/deep/b.py", *(f"function_{n}" for n in range(200))),
    ]
    text = render_map(outlines, [], 2_000).text
    assert text.startswith("pkg/deep/b.py\n function_0 ")
    assert len(text) <= 2_000
