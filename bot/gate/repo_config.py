"""What a repository's maintainers ask of the bot, in a file on the base branch. Reads text; opens nothing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from agent_runtime import Network, SettingsError, read_settings
from bot.errors import BotError

PATH = ".github/codepilot.yml"
OTHER_SPELLING = ".github/codepilot.yaml"
MAX_BYTES = 64 * 1024
_MOST_COMMANDS, _MOST_PATHS, _MOST_HOSTS = 20, 20, 50


class RepoConfigError(BotError):
    """The repository's file does not fit.

    Attributes:
        reason: all that is wrong, each with file, line and key.
        remedy: what to do about it.
    """

    def __init__(self, problems: str) -> None:
        listed = "\n".join(f"- {problem}" for problem in problems.splitlines())
        self.reason = f"I did not begin, because this repository's configuration does not fit:\n\n{listed}"
        self.remedy = f"Mend `{PATH}` on the base branch, then give the command again."
        super().__init__(f"{self.reason}\n\n{self.remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoConfig:
    """What the file says; all of it empty where there is none.

    Attributes:
        setup: commands for bash that make the workspace ready before the agent starts, in order.
        cache: what they make that may be kept for later jobs: paths from the repository's root, `/` between the parts.
        network: what commands are to reach at most, as `bot.gate.network` takes it; None for all that they may.
        instructions: text for the agent.
    """

    setup: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()
    network: tuple[str, ...] | None = None
    instructions: str = ""


def parse_config(data: bytes, *, source: str = PATH) -> RepoConfig:
    """Read the file.

    Args:
        data: its content, as the base branch's commit has it.
        source: its name, for error texts.

    Raises:
        RepoConfigError: it is too large, no UTF-8, no YAML, or has keys or values that do not fit.
    """
    if len(data) > MAX_BYTES:
        raise RepoConfigError(f"{source}: has {len(data):,} bytes, and {MAX_BYTES:,} is the most.")
    try:
        file = read_settings(data.decode("utf-8-sig"), _File, source=source)
    except UnicodeDecodeError as error:
        raise RepoConfigError(f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8.") from error
    except SettingsError as error:
        raise RepoConfigError(str(error)) from error
    return RepoConfig(
        setup=tuple(file.setup),
        cache=tuple(file.cache),
        network=None if file.network is None else tuple(file.network),
        instructions=file.instructions.strip(),
    )


def in_the_way(cache: Sequence[str], committed: Collection[str]) -> str | None:
    """Why what is to be kept cannot be told from the repository's own files, or None when it can.

    Args:
        cache: see `RepoConfig`.
        committed: paths of all files in the commit that is worked on.
    """
    above = {path: _above(path) for path in cache}
    meant, below = frozenset().union(*above.values()), tuple(f"{path}/" for path in cache)
    found = min((file for file in committed if file in meant or file.startswith(below)), default=None)
    if found is None:
        return None
    kept = next(path for path in cache if found in above[path] or found.startswith(f"{path}/"))
    return (
        f"{PATH}: `cache`: `{kept}` cannot be kept, because `{found}` is committed there; name a path that only "
        "`setup` writes to."
    )


def _above(path: str) -> frozenset[str]:
    """A path and all that leads to it."""
    parts = path.split("/")
    return frozenset("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _one_or_more(value: object) -> object:
    """A lone text as a list of one; YAML 1.1 reads an unquoted `off` as false."""
    values = value if isinstance(value, list) else [value]
    texts = ["off" if each is False else each for each in values]
    return value if value is None or not all(isinstance(each, str) for each in texts) else texts


def _command(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which no shell can take")
    return text


def _kept(text: str) -> str:
    path = text.removesuffix("/")
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or any(mark in path for mark in "*?[~$"):
        raise ValueError("must be a plain path, without wildcards, variables or `~`")
    if any(part in {"", ".", ".."} for part in parts):
        raise ValueError("must be a path below the repository's root, without `.` and `..`, e.g. `node_modules`")
    if any(part.casefold() == ".git" for part in parts):
        raise ValueError("must not be git's own")
    return path


_Command = Annotated[
    str, StringConstraints(min_length=1, max_length=4_000, strip_whitespace=True), AfterValidator(_command)
]
_Path = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_kept)]
_Hosts = Annotated[list[str], Field(max_length=_MOST_HOSTS)]


class _File(BaseModel):
    """The keys that there are."""

    model_config = ConfigDict(extra="forbid", strict=True)

    setup: Annotated[list[_Command], Field(max_length=_MOST_COMMANDS)] = []
    cache: Annotated[list[_Path], Field(max_length=_MOST_PATHS)] = []
    network: Annotated[_Hosts | None, BeforeValidator(_one_or_more)] = None
    instructions: Annotated[str, StringConstraints(max_length=16_000)] = ""

    @field_validator("cache")
    @classmethod
    def _apart(cls, paths: list[str], info: ValidationInfo) -> list[str]:
        if paths and info.data.get("setup") == []:
            raise ValueError("keeps what `setup` makes, and there is no `setup`")
        for one, other in permutations(paths, 2):
            if f"{one}/".startswith(f"{other}/"):
                raise ValueError(f"`{one}` lies in `{other}`, which is kept whole; leave it out")
        return paths

    @field_validator("network")
    @classmethod
    def _known(cls, words: list[str] | None) -> list[str] | None:
        if words is not None:
            Network.of(*words)
        return words
