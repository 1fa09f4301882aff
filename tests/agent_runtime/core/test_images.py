"""What of a file is known before a model is shown it."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.values import MAX_IMAGE_BYTES, MAX_IMAGE_SIDE, Image, ImageError
from tests.agent_runtime.image_files import gif, jpeg, png, webp

KINDS: dict[str, Callable[[int, int], bytes]] = {
    "image/png": png,
    "image/gif": gif,
    "image/jpeg": jpeg,
    "image/webp": webp,
}


@pytest.mark.parametrize("media_type", KINDS)
def test_every_kind_is_told_by_its_bytes_and_kept_to_the_byte(media_type: str) -> None:
    content = KINDS[media_type](30, 20)
    image = Image.of("issue #1 by @mona", content)
    assert (image.source, image.media_type) == ("issue #1 by @mona", media_type)
    assert base64.b64decode(image.data, validate=True) == content


def test_what_is_printed_of_an_image_is_not_its_bytes() -> None:
    image = Image.of("issue #1", png())
    assert repr(image) == "Image(source='issue #1', media_type='image/png')"
    assert image != Image.of("issue #1", png(shade=1))


@pytest.mark.parametrize("media_type", KINDS)
@pytest.mark.parametrize(("width", "height"), [(MAX_IMAGE_SIDE + 1, 1), (1, MAX_IMAGE_SIDE + 1)])
def test_a_longer_side_than_services_take_is_refused_with_its_length(media_type: str, width: int, height: int) -> None:
    content = KINDS[media_type](width, height)
    with pytest.raises(ImageError, match=rf"{width} by {height} pixels, and 8,000 are the most on a side"):
        Image.of("x", content)


@pytest.mark.parametrize("media_type", KINDS)
def test_the_longest_side_that_services_take_is_taken(media_type: str) -> None:
    assert Image.of("x", KINDS[media_type](MAX_IMAGE_SIDE, 1)).media_type == media_type


def test_more_bytes_than_services_take_are_refused_with_their_number() -> None:
    whole = png()
    assert Image.of("x", whole + b"\0" * (MAX_IMAGE_BYTES - len(whole))).media_type == "image/png"
    with pytest.raises(ImageError, match=r"3,500,001 bytes, and 3,500,000 are the most"):
        Image.of("x", whole + b"\0" * (MAX_IMAGE_BYTES + 1 - len(whole)))


def test_the_largest_picture_fits_into_what_anthropic_takes_as_base64() -> None:
    assert -(-MAX_IMAGE_BYTES // 3) * 4 <= 5_000_000


@pytest.mark.parametrize(
    "content",
    [b"", b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", b"%PDF-1.7", b"BM" + b"\0" * 60, b"PNG"],
    ids=["nothing", "svg", "pdf", "bmp", "its name only"],
)
def test_other_kinds_are_refused_with_those_that_are_taken(content: bytes) -> None:
    with pytest.raises(ImageError, match="not a PNG, JPEG, GIF or WebP"):
        Image.of("x", content)


@pytest.mark.parametrize("media_type", KINDS)
def test_a_head_that_breaks_off_or_tells_no_size_is_refused(media_type: str) -> None:
    whole = KINDS[media_type](30, 20)
    with pytest.raises(ImageError, match="does not contain the size"):
        Image.of("x", whole[:12] if media_type != "image/gif" else whole[:6])


def test_a_picture_without_width_is_refused() -> None:
    with pytest.raises(ImageError, match="does not contain the size"):
        Image.of("x", gif(0, 20))


@given(data=st.data(), media_type=st.sampled_from(sorted(KINDS)))
def test_damage_of_any_kind_is_an_image_or_an_image_error(data: st.DataObject, media_type: str) -> None:
    content = bytearray(KINDS[media_type](30, 20))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    with suppress(ImageError):
        Image.of("x", bytes(content[: data.draw(st.integers(0, len(content)))]))


def test_a_library_without_images_loads_nothing_for_them() -> None:
    code = "import sys, agent_runtime; print('imagesize' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
