"""The remedy for a missing permission: where to grant it, for the App and for a workflow's token."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bot.jobs.status import lacking
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import context_of


@pytest.mark.parametrize("permission", ["actions", "checks"])
def test_a_workflow_is_told_the_line_of_its_file(permission: str) -> None:
    context = context_of(InMemoryEngine(), a_job(), services=SimpleNamespace(is_long_running=False))
    told = lacking(context, permission)
    assert f"`{permission}: read`" in told
    assert "`permissions:`" in told
    assert "App" not in told


@pytest.mark.parametrize("permission", ["actions", "checks"])
def test_of_an_app_the_permission_is_named_as_its_settings_name_it(permission: str) -> None:
    context = context_of(InMemoryEngine(), a_job(), services=SimpleNamespace(is_long_running=True))
    told = lacking(context, permission)
    assert f"*{permission.capitalize()}: read-only*" in told
    assert "workflow" not in told
    assert "accept it in the installation" in told  # a permission that was only granted does nothing yet
