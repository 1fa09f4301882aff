"""Findings of the doctor, one for each measurement. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

from bot.apps.app_permissions import lacking, words

Verdict = Literal["good", "warning", "bad", "skipped"]

_GIB = 1024**3
_LEAST_BYTES, _FEW_BYTES = _GIB, 5 * _GIB
_LEAST_INODES, _FEW_INODES = 20_000, 200_000
_LEAST_GIT = (2, 38)  # the first to have `merge-tree --write-tree`, by which changes are replayed
_WRONG_SECONDS, _ODD_SECONDS = 30.0, 5.0  # GitHub takes no JWT that was made in its future
_WEAK_SECRET, _STRONG_SECRET = 16, 32
_FEW_DIFFERENT = 8
_LEAST_TERMINALS = 64
_RECENT_SECONDS = 24 * 3600
_UNANSWERED = "Check that GitHub reaches the address (DNS, firewall, proxy, certificate), and the bot's log."
_DELIVERY_FIXES = {
    401: "CODEPILOT_WEBHOOK_SECRET differs from the secret in the App's settings: make them the same.",
    404: "The address leads elsewhere: it must be the one of `codepilot serve`, with the path /webhook.",
}
_GIVE = "Grant these in the App's settings, under Permissions & events; then accept them in each installation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check.

    Attributes:
        name: what was looked at.
        verdict: `bad` keeps the bot from working; a `warning` does not; `skipped` was not looked at, and `found` says
            why.
        found: what is there, in a line.
        fix: how to fix it, perhaps with commands; empty for `good` and `skipped`.
    """

    name: str
    verdict: Verdict
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempt:
    """One attempt of GitHub to deliver an event; `at` is in seconds since the epoch, `status` 0 for no answer."""

    guid: str
    event: str
    at: float
    status: int


def good(name: str, found: str) -> Finding:
    """All is well."""
    return Finding(name=name, verdict="good", found=found)


def bad(name: str, found: str, fix: str) -> Finding:
    """The bot cannot work so."""
    return Finding(name=name, verdict="bad", found=found, fix=fix)


def warning(name: str, found: str, fix: str) -> Finding:
    """The bot can work, but not well."""
    return Finding(name=name, verdict="warning", found=found, fix=fix)


def skipped(name: str, why: str) -> Finding:
    """Not looked at."""
    return Finding(name=name, verdict="skipped", found=why)


def git(said: str) -> Finding:
    """From what `git --version` says; empty when there is no git."""
    numbers = re.search(r"(\d+)\.(\d+)", said)
    if numbers is None:
        return bad("git", "not found", "Install git: sudo apt-get install git")
    if (int(numbers[1]), int(numbers[2])) < _LEAST_GIT:
        least = ".".join(map(str, _LEAST_GIT))
        return bad("git", said, f"Version {least} or newer is required; install a newer git.")
    return good("git", said.removeprefix("git version "))


def disk(name: str, place: str, free_bytes: int, free_inodes: int | None) -> Finding:
    """From what is free where `place` lies; inodes None where the file system has no fixed number of them."""
    files = "" if free_inodes is None else f", {free_inodes:,} files"
    found = f"{free_bytes / _GIB:,.1f} GiB{files} free at {place}"
    fix = f"Free space on the file system of {place}, or move it to another one."
    many = free_inodes is None or free_inodes >= _FEW_INODES
    if free_bytes < _LEAST_BYTES or (free_inodes is not None and free_inodes < _LEAST_INODES):
        return bad(name, found, fix)
    return good(name, found) if free_bytes >= _FEW_BYTES and many else warning(name, found, fix)


def clock(ours: datetime, theirs: datetime | None) -> Finding:
    """From our time and GitHub's; None when GitHub did not say."""
    if theirs is None:
        return skipped("clock", "GitHub was not asked, or did not answer")
    seconds = (ours - theirs).total_seconds()
    # The header has whole seconds, and the answer took a moment.
    found = f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} GitHub's"
    fix = "Set the clock by the network: sudo timedatectl set-ntp true"
    if abs(seconds) > _WRONG_SECONDS:
        return bad("clock", found, fix)
    return warning("clock", found, fix) if abs(seconds) > _ODD_SECONDS else good("clock", "agrees with GitHub's")


def webhook_secret(secret: str) -> Finding:
    """From the secret itself, of which nothing is shown."""
    fix = "Create a new one, here and in the GitHub App's settings: openssl rand -hex 32"
    if len(secret) < _WEAK_SECRET or len(set(secret)) < _FEW_DIFFERENT:
        return bad("webhook secret", "can be guessed", fix)
    if len(secret) < _STRONG_SECRET:
        return warning("webhook secret", f"{len(secret)} characters", fix)
    return good("webhook secret", f"{len(secret)} characters")


def app(slug: str, permissions: Mapping[str, str], events: Collection[str]) -> Finding:
    """The App's permissions and events, compared with what the bot needs."""
    lacks = lacking(permissions, events)
    weights = {each.weight for each in lacks}
    told = "; ".join(f"{words(each)} ({each.without})" for each in lacks)
    found = f"signed in as {slug}" + (f", missing {told}" if told else "")
    if "needed" in weights:
        return bad("GitHub App", found, _GIVE)
    return warning("GitHub App", found, _GIVE) if "wanted" in weights else good("GitHub App", found)


def webhook(url: str, *, checks_certificate: bool) -> Finding:
    """From where GitHub sends the App's deliveries."""
    name, fix = "webhook", "Set the address in the App's settings: https://HOST/webhook, with `Active` checked."
    if not url:
        return bad(name, "off, so no command reaches the bot", fix)
    if urlsplit(url).path.rstrip("/") != "/webhook":
        return warning(name, f"{url}; `codepilot serve` listens at the path /webhook", fix)
    if not checks_certificate:
        return warning(name, f"{url}, whose certificate GitHub does not verify", "Enable SSL verification there.")
    return good(name, url)


def deliveries(attempts: Sequence[DeliveryAttempt], now: float) -> Finding:
    """From the newest attempts to deliver; what was delivered again since then has arrived."""
    name = "deliveries"
    # GitHub pings a new App before its bot can be started.
    recent = [each for each in attempts if now - each.at < _RECENT_SECONDS and each.event != "ping"]
    if not recent:
        return skipped(name, "GitHub has sent none in the last 24 hours")
    arrived = {each.guid for each in recent if each.status in range(200, 300)}
    lost = [each for each in recent if each.guid not in arrived]
    if not lost:
        return good(name, f"{len(arrived)} in the last 24 hours, all accepted")
    newest = lost[0]
    when = datetime.fromtimestamp(newest.at, UTC)
    said = f"answered {newest.status}" if newest.status else "no answer"
    found = f"{len({each.guid for each in lost})} not accepted in the last 24 hours; the last: {newest.event}, {said}"
    # When the newest one arrived, the fault is over; the bot has lost deliveries sent again.
    verdict = warning if recent[0].guid in arrived else bad
    return verdict(name, f"{found}, {when:%d %B %H:%M} UTC", _DELIVERY_FIXES.get(newest.status, _UNANSWERED))


def installations(count: int, slug: str) -> Finding:
    """From how many accounts have the App."""
    name = "installations"
    if not count:
        return warning(name, "none", f"Install {slug} from its page on GitHub, in your repositories.")
    return good(name, f"{count} account{'' if count == 1 else 's'}")


def terminals(most: int | None, used: int | None) -> Finding:
    """From the kernel's bounds on terminals (pty(7)); None where it has none."""
    if most is None or used is None:
        return skipped("terminals", "this system does not report the maximum")
    if most - used < _LEAST_TERMINALS:
        return bad("terminals", f"{used} of {most} taken", "Raise the limit: sudo sysctl --write kernel.pty.max=4096")
    return good("terminals", f"{used} of {most} taken")


def directory(place: str, mode: int, owner: int, us: int) -> Finding:
    """From the permissions of the data directory."""
    if owner != us:
        return bad(
            "data directory", f"{place} belongs to user {owner}", f"Change its owner: sudo chown -R {us} {place}"
        )
    if mode & 0o077:
        return warning("data directory", f"{place} is open to other users", f"chmod 700 {place}")
    return good("data directory", place)
