"""Read a workflow file: how it runs a job, with commands, shell, directory, variables and services.

Runs in a worker process, since the files are untrusted. All scalars are strings as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import yaml

MAX_JOBS = 256
"""https://docs.github.com/actions/reference/limits"""

_EXPRESSION = re.compile(r"\$\{\{([^{}]{0,300})\}\}")
_FIELD = re.compile(r"(matrix|env)(?:\.([A-Za-z_][\w-]{0,99})|\['([^']{1,100})'\])")

_TEXT_CHARS = 4_000
_MAX_PAIRS = 50
_MAX_STEPS = 200
_OWN = "./.github/workflows/"

Node = Mapping[str, Any]

Combination = Mapping[str, str]


def describe_job(text: str, name: str, steps: list[tuple[int, str, bool]]) -> dict[str, Any]:
    """Describe a job by the workflow's file; empty if it has none of that name.

    Args:
        name: as GitHub shows it, e.g. `test (3.11, ubuntu)`.
        steps: number, name, and whether it failed.

    Returns:
        `steps` (by number, as text: `run`, `shell`, `working_directory`, `uses`, `inputs`), `environment` (with that of
        the failed step), `services` and `container`; or `calls` and `name` for a job in another file of the repository.

    Raises:
        ValueError: the file is not YAML.
    """
    try:
        # Texts, lists and mappings, and nothing else: https://github.com/yaml/pyyaml/wiki/PyYAMLDocumentation#baseloader
        root = _mapping(yaml.load(text, Loader=yaml.BaseLoader))  # noqa: S506 - see above
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("the workflow's file is not YAML") from error
    job, rest = _find_job(root, name)
    if job is None:
        return {}
    uses = job.text(job.node.get("uses"))
    if uses:
        return {"calls": uses.removeprefix("./"), "name": rest} if uses.startswith(_OWN) and rest else {}
    described = _describe_steps(job, steps)
    own = {number: step.pop("environment") for number, step in described.items()}
    failed = next((number for number, _, is_failed in steps if is_failed and number in described), 0)
    environment = {**job.environment, **own.get(failed, {})}
    return {
        "steps": {str(number): step for number, step in described.items()},
        "environment": dict(list(environment.items())[: 2 * _MAX_PAIRS]),
        "services": {
            key: _read_image(job, node) for key, node in list(_mapping(job.node.get("services")).items())[:_MAX_PAIRS]
        },
        "container": _read_image(job, job.node.get("container")),
    }


def _find_job(root: Node, name: str) -> tuple[_Job | None, str]:
    nodes = {str(key): _mapping(node) for key, node in _mapping(root.get("jobs")).items()}
    jobs = [
        (job_name(key, str(node.get("name") or ""), combination), _make_job(root, node, combination))
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
        if is_possible_name(name, template) or ("strategy" in node and name.startswith(f"{template} (")):
            return _make_job(root, node, {}), ""
    return None, ""


def _make_job(root: Node, node: Node, combination: Combination) -> _Job:
    bare = _Job(node=node, combination=combination, environment={}, defaults={})
    environment = {**bare.pairs(root.get("env")), **bare.pairs(node.get("env"))}
    defaults = {**_read_defaults(root), **_read_defaults(node)}
    settled = {name: fill_expressions(value, combination, environment) for name, value in defaults.items()}
    return replace(bare, environment=environment, defaults=settled)


def _read_defaults(node: Node) -> dict[str, str]:
    run = _mapping(_mapping(node.get("defaults")).get("run"))
    return {name: value for name, value in run.items() if isinstance(value, str)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    node: Node
    combination: Combination
    environment: Mapping[str, str]
    defaults: Mapping[str, str]

    def text(self, value: object, environment: Mapping[str, str] | None = None) -> str:
        written = value if isinstance(value, str) else ""
        return fill_expressions(written[:_TEXT_CHARS], self.combination, environment or self.environment)

    def pairs(self, value: object) -> dict[str, str]:
        return {name: self.text(item) for name, item in list(_mapping(value).items())[:_MAX_PAIRS]}


def _describe_steps(job: _Job, steps: Sequence[tuple[int, str, bool]]) -> dict[int, dict[str, Any]]:
    listed = job.node.get("steps")
    written = [_mapping(step) for step in listed[:_MAX_STEPS]] if isinstance(listed, list) else []
    titles = [
        job.text(node["name"], {**job.environment, **job.pairs(node.get("env"))})
        if node.get("name")
        else f"Run {(job.text(node.get('run')) or job.text(node.get('uses'))).strip().partition(chr(10))[0]}"
        for node in written
    ]
    described: dict[int, dict[str, Any]] = {}
    place = 0
    for number, name, _ in steps:
        at = next((index for index in range(place, len(written)) if is_possible_name(name, titles[index])), None)
        if at is not None:
            place = at + 1
            node, environment = written[at], job.pairs(written[at].get("env"))
            variables = {**job.environment, **environment}
            described[number] = {
                "run": job.text(node.get("run"), variables),
                "shell": job.text(node.get("shell"), variables) or job.defaults.get("shell", ""),
                "working_directory": job.text(node.get("working-directory"), variables)
                or job.defaults.get("working-directory", ""),
                "uses": job.text(node.get("uses")),
                "inputs": job.pairs(node.get("with")),
                "environment": environment,
            }
    return described


def _read_image(job: _Job, value: object) -> str:
    return job.text(_mapping(value).get("image") if isinstance(value, Mapping) else value)


def _mapping(value: object) -> Node:
    return value if isinstance(value, Mapping) else {}


def combinations(matrix: object) -> list[Combination]:
    """Return the combinations of a matrix; a single empty one without a matrix, or if an expression makes it.

    https://docs.github.com/actions/how-tos/write-workflows/choose-what-workflows-do/run-job-variations
    """
    if not isinstance(matrix, Mapping):
        return [{}]
    axes = {
        str(name): [_read_scalar(value) for value in values[:MAX_JOBS]]
        for name, values in matrix.items()
        if name not in {"include", "exclude"} and isinstance(values, list)
    }
    excluded = _read_entries(matrix.get("exclude"))
    result = [dict(zip(axes, values, strict=True)) for values in islice(product(*axes.values()), MAX_JOBS) if axes]
    result = [row for row in result if not any(entry.items() <= row.items() for entry in excluded)]
    # An included entry goes to the combinations whose own values it leaves as they are, else it is one of its own.
    added: list[dict[str, str]] = []
    for entry in _read_entries(matrix.get("include")):
        own = {name: value for name, value in entry.items() if name in axes}
        fitting = [combination for combination in result if own.items() <= combination.items()]
        for combination in fitting:
            combination.update(entry)
        if not fitting and len(result) + len(added) < MAX_JOBS:
            added.append(dict(entry))
    return [*result, *added] or [{}]


def _read_entries(value: object) -> list[Mapping[str, str]]:
    listed = value[:MAX_JOBS] if isinstance(value, list) else []
    return [
        {str(name): _read_scalar(item) for name, item in entry.items()}
        for entry in listed
        if isinstance(entry, Mapping)
    ]


def _read_scalar(value: object) -> str:
    return value if isinstance(value, str) else "Object" if isinstance(value, Mapping) else "Array"


def job_name(base: str, template: str, combination: Combination) -> str:
    """Return the name that GitHub gives a job."""
    if "${{" in template:
        return fill_expressions(template, combination, {})
    return f"{template or base} ({', '.join(combination.values())})" if combination else template or base


def is_possible_name(name: str, template: str) -> bool:
    """Whether a template with unknown expressions can result in a name."""
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


def fill_expressions(text: str, combination: Combination, environment: Mapping[str, str]) -> str:
    """Fill in values of the matrix and of variables; other expressions stay, e.g. a secret's name."""
    contexts = {"matrix": combination, "env": environment}

    def value(expression: re.Match[str]) -> str:
        field = _FIELD.fullmatch(expression[1].strip())
        return contexts[field[1]].get(field[2] or field[3], expression[0]) if field is not None else expression[0]

    return _EXPRESSION.sub(value, text)
