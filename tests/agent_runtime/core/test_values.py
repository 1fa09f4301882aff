from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.values import (
    MAX_IMAGE_BYTES,
    MAX_IMAGE_SIDE,
    MAX_SKILLS,
    Connection,
    Destination,
    Image,
    ImageError,
    Network,
    NetworkLimits,
    Outcome,
    PendingCall,
    Skill,
    Status,
    Usage,
    parse_skills,
    registries,
    upload_hosts,
)
from tests.agent_runtime.image_files import gif, jpeg, png, webp

KINDS: dict[str, Callable[[int, int], bytes]] = {
    "image/png": png,
    "image/gif": gif,
    "image/jpeg": jpeg,
    "image/webp": webp,
}


@pytest.mark.parametrize("media_type", KINDS)
def test_image_formats_are_detected_by_signature_and_stored_unchanged(media_type: str) -> None:
    content = KINDS[media_type](30, 20)
    image = Image.of("issue #1 by @mona", content)
    assert (image.source, image.media_type) == ("issue #1 by @mona", media_type)
    assert base64.b64decode(image.data, validate=True) == content


def test_repr_of_an_image_omits_its_bytes() -> None:
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


def test_the_largest_image_fits_anthropics_base64_limit() -> None:
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


HOSTS = ("a.example", "b.example", "c.example:8443", "pypi.org")


def test_without_a_word_nothing_can_be_reached() -> None:
    assert not Network()
    assert not Network.of()
    assert not Network.of("off")
    assert str(Network()) == "off"


def test_hosts_stand_for_themselves_and_https() -> None:
    network = Network.of("Example.org", " b.example:8443 ")
    assert network.allowed == {Destination("example.org", 443), Destination("b.example", 8443)}
    assert str(network) == "b.example:8443, example.org"


def test_registries_are_hosts_that_take_no_uploads() -> None:
    network = Network.of("registries", "a.example")
    assert Destination("files.pythonhosted.org") in network.allowed
    assert all(each.port == 443 for each in registries())
    assert not {each.host for each in registries()} & upload_hosts()
    assert "registry.npmjs.org" in upload_hosts()
    assert str(network) == "registries, a.example"
    assert Network.of(*str(network).split(",")) == network


@pytest.mark.parametrize(
    "word",
    [
        "127.0.0.1", "127.1", "0x7f.0x1", "1.2.3.4:443", "[::1]:443", "::1", "localhost", "*.example.org", "a.b/c",
        "https://example.org", "user@example.org", "example.org.", "exa mple.org", "example.org:0", "example.org:65536",
        "example.org:443:443", "-a.example", "a..example", "a.example:", "a.1", "bücher.example", "a\n.example",
        "a" * 64 + ".example",
    ],
)  # fmt: skip
def test_an_invalid_host_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"must name hosts"):
        Network.of(word)


def test_off_stands_alone() -> None:
    with pytest.raises(ValueError, match="not both"):
        Network.of("off", "a.example")


@given(st.sets(st.sampled_from(HOSTS)), st.sets(st.sampled_from((*HOSTS, "registries"))))
def test_narrowing_never_adds_anything(operator: set[str], wanted: set[str]) -> None:
    limits = NetworkLimits(total_bytes=7)
    most = Network(allowed=Network.of(*operator).allowed, limits=limits)
    narrowed = most.intersect(Network.of(*wanted))
    assert narrowed.allowed <= most.allowed
    assert narrowed.allowed <= Network.of(*wanted).allowed
    assert narrowed.limits == limits
    assert narrowed.intersect(Network.of(*wanted)) == narrowed


def test_a_connection_fits_on_a_line() -> None:
    assert str(Connection(host="a.example", port=443, allowed=True, sent_bytes=5, received_bytes=7)) == (
        "a.example:443 allowed, 5 bytes out, 7 in"
    )
    assert str(Connection(host="", port=0, allowed=False, reason="no")) == "?:0 refused, 0 bytes out, 0 in: no"


PENDING = PendingCall(
    request_id="1", kind="permission", tool="execute", args={"command": "ls"}, reason="", preview="$ ls", workspace=""
)


def test_it_is_plain_data_for_json() -> None:
    outcome = Outcome(status=Status.PAUSED, pending=PENDING, usage=Usage(requests=2))
    data = json.loads(json.dumps(outcome.to_dict()))
    assert (data["status"], data["summary"]) == ("paused", None)
    assert data["pending"]["args"] == {"command": "ls"}
    assert data["usage"]["requests"] == 2


def test_outcomes_with_equal_fields_are_equal() -> None:
    assert Outcome(status=Status.FINISHED, summary="Done.") == Outcome(status=Status.FINISHED, summary="Done.")
    assert Outcome(status=Status.FINISHED, summary="Done.") != Outcome(status=Status.FINISHED, summary="Done")
    assert Outcome(status=Status.FINISHED) != 3


def test_comparing_an_outcome_with_a_string_warns() -> None:
    outcome: object = Outcome(status=Status.FINISHED, summary="Done.")
    with pytest.warns(UserWarning, match="compare its `summary`"):
        assert outcome != "Done."


HEAD = "---\nname: a-b\ndescription: |\n  Do\u200b it,\n  so.\nmetadata: {x: [1]}\n---\nFirst,\n---\nthen.\n"


def test_a_skill_has_a_head_and_a_text() -> None:
    skill = Skill.parse("skills/a-b/SKILL.md", HEAD)
    assert (skill.name, skill.description, skill.text) == ("a-b", "Do it, so.", "\nFirst,\n---\nthen.\n")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("Just text.", "must begin with front matter"),
        ("---\nname: [\n---\n", "its front matter is not valid YAML"),
        (f"---\nname: a-b\ndescription: x\nmore: {'[' * 65}{']' * 65}\n---\n", "more than 64 `\\[` and `{`"),
        (f"---\nname: a-b\ndescription: x\nmore: [{'{},' * 64}]\n---\n", "more than 64 `\\[` and `{`"),
        (f"---\nname: a-b\nmore: {'- ' * 1400}x\n---\n", "its front matter is not valid YAML"),
        (
            f"---\nname: a-b\ndescription: x\n{'?' + chr(10)}{'# many keys' * 300}\n---\n",
            "must begin with front matter",
        ),
        ("---\nname: !!python/name:os.system\n---\n", "`name` must be the folder's"),
        # Merge keys unfold: each line of some can be ten times the one before.
        ("---\nother: &o {name: a-b, description: x}\n<<: *o\n---\n", "`name` must be the folder's"),
        ("---\n- name\n---\n", "its front matter must have keys"),
        ("---\nname: other\ndescription: x\n---\n", "`name` must be the folder's"),
        ("---\nname: a-b\n---\n", "`description` must say"),
    ],
)
def test_an_invalid_skill_is_refused_with_the_reason(content: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        Skill.parse("skills/a-b/SKILL.md", content)


def test_of_many_files_a_bounded_number_of_those_that_fit_counts() -> None:
    files = {f"s/n{number}/SKILL.md": f"---\nname: n{number}\ndescription: x\n---\n" for number in range(50)}
    assert parse_skills({"s/bad/SKILL.md": "no", **files}).keys() == {f"n{number}" for number in range(MAX_SKILLS)}
