"""Table of replies and their values, for the example tests and the split tests."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.core.errors import FormatCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A reply and its value; payloads are pairs of text and file name."""

    name: str
    text: str
    control: str | None = None
    payloads: tuple[tuple[str, str | None], ...] = ()
    completion: str | None = None
    prose: str = ""
    exact: int | None = 0
    stop: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A reply, the rule it breaks, and required parts of the error."""

    name: str
    text: str
    code: FormatCode
    parts: tuple[str, ...] = ()
    stop: str = "stop"


RUN = "```codepilot\nprint(1)\n```\n"
WRITE = '```codepilot\nwrite_file("a.py")\n```\n'
WRITE_CODE = 'write_file("a.py")\n'
TWO = '```codepilot\nwrite_file("a.py")\nwrite_file("b.py")\n```\n'
TWO_CODE = 'write_file("a.py")\nwrite_file("b.py")\n'
LOOP = "```codepilot\nfor name in names:\n    write_file(name)\n```\n"
LOOP_CODE = "for name in names:\n    write_file(name)\n"
DONE = "```completion\nDone.\n```\n"

README_EXAMPLE = """\
Fixing both.
```codepilot
write_file("README.md")
```
```markdown filename=README.md
# Use
```sh
make
```
```
```completion
Done.
```
"""

BLOCKS = (
    Accepted(
        name="the example of the protocol: prose, a write, a payload with an inner fence, a completion",
        text=README_EXAMPLE,
        control='write_file("README.md")\n',
        payloads=(("# Use\n```sh\nmake\n```\n", "README.md"),),
        completion="Done.",
        prose="Fixing both.",
        exact=1,
    ),
    Accepted(
        name="the example of the protocol: backticks in control code that do not start the line",
        text='```codepilot\nprint("```")\n```\n',
        control='print("```")\n',
    ),
    Accepted(
        name="a repeated patch takes a payload for each hunk that it corrects",
        text='```codepilot\nwrite_file(mode="patch", payload=1, hunks=[2, 7])\n```\n```\n-a\n+b\n```\n```\n```\n',
        control='write_file(mode="patch", payload=1, hunks=[2, 7])\n',
        payloads=(("-a\n+b\n", None), ("", None)),
        exact=2,
    ),
    Accepted(name="control only", text=RUN, control="print(1)\n"),
    Accepted(name="control without a newline at the end of the text", text=RUN.rstrip(), control="print(1)\n"),
    Accepted(name="control and completion", text=RUN + DONE, control="print(1)\n", completion="Done."),
    Accepted(name="completion only", text=DONE, completion="Done."),
    Accepted(name="an empty completion still finishes", text="```completion\n```\n", completion=""),
    Accepted(
        name="a completion keeps inner blank lines and its first indent, not the blank lines around it",
        text="```completion\n\n  - a\n\n  - b\n\n```\n",
        completion="  - a\n\n  - b",
    ),
    Accepted(name="prose only", text="Hello there.\nHow are you?\n", prose="Hello there.\nHow are you?"),
    Accepted(name="an empty control block", text="```codepilot\n```\n", control=""),
    Accepted(name="the word in any case", text="```CodePilot\nprint(1)\n```\n", control="print(1)\n"),
    Accepted(name="completion in any case", text="```COMPLETION\nDone.\n```\n", completion="Done."),
    Accepted(name="only the first word counts", text="```codepilot python\nprint(1)\n```\n", control="print(1)\n"),
    Accepted(name="a blank before the word", text="``` codepilot \nprint(1)\n```\n", control="print(1)\n"),
    Accepted(name="a tilde control block", text="~~~codepilot\nprint(1)\n~~~\n", control="print(1)\n"),
    Accepted(
        name="a longer control fence", text="````codepilot\nx = '''\n```\n'''\n````\n", control="x = '''\n```\n'''\n"
    ),
    Accepted(name="a longer closing fence", text="```codepilot\nprint(1)\n`````\n", control="print(1)\n"),
    Accepted(name="three spaces before both fences", text="   ```codepilot\nprint(1)\n   ```\n", control="print(1)\n"),
    Accepted(
        name="a control block that is indented as a whole",
        text="  ```codepilot\n  for n in x:\n      print(n)\n  ```\n",
        control="for n in x:\n    print(n)\n",
    ),
    Accepted(
        name="a completion that is indented as a whole",
        text=" ```completion\n Done.\n\n   - a\n ```\n",
        completion="Done.\n\n  - a",
    ),
    Accepted(name="blanks after a closing fence", text="```codepilot\nprint(1)\n``` \t\n", control="print(1)\n"),
    Accepted(
        name="a closing fence indented by four is content",
        text="```codepilot\nx = '''\n    ```\n'''\n```\n",
        control="x = '''\n    ```\n'''\n",
    ),
    Accepted(
        name="tildes do not close backticks",
        text="```codepilot\nx = '''\n~~~\n'''\n```\n",
        control="x = '''\n~~~\n'''\n",
    ),
    Accepted(
        name="nothing nests in a control block",
        text="```codepilot\nx = '''\n```sh\n'''\n```\n",
        control="x = '''\n```sh\n'''\n",
    ),
    Accepted(
        name="codepilot and completion inside a control block are content",
        text="````codepilot\nx = '''\n```codepilot\n```completion\n'''\n````\n",
        control="x = '''\n```codepilot\n```completion\n'''\n",
    ),
    Accepted(
        name="a control block warns of nothing",
        text="```codepilot\nprint('\\d')\n```\n",
        control="print('\\d')\n",
    ),
)

PROSE = (
    Accepted(name="four spaces are no fence", text="    ```codepilot\n", prose="    ```codepilot"),
    Accepted(name="a tab is no fence", text="\t```codepilot\n", prose="\t```codepilot"),
    Accepted(
        name="a fence in a block quote is prose",
        text="> ```codepilot\n> rm\n> ```\n",
        prose="> ```codepilot\n> rm\n> ```",
    ),
    Accepted(name="a fence in a list is prose", text="- ```codepilot\n", prose="- ```codepilot"),
    Accepted(
        name="inline triple backticks are prose", text="Use ```codepilot``` now.\n", prose="Use ```codepilot``` now."
    ),
    Accepted(name="a backtick in the info string is prose", text="```codepilot` x\n", prose="```codepilot` x"),
    Accepted(name="inline code at the start of a line", text="```x``` is code\n", prose="```x``` is code"),
    Accepted(name="two backticks are no fence", text="``codepilot\n", prose="``codepilot"),
    Accepted(name="two tildes are no fence", text="~~struck~~\n", prose="~~struck~~"),
    Accepted(name="mixed characters are no fence", text="``~codepilot\n", prose="``~codepilot"),
    Accepted(name="the text ends in what could become a fence", text="Well ...\n``", prose="Well ...\n``"),
    Accepted(
        name="codepilot-example is display",
        text="```codepilot-example\nx(\n```\n",
        prose="```codepilot-example\nx(\n```",
    ),
    Accepted(name="completions is display", text="```completions\nx\n```\n", prose="```completions\nx\n```"),
    Accepted(name="a bare fence is display", text="```\nx\n```\n", prose="```\nx\n```"),
    Accepted(
        name="a tilde fence may have backticks in its info string",
        text="~~~ md `x`\n```codepilot\n~~~\n",
        prose="~~~ md `x`\n```codepilot\n~~~",
    ),
    Accepted(
        name="display before the control block, codepilot inside it is content",
        text="Like so:\n````md\n```codepilot\nx(\n```\n````\n" + RUN,
        control="print(1)\n",
        prose="Like so:\n````md\n```codepilot\nx(\n```\n````",
    ),
    Accepted(
        name="a nested fence in display",
        text="```md\n```codepilot\nx(\n```\n```\n" + RUN,
        control="print(1)\n",
        prose="```md\n```codepilot\nx(\n```\n```",
    ),
    Accepted(
        name="display after a control block that writes nothing",
        text=RUN + "See:\n```python\nx\n```\n" + DONE,
        control="print(1)\n",
        completion="Done.",
        prose="See:\n```python\nx\n```",
    ),
    Accepted(
        name="display before a completion without a control block",
        text="```diff\n+x\n```\n" + DONE,
        completion="Done.",
        prose="```diff\n+x\n```",
    ),
    Accepted(name="an open display block is only text", text="See:\n```python\nx\n", prose="See:\n```python\nx"),
    Accepted(
        name="prose between and after the blocks is kept",
        text="A\n" + WRITE + "B\n```\nx\n```\nC\n" + DONE + "D\n",
        control=WRITE_CODE,
        payloads=(("x\n", None),),
        completion="Done.",
        prose="A\nB\nC\nD",
        exact=1,
    ),
)

PAYLOADS = (
    Accepted(
        name="a payload without a name",
        text=WRITE + "```python\nx = 1\n```\n",
        control=WRITE_CODE,
        payloads=(("x = 1\n", None),),
        exact=1,
    ),
    Accepted(
        name="a bare payload fence",
        text=WRITE + "```\nx = 1\n```\n",
        control=WRITE_CODE,
        payloads=(("x = 1\n", None),),
        exact=1,
    ),
    Accepted(
        name="an empty payload is an empty file",
        text=WRITE + "```python\n```\n",
        control=WRITE_CODE,
        payloads=(("", None),),
        exact=1,
    ),
    Accepted(
        name="one blank line is one newline",
        text=WRITE + "```python\n\n```\n",
        control=WRITE_CODE,
        payloads=(("\n", None),),
        exact=1,
    ),
    Accepted(
        name="tabs, trailing spaces and blank last lines stay",
        text=WRITE + "```python\n\n\tx = 1  \n\n\n```\n",
        control=WRITE_CODE,
        payloads=(("\n\tx = 1  \n\n\n", None),),
        exact=1,
    ),
    Accepted(
        name="a payload loses the indentation that it shares with its fence",
        text=WRITE + "   ```python\n   if x:\n\n       y = 1\n   ```\n",
        control=WRITE_CODE,
        payloads=(("if x:\n\n    y = 1\n", None),),
        exact=1,
    ),
    Accepted(
        name="a payload keeps its indentation if a line has less than its fence",
        text=WRITE + "  ```python\n  if x:\n y = 1\n  ```\n",
        control=WRITE_CODE,
        payloads=(("  if x:\n y = 1\n", None),),
        exact=1,
    ),
    Accepted(
        name="a BOM inside and a lone carriage return are content",
        text=WRITE + "```\na\rb\ufeff\n```\n",
        control=WRITE_CODE,
        payloads=(("a\rb\ufeff\n", None),),
        exact=1,
    ),
    Accepted(
        name="filename given",
        text=WRITE + "```python filename=a.py\nx\n```\n",
        control=WRITE_CODE,
        payloads=(("x\n", "a.py"),),
        exact=1,
    ),
    Accepted(
        name="filename alone",
        text=WRITE + "```filename=a.py\nx\n```\n",
        control=WRITE_CODE,
        payloads=(("x\n", "a.py"),),
        exact=1,
    ),
    Accepted(
        name="filename in double quotes",
        text=WRITE + '```py filename="a.py"\nx\n```\n',
        control=WRITE_CODE,
        payloads=(("x\n", "a.py"),),
        exact=1,
    ),
    Accepted(
        name="filename in single quotes",
        text=WRITE + "```py filename='a.py'\nx\n```\n",
        control=WRITE_CODE,
        payloads=(("x\n", "a.py"),),
        exact=1,
    ),
    Accepted(
        name="an empty filename is none",
        text=WRITE + '```py filename=""\nx\n```\n',
        control=WRITE_CODE,
        payloads=(("x\n", None),),
        exact=1,
    ),
    Accepted(
        name="a quoted filename with a blank",
        text='```codepilot\nwrite_file("my notes.md")\n```\n```md filename="my notes.md"\nx\n```\n',
        control='write_file("my notes.md")\n',
        payloads=(("x\n", "my notes.md"),),
        exact=1,
    ),
    Accepted(
        name="the same file in other spellings",
        text='```codepilot\nwrite_file("./src//a.py")\n```\n```py filename=src/./a.py\nx\n```\n',
        control='write_file("./src//a.py")\n',
        payloads=(("x\n", "src/./a.py"),),
        exact=1,
    ),
    Accepted(
        name="a computed path agrees with any name",
        text="```codepilot\nwrite_file(path)\n```\n```py filename=z.py\nx\n```\n",
        control="write_file(path)\n",
        payloads=(("x\n", "z.py"),),
        exact=1,
    ),
    Accepted(
        name="two payloads in order",
        text=TWO + "```py filename=a.py\n1\n```\n\n```py filename=b.py\n2\n```\n",
        control=TWO_CODE,
        payloads=(("1\n", "a.py"), ("2\n", "b.py")),
        exact=2,
    ),
    Accepted(
        name="replace takes the old text and the new",
        text='```codepilot\nwrite_file("a.py", mode="replace")\n```\n```\nold\n```\n```\nnew\n```\n',
        control='write_file("a.py", mode="replace")\n',
        payloads=(("old\n", None), ("new\n", None)),
        exact=2,
    ),
    Accepted(
        name="multi_edit takes one payload an edit",
        text='```codepilot\nwrite_file("a", mode="multi_edit", edits=[(1, 2), (4, 4)])\n```\n'
        "```\nx\n```\n```\ny\n```\n",
        control='write_file("a", mode="multi_edit", edits=[(1, 2), (4, 4)])\n',
        payloads=(("x\n", None), ("y\n", None)),
        exact=2,
    ),
    Accepted(
        name="a retry by number takes none: what follows is display",
        text='```codepilot\nwrite_file("a", payload=2)\n```\n```\nx\n```\n',
        control='write_file("a", payload=2)\n',
        prose="```\nx\n```",
    ),
    Accepted(
        name="where only the run can tell, every fence is a payload",
        text=LOOP + "```\nx\n```\n```py filename=q.py\ny\n```\n" + DONE,
        control=LOOP_CODE,
        payloads=(("x\n", None), ("y\n", "q.py")),
        completion="Done.",
        exact=None,
    ),
    Accepted(name="where only the run can tell, none may come", text=LOOP, control=LOOP_CODE, exact=None),
    Accepted(
        name="protocol words inside a payload are content",
        text=WRITE + "```md\n```codepilot\nx(\n```\n```completion\nno\n```\n```\n" + DONE,
        control=WRITE_CODE,
        payloads=(("```codepilot\nx(\n```\n```completion\nno\n```\n", None),),
        completion="Done.",
        exact=1,
    ),
    Accepted(
        name="fences nested two deep",
        text=WRITE + "```md\n```md\n```sh\nx\n```\n```\n```\n",
        control=WRITE_CODE,
        payloads=(("```md\n```sh\nx\n```\n```\n", None),),
        exact=1,
    ),
    Accepted(
        name="a longer nested fence holds shorter ones as content",
        text=WRITE + "```md\n````md\n```\n````\n```\n",
        control=WRITE_CODE,
        payloads=(("````md\n```\n````\n", None),),
        exact=1,
    ),
    Accepted(
        name="a longer fence holds unbalanced fences",
        text=WRITE + "````md\n```sh\n````\n",
        control=WRITE_CODE,
        payloads=(("```sh\n", None),),
        exact=1,
    ),
    Accepted(
        name="a longer fence holds an unbalanced bare fence",
        text=WRITE + "````md\n```\n````\n",
        control=WRITE_CODE,
        payloads=(("```\n", None),),
        exact=1,
    ),
    Accepted(
        name="a tilde fence holds unbalanced fences",
        text=WRITE + "~~~md\n```sh\n```completion\n~~~\n",
        control=WRITE_CODE,
        payloads=(("```sh\n```completion\n", None),),
        exact=1,
    ),
    Accepted(
        name="a compiler's tilde underline does not nest",
        text=WRITE + "```\nfoo bar\n~~~^~~~\n~~~~ here\n```\n",
        control=WRITE_CODE,
        payloads=(("foo bar\n~~~^~~~\n~~~~ here\n", None),),
        exact=1,
    ),
    Accepted(
        name="a nested fence in a completion",
        text="```completion\nRun\n```sh\nmake\n```\nnow.\n```\n",
        completion="Run\n```sh\nmake\n```\nnow.",
    ),
    Accepted(
        name="protocol words inside a completion are content",
        text="```completion\n```codepilot\nx(\n```\n```completion\n```\n```\n",
        completion="```codepilot\nx(\n```\n```completion\n```",
    ),
)

BYTES = (
    Accepted(name="a leading BOM is dropped", text="\ufeff" + RUN, control="print(1)\n"),
    Accepted(
        name="CRLF is read as LF",
        text=(WRITE + "```py filename=a.py\nx\n\n```\n" + DONE).replace("\n", "\r\n"),
        control=WRITE_CODE,
        payloads=(("x\n\n", "a.py"),),
        completion="Done.",
        exact=1,
    ),
    Accepted(name="only one BOM is dropped", text="\ufeff\ufeffHi.", prose="\ufeffHi."),
    Accepted(name="a BOM, then CRLF", text="\ufeff```completion\r\nDone.\r\n```\r\n", completion="Done."),
    Accepted(
        name="a carriage return ends the text after a fence",
        text="```codepilot\r\nprint(1)\r\n```\r",
        control="print(1)\n",
    ),
    Accepted(name="carriage return twice before a newline", text="a\r\r\nb", prose="a\r\nb"),
    Accepted(
        name="other line separators are no line ends",
        text="a\u2028```codepilot\x0b```\n",
        prose="a\u2028```codepilot\x0b```",
    ),
)

EARLY_ENDS = (
    Accepted(name="an open completion is complete", text="```completion\nDone.", completion="Done."),
    Accepted(
        name="an open completion, its closing fence half sent", text="```completion\nDone.\n``", completion="Done.\n``"
    ),
    Accepted(
        name="an open completion with an open nested fence",
        text="```completion\nRun\n```sh\nmake",
        completion="Run\n```sh\nmake",
    ),
    Accepted(
        name="an open control block that parses and writes nothing", text="```codepilot\nprint(1)", control="print(1)"
    ),
    Accepted(
        name="an open control block that retries by number",
        text='```codepilot\nwrite_file("a", payload=1)\n',
        control='write_file("a", payload=1)\n',
    ),
    Accepted(
        name="an open Python payload",
        text=WRITE + "```python\nx = 1\n",
        control=WRITE_CODE,
        payloads=(("x = 1\n", None),),
        exact=1,
    ),
    Accepted(
        name="an open payload gains no newline",
        text=WRITE + "```py\nx = 1",
        control=WRITE_CODE,
        payloads=(("x = 1", None),),
        exact=1,
    ),
    Accepted(
        name="an open payload of a file named .py",
        text=WRITE + "```text filename=a.py\nx = 1\n",
        control=WRITE_CODE,
        payloads=(("x = 1\n", "a.py"),),
        exact=1,
    ),
    Accepted(
        name="an open payload of a call for a .py file",
        text=WRITE + "```\nx = 1\n",
        control=WRITE_CODE,
        payloads=(("x = 1\n", None),),
        exact=1,
    ),
    Accepted(
        name="an open JSON payload",
        text='```codepilot\nwrite_file(p)\n```\n```json\n{"a": [1]}\n',
        control="write_file(p)\n",
        payloads=(('{"a": [1]}\n', None),),
        exact=1,
    ),
    Accepted(
        name="an open TOML payload",
        text="```codepilot\nwrite_file(p)\n```\n```toml\na = 1\n",
        control="write_file(p)\n",
        payloads=(("a = 1\n", None),),
        exact=1,
    ),
    Accepted(
        name="cut for length with nothing open", text=RUN + "And n", control="print(1)\n", prose="And n", stop="length"
    ),
    Accepted(name="cut for length in prose", text="Let me see", prose="Let me see", stop="length"),
    Accepted(
        name="cut for length right after the control block",
        text=RUN.rstrip(),
        control="print(1)\n",
        stop="length",
    ),
    Accepted(
        name="cut for length right after the completion",
        text=RUN + DONE,
        control="print(1)\n",
        completion="Done.",
        stop="length",
    ),
)

REJECTED = (
    Rejected(name="nothing", text="", code="empty", parts=("```codepilot", "```completion")),
    Rejected(name="blank", text=" \n\t\r\n", code="empty"),
    Rejected(name="only a BOM", text="\ufeff", code="empty"),
    Rejected(name="a BOM and blanks", text="\ufeff \n", code="empty"),
    Rejected(name="nothing, for length", text="", code="empty", stop="length"),
    Rejected(
        name="two control blocks", text=RUN + RUN, code="multiple_control", parts=("Line 4", "line 1", "one codepilot")
    ),
    Rejected(name="a second control block instead of the payload", text=WRITE + RUN, code="multiple_control"),
    Rejected(
        name="a second control block after the payload", text=WRITE + "```\nx\n```\n" + RUN, code="multiple_control"
    ),
    Rejected(
        name="completion before control", text=DONE + RUN, code="completion_first", parts=("Line 4", "line 1", "last")
    ),
    Rejected(name="completion before its payload", text=WRITE + DONE + "```\nx\n```\n", code="completion_first"),
    Rejected(name="display after the completion", text=DONE + "```\nx\n```\n", code="completion_first"),
    Rejected(name="two completions", text=DONE + DONE, code="completion_first"),
    Rejected(
        name="control code that does not parse",
        text="Hm.\n```codepilot\nx = 1\nprint((\n```\n",
        code="control_syntax",
        parts=("line 2", "line 2 opens", "print((", "never closed"),
    ),
    Rejected(name="control code with a null character", text="```codepilot\nx = '\0'\n```\n", code="control_syntax"),
    Rejected(
        name="control code nested too deeply",
        text="```codepilot\n" + "-" * 9_000 + "1\n```\n",
        code="control_syntax",
        parts=("nested",),
    ),
    Rejected(
        name="control code cut by a fence in its string",
        text="```codepilot\nx = '''\n```\n'''\n```\n",
        code="control_syntax",
        parts=("````codepilot",),
    ),
    Rejected(
        name="a control block that was not closed before its payload",
        text='```codepilot\nwrite_file("a")\n```py\nx\n```\n',
        code="control_syntax",
        parts=("Line 3 is a fence line", "closed"),
    ),
    Rejected(
        name="an open control block that does not parse",
        text="```codepilot\nprint((",
        code="truncated",
        parts=("line 1", "does not parse", "close"),
    ),
    Rejected(
        name="an open control block that needs a payload",
        text="```codepilot\nwrite_file('a')\n",
        code="truncated",
        parts=("line 1",),
    ),
    Rejected(
        name="an open control block that may need payloads",
        text="```codepilot\nif x:\n    write_file('a')\n",
        code="truncated",
    ),
    Rejected(
        name="an open Python payload that does not parse",
        text=WRITE + "```python\nx = (\n",
        code="truncated",
        parts=("line 4", "````"),
    ),
    Rejected(
        name="an open JSON payload that does not parse",
        text=WRITE.replace("a.py", "a") + '```json\n{"a": \n',
        code="truncated",
    ),
    Rejected(
        name="an open TOML payload that does not parse",
        text=WRITE.replace("a.py", "a") + "```toml\na = \n",
        code="truncated",
    ),
    Rejected(
        name="an open payload of a language without a check",
        text=WRITE.replace("a.py", "a") + "```markdown\n# Use\n",
        code="truncated",
    ),
    Rejected(
        name="the file decides the check, not the info string",
        text=WRITE.replace("a.py", "a.json") + "```python\nx = 1\n",
        code="truncated",
    ),
    Rejected(name="an open payload with nothing in it", text=WRITE + "```python\n", code="truncated"),
    Rejected(
        name="a payload whose closing fence closed a nested one",
        text=WRITE.replace("a.py", "a.md") + "```md\n```sh\nmake\n```\n",
        code="truncated",
    ),
    Rejected(
        name="an open payload, then another",
        text=TWO + "```py filename=a.py\n1\n```py filename=b.py\n2\n```\n",
        code="truncated",
    ),
    Rejected(
        name="an open payload, then the completion",
        text=WRITE + "```python\nx = 1\n" + DONE,
        code="ambiguous",
        parts=("line 4", "```completion on line 6", "Close the payload"),
    ),
    Rejected(
        name="an open payload, then the completion, in a text that parses",
        text=WRITE + "```python\nx = '''\n```completion\nDone.\n'''\n",
        code="ambiguous",
    ),
    Rejected(
        name="an open tilde payload, then the completion", text=WRITE + "~~~python\nx = 1\n" + DONE, code="ambiguous"
    ),
    Rejected(
        name="a nested fence took the payload's close, then the completion",
        text=WRITE + "```md\n```sh\nmake\n```\n" + DONE,
        code="ambiguous",
    ),
    Rejected(
        name="an open payload, then an open completion",
        text=WRITE + "```python\nx = 1\n```completion\nDone.\n",
        code="ambiguous",
    ),
    Rejected(
        name="an open payload, then another control block",
        text=WRITE + "```python\nx = 1\n" + RUN,
        code="ambiguous",
        parts=("```codepilot",),
    ),
    Rejected(
        name="an open display block, then the control block",
        text="```python\nx = 1\n" + RUN,
        code="ambiguous",
        parts=("display", "line 3"),
    ),
    Rejected(
        name="cut in prose that opens a fence",
        text="See\n```pyt",
        code="truncated",
        stop="length",
        parts=("length", "line 2"),
    ),
    Rejected(name="cut in display", text="```python\nx\n", code="truncated", stop="length"),
    Rejected(
        name="cut where a bare fence may yet open a nested one",
        text=WRITE + "```md\nUse\n```",
        code="truncated",
        stop="length",
        parts=("length", "line 6"),
    ),
    Rejected(
        name="cut where the completion seems to close",
        text="```completion\nRun:\n```",
        code="truncated",
        stop="length",
        parts=("line 3",),
    ),
    Rejected(
        name="cut in the fence of the completion, which is no payload too many",
        text=WRITE + "```\nx\n```\n```comp",
        code="truncated",
        stop="length",
    ),
    Rejected(
        name="cut in a file name, which is no other file",
        text=WRITE + "```py filename=a.p",
        code="truncated",
        stop="length",
    ),
    Rejected(
        name="cut in a fence inside a string of the control code",
        text="```codepilot\nx = '''\n```",
        code="truncated",
        stop="length",
    ),
    Rejected(
        name="cut after a rule was broken",
        text=RUN + RUN + "```comp",
        code="multiple_control",
        stop="length",
    ),
    Rejected(
        name="cut in the control block",
        text="```codepilot\nprint(1)\n",
        code="truncated",
        stop="length",
        parts=("codepilot", "line 1", "shorter"),
    ),
    Rejected(name="cut in a payload that parses", text=WRITE + "```python\nx = 1\n", code="truncated", stop="length"),
    Rejected(
        name="cut in the completion",
        text=RUN + "```completion\nDo",
        code="truncated",
        stop="length",
        parts=("completion",),
    ),
    Rejected(
        name="cut inside an ambiguous payload",
        text=WRITE + "```python\nx = 1\n" + DONE,
        code="truncated",
        stop="length",
    ),
    Rejected(name="cut before the payload", text=WRITE, code="payload_count", stop="length", parts=("length", "has 0")),
    Rejected(
        name="no payload", text=WRITE, code="payload_count", parts=("takes 1 payload,", "has 0", "'a.py'", "line 1")
    ),
    Rejected(name="no payload, but a completion", text=WRITE + DONE, code="payload_count"),
    Rejected(
        name="one payload too few",
        text=TWO + "```\nx\n```\n",
        code="payload_count",
        parts=("takes 2 payloads", "has 1", "'b.py'", "line 2"),
    ),
    Rejected(
        name="one payload too many",
        text=WRITE + "```\nx\n```\n```\ny\n```\n",
        code="payload_count",
        parts=("takes 1 payload,", "line 7", "````"),
    ),
    Rejected(
        name="an unbalanced bare fence in a payload makes one too many",
        text=WRITE + "```md\n```\nx\n```\n",
        code="payload_count",
    ),
    Rejected(
        name="replace with one payload",
        text='```codepilot\nwrite_file("a", mode="replace")\n```\n```\nx\n```\n',
        code="payload_count",
    ),
    Rejected(
        name="another file",
        text=WRITE + "```py filename=b.py\nx\n```\n",
        code="filename_mismatch",
        parts=("Payload 1", "line 4", "filename=b.py", "'a.py'", "line 1"),
    ),
    Rejected(
        name="payloads in the wrong order",
        text=TWO + "```py filename=b.py\nx\n```\n```py filename=a.py\ny\n```\n",
        code="filename_mismatch",
    ),
    Rejected(
        name="the same name in another folder",
        text=WRITE + "```py filename=src/a.py\nx\n```\n",
        code="filename_mismatch",
    ),
    Rejected(
        name="an absolute path is another file", text=WRITE + "```py filename=/a.py\nx\n```\n", code="filename_mismatch"
    ),
)

ACCEPTED = BLOCKS + PROSE + PAYLOADS + BYTES + EARLY_ENDS
CASES: tuple[Accepted | Rejected, ...] = ACCEPTED + REJECTED
