"""Parse Python that is newer than the one that parses it: for positions and errors, never to be run. Pure.

Control code and files are written for other Pythons than the one that checks them. What is newer is rewritten. Each
rewriting keeps the number of characters and of lines, so that positions in the tree are positions in the code.

- Inside an f-string's braces (PEP 701, Python 3.12): quotes of the f-string itself, backslashes, comments. There,
  strings become names of the same length.
- Type parameters of functions and classes, and `type` statements (PEP 695, 3.12): become blanks and names.
- Template strings (PEP 750, 3.14): become f-strings.
- `except A, B:` (PEP 758, 3.14): becomes `except A. B:`.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings

DIALECT = f"as Python {sys.version_info.major}.{sys.version_info.minor} reads it"
"""Which Python has the word about code that does not parse."""
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


def parse(code: str) -> ast.Module:
    """The tree of the code; nested strings of f-strings that this Python cannot read are names in it.

    Raises:
        SyntaxError: it does not parse, nor does it when what is newer is rewritten.
        ValueError, RecursionError, MemoryError: as from `ast.parse`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the agent's code, which is no concern of this process
        try:
            return ast.parse(code)
        except SyntaxError as error:
            older = None if _IS_NEWEST else _in_older_words(code)
            if older is None:
                raise
            try:
                return ast.parse(older)
            except SyntaxError:
                raise error from None


def _in_older_words(code: str) -> str | None:
    """The code as this Python may parse it; None where it finds nothing newer in it."""
    try:
        pieces, place = [], 0
        while (token := _TOKEN.search(code, place)) is not None:
            end = token.end()
            if token["quote"]:
                prefix = token["prefix"].replace("t", "f").replace("T", "F")
                pieces += [code[place : token.start()], prefix, token["quote"]]
                place = _string(code, token, pieces, 0)
            else:
                pieces.append(code[place:end])
                place = end
    except _UnreadableError:
        return None
    written = "".join([*pieces, code[place:]])
    written = _PARAMETERS.sub(lambda match: match[1] + " " * len(match[2]), written)
    written = _TYPE.sub(lambda match: f"{match[1]}type{'_' * len(match[2])}", written)
    written = _EXCEPT.sub(lambda match: match[1].replace(",", "."), written)
    return written if written != code else None


class _UnreadableError(Exception):
    """A string or brace is not closed."""


def _string(code: str, opened: re.Match[str], pieces: list[str] | None, depth: int) -> int:
    """Where the string that opens there ends; its text is added to `pieces` as it may stand in an older Python."""
    quote, place = opened["quote"], opened.end()
    formatted = bool({"f", "t"} & set(opened["prefix"].lower()))
    pattern = _LITERAL if formatted else _PLAIN
    begun = place
    while (token := pattern.search(code, place)) is not None:
        place = token.end()
        if token[0] == quote or (len(quote) == 1 and token[0] == quote * 3):
            place = token.start() + len(quote)
            if pieces is not None:
                pieces.append(code[begun:place])
            return place
        if token[0] == "{" and formatted:
            if pieces is not None:
                pieces.append(code[begun:place])
            place = begun = _expression(code, place, pieces, depth + 1)
    raise _UnreadableError


def _expression(code: str, place: int, pieces: list[str] | None, depth: int) -> int:
    """Where the braces of an f-string that open there are closed; see `_string`."""
    if depth > _DEEPEST:
        raise _UnreadableError
    brackets, begun = 0, place
    written: list[str] = []
    while (token := _TOKEN.search(code, place)) is not None:
        place = token.end()
        if token["quote"]:
            place = _string(code, token, None, depth)
            text = code[token.start() : place]
            # A name as long as the string; one of several lines stays what it is, which no older Python takes.
            written += [code[begun : token.start()], text if "\n" in text else "_" * len(text)]
            begun = place
        elif token["comment"]:
            written += [code[begun : token.start()], " " * len(token[0])]
            begun = place
        elif token["open"]:
            brackets += 1
        elif token["close"] and brackets:
            brackets -= 1
        elif token["close"] or (not brackets and (token["colon"] or token["bang"])):
            break
    if token is None:
        raise _UnreadableError
    if pieces is not None:
        pieces += [*written, code[begun:place]]
    return place if token["close"] else _format(code, place, pieces, depth)


def _format(code: str, place: int, pieces: list[str] | None, depth: int) -> int:
    """Where the braces are closed whose conversion or format begins there."""
    begun = place
    while (token := re.compile("[{}]").search(code, place)) is not None:
        place = token.end()
        if pieces is not None:
            pieces.append(code[begun:place])
        if token[0] == "}":
            return place
        place = begun = _expression(code, place, pieces, depth + 1)
    raise _UnreadableError
