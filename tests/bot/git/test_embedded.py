"""Directories that git takes for repositories."""

from __future__ import annotations

from bot.git.baseline import outermost, repositories_in


def test_each_of_very_many_is_found_in_the_time_that_their_number_takes() -> None:
    """For each of them through all files, this would take an hour."""
    folders = {b"r%d" % number for number in range(20_000)}
    paths = [b"/".join((folder, part)) for folder in folders for part in (b"HEAD", b"objects/a", b"refs/a", b"config")]
    found = repositories_in(paths)
    assert found == folders
    assert {outermost(path, found) for path in paths} == folders


def test_a_name_counts_as_the_least_careful_file_system_reads_it() -> None:
    assert repositories_in(["a/he\u200cad".encode(), b"a/Objects./x", b"a/REFS/x"]) == {b"a"}
    assert repositories_in([b"a/b/HEAD", b"a/objects/x", b"a/refs/x"]) == set()
    assert repositories_in([b"HEAD", b"objects/x", b"refs/x"]) == set()


def test_the_outermost_of_two_is_meant() -> None:
    assert outermost(b"a/b/c/HEAD", {b"a/b", b"a/b/c"}) == b"a/b"
    assert outermost(b"ab/HEAD", {b"a"}) is None
