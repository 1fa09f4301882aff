"""Only plain data crosses between the control block and the host. Pure."""

from __future__ import annotations

from agent_runtime.tools.protocol import Plain

MAX_DEPTH = 32


class NotPlainError(TypeError):
    """A value that may not cross; the text names its type and where it stands."""


def plain(value: object, where: str, depth: int = 0) -> Plain:
    """Return `value` if it is plain data through and through.

    Types are compared exactly: a subclass of `str` is an object with methods of its own, and no object of the
    control block's making reaches the host.

    Raises:
        NotPlainError: `value`, or something inside it, is anything else, or it nests deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise NotPlainError(f"{where} nests deeper than {MAX_DEPTH} levels")
    if value is None or type(value) in {bool, int, float, str}:
        return value  # type: ignore[return-value]  # narrowed by exact type, which mypy does not follow
    if type(value) is list:
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if type(value) is tuple:
        return tuple(plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value))
    if type(value) is dict:
        return {_key(key, where): plain(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}
    raise NotPlainError(
        f"{where} is a {type(value).__name__}; only None, bool, int, float, str, list, tuple and dict "
        "(with str keys) can be passed to a tool"
    )


def _key(key: object, where: str) -> str:
    if type(key) is not str:
        raise NotPlainError(f"{where} has a key of type {type(key).__name__}; keys must be str")
    return key
