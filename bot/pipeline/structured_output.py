"""A result for a program: the schema that a workflow asks for, and how people read what fits it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_runtime import Outcome, SettingsError, require_output_schema
from bot.domain.errors import WrongInputError
from bot.jobs.context import JobContext
from bot.publishing.text import fenced
from bot.workspace import Source

_MAX_BYTES = 256 * 1024


async def output_schema_of(context: JobContext, repo_id: int, base: Source) -> dict[str, Any] | None:
    """The schema that results must fit, from the input itself or from the base branch's commit; None for no schema.

    Raises:
        WrongInputError: the commit has no such file, or it is no JSON schema.
        WorkspaceError: what is there is not a file, or is too long.
    """
    wanted = context.services.conventions.output_schema
    if wanted is None or isinstance(wanted, Mapping):
        return None if wanted is None else dict(wanted)
    place = f"The input `output-schema` names `{wanted}`"
    file = await context.services.workspaces.read(repo_id, base, wanted, limit=_MAX_BYTES)
    if file is None:
        raise WrongInputError(f"{place}, which is not in commit {base.sha[:10]} of the base branch. Commit it there.")
    try:
        schema = json.loads(file.content)
    except (ValueError, RecursionError) as error:
        raise WrongInputError(f"{place}, which is not JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise WrongInputError(f"{place}, which is not a JSON object.")
    try:
        await require_output_schema(schema)
    except SettingsError as error:
        raise WrongInputError(f"{place}. {error}") from error
    return schema


def readable(outcome: Outcome) -> Outcome:
    """The same outcome, its summary as a block of code where it is nothing but JSON."""
    if not outcome.output_json or not outcome.summary or "```" in outcome.summary:
        return outcome
    return replace(outcome, summary=fenced(outcome.summary, "json"))
