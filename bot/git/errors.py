"""Errors of repositories and workspaces; each text ends with a remedy."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import signal
from collections.abc import Sequence

from bot.domain.branch_rules import find_rule
from bot.domain.difference import list_names
from bot.domain.errors import BotError, Certainty, certainty_of

_NETWORK = frozenset({"fetch", "ls-remote", "push"})
_NAMES = re.compile(r"(?<!\w)'[^'\n]*'|https?://\S+")
_STATUS = re.compile(r"(?:returned error:|HTTP(?: code)?(?: =)?) (\d{3})\b")
_RETRY_AFTER = re.compile(r"retry[- ]after:? (\d{1,6})\b", re.IGNORECASE)
REF_MISSING = "couldn't find remote ref"
_TOO_LONG = "it took more than"
_SILENT, _UNREADABLE = "git on GitHub did not answer", "git on GitHub sent an unreadable answer"
_REFUSED, _NOT_SHOWN = "git on GitHub refused access", "git on GitHub does not show the branch or commit"
_ANSWERS: tuple[tuple[str, Certainty, str], ...] = (
    (r"could not read (?:Username|Password)|Authentication failed", "doubtful", _REFUSED),
    (r"^fatal: repository .* not found", "doubtful", _REFUSED),
    (rf"{REF_MISSING}|not our ref", "doubtful", _NOT_SHOWN),
    (_TOO_LONG, "doubtful", "git on GitHub took too long"),
    ("fsck error", "definite", ""),
    ("certificate", "passing", "the bot's machine does not trust the certificate of git on GitHub"),
    (r"is this a git repository\?|protocol error|bad line length|bad pack header", "passing", _UNREADABLE),
    (r"pack (?:is corrupted|has bad object)|inflate: data stream error|index-pack", "passing", _UNREADABLE),
    (r"unable to update url base", "passing", _UNREADABLE),
    (r"unable to access|RPC failed|early EOF|unexpected disconnect|hung up unexpectedly", "passing", _SILENT),
    (r"expected flush|Could(?: not|n't) (?:resolve|connect)|Failed to connect", "passing", _SILENT),
    (r"Connection (?:refused|reset|timed out)|Operation (?:too slow|timed out)|Empty reply", "passing", _SILENT),
    (r"Recv failure|Send failure|transfer closed|SSL_ERROR_SYSCALL|GnuTLS recv error", "passing", _SILENT),
)
"""Messages of git, the certainty of the answer behind each, and a public text; the first match counts."""
_SERVER_FAILED = re.compile("Internal Server Error|fatal error in commit_refs", re.IGNORECASE)
_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EIO, errno.EAGAIN, errno.ENOMEM)
# Git does not say why it is unable to write an object to a file.
_MACHINE = {os.strerror(number): number for number in _ERRNOS} | {"unable to stream": errno.EIO}


class WorkspaceError(BotError):
    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason
        self.remedy = remedy


class LinkError(WorkspaceError):
    """A file is a symbolic link; `target` is empty if it leaves the repository."""

    def __init__(self, path: str, reason: str, remedy: str, content: bytes) -> None:
        super().__init__(reason, remedy)
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(content)))
        self.target = "" if target.startswith(("/", "..")) else target


class CloneError(WorkspaceError):
    """A commit could not be fetched.

    Attributes:
        ref: that git was asked for; empty if the server does not matter.
    """

    def __init__(self, reason: str, remedy: str, *, ref: str = "", sha: str = "") -> None:
        super().__init__(reason, remedy)
        self.ref = ref
        self.sha = sha


class RepositoryEmptyError(CloneError):
    pass


class BranchGoneError(CloneError):
    pass


class MissingDirectoryError(WorkspaceError):
    def __init__(self, directory: str, sha: str) -> None:
        super().__init__(
            f"The input `working-directory` is `{directory}`, but commit {sha[:10]} has no such directory with files.",
            "Name a directory of the repository, without a leading slash, or leave out the input.",
        )


class CommitGoneError(CloneError):
    pass


class FetchTooLargeError(CloneError):
    """A fetch exceeded its size limit; nothing was stored."""

    def __init__(self, repo: str, ref: str, limit: int, setting: str) -> None:
        super().__init__(
            f"A fetch of `{ref}` of `{repo}` exceeds the limit of {limit / 1024**2:,.0f} MiB.",
            f"Remove large files from it, or ask the bot's operator to raise `{setting}`.",
        )


class ChangeError(WorkspaceError):
    pass


class WorkspaceGoneError(WorkspaceError):
    pass


class PushFailedError(WorkspaceError):
    """The server did not take a push; it may succeed later."""


class PushRejectedError(WorkspaceError):
    """The branch moved, or the server refused; nothing was overwritten."""


_VIOLATION = re.compile(r"^remote:\s+(?:- |error: )(?!GH\d+:)(.*\S)\s*$", re.MULTILINE)


def push_refusal(branch: str, stderr: str) -> PushRejectedError:
    """Return the error for a push that the server refused for good, with the remedy for a rule that it names."""
    rule = find_rule(stderr)
    if rule is None:
        return PushRejectedError(
            f"The push to `{branch}` was refused: {stderr.strip() or 'it is not a fast-forward'}",
            "Check whether someone pushed to it in the meantime, and whether the App may write contents.",
        )
    violations = " ".join(dict.fromkeys(_VIOLATION.findall(stderr)))
    reason = f"The repository's rules refuse the push to `{branch}`: {violations or rule.words}"
    return PushRejectedError(f"{reason.rstrip('.')}.", rule.remedy)


class WorkflowsForbiddenError(WorkspaceError):
    def __init__(self) -> None:
        super().__init__(
            "GitHub requires the App permission *Workflows: read and write* to add or change files in "
            "`.github/workflows`, and the bot does not have it.",
            "Grant it in the App's settings, under Permissions & events, accept it in the installation, and give the "
            "command again. A workflow's own token can never have it.",
        )


class LargeFileError(WorkspaceError):
    """Git LFS lacks objects that the commit's pointers need."""

    def __init__(self, paths: Sequence[str], why: str) -> None:
        super().__init__(
            f"Git LFS must store {_list_paths(paths)}, and the upload failed: {why}.",
            "Nothing was published; the patch contains only the pointer. Fix the cause, and give the command again.",
        )


class GitMissingError(WorkspaceError):
    def __init__(self) -> None:
        super().__init__(
            "`git` cannot be started on the machine that the bot runs on.",
            "The operator must install it (see `codepilot doctor`); then give the command again.",
        )


class ConflictError(WorkspaceError):
    def __init__(self, paths: tuple[str, ...], remedy: str) -> None:
        super().__init__(f"The change no longer applies to {_list_paths(paths)}.", remedy)
        self.paths = paths


class GitError(WorkspaceError):
    """A git command failed; the text contains no credential.

    Attributes:
        errno: of a fault of this machine that git reports; 0 for none.
        certainty: whether a later attempt may succeed; always definite for a command that needs no server.
        status: the HTTP status of the server's refusal; 0 for none.
        symptom: a public text about the server.
        retry_after: seconds.
    """

    def __init__(self, command: str, exit_code: int | None, stderr: str) -> None:
        ended = "was stopped" if exit_code is None else f"ended with exit code {exit_code}"
        remedy = "Report this to the bot's operator."
        if exit_code is None:
            remedy = (
                "A repository with fewer or smaller files requires less. If this one is not unusual, report this to "
                "the bot's operator."
            )
        super().__init__(f"git {command} {ended}: {stderr.strip() or 'it printed nothing'}.", remedy)
        self.exit_code = exit_code
        self.stderr = stderr
        own, remote = _split(stderr)
        # The kernel kills programs when the machine has no memory left.
        self.errno = errno.ENOMEM if exit_code == -signal.SIGKILL else find_errno(own)
        match = _STATUS.search(own)
        self.status = int(match[1]) if match else 0
        pause = _RETRY_AFTER.search(stderr)
        self.retry_after = float(pause[1]) if pause else 0.0
        self.certainty: Certainty = "definite"
        self.symptom = ""
        if command not in _NETWORK or self.errno:
            return
        if self.status:
            self.certainty = certainty_of(self.status, remote)
            verb = "answered" if self.certainty == "passing" else "refused access:"
            self.symptom = f"git on GitHub {verb} {self.status}"
            return
        for pattern, certainty, symptom in _ANSWERS:
            if re.search(pattern, own, re.IGNORECASE | re.MULTILINE):
                self.certainty, self.symptom = certainty, symptom
                return
        if _SERVER_FAILED.search(remote):
            self.certainty, self.symptom = "passing", "git on GitHub failed"


def _split(stderr: str) -> tuple[str, str]:
    """Return git's own messages, without names and addresses, and those of the server or about a pushed branch."""
    own: list[str] = []
    remote: list[str] = []
    for line in stderr.splitlines():
        (remote if line.startswith(("remote:", " ! [")) else own).append(line)
    return _NAMES.sub("", "\n".join(own)), "\n".join(remote)


def find_errno(text: str) -> int:
    """Return the error number of the first fault of a machine in a program's messages; 0 for none."""
    return next((number for words, number in _MACHINE.items() if words.lower() in text.lower()), 0)


def _list_paths(paths: Sequence[str]) -> str:
    return list_names([f"`{path}`" for path in paths])
