"""Write titles and trailers of commits in the repository's format.

Start with `choose_format`. The format is the one in the repository's file, else that of the base branch's history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.difference import TEST_PATH
from bot.git.change import Change
from bot.permissions.repo_config import CommitKeys
from bot.publishing.markdown import clean, one_line

TITLE_LIMIT = 72
PLAIN, CONVENTIONAL = "{summary}", "{type}: {summary}"
_SHARE, _MIN_TITLES = 0.8, 5
# https://github.com/conventional-changelog/commitlint/tree/master/@commitlint/config-conventional
_TYPES = "build|chore|ci|docs|feat|fix|perf|refactor|revert|style|test"
_CONVENTIONAL = re.compile(rf"(?P<type>(?:{_TYPES})(?:\([\w./, -]{{1,40}}\))?!?): (?P<summary>\S[^\n]*)", re.IGNORECASE)
_KINDS = {"docs": re.compile(r"\.(?:md|rst|adoc)$", re.IGNORECASE), "ci": re.compile(r"^\.github/workflows/")}
_VERBS = {"Fix": "fix", "Correct": "fix", "Restore": "fix", "Implement": "feat", "Introduce": "feat"}
_VERBS |= dict.fromkeys(("Rename", "Refactor", "Move"), "refactor")
_REVERT = 'Revert "'

# The patterns below take time that grows with the square of a line's length.
_SENTENCE_LIMIT = 500
CLOSING = re.compile(r"\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s+(?:[\w./-]*#\d+|https?://\S+)", re.IGNORECASE)
_REFERENCE = re.compile(
    r"\([^()]*(?:#\d|https?://)[^()]*\)|(?:[\w.-]+/[\w.-]+)?#\d+|\bGH-\d+|(?:https?://|www\.)\S+", re.IGNORECASE
)
_MARKUP = re.compile(r"^[\s>#*+-]+|^\d+[.)]\s+|[*`~]{1,3}(?=\S)|(?<=\S)[*`~]{1,3}|[<>\[\]]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|:\s*$")
_OPENING = re.compile(
    r"^(?:I(?:'ve| have)?|We(?:'ve| have)?|This (?:change|commit|patch))\s+(?:now\s+)?", re.IGNORECASE
)
_IMPERATIVE = {
    form: base
    for base, forms in {
        "Fix": ("fixed", "fixes", "fixing"),
        "Add": ("added", "adds", "adding"),
        "Remove": ("removed", "removes", "removing"),
        "Change": ("changed", "changes", "changing"),
        "Update": ("updated", "updates", "updating"),
        "Handle": ("handled", "handles", "handling"),
        "Make": ("made", "makes", "making"),
        "Use": ("used", "uses", "using"),
        "Correct": ("corrected", "corrects", "correcting"),
        "Replace": ("replaced", "replaces", "replacing"),
        "Rename": ("renamed", "renames", "renaming"),
        "Restore": ("restored", "restores", "restoring"),
        "Move": ("moved", "moves", "moving"),
        "Keep": ("kept", "keeps", "keeping"),
        "Return": ("returned", "returns", "returning"),
        "Raise": ("raised", "raises", "raising"),
        "Implement": ("implemented", "implements", "implementing"),
        "Refactor": ("refactored", "refactors", "refactoring"),
    }.items()
    for form in forms
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFormat:
    """The format of a repository's commit messages.

    Attributes:
        title: a template; empty to keep the type of a title that has one, and add none.
        sign_off: the bot's own identity, `name <address>`; empty for no sign-off.
    """

    title: str = ""
    trailers: tuple[str, ...] = ()
    co_author: bool = True
    sign_off: str = ""

    @property
    def has_types(self) -> bool:
        return "{type}" in self.title

    def commit_title(self, summary: str, *, fallback: str, change: Change | None = None, number: int = 0) -> str:
        """Return the title from the summary's first sentence, without Markdown, mentions or references.

        `number` is that of the thread; a branch has none, and so no title with it.
        """
        first = next((line for line in clean(summary).splitlines() if re.search(r"\w", line)), "")
        flat = _remove_references(CLOSING.sub("", _MARKUP.sub("", first[:_SENTENCE_LIMIT]).replace("@", "")))
        sentence = _SENTENCE_END.split(" ".join(flat.split()), maxsplit=1)[0].strip(" .,;:-")
        conventional = _CONVENTIONAL.fullmatch(sentence)
        kind, text = (conventional["type"], conventional["summary"]) if conventional else ("", sentence)
        if not conventional or self.title == PLAIN:
            word, _, rest = _OPENING.sub("", text).partition(" ")
            text = f"{_IMPERATIVE.get(word.casefold(), word)} {rest}".strip()
        return self._fill(kind, text if re.search(r"\w", text) else fallback, change, number)

    def undo_title(self, title: str) -> str:
        flat = _remove_references(clean(title)[:_SENTENCE_LIMIT]).replace('"', "'")
        if self.title == CONVENTIONAL:
            return one_line(f"revert: {flat}", TITLE_LIMIT)
        return f'{_REVERT}{one_line(flat, TITLE_LIMIT - len(_REVERT) - 1)}"'

    def trailer_lines(self, co_author: str, number: int) -> list[str]:
        lines = [f"Co-authored-by: {co_author}"] if co_author and self.co_author else []
        lines += [line.format(number=number) for line in self.trailers if number or "{number}" not in line]
        return [*lines, f"Signed-off-by: {self.sign_off}"] if self.sign_off else lines

    def _fill(self, kind: str, text: str, change: Change | None, number: int) -> str:
        template = self.title
        if not template or (not number and "{number}" in template):
            template = CONVENTIONAL if kind else PLAIN
        if "{type}" not in template:
            text = text[:1].upper() + text[1:]
        elif not kind:
            word, _, rest = text.partition(" ")
            kind = _derive_type(word, change)
            if rest and word.casefold() == kind:  # no "fix: fix the sum"
                text, word = rest, rest.partition(" ")[0]
            # A name, such as HTTP or `parseArgs`, keeps its case.
            text = text[:1].lower() + text[1:] if word[1:].islower() or len(word) == 1 else text
        frame = template.format(type=kind, number=number, summary="")
        text = one_line(text, TITLE_LIMIT - len(frame))
        return template.format(type=kind, number=number, summary=text)


def _remove_references(text: str) -> str:
    text, count = text.replace("@", ""), 1
    while count:  # the rest can be one again: "#(#1)2"
        text, count = _REFERENCE.subn("", text)
    return text


def choose_format(keys: CommitKeys, titles: Sequence[str], sign_off: str = "") -> CommitFormat:
    """Return the format in the file; for `auto`, Conventional Commits if most of the titles have that form."""
    words = {"auto": CONVENTIONAL if is_conventional(titles) else "", "plain": PLAIN, "conventional": CONVENTIONAL}
    return CommitFormat(
        title=words.get(keys.title, keys.title),
        trailers=keys.trailers,
        co_author=keys.co_author,
        sign_off=sign_off if keys.sign_off else "",
    )


def is_conventional(titles: Sequence[str]) -> bool:
    matches = sum(_CONVENTIONAL.fullmatch(title) is not None for title in titles)
    return len(titles) >= _MIN_TITLES and matches >= _SHARE * len(titles)


def _derive_type(word: str, change: Change | None) -> str:
    """Return a type that claims no more than is known: `chore` unless files or the verb say otherwise."""
    paths = [file.path for file in change.files] if change else []
    if paths and all(map(TEST_PATH.search, paths)):
        return "test"
    of_files = next((kind for kind, glob in _KINDS.items() if paths and all(map(glob.search, paths))), "")
    return of_files or _VERBS.get(word, "chore")
