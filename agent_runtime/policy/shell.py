r"""Match commands and paths with the patterns of rules. Pure.

tree-sitter's grammar parses unlike bash in places: `a\<newline>b` is two words to it and one to bash. So only
constructs that every reader takes alike count as understood; no rule approves a command with a doubt.
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


_MAX_CHARS, _MAX_LINES, _MAX_JOINTS = 12_000, 1_000, 250
"""Parsing time grows with joints times characters and holds the GIL: 3 s for 20,000 characters of `a|`."""

_JOINT = re.compile(r"[;&|(`{]|<<")

_MAX_DEPTH = 30

_MAX_LABEL_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """A simple command.

    Attributes:
        words: None for a word known only at run time, of any number; None for all if even their start is unknown.
        doubt: reason that the words may be incomplete, or empty.
    """

    text: str
    words: tuple[str | None, ...] | None
    doubt: str = ""


def parse_commands(text: str) -> tuple[ParsedCommand, ...]:
    """Return every simple command of a text at any depth, at least one."""
    issue = exceeded_limit(text)
    if not issue and (hidden := next((char for char in text if not char.isprintable() and char not in "\n\t"), "")):
        issue = f"it holds the character U+{ord(hidden):04X}"
    if issue:
        return (ParsedCommand(text=_shorten(text), words=None, doubt=issue),)
    data = text.encode()
    root = _parser().parse(data).root_node
    commands = list(_CommandReader(data).read_body(root, 0))
    if root.has_error:
        commands = [replace(command, doubt=command.doubt or "the whole does not parse") for command in commands]
        commands.append(ParsedCommand(text=_shorten(text), words=None, doubt="it does not parse"))
    return tuple(commands) or (ParsedCommand(text=_shorten(text), words=()),)


def exceeded_limit(text: str) -> str:
    if len(text) > _MAX_CHARS:
        return f"it is longer than {_MAX_CHARS:,} characters"
    if text.count("\n") >= _MAX_LINES:
        return f"it has more than {_MAX_LINES:,} lines"
    if len(_JOINT.findall(text)) > _MAX_JOINTS:
        return f"it has more than {_MAX_JOINTS} signs such as ; & | ( that open or join commands"
    return ""


@cache
def _parser() -> Parser:
    import tree_sitter  # noqa: PLC0415 - see TYPE_CHECKING above
    import tree_sitter_bash  # noqa: PLC0415 - the same

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _shorten(text: str) -> str:
    line = " ".join(text[: 4 * _MAX_LABEL_CHARS].split()) + ("…" if len(text) > 4 * _MAX_LABEL_CHARS else "")
    return line if len(line) <= _MAX_LABEL_CHARS else f"{line[: _MAX_LABEL_CHARS - 1]}…"


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


class _CommandReader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_body(self, node: Node, depth: int) -> Iterator[ParsedCommand]:
        if depth > _MAX_DEPTH:
            yield self._unparsed(node, "it nests too deeply")
            return
        if issue := self._structure_doubt(node):
            yield self._unparsed(node, issue)
        doubt = issue or ("it runs in the background" if any(child.type == "&" for child in node.children) else "")
        for child in node.named_children:
            for command in self._statement(child, depth):
                yield replace(command, doubt=command.doubt or doubt)

    def _structure_doubt(self, node: Node) -> str:
        """Return the reason that bash may see another structure, or an empty string."""
        if node.type == "subshell" and self._text(node).startswith("(("):
            return "it may be arithmetic"
        tokens = {child.type for child in node.children if not child.is_named}
        if unknown := tokens - _JOINTS:
            return f"`{min(unknown)}` is not understood"
        start, end = (0, len(self._data)) if node.type == "program" else (node.start_byte, node.end_byte)
        return "" if self._gaps_match(_SPACE, [start, *_bounds(node.children), end]) else "part of it was not read"

    def _statement(self, node: Node, depth: int) -> Iterator[ParsedCommand]:
        kind = node.type
        if kind in _BODIES:
            yield from self.read_body(node, depth + 1)
        elif kind == "command":
            yield self._simple_command(node)
            for child in node.children:
                yield from self._nested_commands(child, "it is substituted")
        elif kind == "redirected_statement":
            yield from self._redirected(node, depth)
        elif kind == "comment":
            before = self._data[max(0, node.start_byte - 1) : node.start_byte]
            if before not in {b"", b" ", b"\t", b"\n"} or "\n" in self._text(node):
                yield self._unparsed(node, "it may be no comment")
        elif kind in _COMPOUND:
            doubt = f"it is in {_COMPOUND[kind]}"
            yield ParsedCommand(text=self._label(node), words=(), doubt=doubt)
            yield from self._nested_commands(node, doubt)
        elif kind in {"declaration_command", "unset_command"}:
            name = node.children[0].type if node.children else ""
            yield ParsedCommand(text=self._label(node), words=(name, None), doubt="it changes variables")
            yield from self._nested_commands(node, "it is substituted")
        elif kind in {"variable_assignment", "variable_assignments"}:
            yield ParsedCommand(text=self._label(node), words=(), doubt="it sets a variable")
            yield from self._nested_commands(node, "it is substituted")
        else:
            yield self._unparsed(node, f"{kind.replace('_', ' ')} is not understood")
            yield from self._nested_commands(node, "it is in a part that is not understood")

    def _redirected(self, node: Node, depth: int) -> Iterator[ParsedCommand]:
        gap = doubt = self._gap_doubt(node)
        commands: list[ParsedCommand] = [self._unparsed(node, gap)] if gap else []
        for child in node.children:
            if child.type in _REDIRECTS:
                doubt = doubt or self._redirect_doubt(child)
                commands += self._nested_commands(child, "it is substituted")
            else:
                commands += self._statement(child, depth)
        commands = commands or [ParsedCommand(text=self._label(node), words=())]
        for command in commands:
            yield replace(command, doubt=command.doubt or doubt)

    def _simple_command(self, node: Node) -> ParsedCommand:
        words: list[str | None] = []
        gap = doubt = self._gap_doubt(node)
        for child in node.children:
            if child.type == "variable_assignment":
                doubt = doubt or "it sets a variable"
            elif child.type in _REDIRECTS:
                doubt = doubt or self._redirect_doubt(child)
            else:
                word, word_doubt = self._word(child.children[0] if child.type == "command_name" else child)
                words.append(word)
                doubt = doubt or word_doubt
        name = words[0] if words else ""
        if name is None:
            doubt = doubt or "only the run can tell which program it is"
        elif name in _RESERVED or "=" in name or name[:1] == "%":
            doubt = doubt or f"`{_shorten(name)}` names no program"
        return ParsedCommand(text=self._label(node), words=None if gap else tuple(words), doubt=doubt)

    def _nested_commands(self, node: Node, doubt: str) -> Iterator[ParsedCommand]:
        """Yield commands anywhere below a node; no rule can approve them."""
        pending = [node]
        while pending:
            child = pending.pop()
            if child.type == "command":
                yield replace(self._simple_command(child), doubt=doubt)
            pending += reversed(child.children)

    def _word(self, node: Node) -> tuple[str | None, str]:
        if node.type != "concatenation":
            return self._piece(node)
        pieces = [self._piece(child) for child in node.children]
        if any(left.end_byte != right.start_byte for left, right in pairwise(node.children)):
            return None, "a word has a gap"
        values = [value for value, _ in pieces]
        doubt = next((piece_doubt for _, piece_doubt in pieces if piece_doubt), "")
        return (None if None in values else "".join(filter(None, values))), doubt

    def _piece(self, node: Node) -> tuple[str | None, str]:
        text = self._text(node)
        kind = node.type
        if kind in {"word", "number"} and not node.children:
            if _BARE.fullmatch(text):
                return _ESCAPED.sub(r"\1", text), ""
            # Such a glob stays no option, whatever the names are that it stands for.
            return None, "" if _GLOB.fullmatch(text) else f"`{_shorten(text)}` stands for something else"
        quoted = _SINGLE.fullmatch(text) if kind == "raw_string" else _DOUBLE.fullmatch(text)
        if kind in {"raw_string", "string"} and quoted:
            return (quoted[1] if kind == "raw_string" else _ESCAPED.sub(r"\1", quoted[1])), ""
        return None, f"`{_shorten(text)}` stands for something else"

    def _redirect_doubt(self, node: Node) -> str:
        text = self._data[node.start_byte : node.end_byte]
        if node.type == "file_redirect" and _HARMLESS_REDIRECT.fullmatch(text):
            return ""
        return f"`{self._label(node)}` redirects"

    def _gap_doubt(self, node: Node) -> str:
        bounds = list(_bounds(node.children))
        if not self._gaps_match(_BLANK, bounds[1:-1]):
            return "part of it was not read"
        for left, right in pairwise(node.children):
            operator = right.type in _REDIRECTS and self._data[right.start_byte : right.start_byte + 1] in b"<>&"
            if left.end_byte == right.start_byte and not operator:
                return "two of its words touch"
        return ""

    def _gaps_match(self, gap: re.Pattern[bytes], bounds: list[int]) -> bool:
        return all(gap.fullmatch(self._data[start:end]) for start, end in zip(bounds[::2], bounds[1::2], strict=True))

    def _unparsed(self, node: Node, doubt: str) -> ParsedCommand:
        return ParsedCommand(text=self._label(node), words=None, doubt=doubt)

    def _label(self, node: Node) -> str:
        return _shorten(
            self._data[node.start_byte : min(node.end_byte, node.start_byte + 8 * _MAX_LABEL_CHARS)].decode(
                errors="replace"
            )
        )

    def _text(self, node: Node) -> str:
        return self._data[node.start_byte : node.end_byte].decode(errors="replace")


def _bounds(nodes: list[Node]) -> Iterator[int]:
    for node in nodes:
        yield node.start_byte
        yield node.end_byte


RUNNERS = frozenset(
    {
        ".", "alias", "bash", "builtin", "busybox", "bwrap", "chroot", "chrt", "command", "coproc", "dash", "doas",
        "enable", "env", "eval", "exec", "fakeroot", "fish", "flock", "hash", "ionice", "ksh", "ltrace", "nice",
        "nohup", "npx", "nsenter", "parallel", "pkexec", "prlimit", "runuser", "script", "set", "setarch", "setsid",
        "sh", "shopt", "source", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout",
        "trap", "unalias", "unshare", "uvx", "watch", "xargs", "xvfb-run", "zsh",
    }
)  # fmt: skip
"""Programs that run their arguments or change the meaning of names."""

_FIND_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir", None})


class Fit(Enum):
    """Certainty that a pattern matches a command."""

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPattern:
    """A command pattern of a rule, e.g. `git diff *`, split like a shell's words.

    `*` as the last word matches any further words, elsewhere one word, and inside a word any characters; the latter two
    match no `..` in a path, and at the start no option. `<name>` matches one package name, `<path>` one path below the
    current directory, neither an option or a URL. `{-q,-v,<path>}*` at the end matches any number of these words.
    """

    text: str
    words: tuple[re.Pattern[str], ...]
    further: re.Pattern[str] | None
    program: str

    @classmethod
    @cache
    def parse(cls, text: str) -> CommandPattern:
        """Parse a pattern.

        Raises:
            SettingsError: empty, unclosed quote, or unknown placeholder.
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
        elif match := _FURTHER_WORDS.fullmatch(words[-1]):
            alternatives = dict.fromkeys(_word_expression(word).pattern for word in match[1].split(","))
            further = re.compile("|".join(f"(?:{alternative})" for alternative in alternatives), re.DOTALL)
        expressions = tuple(_word_expression(word) for word in (words if further is None else words[:-1]))
        if expressions and words[0] in PLACEHOLDERS:
            raise SettingsError(f"command pattern {text!r}: {words[0]} cannot stand for the program; write its name")
        program = words[0] if expressions and "*" not in words[0] else ""
        return cls(text=text, words=expressions, further=further, program=program)

    def covers(self, command: ParsedCommand) -> bool:
        """Return whether the pattern certainly matches, as approval requires."""
        if command.doubt or (not self.program and _may_be_runner(command.words or ())):
            return False
        return self._fit_words(command.words) is Fit.YES

    def fit(self, command: ParsedCommand) -> Fit:
        """Match for a warning: also possible matches and other paths to the program."""
        words = command.words
        fit = self._fit_words(words)
        if fit is not Fit.NO or not words or words[0] is None:
            return fit
        name = _program_name(words[0])
        fit = self._fit_words((name, *words[1:]))
        return Fit.MAYBE if fit is Fit.NO and _may_be_runner(words) else fit

    def _fit_words(self, words: tuple[str | None, ...] | None) -> Fit:
        if words is None:
            return Fit.MAYBE
        for index, expression in enumerate(self.words):
            word = words[index] if index < len(words) else ""
            if word is None:
                return Fit.MAYBE
            if index >= len(words) or not expression.fullmatch(word):
                return Fit.NO
        rest = set(words[len(self.words) :])
        if not rest or self.further is _ANY_WORD:
            return Fit.YES
        literals = [word for word in rest if word is not None]
        if literals and not (self.further and all(map(self.further.fullmatch, literals))):
            return Fit.NO
        return Fit.MAYBE if None in rest else Fit.YES


@dataclass(frozen=True, slots=True)
class CommandPatterns:
    by_program: Mapping[str, tuple[CommandPattern, ...]]

    @classmethod
    @cache
    def parse(cls, texts: tuple[str, ...]) -> CommandPatterns:
        by_program: dict[str, tuple[CommandPattern, ...]] = {}
        for pattern in map(CommandPattern.parse, texts):
            by_program[pattern.program] = (*by_program.get(pattern.program, ()), pattern)
        return cls(by_program)

    def covers(self, command: ParsedCommand) -> bool:
        return any(pattern.covers(command) for pattern in self._candidates(command))

    def fit(self, command: ParsedCommand) -> Fit:
        """Return the best fit of all patterns, for a warning."""
        words = command.words
        fallback = Fit.MAYBE if self.by_program and (words is None or _may_be_runner(words)) else Fit.NO
        fits = {pattern.fit(command) for pattern in self._candidates(command)}
        return Fit.YES if Fit.YES in fits else Fit.MAYBE if Fit.MAYBE in fits else fallback

    def _candidates(self, command: ParsedCommand) -> Iterator[CommandPattern]:
        first = (command.words[0] if command.words else None) or ""
        for program in {"", first, _program_name(first)}:
            yield from self.by_program.get(program, ())


def _may_be_runner(words: tuple[str | None, ...]) -> bool:
    first = words[0] if words else ""
    if first is None:
        return True
    name = _program_name(first)
    return name in RUNNERS or (name == "find" and not _FIND_EXEC.isdisjoint(words))


_ANY_WORD = re.compile("")

_FURTHER_WORDS = re.compile(r"\{(.+)\}\*")

_PLACEHOLDER = re.compile("<[a-z]+>")

_PACKAGE_EXTENSIONS = (
    "whl|egg|zip|tar|gz|tgz|bz2|tbz2?|xz|txz|lz|tlz|lzma|zst|conda|deb|rpm|apk|gem|crate|txt|in|toml|cfg"
)
"""Extensions by which package managers recognise a local file: `pip install evil.whl`."""

PLACEHOLDERS = {
    # A package, with extras and versions. In a word with a slash or a colon, package managers see a path, a repository
    # or a URL, except in `@scope/name`.
    "<name>": re.compile(
        rf"(?i:(?!.*\.(?:{_PACKAGE_EXTENSIONS})(?![a-z0-9_-])))"
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
    middle_parts = "".join(f"(?>.*?{re.escape(part)})" for part in middle)
    body = f"{re.escape(first)}{middle_parts}(?=.{{{len(last)}}}).*+(?<={re.escape(last)})"
    return re.compile(rf"{no_option}(?!(?:.*/)?\.\.(?:/|\Z)){body}", re.DOTALL)


def _program_name(word: str) -> str:
    return word.rpartition("/")[2]


_DIRECTORIES = "(?:[^/]*/)*?"

_PART = re.compile(r"\*+|\?|\[(?P<negation>!?)(?P<set>\]?[^\]]*)\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathGlob:
    """A path glob of a rule.

    `*`, `?` and `[…]` match within a name, `**` any directories. Without a slash, it matches names in any directory,
    with one paths from the workspace's root, with a leading one absolute paths. A trailing slash matches all below.
    """

    text: str
    exact: re.Pattern[str]
    loose: re.Pattern[str]

    @classmethod
    @cache
    def parse(cls, text: str) -> PathGlob:
        """Parse a glob.

        Raises:
            SettingsError: empty, outside the workspace, or an invalid character set.
        """
        plain = text.removeprefix("./")
        names = plain.removeprefix("/").split("/")
        if not plain.strip("/") or ".." in names or "\0" in plain:
            raise SettingsError(f"path glob {text!r}: must name files, such as 'src/**', '*.py' or '.github/**'")
        if not names[-1]:
            names[-1] = "**"
        root = "/" if plain.startswith("/") else ""
        directories = "" if root or len(names) > 1 else _DIRECTORIES
        body = _path_expression(names)
        # To warn, a name without a slash counts wherever it lies, and a directory for what it holds.
        loose = f"{root}{'(?:.*/)?' if directories else ''}{body}(?:/.*)?"
        if names[-1] == "**" and len(names) > 1:
            loose = f"(?:{loose}|{root}{_path_expression(names[:-1])})"
        start = root or "(?!/)"
        try:
            exact = re.compile(rf"{start}{directories}{body}", re.DOTALL)
            return cls(text=text, exact=exact, loose=re.compile(loose, re.DOTALL | re.IGNORECASE))
        except re.error as error:
            raise SettingsError(
                f"path glob {text!r}: what stands in `[…]` is no set of characters; write it as in `[a-z]` or `[!0-9]`"
            ) from error

    @staticmethod
    @cache
    def loose_union(globs: tuple[str, ...]) -> re.Pattern[str]:
        """Combine the loose expressions of globs; one match is faster than hundreds."""
        return re.compile(
            "|".join(f"(?:{PathGlob.parse(glob).loose.pattern})" for glob in globs), re.DOTALL | re.IGNORECASE
        )

    def covers(self, path: str) -> bool:
        """Return whether the glob certainly matches a canonical path."""
        return self.exact.fullmatch(path) is not None


def _path_expression(names: list[str]) -> str:
    """Return the expression for a path's names.

    Atomic groups take the leftmost match between two `**`, so the time is linear in the path.
    """
    runs: list[list[str]] = [[]]  # the names between the `**`
    for name in names:
        if name == "**":
            runs.append([])
        else:
            runs[-1].append(name)
    *outer, last = runs
    prefix = "".join(
        f"(?>{_DIRECTORIES if number else ''}{''.join(f'{_name_expression(name)}/' for name in run)})"
        for number, run in enumerate(outer)
    )
    end = "/".join(map(_name_expression, last)) if last else ".+"
    return f"{prefix}{_DIRECTORIES if outer and last else ''}{end}"


def _name_expression(glob: str) -> str:
    parts: list[list[str]] = [[]]  # the expressions of single characters between the stars
    for token in _PART.finditer(glob):
        if token[0].startswith("*"):
            parts.append([])
        elif token[0] == "?":
            parts[-1].append("[^/]")
        elif token["set"] is None:
            parts[-1].append(re.escape(token[0]))
        else:
            characters = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", token["set"])
            parts[-1].append(f"(?!/)[{'^' if token['negation'] else ''}{characters}]")
    first, *rest = parts
    if not rest:
        return "".join(first)
    *middle, last = rest
    middle_parts = "".join(f"(?>[^/]*?{''.join(part)})" for part in middle if part)
    end = f"(?=[^/]{{{len(last)}}})[^/]*+(?<={''.join(last)})" if last else "[^/]*+"
    return f"{''.join(first)}{middle_parts}{end}"
