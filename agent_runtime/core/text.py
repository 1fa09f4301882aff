"""Text that is read piece by piece or by another Python: fences, binary data, newer syntax. Pure.

- `FenceScanner` finds fence lines in text that arrives in chunks, in linear time.
- `without_binary` leaves binary data out of a text that is shown.
- `parse` parses Python that may be newer than the running one.
- `is_git` and `is_repository` know git's names, in every spelling of a file system.
- `sendable` and `find_half_character` are about halves of surrogate pairs, which JSON can spell and UTF-8 cannot.
"""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
import warnings
from collections.abc import Collection
from dataclasses import dataclass

MAX_REPLY_CHARS = 2_000_000
"""Characters of a reply that are read; longer than any model's longest."""

_MIN_LENGTH = 3

_MAX_INDENT = 3

_HALF = re.compile(r"[\ud800-\udfff]")
_SHOWN_PLACE = 200

_FILENAME = re.compile(r"""(?:^|\s)filename=(?:"([^"]*)"|'([^']*)'|(\S+))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceLine:
    """A line that opens or closes a fence, decided once the whole line is known.

    Attributes:
        text: the line verbatim, with its newline unless the text ended without one.
        char: a backtick or a tilde.
        length: how many of them.
        info: the info string without surrounding blanks; empty for a bare fence.
        line: 1-based line number in the text.
    """

    text: str
    char: str
    length: int
    info: str
    line: int

    @property
    def word(self) -> str:
        """The first word of the info string, in lower case; it decides what the block is."""
        return self.info.split(maxsplit=1)[0].lower() if self.info else ""

    @property
    def filename(self) -> str | None:
        """The value of ``filename=`` (bare or in quotes), else None."""
        match = _FILENAME.search(self.info)
        return next((value for value in match.groups() if value), None) if match else None


Token = str | FenceLine
"""A run of ordinary text, or one fence line. Together they are the text, BOM dropped and CRLF read as LF."""


class FenceScanner:
    """Cuts a stream of chunks into ordinary text and fence lines.

    A fence line has at most 3 spaces, then 3 or more backticks or tildes, then an info string, which for backticks
    holds no backtick (CommonMark 0.31, section 4.5; blanks after a bare fence do not count). Ordinary text is passed
    on at once: what is held back is the prefix of a line that may yet be a fence, and a carriage return that may
    be half of a CRLF.
    """

    def __init__(self) -> None:
        self._started = False
        self._carriage_return = False
        self._line = 1
        self._in_text = False
        self._clear()

    def feed(self, chunk: str) -> list[Token]:
        """Take the next chunk, of any length, and return what it settles."""
        if self._in_text and not self._carriage_return and "\n" not in chunk and "\r" not in chunk:
            return [chunk] if chunk else []  # The hot path: the middle of an ordinary line.
        if chunk and not self._started:
            self._started = True
            chunk = chunk.removeprefix("\ufeff")
        # CRLF is read as LF, also where a chunk border cuts the pair.
        if self._carriage_return and chunk:
            chunk = "\r" + chunk
            self._carriage_return = False
        if chunk.endswith("\r"):
            chunk = chunk[:-1]
            self._carriage_return = True
        return self._scan(chunk.replace("\r\n", "\n"))

    def close(self) -> list[Token]:
        """Say that the text is over, and return what was held back."""
        tokens = self._scan("\r") if self._carriage_return else []
        self._carriage_return = False
        if self._held:
            tokens.append(self._held_line())
        return tokens

    def _scan(self, chunk: str) -> list[Token]:
        tokens: list[Token] = []
        texts: list[str] = []
        position = 0
        while position < len(chunk):
            end = chunk.find("\n", position) + 1
            piece = chunk[position : end or len(chunk)]
            position += len(piece)
            if self._in_text or (not self._held and piece[0] not in " `~"):
                texts.append(piece)
                self._in_text = not end
            elif self._is_text(piece):
                texts += [*self._held, piece]
                self._clear()
                self._in_text = not end
            else:
                self._held.append(piece)
                if end:
                    _flush(texts, tokens)
                    tokens.append(self._held_line())
            self._line += bool(end)
        _flush(texts, tokens)
        return tokens

    def _clear(self) -> None:
        """Forget the held line; the next piece begins a new one."""
        self._held: list[str] = []
        self._indent = 0
        self._char = ""
        self._length = 0
        self._in_info = False

    def _is_text(self, piece: str) -> bool:
        """Read on in a line that may be a fence; True as soon as it cannot be one."""
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
            if self._length < _MIN_LENGTH:
                return True
            self._in_info = True
        return self._char == "`" and "`" in rest

    def _held_line(self) -> Token:
        """End the held line: a fence if it got as far as one, else text."""
        text = "".join(self._held)
        char, length = self._char, self._length
        self._clear()
        if length < _MIN_LENGTH:
            return text
        info = text.strip()[length:].strip()
        return FenceLine(text=text, char=char, length=length, info=info, line=self._line)


def _flush(texts: list[str], tokens: list[Token]) -> None:
    """Move the gathered text into the tokens, as one run."""
    if texts:
        tokens.append("".join(texts))
        texts.clear()


_STRETCH = re.compile(r"\ufffd(?:[^\ufffd]{0,8}\ufffd){11,}")
"""A dozen characters or more that could not be decoded, with little between them. A text in another encoding has fewer;
where it has as many, nobody can read it either."""


def without_binary(text: str) -> str:
    """Return a text in which a note of its length replaces each stretch of binary data."""
    if "\ufffd" not in text:
        return text
    return _STRETCH.sub(lambda stretch: f"[{len(stretch[0]):,} characters of binary data]", text)


DIALECT = f"as Python {sys.version_info.major}.{sys.version_info.minor} reads it"
"""The Python that judges code which does not parse."""

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

_DEEPEST = 20


def sendable(text: str) -> str:
    r"""A text without halves of characters (lone surrogates), which no request can carry.

    They come from `print("\ud83d")`, file names that are no UTF-8, and servers that stream an emoji in halves.
    Two that belong together become the character, any other the sign for what cannot be shown.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def find_half_character(value: object, place: str = "") -> str | None:
    """Return the place of a text in JSON data that holds half of a surrogate pair, e.g. `arguments.path`; else None.

    Args:
        value: the data.
        place: the name of the data itself, with which the result begins.
    """
    waiting = [(place, value)]
    while waiting:
        name, part = waiting.pop()
        match part:
            case str() if _HALF.search(part):
                return name
            case dict():
                if (key := next(filter(_HALF.search, part), None)) is not None:
                    return f"the key {key[:_SHOWN_PLACE]!a} of {name or 'the message'}"
                waiting += [(f"{name}.{key}".lstrip(".")[:_SHOWN_PLACE], part[key]) for key in reversed(part)]
            case list():
                waiting += [(f"{name}[{i}]"[:_SHOWN_PLACE], part[i]) for i in reversed(range(len(part)))]
            case _:
                pass
    return None


def parse(code: str) -> ast.Module:
    """Parse code for its positions and errors, never to run it; newer syntax is rewritten for this Python first.

    Control code and files are written for other Pythons than the one that checks them. Each rewriting keeps the number
    of characters and of lines, so that positions in the tree are positions in the code.

    - Inside an f-string's braces (PEP 701, Python 3.12): quotes of the f-string itself, backslashes, comments. There,
      strings become names of the same length.
    - Type parameters of functions and classes, and `type` statements (PEP 695, 3.12): become blanks and names.
    - Template strings (PEP 750, 3.14): become f-strings.
    - `except A, B:` (PEP 758, 3.14): becomes `except A. B:`.

    Raises:
        SyntaxError: the code does not parse, rewritten or not.
        ValueError, RecursionError, MemoryError: as from `ast.parse`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the agent's code, which is no concern of this process
        try:
            return ast.parse(code)
        except SyntaxError as error:
            older = None if _IS_NEWEST else _rewritten(code)
            if older is None:
                raise
            try:
                return ast.parse(older)
            except SyntaxError:
                raise error from None


def _rewritten(code: str) -> str | None:
    """Return the code as this Python may parse it; None if no newer syntax is in it."""
    try:
        pieces, place = [], 0
        while (token := _TOKEN.search(code, place)) is not None:
            end = token.end()
            if token["quote"]:
                prefix = token["prefix"].replace("t", "f").replace("T", "F")
                pieces += [code[place : token.start()], prefix, token["quote"]]
                place = _string_end(code, token, pieces, 0)
            else:
                pieces.append(code[place:end])
                place = end
    except _UnclosedError:
        return None
    written = "".join([*pieces, code[place:]])
    written = _PARAMETERS.sub(lambda match: match[1] + " " * len(match[2]), written)
    written = _TYPE.sub(lambda match: f"{match[1]}type{'_' * len(match[2])}", written)
    written = _EXCEPT.sub(lambda match: match[1].replace(",", "."), written)
    return written if written != code else None


class _UnclosedError(Exception):
    """A string or brace is not closed."""


def _string_end(code: str, opened: re.Match[str], pieces: list[str] | None, depth: int) -> int:
    """Return the end of the string that opens there; add its text, rewritten, to `pieces`."""
    quote, place = opened["quote"], opened.end()
    formatted = bool({"f", "t"} & set(opened["prefix"].lower()))
    pattern = _LITERAL if formatted else _PLAIN
    copied = place
    while (token := pattern.search(code, place)) is not None:
        place = token.end()
        if token[0] == quote or (len(quote) == 1 and token[0] == quote * 3):
            place = token.start() + len(quote)
            if pieces is not None:
                pieces.append(code[copied:place])
            return place
        if token[0] == "{" and formatted:
            if pieces is not None:
                pieces.append(code[copied:place])
            place = copied = _expression_end(code, place, pieces, depth + 1)
    raise _UnclosedError


def _expression_end(code: str, place: int, pieces: list[str] | None, depth: int) -> int:
    """Return the end of the braces of an f-string that open there; see `_string_end`."""
    if depth > _DEEPEST:
        raise _UnclosedError
    brackets, copied = 0, place
    written: list[str] = []
    while (token := _TOKEN.search(code, place)) is not None:
        place = token.end()
        if token["quote"]:
            place = _string_end(code, token, None, depth)
            text = code[token.start() : place]
            # A name as long as the string; one of several lines stays what it is, which no older Python takes.
            written += [code[copied : token.start()], text if "\n" in text else "_" * len(text)]
            copied = place
        elif token["comment"]:
            written += [code[copied : token.start()], " " * len(token[0])]
            copied = place
        elif token["open"]:
            brackets += 1
        elif token["close"] and brackets:
            brackets -= 1
        elif token["close"] or (not brackets and (token["colon"] or token["bang"])):
            break
    if token is None:
        raise _UnclosedError
    if pieces is not None:
        pieces += [*written, code[copied:place]]
    return place if token["close"] else _format_end(code, place, pieces, depth)


def _format_end(code: str, place: int, pieces: list[str] | None, depth: int) -> int:
    """Return the end of the braces whose conversion or format begins there."""
    copied = place
    while (token := re.compile("[{}]").search(code, place)) is not None:
        place = token.end()
        if pieces is not None:
            pieces.append(code[copied:place])
        if token[0] == "}":
            return place
        place = copied = _expression_end(code, place, pieces, depth + 1)
    raise _UnclosedError


_SHORT_GIT = re.compile(r"git~\d+\Z")

REPOSITORY_PARTS = ("HEAD", "objects", "refs", "commondir")
"""The entries by which git recognises a repository's directory (`is_git_directory` in git's setup.c)."""


def is_git(name: str) -> bool:
    """Whether some file system would open `.git` under this name.

    NTFS drops trailing dots and spaces, has short names and streams after a colon; HFS+ ignores case and invisible
    characters. The rules are those of git's own `core.protectNTFS` and `core.protectHFS`.
    """
    if name.isascii() and "git" not in name.lower():  # nearly all; the rest takes ten times as long
        return False
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    plain = visible.partition(":")[0].rstrip(". ").casefold()
    return plain == ".git" or _SHORT_GIT.match(plain) is not None


def is_repository(names: Collection[str]) -> bool:
    """Whether git takes a directory with these entries for a repository, whatever its own name is."""
    folded = {name.casefold() for name in names}
    return "head" in folded and ("commondir" in folded or {"objects", "refs"} <= folded)
