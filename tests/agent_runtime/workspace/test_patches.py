from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.workspace.patches import UpdateFile, parse_patch, with_hunks

HUNKS = ["@@ class A\n@@ def f\n one\n-two\n+TWO\n", "@@\n-three\n+THREE\n \n", "@@\n-end\n+END\n*** End of File\n"]
PATCH = f"*** Begin Patch\n*** Update File: a\n{HUNKS[0]}{HUNKS[1]}*** Update File: b\n{HUNKS[2]}*** End Patch\n"


def test_hunks_are_numbered_over_all_files() -> None:
    sections = parse_patch(PATCH)
    assert [hunk.number for section in sections if isinstance(section, UpdateFile) for hunk in section.hunks] == [
        1,
        2,
        3,
    ]
    [alone] = parse_patch("*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch")
    assert isinstance(alone, UpdateFile)
    assert alone.hunks[0].number == 0


@pytest.mark.parametrize(
    ("number", "correction", "old", "new"),
    [
        (1, "-2\n+zwei\n", HUNKS[0], "@@ class A\n@@ def f\n-2\n+zwei\n"),
        (1, "@@ def g\n-2\n+zwei", HUNKS[0], "@@ def g\n-2\n+zwei\n"),
        (
            2,
            "*** Begin Patch\r\n*** Update File: a\r\n@@\r\n-3\r\n+drei\r\n*** End Patch\r\n",
            HUNKS[1],
            "@@\n-3\n+drei\n",
        ),
        (2, "", HUNKS[1], ""),
        (3, "-end\n+ENDE\n", "-end\n+END\n", "-end\n+ENDE\n"),
    ],
)
def test_a_hunk_is_put_in_the_place_of_another(number: int, correction: str, old: str, new: str) -> None:
    assert with_hunks(PATCH, {number: correction}) == PATCH.replace(old, new)


@given(st.dictionaries(st.integers(1, 3), st.sampled_from(["-x\n+y\n", "@@ z\n+y\n"]), min_size=1))
def test_the_other_hunks_stay_as_they_are(corrections: dict[int, str]) -> None:
    before, after = (
        [hunk for section in parse_patch(patch) if isinstance(section, UpdateFile) for hunk in section.hunks]
        for patch in (PATCH, with_hunks(PATCH, corrections))
    )
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        assert ((old.headers, old.old, old.new, old.at_end) == (new.headers, new.old, new.new, new.at_end)) is (
            number not in corrections
        )
