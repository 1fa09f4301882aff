from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.intake.commands import VERBS, Command, Fix, Help, Unknown, help_text, parse_command


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
        ("/codepilot fxi it", Unknown(word="fxi", nearest="fix")),
        ("/codepilot HELPP", Unknown(word="HELPP", nearest="help")),
        ("/codepilot please fix the bug", Unknown(word="please", nearest=None)),
        ("/codepilot fix: it", Unknown(word="fix:", nearest="fix")),
        ("/codepilot " + "x" * 70_000, Unknown(word="x" * 40, nearest=None)),
        ("> someone wrote\n\n/codepilot fix", Fix(goal="")),
        ("```\ncode\n```\n/codepilot fix", Fix(goal="")),
        ("~~~~\n~~~\n/codepilot help\n~~~~\n/codepilot fix", Fix(goal="")),
        ("<!-- a template\n\n/codepilot help -->\n/codepilot fix", Fix(goal="")),
        ("    /codepilot help\n\n/codepilot fix", Fix(goal="")),
        ("> ```\n\n/codepilot fix", Fix(goal="")),
    ],
)
def test_a_command_is_found(comment: str, command: Command) -> None:
    assert parse_command(comment) == command


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
        "/codepilot, fix",
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
    assert parse_command(comment) is None


def test_the_trigger_can_be_another_word_and_is_taken_literally() -> None:
    assert parse_command("@bot.x fix it", trigger="@bot.x") == Fix(goal="it")
    assert parse_command("@botax fix it", trigger="@bot.x") is None
    assert parse_command("/codepilot fix it", trigger="@bot.x") is None


def test_the_help_names_every_verb_with_the_trigger() -> None:
    text = help_text(trigger="@bot")
    assert len(text.splitlines()) == len(VERBS)
    for verb in VERBS:
        assert f"`@bot {verb.name}" in text
        assert verb.meaning in text


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_of_the_table_can_be_said(verb: object) -> None:
    name = getattr(verb, "name")  # noqa: B009 - ids wants an object
    command = parse_command(f"/codepilot {name}")
    assert command is not None
    assert command.verb == name


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
    if parse_command(comment) is not None:
        assert any(line.lower().startswith("/codepilot") for line in _words_of_the_author(comment))


@given(
    st.lists(st.text(max_size=20).filter(lambda line: not set(line) & set("\r\n")), max_size=6), st.sampled_from("`~")
)
def test_nothing_in_a_fence_is_a_command(lines: list[str], mark: str) -> None:
    fence = mark * 30
    inside = "\n".join([*lines, "/codepilot fix"])
    assert parse_command(f"{fence}\n{inside}\n{fence}\n") is None
    assert parse_command(f"{fence}\n{inside}") is None


@given(st.lists(st.text(max_size=20).filter(lambda line: not set(line) & set("\r\n")), max_size=6))
def test_nothing_in_a_quote_is_a_command(lines: list[str]) -> None:
    assert parse_command("\n".join(f"> {line}" for line in [*lines, "/codepilot fix"])) is None


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_command(text)
    parse_command(f"/codepilot {text}")
