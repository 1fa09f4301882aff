"""Read from a workflow's file how it runs a job: commands, shell, directory, variables, services. Pure.

For a worker process, as strangers write these files. All scalars are read as texts, as they are written: `3.10` is no
number, and nothing is made of a tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from bot.red_ci.matrix import Combination, combinations, filled, may_be, name_of

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
