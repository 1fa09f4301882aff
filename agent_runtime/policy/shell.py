r"""Match commands and paths with the patterns of rules. Pure.

`commands_of` reads a text as bash would: its simple commands, each with what is in doubt about it. A `CommandPattern`
and a `PathGlob` say how surely a command or a path is one that a rule means.

Bash's grammar (tree-sitter's) gives the structure. It is not bash itself: it takes `a\<newline>b` for two words, where
bash sees one. So nothing counts as understood because it parses; understood is only what is made of characters and
structures that mean the same to every reader, and all else is a doubt. A command with a doubt is never approved by a
rule. (`IFS`, aliases and functions do not matter here: nothing understood is split, and to change what a name means is
a command of its own, which has to be approved.)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from agent_runtime.core.errors import SettingsError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


_MOST_CHARS, _MOST_LINES, _MOST_JOINTS = 12_000, 1_000, 250
"""Of one text. The time of the grammar's parser grows with the number of signs that open or join commands times the
number of characters, and it holds the interpreter's lock: 3 s for 20,000 characters of `a|`."""

_JOINT = re.compile(r"[;&|(`{]|<<")

_MOST_DEPTH = 30

_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """One simple command.

    Attributes:
        text: as it is written, for people; on one line, cut.
        words: the program and its arguments as it would get them. A word that only the run can tell is None, and may
            stand for several words or none; the whole is None where not even their beginning is known.
        doubt: why the words are not sure to be all that happens; empty when they are.
    """

    text: str
    words: tuple[str | None, ...] | None
    doubt: str = ""


def commands_of(text: str) -> tuple[ParsedCommand, ...]:
    """Return every simple command in a text, however deep it is nested; at least one.

    Raises:
        ImportError: the grammar is not installed.
    """
    odd = excess(text)
    if not odd and (unprintable := next((char for char in text if not char.isprintable() and char not in "\n\t"), "")):
        odd = f"it holds the character U+{ord(unprintable):04X}"
    if odd:
        return (ParsedCommand(text=_short(text), words=None, doubt=odd),)
    data = text.encode()
    root = _parser().parse(data).root_node
    found = list(_Reader(data).body(root, 0))
    if root.has_error:
        found = [replace(each, doubt=each.doubt or "the whole does not parse") for each in found]
        found.append(ParsedCommand(text=_short(text), words=None, doubt="it does not parse"))
    return tuple(found) or (ParsedCommand(text=_short(text), words=()),)


def excess(text: str) -> str:
    """Return the limit that a text exceeds and beyond which it is not read; empty if there is none."""
    if len(text) > _MOST_CHARS:
        return f"it is longer than {_MOST_CHARS:,} characters"
    if text.count("\n") >= _MOST_LINES:
        return f"it has more than {_MOST_LINES:,} lines"
    if len(_JOINT.findall(text)) > _MOST_JOINTS:
        return f"it has more than {_MOST_JOINTS} signs such as ; & | ( that open or join commands"
    return ""


@cache
def _parser() -> Parser:
    import tree_sitter  # noqa: PLC0415 - see TYPE_CHECKING above
    import tree_sitter_bash  # noqa: PLC0415 - the same

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _short(text: str) -> str:
    line = " ".join(text[: 4 * _SHOWN].split()) + ("…" if len(text) > 4 * _SHOWN else "")
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


_BODIES = frozenset({"program", "list", "pipeline", "subshell"})

_JOINTS = frozenset({";", "&", "&&", "||", "|", "|&", "(", ")", "\n"})

_COMPOUND = {
    "if_statement": "an if",
    "while_statement": "a loop",
    "for_statement": "a loop",
    "c_style_for_statement": "a loop",
    "case_statement": "a case",
    "compound_statement": "braces",
    "negated_command": "a negation",
    "function_definition": "a function",
    "test_command": "a test",
}

_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})

_RESERVED = frozenset(
    {
        "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
        "select", "then", "until", "while", "{", "}",
    }
)  # fmt: skip

_BLANK = re.compile(rb"(?:[ \t]|(?<=[ \t])\\\n)*")

_SPACE = re.compile(rb"(?:[ \t\n]|(?<=[ \t\n])\\\n)*")

_BARE = re.compile(r"(?:[A-Za-z0-9_@%+=:,./-]|\\[!-~ ])*")

_GLOB = re.compile(r"[A-Za-z0-9_./](?:[A-Za-z0-9_@%+=:,./*?\[\]-]|\\[!-~ ])*")

_ESCAPED = re.compile(r"\\(.)")

_SINGLE = re.compile(r"'([^']*)'")

_DOUBLE = re.compile(r'"((?:[^"\\$`!]|\\["\\$`])*)"')

_HARMLESS_REDIRECT = re.compile(rb"(?:[12]?>>?|&>>?|0?<)[ \t]*/dev/null|[12]?>&[12]")


class _Reader:
    """A reader of the syntax tree of one text."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def body(self, node: Node, depth: int) -> Iterator[ParsedCommand]:
        """Yield the commands of a list, a pipeline, a subshell or the whole text."""
        if depth > _MOST_DEPTH:
            yield self._unknown(node, "it nests too deeply")
            return
        if odd := self._structure_doubt(node):
            yield self._unknown(node, odd)
        doubt = odd or ("it runs in the background" if any(child.type == "&" for child in node.children) else "")
        for child in node.named_children:
            for command in self._statement(child, depth):
                yield replace(command, doubt=command.doubt or doubt)

    def _structure_doubt(self, node: Node) -> str:
        """Return why bash may see another structure here; empty if it cannot."""
        if node.type == "subshell" and self._text(node).startswith("(("):
            return "it may be arithmetic"
        tokens = {child.type for child in node.children if not child.is_named}
        if odd := tokens - _JOINTS:
            return f"`{min(odd)}` is not understood"
        start, end = (0, len(self._data)) if node.type == "program" else (node.start_byte, node.end_byte)
        return "" if self._gaps_match(_SPACE, [start, *_bounds(node.children), end]) else "part of it was not read"

    def _statement(self, node: Node, depth: int) -> Iterator[ParsedCommand]:
        kind = node.type
        if kind in _BODIES:
            yield from self.body(node, depth + 1)
        elif kind == "command":
            yield self._simple_command(node)
            for child in node.children:
                yield from self._nested(child, "it is substituted")
        elif kind == "redirected_statement":
            yield from self._redirected(node, depth)
        elif kind == "comment":
            before = self._data[max(0, node.start_byte - 1) : node.start_byte]
            if before not in {b"", b" ", b"\t", b"\n"} or "\n" in self._text(node):
                yield self._unknown(node, "it may be no comment")
        elif kind in _COMPOUND:
            doubt = f"it is in {_COMPOUND[kind]}"
            yield ParsedCommand(text=self._shown(node), words=(), doubt=doubt)
            yield from self._nested(node, doubt)
        elif kind in {"declaration_command", "unset_command"}:
            name = node.children[0].type if node.children else ""
            yield ParsedCommand(text=self._shown(node), words=(name, None), doubt="it changes variables")
            yield from self._nested(node, "it is substituted")
        elif kind in {"variable_assignment", "variable_assignments"}:
            yield ParsedCommand(text=self._shown(node), words=(), doubt="it sets a variable")
            yield from self._nested(node, "it is substituted")
        else:
            yield self._unknown(node, f"{kind.replace('_', ' ')} is not understood")
            yield from self._nested(node, "it is in a part that is not understood")

    def _redirected(self, node: Node, depth: int) -> Iterator[ParsedCommand]:
        odd = doubt = self._gap_doubt(node)
        found: list[ParsedCommand] = [self._unknown(node, odd)] if odd else []
        for child in node.children:
            if child.type in _REDIRECTS:
                doubt = doubt or self._redirect_doubt(child)
                found += self._nested(child, "it is substituted")
            else:
                found += self._statement(child, depth)
        found = found or [ParsedCommand(text=self._shown(node), words=())]
        for command in found:
            yield replace(command, doubt=command.doubt or doubt)

    def _simple_command(self, node: Node) -> ParsedCommand:
        words: list[str | None] = []
        odd = doubt = self._gap_doubt(node)
        for child in node.children:
            if child.type == "variable_assignment":
                doubt = doubt or "it sets a variable"
            elif child.type in _REDIRECTS:
                doubt = doubt or self._redirect_doubt(child)
            else:
                word, why = self._word(child.children[0] if child.type == "command_name" else child)
                words.append(word)
                doubt = doubt or why
        name = words[0] if words else ""
        if name is None:
            doubt = doubt or "only the run can tell which program it is"
        elif name in _RESERVED or "=" in name or name[:1] == "%":
            doubt = doubt or f"`{_short(name)}` names no program"
        return ParsedCommand(text=self._shown(node), words=None if odd else tuple(words), doubt=doubt)

    def _nested(self, node: Node, doubt: str) -> Iterator[ParsedCommand]:
        """Yield the simple commands anywhere beneath a node; they run, but no rule can approve them."""
        pending = [node]
        while pending:
            child = pending.pop()
            if child.type == "command":
                yield replace(self._simple_command(child), doubt=doubt)
            pending += reversed(child.children)

    def _word(self, node: Node) -> tuple[str | None, str]:
        """Return a word's value, and the doubt about it."""
        if node.type != "concatenation":
            return self._piece(node)
        pieces = [self._piece(child) for child in node.children]
        if any(one.end_byte != other.start_byte for one, other in pairwise(node.children)):
            return None, "a word has a gap"
        values = [value for value, _ in pieces]
        doubt = next((why for _, why in pieces if why), "")
        return (None if None in values else "".join(filter(None, values))), doubt

    def _piece(self, node: Node) -> tuple[str | None, str]:
        text = self._text(node)
        kind = node.type
        if kind in {"word", "number"} and not node.children:
            if _BARE.fullmatch(text):
                return _ESCAPED.sub(r"\1", text), ""
            # Such a glob stays no option, whatever the names are that it stands for.
            return None, "" if _GLOB.fullmatch(text) else f"`{_short(text)}` stands for something else"
        quoted = _SINGLE.fullmatch(text) if kind == "raw_string" else _DOUBLE.fullmatch(text)
        if kind in {"raw_string", "string"} and quoted:
            return (quoted[1] if kind == "raw_string" else _ESCAPED.sub(r"\1", quoted[1])), ""
        return None, f"`{_short(text)}` stands for something else"

    def _redirect_doubt(self, node: Node) -> str:
        text = self._data[node.start_byte : node.end_byte]
        if node.type == "file_redirect" and _HARMLESS_REDIRECT.fullmatch(text):
            return ""
        return f"`{self._shown(node)}` redirects"

    def _gap_doubt(self, node: Node) -> str:
        """Return the doubt about the gaps between the words of a command: each must be blanks."""
        bounds = list(_bounds(node.children))
        if not self._gaps_match(_BLANK, bounds[1:-1]):
            return "part of it was not read"
        for one, other in pairwise(node.children):
            operator = other.type in _REDIRECTS and self._data[other.start_byte : other.start_byte + 1] in b"<>&"
            if one.end_byte == other.start_byte and not operator:
                return "two of its words touch"
        return ""

    def _gaps_match(self, gap: re.Pattern[bytes], bounds: list[int]) -> bool:
        """Return whether all gaps match, given the bounds of each."""
        return all(gap.fullmatch(self._data[start:end]) for start, end in zip(bounds[::2], bounds[1::2], strict=True))

    def _unknown(self, node: Node, doubt: str) -> ParsedCommand:
        return ParsedCommand(text=self._shown(node), words=None, doubt=doubt)

    def _shown(self, node: Node) -> str:
        """Return the text of a node for people: of one that holds all others, not the whole is decoded for each."""
        return _short(
            self._data[node.start_byte : min(node.end_byte, node.start_byte + 8 * _SHOWN)].decode(errors="replace")
        )

    def _text(self, node: Node) -> str:
        return self._data[node.start_byte : node.end_byte].decode(errors="replace")


def _bounds(nodes: list[Node]) -> Iterator[int]:
    for node in nodes:
        yield node.start_byte
        yield node.end_byte


RUNS_OTHERS = frozenset(
    {
        ".", "alias", "bash", "builtin", "busybox", "bwrap", "chroot", "chrt", "command", "coproc", "dash", "doas",
        "enable", "env", "eval", "exec", "fakeroot", "fish", "flock", "hash", "ionice", "ksh", "ltrace", "nice",
        "nohup", "npx", "nsenter", "parallel", "pkexec", "prlimit", "runuser", "script", "set", "setarch", "setsid",
        "sh", "shopt", "source", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout",
        "trap", "unalias", "unshare", "uvx", "watch", "xargs", "xvfb-run", "zsh",
    }
)  # fmt: skip
"""Programs and words that run what their arguments name, or change what later names mean."""

_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir", None})


class Fit(Enum):
    """How surely a command is one that a pattern means."""

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPattern:
    """A command as a rule names it, e.g. `git diff *`.

    It is split into words as a shell would. A word means itself; `*` as the last word stands for any further words,
    none included; a lone `*` before the end for any one word; `*` inside a word for any characters of it. A `*` of the
    last two kinds stands for no `..` in a path, and a word that begins with it for no option. `<name>` stands for one
    word that names a package or the like, `<path>` for one path below the current directory; neither stands for an
    option or a URL. `{-q,-v,<path>}*` as the last word stands for any number of further words, each one of these.

    Attributes:
        text: as it was given.
        words: one a word.
        further: of each further word; None if there may be none.
        program: the first word; empty where that has a `*`.
    """

    text: str
    words: tuple[re.Pattern[str], ...]
    further: re.Pattern[str] | None
    program: str

    @classmethod
    @cache
    def parse(cls, text: str) -> CommandPattern:
        """Read a pattern.

        Raises:
            SettingsError: it is empty, a quote in it is not closed, or it has an unknown placeholder.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise SettingsError(f"command pattern {text!r}: {error}; close it, or leave it out") from error
        if not words:
            raise SettingsError("a command pattern is empty; name a program, e.g. 'pytest *', or '*' for any command")
        further: re.Pattern[str] | None = None
        if words[-1] == "*":
            further = _ANY_WORD
        elif found := _FURTHER_WORDS.fullmatch(words[-1]):
            alternatives = dict.fromkeys(_word_expression(word).pattern for word in found[1].split(","))
            further = re.compile("|".join(f"(?:{each})" for each in alternatives), re.DOTALL)
        wanted = tuple(_word_expression(word) for word in (words if further is None else words[:-1]))
        if wanted and words[0] in PLACEHOLDERS:
            raise SettingsError(f"command pattern {text!r}: {words[0]} cannot stand for the program; write its name")
        program = words[0] if wanted and "*" not in words[0] else ""
        return cls(text=text, words=wanted, further=further, program=program)

    def covers(self, command: ParsedCommand) -> bool:
        """Whether the command is one of these, and nothing else happens: what an approval needs."""
        if command.doubt or (not self.program and _may_run_others(command.words or ())):
            return False
        return self._fit(command.words) is Fit.YES

    def touches(self, command: ParsedCommand) -> Fit:
        """Whether the command may be one of these, also by another path to the program: what a warning needs."""
        words = command.words
        fit = self._fit(words)
        if fit is not Fit.NO or not words or words[0] is None:
            return fit
        name = _program_name(words[0])
        fit = self._fit((name, *words[1:]))
        return Fit.MAYBE if fit is Fit.NO and _may_run_others(words) else fit

    def _fit(self, words: tuple[str | None, ...] | None) -> Fit:
        if words is None:
            return Fit.MAYBE
        for index, wanted in enumerate(self.words):
            word = words[index] if index < len(words) else ""
            if word is None:
                return Fit.MAYBE
            if index >= len(words) or not wanted.fullmatch(word):
                return Fit.NO
        rest = set(words[len(self.words) :])
        if not rest or self.further is _ANY_WORD:
            return Fit.YES
        known = [word for word in rest if word is not None]
        if known and not (self.further and all(map(self.further.fullmatch, known))):
            return Fit.NO
        return Fit.MAYBE if None in rest else Fit.YES


@dataclass(frozen=True, slots=True)
class CommandPatterns:
    """The patterns of one rule, by the program that they name: a list of hundreds costs as little as one of a few."""

    by_program: Mapping[str, tuple[CommandPattern, ...]]

    @classmethod
    @cache
    def parse(cls, texts: tuple[str, ...]) -> CommandPatterns:
        """Read patterns; raises `SettingsError` as `CommandPattern.parse` does."""
        by_program: dict[str, tuple[CommandPattern, ...]] = {}
        for pattern in map(CommandPattern.parse, texts):
            by_program[pattern.program] = (*by_program.get(pattern.program, ()), pattern)
        return cls(by_program)

    def covers(self, command: ParsedCommand) -> bool:
        """Whether one of them covers the command; see `CommandPattern.covers`."""
        return any(pattern.covers(command) for pattern in self._about(command))

    def touches(self, command: ParsedCommand) -> Fit:
        """Return how surely the command is one that the surest of them means; see `CommandPattern.touches`."""
        words = command.words
        least = Fit.MAYBE if self.by_program and (words is None or _may_run_others(words)) else Fit.NO
        fits = {pattern.touches(command) for pattern in self._about(command)}
        return Fit.YES if Fit.YES in fits else Fit.MAYBE if Fit.MAYBE in fits else least

    def _about(self, command: ParsedCommand) -> Iterator[CommandPattern]:
        """Yield the patterns that a command with a known first word can fit."""
        first = (command.words[0] if command.words else None) or ""
        for program in {"", first, _program_name(first)}:
            yield from self.by_program.get(program, ())


def _may_run_others(words: tuple[str | None, ...]) -> bool:
    first = words[0] if words else ""
    if first is None:
        return True
    name = _program_name(first)
    return name in RUNS_OTHERS or (name == "find" and not _FIND_RUNS.isdisjoint(words))


_ANY_WORD = re.compile("")

_FURTHER_WORDS = re.compile(r"\{(.+)\}\*")

_PLACEHOLDER = re.compile("<[a-z]+>")

_PACKED = "whl|egg|zip|tar|gz|tgz|bz2|tbz2?|xz|txz|lz|tlz|lzma|zst|conda|deb|rpm|apk|gem|crate|txt|in|toml|cfg"
"""Endings by which package managers tell a file of the current directory from a name: `pip install evil.whl`."""

PLACEHOLDERS = {
    # A package, with extras and versions. In a word with a slash or a colon, package managers see a path, a repository
    # or a URL, except in `@scope/name`.
    "<name>": re.compile(
        rf"(?i:(?!.*\.(?:{_PACKED})(?![a-z0-9_-])))"
        r"(?a:@[a-z0-9][\w.-]*/[a-z0-9](?:[\w.-]*[a-z0-9])?(?:@[~^<>=]{0,2}[a-z0-9][\w.*+-]*)?"
        r"|[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?:\[[\w.,-]*\])?(?:[@=<>!~^]{1,3}[A-Za-z0-9][\w.*+-]*,?)*+)(?<![,-])"
    ),
    # A relative path, also of a test in a file (`a.py::test_b`, `a.rb:12`). A colon may end a scheme, `@` may name a
    # file of options, `+` a toolchain, and `X=1` may be a variable.
    "<path>": re.compile(
        r"(?![-/~@+]|\w+[+:?]?=|[\w+-]+:\d)(?!(?:.*/)?\.\.(?:/|\Z))(?:[^:]|::)++(?::\d+)*+", re.DOTALL | re.ASCII
    ),
}


def _word_expression(word: str) -> re.Pattern[str]:
    if word in PLACEHOLDERS:
        return PLACEHOLDERS[word]
    if _PLACEHOLDER.fullmatch(word):
        raise SettingsError(f"command pattern: {word} is no placeholder; write {' or '.join(PLACEHOLDERS)}")
    if "*" not in word:
        return re.compile(re.escape(word))
    no_option = "(?!-)" if word.startswith("*") else ""
    first, *middle, last = re.split(r"\*+", word)
    # What stands between two stars is taken where it stands first, and never given back: no pattern backtracks.
    taken = "".join(f"(?>.*?{re.escape(part)})" for part in middle)
    inside = f"{re.escape(first)}{taken}(?=.{{{len(last)}}}).*+(?<={re.escape(last)})"
    return re.compile(rf"{no_option}(?!(?:.*/)?\.\.(?:/|\Z)){inside}", re.DOTALL)


def _program_name(word: str) -> str:
    return word.rpartition("/")[2]


_DIRECTORIES = "(?:[^/]*/)*?"

_PART = re.compile(r"\*+|\?|\[(?P<negation>!?)(?P<set>\]?[^\]]*)\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathGlob:
    """Which files a rule is about.

    `*`, `?` and `[…]` stand for characters of one name, `**` for any directories. A glob without a slash is about
    names in any directory; one with a slash about paths from the workspace's root; one that begins with a slash about
    paths of the machine. A slash at the end means all that lies beneath.

    Attributes:
        text: as it was given.
        exact: what it means to the letter.
        loose: the same whatever the case, and with a directory that it names all that lies in it.
    """

    text: str
    exact: re.Pattern[str]
    loose: re.Pattern[str]

    @classmethod
    @cache
    def parse(cls, text: str) -> PathGlob:
        """Read a glob.

        Raises:
            SettingsError: it is empty, leaves the workspace, or a set of characters in it is none.
        """
        plain = text.removeprefix("./")
        names = plain.removeprefix("/").split("/")
        if not plain.strip("/") or ".." in names or "\0" in plain:
            raise SettingsError(f"path glob {text!r}: must name files, such as 'src/**', '*.py' or '.github/**'")
        if not names[-1]:
            names[-1] = "**"
        root = "/" if plain.startswith("/") else ""
        inside = "" if root or len(names) > 1 else _DIRECTORIES
        body = _path_expression(names)
        # To warn, a name without a slash counts wherever it lies, and a directory for what it holds.
        loose = f"{root}{'(?:.*/)?' if inside else ''}{body}(?:/.*)?"
        if names[-1] == "**" and len(names) > 1:
            loose = f"(?:{loose}|{root}{_path_expression(names[:-1])})"
        beneath = root or "(?!/)"
        try:
            exact = re.compile(rf"{beneath}{inside}{body}", re.DOTALL)
            return cls(text=text, exact=exact, loose=re.compile(loose, re.DOTALL | re.IGNORECASE))
        except re.error as error:
            raise SettingsError(
                f"path glob {text!r}: what stands in `[…]` is no set of characters; write it as in `[a-z]` or `[!0-9]`"
            ) from error

    @staticmethod
    @cache
    def loose_union(globs: tuple[str, ...]) -> re.Pattern[str]:
        """Return an expression for the canonical paths that one of several globs may mean: what a warning needs.

        One match is faster than hundreds.
        """
        return re.compile(
            "|".join(f"(?:{PathGlob.parse(glob).loose.pattern})" for glob in globs), re.DOTALL | re.IGNORECASE
        )

    def covers(self, path: str) -> bool:
        """Whether a canonical path is surely meant: what an approval needs."""
        return self.exact.fullmatch(path) is not None


def _path_expression(names: list[str]) -> str:
    """Return the expression for a path of names; `**` at the end means at least one name, elsewhere any number.

    Names between two `**` are best taken where they stand first, so nothing of what was taken is ever given back
    (`(?>…)`): the time is linear in the path, whatever the glob.
    """
    runs: list[list[str]] = [[]]  # the names between the `**`
    for name in names:
        if name == "**":
            runs.append([])
        else:
            runs[-1].append(name)
    *outer, last = runs
    ahead = "".join(
        f"(?>{_DIRECTORIES if number else ''}{''.join(f'{_name_expression(each)}/' for each in run)})"
        for number, run in enumerate(outer)
    )
    end = "/".join(map(_name_expression, last)) if last else ".+"
    return f"{ahead}{_DIRECTORIES if outer and last else ''}{end}"


def _name_expression(glob: str) -> str:
    """Return the expression for one name. A part between two stars is matched where it stands first, too."""
    parts: list[list[str]] = [[]]  # the expressions of single characters between the stars
    for found in _PART.finditer(glob):
        if found[0].startswith("*"):
            parts.append([])
        elif found[0] == "?":
            parts[-1].append("[^/]")
        elif found["set"] is None:
            parts[-1].append(re.escape(found[0]))
        else:
            inside = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", found["set"])
            parts[-1].append(f"(?!/)[{'^' if found['negation'] else ''}{inside}]")
    first, *rest = parts
    if not rest:
        return "".join(first)
    *middle, last = rest
    taken = "".join(f"(?>[^/]*?{''.join(each)})" for each in middle if each)
    end = f"(?=[^/]{{{len(last)}}})[^/]*+(?<={''.join(last)})" if last else "[^/]*+"
    return f"{''.join(first)}{taken}{end}"
