"""Hostile repositories: each is a tree that a stranger could push, a script that an agent could run, and words.

Everything is made by plain git plumbing, so that trees which no work tree could hold can be made, too.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Files = Mapping[str, bytes]
_SCRIPT = "hostile.sh"
_ENVIRONMENT = {
    "PATH": os.defpath,
    "HOME": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "M"), ("EMAIL", "m@e"))
    },
}
_IDENTITY = b"M <m@e> 1700000000 +0000"
_INNOCENT: Files = {"calc.py": b"def add(a, b):\n    return a + b + 1\n", "README.md": b"# Calc\n"}
_LINK = 0o120000
_FILE = 0o100644


def _nothing(_git: Git) -> None:
    """Most repositories are told by their files alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """One hostile repository.

    Attributes:
        name: what is hostile about it; also the repository's name.
        files: by path, added to an innocent tree; on the default branch, and once more on the pull request's branch.
        links: targets of symbolic links, by path.
        script: a shell script that the agent runs where it may run anything.
        calls: further lines of the agent's control block.
        request: the description of the issue and of the pull request.
        answer: what the agent says at the end.
        make: writes branches `main` and `topic` itself, in place of `files`.
    """

    name: str
    files: Files = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    calls: tuple[str, ...] = ()
    request: str = "Adding is off by one."
    answer: str = "Looked at it."
    make: Callable[[Git], None] = _nothing

    def build(self, path: Path) -> None:
        """Make the repository, with the branches `main` and `topic`."""
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], env=_ENVIRONMENT, check=True)
        git = Git(path)
        self.make(git)
        if git.ask("branch", "--list"):
            return
        tree = dict(_INNOCENT) | {_SCRIPT: self.script.encode()} | dict(self.files)
        entries = [(_FILE, name, content) for name, content in tree.items()]
        links = [(_LINK, name, target.encode()) for name, target in self.links.items()]
        git.commit("main", [*entries, *links])
        topic = [(_FILE, f"topic/{name}", content) for name, content in self.files.items()]
        git.commit("topic", [(_FILE, "topic.txt", b"A topic.\n"), *topic], onto="main")


class Git:
    """Plumbing of one bare repository."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run git and return its output."""
        command = ["git", "-C", str(self.path), *arguments]
        done = subprocess.run(command, env=_ENVIRONMENT, input=stdin, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def commit(self, branch: str, entries: Iterable[tuple[int, str, bytes]], *, onto: str = "") -> None:
        """Commit files by fast-import, which asks nothing of names but that they are no `.git`."""
        parts = [f"commit refs/heads/{branch}\ncommitter ".encode(), _IDENTITY, b"\ndata 6\nChange\n"]
        if onto:
            parts.append(f"from refs/heads/{onto}\n".encode())
        for mode, name, content in entries:
            quoted = '"' + "".join(_quoted(byte) for byte in os.fsencode(name)) + '"'
            parts.append(f"M {mode:o} inline {quoted}\ndata {len(content)}\n".encode() + content + b"\n")
        self.ask("fast-import", "--quiet", stdin=b"".join(parts))

    def blob(self, content: bytes) -> str:
        """Write a blob."""
        return self.ask("hash-object", "-w", "--stdin", stdin=content)

    def tree(self, entries: Iterable[tuple[str, str, str]]) -> str:
        """Write a tree of `(mode, id, name)`, whatever the names are."""
        raw = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(sha) for mode, sha, name in entries)
        return self.ask("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)

    def branches(self, main: str, topic: str) -> None:
        """Commit two trees as `main` and `topic`."""
        first = self.ask("commit-tree", main, "-m", "Main")
        second = self.ask("commit-tree", topic, "-p", first, "-m", "Topic")
        self.ask("update-ref", "refs/heads/main", first)
        self.ask("update-ref", "refs/heads/topic", second)


def _quoted(byte: int) -> str:
    return chr(byte) if chr(byte).isalnum() or byte in b"/._-" else f"\\{byte:03o}"


def _deep_tree(git: Git) -> None:
    """2,000 directories in each other: a path of 8,000 bytes."""
    inner = [("100644", git.blob(b"deep\n"), "file")]
    for level in range(2_000):
        inner = [("40000", git.tree(inner), f"d{level % 10}")]
    _around(git, inner)


def _tree_bomb(git: Git) -> None:
    """Ten trees of ten of the next: 10,000,000,000 files from eleven objects."""
    inner = [("100644", git.blob(b"boom\n"), f"f{number}") for number in range(10)]
    for _ in range(9):
        sha = git.tree(inner)
        inner = [("40000", sha, f"d{number}") for number in range(10)]
    _around(git, inner)


def _around(git: Git, extra: list[tuple[str, str, str]]) -> None:
    calc, note = git.blob(_INNOCENT["calc.py"]), git.blob(b"A topic.\n")
    main = [("100644", calc, "calc.py"), ("40000", git.tree(extra), "extra")]
    git.branches(git.tree(main), git.tree([*main, ("100644", note, "topic.txt")]))


def _git_names(git: Git) -> None:
    """Names that some file systems read as `.git`; GitHub itself refuses them."""
    hook = git.tree([("100755", git.blob(b"#!/bin/sh\ntouch /tmp/pwned\n"), "post-checkout")])
    _around(git, [("40000", git.tree([("40000", hook, "hooks")]), name) for name in (".GIT", ".git ", "git~1")])


def _odd_history(git: Git) -> None:
    """Faults that old, well-known repositories have."""
    tree = git.tree([("100644", git.blob(_INNOCENT["calc.py"]), "calc.py")])
    raw = f"tree {tree}\nauthor M m@e> 0 +0000\ncommitter M <m@e> 01700000000 +051800\n\nOld\n".encode()
    first = git.ask("hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw)
    git.ask("update-ref", "refs/heads/main", first)
    git.ask("update-ref", "refs/heads/topic", git.ask("commit-tree", tree, "-p", first, "-m", "Topic"))


def _long_history(git: Git) -> None:
    """3,000 commits, and a pull request that brings them all."""
    entries = [(_FILE, name, content) for name, content in _INNOCENT.items()]
    git.commit("main", entries)
    parts = []
    for number in range(3_000):
        parts.append(b"commit refs/heads/topic\ncommitter " + _IDENTITY + b"\ndata 6\nChange\n")
        parts.append(b"from refs/heads/main\n" if number == 0 else b"")
        content = f"{number}\n".encode()
        parts.append(f"M 100644 inline topic.txt\ndata {len(content)}\n".encode() + content + b"\n")
    git.ask("fast-import", "--quiet", stdin=b"".join(parts))


def _submodules(git: Git) -> None:
    modules = b'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch% /tmp/pwned\n\tupdate = !touch /tmp/pwned\n'
    main = [
        ("100644", git.blob(modules), ".gitmodules"),
        ("100644", git.blob(_INNOCENT["calc.py"]), "calc.py"),
        ("160000", "1" * 40, "x"),
    ]
    git.branches(git.tree(main), git.tree(main[1:2]))


_DEEP = """import os
for _ in range({levels}):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("file", "w").close()
"""
_NESTED_BARE = {
    "bare/HEAD": b"ref: refs/heads/main\n",
    "bare/config": b"[core]\n\tbare = true\n\tfsmonitor = touch /tmp/pwned\n",
    "bare/objects/keep": b"",
    "bare/refs/keep": b"",
}
_LINES = b"".join(b"%d,%d,abc\n" % (number, number * 7) for number in range(200_000))
_TWO_LETTERS = b"ab\n" * 3_300_000
_BIDI = "\u202e\u2066\u200b\U000e0041"

REPOSITORIES: tuple[Hostile, ...] = (
    Hostile(
        name="ignore-stars",
        files={".gitignore": b"*a" * 13 + b"*b\n", "a" * 200: b"x"},
        calls=("list_files('*a*a*a*a*a*a*a*a*a*a*a*a*b')",),
    ),
    Hostile(name="ignore-many", files={".gitignore": b"".join(b"*x%d*y\n" % n for n in range(90_000)), "f/x": b"x"}),
    Hostile(name="ignore-nested", files={f"d{n}/.gitignore": b"*a*a*a*a*a*a*b\n" for n in range(2_000)}),
    Hostile(name="ignore-classes", files={".gitignore": b"[a-z]*[!b]*" * 20 + b"\n", "x" * 240: b"x"}),
    Hostile(
        name="ignore-made-later",
        script="python3 -c \"open('.gitignore','w').write('*a'*40+'*b\\n'); open('a'*250,'w').close()\"\n",
    ),
    Hostile(name="attributes-stars", files={".gitattributes": b"*a" * 30 + b"*b filter=lfs\n", "a" * 250: b"x"}),
    Hostile(name="settings-globs", files={".github/codepilot.yml": b"protected: ['" + b"*a" * 60 + b"*b']\n"}),
    Hostile(name="deep-tree", make=_deep_tree),
    Hostile(name="deep-made", files={"evil.py": _DEEP.format(levels=60).encode()}, script="python3 evil.py\n"),
    Hostile(
        name="deep-closed",
        files={"evil.py": (_DEEP + 'os.chmod(".", 0)\n').format(levels=40).encode()},
        script="python3 evil.py; mkdir shut; touch shut/x; chmod 000 shut\n",
    ),
    Hostile(name="link-loop", links={"a": "b", "b": "a", "self/self": ".", "up": "../../../../../../.."}),
    Hostile(name="link-chain", links={f"l{n}": f"l{n + 1}" for n in range(3_000)}),
    Hostile(
        name="link-out",
        links={"env": "/proc/self/environ", "zero": "/dev/zero", "passwd": "/etc/passwd"},
        calls=("read_file('env')", "read_file('zero')"),
    ),
    Hostile(name="names-control", files={f"a\n{_BIDI}\x1b[31m{n}": b"x" for n in range(200)}),
    Hostile(name="names-long", files={f"{'n' * 240}{n:05d}": b"x" for n in range(4_000)}),
    Hostile(
        name="names-options", files=dict.fromkeys(("-rf", "--upload-pack=x", ":(top)x", "$(id)", "`id`", "%s"), b"x")
    ),
    Hostile(name="names-bytes", files={os.fsdecode(b"\xff\xfe%d" % n): b"x" for n in range(100)}),
    Hostile(name="names-cases", files=dict.fromkeys(("A", "a", "con", "x.", "README.MD", "x ", "NUL"), b"x")),
    Hostile(name="names-git", make=_git_names),
    Hostile(name="bare-inside", files=_NESTED_BARE, script="cp -r bare made; git init -q plain || true\n"),
    Hostile(name="submodules", make=_submodules),
    Hostile(name="history-odd", make=_odd_history),
    Hostile(name="history-long", make=_long_history),
    Hostile(name="tree-bomb", make=_tree_bomb),
    Hostile(name="size-zeros", files={"zeros": bytes(90 * 2**20)}, calls=("read_file('zeros', 1, 1)",)),
    Hostile(
        name="size-short-lines",
        files={f"f{n}.txt": _TWO_LETTERS + b"%d" % n for n in range(6)},
        calls=tuple(f"read_file('f{n}.txt', 1, 1)" for n in range(6)),
    ),
    Hostile(name="size-one-line", files={"line.js": b"x=1;" * 5_000_000}, calls=("find('x=1', context=3)",)),
    Hostile(name="size-many-files", files={f"m{n % 100}/{n}": b"%d" % n for n in range(15_000)}),
    Hostile(name="size-csv", files={"big.csv": _LINES}, calls=("read_file('big.csv')",)),
    Hostile(name="change-large", script="for n in 1 2 3 4 5; do head -c 90000000 /dev/urandom > big$n; done\n"),
    Hostile(name="change-sparse", script="truncate -s 1G sparse; truncate -s 90M less\n"),
    Hostile(name="change-many", script="mkdir m; cd m; for n in $(seq 9000); do : > $n; done\n"),
    Hostile(name="change-diff", files={"big.csv": _LINES}, script="tac big.csv > x; mv x big.csv\n"),
    Hostile(name="change-specials", script="mkfifo pipe; ln -s / root; mkdir -p .git/hooks; echo x > .git/config\n"),
    Hostile(
        name="zip-bomb", files={"bomb.gz": zlib.compress(bytes(200 * 2**20), 9), "x.png": b"\x89PNG\r\n\x1a\n" * 9}
    ),
    Hostile(name="output-flood", script="yes abcdefgh | head -c 300000000\n", calls=("find('.', context=5)",)),
    Hostile(name="process-flood", script="for n in $(seq 600); do (setsid sleep 60 &) ; done; sleep 1\n"),
    Hostile(name="markdown-brackets", request="[" * 30_000 + "](" * 10_000, answer="[" * 20_000 + "](x" * 10_000),
    Hostile(name="markdown-quotes", request="> " * 20_000 + "x", answer=">" * 20_000 + "\n" + "- " * 15_000),
    Hostile(
        name="markdown-ticks", request="`" * 30_000 + "a`b``c", answer="".join("`" * n + "a" for n in range(1, 250))
    ),
    Hostile(name="markdown-stars", request="*a_ " * 15_000, answer="**a _b " * 8_000 + "1https://evil.example/x @mona"),
    Hostile(name="markdown-tags", request="<!--" * 9_000 + "<a " * 9_000, answer="<details>" * 5_000 + "&#" * 9_000),
    Hostile(name="markdown-tables", request="|a" * 9_000 + "\n" + "|-" * 9_000, answer=("|a" * 200 + "\n") * 120),
    Hostile(name="words-hidden", request=_BIDI * 9_000 + "&amp;" * 6_000, answer=_BIDI * 5_000 + "::set-env name=x::y"),
)
