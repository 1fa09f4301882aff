"""Only plain data crosses between the control block and the host. Pure."""

from __future__ import annotations

from agent_runtime.core.calls import Plain

MAX_DEPTH = 32
MAX_ITEMS = 100_000
MAX_CHARS = 2_000_000
_MAX_BITS = 64


class NotPlainError(TypeError):
    """A value that may not cross; the text names what is wrong and where it stands."""


def plain(value: object, where: str) -> Plain:
    """Return `value` if it is plain data through and through, and little enough of it.

    Types are compared exactly: a subclass of `str` is an object with methods of its own, and no object of the
    control block's making reaches the host. Every place counts, also where one list is in many places: thirty
    lines of control code can make a list of a thousand million places that takes no memory until it is copied.

    Raises:
        NotPlainError: `value`, or something inside it, is anything else; it nests deeper than `MAX_DEPTH`, has more
            than `MAX_ITEMS` places or `MAX_CHARS` characters, or an integer of more than 64 bits.
    """
    return _Crossing(where).take(value, 0)


class _Crossing:
    """One value on its way: what has been counted of it so far."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._items = 0
        self._chars = 0

    def take(self, value: object, depth: int) -> Plain:
        if depth > MAX_DEPTH:
            raise NotPlainError(f"{self._where} nests deeper than {MAX_DEPTH} levels")
        self._items += 1
        if self._items > MAX_ITEMS:
            raise NotPlainError(f"{self._where} has more than {MAX_ITEMS:,} items; pass fewer")
        match value:
            case None | bool() | float() if type(value) in {type(None), bool, float}:
                return value
            case int() if type(value) is int:
                if value.bit_length() > _MAX_BITS:
                    raise NotPlainError(f"{self._where} has an integer of more than {_MAX_BITS} bits; pass it as a str")
                return value
            case str() if type(value) is str:
                return self._text(value)
            case list() if type(value) is list:
                return [self.take(item, depth + 1) for item in value]
            case tuple() if type(value) is tuple:
                return tuple(self.take(item, depth + 1) for item in value)
            case dict() if type(value) is dict:
                return {self._key(key): self.take(item, depth + 1) for key, item in value.items()}
            case _:
                raise NotPlainError(
                    f"{self._where} {'holds' if depth else 'is'} a {type(value).__name__}; only None, bool, int, "
                    "float, str, list, tuple and dict (with str keys) can cross between control code and tools"
                )

    def _text(self, value: str) -> str:
        self._chars += len(value)
        if self._chars > MAX_CHARS:
            raise NotPlainError(f"{self._where} has more than {MAX_CHARS:,} characters; pass less")
        return value

    def _key(self, key: object) -> str:
        if type(key) is not str:
            raise NotPlainError(f"{self._where} has a key of type {type(key).__name__}; keys must be str")
        return self._text(key)
