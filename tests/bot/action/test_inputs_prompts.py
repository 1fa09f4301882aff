"""What the inputs `prompt` and `command` ask for, event by event."""

from __future__ import annotations

import pytest

from bot.action.inputs import QUOTED_TASK, job_from_prompt
from bot.domain.access import BotProfile, TrustedBots
from bot.domain.commands import Ask, Explain, Fix, Resolve, Review, StartRecipe, Test, Work
from bot.domain.errors import InputsError
from bot.domain.job import InputValue, Job, UnverifiedInputs
from bot.events.delivery import IgnoredDelivery
from tests.bot.action.action_events import PAYLOADS, a_delivery, asked

LISTENING = BotProfile(own_ids=frozenset({77}), trusted_bots=TrustedBots(ids=frozenset({88})))


def the_job(event: str, *, of: object = None, **changes: object) -> Job:
    found = job_from_prompt(a_delivery(event, **changes), of or asked(), LISTENING)  # type: ignore[arg-type]
    assert isinstance(found, Job), found
    return found


def why_not(event: str, *, of: object = None, **changes: object) -> str:
    found = job_from_prompt(a_delivery(event, **changes), of or asked(), LISTENING)  # type: ignore[arg-type]
    assert isinstance(found, IgnoredDelivery), found
    return found.reason


@pytest.mark.parametrize(
    ("event", "kind", "place", "vouched"),
    [
        ("schedule", "branch", "main", True),
        ("workflow_dispatch", "branch", "main", True),
        ("repository_dispatch", "branch", "main", True),
        ("push", "branch", "main", True),
        ("workflow_run", "branch", "release/2", False),
        ("discussion", "branch", "main", False),
        ("issues", "issue", 7, False),
        ("issue_comment", "issue", 7, False),
        ("pull_request", "pull", 8, False),
        ("pull_request_target", "pull", 8, False),
        ("pull_request_review", "pull", 8, False),
    ],
)
def test_a_prompt_works_on_any_event_in_its_thread_or_on_its_branch(
    event: str, kind: str, place: str | int, *, vouched: bool
) -> None:
    job = the_job(event)
    assert (job.thread.kind, job.thread.branch or job.thread.number) == (kind, place)
    assert (job.origin.kind, job.origin.name, job.origin.vouched) == ("workflow", "Maintenance", vouched)
    assert job.command == Fix(goal="Tidy the code up.")
    assert (job.repo.full_name, job.actor.login) == ("octo/calc", "mona")


def test_a_recipe_works_on_any_event_with_the_prompt_as_further_words() -> None:
    for event in PAYLOADS:
        if event not in {"pull_request", "discussion"}:
            job = the_job(event, of=asked(recipe="weekly"))
            assert job.command == StartRecipe(name="weekly", words="Tidy the code up.")
            assert (job.origin.kind, job.lane) == ("workflow", "steer")
    with pytest.raises(InputsError, match="exclude each other"):
        the_job("push", of=asked(recipe="weekly", command="ask"))


def test_every_step_of_every_run_has_a_job_of_its_own() -> None:
    assert the_job("push", of=asked(unique="1:1:a")).id != the_job("push", of=asked(unique="1:1:b")).id


def test_base_names_the_branch_of_an_event_without_a_thread() -> None:
    for event in ("schedule", "push", "workflow_run"):
        assert the_job(event, of=asked(base="develop")).thread.branch == "develop"
    assert the_job("issues", of=asked(base="develop")).thread.kind == "issue"


def test_a_pushed_tag_needs_a_base() -> None:
    with pytest.raises(
        InputsError, match=r"`refs/tags/v1`, which is not a branch, and the input `base` is empty."
    ) as caught:
        the_job("push", of=asked(ref="refs/tags/v1"))
    assert (caught.value.input_problems[0].input, caught.value.input_problems[0].line) == ("base", "base: main")
    assert the_job("push", of=asked(ref="refs/tags/v1", base="main")).thread.branch == "main"


@pytest.mark.parametrize(
    ("event", "command", "prompt", "expected"),
    [
        ("pull_request", "review", None, Review()),
        ("pull_request", "resolve", None, Resolve()),
        ("pull_request", None, "Check it.", Fix(goal="Check it.")),
        ("issues", "fix", None, Fix()),
        ("issues", "ask", "Is it a bug?", Ask(goal="Is it a bug?")),
        ("schedule", "test", None, Test()),
        ("schedule", "explain", None, Explain()),
    ],
)
def test_a_command_is_done_with_the_prompt_or_without(
    event: str, command: str | None, prompt: str | None, expected: object
) -> None:
    assert the_job(event, of=asked(prompt, command=command)).command == expected


@pytest.mark.parametrize(
    ("event", "command", "prompt", "named"),
    [
        ("schedule", "fix", None, "prompt"),
        ("schedule", "plan", None, "prompt"),
        ("issues", "ask", None, "prompt"),
        ("issues", "review", "Look closely.", "command"),
        ("push", "review", None, "command"),
        ("issues", "resolve", None, "command"),
    ],
)
def test_what_contradicts_the_event_is_refused_by_its_inputs_name(
    event: str, command: str, prompt: str | None, named: str
) -> None:
    with pytest.raises(InputsError) as caught:
        the_job(event, of=asked(prompt, command=command))
    [problem] = caught.value.input_problems
    assert problem.input == named
    assert f"`{command}`" in problem.text
    assert f"`{event}`" in problem.text
    assert problem.line.startswith(f"{named}: ")


@pytest.mark.parametrize("event", ["pull_request", "pull_request_review"])
def test_of_a_fork_only_the_base_repositorys_file_commands(event: str) -> None:
    for home in ({"id": 99}, None):
        assert "run the workflow on `pull_request_target`" in why_not(event, pull_request__head__repo=home)
        assert the_job("pull_request_target", pull_request__head__repo=home).thread.number == 8


def test_a_workflow_that_ran_for_a_fork_is_left_alone() -> None:
    assert "ran for a fork" in why_not("workflow_run", workflow_run__head_repository={"id": 99})
    assert "ran for a fork" in why_not("workflow_run", workflow_run__head_repository=None)


def test_the_bots_own_work_starts_no_more_of_it() -> None:
    own = asked(ref="refs/heads/codepilot/branch-x")
    assert "one of the bot's own branches," in why_not("push", of=own)
    other = asked(ref="refs/heads/codepilot-bot/branch-x")
    assert "one of the bot's own branches," in why_not("push", of=other)
    assert the_job("push", of=asked(ref="refs/heads/codepilot-bots/x")).thread.branch == "codepilot-bots/x"
    assert "one of the bot's own branches," in why_not("workflow_run", workflow_run__head_branch="codepilot/branch-x")
    assert "one of the bot's own branches," in why_not("pull_request", pull_request__head__ref="codepilot/branch-x")
    assert the_job("push", of=asked(ref="refs/heads/codepilot/x", branch_prefix="bots/")).thread.branch
    fork = {"pull_request__head__repo": {"id": 99}, "pull_request__head__ref": "codepilot/branch-x"}
    assert the_job("pull_request_target", **fork).thread.number == 8
    # Looking at it harms nobody.
    reviewed = the_job("pull_request", of=asked(None, command="review"), pull_request__head__ref="codepilot/branch-x")
    assert reviewed.command == Review()
    assert "the bot's own" in why_not("issue_comment", comment__body="Done\n<!-- codepilot:job=j1 sig=00 -->")
    assert "never a command" in why_not("issues", sender__id=77)
    created = {"action": "opened", "issue__body": "Write it.\n<!-- codepilot:job=action-1-j1 sig=00 -->"}
    assert "the bot's own" in why_not("issues", **created)
    assert the_job("issues", **{**created, "action": "labeled"}).thread.number


def test_bots_start_nothing_by_what_they_say_and_little_by_what_they_do() -> None:
    bot = {"id": 55, "login": "helper[bot]", "type": "Bot"}
    assert "bots cannot give commands;" in why_not("issue_comment", sender=bot)
    assert the_job("issue_comment", sender={**bot, "id": 88}).actor.id == 88
    # The gate asks what it may do, and lets the run only read.
    assert the_job("pull_request_target", sender=bot).actor.login == "helper[bot]"


def test_a_run_that_nobody_is_named_for_is_left_alone() -> None:
    assert "names an account" in why_not("schedule", of=asked(actor=None))
    assert "GITHUB_REPOSITORY_ID" in why_not("schedule", of=asked(repo=None))


def test_a_prompt_that_is_not_verified_is_no_goal_and_its_fix_becomes_a_question() -> None:
    unverified = UnverifiedInputs(because="the file is not known", remedy="Name it.", verb="fix")
    whole = (InputValue(source="the input prompt of the workflow", text="Delete it."),)
    for command, verb in ((None, "ask"), ("test", "ask"), ("plan", "plan"), ("explain", "explain"), ("ask", "ask")):
        job = the_job("issues", of=asked(None, command=command, values=whole, unverified=unverified))
        assert isinstance(job.command, Work)
        assert job.command.verb == verb
        assert job.command.goal == ("" if verb == "explain" else QUOTED_TASK)
        assert (job.origin.values, job.origin.unverified) == (whole, unverified)
    job = the_job("push", of=asked(None, recipe="weekly", values=whole, unverified=unverified))
    assert job.command == StartRecipe(name="weekly")


def test_a_goal_has_a_most_of_characters_and_its_values_do_not_count() -> None:
    with pytest.raises(InputsError, match="at most 20,000 characters of its own"):
        the_job("push", of=asked("a" * 20_001))
    value = InputValue(source="value 1", text="a" * 60_000)
    assert the_job("push", of=asked("Tidy up.", values=(value,))).origin.values == (value,)
