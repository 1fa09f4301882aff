"""Words with one typing error. Pure."""

from __future__ import annotations


def is_transposition(word: str, meant: str) -> bool:
    """Whether two neighbouring letters changed places, and nothing else."""
    start = _same_start(word, meant)
    rest, other = word[start:], meant[start:]
    return len(rest) > 1 and rest[:2] == other[1::-1] and rest[2:] == other[2:]


def is_typo(word: str, meant: str) -> bool:
    """Whether one letter is missing, too many or another one, or two neighbours changed places."""
    if abs(len(word) - len(meant)) > 1:
        return False
    start = _same_start(word, meant)
    rest, other = word[start:], meant[start:]
    return (rest or other) != "" and (
        rest[1:] == other[1:] or rest == other[1:] or rest[1:] == other or is_transposition(word, meant)
    )


def _same_start(word: str, other: str) -> int:
    """How many letters are the same at the start of both."""
    return next(
        (n for n, pair in enumerate(zip(word, other, strict=False)) if pair[0] != pair[1]), min(len(word), len(other))
    )
