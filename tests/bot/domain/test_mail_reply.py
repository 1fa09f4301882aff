"""Comments that mail clients wrote, in the forms in which GitHub keeps them: addresses are masked as `***@***.***>`."""

from __future__ import annotations

import pytest

from bot.domain.commands import Approve, BadUsage, Command, Continue, Fix
from bot.domain.grammar import parse_command
from bot.domain.mail_reply import split_reply

_MAIL = """**Waiting for you** · `/codepilot fix` for @ann

/codepilot approve 99999999

Answer with one of these:

/codepilot deny 99999999

—
Reply to this email directly, view it on GitHub<https://github.com/octo/repo/issues/7#issuecomment-1>, or unsubscribe<https://github.com/notifications/unsubscribe-auth/AAAA>.
You are receiving this because you were mentioned.Message ID: ***@***.***>"""
_QUOTED = "\n".join(f"> {line}".rstrip() for line in _MAIL.splitlines())

_BOT = "codepilot[bot] ***@***.***>"


def _attributed(text: str) -> str:
    return f"\n\n{text}\n\n{_QUOTED}\n"


def _apple(text: str, phone: str = "") -> str:
    return "\n\n".join(["", *filter(None, [phone]), f"> {text}\n> \n> \ufeff\n{_QUOTED}\n"])


def _headed(names: str, date: str, *, above: str = "", repo: str = "octo/repo ***@***.***>") -> str:
    """Return an unquoted mail below its headers, with the client's names for sender, date, recipient and subject."""
    sender, sent, to, subject = names.split("|")
    headers = f"{sender} {_BOT}\n{sent} {date}\n{to} {repo}\n{subject} Re: [octo/repo] add() is wrong (#7)"
    return f"\n\n{above}{headers}\n\n{_MAIL}\n"


_RULE = f"{'_' * 32}\n"
REPLIES = {
    # Gmail wraps its attribution at 78 characters.
    "gmail en": _attributed(f"On Tue, Jan 2, 2024 at 10:00\u202fAM {_BOT}\nwrote:"),
    "gmail en, unmasked": _attributed("On Tue, 2 Jan 2024 at 10:00, Ann Example <notifications@github.com> wrote:"),
    "gmail en, address wrapped": _attributed(
        "On Tue, Jan 2, 2024 at 10:00 AM A. Very Long Name <\nnotifications@github.com> wrote:"
    ),
    "gmail en, on a phone": _attributed(f"On Tue, Jan 2, 2024, 10:00 {_BOT} wrote:"),
    "gmail en, old": _attributed("2017-07-03 20:14 GMT+08:00 codepilot[bot] <notifications@github.com>:"),
    "gmail de": _attributed(f"Am Di., 2. Jan. 2024 um 10:00 Uhr schrieb {_BOT}:"),
    "gmail de, wrapped": _attributed(
        "Am Di., 2. Jan. 2024 um 10:00 Uhr schrieb codepilot[bot] <\nnotifications@github.com>:"
    ),
    "gmail fr": _attributed(f"Le mar. 2 janv. 2024 à 10:00, {_BOT} a\nécrit :"),
    "gmail es": _attributed("El mar, 2 ene 2024 a las 10:00, codepilot[bot] (***@***.***>)\nescribió:"),
    "gmail pt-br": _attributed(f"Em ter., 2 de jan. de 2024 às 10:00, {_BOT}\nescreveu:"),
    "gmail pt": _attributed(f"{_BOT} escreveu (terça, 2/01/2024 à(s)\n10:00):"),
    "gmail it": _attributed(f"Il giorno mar 2 gen 2024 alle ore 10:00 {_BOT}\nha scritto:"),
    "gmail nl": _attributed(f"Op di 2 jan 2024 om 10:00 schreef {_BOT}:"),
    "gmail pl": _attributed(f"wt., 2 sty 2024 o 10:00 {_BOT} napisał(a):"),
    "gmail sv": _attributed(f"Den tis 2 jan. 2024 kl 10:00 skrev {_BOT}:"),
    "gmail ja": _attributed(f"2024年1月2日(火) 10:00 {_BOT}:"),
    "gmail zh": _attributed(f"{_BOT} 于2024年1月2日周二 10:00写道\uff1a"),
    # Outlook quotes nothing: the old mail follows its headers.
    "outlook en": _headed("From:|Sent:|To:|Subject:", "Tuesday, January 2, 2024 10:00 AM"),
    "outlook en, web": _headed("From:|Sent:|To:|Subject:", "Tuesday, January 2, 2024 10:00:00 AM", above=_RULE),
    "outlook en, old": _headed(
        "From:|Sent:|To:|Subject:", "Tuesday, January 2, 2024 10:00 AM", above="-----Original Message-----\n"
    ),
    "outlook en, bold": _headed("*From:*|*Sent:*|*To:*|*Subject:*", "Tuesday, January 2, 2024 10:00 AM"),
    "outlook en, several recipients": _headed(
        "From:|Sent:|To:|Subject:",
        "Tuesday, January 2, 2024 10:00 AM",
        repo="octo/repo ***@***.***>\nCc: Ann Example ***@***.***>; Mention ***@***.***>",
    ),
    "outlook en, ios": _headed(
        "From:|Sent:|To:|Subject:",
        "Tuesday, January 2, 2024 10:00:00 AM",
        above=f"Get Outlook for iOS<https://aka.ms/o0ukef>\n{_RULE}",
    ),
    "outlook de": _headed("Von:|Gesendet:|An:|Betreff:", "Dienstag, 2. Januar 2024 10:00"),
    "outlook de, old": _headed(
        "Von:|Gesendet:|An:|Betreff:", "Dienstag, 2. Januar 2024 10:00", above="-----Ursprüngliche Nachricht-----\n"
    ),
    "outlook fr": _headed("De :|Envoyé :|À :|Objet :", "mardi 2 janvier 2024 10:00"),
    "outlook fr, android": _headed(
        "De :|Envoyé :|À :|Objet :",
        "mardi 2 janvier 2024 10:00:00",
        above=f"Télécharger Outlook pour Android<https://aka.ms/AAb9ysg>\n{_RULE}",
    ),
    "outlook es": _headed("De:|Enviado el:|Para:|Asunto:", "martes, 2 de enero de 2024 10:00"),
    "outlook pt": _headed("De:|Enviado:|Para:|Assunto:", "terça-feira, 2 de janeiro de 2024 10:00"),
    "outlook it": _headed("Da:|Inviato:|A:|Oggetto:", "martedì 2 gennaio 2024 10:00"),
    "outlook nl": _headed("Van:|Verzonden:|Aan:|Onderwerp:", "dinsdag 2 januari 2024 10:00"),
    "outlook pl": _headed("Od:|Wysłano:|Do:|Temat:", "wtorek, 2 stycznia 2024 10:00"),
    "outlook sv": _headed("Från:|Skickat:|Till:|Ämne:", "den 2 januari 2024 10:00"),
    "outlook ja": _headed("差出人:|送信日時:|宛先:|件名:", "2024年1月2日 10:00"),
    "outlook zh": _headed("发件人:|发送时间:|收件人:|主题:", "2024年1月2日 10:00"),
    # Apple's programs quote the attribution, too.
    "apple mail en": _apple(f"On 2 Jan 2024, at 10:00, {_BOT} wrote:"),
    "apple mail de": _apple(f"Am 02.01.2024 um 10:00 schrieb {_BOT}:"),
    "apple mail fr": _apple(f"Le 2 janv. 2024 à 10:00, {_BOT} a écrit :"),
    "apple mail es": _apple(f"El 2 ene 2024, a las 10:00, {_BOT} escribió:"),
    "apple mail pt": _apple(f"No dia 2 de jan. de 2024, às 10:00, {_BOT} escreveu:"),
    "apple mail it": _apple(f"Il giorno 2 gen 2024, alle ore 10:00, {_BOT} ha scritto:"),
    "apple mail nl": _apple(f"Op 2 jan 2024, om 10:00 heeft {_BOT} het volgende geschreven:"),
    "apple mail pl": _apple(f"Wiadomość napisana przez {_BOT} w dniu 2 sty 2024, o godz. 10:00:"),
    "apple mail sv": _apple(f"2 jan. 2024 kl. 10:00 skrev {_BOT}:"),
    "apple mail ja": _apple(f"2024/01/02 10:00、{_BOT}のメール:"),
    "apple mail zh": _apple(f"2024年1月2日 上午10:00\uff0c{_BOT} 写道\uff1a"),
    "iphone en": _apple(f"On Jan 2, 2024, at 10:00\u202fAM, {_BOT} wrote:", "Sent from my iPhone"),
    "iphone de": _apple(f"Am 02.01.2024 um 10:00 schrieb {_BOT}:", "Von meinem iPhone gesendet"),
    "iphone fr": _apple(f"Le 2 janv. 2024 à 10:00, {_BOT} a écrit :", "Envoyé de mon iPhone"),
    "iphone es": _apple(f"El 2 ene 2024, a las 10:00, {_BOT} escribió:", "Enviado desde mi iPhone"),
    "iphone pt": _apple(f"Em 2 de jan. de 2024, à(s) 10:00, {_BOT} escreveu:", "Enviado do meu iPhone"),
    "iphone it": _apple(f"Il giorno 2 gen 2024, alle ore 10:00, {_BOT} ha scritto:", "Inviato da iPhone"),
    "iphone nl": _apple(f"Op 2 jan 2024 om 10:00 heeft {_BOT} het volgende geschreven:", "Verstuurd vanaf mijn iPhone"),
    "iphone pl": _apple(f"Wiadomość napisana przez {_BOT} w dniu 2 sty 2024, o godz. 10:00:", "Wysłane z iPhone'a"),
    "iphone sv": _apple(f"2 jan. 2024 kl. 10:00 skrev {_BOT}:", "Skickat från min iPhone"),
    "iphone ja": _apple(f"2024/01/02 10:00、{_BOT}のメール:", "iPhoneから送信"),
    "iphone zh": _apple(f"在 2024年1月2日\uff0c10:00\uff0c{_BOT} 写道\uff1a", "发自我的 iPhone"),
    # Thunderbird names no address.
    "thunderbird en": f"\n\nOn 1/2/24 10:00, codepilot[bot] wrote:\n{_QUOTED}\n\n",
    "thunderbird en, signed": f"\n\nOn 1/2/24 10:00, codepilot[bot] wrote:\n{_QUOTED}\n\n-- \nAnn\nhttps://ann.example\n",
    "thunderbird de": _attributed("Am 02.01.24 um 10:00 schrieb codepilot[bot]:"),
    "thunderbird fr": _attributed("Le 02/01/2024 à 10:00, codepilot[bot] a écrit\u00a0:"),
    "thunderbird es": _attributed("El 2/1/24 a las 10:00, codepilot[bot] escribió:"),
    "thunderbird pt": _attributed("Em 02/01/2024 10:00, codepilot[bot] escreveu:"),
    "thunderbird it": _attributed("Il 02/01/24 10:00, codepilot[bot] ha scritto:"),
    "thunderbird nl": _attributed("Op 02-01-2024 om 10:00 schreef codepilot[bot]:"),
    "thunderbird pl": _attributed("W dniu 2.01.2024 o\u00a010:00, codepilot[bot] pisze:"),
    "thunderbird sv": _attributed("Den 2024-01-02 kl. 10:00, skrev codepilot[bot]:"),
    "yahoo": f"\n    On Tuesday, January 2, 2024, 10:00:00 AM GMT+1, {_BOT} wrote:  \n \n {_MAIL}",
    "yahoo on android": (
        "\n\nSent from Yahoo Mail on Android \n \n  On Tue, Jan 2, 2024 at 10:00, codepilot[bot]***@***.***> wrote: \n"
        f"{_MAIL}"
    ),
    "proton": (
        "\n\nSent with [Proton Mail](https://proton.me/) secure email.\n\n"
        f"On Tuesday, January 2nd, 2024 at 10:00, {_BOT} wrote:\n\n{_QUOTED}"
    ),
    "gmx": (
        f"\n\n \n\nGesendet: Dienstag, 2. Januar 2024 um 10:00 Uhr\nVon: {_BOT}\nAn: octo/repo ***@***.***>\n"
        f"Cc: Ann ***@***.***>\nBetreff: Re: [octo/repo] add() is wrong (#7)\n\n{_MAIL}"
    ),
    "qq": _headed(
        "发件人:|发送时间:|收件人:|主题:", "2024年1月2日(星期二) 上午10:00", above=f"{'-' * 18} 原始邮件 {'-' * 18}\n"
    ),
    "163": _attributed('At 2024-01-02 10:00:00, "codepilot[bot]" ***@***.***> wrote:').replace("> ", ">"),
    "mutt": f"\n\nOn Tue, Jan 02, 2024 at 10:00:00AM -0800, codepilot[bot] wrote:\n{_QUOTED}\n\n-- \nAnn\n",
    "samsung": _headed(
        "From:|Date:|To:|Subject:",
        "02/01/2024 10:00 (GMT+01:00)",
        above="Sent from my Galaxy\n\n-------- Original message --------\n",
    ),
    "only the footer": f"\n\n{_MAIL[_MAIL.index('—') :]}",
    "only a signature": "\n\n-- \nAnn Example\nOcto Inc.\n",
    "only the phone's line": "\n\nSent from my iPhone",
    "windows line ends": _attributed(f"On Tue, Jan 2, 2024 at 10:00 AM {_BOT} wrote:").replace("\n", "\r\n"),
}


_SIGNED = {"only a signature", "only the phone's line"}
"""Replies without a sign of the old mail."""


def parse(comment: str) -> Command | None:
    parsed = parse_command(comment, triggers=("/codepilot",))
    return parsed.command if parsed else None


@pytest.mark.parametrize("client", REPLIES)
def test_an_approval_is_sent_by_mail(client: str) -> None:
    assert parse(f"/codepilot approve 1a2b3c4d{REPLIES[client]}") == Approve(request_id="1a2b3c4d")


@pytest.mark.parametrize("client", REPLIES.keys() - _SIGNED)
def test_the_goal_of_a_mail_is_the_authors_text(client: str) -> None:
    goal = "Return the sum:\n\n- keep the API\n- add a test\n\nThanks,\nAnn"
    assert parse(f"/codepilot fix {goal}{REPLIES[client]}") == Fix(goal=goal)


@pytest.mark.parametrize("client", REPLIES)
def test_a_command_inside_the_old_mail_is_none(client: str) -> None:
    assert parse(REPLIES[client].lstrip("\r\n")) is None


def test_an_answer_below_the_old_mail_is_the_authors() -> None:
    mail = f"On 1/2/24 10:00, codepilot[bot] wrote:\n{_QUOTED}\n\n/codepilot approve 1a2b3c4d\n\n-- \nAnn\n"
    assert parse(mail) == Approve(request_id="1a2b3c4d")


def test_answers_between_quotes_are_kept_with_them() -> None:
    text = (
        "See below.\n\nOn 1/2/24 10:00, codepilot[bot] wrote:\n> Which database?\n\nPostgres\n\n> Which version?\n\n15"
    )
    assert parse(f"/codepilot continue {text}") == Continue(message=text)


PAGE_GOALS = {
    "a quote in the middle": "Handle this:\n\n> TypeError: a\n> > b\n\nand add a test",
    "a quote at the end": "Handle this:\n\n> TypeError: a",
    "a sentence with a quote": "Bob wrote:\n\n> it fails",
    "a mail in a fence": "Cut this:\n\n```\nOn 1/2/24 10:00, Ann wrote:\n> a\n```",
    "a mail in an open fence": "Cut this:\n\n~~~~\n```\nFrom: a@b\nDate: 1\nTo: c\nSubject: d\n-- \nAnn",
    "an attribution in a code span": "Cut\n`On 1/2/24 at 10:00, a@b.example wrote:`\n> a",
    "a date and a colon": "Since 2024-01-02 10:00 it fails, as Bob wrote:\n\nevery second call raises.",
    "keys and values": "Add these:\n\nFrom: the sender\nTo: the recipient\nSubject: the title",
    "a patch": "Apply this:\n\nFrom: Ann <a@b.example>\nDate: 2 Jan 2024\nSubject: [PATCH] Add a\n\n---\n a | 1 +",
    "a sentence about mails": "Our mails end so:\n\nReply to this email directly or ask the team.\n\nAdd a link.",
    "a signature in the middle": "Add a line\n--\nand " + "another\n" * 10 + "end",
    "an underlined heading": "Title\n--",
    "rules": "One\n\n-----\n\nTwo\n\n______",
    "a list": "Do it:\n\n- one\n- two",
    "a sentence about phones": "The footer says\nSent from my iPhone",
    "a sentence about senders": "Test it:\n\nSent from the queue, it is lost.",
    "headers of a message": "Parse this:\n\nFrom: a@b.example\nDate: 2 Jan 2024\nTo: c@d.example\nSubject: e\n\nText.",
    "a patch for a list": "Apply:\n\nFrom: A <a@b.example>\nDate: 2 Jan 2024\nTo: c@d.example\nSubject: [PATCH] e\n\nf",
    "the end of a patch": "Apply:\n\n---\n a | 1 +\n\n-- \n2.39.2",
    "what somebody wrote": "Do as Bob says.\n\nOn Jan 2, 2024, at 10:00, Bob wrote:\n\n> add() is wrong",
    "a line of a log": "It fails:\n\n2024-01-02 10:00:00 user@host.example wrote:\nsegmentation fault",
    "a separator": "Strip this:\n\n-----Original Message-----\n\nand the rest",
    "the footer": "Our footer:\n\nReply to this email directly, view it on GitHub\n\nis wrong",
    "the last line is the bug": "Strip the footer:\n\nSent from my iPhone",
    "a sentence that begins like a footer": "Do it.\n\nSent from the mobile app, the mail is lost.",
    "a sentence in Chinese": "修复:\n\n来自手机的请求失败",
    "a longer text and a signature": "One\n\nTwo\n\n-- \nAnn",
    "a quoted mail within a quote": "See:\n\n> He said:\n> On 1/2/24 10:00, Ann wrote:\n> > a",
}


@pytest.mark.parametrize("goal", PAGE_GOALS.values(), ids=PAGE_GOALS)
def test_a_comment_of_the_page_keeps_its_text(goal: str) -> None:
    assert parse(f"/codepilot fix {goal}") == Fix(goal=goal)


def test_text_after_an_approval_is_refused_but_a_quote_is_no_text() -> None:
    assert parse("/codepilot approve 1a2b3c4d\n\n> the request") == Approve(request_id="1a2b3c4d")
    assert isinstance(parse("/codepilot approve 1a2b3c4d\n\nbut only the tests"), BadUsage)
    assert isinstance(parse(f"/codepilot approve 1a2b3c4d{REPLIES['thunderbird en']}but only the tests"), BadUsage)


def test_the_old_mail_is_returned_apart() -> None:
    own, old = split_reply(f"Postgres{REPLIES['gmail en']}".splitlines())
    assert own == ["Postgres"]
    assert old[0].startswith("On Tue")
    assert "> **Waiting for you** · `/codepilot fix` for @ann" in old
