"""Read and write a bare git repository with plumbing commands, each with a cleared environment."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType

NULL_SHA = "0" * 40
_SHA = re.compile(r"[0-9a-f]{40}")
_OF_COMMITS = ("refs/heads/", "refs/pull/")
_SHAS = re.compile(rf"{_SHA.pattern}(\.\.{_SHA.pattern})?")
_NO_PART_OF_A_NAME = "".join(map(chr, range(33))) + ".,:;<>\"\\'"
"""Characters that git leaves out at both ends of a name."""
_CONFIG = """\
[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
[http]
\treceivepack = true
[receive]
\thideRefs = refs/pull
\tfsckObjects = true
[uploadpack]
\tallowAnySHA1InWant = true
\tallowFilter = true
[gc]
\tauto = 0
"""


class HubGitError(Exception):
    """A git command failed; the message is git's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """An author or committer."""

    name: str
    email: str
    date: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit as it is in the object database."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One line of a tree; `size` is None unless it is a blob."""

    mode: str
    type: str
    sha: str
    size: int | None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A reference."""

    name: str
    sha: str


@cache
def program() -> str:
    """The path of git.

    Raises:
        HubGitError: it is not installed.
    """
    found = shutil.which("git")
    if found is None:
        raise HubGitError("git was not found on the PATH; install it, on Debian and Ubuntu: apt-get install git")
    return found


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that every git process of the hub gets: nothing of the operator's configuration."""
    return {
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        **(extra or {}),
    }


def run(path: Path, *args: str) -> bytes:
    """Run git in `path` and return its output.

    Raises:
        HubGitError: it failed.
    """
    argv = [program(), "-c", "safe.directory=*", "-C", str(path), *args]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), check=False)
    if done.returncode != 0:
        raise HubGitError(f"git {args[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


@lru_cache(maxsize=4096)
def run_cached(path: Path, *args: str) -> bytes:
    """Like `run`, once, for commands whose every revision is a full SHA: their output never changes.

    Raises:
        HubGitError: it failed.
    """
    return run(path, *args)


def _runner_for(*revisions: str) -> Callable[..., bytes]:
    return run_cached if all(map(_SHAS.fullmatch, revisions)) else run


def text(path: Path, *args: str) -> str:
    """Like `run`, for output that is text; the last newline is dropped."""
    return run(path, *args).decode(errors="replace").removesuffix("\n")


def create(path: Path, default_branch: str) -> None:
    """Make an empty bare repository that takes pushes over HTTP."""
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (path / folder).mkdir(parents=True)
    (path / "config").write_text(_CONFIG, encoding="utf-8")
    (path / "HEAD").write_text(f"ref: refs/heads/{default_branch}\n", encoding="utf-8")


def fetch_all(path: Path, source: Path) -> None:
    """Copy every branch and tag of another local repository or bundle, and its objects of Git LFS.

    Raises:
        HubGitError: git cannot read it, or it is a shallow clone, which GitHub takes no push from either.
    """
    is_folder = source.is_dir()
    if is_folder and text(source, "rev-parse", "--is-shallow-repository") == "true":
        raise HubGitError("it is a shallow clone, without the whole history; first run in it: git fetch --unshallow")
    run(path, "fetch", "--quiet", str(source.resolve()), "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
    large = large_objects(source / text(source, "rev-parse", "--git-common-dir")) if is_folder else None
    if large is not None and large.is_dir():
        shutil.copytree(large, large_objects(path))


def large_objects(path: Path) -> Path:
    """The folder of a git directory's objects of Git LFS: `ab/cd/abcd…`."""
    return path / "lfs" / "objects"


def large_object(path: Path, oid: str) -> Path:
    """The file of an object of Git LFS."""
    return large_objects(path) / oid[:2] / oid[2:4] / oid


def resolve(path: Path, revision: str, kind: str = "commit") -> str | None:
    """The full SHA that a branch, tag or SHA names, or None."""
    # GitHub lets no branch be called like a full SHA.
    places = () if _SHA.fullmatch(revision) else ("refs/heads/", "refs/tags/", "")
    named = next(filter(None, (ref(path, f"{place}{revision}") for place in places)), None)
    if named is None and revision.startswith("refs/heads/"):
        return None
    if named is not None and kind == "commit" and named.name.startswith(_OF_COMMITS):
        return named.sha
    name = named.sha if named else revision
    try:
        return (
            _runner_for(name)(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{{kind}}}")
            .decode()
            .strip()
        )
    except HubGitError:
        return None


def refs(path: Path, prefix: str = "refs/heads/") -> list[Ref]:
    """References that start with `prefix`, by name."""
    if not _is_below_refs(prefix):
        return []
    found: dict[str, str] = {}
    # Most requests ask for references, and a process for each would take half of the time of all.
    for folder, _, files in os.walk(path / prefix.rpartition("/")[0]):
        for name in (f"{os.path.relpath(folder, path)}/{each}" for each in files):
            if name.startswith(prefix) and not name.endswith(".lock"):
                with contextlib.suppress(FileNotFoundError):  # it was deleted just now
                    found[name] = (path / name).read_text(encoding="utf-8").strip()
    packed = {name: sha for name, sha in _packed_refs(path).items() if name.startswith(prefix)}
    return [Ref(name=name, sha=sha) for name, sha in sorted({**packed, **found}.items())]


def ref(path: Path, name: str) -> Ref | None:
    """The reference with exactly this full name; no other one is read."""
    if not _is_below_refs(name) or name.endswith(".lock"):
        return None
    sha = None
    with contextlib.suppress(OSError):  # no file, or a folder of names
        sha = (path / name).read_text(encoding="utf-8").strip()
    sha = sha or _packed_refs(path).get(name)
    return Ref(name=name, sha=sha) if sha else None


def _is_below_refs(name: str) -> bool:
    return name.startswith("refs/") and ".." not in name and "\0" not in name


def _packed_refs(path: Path) -> Mapping[str, str]:
    file = path / "packed-refs"
    try:
        status = file.stat()
        return _read_packed_refs(file, (status.st_ino, status.st_size, status.st_mtime_ns))
    except FileNotFoundError:
        return {}


@lru_cache(maxsize=64)
def _read_packed_refs(file: Path, _state: tuple[int, int, int]) -> Mapping[str, str]:
    """Cached per state of the file, which git replaces."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return MappingProxyType({line[41:]: line[:40] for line in lines if line[0] not in "#^"})


def update_ref(path: Path, name: str, new: str, old: str | None = None) -> None:
    """Move or create a reference; with `old`, only if it points there (`NULL_SHA`: does not exist)."""
    run(path, "update-ref", name, new, *([] if old is None else [old]))


def delete_ref(path: Path, name: str) -> None:
    """Delete a reference."""
    run(path, "update-ref", "-d", name)


def is_ref_name(path: Path, name: str) -> bool:
    """Whether git would accept the full name of a reference."""
    try:
        run(path, "check-ref-format", name)
    except HubGitError:
        return False
    return True


def is_ancestor(path: Path, old: str, new: str) -> bool:
    """Whether going from `old` to `new` is a fast-forward."""
    try:
        run_cached(path, "merge-base", "--is-ancestor", old, new)
    except HubGitError:
        return False
    return True


def commits(path: Path, *selection: str, limit: int | None = None, of: str | None = None) -> list[Commit]:
    """Commits that `git log` would show for the selection, newest first; `of` limits them to one literal path."""
    form = "--format=%H%n%T%n%P%n%an%n%ae%n%aI%n%cn%n%ce%n%cI%n%B%x00"
    count = [] if limit is None else [f"--max-count={limit}"]
    where = ["--"] if of is None else ["--", f":(top,literal){of}"]
    out = _runner_for(*selection)(path, "log", form, *count, "--end-of-options", *selection, *where).decode(
        errors="replace"
    )
    return [_commit(record.lstrip("\n")) for record in out.split("\0") if record.strip()]


def commit(path: Path, sha: str) -> Commit:
    """One commit."""
    return commits(path, sha, limit=1)[0]


def _commit(record: str) -> Commit:
    sha, tree, parents, an, ae, ad, cn, ce, cd, message = record.split("\n", 9)
    return Commit(
        sha=sha,
        tree=tree,
        parents=tuple(parents.split()),
        author=Person(name=an, email=ae, date=_moment(ad)),
        committer=Person(name=cn, email=ce, date=_moment(cd)),
        message=message.rstrip("\n"),
    )


def _moment(text: str) -> datetime:
    """A time as git writes it; the beginning of time where an old commit has none that git can read."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def tree(path: Path, treeish: str, *, recursive: bool = False) -> list[TreeEntry]:
    """A tree's entries; with `recursive`, everything below as well, with paths from the root."""
    flags = ["-r", "-t"] if recursive else []
    return _entries(_runner_for(treeish)(path, "ls-tree", "-z", "--long", "--full-tree", *flags, treeish))


def _entries(listing: bytes) -> list[TreeEntry]:
    found = []
    for line in filter(None, listing.decode(errors="surrogateescape").split("\0")):
        meta, name = line.split("\t", 1)
        mode, kind, sha, size = meta.split()
        found.append(TreeEntry(mode=mode, type=kind, sha=sha, size=None if size == "-" else int(size), path=name))
    return found


def entry(path: Path, treeish: str, name: str) -> TreeEntry | None:
    """The entry of a tree at a literal path, or None."""
    out = _runner_for(treeish)(
        path, "--literal-pathspecs", "ls-tree", "-z", "--long", "--full-tree", treeish, "--", name
    )
    return next((found for found in _entries(out) if found.path == name), None)


def kind_of(path: Path, sha: str) -> str | None:
    """`blob`, `tree`, `commit`, `tag`, or None when there is no such object."""
    try:
        return _runner_for(sha)(path, "cat-file", "-t", "--end-of-options", sha).decode().strip()
    except HubGitError:
        return None


def kind_of_ref(path: Path, value: Ref) -> str:
    """`commit`, or the kind of the object that a tag names."""
    return "commit" if value.name.startswith(_OF_COMMITS) else str(kind_of(path, value.sha))


def blob(path: Path, sha: str) -> bytes:
    """A blob's content."""
    return run(path, "cat-file", "blob", sha)


_ENDINGS = ".c .cpp .cs .css .go .html .java .js .kt .php .py .rb .rs .sh .swift .ts"
_NAMES = "C C++ C# CSS Go HTML Java JavaScript Kotlin PHP Python Ruby Rust Shell Swift TypeScript"
LANGUAGES = dict(zip(_ENDINGS.split(), _NAMES.split(), strict=True))
"""Of the most common file names; GitHub knows some hundred more."""


def languages(path: Path, branch: str) -> dict[str, int]:
    """The bytes of each language's files, most first."""
    head = resolve(path, f"refs/heads/{branch}")
    sizes: dict[str, int] = {}
    for file in tree(path, head, recursive=True) if head else ():
        name = LANGUAGES.get(PurePosixPath(file.path).suffix)
        if name is not None and file.size:
            sizes[name] = sizes.get(name, 0) + file.size
    return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))


def readme_in(entries: list[TreeEntry]) -> TreeEntry | None:
    """The file that GitHub would show below a folder's list."""
    return next((e for e in entries if e.type == "blob" and e.path.lower().partition(".")[0] == "readme"), None)


def write_blob(path: Path, content: bytes) -> str:
    """Store a blob; returns its SHA."""
    return _write_object(path, "blob", content)


def _write_object(path: Path, kind: str, content: bytes) -> str:
    """Store an object as git does, without a process of git's for each."""
    stored = b"%s %d\0" % (kind.encode(), len(content)) + content
    sha = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
    place = path / "objects" / sha[:2] / sha[2:]
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        new = place.with_name(f"tmp_obj_{secrets.token_hex(8)}")  # what git itself would clean away
        new.write_bytes(zlib.compress(stored, 1))
        new.replace(place)
    return sha


def write_tree(path: Path, base: str | None, changes: Iterable[tuple[str, str | None, str]]) -> str:
    """Store a tree: `base` with `(mode, sha, path)` changes; return its SHA.

    A sha of None deletes a file or a folder. An added entry replaces the old one, and a tree brings its files.
    """
    root = _folder(path, base) if base else {}
    for mode, sha, name in changes:
        *parents, last = name.split("/")
        folder = root
        for parent in parents:
            inner = folder.get(parent)
            if not isinstance(inner, dict):
                inner = {}
                if sha is not None:
                    folder[parent] = inner
            folder = inner
        if sha is None:
            folder.pop(last, None)
        else:
            folder[last] = _folder(path, sha) if mode == "040000" else (mode, sha)
    return _write_folder(path, root) or _write_object(path, "tree", b"")


_Folder = dict[str, "tuple[str, str] | _Folder"]
"""Mode and SHA of each file by name, and the folders."""


def _folder(path: Path, treeish: str) -> _Folder:
    root: _Folder = {}
    listing = _runner_for(treeish)(path, "ls-tree", "-r", "-z", "--full-tree", treeish)
    for line in listing.decode(errors="surrogateescape").split("\0")[:-1]:
        meta, _, name = line.partition("\t")
        mode, _, sha = meta.split(" ")
        *parents, last = name.split("/")
        folder = root
        for parent in parents:
            inner = folder.setdefault(parent, {})
            assert isinstance(inner, dict)  # noqa: S101 - a tree has each name once
            folder = inner
        folder[last] = (mode, sha)
    return root


def _write_folder(path: Path, folder: _Folder) -> str | None:
    """Store a folder and those below; None without any file, as git keeps no such folder."""
    lines: list[tuple[bytes, bytes]] = []
    for name, entry in folder.items():
        mode, sha = ("40000", _write_folder(path, entry)) if isinstance(entry, dict) else entry
        key = os.fsencode(name)
        if sha is not None:
            line = b"%s %s\0" % (mode.encode(), key) + bytes.fromhex(sha)
            lines.append((key + b"/" if isinstance(entry, dict) else key, line))
    return _write_object(path, "tree", b"".join(line for _, line in sorted(lines))) if lines else None


def write_commit(
    path: Path, *, tree: str, parents: Iterable[str], message: str, author: Person, committer: Person
) -> str:
    """Store a commit; returns its SHA."""
    head = [f"tree {tree}", *(f"parent {parent}" for parent in dict.fromkeys(parents))]
    head += [f"author {_signature(author)}", f"committer {_signature(committer)}"]
    return _write_object(path, "commit", "\n".join([*head, "", message]).encode())


def write_tag(path: Path, *, sha: str, kind: str, name: str, message: str, tagger: Person) -> str:
    """Store a tag object; returns its SHA."""
    head = [f"object {sha}", f"type {kind}", f"tag {name}", f"tagger {_signature(tagger)}"]
    return _write_object(path, "tag", "\n".join([*head, "", message]).encode())


def read_tag(path: Path, sha: str) -> tuple[dict[str, str], str]:
    """The headers of a tag object, and its message."""
    head, _, message = text(path, "cat-file", "tag", sha).partition("\n\n")
    return dict(line.split(" ", 1) for line in head.splitlines() if " " in line), message


def _signature(person: Person) -> str:
    name, email = (re.sub(r"[\n<>]", "", text.strip(_NO_PART_OF_A_NAME)) for text in (person.name, person.email))
    return f"{name} <{email}> {int(person.date.timestamp())} {person.date:%z}"
