from __future__ import annotations

import pytest

from agent_runtime import Network, NetworkLimits
from bot.gate.network import narrowed

OPERATOR = Network(allowed=Network.of("registries", "a.example").allowed, limits=NetworkLimits(total_bytes=7))


def test_a_repository_that_says_nothing_gets_what_the_operator_allows() -> None:
    assert narrowed(OPERATOR, None).network == OPERATOR


@pytest.mark.parametrize("wanted", ["off", []])
def test_a_repository_may_want_nothing(wanted: str | list[str]) -> None:
    assert not narrowed(OPERATOR, wanted).network


def test_a_repository_gets_less_when_it_wants_less() -> None:
    found = narrowed(OPERATOR, ["pypi.org", "files.pythonhosted.org"])
    assert str(found.network) == "files.pythonhosted.org, pypi.org"
    assert found.network.limits == OPERATOR.limits
    assert found.left_out == ()


def test_a_repository_never_gets_more() -> None:
    found = narrowed(OPERATOR, ["a.example", "a.example:8443", "evil.example"])
    assert str(found.network) == "a.example"
    assert found.left_out == ("a.example:8443", "evil.example")
    assert not narrowed(Network(), "registries").network


def test_what_cannot_be_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match="must name hosts"):
        narrowed(OPERATOR, ["*"])
