"""Read the maintainers' file on the base branch. Reads text; opens nothing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from agent_runtime import SettingsError, read_settings
from bot.domain.access import Level
from bot.domain.commands import ReviewEvent
from bot.domain.errors import BotError
from bot.gate.repo_keys import VERBS, BareVerb, FileKeys, FixCi, VerbKeys

PATH = ".github/codepilot.yml"
OTHER_SPELLING = ".github/codepilot.yaml"
ORGANISATION_PATH = "codepilot.yml"
"""Where the defaults of an organisation stand, in its repository `.github`."""
MAX_BYTES = 64 * 1024


class RepoConfigError(BotError):
    """The repository's file does not fit.

    Attributes:
        reason: all that is wrong, each with file, line and key.
        remedy: what to do about it.
    """

    def __init__(self, problems: str, *, source: str = PATH) -> None:
        listed = "\n".join(f"- {problem}" for problem in problems.splitlines())
        branch = "default" if ":" in source else "base"
        self.reason = f"This repository's configuration is not valid:\n\n{listed}"
        self.remedy = f"Fix `{source}` on the {branch} branch, then give the command again."
        super().__init__(f"{self.reason}\n\n{self.remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What a run is to use where its command says nothing else; None where the file says nothing, either.

    Attributes:
        model: one of the models that the operator offers.
        budget_usd: US dollars it may spend.
        max_steps: steps it may take.
    """

    model: str | None = None
    budget_usd: float | None = None
    max_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNames:
    """What the labels are called.

    Attributes:
        start: starts work, beside the operator's; None for that alone.
        read_only: stands for the level `read-only`.
        ask: stands for the level `ask`.
        auto: stands for the level `auto`.
        fix_ci: has the failing checks of the pull request fixed that it is set on.
    """

    start: str | None = None
    read_only: str = "codepilot:read-only"
    ask: str = "codepilot:ask"
    auto: str = "codepilot:auto"
    fix_ci: str = "codepilot:fix-ci"

    def is_start(self, name: str) -> bool:
        """Whether a label is the repository's own for starting work."""
        return self.start is not None and name.casefold() == self.start.casefold()

    def is_fix_ci(self, name: str) -> bool:
        """Whether a label has failing checks fixed."""
        return name.casefold() == self.fix_ci.casefold()

    def means_something(self, name: str) -> bool:
        """Whether a label starts work, has failing checks fixed, or stands for a level."""
        return self.is_start(name) or self.is_fix_ci(name) or self.level_of(name) is not None

    def level_of(self, name: str) -> Level | None:
        """What a label stands for, or None; GitHub does not tell upper from lower case in labels."""
        levels: dict[str, Level] = {self.read_only: "read-only", self.ask: "ask", self.auto: "auto"}
        return {label.casefold(): level for label, level in levels.items()}.get(name.casefold())


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoConfig:
    """What the file says; the defaults where it says nothing, or there is none.

    Attributes:
        setup: commands for bash that make the workspace ready before the agent starts, in order.
        cache: what they make that may be kept for later jobs: paths from the repository's root, `/` between the parts.
        network: what commands are to reach at most, as `bot.gate.network` takes it; None for all that they may.
        instructions: text for the agent.
        triggers: the words that begin a command here; None for all that the operator has.
        bare_issue: the verb that text without one means in an issue.
        bare_pull: the same in a pull request.
        level: what a run may do unasked; None for what the operator says.
        highest: the most that a label may raise it to; no key of the file.
        allow: patterns of commands that need no approval, beside the built-in and the operator's.
        protected: globs of files that need an approval of their own, beside the built-in ones.
        model: one of the models that the operator offers.
        budget_usd: US dollars that a run may spend.
        max_steps: steps that a run may take.
        verbs: these three by verb, which count first; see `wishes`.
        labels: what the labels are called.
        language: what the agent answers in; None for the language of the command.
        review_on: what starts a review without a command.
        fix_ci: where failing checks start a fix.
        rerun_failed_jobs: whether a workflow's failed jobs are run once more before a fix is begun.
        wip_branches: whether unfinished work is kept on a branch of its own.
        base: where new pull requests are to be merged; None for the default branch.
        given: the keys that the file holds, and `labels.start` for one of `labels`.
        path: where the file is; no key of it.
    """

    setup: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()
    network: tuple[str, ...] | None = None
    instructions: str = ""
    triggers: tuple[str, ...] | None = None
    bare_issue: BareVerb = "fix"
    bare_pull: BareVerb = "ask"
    level: Level | None = None
    highest: Literal["ask", "auto"] = "auto"
    allow: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    model: str | None = None
    budget_usd: float | None = None
    max_steps: int | None = None
    verbs: Mapping[str, Overrides] = field(default_factory=dict)
    labels: LabelNames = field(default_factory=LabelNames)
    language: str | None = None
    review_on: frozenset[ReviewEvent] = frozenset()
    fix_ci: frozenset[FixCi] = frozenset()
    rerun_failed_jobs: bool = False
    wip_branches: bool = True
    base: str | None = None
    given: frozenset[str] = field(default=frozenset(), compare=False)
    path: str = PATH

    def reviews(self, on: ReviewEvent, usual: frozenset[ReviewEvent] = frozenset()) -> bool:
        """Whether a pull request is reviewed when this happens; `usual` is the operator's, for a file without the key.

        A draft is new to its reviewers when it becomes ready.
        """
        events = self.review_on if "review_on" in self.given else usual
        return on in events or (on == "ready" and "opened" in events)

    def wishes(self, verb: str) -> Overrides:
        """What a run of a verb is to use."""
        return _over(
            self.verbs.get(verb, Overrides()),
            Overrides(model=self.model, budget_usd=self.budget_usd, max_steps=self.max_steps),
        )


def parse_config(data: bytes, *, source: str = PATH) -> RepoConfig:
    """Read the file.

    Args:
        data: its content, as the base branch's commit has it.
        source: its name, for error texts.

    Raises:
        RepoConfigError: it is too large, no UTF-8, no YAML, or has keys or values that do not fit.
    """
    if len(data) > MAX_BYTES:
        raise RepoConfigError(f"{source}: has {len(data):,} bytes, and {MAX_BYTES:,} is the limit.", source=source)
    try:
        file = read_settings(data.decode("utf-8-sig"), FileKeys, source=source)
    except UnicodeDecodeError as error:
        raise RepoConfigError(
            f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8.", source=source
        ) from error
    except SettingsError as error:
        raise RepoConfigError(str(error), source=source) from error
    labels = file.labels
    return RepoConfig(
        setup=tuple(file.setup),
        cache=tuple(file.cache),
        network=None if file.network is None else tuple(file.network),
        instructions=file.instructions.strip(),
        triggers=None if file.triggers is None else tuple(file.triggers),
        bare_issue=file.bare_issue,
        bare_pull=file.bare_pull,
        level=file.level,
        allow=tuple(file.allow),
        protected=tuple(file.protected),
        model=file.model,
        budget_usd=file.budget_usd,
        max_steps=file.max_steps,
        verbs={verb: _wishes(getattr(file.verbs, verb)) for verb in VERBS if verb in file.verbs.model_fields_set},
        labels=LabelNames(
            start=labels.start, read_only=labels.read_only, ask=labels.ask, auto=labels.auto, fix_ci=labels.fix_ci
        ),
        language=file.language,
        review_on=frozenset(file.review_on),
        fix_ci=frozenset(file.fix_ci),
        rerun_failed_jobs=file.rerun_failed_jobs,
        wip_branches=file.wip_branches,
        base=file.base,
        given=frozenset(file.model_fields_set) | {f"labels.{name}" for name in labels.model_fields_set},
    )


def defaults_when_broken() -> RepoConfig:
    """What holds in place of a file that does not fit: nothing is set up, nothing reached, little done unasked.

    Whoever wrote it may have meant to forbid something. Merge it over the organisation's as the file would be.
    """
    strict = frozenset({"setup", "cache", "network", "allow", "review_on", "fix_ci", "rerun_failed_jobs"})
    return RepoConfig(network=("off",), highest="ask", given=strict)


def merged(organisation: RepoConfig, repository: RepoConfig) -> RepoConfig:
    """The organisation's defaults with the repository's own words over them, key by key; `protected` adds up."""
    own = repository.given | ({"cache"} if "setup" in repository.given else frozenset())
    inherited = {
        each.name: getattr(organisation, each.name)
        for each in fields(RepoConfig)
        if each.name in organisation.given and each.name not in own
    }
    names = {each.name: getattr(repository.labels, each.name) for each in fields(LabelNames)}
    return replace(
        repository,
        **inherited
        | {
            "protected": tuple(dict.fromkeys((*organisation.protected, *repository.protected))),
            "verbs": {
                verb: _over(repository.verbs.get(verb, Overrides()), organisation.verbs.get(verb, Overrides()))
                for verb in organisation.verbs.keys() | repository.verbs.keys()
            },
            "labels": replace(
                organisation.labels, **{name: label for name, label in names.items() if f"labels.{name}" in own}
            ),
            "highest": "auto" if organisation.highest == repository.highest == "auto" else "ask",
            "given": organisation.given | own,
        },
    )


def in_the_way(cache: Sequence[str], committed: Collection[str], *, path: str = PATH) -> str | None:
    """Why what is to be kept cannot be told from the repository's own files, or None when it can.

    Args:
        cache: see `RepoConfig`.
        committed: paths of all files in the commit that is worked on.
        path: where the file is that asks for it.
    """
    above = {each: _above(each) for each in cache}
    meant, below = frozenset().union(*above.values()), tuple(f"{each}/" for each in cache)
    found = min((file for file in committed if file in meant or file.startswith(below)), default=None)
    if found is None:
        return None
    kept = next(each for each in cache if found in above[each] or found.startswith(f"{each}/"))
    return (
        f"{path}: `cache`: `{kept}` cannot be cached, because `{found}` is committed there; name a path that only "
        "`setup` writes to."
    )


def _above(path: str) -> frozenset[str]:
    """A path and all that leads to it."""
    parts = path.split("/")
    return frozenset("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _over(first: Overrides, second: Overrides) -> Overrides:
    """The first, and the second where that says nothing."""
    return Overrides(
        model=second.model if first.model is None else first.model,
        budget_usd=second.budget_usd if first.budget_usd is None else first.budget_usd,
        max_steps=second.max_steps if first.max_steps is None else first.max_steps,
    )


def _wishes(keys: VerbKeys) -> Overrides:
    return Overrides(model=keys.model, budget_usd=keys.budget_usd, max_steps=keys.max_steps)
