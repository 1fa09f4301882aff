"""Legal control blocks as a strong model writes them, and blocks to refuse.

Legal ones print in the interpreter exactly as in CPython with the same tools (`ANSWERS`).
"""

from __future__ import annotations

from typing import Any

FILES = {
    "src/app.py": "import os\n\n\ndef main(argv):\n    # TODO: parse\n    return 0\n",
    "src/util.py": "def clamp(x, lo, hi):\n    return max(lo, min(x, hi))\n",
    "README.md": "# App\n\nVersion 1.2.3 of 2024-05-06\n",
    "data.json": '{"name": "app", "deps": {"b": 2, "a": 1}, "tags": ["x", "y"]}',
}

MATCHES: list[dict[str, Any]] = [
    {"file": "src/app.py", "line": 4, "text": "def main(argv):"},
    {"file": "src/util.py", "line": 1, "text": "def clamp(x, lo, hi):"},
    {"file": "src/app.py", "line": 5, "text": "    # TODO: parse"},
]


class Answers:
    """Tools as plain functions, for CPython and the interpreter."""

    def read_file(self, path: str, start_line: int = 1, end_line: int | None = None) -> str:
        if path not in FILES:
            raise FileNotFoundError(f"{path!r} does not exist")
        return "".join(FILES[path].splitlines(keepends=True)[start_line - 1 : end_line])

    def find(self, pattern: str, **_options: object) -> list[dict[str, Any]]:
        return [dict(match) for match in MATCHES if pattern in match["text"]]

    def execute(
        self, session_id: str, command: str, *_more: object, check: bool = False, **_: object
    ) -> dict[str, Any]:
        failed = "fail" in command
        if failed and check:
            raise RuntimeError(f"{command} exited with 1")
        return {
            "status": "done",
            "exit_code": int(failed),
            "output": f"$ {command}\n2 passed, 1 failed\n",
            "cwd": "/workspace",
        }

    def read_output(self, session_id: str, timeout: float = 5, check: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - as the tool has it
        return {"status": "done", "exit_code": None, "output": session_id, "cwd": ""}


LEGAL: dict[str, str] = {
    "a loop over files": """
for path in ["src/app.py", "src/util.py"]:
    text = read_file(path)
    print(f"{path}: {len(text.splitlines())} lines, {len(text):,} characters")
""",
    "format specifications": """
x, n, s = 3.14159, 42, "ab"
print(f"{x:.2f} {x:8.3f}| {n:05d} {n:x} {n:>6} {s:<5}| {s:^6}| {s!r} {n=} {1234567:,} {0.256:.1%}")
print("%s is %d and %.1f" % (s, n, x), "{} {:>4} {name}".format(s, n, name="z"))
""",
    "numbered lines": """
for number, line in enumerate(read_file("src/app.py").splitlines(), start=1):
    if "TODO" in line or line.startswith("def "):
        print(f"{number:>4}| {line.strip()}")
""",
    "try and except": """
try:
    read_file("missing.py")
except FileNotFoundError as error:
    print("missing:", error)
else:
    print("found")
finally:
    print("checked")
""",
    "except of several kinds": """
for path in ["README.md", "nope"]:
    try:
        print(read_file(path).split("\\n")[0])
    except (FileNotFoundError, IsADirectoryError, PermissionError) as e:
        print(type(e).__name__, str(e))
""",
    "except OSError takes a missing file": """
try:
    read_file("missing.py")
except OSError as error:
    print("os error", error)
""",
    "except Exception and raise again": """
try:
    try:
        execute("main", "fail", check=True)
    except RuntimeError as e:
        raise ValueError(f"wrapped: {e}") from e
except Exception as e:
    print(repr(e))
""",
    "a function with defaults": """
def show(path, start=1, end=None, *, prefix=""):
    lines = read_file(path).splitlines()
    for i, line in enumerate(lines[start - 1:end], start):
        print(f"{prefix}{i}: {line}")
show("src/util.py")
show("src/app.py", 4, 5, prefix="> ")
""",
    "an annotated function": """
def count(path: str, word: str = "def") -> int:
    \"\"\"How often a word is there.\"\"\"
    return sum(1 for line in read_file(path).splitlines() if word in line)
total: int = count("src/app.py") + count("src/util.py")
print(total)
""",
    "annotations with generics": """
def group(matches: list[dict]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for m in matches:
        out.setdefault(m["file"], []).append(m["line"])
    return out
print(group(find("a")))
""",
    "optional annotations": """
def first(items: list[str], default: str | None = None) -> str | None:
    return items[0] if items else default
print(first([]), first(["a"]), first([], "b"))
""",
    "a comprehension over matches": """
files = sorted({m["file"] for m in find("def")})
print(files, [m["line"] for m in find("def") if m["line"] > 1], {m["file"]: m["text"] for m in find("def")})
""",
    "nested comprehensions": """
pairs = [(f, n) for f in ["src/app.py", "src/util.py"] for n, l in enumerate(read_file(f).splitlines(), 1) if l]
print(pairs)
print([[x * y for x in range(3)] for y in range(2)])
""",
    "generator expressions": """
print(any("TODO" in m["text"] for m in find("a")), all(m["line"] for m in find("a")), sum(m["line"] for m in find("a")))
print(next((m["file"] for m in find("clamp")), None), max((m["line"] for m in find("a")), default=0))
print(", ".join(str(n) for n in range(5)))
""",
    "json": """
import json
data = json.loads(read_file("data.json"))
print(data["deps"]["a"], json.dumps(data, indent=2, sort_keys=True))
try:
    json.loads("{")
except ValueError as error:
    print("bad json")
print(json.dumps([1, "ü", None, True], ensure_ascii=False))
""",
    "values of json used freely": """
import json
data = json.loads(read_file("data.json"))
for name, version in data["deps"].items():
    print(name, version + 1)
data["tags"].append("z")
print(len(data["tags"]), data.get("missing", {}).get("x", "none"))
""",
    "regular expressions": """
import re
text = read_file("README.md")
m = re.search(r"(\\d+)\\.(\\d+)\\.(\\d+)", text)
print(m.group(0), m.groups(), m.start(), m[1])
print(re.findall(r"\\d+", text), re.sub(r"\\d", "#", text).strip())
print(re.split(r"[,;]\\s*", "a, b;c"), bool(re.fullmatch(r"\\w+", "abc")), re.escape("a.b"))
""",
    "compiled expressions": """
import re
pattern = re.compile(r"^def (?P<name>\\w+)\\((?P<args>.*)\\):$", re.MULTILINE)
for path in ["src/app.py", "src/util.py"]:
    for m in pattern.finditer(read_file(path)):
        print(path, m["name"], m.group("args").split(", "), m.groupdict())
""",
    "a match that is used unchecked": """
import re
out = execute("main", "pytest -q")["output"]
print(re.search(r"(\\d+) passed", out).group(1))
""",
    "math and datetime": """
import math
from datetime import date, datetime, timedelta
print(math.floor(2.7), math.sqrt(16), math.ceil(1.2), math.pi > 3, math.inf > 1)
print(date(2024, 5, 6) + timedelta(days=30), (datetime(2024, 1, 2) - datetime(2024, 1, 1)).days)
""",
    "imports with names": """
import json as j, re as regex
from math import gcd, sqrt as root
print(j.dumps({"a": 1}), bool(regex.match("a", "abc")), gcd(12, 18), root(9))
""",
    "results by key": """
r = execute("main", "pytest -q")
if r["exit_code"] == 0 and "passed" in r["output"]:
    print(r["status"], r["cwd"], r["output"].strip().splitlines()[-1])
print(r["output"][-20:], r["output"][:5].upper(), sorted(r))
""",
    "results by get": """
r = execute("main", "fail")
print(r.get("exit_code"), r.get("nope"), r.get("nope", "-"), "output" in r)
for key, value in r.items():
    print(key, repr(value)[:20])
""",
    "an exit code that may be None": """
r = read_output("main")
if r["exit_code"] is None:
    print("still running")
code = r["exit_code"] or 0
print(code + 1, r["exit_code"] is not None and r["exit_code"] > 0)
""",
    "an exit code compared without a check": """
r = execute("main", "fail")
print("bad" if r["exit_code"] > 0 else "good")
print(r["exit_code"] + 1)
""",
    "a list indexed by a result": """
hits = find("def")
print(hits[0]["file"], hits[-1]["line"] + 1, len(hits), hits[0]["text"].strip())
first, *rest = hits
print(first["line"], len(rest))
""",
    "a nullable that is set in a loop": """
found = None
for m in find("def"):
    if m["file"].endswith("util.py"):
        found = m
        break
print(found["line"])
""",
    "a nullable that is checked": """
best = None
for m in find("a"):
    if best is None or m["line"] > best["line"]:
        best = m
if best:
    print(best["file"])
""",
    "for and else": """
for m in find("def"):
    if m["line"] == 99:
        break
else:
    print("not found")
""",
    "a while loop": """
n, tries = 10, 0
while n > 1:
    n = n // 2 if n % 2 == 0 else 3 * n + 1
    tries += 1
    if tries > 50:
        break
else:
    print("reached", tries)
""",
    "a walrus": """
import re
if (hits := find("def")) and (count := len(hits)) > 1:
    print(count)
if m := re.search("clamp", hits[1]["text"]):
    print(m.end())
""",
    "a match statement": """
def kind(value):
    match value:
        case {"exit_code": 0}:
            return "ok"
        case {"exit_code": code} if code:
            return f"failed {code}"
        case [first, *rest]:
            return f"{first} and {len(rest)}"
        case str() | int():
            return "scalar"
        case _:
            return "else"
print(kind(execute("main", "ls")), kind(execute("main", "fail")), kind([1, 2, 3]), kind("x"), kind(None))
""",
    "star arguments": """
def call(*args, **kwargs):
    return f"{args} {sorted(kwargs.items())}"
args, options = ["main", "ls"], {"check": True}
print(call(*args, **options), execute(*args, **options)["exit_code"])
print([*range(3), *"ab"], {**{"a": 1}, "b": 2}, max(*[1, 5, 3]))
""",
    "string methods": """
s = "  Hello, World\\t"
print(s.strip().lower().replace("world", "x").split(", "), s.count("l"), s.find("W"), s.isspace())
print("a-b-c".rsplit("-", 1), "a=b=c".partition("="), "x".join("abc"), "abc".startswith(("a", "z")))
print("title case".title(), "abc"[::-1], "ab" * 3, "7".zfill(3), "pre_x".removeprefix("pre_"), "a\\nb\\n".splitlines())
print("x.py".removesuffix(".py"), "abc".center(9, "*"), "Ab".swapcase(), "a".ljust(3) + "|", "é".encode())
""",
    "sorting and zipping": """
matches = find("a")
matches.sort(key=lambda m: (m["file"], -m["line"]))
print([m["line"] for m in matches], sorted([3, 1, 2], reverse=True), list(zip("ab", [1, 2])))
for (a, b), c in zip([(1, 2), (3, 4)], "xy"):
    print(a + b, c)
print(list(reversed([1, 2])), list(map(str, [1])), list(filter(None, [0, 1])), min([2, 1]), dict(zip("ab", range(2))))
""",
    "zip strictly": """
print(list(zip([1, 2], [3, 4], strict=True)))
""",
    "dict methods": """
d = {"a": 1}
d.update(b=2)
d.setdefault("c", []).append(3)
d |= {"e": 5}
print(d.pop("a"), d.pop("zz", None), list(d.keys()), list(d.values()), {v: k for k, v in {"x": 1}.items()})
print(d.copy() == d, dict(sorted(d.items(), reverse=True)), "b" in d, len(d))
""",
    "counting in a dict": """
counts = {}
for word in "a b a c a".split():
    counts[word] = counts.get(word, 0) + 1
for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
    print(word, count)
""",
    "list methods": """
items = [3, 1]
items.append(2); items.extend([5, 4]); items.insert(0, 9); items.remove(1)
print(items, items.pop(), items.index(2), items.count(3), items[1:3], items[::-1])
items.sort(); items.reverse(); print(items); items.clear(); print(items or "empty")
items[:] = [1, 2]; items += [3]; print(items)
""",
    "sets": """
a, b = {1, 2, 3}, set([3, 4])
a.add(7); a.discard(1)
print(sorted(a | b), sorted(a & b), sorted(a - b), a >= {2}, frozenset([1]) == {1})
""",
    "nested functions and closures": """
def outer(factor):
    total = 0
    def inner(x):
        nonlocal total
        total += x * factor
        return total
    return inner
add = outer(3)
print(add(1), add(2))
""",
    "global": """
counter = 0
def bump(by=1):
    global counter
    counter += by
bump(); bump(4)
print(counter)
""",
    "lambda": """
size = lambda p: len(read_file(p))
print(size("README.md"), max(["ab", "c"], key=lambda s: -len(s)), (lambda *a, k=1: sum(a) * k)(1, 2, k=3))
""",
    "assignments of all kinds": """
a = b = 1
c, (d, *e) = 2, (3, 4, 5)
a += 1; b -= 1; c *= 3; d //= 2; c **= 2; d |= 8; c %= 7; d ^= 1; d <<= 1
a, b = b, a
print(a, b, c, d, e)
""",
    "comparisons": """
x = 5
print(1 < x <= 5 != 6, x in (1, 5), x not in [2], x is None, not x, x and 3 or 4, "yes" if 0 <= x < 10 else "no")
""",
    "docstrings and comments": """
\"\"\"What this block does.\"\"\"
# look first
def f():
    \"\"\"Doc.\"\"\"
    return 1
f()  # thrown away
print(f())
""",
    "asserts with messages": """
text = read_file("src/app.py")
assert "main" in text, f"no main in {text[:20]!r}"
assert len(find("def")) == 2, "two expected"
try:
    assert "nope" in text, "as it must"
except AssertionError as error:
    print("assertion:", str(error).splitlines()[0])
""",
    "printing structures": """
print({"a": [1, (2, 3)], "b": None, "c": True, "d": 1.5, "e": "it's"}, [], {}, (), ("x",))
print(find("clamp")[0])
print("a", "b", sep="|", end="!\\n")
print()
print("tab\\tand\\nline", 'quote"s', r"\\raw")
""",
    "numbers": """
print(7 // 2, -7 // 2, 7 % 3, -7 % 3, 2 ** 10, 7 / 2, round(2.567, 2), abs(-3), divmod(7, 2), int("12"), float("1.5"))
print(int("ff", 16), hex(255), bin(5), oct(8), 0x10, 1_000, 1e3, sum([1, 2], 3), pow(2, 3), bool([]), 0.1 + 0.2)
""",
    "conversions": """
print(list("ab"), tuple([1]), set([1]), dict(a=1), str(None), repr("x"), int(2.9), list({"k": 1}), ord("a"), chr(98))
print(isinstance(1, int), isinstance("a", (int, str)), type([]).__name__, type({}) == dict)
""",
    "slices": """
lines = read_file("src/app.py").splitlines()
print(lines[3:5], lines[-1], lines[:2], lines[::2], "abcdef"[1:-1:2])
print("\\n".join(lines[3:]))
""",
    "classes": """
class Case:
    kind = "case"
    def __init__(self, name, ok=True):
        self.name = name
        self.ok = ok
    def line(self):
        return f"{'ok' if self.ok else 'FAILED'} {self.name} ({self.kind})"
for case in [Case("a"), Case("b", ok=False)]:
    print(case.line())
""",
    "dataclasses": """
from dataclasses import dataclass
@dataclass
class Hit:
    path: str
    line: int = 1
print(Hit("a", 3).line, Hit("b"))
""",
    "stacked loops with break and continue": """
for path in ["src/app.py", "gone.py", "src/util.py"]:
    try:
        text = read_file(path)
    except FileNotFoundError:
        print("skip", path)
        continue
    for line in text.splitlines():
        if line.startswith("def"):
            print(path, line)
            break
""",
    "commands made from a list": """
for target in ("lint", "test", "fail-build"):
    result = execute("main", f"make {target}", timeout=120)
    mark = "✓" if not result["exit_code"] else "✗"
    print(mark, target, result["output"].splitlines()[-1])
""",
    "a command over several lines": """
script = '''
set -e
python - <<'EOF'
print("hi")
EOF
'''
print(execute("main", script.strip())["exit_code"])
print(execute("main", "a && "
              "b", check=True)["output"])
""",
    "edits given as a list": """
edits = [(1, 2), (5, 5)]
edits.append((9, 9))
print(sorted(edits, reverse=True), [end - start + 1 for start, end in edits])
""",
    "typing": """
from typing import Any, Optional
def pick(d: dict[str, Any], key: str, default: Optional[str] = None) -> Any:
    return d.get(key, default)
print(pick({"a": 1}, "a"), pick({}, "b"))
""",
    "a variable that changes its type": """
value = "12"
value = int(value)
value = [value] * 2
print(value)
result = find("def")
result = len(result)
print(result + 1)
""",
    "a variable that is named like a tool": """
results = [find for find in range(3)]
print(results)
matches = find("clamp")
print(len(matches))
""",
    "a variable that is named like a builtin": """
file, id, list_, input, dir = "a", 1, [2], 3, 4
max_ = max(1, 2)
print(file, id, list_, input, dir, max_)
sum = 0
for n in [1, 2]:
    sum += n
print(sum)
""",
    "tools in variables": """
read = read_file
tools = {"r": read_file, "f": find}
print(len(read("README.md")), len(tools["f"]("def")), [len(t) for t in [read(p) for p in ["README.md"]]])
""",
    "an early return": """
def check(paths):
    for p in paths:
        if "clamp" not in read_file(p):
            continue
        return p
    return None
print(check(["src/app.py", "src/util.py"]), check([]))
""",
    "recursion": """
def depth(value):
    if isinstance(value, dict):
        return 1 + max((depth(v) for v in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max([depth(v) for v in value] or [0])
    return 0
print(depth({"a": [{"b": {}}], "c": 1}))
""",
    "own exceptions": """
try:
    raise ValueError("bad: 3")
except ValueError as error:
    print(error.args, error)
try:
    {}["k"]
except KeyError as error:
    print(repr(error), error)
try:
    [][1]
except (IndexError, ZeroDivisionError) as error:
    print(type(error).__name__)
""",
    "raise SystemExit-like ends": """
def main():
    print("one")
    return
    print("two")
main()
if __name__ == "__main__":
    print("main")
""",
    "string building": """
parts = []
for m in find("def"):
    parts.append("- " + m["file"] + ":" + str(m["line"]))
report = "\\n".join(parts)
print(report, len(report), report.count("\\n"))
""",
    "unpacking of items": """
for i, (name, (a, *b)) in enumerate({"x": [1, 2, 3]}.items()):
    print(i, name, a, b)
(first,) = [1]
print(first)
""",
    "enumerate two files side by side": """
left, right = read_file("src/app.py").splitlines(), read_file("src/util.py").splitlines()
for n, (l, r) in enumerate(zip(left, right), 1):
    print(n, "same" if l == r else f"{l!r} != {r!r}")
""",
    "conditional calls": """
ok = execute("main", "ls")["exit_code"] == 0 and execute("main", "fail")["exit_code"] == 0
print(ok, not ok)
print("skipped" if ok else execute("main", "pwd")["output"], end="")
""",
    "os.path by hand": """
path = "src/pkg/mod.py"
folder, _, name = path.rpartition("/")
stem, dot, ext = name.rpartition(".")
print(folder, name, stem, ext, "/".join(path.split("/")[:-1]), path.endswith(".py"))
""",
    "pathlib without a file": """
from pathlib import Path
p = Path("src") / "pkg" / "mod.py"
print(p.name, p.suffix, p.stem, str(p.parent), p.as_posix())
""",
    "a str that is compared with None": """
def label(x=None):
    if x is None:
        x = "default"
    return x.upper()
print(label(), label("a"))
""",
    "mixed lists": """
rows = [["name", "n"], ["a", 1], ["b", 2]]
for name, n in rows[1:]:
    print(name.upper(), n + 1)
table = [("a", 1, None), ("b", 2, "x")]
print([f"{a}{b}{c or ''}" for a, b, c in table])
""",
    "dicts of mixed values": """
config = {"name": "x", "n": 1, "deep": {"list": [1, 2]}}
config["n"] += 1
config["deep"]["list"].append(3)
config["new"] = None
print(config, config["deep"]["list"][0])
""",
    "empty containers that fill": """
seen, order = set(), []
by_file = {}
for m in find("a"):
    if m["file"] in seen:
        continue
    seen.add(m["file"])
    order.append(m["file"])
    by_file[m["file"]] = by_file.get(m["file"], []) + [m["line"]]
print(order, by_file)
""",
    "is and in on results": """
out = execute("main", "git status")["output"]
lines = [l for l in out.split("\\n") if l and not l.startswith("$")]
print(lines, any(w in out for w in ("failed", "error")), "passed" in out and "error" not in out)
passed = int(out.split(" passed")[0].split()[-1])
print(passed * 2)
""",
    "a semicolon line and a pass": """
x = 1; y = 2
if x: pass
if y: print(x, y)
def nothing(): ...
nothing()
""",
    "async words are only words": """
await_ = 1
print(await_)
""",
    "textual edits": """
text = read_file("src/app.py")
new = text.replace("return 0", "return 1", 1)
changed = [(n, a, b) for n, (a, b) in enumerate(zip(text.splitlines(), new.splitlines()), 1) if a != b]
print(changed, text == new, len(text) - len(new))
""",
    "with unicode": """
s = "naïve café ✓ 🎉"
print(s, len(s), s.upper(), s.encode("utf-8")[:3], s[-1], "é" in s)
""",
    "bytes": """
b = b"abc"
print(b.decode(), b[0], b + b"d", "é".encode("utf-8").decode("utf-8"), len(b))
""",
    "an exception group of habits": """
errors = []
for path in ["a", "README.md", "b"]:
    try:
        read_file(path)
    except Exception as exc:
        errors.append(f"{path}: {type(exc).__name__}: {exc}")
print("\\n".join(errors) if errors else "fine")
""",
    "collections by hand": """
from collections import defaultdict, Counter
d = defaultdict(list)
for m in find("a"):
    d[m["file"]].append(m["line"])
print(dict(d), Counter("aab").most_common(1))
""",
    "textwrap and itertools": """
import itertools
print(list(itertools.chain([1], [2])))
""",
}
"""Name → source."""

REFUSED: dict[str, tuple[str, str]] = {
    "an unknown tool": ("read_fil('a')", "Name `read_fil` used when not defined"),
    "a name from nowhere": ("print(result)", "Name `result` used when not defined"),
    "a builtin that is not there": ("open('a').read()", "Name `open` used when not defined"),
    "an unknown module": ("import subprocess", "Cannot resolve imported module `subprocess`"),
    "an unknown name of a module": ("from math import nothing", "Module `math` has no member `nothing`"),
    "a wrong type": ("execute(1, 'ls')", "Expected `str`, found `Literal[1]`"),
    "a number in quotes": ("execute('main', 'ls', timeout='5')", "Expected `float`"),
    "a mode that does not exist": ("write_file('a', mode='x')", 'found `Literal["x"]`'),
    "None for a path": ("read_file(None)", "found `None`"),
    "an unknown option": ("read_file('a', depth=2)", "`depth` does not match any known parameter"),
    "an argument too few": ("execute('ls')", "No argument provided for required parameter `command`"),
    "an argument too many": ("terminate_terminal('a', 'b')", "Too many positional arguments"),
    "an argument twice": ("read_file('a', path='b')", "Multiple values provided for parameter `path`"),
    "an unknown key": ("r = execute('main', 'ls')\nprint(r['stdout'])", 'Unknown key "stdout"'),
    "an attribute for a key": ("r = execute('main', 'ls')\nprint(r.output)", "no attribute `output`"),
    "an attribute of a match": ("for m in find('x'):\n    print(m.file)", "no attribute `file`"),
    "a method that does not exist": ("[].push(1)", "no attribute `push`"),
    "await": ("await read_file('a')", "not awaitable"),
    "a variable in a tool's place": ("find = find('x')", "not assignable to `def find("),
    "a call of a text": ("'a'('b')", "not callable"),
    "del": ("x = 1\ndel x", "del"),
    "yield": ("def f():\n    yield 1\nprint(list(f()))", "yield"),
    "a base class": ("class Mine(Exception):\n    pass", "inheritance"),
    "half a program": ("print('a'", "does not parse"),
    "brackets without end": ("x = " + "(" * 3000 + ")" * 3000, "does not parse"),
    "signs without end": ("x = " + "-" * 20_000 + "1", "does not parse"),
    "a NUL": ("x = '\0'", "does not parse"),
}
"""Source and a part of the error by name. No part of the block runs."""
