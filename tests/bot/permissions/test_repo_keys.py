"""The published schema of `.github/codepilot.yml`: fresh, and of the same mind as the bot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.permissions.repo_config import RepoConfigError, json_schema, parse_config
from tests.source_files import ROOT

_PUBLISHED = ROOT / "docs" / "codepilot.schema.json"
_CHECKER = Path(sys.executable).with_name("check-jsonschema")
_GOOD = {
    "setup": "setup: [make]\ncache: [built]\nnetwork: [registries]\ninstructions: Be kind.\n",
    "one host": "network: registries\n",
    "bounds": "bare_pull: review\nlevel: ask\nallow: [make e2e]\nprotected: [infra/**]\nbudget_usd: 0.5\nbase: main\n",
    "by verb": "verbs: {fix: {model: big}, plan: {max_steps: 3}}\nlabels: {start: go}\nfix_ci: default-branch\n",
}
_BAD = {
    "unknown key": "setpu: [make]\n",
    "unknown verb": "verbs: {fxi: {}}\n",
    "wrong type": "max_steps: many\n",
    "out of range": "max_steps: 0\n",
    "no such level": "level: root\n",
    "review of an issue": "bare_issue: review\n",
    "no triggers": "triggers: []\n",
}


def _check(folder: Path, examples: dict[str, str]) -> subprocess.CompletedProcess[str]:
    paths = [folder / f"{name.replace(' ', '-')}.yml" for name in examples]
    for path, text in zip(paths, examples.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    options = ["--output-format", "json", "--verbose", "--schemafile", str(_PUBLISHED)]
    return subprocess.run([_CHECKER, *options, *paths], capture_output=True, text=True, check=False)


def test_the_published_schema_is_up_to_date() -> None:
    fresh = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        _PUBLISHED.write_text(fresh, encoding="utf-8")
    assert _PUBLISHED.read_text(encoding="utf-8") == fresh, (
        "run: UPDATE_DOCS=1 pytest tests/bot/permissions/test_repo_keys.py"
    )


def test_editors_accept_what_the_bot_accepts(tmp_path: Path) -> None:
    for text in _GOOD.values():
        parse_config(text.encode())
    result = _check(tmp_path, _GOOD)
    assert result.returncode == 0, result.stdout


def test_editors_flag_what_the_bot_refuses(tmp_path: Path) -> None:
    for text in _BAD.values():
        with pytest.raises(RepoConfigError):
            parse_config(text.encode())
    result = _check(tmp_path, _BAD)
    flagged = {Path(error["filename"]).stem for error in json.loads(result.stdout)["errors"]}
    assert flagged == {name.replace(" ", "-") for name in _BAD}


def test_every_key_is_described() -> None:
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    bare = [
        name
        for section in sections
        for name, key in section["properties"].items()
        if "description" not in key and "$ref" not in key
    ]
    assert bare == []
