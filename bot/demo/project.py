"""The project that the demo repairs: fetched as its authors released it, with one of its old bugs put back in."""

from __future__ import annotations

import asyncio
import re
import sys
import tarfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import chain, repeat
from pathlib import Path
from typing import BinaryIO, Literal
from urllib.parse import quote

import yaml
from pydantic import TypeAdapter
from typing_extensions import override

from agent_runtime import Chunk, Provider, Request, ScriptedProvider, ScriptError
from bot.domain.errors import BotError
from bot.git.errors import GitError
from bot.git.process import Git
from localhub import LocalHub, Repo

# ---- The tour of a kept demo: comments to try, each with a thread to try it in and scripted conversations of its
# own.


_TITLE = "Tour: comments to try"
_PASTE = "Each link opens a thread with the comment filled in: press **Comment**, and watch the bot's answer below it."
_ELSE = {
    True: "The model is scripted: it knows these comments, and says so when it is asked for something else.",
    False: "A real model answers, so you can ask for anything else, too.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """A thread that is opened for an entry: an issue, or a pull request if it has a branch.

    Attributes:
        branch: the pull request's; it changes `file`, to which it appends `appended`.
    """

    title: str
    body: str
    labels: tuple[str, ...] = ()
    branch: str = ""
    file: str = ""
    appended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TourReply:
    """A reply to a message that holds all of `expect`."""

    expect: tuple[str, ...]
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TourConversation:
    """The replies to a task whose goal holds all of `goal`; those of the demo's `script` come first."""

    goal: tuple[str, ...]
    replies: tuple[TourReply, ...]
    script: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TourEntry:
    """One thing to try.

    Attributes:
        title: what it shows.
        about: the same in a sentence or two.
        thread: where: the demo's issue, the pull request that fixes it, or a thread of its own.
        comment: what to paste.
        then: what to do afterwards; may be empty.
        needs_network: whether commands must be able to reach something.
        conversations: what a scripted model says, the most specific first.
    """

    title: str
    about: str
    thread: Literal["issue", "pull"] | NewThread
    comment: str
    then: str = ""
    needs_network: bool = False
    conversations: tuple[TourConversation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTour:
    """The tour on the hub.

    Attributes:
        number: of the issue that lists the entries.
        threads: each entry with the number of its thread.
    """

    number: int
    threads: tuple[tuple[TourEntry, int], ...]


def read_tour() -> tuple[TourEntry, ...]:
    """The entries, in the order in which they are shown, each conversation with all of its replies."""

    def raw(name: str) -> object:
        return yaml.safe_load(files(__package__).joinpath(name).read_text(encoding="utf-8"))

    def whole(told: TourConversation) -> TourConversation:
        own = TypeAdapter(tuple[TourReply, ...]).validate_python(raw(told.script)) if told.script else ()
        return replace(told, replies=(*own, *told.replies))

    entries = TypeAdapter(tuple[TourEntry, ...]).validate_python(raw("tour.yaml"))
    return tuple(replace(each, conversations=tuple(map(whole, each.conversations))) for each in entries)


def open_tour(
    hub: LocalHub,
    repo: Repo,
    source: Path,
    entries: Sequence[TourEntry],
    *,
    author: str,
    known: dict[str, int],
    scripted: bool,
) -> OpenedTour:
    """Open the threads of the tour, and the issue that lists them.

    Args:
        hub: where.
        repo: the demo's repository.
        source: its files.
        entries: what to show; those in a thread that is not there are left out.
        author: who opens the threads.
        known: the numbers of the demo's own threads, `issue` and `pull`.
        scripted: whether the model is.
    """
    threads = []
    for entry in entries:
        thread = entry.thread
        if isinstance(thread, str):
            if thread in known:
                threads.append((entry, known[thread]))
            continue
        if thread.branch:
            changed = (source / thread.file).read_text(encoding="utf-8") + thread.appended
            hub.commit(repo, {thread.file: changed}, message=thread.title, author=author, branch=thread.branch)
            opened = hub.open_pull(repo, author=author, head=thread.branch, title=thread.title, body=thread.body)
        else:
            opened = hub.open_issue(repo, author=author, title=thread.title, body=thread.body, labels=thread.labels)
        threads.append((entry, opened.number))
    parts = [f"{_PASTE} {_ELSE[scripted]}"]
    for place, (entry, number) in enumerate(threads, start=1):
        link = f"{hub.url}/{repo.full_name}/issues/{number}?body={quote(entry.comment)}#comment"
        parts += [f"### {place}. {entry.title}", entry.about, f"```\n{entry.comment}\n```"]
        parts += [" ".join(filter(None, [f"[Open #{number} with this comment]({link}).", entry.then]))]
    listing = hub.open_issue(repo, author=author, title=_TITLE, body="\n\n".join(parts))
    return OpenedTour(number=listing.number, threads=tuple(threads))


# ---- A repository of the user's own, copied into a bare one with one branch, which the hub can serve. It is only
# read.


_INITIAL_BRANCH = "main"
_HEADS = "refs/heads/"
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")
_AUTHOR = b"Mona <mona@users.noreply.github.com> now"


class DemoError(BotError):
    """The demo cannot be set up; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy of a repository.

    Attributes:
        path: where it is; bare.
        name: what it may be called on GitHub.
        note: what of the original is not in it, as a sentence; empty when nothing is missing.
    """

    path: Path
    name: str
    note: str = ""


async def copied(repository: Path, target: Path) -> Copied:
    """Copy the branch that is checked out, or the commit, with its history if it is available.

    Args:
        repository: a directory in it.
        target: where the copy is made.

    Raises:
        DemoError: there is no usable commit; the text says why.
    """
    try:
        is_bare = (await Git().run("-C", repository, "rev-parse", "--is-bare-repository")).strip() == b"true"
        what = "--absolute-git-dir" if is_bare else "--show-toplevel"
        found = await Git().run("-C", repository, "rev-parse", what)
    except GitError as error:
        if "dubious ownership" in error.stderr:
            raise DemoError(
                f"{repository} belongs to another user, and git refuses to read it. Run the demo as that user, or on "
                f"your own copy: cp -r {repository} COPY"
            ) from error
        raise DemoError(f"{repository} is not a git repository; try: git init && git commit") from error
    top = Path(found.decode("utf-8", "surrogateescape").removesuffix("\n"))
    if not await _says(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        raise DemoError(f"{repository} has no commit yet; create one first: git commit")
    head = await _says(top, "symbolic-ref", "--quiet", "HEAD")  # nothing where HEAD is detached
    branch = head.removeprefix(_HEADS) or _INITIAL_BRANCH
    copy = Git(git_dir=target)
    await copy.run("init", "--quiet", "--bare", f"--initial-branch={branch}", target)
    name = _FORBIDDEN.sub("-", top.name.removesuffix(".git")).strip("-.") or "project"
    why = "the clone is shallow" if await _says(top, "rev-parse", "--is-shallow-repository") == "true" else ""
    if not why:
        try:
            await copy.run("fetch", "--quiet", "--no-tags", top, f"+HEAD:{_HEADS}{branch}")
        except GitError as error:  # e.g. of another object format, or without some old files
            why = _last_line(error.stderr)
    if why:
        await _import_last_commit(top, copy, branch)
    return Copied(path=target, name=name, note=f"Only the last commit is used, without history: {why}." if why else "")


async def _says(top: Path, *args: str) -> str:
    """What git answers about the repository; nothing when it has no answer."""
    return (await Git().run("-C", top, *args, expect=(0, 1, 128))).decode("utf-8", "surrogateescape").strip()


async def _import_last_commit(top: Path, copy: Git, branch: str) -> None:
    """Make a commit of the files of the last one, byte for byte, whatever the object format and the history."""
    listed = (await Git().run("-C", top, "ls-tree", "-r", "-z", "HEAD")).split(b"\0")
    entries = [(meta.split(), path) for meta, _, path in (line.partition(b"\t") for line in listed if line)]
    files = [(mode, sha, path) for (mode, kind, sha), path in entries if kind == b"blob"]
    wanted = b"".join(sha + b"\n" for sha in dict.fromkeys(sha for _, sha, _ in files))
    if copy.git_dir is None:
        raise TypeError("the copy has a git directory")  # a bug of ours
    contents, stream = copy.git_dir / "demo.contents", copy.git_dir / "demo.import"
    try:
        await Git().run("-C", top, "cat-file", "--batch", stdin=wanted, stdout=contents)
        marks: dict[bytes, int] = {}
        with contents.open("rb") as read, stream.open("wb") as write:
            for sha, data in _blobs(read):
                marks[sha] = len(marks) + 1
                write.write(b"blob\nmark :%d\ndata %d\n%b\n" % (marks[sha], len(data), data))
            message = b"The last commit of a repository without its history"
            write.write(b"commit %b\ncommitter %b\n" % (f"{_HEADS}{branch}".encode(), _AUTHOR))
            write.write(b"data %d\n%b\n" % (len(message), message))
            for mode, sha, path in files:
                quoted = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
                write.write(b'M %b :%d "%b"\n' % (mode, marks[sha], quoted))
        await copy.run("fast-import", "--quiet", "--date-format=now", stdin=stream)
    except (GitError, KeyError) as error:
        why = _last_line(error.stderr) if isinstance(error, GitError) else "some are missing"
        raise DemoError(
            f"The files of the last commit of {top} cannot be read: {why}. If it is a partial clone, fetch them "
            f"first: git -C {top} checkout HEAD -- ."
        ) from error
    finally:
        contents.unlink(missing_ok=True)
        stream.unlink(missing_ok=True)


def _blobs(batch: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The files that `git cat-file --batch` wrote; those that are missing are left out."""
    for line in batch:
        sha, _, rest = line.strip().partition(b" ")
        kind, _, size = rest.partition(b" ")
        if kind != b"blob":
            continue
        data = batch.read(int(size))
        batch.read(1)
        yield sha, data


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("fatal: ").rstrip(".") if lines else "it does not say why"


_SDIST = "boltons==26.2.0"
_SHA256 = "d39cfd15c1a1c3bd4d705c82252fa9edb8e4f5e8cc039f8e39afac7b1b47e92c"
_DATE = "2026-09-07T12:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A repository, and what is wrong with it.

    Attributes:
        full_name: the name that the repository gets on the hub.
        path: a local git repository.
        title: the issue's title.
        body: the issue's text, Markdown.
        request: the comment that sets the bot to work.
        test_command: what shows that it is fixed; None when only the agent knows.
    """

    full_name: str
    path: Path
    title: str
    body: str
    request: str
    test_command: str | None


async def boltons(directory: Path) -> Scenario:
    """Fetch the project, put the bug back in, and make a git repository of it.

    Args:
        directory: where it is unpacked; must exist.

    Raises:
        DemoError: the package index cannot be reached, or the download is not what it should be.
    """
    # Have pip fetch the source distribution, pinned by hash.
    wanted = directory / "project.txt"
    wanted.write_text(f"{_SDIST} --hash=sha256:{_SHA256}\n", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--no-binary", ":all:", "--require-hashes", "--dest", str(directory), "--requirement", str(wanted)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        last = (said.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise DemoError(
            f"pip could not download {_SDIST} from the package index: {last}\nThe demo needs the index once; or use "
            "your own repository: codepilot demo --repo PATH --issue TEXT"
        )
    archive = directory / f"{_SDIST.replace('==', '-')}.tar.gz"
    source = await asyncio.to_thread(_unpack, archive, directory)
    git = Git(git_dir=source / ".git", work_tree=source)
    await git.run("init", "--quiet", "--initial-branch=main", str(source))
    patch = files(__package__).joinpath("boltons-26.2.0.patch").read_bytes()
    await Git().run("-C", str(source), "apply", "-", stdin=patch)
    identity = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Mona"), ("EMAIL", "mona@users.noreply.github.com"), ("DATE", _DATE))
    }
    message = "Release 26.2.0, with the old way of reading fractional seconds"
    await git.run("add", "--all", "--force")
    await git.run("commit", "--quiet", "--no-verify", "-m", message, variables=identity)
    title, _, body = files(__package__).joinpath("issue.md").read_text(encoding="utf-8").partition("\n")
    return Scenario(
        full_name="mona/boltons",
        path=source,
        title=title,
        body=body.strip(),
        request="/codepilot fix isoparse so that tests/test_timeutils.py passes",
        test_command="python -m pytest -q tests/test_timeutils.py",
    )


async def local(repository: Path, issue: str, directory: Path) -> tuple[Scenario, str]:
    """A copy of a git repository of the user's own.

    Args:
        repository: an absolute path of a directory in it.
        issue: what is wrong; the first line is the title.
        directory: where the copy is made; must exist.

    Returns:
        The scenario, and what of the repository is not in it, as a sentence; empty when nothing is missing.

    Raises:
        DemoError: there is no git repository with a commit that can be read.
    """
    title, _, body = issue.strip().partition("\n")
    if not title:
        raise DemoError("--issue is empty; describe the problem, e.g. --issue 'total() ignores the discount'")
    copy = await copied(repository, directory / "own.git")
    scenario = Scenario(
        full_name=f"mona/{copy.name}",
        path=copy.path,
        title=title,
        body=body.strip(),
        request="/codepilot fix",
        test_command=None,
    )
    return scenario, copy.note


def _unpack(archive: Path, directory: Path) -> Path:
    target = directory / "project"
    with tarfile.open(archive) as tar:
        # Python 3.11.3 and older know no filters; the archive's hash is pinned, so nothing unexpected is in it.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        tar.extractall(target)  # noqa: S202 - see above
    [source] = target.iterdir()
    return source


# ---- The scripted models of the demo: its own job must fit the script; later ones are told where they do not.


KEYS = "ANTHROPIC_API_KEY or OPENAI_API_KEY"
_UNKNOWN = f"""\
```completion
This demo has no key of a model service, so its model only knows the replies of its script, and none of them fits \
here. Everything else is real. {{hint}}Start the demo with {KEYS} to have a real model answer.
```
"""
_HINT = 'The issue "Tour: comments to try" lists the comments that it can answer. '


class _PatientScript(ScriptedProvider):
    """Ends a run that leaves the script with a completion that says so."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        try:
            async with aclosing(super().reply(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ScriptError:  # raised before the first chunk
            async with aclosing(ScriptedProvider([_UNKNOWN.format(hint="")]).reply(request)) as chunks:
                async for chunk in chunks:
                    yield chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class TourModel:
    """Answers each request by what is in it, so that it can take up a run that waited for an approval.

    Attributes:
        conversations: what it knows.
        chunk_chars: see `ScriptedProvider`.
        delay: see `ScriptedProvider`.
        model: what it is called.
        sees_images: that it looks at none.
    """

    conversations: Sequence[TourConversation]
    chunk_chars: int
    delay: float
    model: str = "scripted"
    sees_images: bool = False

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Give the reply that `reply_to` chooses."""
        script = ScriptedProvider([self.reply_to(request)], chunk_chars=self.chunk_chars, delay=self.delay)
        async with aclosing(script.reply(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def reply_to(self, request: Request) -> str:
        """The first reply of the task's conversation that was not given yet and fits the newest message."""
        goal = request.messages[0].text.partition("\n[quote ")[0]
        given = {message.text.strip() for message in request.messages if message.role == "assistant"}
        newest = request.messages[-1].text
        known = (each for each in self.conversations if all(words in goal for words in each.goal))
        for each in next(known, TourConversation(goal=(), replies=())).replies:
            if each.reply.strip() not in given and all(words in newest for words in each.expect):
                return each.reply
        return _UNKNOWN.format(hint=_HINT)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def scripted(
    script: str, conversations: Sequence[TourConversation] = (), *, chunk_chars: int, delay: float
) -> Callable[[], Provider]:
    """What makes the model of each run, of which the first one is the demo's own.

    Args:
        script: the file with the replies.
        conversations: of the tour, for all later runs; without any, they begin the script again.
        chunk_chars: see `ScriptedProvider`.
        delay: see `ScriptedProvider`.
    """

    def own(kind: type[ScriptedProvider]) -> Provider:
        return kind.from_file(script, chunk_chars=chunk_chars, delay=delay)

    def later() -> Provider:
        if conversations:
            return TourModel(conversations=conversations, chunk_chars=chunk_chars, delay=delay)
        return own(_PatientScript)

    makers = chain([lambda: own(ScriptedProvider)], repeat(later))
    return lambda: next(makers)()  # noqa: PLW0108 - a maker for each run
