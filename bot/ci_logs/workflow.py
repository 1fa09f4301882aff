"""Read from a workflow's file how it runs a job: commands, shell, directory, variables, services. Pure.

For a worker process, as strangers write these files. All scalars are read as texts, as they are written: `3.10` is no
number, and nothing is made of a tag.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import yaml

from bot.ci_logs.log import FailedJob, Step

# ---- The combinations of a job's matrix, the names that GitHub gives its jobs, and expressions filled in. Pure.


MOST_JOBS = 256
"""https://docs.github.com/actions/reference/limits"""

_EXPRESSION = re.compile(r"\$\{\{([^{}]{0,300})\}\}")
_FIELD = re.compile(r"(matrix|env)(?:\.([A-Za-z_][\w-]{0,99})|\['([^']{1,100})'\])")

Combination = Mapping[str, str]


def combinations(matrix: object) -> list[Combination]:
    """What each job of a matrix has; one without anything where there is none, or an expression makes it."""
    if not isinstance(matrix, Mapping):
        return [{}]
    axes = {
        str(name): [_text(value) for value in values[:MOST_JOBS]]
        for name, values in matrix.items()
        if name not in {"include", "exclude"} and isinstance(values, list)
    }
    excluded = _entries(matrix.get("exclude"))
    found = [dict(zip(axes, values, strict=True)) for values in islice(product(*axes.values()), MOST_JOBS) if axes]
    found = [each for each in found if not any(entry.items() <= each.items() for entry in excluded)]
    # An included entry goes to the combinations whose own values it leaves as they are, else it is one of its own.
    made: list[dict[str, str]] = []
    for entry in _entries(matrix.get("include")):
        own = {name: value for name, value in entry.items() if name in axes}
        fitting = [each for each in found if own.items() <= each.items()]
        for each in fitting:
            each.update(entry)
        if not fitting and len(found) + len(made) < MOST_JOBS:
            made.append(dict(entry))
    return [*found, *made] or [{}]


def name_of(base: str, template: str, combination: Combination) -> str:
    """What GitHub calls a job.

    Args:
        base: its key in the file.
        template: its `name:`; empty for none.
        combination: of its matrix.
    """
    if "${{" in template:
        return filled(template, combination, {})
    return f"{template or base} ({', '.join(combination.values())})" if combination else template or base


def filled(text: str, combination: Combination, environment: Mapping[str, str]) -> str:
    """A text with the values of the matrix and of variables; every other expression stays, e.g. a secret's name."""
    known = {"matrix": combination, "env": environment}

    def value(expression: re.Match[str]) -> str:
        field = _FIELD.fullmatch(expression[1].strip())
        return known[field[1]].get(field[2] or field[3], expression[0]) if field is not None else expression[0]

    return _EXPRESSION.sub(value, text)


def may_be(name: str, template: str) -> bool:
    """Whether a name can come of a text whose expressions nobody knows the values of."""
    if "${{" not in template:
        return name == template
    *pieces, last = _EXPRESSION.sub("\0", template).split("\0")
    if not name.startswith(pieces[0]) or not name.endswith(last):
        return False
    place = len(pieces[0])
    for piece in pieces[1:]:
        place = name.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return place <= len(name) - len(last)


def _entries(value: object) -> list[Mapping[str, str]]:
    listed = value[:MOST_JOBS] if isinstance(value, list) else []
    return [{str(name): _text(each) for name, each in entry.items()} for entry in listed if isinstance(entry, Mapping)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else "Object" if isinstance(value, Mapping) else "Array"


_TEXT_CHARS = 4_000
_MOST_PAIRS = 50
_MOST_STEPS = 200
_OWN = "./.github/workflows/"

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job of the file, with the combination of its matrix that is meant, and the variables of workflow and job."""

    node: Node
    combination: Combination
    environment: Mapping[str, str]
    defaults: Mapping[str, str]

    def text(self, value: object, environment: Mapping[str, str] | None = None) -> str:
        """A scalar with what is known of its expressions."""
        written = value if isinstance(value, str) else ""
        return filled(written[:_TEXT_CHARS], self.combination, environment or self.environment)

    def pairs(self, value: object) -> dict[str, str]:
        """A mapping of scalars."""
        return {name: self.text(each) for name, each in list(_mapping(value).items())[:_MOST_PAIRS]}


def described(text: str, name: str, steps: list[tuple[int, str, bool]]) -> dict[str, Any]:
    """What the file says of a job.

    Args:
        text: the file.
        name: the job's, as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        steps: of the job: number, name, and whether it failed.

    Returns:
        `steps` (by number, as text: `run`, `shell`, `working_directory`, `uses`, `inputs`), `environment` (with that of
        the failed step), `services` and `container`; or `calls` and `name` where another file of the repository has the
        job; nothing where none is found.

    Raises:
        ValueError: the file is no YAML.
    """
    try:
        # Texts, lists and mappings, and nothing else: https://github.com/yaml/pyyaml/wiki/PyYAMLDocumentation#baseloader
        root = _mapping(yaml.load(text, Loader=yaml.BaseLoader))  # noqa: S506 - see above
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("the workflow's file is not YAML") from error
    job, rest = _found(root, name)
    if job is None:
        return {}
    uses = job.text(job.node.get("uses"))
    if uses:
        return {"calls": uses.removeprefix("./"), "name": rest} if uses.startswith(_OWN) and rest else {}
    told = _steps(job, steps)
    own = {number: step.pop("environment") for number, step in told.items()}
    failed = next((number for number, _, is_failed in steps if is_failed and number in told), 0)
    environment = {**job.environment, **own.get(failed, {})}
    return {
        "steps": {str(number): step for number, step in told.items()},
        "environment": dict(list(environment.items())[: 2 * _MOST_PAIRS]),
        "services": {
            key: _image(job, each) for key, each in list(_mapping(job.node.get("services")).items())[:_MOST_PAIRS]
        },
        "container": _image(job, job.node.get("container")),
    }


def _found(root: Node, name: str) -> tuple[_Job | None, str]:
    """The job of that name, and the rest of the name where the job is another file's."""
    nodes = {str(key): _mapping(node) for key, node in _mapping(root.get("jobs")).items()}
    jobs = [
        (name_of(key, str(node.get("name") or ""), combination), _job(root, node, combination))
        for key, node in nodes.items()
        for combination in combinations(_mapping(node.get("strategy")).get("matrix"))
    ]
    for called, job in jobs:
        if name == called:
            return job, ""
    for called, job in jobs:
        if "uses" in job.node and name.startswith(f"{called} / "):
            return job, name.removeprefix(f"{called} / ")
    # A matrix or a name that an expression makes: what it has is not known, the job is.
    for key, node in nodes.items():
        template = str(node.get("name") or key)
        if may_be(name, template) or ("strategy" in node and name.startswith(f"{template} (")):
            return _job(root, node, {}), ""
    return None, ""


def _job(root: Node, node: Node, combination: Combination) -> _Job:
    bare = _Job(node=node, combination=combination, environment={}, defaults={})
    environment = {**bare.pairs(root.get("env")), **bare.pairs(node.get("env"))}
    defaults = {**_defaults(root), **_defaults(node)}
    settled = {name: filled(value, combination, environment) for name, value in defaults.items()}
    return replace(bare, environment=environment, defaults=settled)


def _defaults(node: Node) -> dict[str, str]:
    run = _mapping(_mapping(node.get("defaults")).get("run"))
    return {name: value for name, value in run.items() if isinstance(value, str)}


def _steps(job: _Job, steps: Sequence[tuple[int, str, bool]]) -> dict[int, dict[str, Any]]:
    """What is written of those of GitHub's steps that are in the file, in the same order."""
    listed = job.node.get("steps")
    written = [_mapping(each) for each in listed[:_MOST_STEPS]] if isinstance(listed, list) else []
    titles = [
        job.text(node["name"], {**job.environment, **job.pairs(node.get("env"))})
        if node.get("name")
        else f"Run {(job.text(node.get('run')) or job.text(node.get('uses'))).strip().partition(chr(10))[0]}"
        for node in written
    ]
    told: dict[int, dict[str, Any]] = {}
    place = 0
    for number, name, _ in steps:
        at = next((index for index in range(place, len(written)) if may_be(name, titles[index])), None)
        if at is not None:
            place = at + 1
            node, environment = written[at], job.pairs(written[at].get("env"))
            known = {**job.environment, **environment}
            told[number] = {
                "run": job.text(node.get("run"), known),
                "shell": job.text(node.get("shell"), known) or job.defaults.get("shell", ""),
                "working_directory": job.text(node.get("working-directory"), known)
                or job.defaults.get("working-directory", ""),
                "uses": job.text(node.get("uses")),
                "inputs": job.pairs(node.get("with")),
                "environment": environment,
            }
    return told


def _image(job: _Job, value: object) -> str:
    return job.text(_mapping(value).get("image") if isinstance(value, Mapping) else value)


def _mapping(value: object) -> Node:
    return value if isinstance(value, Mapping) else {}


# ---- Reasons to leave failed checks alone: one sentence for the thread, or none where nobody should be told. Pure.


MOST_ATTEMPTS = 2
"""To fix failing checks, on commits that follow from one another."""

_LOST = re.compile(
    r"(?P<runner>runner has received a shutdown signal|lost communication with the server|not acquired by Runner"
    r"|runner (?:is|was) (?:offline|lost)|hosted runner encountered an error|No hosted runners? (?:is|are) available)"
    r"|(?P<disk>No space left on device)"
    r"|(?P<limit>rate limit|secondary limit|Too Many Requests|toomanyrequests)"
    r"|(?P<paid>spending limit|recent account payments have failed|billing)",
    re.IGNORECASE,
)
_LOST_WORDS = {
    "runner": "the runner was lost",
    "disk": "the runner's disk was full",
    "limit": "a rate limit was hit",
    "paid": "GitHub did not run it because of a billing problem",
}
# What GitHub's runner does by itself, or an action that fetches what the job needs, before any command of the project.
_PREPARES = re.compile(
    r"(?:Set up job|Initialize containers|Pull \S+$|Build .*@|Stop containers|Complete job)"
    r"|(?:Run )?(?:actions/(?:checkout|setup-[a-z]+|cache|download-artifact)|docker/login-action)@",
)
_STOPPED = frozenset({"timed_out", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Failing checks are left alone.

    Attributes:
        cause: names the rule, so that it is told once for each commit.
        reason: a sentence or two for the thread.
        silent: whether nobody is told.
    """

    cause: str
    reason: str
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedFacts:
    """What is known of failing checks before anybody works on them.

    Attributes:
        what: the workflow or the check that failed, as the comment names it, e.g. "the workflow `CI`".
        head_sha: the commit that it ran on.
        now_sha: where the branch is now.
        pushed_by_us: whether that is a commit of the bot's.
        conclusion: in GitHub's words; of the run.
        jobs: those that went red, as far as they are known; without logs.
        own_branch: whether the branch is one that the bot made.
        attempts: how often the bot worked on this commit, or on one that it follows from, because checks failed.
        passed_before: whether the same workflow passed on the same commit before.
        red_on_base: the names of the jobs that fail on the base branch, too; None when the base is green, and empty
            when it is red and no jobs are known.
        base: the base branch; empty for a failure on the branch itself.
        of_fork: whether it ran for a fork's pull request, where only a diagnosis is given.
        pull_url: the bot's open pull request that is to fix this branch; empty for none.
        unknown: what could not be read, with the remedy; empty when everything could.
    """

    what: str
    head_sha: str
    now_sha: str
    conclusion: str
    pushed_by_us: bool = False
    jobs: tuple[FailedJob, ...] = ()
    own_branch: bool = False
    attempts: int = 0
    passed_before: bool = False
    red_on_base: Collection[str] | None = None
    base: str = ""
    of_fork: bool = False
    pull_url: str = ""
    unknown: str = ""


def skip_reason(facts: RedFacts) -> Skip | None:
    """Why failing checks are left alone; None when they are worked on."""
    for rule in (_moved, _ours, _tried, _unknown, _infrastructure, _flaky, _red_before):
        if (skip := rule(facts)) is not None:
            return skip
    return None


def infrastructure(jobs: Sequence[FailedJob], conclusion: str = "failure") -> str:
    """Why a failure is none of the code's, as a clause; empty when a step of the project's own failed.

    Args:
        jobs: those that went red.
        conclusion: the run's.
    """
    if conclusion == "cancelled":
        return "it was cancelled"
    if not jobs:
        return ""
    reasons = [_unrelated(job) for job in jobs]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def _unrelated(job: FailedJob) -> str:
    """Why one job's failure is none of the code's; empty when it may be."""
    said = [found for each in job.annotations if (found := _LOST.search(each.message))]
    failed = [step for step in job.steps if step.conclusion == "failure"]
    if not all(_prepares(step, job) for step in failed):
        # The project's own step failed; a runner that was lost in the middle of it left its word.
        return next((_LOST_WORDS["runner"] for found in said if found.lastgroup == "runner"), "")
    if said:
        return _LOST_WORDS[said[0].lastgroup or "runner"]
    when = "after the tests" if failed and failed[0].name.startswith("Post ") else "before any test"
    return f"the step `{failed[0].name}` failed {when}" if failed else _ended_early(job)


def _prepares(step: Step, job: FailedJob) -> bool:
    """Whether a step is GitHub's: what it does before or after another step has that step's name."""
    when, _, name = step.name.partition(" ")
    return any(each.name == name for each in job.steps) if when in {"Pre", "Post"} else bool(_PREPARES.match(step.name))


def _ended_early(job: FailedJob) -> str:
    """Why a job ended of which no step failed; empty when a test may have been what hung."""
    if job.conclusion == "cancelled":
        return f"the job `{job.name}` was cancelled"
    stopped = [step for step in job.steps if step.conclusion in _STOPPED]
    if job.conclusion == "timed_out" and all(_prepares(step, job) for step in stopped):
        return f"the job `{job.name}` ran out of time before any test"
    # A job of which no step began never had a runner.
    if job.steps and not any(step.conclusion in {"success", "failure", *_STOPPED} for step in job.steps):
        return f"no step of the job `{job.name}` began"
    return ""


def _moved(facts: RedFacts) -> Skip | None:
    if facts.head_sha == facts.now_sha:
        return None
    reason = f"{_failed(facts)}, but the branch has moved on to {facts.now_sha[:10]}. The checks of that commit decide."
    return Skip(cause="moved", reason=reason, silent=facts.pushed_by_us or facts.conclusion == "cancelled")


def _ours(facts: RedFacts) -> Skip | None:
    if facts.own_branch:
        reason = f"{_failed(facts)}. This is one of my own branches; a person decides what to do with it."
        return Skip(cause="own-branch", reason=reason, silent=True)
    if facts.pull_url:
        return Skip(cause="open-pull", reason=f"{_failed(facts)}. {facts.pull_url} is already open for this branch.")
    return None


def _tried(facts: RedFacts) -> Skip | None:
    if facts.attempts < MOST_ATTEMPTS:
        return None
    if facts.of_fork:
        reason = f"{_failed(facts)}. I have explained failed checks here {facts.attempts} times, and stop here."
        return Skip(cause="attempts", reason=f"{reason} Somebody with write access can use `explain`.", silent=True)
    reason = f"{_failed(facts)}. I have tried {facts.attempts} times to make these checks pass, and stop here."
    return Skip(cause="attempts", reason=f"{reason} Use `fix` to make me try again.")


def _unknown(facts: RedFacts) -> Skip | None:
    if not facts.unknown:
        return None
    return Skip(cause="permission", reason=f"{_failed(facts)}, and I did not start a fix. {facts.unknown}")


def _infrastructure(facts: RedFacts) -> Skip | None:
    if facts.conclusion == "cancelled":
        reason = f"{_failed(facts)}, which the code did not cause. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    if why := infrastructure(facts.jobs, facts.conclusion):
        reason = f"{_failed(facts)} for a reason outside the code: {why}. Re-run it; I changed nothing."
        return Skip(cause="infrastructure", reason=reason)
    return None


def _flaky(facts: RedFacts) -> Skip | None:
    if not facts.passed_before:
        return None
    reason = f"{_failed(facts)}, but passed on the same commit before: it is flaky. I changed nothing."
    return Skip(cause="flaky", reason=reason)


def _red_before(facts: RedFacts) -> Skip | None:
    if facts.red_on_base is None:
        return None
    names = [job.name for job in facts.jobs]
    if names and facts.red_on_base and not set(names) <= set(facts.red_on_base):
        return None
    which = f"the same jobs fail on `{facts.base}`" if names and facts.red_on_base else f"it fails on `{facts.base}`"
    reason = f"{_failed(facts)}, and {which}, too: this pull request did not break it. I changed nothing."
    return Skip(cause="red-before", reason=reason)


def _failed(facts: RedFacts) -> str:
    ended = {"cancelled": "was cancelled", "timed_out": "ran out of time"}.get(facts.conclusion, "failed")
    what = facts.what[:1].upper() + facts.what[1:]
    return f"{what} {ended} on {facts.head_sha[:10]}"
