"""Short words in place of a verb: stop, yes and no."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.commands import (
    Approve,
    Ask,
    BareCommand,
    Command,
    Deny,
    Fix,
    Options,
    Review,
    StartRecipe,
    Stop,
    Unclear,
)
from bot.domain.grammar import VERBS, parse_command
from bot.domain.short_words import SHORT_WORDS, find_meaning

_COMMANDS = {"stop": Stop, "yes": Approve, "no": Deny, "unclear": Unclear, "thanks": Unclear}
_VERBS = {verb.name for verb in VERBS}


def _parse(words: str) -> Command | None:
    parsed = parse_command(f"/codepilot {words}", triggers=("/codepilot",))
    return parsed.command if parsed else None


@pytest.mark.parametrize("words", SHORT_WORDS)
def test_each_word_of_the_table_means_the_same_however_it_is_written(words: str) -> None:
    kind = _COMMANDS[SHORT_WORDS[words]]
    for text in (
        words,
        words.upper(),
        f"Please {words}!",
        f"{words}, thanks.\n",
        f"*{words}* 🙏",
        f"{words}\n\nThank you",
    ):
        assert isinstance(_parse(text), kind), text
    assert isinstance(_parse(f"{words}?"), Unclear)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("cancel", Stop(word="cancel")),
        ("please stop", Stop()),
        ("Stop!", Stop()),
        ("kill it", Stop(word="kill it")),
        ("cancel, wrong branch", Stop(word="cancel, wrong branch")),
        ("abort - I made a mistake", Stop(word="abort - I made a mistake")),
        ("can you stop", Stop(word="can you stop")),
        ("please cancel my job now", Stop(word="please cancel my job now")),
        ("ok stop it", Stop(word="ok stop it")),
        ("you can abort the current run", Stop(word="you can abort the current run")),
        ("stop right now", Stop()),
        ("Ctrl+C", Stop(word="Ctrl+C")),
        ("Стоп!", Stop(word="Стоп!")),
        ("停止\u3002", Stop(word="停止\u3002")),
        ("Great, go ahead", Approve(word="Great, go ahead")),
        ("Nein!", Deny(word="Nein!")),
        ("run stop", StartRecipe(name="stop")),
        ("halt\nit does the wrong thing", Stop(word="halt it does the wrong thing")),
        ("yes", Approve(word="yes")),
        ("Yes, go ahead! 👍", Approve(word="Yes, go ahead! 👍")),
        ("👍🏽", Approve(word="👍🏽")),
        (":+1:", Approve(word=":+1:")),
        ("approve it", Approve()),
        ("approve, thanks", Approve()),
        ("nope", Deny(word="nope")),
        ("don\u2019t", Deny(word="don\u2019t")),
        ("never mind", Deny(word="never mind")),
        ("deny 👎", Deny()),
        ("yes\n\n> May I run `sh deploy.sh`?", Approve(word="yes")),
    ],
)
def test_a_short_word_is_the_command_that_it_means(words: str, command: Command) -> None:
    assert _parse(words) == command


@pytest.mark.parametrize(
    "words",
    [
        "hold on",
        "wait, that is the wrong file",
        "yes no",
        "no, yes",
        "don't stop",
        "do not cancel",
        "don't approve",
        "no, go ahead",
        "no, use tabs",
        "Nope. It is fine",
        "don't touch the tests",
        "please do not change anything",
        "ok, cancel",
        "👍 👎",
        "thanks!",
        "great, thanks!",
        "Perfect.",
        "could you stop?",
        "yes\uff1f",
        "ok \u2049",
        "ok 🤔",
        "sure \U0001f937\U0001f3fd",
        "don\u00b4t approve",
        "you can stop, no",
        "ja",
        "fix can you stop",
        "🙏",
        "...",
        "fix stop",
        "fix cancel!",
        "review no",
        "ask hold on",
    ],
)
def test_words_that_may_mean_the_opposite_begin_no_work(words: str) -> None:
    assert isinstance(_parse(words), Unclear)


@pytest.mark.parametrize(
    "words",
    [
        "cancel button is broken",
        "the run must be fast",
        "the job should stop after a minute",
        "this is fine, now the tests",
        "cancel: the button is broken",
        "abort the upload when the disk is full",
        "halting is not detected",
        "no-op commands raise",
        "yes/no prompts hang",
        "ok status is wrong",
        "ok, now fix the parser",
        "Perfect. Now add tests",
        "great work, now the tests",
        "never show the spinner twice",
        "quit leaves a file behind",
        "kill the server after a minute",
        "\u0443\u0435\u0455",  # Cyrillic letters
        "\u212a",  # the Kelvin sign
        "~~yes~~",
        "`yes`",
        "stop" * 100,
    ],
)
def test_a_longer_text_that_begins_with_such_a_word_is_a_goal(words: str) -> None:
    assert _parse(words) == BareCommand(goal=words)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("-- cancel", BareCommand(goal="cancel")),
        ("fix -- stop", Fix(goal="stop")),
        ("fix yes", Fix(goal="yes")),
        ("review please", Review(goal="please")),
        ("ask why is no a word?", Ask(goal="why is no a word?")),
    ],
)
def test_two_hyphens_and_other_words_make_a_goal(words: str, command: Command) -> None:
    assert _parse(words) == command


def test_an_option_does_not_make_a_goal_of_a_short_word() -> None:
    assert _parse("cancel --dry-run") == Stop(word="cancel")
    assert _parse("cancel the build --dry-run") == BareCommand(goal="cancel the build", options=Options(dry_run=True))


@pytest.mark.parametrize("words", ["yes do it", "yes, do", "yes please do it now", "ok go on"])
def test_words_are_divided_into_phrases_whose_first_words_another_one_has_too(words: str) -> None:
    assert find_meaning(words) == "yes"


@given(st.lists(st.sampled_from([*SHORT_WORDS, "please", "!", ",", "🙏", "?"]), min_size=1, max_size=6).map(" ".join))
def test_no_mixture_of_these_words_begins_work(words: str) -> None:
    assert isinstance(_parse(words), (Stop, Approve, Deny, Unclear))


@given(st.text(max_size=300))
def test_any_text_has_a_meaning_or_none(text: str) -> None:
    assert find_meaning(text) in {None, "stop", "yes", "no", "unclear", "thanks"}


def test_every_verb_stays_one() -> None:
    meanings = {name: find_meaning(name) for name in _VERBS}
    assert {name for name, meaning in meanings.items() if meaning} == {"stop", "approve", "deny"}
