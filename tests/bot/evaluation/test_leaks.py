"""Marks of a change in the text of its task."""

from __future__ import annotations

import pytest

from bot.evaluation.leaks import Leaks, find_leaks

PATCH = b"""\
--- a/shop.py
+++ b/shop.py
@@ -1,2 +1,4 @@
+from money import round_half_up
 def total(prices):
-    return sum(prices) // 1
+    cents = [price * 100 for price in prices]
+    return round_half_up(sum(cents))
+    pass
"""
OLD = b"def total(prices):\n    return sum(prices) // 1\n\ndef other():\n    pass\n"
SHA = "0123456789abcdef0123456789abcdef01234567"
LEAKS = find_leaks(PATCH, b"+    assert total([1]) == 1\n", [OLD], numbers=[12], commits=sorted([SHA, "f" * 40]))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The total is wrong.", "The total is wrong."),
        ("Try `cents = [price*100 for price in prices]` there", "[…]"),
        ("We need round_half_up here\nand not there", "[…]\nand not there"),
        ("`return sum(prices) // 1` is wrong", "`return sum(prices) // 1` is wrong"),
        ("A fix:\n```diff\n-a\n+b\n```\nThanks", "A fix:\n[…]\nThanks"),
        ("```python\ntotal([1])\n```", "```python\ntotal([1])\n```"),
        ("diff --git a/x b/x\n@@ -1 +1 @@", "[…]"),
        ("See https://github.com/mona/shop/pull/12#issue and #12.", "See […] and ."),
        (
            "See https://github.com/mona/shop/issues/3 and #120 and &#12;",
            "See https://github.com/mona/shop/issues/3 and #120 and &#12;",
        ),
        ("mona/shop#12 (GH-12)", ""),
        (f"Since 0123456 and {SHA}, but not 1234567 or deadbeef", "Since […] and […], but not 1234567 or deadbeef"),
        ("Broken.\n\nSigned-off-by: Mona <m@x.example>\nCo-authored-by: Eve", "Broken.\n\n[…]"),
    ],
)
def test_the_text_loses_the_code_the_commits_and_the_links_of_its_change(text: str, left: str) -> None:
    assert LEAKS.cut(text) == left


def test_names_that_the_tests_or_the_old_files_have_are_no_leaks() -> None:
    leaks = find_leaks(b"+new_name = old_name + seen_name\n", b"+seen_name\n", [b"old_name\n"], numbers=[], commits=[])
    assert leaks.names == {"new_name"}
    assert Leaks().cut("Anything at all\n```") == "Anything at all\n```"
