"""Text from strangers, made to hold only what a reader of the page sees. Pure, and linear in the text's length."""

from __future__ import annotations

from bot.gate.characters import unforged, with_invisible_shown
from bot.gate.hiding import without_hidden


def clean(text: str, *, limit: int) -> str:
    """Markdown as its reader sees it, capped in length, with a note below it of what was removed.

    Invisible characters, HTML, descriptions of images, titles and definitions of links go; full-width letters and
    character references become plain text; collapsed parts are mentioned. Code blocks and spans stay to the letter.
    Line ends become line feeds. Cleaning a cleaned text that was not cut gives the same text.

    Args:
        text: any text.
        limit: characters to keep; a longer text loses its middle.
    """
    text, removed = without_hidden(_with_line_feeds(text))
    parts = [f"{number:,} {noun}{'s' if number > 1 else ''}" for noun, number in removed.items() if number]
    text = clip(text, limit=limit)
    if not parts:
        return text
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"{text}\n\n[removed from this text: {listed}]".lstrip()


def clean_code(text: str, *, limit: int) -> str:
    """What programs wrote, such as a diff or a log, to the letter, with invisible characters spelled out.

    Args:
        text: any text.
        limit: characters to keep; a longer text loses its middle.
    """
    text = with_invisible_shown(_with_line_feeds(text))
    return clip(unforged(text).strip("\n"), limit=limit)


def clean_line(text: str, *, limit: int) -> str:
    """`clean`, for what must stay on one line, such as a title."""
    return " ".join(clean(text, limit=limit).split())


def clip(text: str, *, limit: int) -> str:
    """Cut the middle out of a text longer than `limit` characters, and say how much; the start keeps two thirds."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[len(text) - tail :]}"


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
