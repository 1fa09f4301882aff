"""Fixtures for the whole suite."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from localhub import LocalHub
from tests.contracts.validator import Contract

ROOT = Path(__file__).parent.parent

pytest_plugins = ["localhub.pytest_plugin"]

# A shell without job control starts what it puts in the background with Control-C ignored, and every program that a
# test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def contract_files() -> Path | str:
    """The folder with GitHub's official descriptions; or, where they cannot be had, the reason."""
    return _fetched("api.json", "webhooks.json", "schema.graphql")


@pytest.fixture(scope="session")
def webhook_examples() -> Path | str:
    """The folder with examples of GitHub's webhooks; or, where they cannot be had, the reason."""
    folder = _fetched("webhook-examples")
    return folder / "webhook-examples" if isinstance(folder, Path) else folder


def _fetched(*names: str) -> Path | str:
    folder = ROOT / ".cache" / "contracts"
    if all((folder / name).exists() for name in names):
        return folder
    fetched = subprocess.run([ROOT / "scripts" / "contracts"], capture_output=True, text=True, check=False)
    return folder if fetched.returncode == 0 else f"GitHub's descriptions cannot be fetched: {fetched.stderr.strip()}"


@pytest.fixture(scope="session")
def shared_contract(contract_files: Path | str) -> Contract | None:
    """The judge, loaded once for all tests; None where the descriptions cannot be had."""
    return Contract(contract_files) if isinstance(contract_files, Path) else None


@pytest.fixture
def hub(hub: LocalHub, shared_contract: Contract | None) -> Iterator[LocalHub]:
    """A running hub; the test fails when an answer or a webhook does not fit GitHub's descriptions."""
    if shared_contract is not None:
        shared_contract.violations.clear()
        hub.observe(served=shared_contract.served, sent=shared_contract.sent)
    yield hub
    if shared_contract is not None:
        assert not shared_contract.violations, "\n".join(shared_contract.violations)
