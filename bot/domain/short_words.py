"""Short words after a trigger that mean stop, yes or no, in place of a verb, and slips in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

Meaning = Literal["stop", "yes", "no", "unclear", "thanks"]
"""`unclear` is for words of several meanings and for a pause, `thanks` for politeness and praise alone."""

_STOPS = (
    "stop|cancel|abort|halt|quit|kill|end|terminate|interrupt|exit|cease|abandon|stopped|cancelled|canceled|aborted|"
    "ok stop|okay stop|no stop|enough|drop it|ctrl-c|ctrl+c|^c|stop_sign|octagonal_sign|🛑|✋|⛔|"
    "stopp|abbrechen|aufhören|arrête|arrêter|arrêtez|annuler|detener|detente|cancelar|parar|ferma|fermati|annulla|"
    "annuleren|avbryt|anuluj|стоп|отмена|停止|取消|中止|やめて|중지|취소"
)
_YES = (
    "yes|y|yep|yeah|yup|sure|ok|okay|okey|alright|all right|fine|lgtm|sgtm|looks good|"
    "looks good to me|sounds good|approve|approve it|approve this|approve that|approved|accept|accept it|accepted|"
    "agree|agreed|i agree|confirm|confirmed|affirmative|correct|right|exactly|absolutely|certainly|definitely|"
    "of course|go|go ahead|go for it|go on|do it|do it now|yes do|do that|do so|proceed|carry on|ship it|+1|thumbsup|"
    "ok_hand|white_check_mark|heavy_check_mark|👍|👌|✅|✔|☑|🆗"
)
_NO = (
    "no|n|nope|nah|no way|not now|never|never mind|nevermind|forget it|forget about it|forget that|leave it|"
    "don't|dont|do not|don't do it|dont do it|do not do it|don't do that|do not do that|do nothing|deny|deny it|"
    "deny this|deny that|denied|reject|reject it|rejected|decline|declined|refuse|refused|veto|disagree|disapprove|"
    "no need|not needed|no longer needed|not approved|not ok|not okay|negative|"
    "nein|non|não|nee|nej|nie|нет|否|不|いいえ|아니요|-1|thumbsdown|👎|❌|✖|🚫|🙅"
)
_UNCLEAR = (
    "wait|wait a moment|wait a minute|hold on|hang on|hold it|hold|pause|not yet|not so fast|maybe|perhaps|later|"
    "no problem|no worries|🤔|🤷|😕|❓|❔|⏸|⏳"
)
_THANKS = "good|great|perfect|excellent|💯|ja|oui|si|sí|sì|sim|tak|да|是|好|はい|네"
"""Praise, and yes in other languages: `tak` is yes in one and thanks in another, and an approval must be certain."""
SHORT_WORDS: Mapping[str, Meaning] = {
    **dict.fromkeys(_STOPS.split("|"), "stop"),
    **dict.fromkeys(_YES.split("|"), "yes"),
    **dict.fromkeys(_NO.split("|"), "no"),
    **dict.fromkeys(_UNCLEAR.split("|"), "unclear"),
    **dict.fromkeys(_THANKS.split("|"), "thanks"),
}
"""Words and phrases, and their meanings."""
_FILLER_WORDS = (
    "a|again|all|already|and|asap|at|be|can|could|current|everything|here|i|immediately|it|job|jobs|let's|may|must|my|"
    "need|now|of|on|once|our|right away|right now|run|running|runs|said|should|so|task|tasks|that|that's|the|then|this|"
    "to|want|we|will|work|working|would|your"
)
_FILLERS = frozenset(_FILLER_WORDS.split("|"))
"""Words around one for stop that leave its meaning, as in `can you cancel my job now`."""
POLITE = frozenset(
    {"please", "pls", "plz", "thanks", "thank", "thx", "ty", "you", "kindly", "just", "hey", "hi", "hello"}
)
"""Words that say nothing about the meaning."""
PUNCTUATION = ",.:;!"
"""Punctuation after a word that does not change its meaning, as a question mark does."""

_SYMBOLS = frozenset(text for text in SHORT_WORDS if not text.isascii() and not text.isalpha())
_MAX_CHARS, _MAX_PHRASE_WORDS = 200, 4
_CLAUSE_END = re.compile(r"[,.;!](?=\s|$)|\s[-\u2013\u2014]\s|\n")
_QUESTION_MARK = re.compile("[?\uff1f\u061f\u2047-\u2049]")
_APOSTROPHES = str.maketrans("\u2019\u00b4", "''")
_PROHIBITION = re.compile(r"(?:please\s+)?(?:don['\u2019\u00b4]?t|do\s+not)\s", re.IGNORECASE)


def find_meaning(text: str) -> Meaning | None:
    """Return the meaning of a text that has only words for stop, yes and no, and politeness."""
    if len(text) > _MAX_CHARS or not text.strip():
        return None
    words = split_words(text)
    phrases = _split_phrases(words, SHORT_WORDS.keys())
    if has_fillers := phrases is None:
        phrases = _split_phrases(words, SHORT_WORDS.keys() | _FILLERS)
    meanings = {SHORT_WORDS[phrase] for phrase in phrases or () if phrase in SHORT_WORDS}
    if phrases is None or (has_fillers and "stop" not in meanings):
        return None
    meanings.discard("thanks")
    if not meanings:
        return "thanks"
    return meanings.pop() if len(meanings) == 1 and not _QUESTION_MARK.search(text) else "unclear"


def _split_phrases(words: Sequence[str], vocabulary: Collection[str]) -> list[str] | None:
    """Divide words into phrases of a vocabulary, long ones first; None if they cannot be divided."""
    rests: dict[int, list[str]] = {len(words): []}
    for start in reversed(range(len(words))):
        for end in range(min(start + _MAX_PHRASE_WORDS, len(words)), start, -1):
            phrase = " ".join(words[start:end])
            if phrase in vocabulary and end in rests:
                rests[start] = [phrase, *rests[end]]
                break
    return rests.get(0)


def find_opening(text: str) -> Meaning | None:
    """Return the meaning of a text's first clause if it may forbid the rest; a text about a word has none."""
    meaning = find_meaning(_CLAUSE_END.split(text[:_MAX_CHARS], maxsplit=1)[0])
    if _PROHIBITION.match(text):
        return "unclear"
    return meaning if meaning in {"stop", "no", "unclear"} else None


def split_words(text: str) -> list[str]:
    """Split the first characters of a text into words in lower case, without politeness and decoration."""
    characters = (
        f" {char} " if char in _SYMBOLS else _lower(char) if char.isascii() or char.isalnum() else " "
        for char in text[:_MAX_CHARS].translate(_APOSTROPHES)
    )
    words = (word.strip(f"?()*_\"'{PUNCTUATION}") for word in "".join(characters).split())
    meaningful = (word for word in words if word in _SYMBOLS or word == "--" or any(map(str.isalnum, word)))
    return [word for word in meaningful if word not in POLITE]


def _lower(char: str) -> str:
    """Return a letter in lower case, except one that would become ASCII by that, such as the Kelvin sign."""
    lower = char.lower()
    return char if lower.isascii() and not char.isascii() else lower


def has_doubled_letter(word: str, name: str) -> bool:
    return len(word) == len(name) + 1 and any(name[:n] + name[n - 1 :] == word for n in range(1, len(name) + 1))


def is_transposition(word: str, target: str) -> bool:
    """Whether two adjacent letters were swapped, and nothing else."""
    start = _common_prefix_length(word, target)
    rest, tail = word[start:], target[start:]
    return len(rest) > 1 and rest[:2] == tail[1::-1] and rest[2:] == tail[2:]


def is_typo(word: str, target: str) -> bool:
    if abs(len(word) - len(target)) > 1:
        return False
    start = _common_prefix_length(word, target)
    rest, tail = word[start:], target[start:]
    return (rest or tail) != "" and (
        rest[1:] == tail[1:] or rest == tail[1:] or rest[1:] == tail or is_transposition(word, target)
    )


def _common_prefix_length(word: str, target: str) -> int:
    return next(
        (n for n, pair in enumerate(zip(word, target, strict=False)) if pair[0] != pair[1]), min(len(word), len(target))
    )
