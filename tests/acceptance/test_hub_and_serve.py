"""The real bot without GitHub: `codepilot hub` on one's own repository, and `codepilot serve` with its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from tests.acceptance.test_demo import environment
from tests.forked import Forked, codepilot
from tests.hub_pages import browser
from tests.origin import Origin
from tests.ports import free_port
from tests.stage import FILES, FIX
from tests.waiting import eventually


def _until(process: Forked, found: Callable[[str], bool], errors: Path) -> str:
    """What a process says, up to the line that is looked for."""
    said = ""
    while not found(said):
        line = process.stdout.readline()
        assert line, said + errors.read_text()
        said += line
    return said


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_person_tries_the_bot_on_their_repository_without_github(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "src" / "calc")
    head = origin.commit(FILES)
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump([{"reply": FIX}]), encoding="utf-8")
    settings, port = tmp_path / "hub", free_port()
    hub = ("hub", str(tmp_path / "src"), "--settings", str(settings), "--webhook", f"http://127.0.0.1:{port}/webhook")
    env: Mapping[str, str] = environment(tmp_path)
    scripted = {"CODEPILOT_PROVIDER": "scripted", "CODEPILOT_MODEL": str(script), "CODEPILOT_ALLOW_ROOT": "yes"}
    config = {"CODEPILOT_CONFIG": str(settings / "codepilot.yml"), "CODEPILOT_LEVEL": "auto"}
    errors = tmp_path / "hub.log"
    with codepilot(hub, env=env, stderr=errors, at=tmp_path, piped=True) as serving:
        said = _until(serving, lambda said: "Ctrl+C" in said, errors)
        site = said.split()[1].partition("/mona/calc")[0]
        log = tmp_path / "serve.log"
        log.touch()
        with codepilot(("serve",), env={**env, **scripted, **config}, stderr=log, at=tmp_path):
            await eventually(lambda: "listening on" in log.read_text(), within=60)
            async with browser(site) as page:
                assert await page.send("/mona/calc/issues", {"title": "Adding is off by one"}) == 303
                assert await page.send("/mona/calc/issues/1/comments", {"body": "/codepilot fix"}) == 303

                async def fixed() -> bool | None:
                    return "pull request #2" in await page.look("/mona/calc/issues/1")

                done: bool = await eventually(fixed, within=60)
                assert done
                assert await page.send("/mona/calc/pull/2/merge", {}) == 303
                assert "return a + b + 1" not in await page.look("/mona/calc/blob/main/calc.py")
    assert origin.head() == head
