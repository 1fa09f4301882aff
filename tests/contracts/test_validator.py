"""The judge itself: it must notice what it is there for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localhub import Exchange
from tests.contracts.validator import Contract

LABEL: dict[str, Any] = {
    "id": 1,
    "node_id": "x",
    "url": "http://127.0.0.1/x",
    "name": "bug",
    "description": None,
    "color": "ff0000",
    "default": False,
}


@pytest.fixture
def judge(contract_files: Path | str) -> Contract:
    if isinstance(contract_files, str):
        pytest.skip(contract_files)
    return Contract(contract_files)


def exchange(body: object, **changed: Any) -> Exchange:  # noqa: ANN401 - the fields of an exchange
    fields: dict[str, Any] = {
        "method": "GET",
        "template": "/repos/{owner}/{repo}/labels/{name}",
        "path": "/repos/acme/widgets/labels/bug",
        "query": {},
        "request_body": b"",
        "status": 200,
        "media_type": "application/json",
        "body": json.dumps(body).encode(),
    }
    return Exchange(**(fields | changed))


def test_a_right_answer_passes(judge: Contract) -> None:
    judge.served(exchange(LABEL))
    assert judge.violations == []


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (LABEL | {"invented": 1}, {}),
        ({name: value for name, value in LABEL.items() if name != "color"}, {}),
        (LABEL | {"id": "1"}, {}),
        (LABEL | {"name": None}, {}),
        (LABEL, {"query": {"invented": "1"}}),
        (LABEL, {"status": 299}),
        (LABEL, {"method": "PUT"}),
        (LABEL, {"template": "/repos/{owner}/{repo}/invented"}),
        ({"error": "not as GitHub words it"}, {"status": 404}),
        (
            LABEL,
            {"method": "POST", "template": "/repos/{owner}/{repo}/labels", "status": 201, "request_body": b'{"nam":1}'},
        ),
    ],
)
def test_a_wrong_exchange_is_noticed(judge: Contract, body: object, changed: dict[str, Any]) -> None:
    judge.served(exchange(body, **changed))
    assert judge.violations


def test_a_wrong_webhook_is_noticed(judge: Contract) -> None:
    judge.sent("issues", {"action": "invented"})
    judge.sent("ping", {"zen": 1})
    assert len(judge.violations) == 2
