"""Looks at the pictures of a thread: fetched one by one, those that matter most first, within the caps."""

from __future__ import annotations

import asyncio
import logging
import time

from agent_runtime import Image, ImageError, Task
from bot.gate.brief import Brief
from bot.gate.pictures import LARGEST_BYTES, MOST, TOGETHER_BYTES, Picture, may_be_fetched, notes, signed
from bot.github import GitHubError, PictureError, TooLargeError, fetch_picture
from bot.jobs.context import JobContext

log = logging.getLogger(__name__)

_MOST_TRIES = 2 * MOST
_SECONDS = 10.0
_SECONDS_TOGETHER = 30.0

_BLIND = "this model does not support images"
_OFF = "the operator has turned images off"
_ENOUGH = f"a task has {MOST} images at most"
_NO_ROOM = f"the images of a task have {TOGETHER_BYTES:,} bytes at most"
_ELSEWHERE = "it is not an attachment on GitHub"
_NO_TIME = "fetching the other images took too long"


async def shown(context: JobContext, repo: str, brief: Brief, *, sees: bool) -> Task:
    """The task with the available pictures, and a note about each of the others. No picture fails a job.

    Args:
        context: whose job it is.
        repo: `owner/name` as it is now.
        brief: what the agent is told.
        sees: whether the agent's model sees pictures.
    """
    if not brief.pictures:
        return brief.task()
    if sees and context.services.pictures:
        return await _Look(context, repo).at(brief)
    why = _BLIND if context.services.pictures else _OFF
    return brief.task(notes=notes((each, why) for each in brief.pictures))


class _Look:
    """One look at a thread."""

    def __init__(self, context: JobContext, repo: str) -> None:
        self._context, self._repo = context, repo
        self._server = context.services.server_url
        self._found: list[tuple[Picture, Image]] = []
        self._left_out: list[tuple[Picture, str]] = []
        self._pages: dict[tuple[str, int], str] = {}
        self._bytes = 0

    async def at(self, brief: Brief) -> Task:
        """Fetch what may be fetched."""
        until, tries = time.monotonic() + _SECONDS_TOGETHER, 0
        for picture in brief.pictures:
            if not may_be_fetched(picture.address, self._server):
                why = _ELSEWHERE
            elif len(self._found) >= MOST or tries >= _MOST_TRIES:
                why = _ENOUGH
            elif time.monotonic() >= until:
                why = _NO_TIME
            else:
                tries += 1
                why = await self._taken(picture, min(_SECONDS, until - time.monotonic()))
            if why:
                self._left_out.append((picture, why))
        for picture, why in self._left_out:
            log.info("an image of %s was not fetched: %s", picture.source, why)
        images = [image for _, image in sorted(self._found, key=lambda each: each[0].place)]
        return brief.task(images, notes(self._left_out))

    async def _taken(self, picture: Picture, seconds: float) -> str:
        """Why it is not available, or nothing if it is."""
        room = TOGETHER_BYTES - self._bytes
        words = picture.words
        shown = words.kind, words.id
        if shown not in self._pages:
            try:
                self._pages[shown] = await self._context.github.comments.rendered(
                    self._repo, self._context.job.thread.number, *shown
                )
            except GitHubError as error:  # an address may serve as it is
                log.warning("the images have no signed addresses: %s", error)
                self._pages[shown] = ""
        # Off the event loop: a comment has a hundred thousand tags once its code is coloured.
        address = await asyncio.to_thread(signed, picture.address, self._pages[shown], self._server)
        try:
            content = await fetch_picture(
                address,
                server_url=self._server,
                limit=min(LARGEST_BYTES, room),
                seconds=max(0.0, seconds),
                ca_file=self._context.services.ca_file,
            )
            self._found.append((picture, Image.of(picture.source, content)))
        except TooLargeError as error:
            return _NO_ROOM if room < LARGEST_BYTES else str(error)
        except (PictureError, ImageError) as error:
            return str(error)
        self._bytes += len(content)
        return ""
