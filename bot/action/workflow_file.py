"""Divide a step's inputs into the workflow file's words and the values of its expressions.

`divide_inputs` finds the running step in the file and compares the evaluated inputs with its text. A value is trusted
if only people with write access can set its contexts. Runs in a worker process, since file and values are untrusted.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import yaml

WRITERS_CONTEXTS = frozenset(
    {
        "github.api_url", "github.event.label.name", "github.event.repository.default_branch",
        "github.event.repository.full_name", "github.event.repository.name", "github.event.schedule",
        "github.event_name", "github.graphql_url", "github.job", "github.ref_protected", "github.ref_type",
        "github.repository", "github.repository_id", "github.repository_owner", "github.repository_owner_id",
        "github.run_attempt", "github.run_id", "github.run_number", "github.server_url", "github.sha",
        "github.workflow", "github.workflow_sha", "runner.arch", "runner.os",
    }
)  # fmt: skip
"""Contexts whose text GitHub makes, or only people with write access can set. `github.ref_name` is not among them:
GitHub names branches after the titles of issues."""
_VARIABLES = "vars"
_DISPATCH_INPUTS = ("inputs", "github.event.inputs")
_MATRIX = "matrix"

# Their results consist of their arguments alone: https://docs.github.com/actions/reference/evaluate-expressions-in-workflows-and-actions#functions
_FUNCTIONS = frozenset({"case", "contains", "endswith", "format", "fromjson", "join", "startswith", "tojson"})
_KEYWORDS = frozenset({"true", "false", "null", "nan", "infinity"})

# As GitHub's runner finds the end of an expression: `}}` outside of quotes.
_EXPRESSION = re.compile(r"\$\{\{((?:[^'}]|'[^']*'|\}(?!\}))*+)\}\}")
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*+"
_TOKEN = re.compile(
    rf"\s*+(?:(?P<path>{_NAME}(?:\s*+\.\s*+{_NAME}|\s*+\[\s*+'{_NAME}'\s*+\])*+)(?P<call>\s*+\()?"
    r"|'(?:[^']|'')*+'|[-+]?\.?[0-9][\w.+-]*+|&&|\|\||[!=<>]=?|[()\[\],])\s*+",
    re.ASCII,
)
_PATH_NAME = re.compile(_NAME)


class Piece(NamedTuple):
    """A part of an input's value.

    Attributes:
        expression: the source of the part; empty for the file's own words.
        trusted: whether only people with write access can have written it.
    """

    text: str
    expression: str
    trusted: bool


def divide_inputs(text: str, step: Mapping[str, str], values: Mapping[str, str | None]) -> dict[str, list[Piece]]:
    """Divide the values of a step's inputs by the workflow file.

    Args:
        step: the runner's `job`, `action`, `action_path` and `workspace`; `dispatched_by` is `bot` if a bot gave the
            inputs, perhaps with a stranger's words.
        values: by input; None to divide the expressions only.

    Raises:
        ValueError: the step is not identified, or the file cannot give a value; the end of a sentence.
    """
    try:
        # Texts, lists and mappings, and nothing else: https://github.com/yaml/pyyaml/wiki/PyYAMLDocumentation#baseloader
        root = _mapping(yaml.load(text, Loader=yaml.BaseLoader))  # noqa: S506 - see above
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("the workflow file is not YAML") from error
    jobs = _mapping(root.get("jobs"))
    # Of a job in a called workflow, the runner names the calling file, and the id may be one of either file.
    if any("uses" in _mapping(each) for each in jobs.values()):
        raise ValueError("the workflow calls other workflows, whose jobs may have the same ids")
    job = _mapping(jobs.get(step["job"]))
    node = _find_step(job.get("steps"), step)
    trees = {_VARIABLES}
    if step["dispatched_by"] != "bot":
        trees.update(_DISPATCH_INPUTS)
    if _is_written_out(_mapping(job.get("strategy")).get("matrix")):
        trees.add(_MATRIX)
    given = _mapping(node.get("with"))
    divided: dict[str, list[Piece]] = {}
    for name, value in values.items():
        templates = [each for key, each in given.items() if key.casefold() == name]
        template = templates[0] if len(templates) == 1 and isinstance(templates[0], str) else ""
        if value is None:
            expressions = split_template(template)[1] if template else ()
            pieces: list[Piece] | None = [Piece("", each, is_trusted(each, frozenset(trees))) for each in expressions]
        else:
            pieces = divide(template, value, trees)
        if not template or pieces is None:
            raise ValueError(f"the input `{name}` is not what the workflow file says")
        divided[name] = pieces
    return divided


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_written_out(node: object) -> bool:
    pending, seen = [node], set[int]()
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            if "${{" in part:
                return False
        elif id(part) not in seen:  # an alias may name a part many times, and itself
            seen.add(id(part))
            pending += part if isinstance(part, list) else [*_mapping(part), *_mapping(part).values()]
    return True


def _find_step(steps: object, step: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the step that runs this action.

    In a composite action, GITHUB_ACTION stays the name of the job's step, and GITHUB_ACTION_PATH is the action's own:
    if another action calls this one, the step of that name does not use this action.
    """
    listed = [_mapping(each) for each in steps] if isinstance(steps, list) else []
    for node, name in zip(listed, _step_names(listed), strict=True):
        if name and name == step["action"]:
            if _is_this_action(str(node.get("uses") or ""), step["action_path"], step["workspace"]):
                return node
            raise ValueError(f"the step `{name}` of the job does not use this action itself")
    raise ValueError("the workflow file has no step of the name that the runner gives (GITHUB_ACTION)")


def _step_names(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return GitHub's names of steps: ids, else names derived from `uses`, numbered if repeated.

    https://docs.github.com/actions/reference/variables#default-environment-variables
    """
    listed = list(steps)
    names = [str(each.get("id") or "") for each in listed]
    taken = {each.casefold() for each in names}
    count: dict[str, int] = {}
    for place, node in enumerate(listed):
        if names[place]:
            continue
        uses = str(node.get("uses") or "")
        owner_and_name = "/".join(uses.partition("@")[0].split("/")[:2])
        base = re.sub(r"[^A-Za-z0-9_-]", "_", "self" if uses.startswith("./") else owner_and_name or "run")
        key = base.casefold()
        while True:
            count[key] = count.get(key, 0) + 1
            name = f"__{base}_{count[key]}" if count[key] > 1 else f"__{base}"
            if name.casefold() not in taken:
                break
        taken.add(name.casefold())
        names[place] = name
    return names


def _is_this_action(uses: str, action_path: str, workspace: str) -> bool:
    """Whether `uses:` names the action in this directory; the runner keeps it in `_actions/OWNER/NAME/REF`."""
    directory = os.path.normpath(action_path or "/")
    if uses.startswith("./"):
        return bool(workspace and action_path) and directory == os.path.normpath(f"{workspace}/{uses}")
    name, _, ref = uses.partition("@")
    owner, repo, *below = [*name.split("/"), ""]
    if not (owner and repo and ref):
        return False
    kept = os.path.normpath("/".join(["/_actions", owner, repo, ref, *below]))
    return directory.casefold().endswith(kept.casefold())


def divide(template: str, value: str, trees: Iterable[str]) -> list[Piece] | None:
    """Divide a value by its text in the file; None if the text cannot give it.

    If the division is ambiguous, all between the first and the last expression is one piece.
    """
    literals, expressions = split_template(template)
    if not expressions:
        return [Piece(value, "", trusted=True)] if value.strip() == template.strip() else None
    first, *between, last = literals
    if first.strip() and last.strip():
        first, last, value = first.lstrip(), last.rstrip(), value.strip()
    if not (value.startswith(first) and value.endswith(last) and len(first) + len(last) <= len(value)):
        return None
    middle = value[len(first) : len(value) - len(last)]
    earliest = _places(middle, between)
    # From the end; `str.rfind` is not linear.
    mirrored = _places(middle[::-1], [each[::-1] for each in reversed(between)])
    if earliest is None or mirrored is None:
        return None
    latest = [(len(middle) - end, len(middle) - start) for start, end in reversed(mirrored)]
    trees = frozenset(trees)
    trusted = [is_trusted(each, trees) for each in expressions]
    if earliest == latest:
        edges = [0, *(place for pair in earliest for place in pair), len(middle)]
        pieces = [
            Piece(middle[edges[2 * number] : edges[2 * number + 1]], expression, trusted[number])
            for number, expression in enumerate(expressions)
        ]
        for number, literal in reversed(list(enumerate(between, 1))):
            pieces.insert(number, Piece(literal, "", trusted=True))
    else:
        pieces = [Piece(middle, " … ".join(expressions), all(trusted))]
    return [Piece(first, "", trusted=True), *pieces, Piece(last, "", trusted=True)]


def split_template(template: str) -> tuple[list[str], list[str]]:
    """Return the literal parts between a text's expressions.

    Raises:
        ValueError: an expression has no end.
    """
    literals, expressions, place = list[str](), list[str](), 0
    while (start := template.find("${{", place)) >= 0:
        found = _EXPRESSION.match(template, start)
        if found is None:
            raise ValueError("an expression in the workflow file has no end")
        literals.append(template[place:start])
        expressions.append(found[1].strip())
        place = found.end()
    return [*literals, template[place:]], expressions


def _places(text: str, pieces: Iterable[str]) -> list[tuple[int, int]] | None:
    places, place = list[tuple[int, int]](), 0
    for piece in pieces:
        start = text.find(piece, place)
        if start < 0:
            return None
        place = start + len(piece)
        places.append((start, place))
    return places


def is_trusted(expression: str, trees: frozenset[str]) -> bool:
    """Whether only people with write access can set every context in an expression."""
    place = 0
    while place < len(expression):
        token = _TOKEN.match(expression, place)
        if token is None:
            return False
        if token["path"]:
            names = [each.casefold() for each in _PATH_NAME.findall(token["path"])]
            path = ".".join(names)
            if token["call"]:
                is_known = path in _FUNCTIONS
            else:
                is_known = path in WRITERS_CONTEXTS or path in _KEYWORDS or _is_below(names, trees)
            if not is_known:
                return False
        place = token.end()
    return place > 0


def _is_below(names: list[str], trees: frozenset[str]) -> bool:
    return any(names[: each.count(".") + 1] == each.split(".") for each in trees)
