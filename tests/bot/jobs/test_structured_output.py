"""The schema that results must fit, as the workflow names it, and a result as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime import Outcome, Status
from bot.domain.errors import WrongInputError
from bot.git.mirror import Blob, Source
from bot.jobs.agent_run import readable
from bot.jobs.repo_settings import output_schema_of
from bot.permissions.levels import Conventions
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import context_of

PATH = ".github/triage.schema.json"
BASE = Source(url="/origin", token="", ref="refs/heads/main", sha="a" * 40)
SCHEMA = {"type": "object", "required": ["kind"]}


async def _schema(wanted: Mapping[str, Any] | str | None, content: bytes | None = None) -> dict[str, Any] | None:
    """The schema where the base branch's commit, and no other, has this file."""

    async def read(repo_id: int, source: Source, path: str, *, limit: int) -> Blob | None:
        assert (repo_id, source, path) == (10, BASE, PATH)
        assert limit <= 1024 * 1024
        return None if content is None else Blob(id="1", content=content)

    services = SimpleNamespace(conventions=Conventions(output_schema=wanted), workspaces=SimpleNamespace(read=read))
    return await output_schema_of(context_of(InMemoryEngine(), a_job(), services=services), 10, BASE)


async def test_a_schema_is_the_inputs_own_or_the_base_branchs() -> None:
    assert await _schema(None) is None
    assert await _schema(SCHEMA) == SCHEMA
    assert await _schema(PATH, b'\xef\xbb\xbf{"type": "object", "required": ["kind"]}') == SCHEMA


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b"[1]",
        b"null",
        b'{"type": "obj"}',
        b'{"$ref": "https://example.com/schema"}',
    ],
    ids=["missing", "empty", "half", "no text", "deep", "a list", "null", "no type", "elsewhere"],
)
async def test_what_is_no_schema_is_an_error_that_names_the_file(content: bytes | None) -> None:
    with pytest.raises(WrongInputError, match=PATH):
        await _schema(PATH, content)


@pytest.mark.parametrize(
    ("output_json", "summary", "shown"),
    [
        ('{"a":1}', '{"a": 1}', '```json\n{"a": 1}\n```'),
        ('{"a":1}', 'It is:\n```json\n{"a": 1}\n```', 'It is:\n```json\n{"a": 1}\n```'),
        ("", "Words.", "Words."),
        ('{"a":1}', None, None),
    ],
    ids=["nothing but JSON", "a block already", "words", "nothing"],
)
def test_a_result_that_is_nothing_but_json_is_shown_as_a_block(
    output_json: str, summary: str | None, shown: str | None
) -> None:
    outcome = Outcome(status=Status.FINISHED, summary=summary, output_json=output_json)
    assert readable(outcome).summary == shown
