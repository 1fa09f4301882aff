from __future__ import annotations

from agent_runtime import Connection, NetworkLost, NetworkUsed
from bot.jobs.progress import Progress
from bot.publishing.render import Activity, DeniedCall


def test_a_network_that_went_away_is_remembered() -> None:
    used = NetworkUsed(connection=Connection(host="a.example", port=443, allowed=True))
    progress = Progress().after(used).after(NetworkLost(reason="the proxy broke"))
    assert progress.network_lost == "the proxy broke"


def test_what_no_agent_does_is_one_activity_from_its_beginning_to_its_end() -> None:
    begun, ended = Activity(label="setup: make", state="doing"), Activity(label="setup: make", state="failed")
    copied = Activity(label="copied", state="done")
    assert Progress().told(begun).activities == (begun,)
    assert Progress().told(begun).told(ended).told(copied).activities == (ended, copied)
    assert Progress().told(begun).told(ended).told(begun).activities == (ended, begun)


def test_a_denied_call_is_kept_once() -> None:
    call = DeniedCall(tool="execute", asked="curl x", reason="network", setting="allow-commands", value="curl x")
    other = DeniedCall(tool="ask_user", asked="Which?", reason="a question")
    assert Progress().without(call).without(other).without(call).denied == (call, other)
