"""The tour of a kept demo: every comment that it offers does what it says, in any order and again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from http import HTTPStatus
from urllib.parse import quote

import aiohttp
import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from markupsafe import escape

from bot.demo.tour import read_tour
from tests.acceptance.test_demo import environment
from tests.forked import codepilot
from tests.hub_pages import browser
from tests.script_files import load_script
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

APPROVE = re.compile(r"^/codepilot approve \w+$", re.MULTILINE)
PASTED = "the entry's comment"
TOUR: dict[str, list[tuple[str | re.Pattern[str], str]]] = {
    "Ask for an explanation": [(PASTED, r"`\.851` \| 851 \| 851 µs, wrong by a factor of 1000")],
    "Approve a plan before the work starts": [
        (PASTED, "^### ✋"),
        (APPROVE, r"^### (✅ Done, checks passed|⚪ Nothing changed)(.|\n)*pull request #\d"),
    ],
    "Approve a command": [(PASTED, "^### ✋"), (APPROVE, r"^### ✅(.|\n)*05\.000851")],
    "Stop a run": [(PASTED, r"Running `for n in"), ("/codepilot stop", "^### ⏹️ Stopped")],
    "Review a pull request, with suggestions": [(PASTED, r"^### ✅(.|\n)*\[review\]\(")],
    "Undo": [(PASTED, "^(I reverted commit(.|\n)*I closed its pull request|🚫 My change is undone already)")],
}
"""What is pasted for each entry, with what the bot's answer holds; an expression is looked for in the answer before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A kept demo: its pages, the number of the tour's issue, and each entry's thread by its comment."""

    site: str
    repo: str
    listing: int
    threads: dict[str, int]

    async def said(self, number: int) -> list[str]:
        """The bot's comments in a thread: the texts to edit on its page, since the API limits anonymous requests."""
        address = f"{self.site}/{self.repo}/issues/{number}"
        async with aiohttp.ClientSession(raise_for_status=True) as web, web.get(address) as answer:
            page = await answer.text()
        bots = [part for part in page.split('<article class="comment"')[1:] if '<div class="box bot">' in part]
        texts = [re.search(r'<textarea name="body"[^>]*>(.*?)</textarea>', part, re.DOTALL) for part in bots]
        return [unescape(text[1]) for text in texts if text]

    async def said_on_lines(self, number: int) -> list[str]:
        """The bot's comments on lines of a pull request."""
        address = f"{self.site}/api/v3/repos/{self.repo}/pulls/{number}/comments?per_page=100"
        async with aiohttp.ClientSession(raise_for_status=True) as web, web.get(address) as answer:
            return [each["body"] for each in await answer.json()]

    async def paste(self, number: int, comment: str, expect: str, *, after: int) -> str:
        """Comment, and wait until one of the bot's comments after the first `after` holds `expect`; that one."""

        async def answered() -> str | None:
            new = (await self.said(number))[after:]
            return next((body for body in new if re.search(expect, body, re.MULTILINE)), None)

        async with browser(self.site) as page:
            assert await page.send(f"/{self.repo}/issues/{number}/comments", {"body": comment}) == HTTPStatus.SEE_OTHER
        answer: str = await eventually(answered, within=60)
        return answer


@pytest.fixture
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A kept demo. It ends with code 0 on Ctrl+C and leaves nothing behind."""
    folder = tmp_path_factory.mktemp("tour")
    errors, env = folder / "stderr", environment(folder)
    with codepilot(("demo", "--fast", "--keep"), env=env, stderr=errors, at=folder, piped=True) as process:
        said, offered = "", ""
        while "/codepilot undo" not in offered:
            line = process.stdout.readline()
            if "pip could not download" in errors.read_text():
                pytest.skip("the package index cannot be reached")
            assert line, said + errors.read_text()
            said += line
            offered = said.partition("Still running")[2]
        for shown in ("The model is scripted:", "2 failed, 11 passed", "13 passed", "/mona/boltons/pull/2"):
            assert shown in said
        page = re.search(r"(http\S+)/(mona/boltons)/issues/(\d+)", offered)
        assert page, offered
        threads = {comment: int(number) for number, comment in re.findall(r"#(\d+)  (/codepilot.*)", offered)}
        yield Demo(site=page[1], repo=page[2], listing=int(page[3]), threads=threads)
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.join() == 0, said + errors.read_text()
    assert errors.read_text() == ""
    assert list((folder / "tmp").iterdir()) == []


async def test_the_tour(demo: Demo) -> None:
    """One test, because workers of the tests would each start a demo for tests of their own."""
    await _the_picture_of_the_readme_shows_the_comment(demo)
    await _the_issue_opens_each_thread_with_the_comment_filled_in(demo)
    await _every_entry_does_what_it_says(demo, list(TOUR))
    await _every_entry_does_what_it_says(demo, list(reversed(TOUR)))
    await _the_fix_can_be_asked_for_again(demo)
    await _what_the_tour_does_not_know_gets_an_answer_that_names_it(demo)


async def _the_picture_of_the_readme_shows_the_comment(demo: Demo) -> None:
    """Compare the words; times, token counts and ids differ from run to run."""
    recorder = load_script("record-comment")
    [body] = await demo.said(1)
    shown = re.sub(r"(?s)<!--.*?-->|(?<=</summary>).*?(?=</details>)", "", body)
    rendered = cmarkgfm.github_flavored_markdown_to_html(shown, Options.CMARK_OPT_UNSAFE)
    words = _words(unescape(re.sub(r"<[^>]*>", " ", rendered)))
    recorded = _words(recorder.text_of(recorder.PICTURE.read_bytes()))
    assert len(recorded) > 60
    assert words == recorded, "the bot's comment has changed; run scripts/record-comment"


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]{2,}", " ".join(each for each in text.split() if not re.search(r"\d", each)))


async def _every_entry_does_what_it_says(demo: Demo, order: list[str]) -> None:
    entries = {entry.title: entry for entry in read_tour()}
    assert entries.keys() == TOUR.keys()
    for title in order:
        comment = entries[title].comment
        number, answer = demo.threads[comment], ""
        before = len(await demo.said(number))
        for pasted, expected in TOUR[title]:
            found = APPROVE.search(answer)
            words = comment if pasted is PASTED else found[0] if found else str(pasted)
            answer = await demo.paste(number, words, expected, after=before)
    on_lines = await demo.said_on_lines(demo.threads["/codepilot review"])
    assert any("```suggestion\n    letters = [word[0].upper()" in each for each in on_lines)


async def _the_fix_can_be_asked_for_again(demo: Demo) -> None:
    before = len(await demo.said(1))
    await demo.paste(1, "/codepilot fix isoparse so that tests/test_timeutils.py passes", "^### (✅|⚪)", after=before)


async def _what_the_tour_does_not_know_gets_an_answer_that_names_it(demo: Demo) -> None:
    for command in ("ask What is it for?", "explain"):
        before = len(await demo.said(1))
        await demo.paste(1, f"/codepilot {command}", r"^### ✅(.|\n)*Tour: comments to try", after=before)


async def _the_issue_opens_each_thread_with_the_comment_filled_in(demo: Demo) -> None:
    async with aiohttp.ClientSession(raise_for_status=True) as web:
        async with web.get(f"{demo.site}/{demo.repo}/issues/{demo.listing}") as answer:
            listing = await answer.text()
        for comment, number in demo.threads.items():
            address = f"/{demo.repo}/issues/{number}?body={quote(comment)}"
            assert address in listing
            async with web.get(f"{demo.site}{address}") as answer:
                assert f">{escape(comment)}</textarea>" in await answer.text()
