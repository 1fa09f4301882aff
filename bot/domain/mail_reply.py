"""Split a comment that was sent as a reply to a notification mail into the author's text and the old mail. Pure.

GitHub keeps the mail as it was sent. A comment is taken for a mail only by lines that mail clients write; text below a
quote is kept with the quote. To support another client or language, add its words here and a reply to the test table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.domain.commands import ReplyEvent

LINE_END = re.compile(r"\r\n|\r|\n")
_QUOTE = re.compile(r" {0,3}>")
_NESTED_QUOTE = re.compile(r" {0,3}>\s{0,3}>")
_IS_QUESTION = re.compile(r"[^.!?\n]*\?+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MAX_LINE = 300
"""Longer lines are of no mail client."""
_ATTRIBUTION_LINES = 4
"""Clients wrap `On <date>, <name> <address> wrote:`."""
_HEADER_LINES = 8
_SIGNATURE_LINES = 10

_DATE = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)|(?<!\d)\d{1,2}[./-]\d{1,2}[./-]\d\d(?!\d)")
_TIME = re.compile(r"\d[:.h]\d\d")
_WROTE = re.compile(
    r"(?i)\b(?:wrote|writes|schrieb|écrit|escribió|escreveu|scritto|schreef|geschreven|napisał|napisana|pisze|skrev|"
    r"kirjoitti|napsal|написал|пишет)|写道|寫道|작성|のメール|のメッセージ"
)
_COLON = re.compile(r"[:\uff1a][\s*_]*$")
_AFTER_ADDRESS = re.compile(r">\)?[:\uff1a][\s*_]*$")

_ORIGINAL = re.compile(
    r"(?i)\s*-{2,}\s?(?:original message|original-nachricht|ursprüngliche nachricht|message d[\u2019']origine|"
    r"message original|mensaje original|mensagem original|messaggio originale|oorspronkelijk bericht|"
    r"wiadomość oryginalna|oryginalna wiadomość|ursprungligt meddelande|originalmeddelande|oprindelig meddelelse|"
    r"元のメッセージ|原始邮件|原始郵件|reply message|forwarded message)\s?-{2,}\s*"
)
_HEADER = re.compile(
    r"(?i)[\s*_]{0,9}(?:"
    r"(?P<sender>from|von|de|da|van|från|fra|od|差出人|发件人|寄件者)|"
    r"(?P<date>sent|date|gesendet|datum|envoyé(?: le)?|enviado(?: el| em)?|fecha|data|inviato|verzonden|skickat|sendt|"
    r"wysłano|送信日時|日付|发送时间|日期|寄件日期)|"
    r"(?P<recipient>to|an|à|a|para|aan|till|til|do|宛先|收件人)|"
    r"(?P<subject>subject|betreff|objet|asunto|assunto|oggetto|onderwerp|ämne|emne|temat|件名|主题|主題|主旨)"
    r")[*_]{0,3}\s?[:\uff1a]"
)
_FOOTER = "Reply to this email directly"
_REASON = "You are receiving this because "
_FOOTER_LINES = 4
_SENDER = re.compile(r"(?i)\*\*\*@|(?<![\w.+-])(?:notifications|no-?reply|reply(?:\+\w{1,200})?)@")
"""Addresses as GitHub masks them in comments that came by mail, and those of its own mails."""
_RULE = re.compile(r"(?:[_*-]{5,}|—)?")

_SENT = re.compile(
    r"(?i)(?:sent (?:from|via|with)|gesendet (?:von|mit|aus)|von mein|envoyé (?:de|avec|à partir)|"
    r"(?:get|télécharger|obtenir|obtener|obter o|ottieni|scarica|pobierz|hämta|hent|下载|获取)\s?outlook|outlook voor|"
    r"enviado (?:desde|do|de|a partir|via|pelo)|inviato da|ver(?:stuurd|zonden) (?:vanaf|vanuit|met)|"
    r"wysłan[eoy] (?:z|przez)|skickat från|sendt fra|[发發]自|[从從来來]|\S{1,30}\s?から送信)"
)
_DEVICE = re.compile(
    r"(?i)i(?:phone|pad|os)|android|outlook|mail|mobile|phone|téléphone|telefon|handy|móvil|celular|samsung|galaxy|"
    r"huawei|xiaomi|windows|proton|手机|手機|スマ"
)
_SIGNATURE = "-- "
"""RFC 3676; with other signs of a mail, also without the blank and as other lines."""
_SIGNATURES = frozenset({"--", "—", "__"})
_MAX_QUOTED = 16_000


def parse_reply(comment_body: str, *, triggers: Sequence[str]) -> ReplyEvent | None:
    """Return the event of a comment that is no command; None if it answers nobody, or addresses another account.

    A text with a trigger is about a command, and a question to the other people; both are no answer.
    """
    lines, old = split_reply(LINE_END.split(comment_body))
    own = [number for number, line in enumerate(lines) if line.strip() and not _QUOTE.match(line)]
    words = "\n".join(lines[number] for number in own).strip().lower()
    if not words or words.startswith(("@", "<!--")) or any(trigger.lower() in words for trigger in triggers):
        return None
    if _IS_QUESTION.fullmatch(words):
        return None
    quoted = "\n".join(_find_quoted(lines, old))
    return ReplyEvent(message="\n".join(lines[own[0] :]).strip(), quoted=quoted[:_MAX_QUOTED])


def _find_quoted(lines: Sequence[str], old: Sequence[str]) -> list[str]:
    """Return the lines that the author quotes, without those that the quoted text has quoted itself."""
    is_plain = not any(map(_QUOTE.match, old[1 : _ATTRIBUTION_LINES + 1]))
    headers = (number for number in range(len(_HEADER.groupindex), len(old)) if _is_header(old, number))
    newest = [line for line in old[: next(headers, len(old))] if (_QUOTE.match(line) is None) == is_plain]
    return [line for line in (*filter(_QUOTE.match, lines), *newest) if not _NESTED_QUOTE.match(line)]


def split_reply(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the author's lines, without a signature, and those of the old mail.

    An attribution above a quote that the author answers below is no line of the author's either.
    """
    fenced = _find_fenced(lines)
    is_code = any(fenced[-_SIGNATURE_LINES:])
    unsigned = [*lines] if is_code else _without_signature([*lines], is_mail=True)
    own = [number for number, line in enumerate(unsigned) if line.strip() and not _QUOTE.match(line)] or [-1]
    has_footer = any(_is_footer(lines, number) for number in range(len(lines)))
    for number, line in enumerate(lines):
        is_candidate = ":" in line or "\uff1a" in line or "--" in line or line.startswith(_FOOTER)
        if not is_candidate or fenced[number] or len(line) > _MAX_LINE:
            continue
        is_separator = _ORIGINAL.fullmatch(line) is not None and _has_sender(lines[number : number + _HEADER_LINES])
        is_old = is_separator or _is_footer(lines, number) or _is_header(lines, number)
        first = number if is_old else _find_attribution(lines, number)
        if first is None:
            continue
        if not is_old:
            below = next((text for text in lines[number + 1 : number + 4] if text.strip()), "")
            is_quoted = _QUOTE.match(below) is not None
            if not is_quoted or own[-1] <= number:
                # People also quote what others wrote elsewhere; only GitHub's mails have its sender or its last lines.
                is_old = _has_sender(lines[first : number + 1]) or (is_quoted and has_footer)
            elif own[0] == first:
                return _without_signature([*lines[number + 1 :]], is_mail=True), []
        if is_old:
            head = [*lines[:first]]
            while head and _RULE.fullmatch(head[-1].strip()):
                head.pop()
            return _without_signature(head, is_mail=True), [*lines[first:]]
    short = _without_signature([*lines], is_mail=False)
    # Without a sign of a mail, only a line such as an approval has a signature; a longer text may be about one.
    is_short = len(short) <= 1 and not "".join(short).rstrip().endswith((":", "\uff1a"))
    return short if is_short and not is_code else [*lines], []


def _find_fenced(lines: Sequence[str]) -> list[bool]:
    """Return for each line whether it belongs to a fenced code block."""
    fenced, mark = [], ""
    for line in lines:
        fence = _FENCE.match(line) if "```" in line or "~~~" in line else None
        fenced.append(bool(mark) or fence is not None)
        if mark:
            if fence and fence[1].startswith(mark) and not line[fence.end() :].strip():
                mark = ""
        elif fence:
            mark = fence[1]
    return fenced


def _find_attribution(lines: Sequence[str], last: int) -> int | None:
    """Return the index of the first line of the attribution that ends at `last`, or None."""
    if not _COLON.search(lines[last]):
        return None
    start = max(0, last - _ATTRIBUTION_LINES + 1)
    if not any(_DATE.search(line) for line in lines[start : last + 1] if len(line) <= _MAX_LINE):
        return None
    is_quote = _QUOTE.match(lines[last]) is not None
    is_written, is_dated, is_exact = _AFTER_ADDRESS.search(lines[last]) is not None, False, False
    for first in range(last, start - 1, -1):
        line = lines[first]
        text = line.strip(" >")
        # A command or a mention is the author's own, and code is an example.
        if not text or len(line) > _MAX_LINE or text[0] in "/@`" or (_QUOTE.match(line) is not None) != is_quote:
            return None
        is_written = is_written or _WROTE.search(text) is not None
        is_dated = is_dated or _DATE.search(text) is not None
        is_exact = is_exact or "@" in text or _TIME.search(text) is not None
        if is_written and is_dated and is_exact:
            # Within a quote, it is the old mail's only at the beginning.
            return None if is_quote and first > 0 and _QUOTE.match(lines[first - 1]) else first
    return None


def _is_footer(lines: Sequence[str], start: int) -> bool:
    """Whether the last lines of GitHub's mails begin at `start`, also quoted."""
    is_first = lines[start].lstrip("> ").startswith(_FOOTER)
    return is_first and any(_REASON in line for line in lines[start : start + _FOOTER_LINES])


def _has_sender(lines: Sequence[str]) -> bool:
    return any(_SENDER.search(line[:_MAX_LINE]) for line in lines)


def _is_header(lines: Sequence[str], start: int) -> bool:
    """Whether a block of mail headers begins at `start`."""
    first = _HEADER.match(lines[start])
    if first is None or first.lastgroup not in {"sender", "date"}:
        return False
    block = [line[:_MAX_LINE] for line in lines[start : start + _HEADER_LINES]]
    return _has_sender(block) and len(
        {match.lastgroup for match in map(_HEADER.match, block) if match is not None}
    ) == len(_HEADER.groupindex)


def _without_signature(own: list[str], *, is_mail: bool) -> list[str]:
    """Remove blank lines and signatures from the end."""
    for _ in range(3):
        while own and not own[-1].strip():
            own.pop()
        tail = own[-_SIGNATURE_LINES:]
        marks = [
            number
            for number, line in enumerate(tail)
            if line == _SIGNATURE or (is_mail and line.strip() in _SIGNATURES)
        ]
        if marks:
            del own[len(own) - len(tail) + marks[0] :]
        elif tail and (is_mail or len(tail) == 1 or not tail[-2].strip()):
            text = tail[-1][:_MAX_LINE].strip(" *_\u00a0<")
            is_sentence = "," in text or text.endswith((".", "!", "?", "\u3002"))
            if _SENT.match(text) and _DEVICE.search(text) and (is_mail or not is_sentence):
                own.pop()
    return own
