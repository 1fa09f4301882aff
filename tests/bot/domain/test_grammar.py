from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.domain.commands import (
    Approve,
    Ask,
    BadUsage,
    BareCommand,
    Command,
    Continue,
    Deny,
    Explain,
    Fix,
    Help,
    Options,
    Plan,
    Remember,
    Resolve,
    Retry,
    Review,
    ShowStatus,
    StartRecipe,
    Steering,
    Stop,
    Test,
    Undo,
    UnknownVerb,
    Work,
)
from bot.domain.grammar import (
    OPTIONS,
    VERBS,
    ParsedCommand,
    ParsedLine,
    Place,
    parse_command,
    parse_merge_request,
    parse_options,
    render_help,
)
from bot.domain.short_words import is_transposition, is_typo

TRIGGER = "/codepilot"


def _command(comment: str) -> Command | None:
    parsed = parse_command(comment, triggers=(TRIGGER,))
    return parsed.command if parsed else None


def _parse(words: str) -> Command | None:
    return _command(f"{TRIGGER} {words}")


@pytest.mark.parametrize(
    ("comment", "command"),
    [
        ("/codepilot fix", Fix(goal="")),
        ("/codepilot fix the sum", Fix(goal="the sum")),
        ("  \n\n   /codepilot   FIX \t the sum  ", Fix(goal="the sum")),
        ("/CodePilot Fix it", Fix(goal="it")),
        ("/codepilot fix\nthe sum\n\nand `this`:\n```py\nx\n```\n", Fix(goal="the sum\n\nand `this`:\n```py\nx\n```")),
        ("/codepilot fix the sum\r\nand more\r\n", Fix(goal="the sum\nand more")),
        ("/codepilot fix <!-- kept --> > \u200b", Fix(goal="<!-- kept --> > \u200b")),
        ("/codepilot\u00a0fix it", Fix(goal="it")),
        ("/codepilot", Help()),
        ("/codepilot  \t\nfix this", Help()),
        ("/codepilot help me please", Help()),
        ("/codepilot --help", Help()),
        ("/codepilot: fix it", Fix(goal="it")),
        ("/codepilot, FIX. the sum", Fix(goal="the sum")),
        ("/codepilot fix.", Fix()),
        ("/codepilot fix: it", Fix(goal="it")),
        ("/codepilot Review!", Review()),
        ("/codepilot please undo", Undo()),
        ("/codepilot Please, retry!", Retry()),
        ("> someone wrote\n\n/codepilot fix", Fix(goal="")),
        ("```\ncode\n```\n/codepilot fix", Fix(goal="")),
        ("~~~~\n~~~\n/codepilot help\n~~~~\n/codepilot fix", Fix(goal="")),
        ("<!-- a template\n\n/codepilot help -->\n/codepilot fix", Fix(goal="")),
        ("    /codepilot help\n\n/codepilot fix", Fix(goal="")),
        ("> ```\n\n/codepilot fix", Fix(goal="")),
    ],
)
def test_a_command_is_found(comment: str, command: Command) -> None:
    assert _command(comment) == command


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("review the tests", Review(goal="the tests")),
        ("explain\nthis", Explain(goal="this")),
        ("plan it", Plan(goal="it")),
        ("ask why?", Ask(goal="why?")),
        ("test", Test()),
        ("undo", Undo()),
        ("undo it breaks the API", Undo(why="it breaks the API")),
        ("undo because the last two tests fail", Undo(why="because the last two tests fail")),
        ("undo\nThe tests fail.", Undo(why="The tests fail.")),
        ("remember", Remember()),
        ("remember never use --force\nor -f", Remember(rule="never use --force\nor -f")),
        ("remember: stop early\n> a quote", Remember(rule="stop early")),
        ("remember yes", Remember(rule="yes")),
        ("continue use the other one\n--model x", Continue(message="use the other one\n--model x")),
        ("approve", Approve()),
        ("approve 7f3a, please!", Approve(request_id="7f3a")),
        ("deny 7f3a: too much", Deny(request_id="7f3a", why="too much")),
        ("approve 7F3a", Approve(request_id="7f3a")),
        ("approve 7f3a --like", Approve(request_id="7f3a", like=True)),
        ("approve --like", Approve(like=True)),
        ("APPROVE 7f3a9c21\n", Approve(request_id="7f3a9c21")),
        ("deny", Deny()),
        ("deny 7F3A", Deny(request_id="7f3a")),
        ("deny 7f3a  it is\ntoo much", Deny(request_id="7f3a", why="it is\ntoo much")),
        ("deny it is too much", Deny(why="it is too much")),
        ("deny 7f3 too short for an id", Deny(why="7f3 too short for an id")),
        ("deny 7f3a9c210 too long", Deny(why="7f3a9c210 too long")),
        ("stop", Stop()),
        ("stop it --now please", Stop()),
        ("retry", Retry()),
        ("status?", UnknownVerb(word="status?", nearest="status")),
        ("status of this", ShowStatus()),
    ],
)
def test_every_verb_takes_what_belongs_to_it(words: str, command: Command) -> None:
    assert _parse(words) == command


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("approve them", "4 to 8 hexadecimal digits"),
        ("approve 7f3", "4 to 8 hexadecimal digits"),
        ("approve 7f3a9c210", "4 to 8 hexadecimal digits"),
        ("approve 7f3a but leave the tests alone", "To approve under a condition, deny and say why."),
        ("approve 7f3a\nbut leave the tests alone", "To approve under a condition, deny and say why."),
        ("approve \u0661\u0662\u0663\u0664", "4 to 8 hexadecimal digits"),
        ("undo the last two", "says why"),
        ("undo 03260100f0", "says why"),
        ("undo commit 03260100f0", "says why"),
        ("undo #8", "says why"),
        ("undo --dry-run", "takes no options"),
        ("retry with more steps", "takes no text:"),
        ("retry --max-steps 50", "takes no options"),
        ("--dry-run fix it", "Options follow the command: write `fix` first."),
        ("--dry-run", "no command word and no text."),
    ],
)
def test_what_cannot_be_meant_is_answered_with_the_remedy(words: str, remedy: str) -> None:
    command = _parse(words)
    assert isinstance(command, BadUsage)
    assert remedy in command.reason


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ("fxi it", "fix"),
        ("FXI", "fix"),
        ("reveiw", "review"),
        ("aprove 7f3a", "approve"),
        ("statsu", "status"),
        ("HELPP", "help"),
        ("fix? it", "fix"),
        ("cancle", "stop"),
        ("abrot", "stop"),
        ("tset", "test"),
        ("explian this", "explain"),
        ("reviews", "review"),
        ("\u0441ontinue", "continue"),  # a Cyrillic letter
    ],
)
def test_a_mistyped_verb_is_answered_with_the_one_that_was_meant(words: str, nearest: str) -> None:
    assert _parse(words) == UnknownVerb(word=words.split(maxsplit=1)[0], nearest=nearest)


@pytest.mark.parametrize(
    "words",
    [
        "please fix the bug",
        "tests fail on main",
        "as said above",
        "task 7 comes first",
        "text is cut off",
        "fixed in the other branch?",
        "f\u0456x it",  # a Cyrillic letter
        "f\u0131x it",  # a Turkish one
        "x" * 60_000,
        "why does `--model x` fail?",
    ],
)
def test_text_without_a_verb_is_a_bare_wish(words: str) -> None:
    assert _parse(words) == BareCommand(goal=words)


@pytest.mark.parametrize(
    "comment",
    [
        "/codep\u0131lot fix",
        "/codepi\u217cot fix",
        "\uff0fcodepilot fix",
        "/\u0441odepilot fix",
        "/codepilot\u200b fix",
    ],
)
def test_letters_that_only_look_alike_are_no_trigger(comment: str) -> None:
    assert _command(comment) is None


def test_the_kelvin_sign_is_no_k() -> None:
    assert parse_command("/\u212aeeper fix", triggers=("/keeper",)) is None
    assert parse_command("/Keeper fix", triggers=("/keeper",)) is not None


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "   \n\t\n",
        "Please /codepilot fix",
        "Thanks!\n\n/codepilot fix",
        "/codepilots fix",
        "/codepilot-fix",
        "/codepilot/fix",
        "/codepilot. fix",
        "/codepilot; fix",
        "codepilot fix",
        "//codepilot fix",
        "- /codepilot fix",
        "# /codepilot fix",
        "**/codepilot fix**",
        "\u200b/codepilot fix",
        "    /codepilot fix",
        "\t/codepilot fix",
        "  \t/codepilot fix",
        "`/codepilot fix`",
        "``\n/codepilot fix\n``",
        "```\n/codepilot fix\n```",
        "```\n/codepilot fix",
        "````\n```\n/codepilot fix\n````",
        "~~~ text ```\n/codepilot fix\n~~~",
        "   ```sh\n/codepilot fix\n   ```",
        "> /codepilot fix",
        "   > /codepilot fix",
        ">/codepilot fix\n> > /codepilot fix",
        "> said\n/codepilot fix",
        "> said\n- item\n\n  /codepilot fix",
        "> said\n```\n\n/codepilot fix\n```",
        "<!-- /codepilot fix -->",
        "<!--\n/codepilot fix\n-->",
        "<!-- never closed\n/codepilot fix",
        "<!-- a --!>\n/codepilot fix",
        "<!-->\n/codepilot fix",
        "<!-->\n```\n<!-->\n/codepilot fix",
        "<!--->\n-->\n/codepilot fix",
        "<!-- a --> /codepilot fix",
        "<!--\n--> /codepilot fix",
        "<!-- a --> <!--\n/codepilot fix\n-->",
        "<details>\n\n/codepilot fix\n</details>",
        "<pre>\n/codepilot fix\n</pre>",
    ],
)
def test_no_command_is_found(comment: str) -> None:
    assert _command(comment) is None


def test_any_of_the_triggers_counts_and_is_taken_literally() -> None:
    triggers = (TRIGGER, "@bot.x")
    assert parse_command("@Bot.X fix it", triggers=triggers) == ParsedCommand(command=Fix(goal="it"), trigger="@bot.x")
    assert parse_command("/codepilot fix it", triggers=triggers) == ParsedCommand(
        command=Fix(goal="it"), trigger=TRIGGER
    )
    assert parse_command("@botax fix it", triggers=triggers) is None
    assert parse_command("/codepilot fix it", triggers=("@bot.x",)) is None


@pytest.mark.parametrize(
    ("comment", "command", "left_out"),
    [
        ("/codepilot stop\n/codepilot fix the sum", Stop(), "/codepilot fix the sum"),
        ("/codepilot fix the sum\n\n  /CODEPILOT: Review!\nthe tests", Fix(goal="the sum"), "/CODEPILOT: Review!"),
        ("/codepilot approve 7f3a\n/codepilot approve 9c21", Approve(request_id="7f3a"), "/codepilot approve 9c21"),
        ("/codepilot undo\n/codepilot lgtm", Undo(), "/codepilot lgtm"),
        ("/codepilot fix a\n@bot review\n/codepilot test", Fix(goal="a"), "@bot review"),
        ("/codepilot fix\n/codepilot review " + "x" * 200, Fix(), "/codepilot review " + "x" * 82),
        ("/codepilot fix\n/codepilot is great", Fix(goal="/codepilot is great"), ""),
        ("/codepilot fix\n/codepilot", Fix(goal="/codepilot"), ""),
        ("/codepilot fix\n> /codepilot stop", Fix(goal="> /codepilot stop"), ""),
        ("/codepilot fix\n```\n/codepilot stop\n```", Fix(goal="```\n/codepilot stop\n```"), ""),
        ("/codepilot fix\n<!--\n/codepilot stop", Fix(goal="<!--\n/codepilot stop"), ""),
    ],
)
def test_a_second_command_ends_the_text_of_the_first_and_is_named(
    comment: str, command: Command, left_out: str
) -> None:
    parsed = parse_command(comment, triggers=(TRIGGER, "@bot"))
    assert parsed is not None
    assert (parsed.command, parsed.left_out) == (command, left_out)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_of_the_table_can_be_said(verb: object) -> None:
    name = getattr(verb, "name")  # noqa: B009 - ids wants an object
    command = _parse(f"{name} x" if name in {"continue", "run"} else name)
    assert command is not None
    assert command == StartRecipe(name=name) if name in {"triage", "split"} else command.verb == name


_COMMAND_LINES = ["/codepilot fix it", "/codepilot help", "/codepilot"]
_LINES = st.one_of(
    st.sampled_from(_COMMAND_LINES),
    st.sampled_from(
        ["", " ", "```", "````", "~~~", "~~~~", "```py", "> q", ">", "> ```", "> - a", "<!--", "-->", "<!-- x -->"]
    ),
    st.sampled_from(
        ["    code", "\tcode", "- item", "1. item", "text", "# head", "---", "===", "`", "``", "<!-->", "  -->"]
    ),
    st.sampled_from(["    ", "  ", "> ", ">> ", "- "]).flatmap(
        lambda p: st.sampled_from([p + c for c in _COMMAND_LINES])
    ),
    st.text(alphabet="`~>-!< /codepilt\t", max_size=12),
)


def _words_of_the_author(comment: str) -> list[str]:
    """The lines of top-level paragraphs and headings, as an independent Markdown parser sees them."""
    tokens = MarkdownIt("commonmark").parse(comment)
    return [
        line
        for token in tokens
        if token.type == "inline" and token.level == 1
        for child in token.children or ()
        if child.type == "text"
        for line in child.content.splitlines()
    ]


@given(st.lists(_LINES, max_size=8).map("\n".join))
def test_what_is_taken_for_a_command_is_drawn_by_markdown_as_the_authors_words(comment: str) -> None:
    if _command(comment) is not None:
        assert any(line.lower().startswith("/codepilot") for line in _words_of_the_author(comment))


@given(
    st.lists(st.text(max_size=20).filter(lambda line: not set(line) & set("\r\n")), max_size=6), st.sampled_from("`~")
)
def test_nothing_in_a_fence_is_a_command(lines: list[str], mark: str) -> None:
    fence = mark * 30
    inside = "\n".join([*lines, "/codepilot fix"])
    assert _command(f"{fence}\n{inside}\n{fence}\n") is None
    assert _command(f"{fence}\n{inside}") is None


@given(st.lists(st.text(max_size=20).filter(lambda line: not set(line) & set("\r\n")), max_size=6))
def test_nothing_in_a_quote_is_a_command(lines: list[str]) -> None:
    assert _command("\n".join(f"> {line}" for line in [*lines, "/codepilot fix"])) is None


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    _command(text)
    _parse(text)


_OPTION_WORDS = st.sampled_from(
    [
        "--dry-run",
        "--model",
        "--model=x",
        "m1",
        "--budget",
        "2.5",
        "--max-steps",
        "7",
        "--foo",
        "\u2014dry-run",
        "-",
        "it",
    ]
)


@given(st.lists(_OPTION_WORDS, max_size=8))
def test_no_option_on_the_commands_line_is_passed_over(words: list[str]) -> None:
    command = _parse(" ".join(["fix", *words]))
    if not isinstance(command, BadUsage):
        assert isinstance(command, Fix)
        assert command.options.dry_run == ("--dry-run" in words)
        assert (command.options.model is not None) == ("--model" in words or "--model=x" in words)
        assert "--dry-run" not in command.goal
        assert "\u2014dry-run" not in words


@given(st.text(max_size=80))
def test_what_stands_after_two_hyphens_is_kept_word_for_word(text: str) -> None:
    line = text.replace("\n", " ").replace("\r", " ")
    assert _parse(f"fix -- {line}") == Fix(goal=line.strip())
    assert _parse(f"fix --dry-run -- {line}") == Fix(goal=line.strip(), options=Options(dry_run=True))


def _read(line: str, *, allowed: tuple[str, ...] = tuple(OPTIONS)) -> ParsedLine | BadUsage:
    return parse_options(line, allowed=allowed, of="`fix`")


def _remedy(line: str, *, allowed: tuple[str, ...] = tuple(OPTIONS)) -> str:
    found = _read(line, allowed=allowed)
    assert isinstance(found, BadUsage), found
    return found.reason


@pytest.mark.parametrize(
    ("line", "options", "text"),
    [
        ("", Options(), ""),
        ("the sum", Options(), "the sum"),
        (" --dry-run", Options(dry_run=True), ""),
        (" --DRY-RUN the sum", Options(dry_run=True), "the sum"),
        ("the sum --dry-run", Options(dry_run=True), "the sum"),
        ("the --dry-run sum", Options(dry_run=True), "the sum"),
        ("--model gpt-5.1:free", Options(model="gpt-5.1:free"), ""),
        ("--model=qwen/q3 x", Options(model="qwen/q3"), "x"),
        ("--budget 2.50 --max-steps=40 x", Options(budget_usd=2.5, max_steps=40), "x"),
        ("--budget=$3", Options(budget_usd=3.0), ""),
        ("--base release/2.x the sum", Options(base="release/2.x"), "the sum"),
        ("a  b\t c", Options(), "a  b\t c"),
        ("a ` b --dry-run", Options(dry_run=True), "a ` b"),
        ("a `` b ` c --dry-run", Options(dry_run=True), "a `` b ` c"),
        ("`a b` c` --dry-run", Options(dry_run=True), "`a b` c`"),
    ],
)
def test_options_are_taken_out_of_the_line(line: str, options: Options, text: str) -> None:
    assert _read(line) == ParsedLine(options=options, text=text)


@pytest.mark.parametrize(
    "line",
    [
        "the `--dry-run` flag",
        "what `run --dry-run --model x` does",
        "``a --dry-run b`` c",
        "``a ` --dry-run b`` c",
        "the --verbose flag",
        "a - b -- c",
        "cut -x",
        "a \u2014 b",
    ],
)
def test_text_that_only_speaks_of_options_stays_as_it_is(line: str) -> None:
    assert _read(line) == ParsedLine(options=Options(), text=line)


@pytest.mark.parametrize("line", ["--dry-run it", "the --model x", "--", "-- a", "\u2014dry-run"])
def test_two_hyphens_before_the_text_end_the_options(line: str) -> None:
    assert _read(f" -- {line}") == ParsedLine(options=Options(), text=line)
    assert _read(f"--dry-run -- {line}") == ParsedLine(options=Options(dry_run=True), text=line)


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("--modle x", "--model"),
        ("--dryrun", "--dry-run"),
        ("--dry_run", "--dry-run"),
        ("--max-step 4", "--max-steps"),
        ("--steps 4", "--max-steps"),
        ("it --dryrun", "--dry-run"),
        ("it \u2014dry-run", "--dry-run"),
        ("-dry-run", "--dry-run"),
        ("\u2013model x", "--model"),
    ],
)
def test_a_mistyped_option_is_answered_with_the_one_that_was_meant(line: str, option: str) -> None:
    assert f"Did you mean `{option}`?" in _remedy(line)


def test_an_unknown_option_before_the_text_is_answered_with_all_there_are() -> None:
    remedy = _remedy("--zz it")
    assert remedy.startswith(
        "There is no option `--zz`. The options are `--model`, `--budget`, `--max-steps`, `--candidates`, "
    )
    assert "put it in backticks," in remedy


@pytest.mark.parametrize("line", ["--@everyone", "--`", "--x;y", "---", "--\u00e9"])
def test_an_unreadable_option_is_not_repeated(line: str) -> None:
    assert line not in _remedy(line).replace("`--` before the text", "")


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("--model", "a model's name"),
        ("--model --dry-run", "a model's name"),
        ("--model=", "a model's name"),
        ("--model -x", "a model's name"),
        ("--model `x`", "a model's name"),
        ("--budget much", "an amount"),
        ("--budget 0", "an amount"),
        ("--budget -1", "an amount"),
        ("--budget 1e9", "an amount"),
        ("--budget nan", "an amount"),
        ("--budget 12345678", "an amount"),
        ("--budget \u0663", "an amount"),
        ("--max-steps 0", "a whole number"),
        ("--max-steps 2.5", "a whole number"),
        ("--max-steps 99999999", "a whole number"),
        ("--dry-run=no", "takes no value"),
        ("--dry-run x --dry-run", "twice"),
        ("--model a --model=b", "twice"),
    ],
)
def test_a_value_that_cannot_be_one_is_answered_with_the_remedy(line: str, needs: str) -> None:
    assert needs in _remedy(line)


def test_an_option_that_means_nothing_here_is_not_passed_over() -> None:
    assert "`fix` takes only `--model`" in _remedy("it --dry-run", allowed=("model",))
    assert "`fix` takes no options" in _remedy("--model x", allowed=())


_WORDS = st.text(alphabet="abc", max_size=6)


@pytest.mark.parametrize("word", ["reviw", "rreview", "reviev", "reveiw", "rveiew", "eview", "reviewx", "revie"])
def test_one_slip_is_one_letter_or_one_swap(word: str) -> None:
    assert is_typo(word, "review")


@pytest.mark.parametrize("word", ["review", "", "rview?", "weiver", "revi", "reviewed", "evrieW"])
def test_anything_more_or_less_is_no_slip(word: str) -> None:
    assert not is_typo(word, "review")


@given(_WORDS, _WORDS)
def test_a_slip_goes_both_ways(word: str, second_word: str) -> None:
    assert is_typo(word, second_word) == is_typo(second_word, word)
    assert is_transposition(word, second_word) == is_transposition(second_word, word)


@given(_WORDS, st.integers(min_value=0, max_value=6))
def test_a_letter_more_is_a_slip(word: str, place: int) -> None:
    assert is_typo(word[:place] + "x" + word[place:], word)


def test_the_help_names_every_verb_with_the_trigger_and_every_option_once() -> None:
    lines = render_help(trigger="@bot").splitlines()
    for verb in VERBS:
        usage = f"@bot {verb.name} {verb.arguments}".strip()
        assert lines.count(f"- `{usage}`: {verb.meaning}") == 1
    for name, option in OPTIONS.items():
        assert len([line for line in lines if line.startswith(f"- `--{name}") and option.meaning in line]) == 1
    assert "/codepilot" not in "".join(lines)


def test_the_help_in_a_workflow_names_what_works_there() -> None:
    offered = {place: render_help(place=place) for place in get_args(Place)}
    for verb, places in {
        "approve": (0, 2),
        "deny": (0, 2),
        "undo": (0, 1, 2),
        "stop": (0, 1, 2),
        "fix": (0, 1, 2, 3),
        "remember": (0, 1, 2, 3),
    }.items():
        assert [f"`/codepilot {verb}" in text for text in offered.values()] == [n in places for n in range(4)]
    assert "Start the work on a finished plan." in offered["workflow"]
    assert "Send a message to the running job" not in offered["workflow with approvals"]


def test_whatever_people_may_ask_for_has_a_verb() -> None:
    kinds = {*get_args(Work), *get_args(Steering), Undo, Remember, StartRecipe, Help}
    recipes = {"triage", "split"}
    assert {verb.name for verb in VERBS} == {kind.__dataclass_fields__["verb"].default for kind in kinds} | recipes


@pytest.mark.parametrize(
    ("goal", "branch", "how"),
    [
        ("resolve the merge conflicts", "", ""),
        ("Resolve merge conflicts with main", "main", ""),
        ("fix the conflicts", "", ""),
        ("please fix all conflicts with the base branch.", "", ""),
        ("solve these merge conflicts in this pull request", "", ""),
        ("resolve conflicts with `release/2.x`", "release/2.x", ""),
        (
            "resolve the conflicts with origin/main, keep our version of config.py",
            "main",
            "keep our version of config.py",
        ),
        ("merge main into this branch", "main", ""),
        ("Merge the base branch into this PR and resolve the conflicts", "", ""),
        ("merge develop into this branch and fix conflicts: theirs wins\nin docs", "develop", "theirs wins\nin docs"),
        ("update this branch with main", "main", ""),
        ("update the PR from the base", "", ""),
    ],
)
def test_a_fix_that_asks_for_a_merge_of_the_base_is_recognised(goal: str, branch: str, how: str) -> None:
    assert parse_merge_request(goal) == Resolve(goal=how, branch=branch)


@pytest.mark.parametrize(
    "goal",
    [
        "",
        "the conflict between the two caches",
        "fix the conflict between the two definitions of add",
        "fix the conflicts in package.json",
        "resolve the conflicting requirements",
        "resolve conflicts with main and bump the version",
        "document how to resolve merge conflicts",
        "fix the merge conflict detection",
        "fix conflict with eslint",
        "resolve the conflicts with prettier. It reformats generated files",
        "make `resolve the merge conflicts` a command",
        "merge the two helpers into this module",
        "merge main.py into this branch's package",
        "update this branch protection page with main colours",
        "do not resolve the merge conflicts",
    ],
)
def test_words_that_mention_a_conflict_in_another_task_are_none(goal: str) -> None:
    assert parse_merge_request(goal) is None
