from __future__ import annotations

import pytest

from agent_runtime.context.transcript import Meter, estimate, estimate_message
from agent_runtime.core.values import IMAGE_TOKENS, Usage
from agent_runtime.providers.protocol import Message
from tests.agent_runtime.image_files import picture

PROSE = """\
A test that fails tells you where to look; a test that passes tells you nothing at all. The reader of this page has five
minutes and wants to know what the program does, how it is started and what it costs. Everything else can wait until she
asks for it, and most of it never will be asked for.
"""
PYTHON = '''\
def mean(values: list[float]) -> float:
    """The arithmetic mean; 0.0 for nothing."""
    if not values:
        return 0.0
    return sum(values) / len(values)


class Meter:
    def __init__(self, ratio: float = 1.0) -> None:
        self.ratio = ratio
'''
TRACEBACK = """\
Traceback (most recent call last):
  File "/workspace/src/stats.py", line 12, in mean
    return total / count
           ~~~~~~^~~~~~~
ZeroDivisionError: division by zero
=========== 1 failed, 23 passed, 2 skipped in 0.45s ===========
"""
JSON = """\
{"name": "codepilot", "version": "0.1.0", "private": true, "files": ["dist/index.js", "README.md"],
 "dependencies": {"react": "^19.2.1", "left-pad": "~1.3.0"}, "ports": [8080, 8443, 9000]}
"""
CHINESE = "这个程序读取一个文件并且把结果写到屏幕上。如果文件不存在它会告诉用户应该怎么做而不是直接退出。"
JAPANESE = "このプログラムはファイルを読み込み、結果を画面に表示します。"
GERMAN = """\
Dieses Programm liest eine Datei und schreibt das Ergebnis auf den Bildschirm. Wenn die Datei fehlt, sagt es, was zu tun
ist, anstatt einfach aufzuhören.
"""

# By o200k_base, the vocabulary of OpenAI's models, as the npm package gpt-tokenizer 4.0.0 counts.
COUNTED = {PROSE: 68, PYTHON: 74, TRACEBACK: 66, JSON: 73, CHINESE: 29, JAPANESE: 19, GERMAN: 34}


@pytest.mark.parametrize("text", [PROSE, PYTHON, TRACEBACK, JSON])
def test_prose_and_code_are_estimated_within_15_percent(text: str) -> None:
    assert estimate(text) == pytest.approx(COUNTED[text], rel=0.15)


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, GERMAN])
def test_other_languages_are_rather_estimated_too_high(text: str) -> None:
    assert 0.9 < estimate(text) / COUNTED[text] < 1.4


@pytest.mark.parametrize(
    "text", ["é" * 1_000, "🐛" * 1_000, "─" * 1_000, "1234567890" * 100, "\udcff" * 1_000, "한" * 1_000]
)
def test_strange_text_is_not_taken_for_little(text: str) -> None:
    assert estimate(text) > 200


def test_nothing_is_nothing_and_more_is_more() -> None:
    assert estimate("") == 0
    texts = [PYTHON * count for count in range(1, 6)]
    assert sorted(map(estimate, texts)) == [estimate(text) for text in texts]


def test_an_image_counts_as_much_as_one_has_at_most_and_its_bytes_count_nothing() -> None:
    plain, shown = (Message(role="user", text=PROSE, images=images) for images in ((), (picture(), picture())))
    assert estimate_message(plain) == estimate(PROSE)
    assert estimate_message(shown) == estimate(PROSE) + 2 * IMAGE_TOKENS


def test_a_meter_learns_from_what_the_provider_counted() -> None:
    meter = Meter()
    assert meter.expect(1_000) == 1_000
    meter.correct(1_000, Usage(requests=1, input_tokens=100, cached_tokens=1_000, cache_write_tokens=200))
    assert meter.ratio == pytest.approx(1.3)
    assert meter.expect(2_000) == 2_600


@pytest.mark.parametrize(
    ("estimated", "usage"),
    [
        (1_000, Usage(requests=1)),
        (100, Usage(requests=1, input_tokens=180)),
        (1_000, Usage(requests=1, input_tokens=20_000)),
        (1_000, Usage(requests=1, input_tokens=10)),
        (1_000, Usage(requests=2, input_tokens=2_000)),
    ],
)
def test_a_meter_learns_nothing_from_numbers_that_tell_nothing(estimated: int, usage: Usage) -> None:
    meter = Meter(ratio=1.2)
    meter.correct(estimated, usage)
    assert meter.ratio == 1.2
