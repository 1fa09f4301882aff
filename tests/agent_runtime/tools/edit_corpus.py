"""Edits as models write them: the files before, the reply, and the files after or the refusal."""
# ruff: noqa: E501 - one case a line reads as a table

from __future__ import annotations

from dataclasses import dataclass, field

Files = dict[str, "str | bytes | None"]

NUMBERS = "".join(f"{i}\n" for i in range(1, 11))
CALC = "class Add:\n    def run(self, a, b):\n        return a + b\n\n\nclass Sub:\n    def run(self, a, b):\n        return a - b\n"
TABS = "func f() {\n\tif x {\n\t\treturn 1\n\t}\n}\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One edit.

    Attributes:
        name: what it shows.
        before: the files as they are; None for none.
        call: the control block.
        contents: the payloads.
        after: the files that differ afterwards; None for one that is gone.
        says: pattern of what the model is told when it is done.
        refused: pattern of the refusal; nothing has changed then.
        read: files that the agent had read.
        meanwhile: what someone else made of files after that.
    """

    name: str
    before: Files
    call: str
    contents: tuple[str, ...] = ()
    after: Files = field(default_factory=dict)
    says: str = ""
    refused: str = ""
    read: tuple[str, ...] = ()
    meanwhile: Files = field(default_factory=dict)


def case(name: str, before: Files, call: str, *contents: str, **more: object) -> Case:
    return Case(name=name, before=before, call=call, contents=contents, **more)  # type: ignore[arg-type]  # the fields above


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


def update(path: str, *lines: str) -> str:
    return patch(f"*** Update File: {path}", *lines)


PATCH = 'write_file(mode="patch")'
REPLACE = 'write_file("a", mode="replace")'

WHOLE = [
    case("a new file", {}, 'write_file("a")', "x\n", after={"a": "x\n"}),
    case("a new file in new directories", {}, 'write_file("d/e/a")', "x\n", after={"d/e/a": "x\n"}),
    case("an empty file", {}, 'write_file("a")', "", after={"a": ""}, says=r"0 bytes, 0 lines"),
    case("overwriting", {"a": "old\n"}, 'write_file("a")', "new\n", after={"a": "new\n"}, says=r"Changed lines: 1 \(\+1 -1\)\.$"),
    case("w is exact to the byte: blanks", {}, 'write_file("a")', "\n\n x \t\n\n", after={"a": "\n\n x \t\n\n"}),
    case("w leaves CRLF behind", {"a": "x\r\ny\r\n"}, 'write_file("a")', "x\ny\n", after={"a": "x\ny\n"}, says="Only line endings"),
    case("w of what stands there", {"a": "x\n"}, 'write_file("a")', "x\n", says="Nothing changed"),
    case("w over a binary file", {"a": b"\0\1"}, 'write_file("a")', "x\n", after={"a": "x\n"}),
    case("w with a broken new Python file", {}, 'write_file("a.py")', "x = (\n", after={"a.py": "x = (\n"}, says="Syntax error: '\\(' was never closed"),
    case("w onto a directory", {"d/x": ""}, 'write_file("d")', "x\n", refused="'d' is a directory; in it: x"),
    case("w through a file", {"a": ""}, 'write_file("a/b")', "x\n", refused="passes through something that is not a directory"),
    case("w outside", {}, 'write_file("../a")', "x\n", refused="leads out of the workspace|leaves|leads out"),
    case("w absolute", {}, 'write_file("/etc/passwd")', "x\n", refused="outside the workspace"),
    case("w into git", {}, 'write_file(".git/config")', "x\n", refused="git directory"),
    case("w into git in other spelling", {}, 'write_file(".GIT /config")', "x\n", refused="git directory"),
    case("w without a name", {}, 'write_file("")', "x\n", refused="path must name the file; only mode='patch'"),
    case("w with a control character", {}, 'write_file("a\\x00b")', "x\n", refused="control characters"),
    case("w with a name too long", {}, f'write_file("{"n" * 300}")', "x\n", refused="longer than the file system allows"),
    case("a left-out rest", {"a.py": "x = 1\ny = 2\n"}, 'write_file("a.py")', "x = 1\n# ... rest of the code unchanged ...\n", refused="line 2 of the content.*left out"),
    case("a left-out rest in JavaScript", {"a.js": "f()\ng()\n"}, 'write_file("a.js")', "f()\n// ... existing code ...\n", refused="stands for code"),
    case("a left-out rest, meant", {}, 'write_file("a.py", force=True)', "# ... existing code ...\n", after={"a.py": "# ... existing code ...\n"}),
    case("a left-out rest that stood there", {"a.py": "# ... existing code ...\nx = 1\n"}, 'write_file("a.py")', "# ... existing code ...\nx = 2\n", after={"a.py": "# ... existing code ...\nx = 2\n"}),
    case("w with lines", {"a": "x\n"}, 'write_file("a", 1, 1)', "y\n", refused="takes no end_line; for that use mode='edit'"),
    case("w at a version", {"a": "x\n"}, 'write_file("a", version="00000000")', "y\n", refused="version='00000000', but it is at version"),
    case("w at a version of nothing", {}, 'write_file("a", version="00000000")', "y\n", refused="there is no such text file"),
    case("nine whole writes", {}, "\n".join(f'write_file("{i}")' for i in range(9)), *"012345678", after={str(i): str(i) for i in range(9)}),
    case("too much in whole writes", {}, 'write_file("a")\nwrite_file("b", mode="a")', "x" * 600_000, "y" * 600_000, refused="Nothing was written.*line 2.*1,200,000 characters, and 1,000,000"),
    case("append", {"a": "x\n"}, 'write_file("a", mode="a")', "y\n", after={"a": "x\ny\n"}, says=r"Changed lines: 2 \(\+1 -0\)\.$"),
    case("append to nothing", {}, 'write_file("a", mode="a")', "y\n", after={"a": "y\n"}),
    case("append to an unfinished line", {"a": "x"}, 'write_file("a", mode="a")', "y", after={"a": "x\ny"}),
    case("append with CRLF", {"a": "x\r\n"}, 'write_file("a", mode="a")', "y\nz\n", after={"a": "x\r\ny\r\nz\r\n"}),
    case("append to Latin-1", {"a": b"caf\xe9\n"}, 'write_file("a", mode="a")', "th\u00e9\n", after={"a": b"caf\xe9\nth\xe9\n"}),
    case("append that breaks", {"a.py": "x = 1\n"}, 'write_file("a.py", mode="a")', "y = (\n", refused="parses now and would not"),
    case("append to a binary file", {"a": b"\0\1"}, 'write_file("a", mode="a")', "x\n", refused="binary file"),
]  # fmt: skip

LINES = [
    case("edit one line", {"a": NUMBERS}, 'write_file("a", 5, 5, mode="edit")', "five\n", after={"a": NUMBERS.replace("5", "five")}, says=r"5 - 5\n5 \+ … 1 line as sent, to 5\n6   6"),
    case("edit by keyword", {"a": NUMBERS}, 'write_file("a", mode="edit", start_line=2, end_line=9)', "x\n", after={"a": "1\nx\n10\n"}),
    case("edit the first line", {"a": NUMBERS}, 'write_file("a", 1, 1, mode="edit")', "x\n", after={"a": NUMBERS.replace("1\n", "x\n", 1)}),
    case("edit all", {"a": NUMBERS}, 'write_file("a", 1, 10, mode="edit")', "x\n", after={"a": "x\n"}),
    case("edit to nothing", {"a": NUMBERS}, 'write_file("a", 2, 10, mode="edit")', "", after={"a": "1\n"}),
    case("edit away all", {"a": NUMBERS}, 'write_file("a", 1, 10, mode="edit")', "", after={"a": ""}),
    case("edit without a last newline", {"a": "x\ny\n"}, 'write_file("a", 2, 2, mode="edit")', "z", after={"a": "x\nz\n"}),
    case("edit keeps an unfinished line", {"a": "x\ny"}, 'write_file("a", 2, 2, mode="edit")', "z\n", after={"a": "x\nz"}),
    case("edit in CRLF", {"a": "x\r\ny\r\n"}, 'write_file("a", 2, 2, mode="edit")', "z\nzz\n", after={"a": "x\r\nz\r\nzz\r\n"}),
    case("edit of a file with both endings", {"a": "x\ny\r\nz\n"}, 'write_file("a", 1, 1, mode="edit")', "X\n", after={"a": "X\ny\r\nz\n"}),
    case("edit after a mark", {"a": "\ufeffx\ny\n"}, 'write_file("a", 1, 1, mode="edit")', "z\n", after={"a": "\ufeffz\ny\n"}),
    case("edit UTF-16", {"a": "x\ny\n".encode("utf-16")}, 'write_file("a", 2, 2, mode="edit")', "\u017e\n", after={"a": "x\n\u017e\n".encode("utf-16")}),
    case("edit UTF-32", {"a": "x\ny\n".encode("utf-32")}, 'write_file("a", 2, 2, mode="edit")', "\u017e\n", after={"a": "x\n\u017e\n".encode("utf-32")}),
    case("a letter that Latin-1 lacks", {"a": b"caf\xe9\n"}, 'write_file("a", 1, 1, mode="edit")', "\u20ac\n", refused="latin-1 and cannot hold '\u20ac'"),
    case("edit past the end", {"a": NUMBERS}, 'write_file("a", 10, 11, mode="edit")', "x\n", refused="out of range; the file has 10 lines"),
    case("edit from 0", {"a": NUMBERS}, 'write_file("a", 0, 1, mode="edit")', "x\n", refused="1 <= start <= end <= 10"),
    case("edit below 0", {"a": NUMBERS}, 'write_file("a", -1, 1, mode="edit")', "x\n", refused="1 <= start <= end <= 10"),
    case("edit backwards", {"a": NUMBERS}, 'write_file("a", 3, 2, mode="edit")', "x\n", refused="1 <= start <= end <= 10"),
    case("edit an empty file", {"a": ""}, 'write_file("a", 1, 1, mode="edit")', "x\n", refused="use mode='w' or mode='a'"),
    case("edit without an end", {"a": NUMBERS}, 'write_file("a", 3, mode="edit")', "x\n", refused="needs end_line"),
    case("edit with after_line", {"a": NUMBERS}, 'write_file("a", 3, 3, after_line=2, mode="edit")', "x\n", refused="takes no after_line"),
    case("edit what is not there", {"abc.txt": ""}, 'write_file("abd.txt", 1, 1, mode="edit")', "x\n", refused="does not exist; there are 'abc.txt'; make it with mode='w'"),
    case("edit twice in a step", {"a": NUMBERS}, 'write_file("a", 1, 1, mode="edit")\nwrite_file("./a", 2, 2, mode="edit")', "x\n", "y\n", refused="Nothing was written.*line 2.*multi_edit"),
    case("edit two files in a step", {"a": NUMBERS, "b": NUMBERS}, 'write_file("a", 1, 1, mode="edit")\nwrite_file("b", 1, 1, mode="edit")', "x\n", "y\n", after={"a": NUMBERS.replace("1\n", "x\n", 1), "b": NUMBERS.replace("1\n", "y\n", 1)}),
    case("edit that breaks", {"a.py": "x = 1\ny = 2\n"}, 'write_file("a.py", 2, 2, mode="edit")', "y = \n", refused="invalid syntax|parses now"),
    case("edit that breaks, meant", {"a.py": "x = 1\ny = 2\n"}, 'write_file("a.py", 2, 2, mode="edit", force=True)', "y = (\n", after={"a.py": "x = 1\ny = (\n"}, says="Syntax error"),
    case("edit of what was broken", {"a.py": "x = (\ny = 2\n"}, 'write_file("a.py", 2, 2, mode="edit")', "y = 3\n", after={"a.py": "x = (\ny = 3\n"}),
    case("edit that fixes", {"a.py": "x = (\n"}, 'write_file("a.py", 1, 1, mode="edit")', "x = ()\n", after={"a.py": "x = ()\n"}),
    case("edit of a stub file that breaks", {"a.pyi": "x: int\n"}, 'write_file("a.pyi", 1, 1, mode="edit")', "x: (\n", refused="parses now"),
    case("edit with a tab in it", {"Makefile": "all:\n\techo\n"}, 'write_file("Makefile", 2, 2, mode="edit")', "\techo ok\n", after={"Makefile": "all:\n\techo ok\n"}),
    case("insert at the top", {"a": "x\n"}, 'write_file("a", after_line=0, mode="insert")', "y\n", after={"a": "y\nx\n"}),
    case("insert at the end", {"a": "x\n"}, 'write_file("a", after_line=1, mode="insert")', "y\n", after={"a": "x\ny\n"}),
    case("insert after an unfinished line", {"a": "x"}, 'write_file("a", after_line=1, mode="insert")', "y\n", after={"a": "x\ny"}),
    case("insert into nothing", {"a": ""}, 'write_file("a", after_line=0, mode="insert")', "y", after={"a": "y\n"}),
    case("insert an empty line", {"a": "x\ny\n"}, 'write_file("a", after_line=1, mode="insert")', "\n", after={"a": "x\n\ny\n"}),
    case("insert in CRLF", {"a": "x\r\ny\r\n"}, 'write_file("a", after_line=1, mode="insert")', "z\n", after={"a": "x\r\nz\r\ny\r\n"}),
    case("insert past the end", {"a": "x\n"}, 'write_file("a", after_line=2, mode="insert")', "y\n", refused=r"after_line=2: must be 0 \(the top\) to 1"),
    case("insert below 0", {"a": "x\n"}, 'write_file("a", after_line=-1, mode="insert")', "y\n", refused="after_line=-1"),
    case("insert nowhere", {"a": "x\n"}, 'write_file("a", mode="insert")', "y\n", refused="needs after_line"),
    case("several ranges", {"a": NUMBERS}, 'write_file("a", mode="multi_edit", edits=[(9, 10), (1, 2), (5, 5)])', "nine\n", "one\n", "five\n5b\n", after={"a": "one\n3\n4\nfive\n5b\n6\n7\n8\nnine\n"}),
    case("neighbouring ranges", {"a": NUMBERS}, 'write_file("a", mode="multi_edit", edits=[(1, 2), (3, 4)])', "a\n", "b\n", after={"a": "a\nb\n5\n6\n7\n8\n9\n10\n"}),
    case("ranges that overlap", {"a": NUMBERS}, 'write_file("a", mode="multi_edit", edits=[(1, 3), (3, 4)])', "a\n", "b\n", refused="edits overlap: lines 1-3 and 3-4"),
    case("one range out of range", {"a": NUMBERS}, 'write_file("a", mode="multi_edit", edits=[(1, 3), (10, 14)])', "a\n", "b\n", refused=r"edits\[1\]=\(10, 14\): out of range"),
    case("no ranges", {"a": NUMBERS}, 'write_file("a", mode="multi_edit", edits=[])', refused="at least one"),
    case("a range of three", {"a": NUMBERS}, 'write_file("a", mode="multi_edit", edits=[(1, 2, 3)])', "x\n", refused="must be a pair"),
    case("ranges and a start", {"a": NUMBERS}, 'write_file("a", 1, mode="multi_edit", edits=[(1, 2)])', "x\n", refused="takes no start_line"),
    case("line numbers of a read file that grew above", {"a": NUMBERS}, 'write_file("a", 5, 5, mode="edit")', "x\n", read=("a",), meanwhile={"a": f"0\n{NUMBERS}"}, after={"a": f"0\n{NUMBERS}".replace("5\n", "x\n")}, says="your line 5 now is line 6"),
    case("line numbers of a read file that shrank above", {"a": NUMBERS}, 'write_file("a", 5, 6, mode="edit")', "x\n", read=("a",), meanwhile={"a": NUMBERS[4:]}, after={"a": "3\n4\nx\n7\n8\n9\n10\n"}, says="your lines 5-6 now are lines 3-4"),
    case("line numbers of a read file that changed below", {"a": NUMBERS}, 'write_file("a", 2, 2, mode="edit")', "x\n", read=("a",), meanwhile={"a": f"{NUMBERS}11\n"}, after={"a": f"{NUMBERS}11\n".replace("2\n", "x\n", 1)}),
    case("line numbers of lines that changed", {"a": NUMBERS}, 'write_file("a", 5, 5, mode="edit")', "x\n", read=("a",), meanwhile={"a": NUMBERS.replace("5", "V")}, refused=r"(?s)changed since you read it.*5 \| V"),
    case("line numbers of lines that went", {"a": NUMBERS}, 'write_file("a", 5, 5, mode="edit")', "x\n", read=("a",), meanwhile={"a": "1\n2\n"}, refused="It has 2 lines"),
    case("an insertion whose place moved", {"a": NUMBERS}, 'write_file("a", after_line=5, mode="insert")', "x\n", read=("a",), meanwhile={"a": f"0\n{NUMBERS}"}, after={"a": f"0\n{NUMBERS}".replace("5\n", "5\nx\n")}, says="place after line 5 now is place after line 6"),
    case("a version never shown", {"a": NUMBERS}, 'write_file("a", 5, 5, mode="edit", version="abc")', "x\n", refused="read_file has not shown this version"),
    case("an unheard-of mode", {"a": NUMBERS}, 'write_file("a", mode="w+")', refused="must be one of 'w', 'a', 'edit'"),
    case("a later edit out of range", {"a": NUMBERS, "b": NUMBERS}, 'write_file("a", 1, 1, mode="edit")\nwrite_file("b", 11, 11, mode="edit")', "x\n", "y\n", refused="Nothing was written: a later write of this block, line 2.*out of range"),
    case("a later edit that breaks", {"a": "x\n", "b.py": "x = 1\n"}, 'write_file("a")\nwrite_file("b.py", 1, 1, mode="edit")', "new\n", "x = (\n", refused="Nothing was written.*parses now"),
    case("a later placeholder", {"a": "x\n", "b.py": "x = 1\n"}, 'write_file("a")\nwrite_file("b.py")', "new\n", "# ... rest of the code ...\n", refused="Nothing was written.*left out"),
    case("a later edit of a file that the first one makes", {}, 'write_file("a")\nwrite_file("a", 2, 2, mode="edit")', "1\n2\n", "two\n", after={"a": "1\ntwo\n"}),
    case("a later edit of lines that the first changes", {"a": NUMBERS}, 'write_file("a", mode="replace")\nwrite_file("a", 5, 5, mode="edit")', "5\n", "five\n", "V\n", read=("a",), refused="Nothing was written.*earlier write of the block changes"),
    case("a later replace of what the first one writes", {"a": NUMBERS}, f"{REPLACE}\n{REPLACE}", "5\n", "five\n", "five\n", "V\n", after={"a": NUMBERS.replace("5", "V")}),
]  # fmt: skip

REPLACES = [
    case("exact", {"a": NUMBERS}, REPLACE, "5\n", "five\n", after={"a": NUMBERS.replace("5", "five")}),
    case("several lines", {"a": NUMBERS}, REPLACE, "5\n6\n", "x\n", after={"a": NUMBERS.replace("5\n6\n", "x\n")}),
    case("to nothing", {"a": NUMBERS}, REPLACE, "5\n6\n", "", after={"a": NUMBERS.replace("5\n6\n", "")}),
    case("whole lines only", {"a": "xab\nab\n"}, REPLACE, "ab\n", "cd\n", after={"a": "xab\ncd\n"}),
    case("part of a line", {"a": "x = compute(1)\n"}, REPLACE, "compute(1)\n", "compute(2)\n", refused="old text is not in the file; the nearest lines are"),
    case("without a last newline", {"a": "x\ny"}, REPLACE, "y", "z", after={"a": "x\nz"}),
    case("empty lines count", {"a": "x\n\ny\nx\ny\n"}, REPLACE, "x\n\ny\n", "z\n", after={"a": "z\nx\ny\n"}),
    case("exact before all else", {"a": " x\nx\n"}, REPLACE, "x\n", "y\n", after={"a": " x\ny\n"}),
    case("trailing space in the file", {"a": "x  \ny\n"}, REPLACE, "x\n", "z\n", after={"a": "z\ny\n"}, says="trailing whitespace differed"),
    case("trailing space in the payload", {"a": "x\ny\n"}, REPLACE, "x \n", "z\n", after={"a": "z\ny\n"}, says="trailing whitespace differed"),
    case("lines that stay keep their trailing space", {"a": "x \ny\nz\t\n"}, REPLACE, "x\ny\nz\n", "x\nY\nz\n", after={"a": "x \nY\nz\t\n"}, says="trailing whitespace"),
    case("indentation left out", {"a.py": CALC}, 'write_file("a.py", mode="replace")', "return a - b\n", "return b - a\n", after={"a.py": CALC.replace("a - b", "b - a")}, says="indentation differed"),
    case("a block one level up", {"a.py": CALC}, 'write_file("a.py", mode="replace")', "def run(self, a, b):\n    return a - b\n", "def run(self, a, b):\n    if a:\n        return b\n    return a\n", after={"a.py": CALC.replace("        return a - b\n", "        if a:\n            return b\n        return a\n")}, says="indentation"),
    case("a block too deep", {"a": "x\n  y\n"}, REPLACE, "    x\n      y\n", "    x\n      z\n", after={"a": "x\n  z\n"}, says="indentation"),
    case("spaces for tabs", {"a": TABS}, REPLACE, "    if x {\n        return 1\n    }\n", "    if x {\n        return 2\n    }\n", after={"a": TABS.replace("return 1", "return 2")}, says="indentation"),
    case("tabs for spaces", {"a": "f\n    x\n"}, REPLACE, "\tx\n", "\ty\n\tz\n", after={"a": "f\n    y\n    z\n"}, says="indentation"),
    case("indentation that does not correspond", {"a": "x\n    y\n"}, REPLACE, "x\ny\n", "x\nz\n", refused="old text is not in the file"),
    case("curly quotes in the file", {"a": "say \u201chi\u201d\n"}, REPLACE, 'say "hi"\n', 'say "ho"\n', after={"a": 'say "ho"\n'}, says="Unicode punctuation differed"),
    case("curly quotes in the payload", {"a": 'say "hi"\n'}, REPLACE, "say \u201chi\u201d\n", "say bye\n", after={"a": "say bye\n"}, says="Unicode punctuation"),
    case("a dash", {"a": "1 \u2013 2\n"}, REPLACE, "1 - 2\n", "1 - 3\n", after={"a": "1 - 3\n"}, says="Unicode punctuation"),
    case("a hard space", {"a": "10\u00a0km\n"}, REPLACE, "10 km\n", "11 km\n", after={"a": "11 km\n"}, says="Unicode punctuation"),
    case("an ellipsis", {"a": "wait\u2026\n"}, REPLACE, "wait...\n", "go\n", after={"a": "go\n"}, says="Unicode punctuation"),
    case("twice, exactly", {"a": "x\ny\nx\n"}, REPLACE, "x\n", "z\n", refused=r"stands 2 times \(at lines 1, 3\)"),
    case("twice, by trailing space", {"a": "x \nx\t\n"}, REPLACE, "x\n", "z\n", refused="stands 2 times"),
    case("twice, by indentation", {"a": " x\n  x\n"}, REPLACE, "x\n", "z\n", refused="stands 2 times"),
    case("twice, by punctuation", {"a": "\u201cx\u201d\n\u201fx\u201d\n"}, REPLACE, '"x"\n', "z\n", refused="stands 2 times"),
    case("made unique by a neighbour", {"a": "x\ny\nx\nz\n"}, REPLACE, "x\nz\n", "w\nz\n", after={"a": "x\ny\nw\nz\n"}),
    case("never by likeness", {"a": "value = compute(1)\n"}, REPLACE, "value = compute(2)\n", "x\n", refused=r"(?s)nearest lines are\n1 \| value = compute\(1\)"),
    case("nothing like it", {"a": "x\n"}, REPLACE, "something else altogether\n", "y\n", refused="nowhere in the file, nor is any line like it"),
    case("already applied", {"a": "new\n"}, REPLACE, "old\n", "new\n", refused="already applied: the new text stands at lines 1-1"),
    case("old text empty", {"a": "x\n"}, REPLACE, "", "y\n", refused="old text is empty"),
    case("old text blank", {"a": "x\n\n"}, REPLACE, "\n", "y\n", refused="old text is empty"),
    case("CRLF kept", {"a": "x\r\ny\r\n"}, REPLACE, "x\n", "z\nzz\n", after={"a": "z\r\nzz\r\ny\r\n"}),
    case("lines that stay keep their own ending", {"a": "x\r\ny\nz\nw\n"}, REPLACE, "y\nz\n", "y\nZ\n", after={"a": "x\r\ny\nZ\nw\n"}),
    case("mark kept", {"a": "\ufeffx\n"}, REPLACE, "x\n", "y\n", after={"a": "\ufeffy\n"}),
    case("Latin-1 kept", {"a": b"caf\xe9\nx\n"}, REPLACE, "x\n", "y\n", after={"a": b"caf\xe9\ny\n"}),
    case("with lines", {"a": "x\n"}, 'write_file("a", 1, 1, mode="replace")', "x\n", "y\n", refused="takes no end_line"),
    case("of nothing", {}, REPLACE, "x\n", "y\n", refused="does not exist"),
    case("of a directory", {"a/x": ""}, REPLACE, "x\n", "y\n", refused="'a' is a directory"),
    case("of a binary file", {"a": b"\0x\n"}, REPLACE, "x\n", "y\n", refused="binary file"),
    case("that breaks", {"a.py": "x = 1\n"}, 'write_file("a.py", mode="replace")', "x = 1\n", "x = [\n", refused="parses now"),
    case("with a placeholder", {"a.py": CALC}, 'write_file("a.py", mode="replace")', "        return a - b\n", "        # ... existing code ...\n", refused="left out"),
    case("at a wrong version", {"a": "x\n"}, 'write_file("a", mode="replace", version="00000000")', "x\n", "y\n", refused="but it is at version"),
    case("with itself", {"a": "x\n"}, REPLACE, "x\n", "x\n", says="Nothing changed"),
    case("six times", {"a": NUMBERS}, "\n".join([REPLACE] * 6), *(f"{i}{end}" for i in range(1, 7) for end in ("\n", "x\n")), after={"a": "1x\n2x\n3x\n4x\n5x\n6x\n7\n8\n9\n10\n"}),
]  # fmt: skip

PATCHES = [
    case("update", {"a": NUMBERS}, PATCH, update("a", "@@", " 4", "-5", "+five", " 6"), after={"a": NUMBERS.replace("5", "five")}, says=r"'a' updated.*\nChanged lines: 5 \(\+1 -1\)\.$"),
    case("update without @@", {"a": NUMBERS}, PATCH, update("a", " 4", "-5", "+five", " 6"), after={"a": NUMBERS.replace("5", "five")}),
    case("only removed and added lines", {"a": NUMBERS}, PATCH, update("a", "@@", "-5", "+five"), after={"a": NUMBERS.replace("5", "five")}),
    case("lines removed", {"a": NUMBERS}, PATCH, update("a", "@@", " 4", "-5", "-6", " 7"), after={"a": NUMBERS.replace("5\n6\n", "")}),
    case("lines added", {"a": NUMBERS}, PATCH, update("a", "@@", " 5", "+5b", " 6"), after={"a": NUMBERS.replace("5\n", "5\n5b\n")}),
    case("several hunks", {"a": NUMBERS}, PATCH, update("a", "@@", "-2", "+two", "@@", "-9", "+nine"), after={"a": NUMBERS.replace("2", "two").replace("9", "nine")}),
    case("hunks in another order", {"a": NUMBERS}, PATCH, update("a", "@@", "-9", "+nine", "@@", "-2", "+two"), after={"a": NUMBERS.replace("2", "two").replace("9", "nine")}),
    case("hunks that share a line", {"a": NUMBERS}, PATCH, update("a", "@@", "-4", "+four", " 5", "@@", " 5", "-6", "+six"), after={"a": NUMBERS.replace("4", "four").replace("6", "six")}),
    case("hunks that change the same line", {"a": NUMBERS}, PATCH, update("a", "@@", "-4", "+four", "@@", "-4", "+IV"), refused="edits overlap"),
    case("a header picks the class", {"a.py": CALC}, PATCH, update("a.py", "@@ class Sub:", "     def run(self, a, b):", "-        return a - b", "+        return b - a"), after={"a.py": CALC.replace("a - b", "b - a")}),
    case("a header makes unique", {"a.py": CALC}, PATCH, update("a.py", "@@ class Sub:", "-    def run(self, a, b):", "+    def run(self, b, a):"), after={"a.py": CALC[:60] + CALC[60:].replace("a, b", "b, a")}),
    case("the same hunk without its header", {"a.py": CALC}, PATCH, update("a.py", "@@", "-    def run(self, a, b):", "+    def run(self, b, a):"), refused=r"stands 2 times \(at lines 2, 7\)"),
    case("a header in short", {"a.py": CALC}, PATCH, update("a.py", "@@ class Add", "-    def run(self, a, b):", "+    def run(self, b, a):"), after={"a.py": CALC.replace("a, b", "b, a", 1)}),
    case("a header of half a word", {"a.py": CALC}, PATCH, update("a.py", "@@ class A", "-    def run(self, a, b):", "+    def run(self, b, a):"), refused="stands 2 times"),
    case("two headers", {"a.py": CALC}, PATCH, update("a.py", "@@ class Sub:", "@@     def run(self, a, b):", "+        # turned"), after={"a.py": CALC[:60] + CALC[60:].replace("b):\n", "b):\n        # turned\n")}),
    case("a header that stands twice, and nothing else", {"a.py": CALC}, PATCH, update("a.py", "@@     def run(self, a, b):", "+        # turned"), refused=r"the @@ line stands 2 times \(at lines 2, 7\)"),
    case("a header that stands twice, lines that do not", {"a.py": CALC}, PATCH, update("a.py", "@@     def run(self, a, b):", "-        return a - b", "+        return 0"), after={"a.py": CALC.replace("a - b", "0")}),
    case("a header with less indentation", {"a.py": CALC}, PATCH, update("a.py", "@@ class Sub:", "@@ def run(self, a, b):", "-        return a - b", "+        return 0"), after={"a.py": CALC.replace("a - b", "0")}),
    case("a header that is nowhere, lines that are unique", {"a.py": CALC}, PATCH, update("a.py", "@@ class Mul:", "-        return a - b", "+        return 0"), after={"a.py": CALC.replace("a - b", "0")}, says="no line 'class Mul:' as the @@ says"),
    case("lines that stand outside their header", {"a.py": CALC}, PATCH, update("a.py", "@@ class Sub:", "-        return a + b", "+        return 0"), refused="the old text is not in the file"),
    case("the header's own line in the hunk", {"a.py": CALC}, PATCH, update("a.py", "@@ class Sub:", " class Sub:", "-    def run(self, a, b):", "+    def run(self, b, a):"), after={"a.py": CALC[:60] + CALC[60:].replace("a, b", "b, a")}),
    case("line numbers in a header", {"a": NUMBERS}, PATCH, update("a", "@@ -4,3 +4,3 @@ def f():", " 4", "-5", "+five", " 6"), after={"a": NUMBERS.replace("5", "five")}),
    case("an empty line without its space", {"a": "x\n\ny\n"}, PATCH, update("a", "@@", " x", "", "-y", "+z"), after={"a": "x\n\nz\n"}),
    case("empty lines at the end of a hunk", {"a": NUMBERS}, PATCH, update("a", "@@", "-5", "+five", "", ""), after={"a": NUMBERS.replace("5", "five")}),
    case("no newline at the end, as git says it", {"a": "x\ny"}, PATCH, update("a", "@@", "-y", "+z", "\\ No newline at end of file"), after={"a": "x\nz"}),
    case("at the end of the file", {"a": "x\ny\nx\n"}, PATCH, update("a", "@@", "-x", "+z", "*** End of File"), after={"a": "x\ny\nz\n"}),
    case("not at the end of the file", {"a": "x\ny\n"}, PATCH, update("a", "@@", "-x", "+z", "*** End of File"), refused="not at the end of the file"),
    case("added at the end of the file", {"a": "x\n"}, PATCH, update("a", "@@", "+y", "*** End of File"), after={"a": "x\ny\n"}),
    case("added nowhere", {"a": "x\n"}, PATCH, update("a", "@@", "+y"), refused="does not say where"),
    case("added to an empty file", {"a": ""}, PATCH, update("a", "@@", "+y"), after={"a": "y\n"}),
    case("added below a header", {"a.py": CALC}, PATCH, update("a.py", "@@ class Sub:", "+    name = 'sub'"), after={"a.py": CALC.replace("class Sub:\n", "class Sub:\n    name = 'sub'\n")}),
    case("patch: trailing space", {"a": "x  \ny\n"}, PATCH, update("a", "@@", " x", "-y", "+z"), after={"a": "x  \nz\n"}, says="'a': not an exact match: trailing whitespace differed"),
    case("patch: indentation", {"a.py": CALC}, PATCH, update("a.py", "@@", "-return a - b", "+if a:", "+    return b", "+return a"), after={"a.py": CALC.replace("        return a - b\n", "        if a:\n            return b\n        return a\n")}, says="indentation differed"),
    case("patch: punctuation", {"a": "say \u201chi\u201d\nx\n"}, PATCH, update("a", "@@", ' say "hi"', "-x", "+y"), after={"a": "say \u201chi\u201d\ny\n"}, says="Unicode punctuation differed"),
    case("patch: the rung of each hunk", {"a": "x \ny\nz\n"}, PATCH, update("a", "@@", "-x", "+X", "@@", "-z", "+Z"), after={"a": "X\ny\nZ\n"}, says=r"'a', hunk 1: not an exact match.*\nChanged lines: 1, 3 \(\+2 -2\)\.\n1 - x \n1 \+ X\n"),
    case("patch: never by likeness", {"a": "value = compute(1)\n"}, PATCH, update("a", "@@", "-value = compute(2)", "+x"), refused=r"(?s)no file was changed:.*nearest lines are\n1 \| value = compute\(1\)"),
    case("patch: already applied", {"a": "x\nnew\n"}, PATCH, update("a", "@@", " x", "-old", "+new"), refused="already applied: the new text stands at lines 1-2"),
    case("patch: one hunk of two fails", {"a": NUMBERS}, PATCH, update("a", "@@", "-5", "+five", "@@", "-eleven", "+11"), refused="'a', hunk 2: the old text is nowhere"),
    case("patch: both hunks fail and both are told", {"a": NUMBERS}, PATCH, update("a", "@@", "-x", "+y", "@@", "-z", "+w"), refused="(?s)hunk 1: .*hunk 2: "),
    case("patch: CRLF", {"a": "x\r\ny\r\n"}, PATCH, update("a", "@@", " x", "-y", "+z", "+zz"), after={"a": "x\r\nz\r\nzz\r\n"}),
    case("patch: both endings", {"a": "x\r\ny\nz\nw\n"}, PATCH, update("a", "@@", " y", "-z", "+Z"), after={"a": "x\r\ny\nZ\nw\n"}),
    case("patch: UTF-16", {"a": "x\ny\n".encode("utf-16")}, PATCH, update("a", "@@", "-y", "+\u017e"), after={"a": "x\n\u017e\n".encode("utf-16")}),
    case("patch: sent with CRLF", {"a": "x\ny\n"}, PATCH, update("a", "@@", "-y", "+z").replace("\n", "\r\n"), after={"a": "x\nz\n"}),
    case("patch: that breaks", {"a.py": "x = 1\n"}, PATCH, update("a.py", "@@", "-x = 1", "+x = (")[:], refused="parses now"),
    case("patch: that breaks, meant", {"a.py": "x = 1\n"}, 'write_file(mode="patch", force=True)', update("a.py", "@@", "-x = 1", "+x = ("), after={"a.py": "x = (\n"}, says="Syntax error"),
    case("patch: placeholder", {"a.py": "x = 1\ny = 2\n"}, PATCH, update("a.py", "@@", " x = 1", "-y = 2", "+# ... rest of the code ..."), refused="left out"),
    case("add a file", {}, PATCH, patch("*** Add File: d/a", "+x", "+", "+ y"), after={"d/a": "x\n\n y\n"}, says="'d/a' added"),
    case("add an empty file", {}, PATCH, patch("*** Add File: a"), after={"a": ""}),
    case("add what exists", {"a": "x\n"}, PATCH, patch("*** Add File: a", "+y"), refused="'a' exists already; update it"),
    case("add what exists just so", {"a": "y\n"}, PATCH, patch("*** Add File: a", "+y"), refused="already applied"),
    case("add a line without a plus", {}, PATCH, patch("*** Add File: a", "x"), refused="line 3 of the patch 'x': every line of an added file must begin with '\\+'"),
    case("add a placeholder", {}, PATCH, patch("*** Add File: a.py", "+# ... existing code ..."), refused="left out"),
    case("delete a file", {"a": "x\n", "b": ""}, PATCH, patch("*** Delete File: a"), after={"a": None}, says="'a' deleted"),
    case("delete a binary file", {"a": b"\0"}, PATCH, patch("*** Delete File: a"), after={"a": None}),
    case("delete what is not there", {}, PATCH, patch("*** Delete File: a"), refused="'a' does not exist"),
    case("delete a directory", {"d/a": ""}, PATCH, patch("*** Delete File: d"), refused="'d' is a directory"),
    case("delete with lines", {"a": "x\n"}, PATCH, patch("*** Delete File: a", "-x"), refused="takes no lines"),
    case("move", {"a": "x\n"}, PATCH, patch("*** Update File: a", "*** Move to: d/b"), after={"a": None, "d/b": "x\n"}, says="'a' moved to 'd/b'"),
    case("move and change", {"a": NUMBERS}, PATCH, update("a", "*** Move to: b", "@@", "-5", "+five"), after={"a": None, "b": NUMBERS.replace("5", "five")}),
    case("move a binary file", {"a": b"\0\1"}, PATCH, patch("*** Update File: a", "*** Move to: b"), after={"a": None, "b": b"\0\1"}),
    case("move onto a file", {"a": "x\n", "b": "y\n"}, PATCH, patch("*** Update File: a", "*** Move to: b"), refused="'b' exists already"),
    case("move out", {"a": "x\n"}, PATCH, patch("*** Update File: a", "*** Move to: ../b"), refused="leads out|leaves"),
    case("several files", {"a": "x\n", "b": "y\n"}, PATCH, patch("*** Update File: a", "@@", "-x", "+X", "*** Delete File: b", "*** Add File: c", "+z"), after={"a": "X\n", "b": None, "c": "z\n"}),
    case("several files with empty lines between", {"a": "x\n", "b": "y\n"}, PATCH, patch("", "*** Update File: a", "@@", "-x", "+X", "", "*** Update File: b", "@@", "-y", "+Y", ""), after={"a": "X\n", "b": "Y\n"}),
    case("all or nothing", {"a": "x\n", "b": "y\n"}, PATCH, patch("*** Update File: a", "@@", "-x", "+X", "*** Update File: b", "@@", "-z", "+Z"), refused="no file was changed:\n'b', hunk 2: the old text is nowhere"),
    case("one file twice", {"a": "x\ny\n"}, PATCH, patch("*** Update File: a", "@@", "-x", "+X", "*** Update File: ./a", "@@", "-y", "+Y"), refused="'./a': named twice"),
    case("update what is not there", {"abc": ""}, PATCH, update("abd", "@@", "-x", "+y"), refused="'abd' does not exist; there are 'abc'"),
    case("update a directory", {"d/a": ""}, PATCH, update("d", "@@", "-x", "+y"), refused="'d' is a directory"),
    case("update outside", {}, PATCH, update("../a", "@@", "-x", "+y"), refused="leads out|leaves"),
    case("update git", {}, PATCH, update(".git/config", "@@", "-x", "+y"), refused="git directory"),
    case("no begin", {"a": "x\n"}, PATCH, "*** Update File: a\n@@\n-x\n+y\n", refused="line 1 of the patch must be '\\*\\*\\* Begin Patch'"),
    case("no end", {"a": "x\n"}, PATCH, "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n", refused="must be '\\*\\*\\* End Patch'"),
    case("no file", {}, PATCH, patch(), refused="names no file"),
    case("no hunk", {"a": "x\n"}, PATCH, patch("*** Update File: a"), refused="no hunk follows"),
    case("a hunk that changes nothing", {"a": "x\n"}, PATCH, update("a", "@@", " x"), refused="begins a hunk that changes nothing"),
    case("a line without a mark", {"a": "x\n"}, PATCH, update("a", "@@", "x", "+y"), refused="line 4 of the patch 'x': a hunk's lines must begin with"),
    case("an unknown section", {"a": "x\n"}, PATCH, patch("*** Rename File: a"), refused="begins no file"),
    case("an empty patch", {}, PATCH, "", refused="line 1 of the patch must be"),
    case("text after the end", {"a": "x\n"}, PATCH, update("a", "@@", "-x", "+y") + "Done.\n", refused="must be '\\*\\*\\* End Patch'"),
    case("a path that fits", {"a": "x\n"}, 'write_file("a", mode="patch")', update("a", "@@", "-x", "+y"), after={"a": "y\n"}),
    case("a path that does not fit", {"a": "x\n", "b": ""}, 'write_file("b", mode="patch")', update("a", "@@", "-x", "+y"), refused="the patch is about 'a'; leave path out"),
    case("a version", {"a": "x\n"}, 'write_file(mode="patch", version="1")', update("a", "@@", "-x", "+y"), refused="takes no version"),
    case("lines beside a patch", {"a": "x\n"}, 'write_file("a", 1, 1, mode="patch")', update("a", "@@", "-x", "+y"), refused="takes no end_line"),
    case("a patch and a write", {"a": "x\n"}, 'write_file(mode="patch")\nwrite_file("b")', update("a", "@@", "-x", "+y"), "z\n", after={"a": "y\n", "b": "z\n"}),
    case("a second patch that fails", {"a": "x\n"}, 'write_file("b")\nwrite_file(mode="patch")', "z\n", update("a", "@@", "-q", "+y"), refused="Nothing was written: a later write.*line 2"),
    case("a patch on what a write makes", {}, 'write_file("b")\nwrite_file(mode="patch")', "z\n", update("b", "@@", "-z", "+y"), after={"b": "y\n"}),
    case("a write to what a patch deletes", {"a": "x\n"}, 'write_file(mode="patch")\nwrite_file("a", mode="replace")', patch("*** Delete File: a"), "x\n", "y\n", refused="Nothing was written.*'a' does not exist"),
]  # fmt: skip

CASES = [*WHOLE, *LINES, *REPLACES, *PATCHES]
