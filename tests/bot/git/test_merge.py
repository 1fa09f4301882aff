"""Merges of a base branch: git's result, its conflicts, and resolutions compared with `git merge` by a person."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.git.agent_repository import Refs
from bot.git.change import Change
from bot.git.errors import CloneError, WorkspaceError
from bot.git.merge import Conflict, Merge, explain
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from tests.changes import a_change, a_file
from tests.origin import Origin, commit_of, git

_MODULE = "".join(f"line {number}\n" for number in range(20))
MERGED = "Merge branch 'main' into topic"
_LOCK = '{"lockfileVersion": 3,\n "a": "1.0.0",\n "b": "1.0.0"}\n'
Edit = Callable[[Path], object]


def write(name: str, content: str | bytes, mode: int = 0o644) -> Edit:
    """Return an edit that writes a file."""

    def edit(root: Path) -> None:
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        (root / name).chmod(mode)

    return edit


def move(old: str, new: str) -> Edit:
    return lambda root: (root / old).rename(root / new)


def remove(name: str) -> Edit:
    return lambda root: (root / name).unlink()


def link(name: str, target: str) -> Edit:
    """Return an edit that replaces a file by a link."""

    def edit(root: Path) -> None:
        (root / name).unlink()
        (root / name).symlink_to(target)

    return edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Both sides of a conflict, and how a person resolves it."""

    head: Edit
    base: Edit
    resolve: Edit
    kind: str
    before: Edit = lambda _root: None
    marked: tuple[str, ...] = ()


CASES = {
    "content": Case(
        head=write("module.py", _MODULE.replace("line 3", "line three")),
        base=write("module.py", _MODULE.replace("line 3", "LINE 3").replace("line 15", "LINE 15")),
        resolve=write("module.py", _MODULE.replace("line 3", "LINE THREE").replace("line 15", "LINE 15")),
        kind="content",
        marked=("module.py",),
    ),
    "add/add": Case(
        head=write("new.py", "ours\n"),
        base=write("new.py", "theirs\n"),
        resolve=write("new.py", "ours\ntheirs\n"),
        kind="add/add",
        marked=("new.py",),
    ),
    "modify/delete": Case(
        head=write("module.py", _MODULE.replace("line 3", "line three")),
        base=remove("module.py"),
        resolve=remove("module.py"),
        kind="modify/delete",
    ),
    "rename/rename": Case(
        head=move("module.py", "ours.py"),
        base=move("module.py", "theirs.py"),
        resolve=remove("ours.py"),
        kind="rename/rename",
    ),
    "binary": Case(
        before=write("logo.bin", b"\0\1"),
        head=write("logo.bin", b"\0\2"),
        base=write("logo.bin", b"\0\3"),
        resolve=write("logo.bin", b"\0\4"),
        kind="binary",
    ),
    "mode": Case(
        head=write("tool.sh", "true\n", 0o755),
        base=write("tool.sh", "true\n"),
        resolve=write("tool.sh", "true\n"),
        kind="mode",
    ),
    "lock file": Case(
        head=write("package-lock.json", _LOCK.replace('"a": "1.0.0"', '"a": "1.1.0"')),
        base=write("package-lock.json", _LOCK.replace('"a": "1.0.0"', '"a": "1.2.0"')),
        resolve=write("package-lock.json", _LOCK.replace('"a": "1.0.0"', '"a": "1.2.0"')),
        kind="content",
        marked=("package-lock.json",),
    ),
    "link": Case(
        head=link("place", "module.py"),
        base=write("place", "changed text\n"),
        resolve=remove("place~origin_main"),
        kind="distinct modes",
    ),
}


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit({"module.py": _MODULE, "package-lock.json": _LOCK, "place": "text\n", "keep.txt": "same\n"})
    return origin


def diverge(origin: Origin, case: Case) -> tuple[str, str]:
    """Commit both sides of a case; return the ids of the head, on `topic`, and of the base, on `main`."""
    case.before(origin.path)
    origin.commit()
    origin.git("checkout", "--quiet", "-b", "topic")
    case.head(origin.path)
    head = origin.commit({"head.txt": "of the head\n"})
    origin.git("checkout", "--quiet", "main")
    case.base(origin.path)
    return head, origin.commit({"base.txt": "of the base\n"})


def source(origin: Origin, sha: str, branch: str) -> Source:
    return Source(url=origin.url, token="", ref=f"refs/heads/{branch}", sha=sha)


async def merge_sides(origin: Origin, workspaces: Workspaces, head: str, base: str) -> Merge:
    merge = await workspaces.merge(1, source(origin, head, "topic"), source(origin, base, "main"))
    assert merge is not None
    return merge


def merge_by_hand(origin: Origin, resolve: Edit, folder: Path) -> list[str]:
    """Merge in an ordinary clone, as a person does; return the tree and the parents of the commit."""
    git(origin.path, "clone", "--quiet", "--branch=topic", origin.url, str(folder))
    with pytest.raises(subprocess.CalledProcessError):
        git(folder, "merge", "--no-edit", "origin/main")
    resolve(folder)
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--no-edit")
    return git(folder, "show", "--no-patch", "--format=%T %P", "HEAD").split()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_agents_repository_is_in_the_middle_of_the_merge(origin: Origin, tmp_path: Path, case: Case) -> None:
    head, base = diverge(origin, case)
    clone = tmp_path / "clone"
    git(origin.path, "clone", "--quiet", "--branch=topic", origin.url, str(clone))
    with pytest.raises(subprocess.CalledProcessError):
        git(clone, "merge", "--no-edit", "origin/main")
    workspaces = Workspaces(tmp_path / "state", shows_objects=False)
    merge = await merge_sides(origin, workspaces, head, base)
    refs = Refs(branch="topic", base=source(origin, base, "main"), merge=merge)
    async with workspaces.open("job", 1, source(origin, merge.commit, "topic"), refs=refs) as tree:
        for question in (("ls-files", "--stage"), ("status", "--porcelain"), ("rev-parse", "HEAD", "MERGE_HEAD")):
            assert git(tree.path, *question) == git(clone, *question)
        case.resolve(tree.path)
        git(tree.path, "add", "--all")
        git(tree.path, "commit", "--quiet", "--no-edit")
        assert git(tree.path, "show", "--no-patch", "--format=%P %s", "HEAD") == f"{head} {base} {MERGED}"
        assert merge.find_problems(await tree.change(), "") == ()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_resolved_merge_is_the_one_that_a_person_makes(origin: Origin, tmp_path: Path, case: Case) -> None:
    head, base = diverge(origin, case)
    by_hand = merge_by_hand(origin, case.resolve, tmp_path / "clone")
    workspaces = Workspaces(tmp_path / "state")
    merge = await merge_sides(origin, workspaces, head, base)
    assert (merge.head, merge.base, merge.label) == (head, base, "origin/main")
    assert [conflict.kind for conflict in merge.conflicts] == [case.kind]
    assert tuple(merge.markers) == case.marked
    async with workspaces.open("job", 1, source(origin, merge.commit, "topic")) as tree:
        assert (tree.path / "base.txt").read_text() == "of the base\n"
        unresolved = await tree.change()
        assert not unresolved
        assert merge.find_markers(unresolved) == case.marked
        assert bool(merge.find_untouched(unresolved)) == (not case.marked)
        case.resolve(tree.path)
        change = await tree.change()
        assert merge.find_problems(change, "") == ()
        sha = await tree.commit(change, message="Merge main", parents=(head, base))
        assert sha == await tree.commit(change, message="Merge main", parents=(head, base))
        await tree.push(sha, branch="topic", expected=head, url=origin.url, token="")
    assert origin.git("show", "--no-patch", "--format=%T %P", "topic").split() == by_hand
    assert by_hand[1:] == [head, base]


async def test_a_conflict_of_a_submodule_keeps_the_heads_commit(origin: Origin, tmp_path: Path) -> None:
    first, second, third = (commit_of(origin.path, "f", text) for text in "abc")

    def at(sha: str) -> Edit:
        return lambda root: git(root, "update-index", "--add", "--cacheinfo", f"160000,{sha},sub")

    def commit(edit: Edit) -> str:
        edit(origin.path)
        origin.git("commit", "--quiet", "--message", "Move the submodule")
        return origin.head()

    commit(at(first))
    origin.git("checkout", "--quiet", "-b", "topic")
    head = commit(at(second))
    origin.git("checkout", "--quiet", "main")
    base = commit(at(third))
    by_hand = merge_by_hand(origin, at(second), tmp_path / "clone")
    workspaces = Workspaces(tmp_path / "state")
    merge = await merge_sides(origin, workspaces, head, base)
    [conflict] = merge.conflicts
    assert (conflict.kind.partition(" ")[0], conflict.paths, merge.markers) == ("submodule", ("sub",), {})
    async with workspaces.open("job", 1, source(origin, merge.commit, "topic")) as tree:
        change = await tree.change()
        [problem] = merge.find_problems(change, "Merged.")
        assert "`sub` (submodule" in problem
        assert merge.find_problems(change, "- sub: this branch needs its newer version") == ()
        sha = await tree.commit(change, message="Merge main", parents=(head, base))
        await tree.push(sha, branch="topic", expected=head, url=origin.url, token="")
    assert origin.git("show", "--no-patch", "--format=%T %P", "topic").split() == by_hand


async def test_a_clean_merge_is_the_one_that_git_makes(origin: Origin, tmp_path: Path) -> None:
    case = Case(
        head=write("module.py", _MODULE.replace("line 3", "line three")),
        base=move("module.py", "renamed.py"),
        resolve=remove("keep.txt"),
        kind="",
    )
    head, base = diverge(origin, case)
    merge = await merge_sides(origin, Workspaces(tmp_path / "state"), head, base)
    assert (merge.conflicts, merge.stages, merge.markers) == ((), {}, {})
    git(origin.path, "clone", "--quiet", "--branch=topic", origin.url, str(tmp_path / "clone"))
    git(tmp_path / "clone", "merge", "--quiet", "--no-edit", "origin/main")
    mirror = tmp_path / "state" / "mirrors" / "1.git"
    assert git(mirror, "rev-parse", f"{merge.commit}^{{tree}}") == git(tmp_path / "clone", "rev-parse", "HEAD^{tree}")


async def test_a_head_that_contains_the_base_needs_no_merge(origin: Origin, tmp_path: Path) -> None:
    base = origin.head()
    origin.git("checkout", "--quiet", "-b", "topic")
    head = origin.commit({"more.txt": "x\n"})
    workspaces = Workspaces(tmp_path / "state")
    assert await workspaces.merge(1, source(origin, head, "topic"), source(origin, base, "main")) is None


async def test_the_merge_is_the_same_on_each_machine(origin: Origin, tmp_path: Path) -> None:
    head, base = diverge(origin, CASES["content"])
    merges = [await merge_sides(origin, Workspaces(tmp_path / name), head, base) for name in ("one", "two")]
    assert merges[0] == merges[1]
    assert "LINE 3" in merges[0].excerpts["module.py"]
    assert "line 12" not in merges[0].excerpts["module.py"]


async def test_branches_without_a_common_commit_are_not_merged(origin: Origin, tmp_path: Path) -> None:
    head = commit_of(origin.path, "other.txt", "x\n")
    origin.git("branch", "topic", head)
    with pytest.raises(WorkspaceError, match="no commit in common"):
        await merge_sides(origin, Workspaces(tmp_path / "state"), head, origin.head())


async def test_the_change_of_a_deleted_file_is_shown(origin: Origin, tmp_path: Path) -> None:
    head, base = diverge(origin, CASES["modify/delete"])
    merge = await merge_sides(origin, Workspaces(tmp_path / "state"), head, base)
    assert "-line 3\n+line three" in merge.excerpts["module.py"]


async def test_several_common_ancestors_are_merged_first(origin: Origin, tmp_path: Path) -> None:
    head, base = diverge(origin, CASES["content"])
    for branch, other in (("topic", base), ("main", head)):  # each side merges the other in its own way
        origin.git("checkout", "--quiet", branch)
        with pytest.raises(subprocess.CalledProcessError):
            origin.git("merge", "--quiet", other)
        (origin.path / "module.py").write_text(_MODULE.replace("line 3", f"line of {branch}"))
        origin.commit()
    merges = [
        await merge_sides(origin, Workspaces(tmp_path / name), origin.head("topic"), origin.head("main"))
        for name in ("one", "two")
    ]
    assert merges[0] == merges[1]
    lines = b"\n".join(merges[0].markers["module.py"]).decode()
    assert "<<<<<<< HEAD" in lines
    assert "Temporary merge branch" in lines


async def test_a_name_that_is_no_text_can_be_shown_and_named(origin: Origin, tmp_path: Path) -> None:
    name = "odd \udcff.txt"
    case = Case(head=write(name, "ours\n"), base=write(name, "theirs\n"), resolve=remove(name), kind="add/add")
    head, base = diverge(origin, case)
    workspaces = Workspaces(tmp_path / "state", shows_objects=False)
    merge = await merge_sides(origin, workspaces, head, base)
    refs = Refs(branch="topic", base=source(origin, base, "main"), merge=merge)
    async with workspaces.open("job", 1, source(origin, merge.commit, "topic"), refs=refs) as tree:
        [problem] = merge.find_problems(await tree.change(), "")
        assert problem.encode().endswith("in `odd \ufffd.txt`.".encode())
        case.resolve(tree.path)
        assert merge.find_problems(await tree.change(), "") == ()
    assert explain(name, "- odd ?.txt: both wrote it") == "odd ?.txt: both wrote it"


def change_of(**contents: str | None) -> Change:
    """Return a change of files whose names end with `.py`."""
    files = (a_file(f"{name}.py", None if text is None else text.encode()) for name, text in contents.items())
    return a_change(*files)


MARKERS = {b"<<<<<<< HEAD": 0, b"=======": 1, b">>>>>>> origin/main": 0}


@pytest.mark.parametrize(
    ("content", "is_left"),
    [
        ("resolved\n", False),
        ("resolved\n=======\n", False),  # a side has such a line
        ("resolved\n=======\n=======\n", True),
        ("<<<<<<< HEAD\nresolved\n", True),
        ("resolved\r\n>>>>>>> origin/main\r\n", True),
        ("<<<<<<< HEADING\n<<<<<<<\n>>>>>>> main\n ======= \n", False),
        (None, False),
    ],
)
def test_only_lines_that_git_wrote_are_markers(content: str | None, *, is_left: bool) -> None:
    merge = Merge(head="h", base="b", branch="main", commit="m", tree="t", markers={"a.py": MARKERS})
    assert merge.find_markers(change_of(a=content)) == (("a.py",) if is_left else ())


async def test_markers_of_a_file_that_was_moved_are_found(origin: Origin, tmp_path: Path) -> None:
    head, base = diverge(origin, CASES["content"])
    workspaces = Workspaces(tmp_path / "state", shows_objects=False)
    merge = await merge_sides(origin, workspaces, head, base)
    async with workspaces.open("job", 1, source(origin, merge.commit, "topic")) as tree:
        move("module.py", "moved.py")(tree.path)
        write("heading.rst", "Heading\n=======\n")(tree.path)
        assert merge.find_markers(await tree.change()) == ("moved.py",)


async def test_files_that_are_too_large_for_the_memory_are_merged(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.git.merge_tree._READ_BYTES", 3_000)
    text = "".join(f"{number}\n" for number in range(500))

    def edit(line: str) -> Edit:
        def change(root: Path) -> None:
            for name, content in {"big.txt": text, "huge.txt": text * 2, "small.txt": "0\n"}.items():
                write(name, content.replace("0\n", line, 1))(root)

        return change

    case = Case(before=edit("0\n"), head=edit("ours\n"), base=edit("theirs\n"), resolve=edit("both\n"), kind="content")
    merge = await merge_sides(origin, Workspaces(tmp_path / "state"), *diverge(origin, case))
    assert merge.stages.keys() == {"big.txt", "huge.txt", "small.txt"}
    assert merge.markers.keys() == {"big.txt", "small.txt"}
    assert b"<<<<<<< HEAD" in merge.markers["big.txt"]


async def test_markers_that_a_side_has_are_not_refused(origin: Origin, tmp_path: Path) -> None:
    forged = "<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> origin/main\n"
    case = Case(
        head=write("module.py", f"ours\n{_MODULE}"),
        base=write("module.py", f"theirs\n{_MODULE}{forged}"),
        resolve=write("module.py", f"ours\n{_MODULE}{forged}"),
        kind="content",
    )
    head, base = diverge(origin, case)
    workspaces = Workspaces(tmp_path / "state")
    merge = await merge_sides(origin, workspaces, head, base)
    async with workspaces.open("job", 1, source(origin, merge.commit, "topic")) as tree:
        assert merge.find_markers(await tree.change()) == ("module.py",)
        case.resolve(tree.path)
        assert merge.find_markers(await tree.change()) == ()


def test_a_deviation_must_be_named_with_its_path() -> None:
    merge = Merge(
        head="h",
        base="b",
        branch="main",
        commit="m",
        tree="t",
        conflicts=(Conflict(kind="content", paths=("a.py",), message=""),),
        markers={"a.py": MARKERS},
    )
    change = change_of(a="resolved\n", b="changed\n", c="changed\n")
    assert merge.find_deviations(change) == ("b.py", "c.py")
    [problem] = merge.find_problems(change, "- `b.py`: it calls the renamed function\nAlso abc.py and c.python.")
    assert "`c.py`" in problem
    assert "`b.py`" not in problem
    assert merge.find_problems(change, "b.py and c.py call the renamed function.") == ()
    assert not explain("b.py", "- b.py.in: renamed call")
    assert explain("b.py", "I renamed the call in b.py.")
    assert explain("b.py", "Merged.\n- b.py: renamed call") == "b.py: renamed call"


def test_a_name_with_many_unknown_bytes_is_looked_for_in_little_time() -> None:
    name = "\udcff" * 40
    assert explain(f"{name}.txt", f"{'x' * 2_000}\n- {'?' * 40}.txt: both") == f"{'?' * 40}.txt: both"
    assert not explain(f"a{name}a", "a" * 2_000 + "b")


def test_a_long_list_of_files_is_cut() -> None:
    merge = Merge(head="h", base="b", branch="main", commit="m", tree="t")
    [problem] = merge.find_problems(a_change(*(a_file(f"f{number}.py") for number in range(60))), "")
    assert "`f49.py` and 10 more." in problem


async def test_a_tree_that_no_checkout_could_hold_is_not_fetched(origin: Origin, tmp_path: Path) -> None:
    head, _ = diverge(origin, CASES["content"])
    hostile = origin.git("commit-tree", "-m", "Hostile", "-p", head, git_tree(origin, ".git"))
    origin.git("update-ref", "refs/heads/main", hostile)
    with pytest.raises(CloneError, match=r"hasDotgit"):
        await merge_sides(origin, Workspaces(tmp_path / "state"), head, hostile)


def git_tree(origin: Origin, name: str) -> str:
    """Make a tree with a file in a directory of this name."""
    blob = git(origin.path, "hash-object", "-w", "--stdin", stdin="[core]\n")
    inner = git(origin.path, "mktree", stdin=f"100644 blob {blob}\tconfig\n")
    return git(origin.path, "mktree", stdin=f"040000 tree {inner}\t{name}\n")


async def test_attributes_of_the_machine_and_of_the_commits_choose_no_driver(origin: Origin, tmp_path: Path) -> None:
    origin.commit({".gitattributes": "* merge=union\n"})
    head, base = diverge(origin, CASES["content"])
    merge = await merge_sides(origin, Workspaces(tmp_path / "state"), head, base)
    assert [conflict.kind for conflict in merge.conflicts] == ["content"]
