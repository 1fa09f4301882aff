"""The world that the client's tests look at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from localhub import LocalHub
from tests.github_world import World, opened_world


@pytest.fixture
async def world(hub: LocalHub) -> AsyncIterator[World]:
    async with opened_world(hub) as opened:
        yield opened
