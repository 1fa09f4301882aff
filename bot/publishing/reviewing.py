"""Send a review, once however often this is started again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.github import GitHub, GitHubError, ReviewDraft, ReviewFacts
from bot.publishing.publish import Delivered
from bot.publishing.published import Published, RecordPart
from bot.publishing.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPlace:
    """Where a review goes.

    Attributes:
        repo: `owner/name`, from the job.
        number: of the pull request.
        marker: the job's, from `marker.marker`; a review that was sent is known again by it.
    """

    repo: str
    number: int
    marker: str


async def publish_review(
    github: GitHub, record: RecordPart[Published], draft: ReviewDraft, *, place: ReviewPlace, dry_run: bool = False
) -> Delivered:
    """Review the pull request and give back where the review is.

    Args:
        github: acts for the job.
        record: what earlier attempts sent.
        draft: what to say.
        place: where.
        dry_run: send nothing, and tell what would be sent.

    Raises:
        GitHubError: GitHub refused or stayed silent; starting again sends nothing twice.
    """
    if dry_run:
        count = len(draft.notes)
        return Delivered(would=f"A review with {counted(count, 'comment')} on lines.")
    done = await record.read()
    if done.review_url is not None:
        return Delivered(review_url=done.review_url)
    review = await _find(github, place) if done.review_requested else None
    if review is None:
        # Noted first: who is stopped between the asking and the noting of the answer must look for it the next time.
        await record.update(lambda done: replace(done, review_requested=True))
        marked = replace(draft, body=f"{draft.body}\n\n{place.marker}")
        try:
            review = await github.reviews.create(place.repo, place.number, marked)
        except GitHubError as error:
            # The answer was lost, but the review may be there, now or in a moment. Nobody can take a second one
            # back, so this is started again later, and looks again first.
            if not error.may_be_done or (review := await _find(github, place)) is None:
                raise
    url = review.html_url
    await record.update(lambda done: replace(done, review_url=url))
    return Delivered(review_url=url)


async def _find(github: GitHub, place: ReviewPlace) -> ReviewFacts | None:
    me = await github.accounts.me()
    reviews = await github.reviews.of_pull(place.repo, place.number)
    return next((each for each in reviews if each.author_id == me.id and place.marker in each.body), None)
