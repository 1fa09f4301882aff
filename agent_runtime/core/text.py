"""Text in chunks or other dialects: fences, binary data, newer Python, git's names. Pure."""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
import warnings
from collections.abc import Collection
from dataclasses import dataclass

MAX_REPLY_CHARS = 2_000_000
"""Bound of a reply, above any model's output limit."""

_MIN_FENCE_LENGTH = 3

_MAX_INDENT = 3

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAX_PATH_CHARS = 200

_FILENAME = re.compile(r"""(?:^|\s)filename=(?:"([^"]*)"|'([^']*)'|(\S+))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceLine:
    """A line that opens or closes a fence, verbatim in `text`."""

    text: str
    char: str
    length: int
    info: str
    line: int

    @property
    def language(self) -> str:
        """First word of the info string in lower case."""
        return self.info.split(maxsplit=1)[0].lower() if self.info else ""

    @property
    def filename(self) -> str | None:
        """The value of ``filename=``, else None."""
        match = _FILENAME.search(self.info)
        return next((value for value in match.groups() if value), None) if match else None


Token = str | FenceLine
"""Ordinary text, or one fence line, without BOM and with CRLF as LF."""


class FenceScanner:
    """Splits a stream of chunks into ordinary text and fence lines, in linear time.

    A fence line is that of CommonMark 0.31, section 4.5. Only the start of a possible one is buffered.
    """

    def __init__(self) -> None:
        self._started = False
        self._carriage_return = False
        self._line = 1
        self._in_text = False
        self._reset_line()

    def feed(self, chunk: str) -> list[Token]:
        if self._in_text and not self._carriage_return and "\n" not in chunk and "\r" not in chunk:
            return [chunk] if chunk else []  # hot path: the middle of an ordinary line
        if chunk and not self._started:
            self._started = True
            chunk = chunk.removeprefix("\ufeff")
        # CRLF becomes LF, also when split between chunks.
        if self._carriage_return and chunk:
            chunk = "\r" + chunk
            self._carriage_return = False
        if chunk.endswith("\r"):
            chunk = chunk[:-1]
            self._carriage_return = True
        return self._scan(chunk.replace("\r\n", "\n"))

    def close(self) -> list[Token]:
        tokens = self._scan("\r") if self._carriage_return else []
        self._carriage_return = False
        if self._pending:
            tokens.append(self._take_line())
        return tokens

    def _scan(self, chunk: str) -> list[Token]:
        tokens: list[Token] = []
        texts: list[str] = []
        position = 0
        while position < len(chunk):
            end = chunk.find("\n", position) + 1
            piece = chunk[position : end or len(chunk)]
            position += len(piece)
            if self._in_text or (not self._pending and piece[0] not in " `~"):
                texts.append(piece)
                self._in_text = not end
            elif self._is_text(piece):
                texts += [*self._pending, piece]
                self._reset_line()
                self._in_text = not end
            else:
                self._pending.append(piece)
                if end:
                    _flush(texts, tokens)
                    tokens.append(self._take_line())
            self._line += bool(end)
        _flush(texts, tokens)
        return tokens

    def _reset_line(self) -> None:
        self._pending: list[str] = []
        self._indent = 0
        self._char = ""
        self._length = 0
        self._in_info = False

    def _is_text(self, piece: str) -> bool:
        """Scan more of a possible fence line; True once it cannot be one."""
        rest = piece
        if not self._char:
            rest = piece.lstrip(" ")
            self._indent += len(piece) - len(rest)
            if self._indent > _MAX_INDENT or rest[:1] not in ("", "`", "~"):
                return True
            self._char = rest[:1]
        if self._char and not self._in_info:
            run = len(rest)
            rest = rest.lstrip(self._char)
            self._length += run - len(rest)
            if not rest:
                return False
            if self._length < _MIN_FENCE_LENGTH:
                return True
            self._in_info = True
        return self._char == "`" and "`" in rest

    def _take_line(self) -> Token:
        text = "".join(self._pending)
        char, length = self._char, self._length
        self._reset_line()
        if length < _MIN_FENCE_LENGTH:
            return text
        info = text.strip()[length:].strip()
        return FenceLine(text=text, char=char, length=length, info=info, line=self._line)


def _flush(texts: list[str], tokens: list[Token]) -> None:
    if texts:
        tokens.append("".join(texts))
        texts.clear()


_BINARY_RUN = re.compile(r"\ufffd(?:[^\ufffd]{0,8}\ufffd){11,}")
"""At least a dozen undecodable characters, close together; text in another encoding has fewer."""


def replace_binary(text: str) -> str:
    """Replace each stretch of binary data by a note of its length."""
    if "\ufffd" not in text:
        return text
    return _BINARY_RUN.sub(lambda stretch: f"[{len(stretch[0]):,} characters of binary data]", text)


DIALECT = f"as Python {sys.version_info.major}.{sys.version_info.minor} reads it"
"""For syntax errors: the Python version that parses."""

_IS_NEWEST = sys.version_info >= (3, 14)

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?<![\w])(?P<prefix>[A-Za-z]{0,2})(?P<quote>'{3}|"{3}|'|")
    |(?P<open>[\[({])|(?P<close>[\])}])|(?P<colon>:)|(?P<bang>!(?!=))""",
    re.VERBOSE,
)

_LITERAL = re.compile(r"\\.|\{\{|\}\}|[{}]|'{3}|\"{3}|['\"]", re.DOTALL)

_PLAIN = re.compile(r"\\.|'{3}|\"{3}|['\"]", re.DOTALL)

_PARAMETERS = re.compile(
    r"^([ \t]*(?:(?:async[ \t]+)?def|class|type)[ \t]+\w+)(\[[^\n]*?\])(?=[ \t]*[(:=])", re.MULTILINE
)

_TYPE = re.compile(r"^([ \t]*)type([ \t]+)(?=\w+[ \t]*=)", re.MULTILINE)

_EXCEPT = re.compile(r"^([ \t]*except\*?[ \t]+[\w.]+(?:,[ \t]*[\w.]+)+)(?=[ \t]*:)", re.MULTILINE)

_MAX_DEPTH = 20


def replace_surrogates(text: str) -> str:
    r"""Join split surrogate pairs; replace lone surrogates, which UTF-8 cannot encode.

    Sources: `print("\ud83d")`, file names that are not UTF-8, servers that split an emoji.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def find_surrogate(value: object, path: str = "") -> str | None:
    """Return the path of a lone surrogate in JSON data, e.g. `arguments.path`, or None."""
    queue = [(path, value)]
    while queue:
        name, part = queue.pop()
        match part:
            case str() if _SURROGATE.search(part):
                return name
            case dict():
                if (key := next(filter(_SURROGATE.search, part), None)) is not None:
                    return f"the key {key[:_MAX_PATH_CHARS]!a} of {name or 'the message'}"
                queue += [(f"{name}.{key}".lstrip(".")[:_MAX_PATH_CHARS], part[key]) for key in reversed(part)]
            case list():
                queue += [(f"{name}[{i}]"[:_MAX_PATH_CHARS], part[i]) for i in reversed(range(len(part)))]
            case _:
                pass
    return None


def parse(code: str) -> ast.Module:
    """Parse Python for positions and errors; rewrite syntax newer than this Python's first.

    Rewrites keep every position: PEP 701 (3.12), 695 (3.12), 750 (3.14), 758 (3.14).

    Raises:
        SyntaxError: also after the rewrite.
        ValueError, RecursionError, MemoryError: as from `ast.parse`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the agent's code
        try:
            return ast.parse(code)
        except SyntaxError as error:
            rewritten = None if _IS_NEWEST else _rewrite(code)
            if rewritten is None:
                raise
            try:
                return ast.parse(rewritten)
            except SyntaxError:
                raise error from None


def _rewrite(code: str) -> str | None:
    try:
        pieces, position = [], 0
        while (token := _TOKEN.search(code, position)) is not None:
            end = token.end()
            if token["quote"]:
                prefix = token["prefix"].replace("t", "f").replace("T", "F")
                pieces += [code[position : token.start()], prefix, token["quote"]]
                position = _find_string_end(code, token, pieces, 0)
            else:
                pieces.append(code[position:end])
                position = end
    except _UnclosedError:
        return None
    rewritten = "".join([*pieces, code[position:]])
    rewritten = _PARAMETERS.sub(lambda match: match[1] + " " * len(match[2]), rewritten)
    rewritten = _TYPE.sub(lambda match: f"{match[1]}type{'_' * len(match[2])}", rewritten)
    rewritten = _EXCEPT.sub(lambda match: match[1].replace(",", "."), rewritten)
    return rewritten if rewritten != code else None


class _UnclosedError(Exception):
    pass


def _find_string_end(code: str, opening: re.Match[str], pieces: list[str] | None, depth: int) -> int:
    """Return the end of an opened string; append its rewritten text to `pieces`."""
    quote, position = opening["quote"], opening.end()
    formatted = bool({"f", "t"} & set(opening["prefix"].lower()))
    pattern = _LITERAL if formatted else _PLAIN
    copied_to = position
    while (token := pattern.search(code, position)) is not None:
        position = token.end()
        if token[0] == quote or (len(quote) == 1 and token[0] == quote * 3):
            position = token.start() + len(quote)
            if pieces is not None:
                pieces.append(code[copied_to:position])
            return position
        if token[0] == "{" and formatted:
            if pieces is not None:
                pieces.append(code[copied_to:position])
            position = copied_to = _find_expression_end(code, position, pieces, depth + 1)
    raise _UnclosedError


def _find_expression_end(code: str, position: int, pieces: list[str] | None, depth: int) -> int:
    """Return the end of an f-string expression; see `_find_string_end`."""
    if depth > _MAX_DEPTH:
        raise _UnclosedError
    brackets, copied_to = 0, position
    rewritten: list[str] = []
    while (token := _TOKEN.search(code, position)) is not None:
        position = token.end()
        if token["quote"]:
            position = _find_string_end(code, token, None, depth)
            text = code[token.start() : position]
            # A name of the string's length. A multi-line string stays, and fails to parse.
            rewritten += [code[copied_to : token.start()], text if "\n" in text else "_" * len(text)]
            copied_to = position
        elif token["comment"]:
            rewritten += [code[copied_to : token.start()], " " * len(token[0])]
            copied_to = position
        elif token["open"]:
            brackets += 1
        elif token["close"] and brackets:
            brackets -= 1
        elif token["close"] or (not brackets and (token["colon"] or token["bang"])):
            break
    if token is None:
        raise _UnclosedError
    if pieces is not None:
        pieces += [*rewritten, code[copied_to:position]]
    return position if token["close"] else _find_format_end(code, position, pieces, depth)


def _find_format_end(code: str, position: int, pieces: list[str] | None, depth: int) -> int:
    copied_to = position
    while (token := re.compile("[{}]").search(code, position)) is not None:
        position = token.end()
        if pieces is not None:
            pieces.append(code[copied_to:position])
        if token[0] == "}":
            return position
        position = copied_to = _find_expression_end(code, position, pieces, depth + 1)
    raise _UnclosedError


_SHORT_GIT = re.compile(r"git~\d+\Z")

REPOSITORY_ENTRIES = ("HEAD", "objects", "refs", "commondir")
"""Entries that make a directory a repository (`is_git_directory` in git's setup.c)."""


def is_dot_git(name: str) -> bool:
    """Whether some file system would open `.git` under this name.

    NTFS and HFS+ rules: git's `core.protectNTFS` and `core.protectHFS`.
    """
    if name.isascii() and "git" not in name.lower():  # fast path: ten times as fast
        return False
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    plain = visible.partition(":")[0].rstrip(". ").casefold()
    return plain == ".git" or _SHORT_GIT.match(plain) is not None


def is_git_directory(names: Collection[str]) -> bool:
    """Whether git accepts a directory with these entries as a repository."""
    folded = {name.casefold() for name in names}
    return "head" in folded and ("commondir" in folded or {"objects", "refs"} <= folded)
