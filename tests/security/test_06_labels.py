"""Threats 6 and 7: a label raises nothing over its setter's own rights, nor for another commit than it was set on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from bot.domain.access import Level, Role, ThreadLabel, text_binding
from bot.domain.job import Actor
from bot.github.types import PushFacts, head_at
from bot.jobs.access import PhaseReader
from bot.permissions.levels import Grant, decide_level
from bot.permissions.permissions import grant_for
from localhub import LocalHub
from localhub.git import plumbing as git
from tests.builders import a_job, a_request_for, thread_facts
from tests.github_world import World, opened_world

OLD, NEW = "a" * 40, "b" * 40
RITA = Actor(id=40, login="rita")


def _label(level: Level, *, role: Role = "write", bound_to: str = OLD) -> ThreadLabel:
    return ThreadLabel(name=f"codepilot:{level}", level=level, labeller=RITA, role=role, bound_to=bound_to)


@pytest.mark.parametrize("role", get_args(Role))
def test_a_label_raises_only_when_who_set_it_may_write(role: Role) -> None:
    request = a_request_for(a_job(kind="pull"), labels=(_label("auto", role=role),))
    found = decide_level(request)
    if role in {"admin", "maintain", "write"}:
        assert found.level == "auto"
    else:
        assert found.level == "ask"
        assert "rita" in found.notes[0]


@pytest.mark.parametrize("role", get_args(Role))
def test_a_label_that_restricts_counts_whoever_set_it_and_whatever_was_pushed(role: Role) -> None:
    label = _label("read-only", role=role, bound_to=NEW)
    assert decide_level(a_request_for(a_job(kind="pull"), labels=(label, _label("auto")))).level == "read-only"


def test_a_push_voids_a_label_and_says_so() -> None:
    job, label = a_job(kind="pull"), _label("auto")
    before = grant_for(a_request_for(job, labels=(label,), facts=thread_facts(head_sha=OLD)))
    after = grant_for(a_request_for(job, labels=(label,), facts=thread_facts(head_sha=NEW)))
    assert isinstance(before, Grant)
    assert isinstance(after, Grant)
    assert (before.level, before.voided) == ("auto", ())
    assert (after.level, after.voided) == ("ask", ("codepilot:auto",))
    assert "`codepilot:auto`" in after.notes[0]
    assert "aaaaaaaaaa" in after.notes[0]


def test_a_labels_permission_is_for_one_commit() -> None:
    """A change made with a label's permission must not be replayed onto a new head."""
    raised = grant_for(a_request_for(a_job(kind="pull"), labels=(_label("auto"),)))
    plain = grant_for(a_request_for(a_job(kind="pull")))
    assert isinstance(raised, Grant)
    assert isinstance(plain, Grant)
    assert (raised.replay, plain.replay) == (False, True)


def test_the_label_of_an_issue_is_void_when_its_words_were_changed() -> None:
    label = _label("auto", bound_to=text_binding("Harmless", "words"))
    found = decide_level(a_request_for(a_job(title="Harmless", body="words, and run this"), labels=(label,)))
    assert (found.level, found.voided) == ("ask", ("codepilot:auto",))


NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def _push(after: str, seconds: int) -> PushFacts:
    return PushFacts(ref="refs/heads/topic", after=after, at=NOON + timedelta(seconds=seconds))


MINE = "c" * 40


@pytest.mark.parametrize(
    ("pushes", "parent", "commit"),
    [
        ([_push(MINE, 60), _push(OLD, -60)], OLD, MINE),
        ([_push(MINE, 60), _push(NEW, 30), _push(OLD, -60)], NEW, OLD),
        ([_push(MINE, 60), _push(OLD, 0)], OLD, ""),
        # The bot's commit on a stranger's, which was taken away before the label and pushed again after it.
        ([_push(MINE, 60), _push(OLD, -60), _push(MINE, -90), _push(NEW, -120)], NEW, OLD),
    ],
    ids=["only the bot's own", "another before it", "in the second of the label", "on another one"],
)
def test_only_the_bots_own_commits_keep_a_label(pushes: list[PushFacts], parent: str, commit: str) -> None:
    assert head_at(pushes, NOON, MINE, own={MINE: parent}) == commit


@pytest.mark.parametrize(
    ("pushes", "head", "commit"),
    [
        ([_push(OLD, -60)], OLD, OLD),
        ([_push(NEW, 60), _push(OLD, -60)], NEW, OLD),
        ([_push(OLD, 90), _push(NEW, 60), _push(OLD, -60)], OLD, OLD),
        # In the very second of the label, two in one second, one that the list lacks, and none that is old enough.
        ([_push(OLD, 0)], OLD, ""),
        ([_push(OLD, 0), _push(NEW, -60)], OLD, ""),
        ([_push(NEW, -60), _push(OLD, -60)], NEW, ""),
        ([_push(OLD, -60)], NEW, ""),
        ([_push(NEW, 60)], NEW, ""),
        ([], OLD, ""),
    ],
)
def test_the_commit_of_a_label_is_that_of_the_last_push_before_it_or_none(
    pushes: list[PushFacts], head: str, commit: str
) -> None:
    assert head_at(pushes, NOON, head) == commit


async def _commit_of_label(world: World, number: int) -> str:
    """Return the commit for which the label of a pull request counts."""
    github, name = world.github, world.name
    [setting] = (await github.threads.label_history(name, number)).settings
    pull = await github.pulls.get(name, number)
    return await PhaseReader(github).head_at(pull, world.repo.id, setting.at)


def _pass_time(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the hub's clock forward; what was before it is in the past."""
    site, passed = world.hub._site, [0.0]
    now = site.now
    monkeypatch.setattr(site, "now", lambda: now() + timedelta(seconds=passed[0]))

    def pass_time(seconds: float) -> None:
        passed[0] += seconds

    return pass_time


async def test_a_commit_that_claims_to_be_older_than_the_label_is_not_the_labels(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_world(hub) as world:
        pull, path, pass_time = world.pull(), world.repo.path, _pass_time(world, monkeypatch)
        reviewed = hub.branches(world.repo)["topic"]
        pass_time(60)
        hub.label(world.repo, pull.number, "codepilot:auto", by="mona")
        assert await _commit_of_label(world, pull.number) == reviewed
        pass_time(60)
        past = git.Person(name="Mona", email="mona@example.com", date=NOON - timedelta(days=3650))
        tree = git.write_tree(path, reviewed, [("100644", git.write_blob(path, b"evil"), "evil.sh")])
        forged = git.write_commit(path, tree=tree, parents=[reviewed], message="Old", author=past, committer=past)
        git.update_ref(path, "refs/heads/topic", forged)
        hub.sync(world.repo, author="mona")
        assert hub.branches(world.repo)["topic"] == forged
        assert await _commit_of_label(world, pull.number) == reviewed


async def test_another_repository_with_the_name_of_a_fork_proves_nothing(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_world(hub) as world:
        hub.add_user("forker")
        fork, other = (hub.add_repo(f"forker/{name}", fork_of=world.repo) for name in ("calc", "other"))
        for repo in (fork, other):
            hub.commit(repo, {"topic.txt": "x"}, message="Mine", author="forker", branch="topic")
        pull = hub.open_pull(world.repo, author="forker", head="forker:topic", title="Mine")
        _pass_time(world, monkeypatch)(60)
        hub.label(world.repo, pull.number, "codepilot:auto", by="mona")
        facts = await world.github.pulls.get(world.name, pull.number)
        [setting] = (await world.github.threads.label_history(world.name, pull.number)).settings
        assert facts.head_repo == "forker/calc"
        for name, commit in (("forker/calc", facts.head_sha), ("forker/other", "")):
            asked = facts.model_copy(update={"head_repo": name, "head_sha": hub.branches(hub.repo(name))["topic"]})
            assert await PhaseReader(world.github).head_at(asked, world.repo.id, setting.at) == commit
